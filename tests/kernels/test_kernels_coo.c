/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Coalescing of sparse gradients: each kernel against a plain reference, and the whole through
 * srt_op_coo_coalesce() for 32- and 64-bit indices, one to four dimensions, blocks of all kinds.
 */
#include "runtime/ops/step.h"
#include "tests/kernels/kernel_check.h"

#include <shardrt/ops.h>

static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };
static srt_dtype_t dtype; /* of the values */

/* A problem and its solution, written plainly. */
typedef struct coo {
	srt_coo_t shape;
	int wide;
	int64_t *indices, *out_indices; /* (ndim,nnz) */
	float *values, *out_values;     /* (nnz,block) */
	int64_t *keys;                  /* of the entries */
	int32_t *order;                 /* entries by rising key, equal ones by position */
	int32_t *starts;                /* of the keys in order */
	int32_t count;
} coo_t;

static int64_t *numbers(int64_t n)
{
	int64_t *x = calloc((size_t)n + 1, sizeof(*x));

	CHECK_OR_DIE(x != NULL);
	return x;
}

static void solve(coo_t *c)
{
	const int64_t n = c->shape.nnz, block = c->shape.block;

	for (int64_t i = 0; i < n; i++) {
		int64_t at = i;

		for (int d = 0; d < c->shape.ndim; d++)
			c->keys[i] = c->keys[i] * c->shape.shape[d] + c->indices[d * n + i];
		for (; at > 0 && c->keys[c->order[at - 1]] > c->keys[i]; at--)
			c->order[at] = c->order[at - 1];
		c->order[at] = (int32_t)i;
	}
	for (int64_t j = 0; j < n; j++) {
		int64_t i = c->order[j];
		int head = j == 0 || c->keys[i] != c->keys[c->order[j - 1]];

		if (head) {
			for (int d = 0; d < c->shape.ndim; d++)
				c->out_indices[d * n + c->count] = c->indices[d * n + i];
			c->starts[c->count++] = (int32_t)j;
		}
		for (int64_t b = 0; b < block; b++) {
			float *sum = &c->out_values[(c->count - 1) * block + b];

			*sum = head ? c->values[i * block + b] : *sum + c->values[i * block + b];
			if (c->shape.round_each)
				*sum = half_round(dtype, *sum);
		}
	}
	for (int64_t i = 0; i < n * block; i++)
		c->out_values[i] = half_round(dtype, c->out_values[i]);
	for (int64_t k = c->count; k < n; k++)
		c->starts[k] = (int32_t)n;
}

static void make(coo_t *c, int64_t nnz, int64_t block, int ndim, int64_t rows, int wide,
		 int round_each)
{
	*c = (coo_t){
		.shape = { .nnz = nnz,
			   .block = block,
			   .ndim = ndim,
			   .shape = { rows, 5, 3, 2 },
			   .round_each = round_each },
		.wide = wide,
	};
	c->indices = numbers(nnz * ndim);
	c->out_indices = numbers(nnz * ndim);
	c->keys = numbers(nnz);
	c->order = (int32_t *)numbers(nnz);
	c->starts = (int32_t *)numbers(nnz);
	c->values = kc_floats(nnz * block, kc_mild);
	c->out_values = kc_floats(nnz * block, NULL);
	for (int d = 0; d < ndim; d++)
		for (int64_t i = 0; i < nnz; i++)
			c->indices[d * nnz + i] =
				(int64_t)random32() % (d ? c->shape.shape[d] : rows);
	for (int64_t i = 0; i < nnz * block; i++) {
		/* sums that a half cannot hold on the way */
		c->values[i] = half_round(dtype, c->values[i] * (i % 5 ? 1.0f : 30000.0f));
		if (i % 97 == 13)
			c->values[i] = i % 2 ? -0.0f : INFINITY;
	}
	solve(c);
}

static void drop(coo_t *c)
{
	free(c->indices);
	free(c->out_indices);
	free(c->keys);
	free(c->order);
	free(c->starts);
	free(c->values);
	free(c->out_values);
}

/* (ndim,nnz) as they lie in memory; the caller's to free. */
static void *packed(const coo_t *c, const int64_t *indices)
{
	const int64_t n = c->shape.nnz * c->shape.ndim;
	int64_t *to = numbers(n);

	for (int64_t i = 0; i < n; i++) {
		if (c->wide)
			to[i] = indices[i];
		else
			((int32_t *)to)[i] = (int32_t)indices[i];
	}
	return to;
}

/* ---- kernels ------------------------------------------------------------------------------- */

/* Sorts runs of `width` entries of ordered input. */
static void sort_runs(const coo_t *c, int64_t width, int64_t *keys, int32_t *order)
{
	const int64_t n = c->shape.nnz;

	for (int64_t first = 0; first < n; first += width) {
		int64_t end = first + width < n ? first + width : n, at = first;

		for (int64_t j = 0; j < n; j++) {
			if (c->order[j] < first || c->order[j] >= end)
				continue;
			order[at] = c->order[j];
			keys[at++] = c->keys[c->order[j]];
		}
	}
}

static void check_sort(const coo_t *c, const srt_k_coo_t *args, const void *indices)
{
	const size_t n = (size_t)c->shape.nnz;
	int64_t *keys[2] = { numbers(c->shape.nnz), numbers(c->shape.nnz) };
	int32_t *order[2] = { (int32_t *)numbers(c->shape.nnz), (int32_t *)numbers(c->shape.nnz) };
	int64_t width = SRT_K_LANES;

	sort_runs(c, width, keys[0], order[0]);
	kc_begin(SRT_K_COO_SORT, args, "blocks");
	kc_out_bytes(NULL, keys[0], n * 8);
	kc_out_bytes(NULL, order[0], n * 4);
	kc_in_struct(indices, n * (size_t)c->shape.ndim * (c->wide ? 8 : 4));
	kc_run();
	for (int from = 0; width < c->shape.nnz; width *= 2, from = 1 - from) {
		srt_k_coo_t merge = *args;

		merge.width = width;
		sort_runs(c, 2 * width, keys[1 - from], order[1 - from]);
		kc_begin(SRT_K_COO_MERGE, &merge, "runs");
		kc_out_bytes(NULL, keys[1 - from], n * 8);
		kc_out_bytes(NULL, order[1 - from], n * 4);
		kc_in_struct(keys[from], n * 8);
		kc_in(order[from], n * 4);
		kc_run();
	}
	for (int i = 0; i < 2; i++) {
		free(keys[i]);
		free(order[i]);
	}
}

static void check_heads(const coo_t *c, const srt_k_coo_t *args, const void *indices)
{
	const size_t n = (size_t)c->shape.nnz,
		     index_nbytes = n * (size_t)c->shape.ndim * (c->wide ? 8 : 4);
	int64_t *keys = numbers(c->shape.nnz);
	int32_t *counts = (int32_t *)numbers(c->shape.nnz);
	size_t ngroups = (n + SRT_K_ELEMENTS - 1) / SRT_K_ELEMENTS;
	void *out = packed(c, c->out_indices);

	for (int64_t i = 0; i < c->shape.nnz; i++) {
		keys[i] = c->keys[c->order[i]];
		counts[i / SRT_K_ELEMENTS] += i == 0 || keys[i] != keys[i - 1];
	}
	kc_begin(SRT_K_COO_COUNT, args, "count");
	kc_out_bytes(NULL, counts, ngroups * 4);
	kc_in_struct(keys, n * 8);
	kc_run();
	kc_begin(SRT_K_COO_HEADS, args, "heads");
	kc_out_bytes(NULL, c->starts, n * 4);
	kc_out_bytes(NULL, out, index_nbytes);
	kc_out_bytes(NULL, &c->count, 4);
	kc_in_struct(keys, n * 8);
	kc_in(counts, ngroups * 4);
	kc_in(c->order, n * 4);
	kc_in_struct(indices, index_nbytes);
	kc_run();
	free(out);
	free(counts);
	free(keys);
}

static void check_kernels(const coo_t *c)
{
	const int64_t n = c->shape.nnz, nvalues = n * c->shape.block;
	srt_k_coo_t args = { .nnz = n,
			     .block = c->shape.block,
			     .ndim = c->shape.ndim,
			     .wide = c->wide,
			     .round_each = c->shape.round_each };
	void *indices = packed(c, c->indices);

	memcpy(args.shape, c->shape.shape, sizeof(args.shape));
	check_sort(c, &args, indices);
	check_heads(c, &args, indices);
	kc_begin_as(dtype, SRT_K_COO_SUM, &args, "sum");
	kc_out(NULL, c->out_values, nvalues);
	kc_in_t(c->values, nvalues);
	kc_in(c->order, (size_t)n * 4);
	kc_in(c->starts, (size_t)n * 4);
	kc_in(&c->count, 4);
	kc_run();
	free(indices);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void check_op(const coo_t *c)
{
	const size_t n = (size_t)c->shape.nnz, nvalues = n * (size_t)c->shape.block;
	const size_t index_nbytes = n * (size_t)c->shape.ndim * (c->wide ? 8 : 4);
	const size_t value_nbytes = nvalues * srt_dtype_bits(dtype) / 8;
	const srt_dtype_t index = c->wide ? SRT_I64 : SRT_I32;
	void *indices = packed(c, c->indices), *out_indices = packed(c, c->out_indices);
	unsigned char *values = malloc(value_nbytes + 1), *want = malloc(value_nbytes + 1);
	unsigned char *got = malloc(value_nbytes + index_nbytes + 1);
	size_t at[5], used = 0, scratch_nbytes;
	srt_scaler_sparse_t sparse;
	srt_buffer_t *buffer;
	int32_t count = -1;

	CHECK_OR_DIE(values != NULL && want != NULL && got != NULL);
	for (size_t i = 0; i < nvalues; i++) {
		half_put(dtype, values, i, c->values[i]);
		half_put(dtype, want, i, c->out_values[i]);
	}
	CHECK_OK_OR_DIE(srt_coo_scratch(&c->shape, &scratch_nbytes));
	for (int i = 0; i < 5; i++) {
		size_t sizes[] = { index_nbytes, value_nbytes, index_nbytes, value_nbytes, 4 };

		at[i] = used;
		used = srt_align_up(used + sizes[i], 64);
	}
	kc_open();
	buffer = test_buffer(kc_device, used + scratch_nbytes, "coo");
	test_put(kc_stream, buffer, at[0], indices, index_nbytes);
	test_put(kc_stream, buffer, at[1], values, value_nbytes);
	sparse = (srt_scaler_sparse_t){ .coo = c->shape,
					.indices = srt_view(buffer, at[0], index),
					.out_indices = srt_view(buffer, at[2], index),
					.out_values = srt_view(buffer, at[3], dtype),
					.count = srt_view(buffer, at[4], SRT_I32),
					.scratch = srt_view(buffer, used, SRT_U8) };
	CHECK_OK(srt_op_coo_coalesce(&sparse, srt_view(buffer, at[1], dtype), kc_stream));
	test_get(kc_stream, &count, buffer, at[4], sizeof(count));
	CHECK_INT(count, c->count);
	test_get(kc_stream, got, buffer, at[2], index_nbytes);
	CHECK(!memcmp(got, out_indices, index_nbytes));
	test_get(kc_stream, got, buffer, at[3], value_nbytes);
	for (size_t i = 0; i < nvalues; i++) {
		float a = half_get(dtype, got, i), b = half_get(dtype, want, i);

		CHECK_MSG(!memcmp(&a, &b, sizeof(a)) || (a != a && b != b),
			  "[%zu]: %a, expected %a", i, (double)a, (double)b);
	}
	srt_buffer_destroy(buffer);
	free(indices);
	free(out_indices);
	free(values);
	free(want);
	free(got);
}

static void test_refused(void)
{
	srt_scaler_sparse_t sparse = {
		.coo = { .nnz = 3, .block = 1, .ndim = 5, .shape = { 2, 3 } }
	};
	srt_view_t v = { 0 };
	size_t nbytes;

	kc_open();
	CHECK_STATUS(srt_coo_scratch(&sparse.coo, &nbytes), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("ndim is 5, must be 1 to 4");
	sparse.coo.ndim = 2;
	sparse.coo.shape[0] = INT64_MAX;
	CHECK_STATUS(srt_op_coo_coalesce(&sparse, v, kc_stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("srt_op_coo_coalesce: the shape is negative or too large");
	sparse.coo.shape[0] = 2;
	sparse.coo.nnz = (int64_t)1 << 31;
	CHECK_STATUS(srt_coo_scratch(&sparse.coo, &nbytes), SRT_ERR_INVALID_ARGUMENT);
	sparse.coo.nnz = 3;
	CHECK_STATUS(srt_op_coo_coalesce(&sparse, v, kc_stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("srt_op_coo_coalesce: scratch is absent");
}

int main(void)
{
	static const struct {
		int64_t nnz, block, rows;
		int ndim, wide;
	} cases[] = {
		{ 1, 1, 7, 1, 1 },     { 3, 1, 2, 2, 0 },     { 64, 2, 1000, 1, 0 },
		{ 65, 1, 4, 2, 1 },    { 200, 63, 9, 1, 1 },  { 500, 1, 1, 1, 0 },
		{ 333, 70, 50, 1, 0 }, { 5000, 1, 60, 3, 1 }, { 2100, 3, 1 << 30, 1, 0 },
		{ 40, 0, 9, 1, 1 },    { 4100, 1, 3, 4, 0 },
	};

	for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			coo_t c;

			dtype = dtypes[d];
			make(&c, cases[i].nnz, cases[i].block, cases[i].ndim, cases[i].rows,
			     cases[i].wide, dtypes[d] != SRT_F32 && i % 2);
			check_kernels(&c);
			check_op(&c);
			drop(&c);
		}
	}
	test_refused();
	return kc_done();
}
