/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Embedding, of a part of a table too, and its two gradients, with and without a padding row, in
 * f32, f16 and bf16, against plain references in the order that docs/numerics.md fixes. Rows put
 * into a table, of any bits.
 */
#include "tests/kernels/kernel_check.h"

static srt_dtype_t dtype;

static void embedding_part(const int32_t *ids, int64_t rows, int64_t n, int64_t vocab,
			   int64_t context, int64_t before, int64_t after, int with_position)
{
	const srt_k_embedding_t args = { .rows = rows,
					 .n = n,
					 .vocab = vocab,
					 .before = before,
					 .after = after,
					 .context = context };
	float *table = kc_floats(vocab * n, kc_hard), *position = kc_floats(context * n, kc_hard);
	float *want = kc_floats(rows * n, NULL);

	kc_round(dtype, table, vocab * n);
	kc_round(dtype, position, context * n);
	for (int64_t i = 0; i < rows * n; i++) {
		int64_t row = ids[i / n] - before, t = i / n % context;
		float of_table = row >= 0 && row < vocab ? table[row * n + i % n] : -0.0f;

		if (row < -before || row >= vocab + after)
			want[i] = NAN;
		else
			want[i] = with_position ? of_table + position[t * n + i % n] : of_table;
	}
	kc_begin_as(dtype, SRT_K_EMBEDDING, &args, "forward of a part");
	kc_out(NULL, want, rows * n);
	kc_in_t(table, vocab * n);
	if (with_position)
		kc_in_t(position, context * n);
	else
		kc_absent();
	kc_in(ids, (size_t)rows * sizeof(*ids));
	kc_run();
	free(table);
	free(position);
	free(want);
}

static void embedding_forward(const int32_t *ids, int64_t rows, int64_t n, int64_t vocab,
			      int64_t context, int with_position)
{
	srt_k_embedding_t args = { .rows = rows, .n = n, .vocab = vocab, .context = context };
	float *table = kc_floats(vocab * n, kc_hard), *position = kc_floats(context * n, kc_hard);
	float *want = kc_floats(rows * n, NULL);

	kc_round(dtype, table, vocab * n);
	kc_round(dtype, position, context * n);
	for (int64_t i = 0; i < rows * n; i++) {
		int64_t id = ids[i / n], t = i / n % context;

		if (id < 0 || id >= vocab)
			want[i] = NAN;
		else
			want[i] = with_position ? table[id * n + i % n] + position[t * n + i % n] :
						  table[id * n + i % n];
	}
	kc_begin_as(dtype, SRT_K_EMBEDDING, &args, "forward");
	kc_out(NULL, want, rows * n);
	kc_in_t(table, vocab * n);
	if (with_position)
		kc_in_t(position, context * n);
	else
		kc_absent();
	kc_in(ids, (size_t)rows * sizeof(*ids));
	kc_run();
	free(table);
	free(position);
	free(want);
}

/* The gradient of a table whose first row is that of id `before`, or with a context the positions'.
 * padding: an id without one; -1: none. */
static void embedding_backward(const int32_t *ids, int64_t rows, int64_t n, int64_t vocab,
			       int64_t context, int64_t before, int64_t padding, int accumulate)
{
	srt_k_embedding_t args = { .rows = rows,
				   .n = n,
				   .vocab = vocab,
				   .before = before,
				   .context = context,
				   .padding = (int32_t)padding + 1,
				   .accumulate = accumulate };
	int positions = context > 0;
	int64_t nowners = positions ? context : vocab;
	float *dy = kc_floats(rows * n, kc_mild), *old = kc_floats(nowners * n, kc_mild);
	float *want = kc_floats(nowners * n, NULL);

	kc_round(dtype, dy, rows * n);
	kc_round(dtype, old, nowners * n);
	if (nowners * n > 0)
		old[0] = -0.0f; /* a row that nothing is added to stays as it is */
	for (int64_t v = 0; v < nowners; v++) {
		for (int64_t j = 0; j < n; j++) {
			float sum = 0.0f;
			int hit = positions;

			for (int64_t r = 0; r < rows; r++) {
				if ((positions ? r % context : ids[r]) != before + v ||
				    before + v == padding)
					continue;
				sum = sum + dy[r * n + j];
				hit = 1;
			}
			want[v * n + j] = !accumulate ? sum :
					  hit         ? old[v * n + j] + sum :
							old[v * n + j];
		}
	}
	kc_begin_as(dtype, positions ? SRT_K_POSITION_BACKWARD : SRT_K_EMBEDDING_BACKWARD, &args,
		    "backward");
	kc_out(accumulate ? old : NULL, want, nowners * n);
	kc_in_t(dy, rows * n);
	if (!positions)
		kc_in(ids, (size_t)rows * sizeof(*ids));
	kc_run();
	free(dy);
	free(old);
	free(want);
}

/*
 * Rows of dtable that one group owns, SRT_K_EMBED_BUCKETS apart, in both ways to find their rows:
 * all listed at once, or each looked for, where they are too many for the list.
 */
static void test_embedding_owners(int64_t rows, int64_t frequent)
{
	const int64_t vocab = 2 * SRT_K_EMBED_BUCKETS + 7;
	int32_t *ids = malloc((size_t)rows * sizeof(*ids));

	CHECK_OR_DIE(ids != NULL);
	for (int64_t r = 0; r < rows; r++)
		ids[r] = (int32_t)(random32() % 3 * SRT_K_EMBED_BUCKETS + random32() % 9);
	for (int64_t r = 0; r < frequent; r++)
		ids[r * rows / frequent] = SRT_K_EMBED_BUCKETS + 5;
	ids[1] = -SRT_K_EMBED_BUCKETS + 5; /* outside, but in a group's share */
	for (int k = 0; k < 2; k++) {
		embedding_backward(ids, rows, 3, vocab, 0, 0, -1, k);
		embedding_backward(ids, rows, 3, vocab, 0, 0, SRT_K_EMBED_BUCKETS + 5, k);
		embedding_backward(ids, rows, 3, vocab, 0, SRT_K_EMBED_BUCKETS - 3, -1, k);
		embedding_backward(ids, rows, 3, 7, 0, SRT_K_EMBED_BUCKETS, -1, k);
	}
	free(ids);
}

static void test_embedding(int64_t rows, int64_t n, int64_t vocab, int64_t context)
{
	int32_t *ids = malloc(((size_t)rows + 1) * sizeof(*ids));

	CHECK_OR_DIE(ids != NULL);
	for (int64_t r = 0; r < rows; r++) /* never 0: a row of the table without any id */
		ids[r] = (int32_t)(1 + random32() % (uint32_t)(vocab - 1));
	for (int k = 0; k < 2; k++) {
		embedding_forward(ids, rows, n, vocab, context, k);
		embedding_backward(ids, rows, n, vocab, 0, 0, -1, k);
		embedding_backward(ids, rows, n, vocab, 0, 0, vocab - 1, k);
		embedding_backward(ids, rows, n, vocab, 0, 0, 0, k);
		embedding_backward(ids, rows, n, vocab, context, 0, -1, k);
	}
	if (rows > 3) {
		ids[2] = -1;
		ids[3] = (int32_t)vocab;
		embedding_forward(ids, rows, n, vocab, context, 1);
		for (int k = 0; k < 2; k++) {
			embedding_part(ids, rows, n, vocab - 1, context, 1, 0, k);
			embedding_part(ids, rows, n, vocab / 2, context, 0, vocab - vocab / 2, k);
			embedding_part(ids, rows, n, 1, context, vocab - 2, 1, k);
		}
		embedding_backward(ids, rows, n, vocab - 1, 0, 1, -1, 0);
		embedding_backward(ids, rows, n, vocab - 2, 0, 1, vocab - 2, 1);
	}
	free(ids);
}

static unsigned char *random_bytes(size_t nbytes)
{
	unsigned char *m = malloc(nbytes + 1);

	CHECK_OR_DIE(m != NULL);
	for (size_t i = 0; i < nbytes; i++)
		m[i] = (unsigned char)random32();
	return m;
}

/* Every row of y is named once at most; some indices are outside. All NaN are among the bits. */
static void test_index_copy(int64_t rows, int64_t n, int64_t yrows, int64_t ldx, int64_t ldy)
{
	const srt_k_index_copy_t args = {
		.rows = rows, .n = n, .yrows = yrows, .ldx = ldx, .ldy = ldy
	};
	const size_t width = dtype == SRT_F32 ? 4 : 2;
	const size_t x_nbytes = (size_t)(rows * ldx) * width;
	const size_t y_nbytes = (size_t)(yrows * ldy) * width;
	unsigned char *x = random_bytes(x_nbytes), *y = random_bytes(y_nbytes);
	unsigned char *want = malloc(y_nbytes + 1);
	int32_t *index = malloc(((size_t)rows + 1) * sizeof(*index));

	CHECK_OR_DIE(want != NULL && index != NULL);
	memcpy(want, y, y_nbytes);
	/* 5 r is another row each time: 5 does not divide yrows. */
	for (int64_t r = 0; r < rows; r++)
		index[r] = r < yrows ? (int32_t)(5 * r % yrows) : INT32_MAX;
	if (rows > 4) {
		index[1] = -1;
		index[2] = INT32_MIN;
		index[3] = (int32_t)yrows;
	}
	for (int64_t r = 0; r < rows; r++)
		if (index[r] >= 0 && index[r] < yrows)
			memcpy(want + (size_t)(index[r] * ldy) * width,
			       x + (size_t)(r * ldx) * width, (size_t)n * width);
	kc_begin_as(dtype, SRT_K_INDEX_COPY, &args, "rows by number");
	kc_out_bytes(y, want, y_nbytes);
	kc_in(x, x_nbytes);
	kc_in(index, (size_t)rows * sizeof(*index));
	kc_run();
	free(x);
	free(y);
	free(want);
	free(index);
}

int main(void)
{
	for (dtype = SRT_F32; dtype <= SRT_BF16; dtype++) {
		test_embedding(7, 3, 5, 4);
		test_embedding(130, 65, 17, 13);
		test_embedding(64, 1009, 3, 64);
		test_embedding(0, 64, 4, 4);
		test_embedding_owners(600, 90);
		test_embedding_owners(5200, 4300);
		test_index_copy(0, 3, 4, 3, 3);
		test_index_copy(1, 1, 1, 1, 1);
		test_index_copy(7, 64, 7, 64, 64);
		test_index_copy(13, 67, 32, 201, 67);
		test_index_copy(9, 600, 21, 600, 607);
		test_index_copy(20, 130, 6, 131, 130);
	}
	return kc_done();
}
