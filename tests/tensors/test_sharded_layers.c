/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Linear layers and embeddings with a sharded weight, on subsets and orders of ranks, with more
 * ranks than rows and columns, and ranks without rows or shards: outputs and gradients have the
 * bits of a layer with the whole weight over the rows of all ranks. Where ranks sum, in fp32, those
 * of the tree of partial products. Run by test_sharded_tensor.sh; mode "wrong": one rank's argument
 * is wrong.
 */
#include <shardrt/ops.h>

#include "base/base.h"
#include "tests/harness/random.h"
#include "tests/tensors/tensor_case.h"

enum { MAX_RANKS = 8, MAX_ROWS = 5 * MAX_RANKS, MAX_WIDTH = 16, MAX = MAX_ROWS * MAX_WIDTH };

static tensor_case_t c;

/* A case, the same on all ranks. */
typedef struct layer_case {
	bool is_embedding, has_bias;
	int dim;
	srt_dtype_t dtype;
	int64_t shape[2], in, out;             /* Embedding: in is the vocabulary */
	int64_t rows[MAX_RANKS], total, first; /* first: of this rank */
	tensor_sharding_t sharding;
} layer_case_t;

/* ---- whole tensors on each rank ---------------------------------------------------------- */

enum { W, B, X, DY, Y, DX, DW, OLD, PART, NTENSORS };

static srt_buffer_t *memory[NTENSORS];

static srt_view_t view(const layer_case_t *l, int t)
{
	return srt_view(memory[t], 0, t == X && l->is_embedding ? SRT_I32 : l->dtype);
}

static void draw(const layer_case_t *l, int t, const char *name, int64_t nelem)
{
	CHECK_OK(srt_op_normal(&(srt_normal_t){ .size = sizeof(srt_normal_t),
						.y = view(l, t),
						.seed = random_state,
						.name = name,
						.nelem = nelem,
						.std = 1.0f },
			       c.stream));
}

static void get(int t, void *host, size_t nbytes)
{
	CHECK_OK(srt_buffer_copy_to_host(host, memory[t], 0, nbytes, c.stream));
}

static srt_matmul_t product(int64_t m, int64_t n, int64_t k, int trans_a, int trans_b)
{
	return (srt_matmul_t){ .size = sizeof(srt_matmul_t),
			       .batch = 1,
			       .alpha = 1.0f,
			       .m = m,
			       .n = n,
			       .k = k,
			       .trans_a = trans_a,
			       .trans_b = trans_b,
			       .lda = trans_a ? m : k,
			       .ldb = trans_b ? k : n,
			       .ldc = n };
}

/* y, dx and dw of a layer with the whole weight. */
static void whole_layer(const layer_case_t *l, int accumulate)
{
	srt_matmul_t y = product(l->total, l->out, l->in, 0, 1);
	srt_matmul_t dx = product(l->total, l->in, l->out, 0, 0);
	srt_matmul_t dw = product(l->out, l->in, l->total, 1, 0);
	srt_embedding_t embedding = SRT_EMBEDDING_INIT;

	if (l->is_embedding) {
		embedding.rows = l->total;
		embedding.n = l->out;
		embedding.vocab = l->in;
		embedding.ids = view(l, X);
		embedding.table = view(l, W);
		embedding.y = view(l, Y);
		embedding.dy = view(l, DY);
		embedding.dtable = view(l, DW);
		embedding.accumulate_dtable = accumulate;
		CHECK_OK(srt_op_embedding(&embedding, c.stream));
		CHECK_OK(srt_op_embedding_backward(&embedding, c.stream));
		return;
	}
	y.a = dw.b = view(l, X);
	y.b = dx.b = view(l, W);
	y.c = view(l, Y);
	dx.a = dw.a = view(l, DY);
	dx.c = view(l, DX);
	dw.c = view(l, DW);
	dw.accumulate = accumulate;
	if (l->has_bias)
		y.bias = view(l, B);
	CHECK_OK(srt_op_matmul(&y, c.stream));
	CHECK_OK(srt_op_matmul(&dx, c.stream));
	CHECK_OK(srt_op_matmul(&dw, c.stream));
}

/* The product that is cut in its sum, of fp32: the parts of the ranks, added by the tree. `of_y`:
 * y, else dx. */
static void sum_parts(const layer_case_t *l, bool of_y, float *sum)
{
	static float parts[MAX_RANKS][MAX];
	const int64_t width = of_y ? l->out : l->in, k = of_y ? l->in : l->out;
	const size_t nelem = (size_t)(l->total * width), n = l->sharding.sharding.nlocations;
	srt_shard_t shards[TENSOR_MAX_SHARDS];
	int nparts = c.world;

	for (int r = 0; r < c.world; r++)
		for (size_t i = 0; i < nelem; i++)
			parts[r][i] = -0.0f;
	CHECK_OK(srt_sharding_resolve(&l->sharding.sharding, c.world, 2, l->shape, shards, n));
	for (size_t s = 0; s < n; s++) {
		const size_t first = (size_t)shards[s].offset[l->dim] * sizeof(float);
		srt_matmul_t mm = product(l->total, width, shards[s].size[l->dim], 0, of_y);

		if (mm.k == 0)
			continue;
		mm.a = view(l, of_y ? X : DY);
		mm.a.offset = first;
		mm.lda = k;
		mm.b = view(l, W);
		mm.b.offset = of_y ? first : first * (size_t)l->in;
		mm.ldb = l->in;
		mm.c = view(l, PART);
		CHECK_OK(srt_op_matmul(&mm, c.stream));
		get(PART, parts[shards[s].location.rank], nelem * sizeof(float));
	}
	for (; nparts > 1; nparts = (nparts + 1) / 2) {
		for (int p = 0; p < (nparts + 1) / 2; p++)
			for (size_t i = 0; i < nelem; i++)
				parts[p][i] = 2 * p + 1 < nparts ?
						      parts[2 * p][i] + parts[2 * p + 1][i] :
						      parts[2 * p][i];
	}
	memcpy(sum, parts[0], nelem * sizeof(float));
}

/* ---- comparison -------------------------------------------------------------------------- */

/* This rank's rows of a whole tensor, bit for bit. */
static void check_rows(const layer_case_t *l, const void *got, const void *whole, int64_t width,
		       const char *what)
{
	const size_t size = srt_dtype_bits(l->dtype) / 8;
	const size_t nbytes = (size_t)(l->rows[c.rank] * width) * size;

	CHECK_MSG(memcmp(got, (const char *)whole + (size_t)(l->first * width) * size, nbytes) == 0,
		  "%s of a %s cut by dimension %d: weight (%lld,%lld), %zu locations, %s", what,
		  l->is_embedding ? "embedding" : "linear", l->dim, (long long)l->shape[0],
		  (long long)l->shape[1], l->sharding.sharding.nlocations,
		  srt_dtype_name(l->dtype));
}

static void check_pass(const layer_case_t *l, srt_buffer_t *y, srt_buffer_t *dx,
		       const srt_sharded_tensor_t *grad)
{
	static unsigned char whole[MAX * 4], got[MAX * 4];
	static float sum[MAX], bias[MAX_WIDTH];
	const size_t size = srt_dtype_bits(l->dtype) / 8;
	const size_t mine = (size_t)l->rows[c.rank] * size;
	const bool sums_y = !l->is_embedding && l->dim == 1, is_f32 = l->dtype == SRT_F32;

	CHECK_OK(srt_buffer_copy_to_host(got, y, 0, mine * (size_t)l->out, c.stream));
	get(Y, whole, (size_t)(l->total * l->out) * size);
	if (sums_y && is_f32) {
		sum_parts(l, true, sum);
		get(B, bias, (size_t)l->out * sizeof(float));
		for (int64_t i = 0; l->has_bias && i < l->total * l->out; i++)
			sum[i] += bias[i % l->out];
		memcpy(whole, sum, sizeof(whole));
	}
	if (!sums_y || is_f32)
		check_rows(l, got, whole, l->out, "y");
	get(DW, whole, (size_t)(l->in * l->out) * size);
	tensor_check(&c, grad, whole, "gradient of the weight");
	if (l->is_embedding)
		return;
	CHECK_OK(srt_buffer_copy_to_host(got, dx, 0, mine * (size_t)l->in, c.stream));
	get(DX, whole, (size_t)(l->total * l->in) * size);
	if (!sums_y && is_f32) {
		sum_parts(l, false, sum);
		memcpy(whole, sum, sizeof(whole));
	}
	if (sums_y || is_f32)
		check_rows(l, got, whole, l->in, "dx");
}

/* ---- cases ------------------------------------------------------------------------------- */

/* Some of the ranks, in a random order. */
static void choose_places(layer_case_t *l)
{
	tensor_sharding_t *s = &l->sharding;

	tensor_chunks(s, l->dim, c.world);
	for (int i = c.world - 1; i > 0; i--) {
		const unsigned j = random32() % (unsigned)(i + 1);
		const srt_shard_location_t location = s->locations[i];

		s->locations[i] = s->locations[j];
		s->locations[j] = location;
	}
	s->sharding.nlocations = 1 + random32() % (unsigned)c.world;
}

static void choose(layer_case_t *l, bool is_embedding, int dim, srt_dtype_t dtype)
{
	*l = (layer_case_t){ .is_embedding = is_embedding,
			     .has_bias = !is_embedding && random32() % 2,
			     .dim = dim,
			     .dtype = dtype };
	for (int d = 0; d < 2; d++)
		l->shape[d] = 1 + (int64_t)(random32() % MAX_WIDTH);
	l->in = l->shape[is_embedding ? 0 : 1];
	l->out = l->shape[is_embedding ? 1 : 0];
	for (int r = 0; r < c.world; r++) {
		l->rows[r] = (int64_t)(random32() % 6);
		if (r == c.rank)
			l->first = l->total;
		l->total += l->rows[r];
	}
	choose_places(l);
}

static void draw_inputs(const layer_case_t *l)
{
	int32_t ids[MAX_ROWS];

	draw(l, W, "w", l->in * l->out);
	draw(l, B, "b", l->out);
	draw(l, DY, "dy", l->total * l->out);
	draw(l, DW, "dw", l->in * l->out);
	if (!l->is_embedding) {
		draw(l, X, "x", l->total * l->in);
		return;
	}
	for (int64_t i = 0; i < l->total; i++)
		ids[i] = (int32_t)(random32() % (unsigned)l->in);
	CHECK_OK(srt_buffer_copy_from_host(memory[X], 0, ids, (size_t)l->total * sizeof(*ids),
					   c.stream));
}

/* This rank's rows of a whole tensor, as the layer gets them. */
static srt_view_t rows_of(const layer_case_t *l, int t, int64_t width)
{
	srt_view_t v = view(l, t);

	v.offset = (size_t)(l->first * width) * srt_dtype_bits(v.dtype) / 8;
	return v;
}

static srt_sharded_layer_t *create(const layer_case_t *l, srt_sharded_tensor_t *weight,
				   srt_sharded_tensor_t *grad)
{
	srt_sharded_layer_t *layer;

	CHECK_OK_OR_DIE(
		l->is_embedding ?
			srt_sharded_layer_create_embedding(weight, grad, l->rows[c.rank], &layer) :
			srt_sharded_layer_create_linear(weight, grad, l->rows[c.rank], &layer));
	return layer;
}

static void test_layer(bool is_embedding, int dim, srt_dtype_t dtype)
{
	const srt_view_t none = { 0 };
	srt_sharded_tensor_t *weight, *grad;
	srt_sharded_layer_t *layer;
	srt_buffer_t *y, *dx;
	unsigned char bytes[MAX_WIDTH * MAX_WIDTH * 4];
	layer_case_t l;

	choose(&l, is_embedding, dim, dtype);
	draw_inputs(&l);
	CHECK_OK_OR_DIE(
		srt_buffer_create(srt_context_device(c.context), SRT_MEM_DEVICE, MAX * 4, "y", &y));
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(c.context), SRT_MEM_DEVICE, MAX * 4,
					  "dx", &dx));
	CHECK_OK_OR_DIE(srt_sharded_tensor_create_from(c.context, NULL, "w", 2, l.shape,
						       &l.sharding.sharding, 0, view(&l, W),
						       &weight, c.stream));
	CHECK_OK_OR_DIE(srt_sharded_tensor_create_like(weight, "dw", &grad));
	get(DW, bytes, (size_t)(l.in * l.out) * srt_dtype_bits(dtype) / 8);
	tensor_set(&c, grad, bytes);
	layer = create(&l, weight, grad);
	/* The first pass adds to the gradient, the second stores it. */
	for (int accumulate = 1; accumulate >= 0; accumulate--) {
		whole_layer(&l, accumulate);
		CHECK_OK(srt_sharded_layer_forward(layer, rows_of(&l, X, is_embedding ? 1 : l.in),
						   l.has_bias ? view(&l, B) : none,
						   srt_view(y, 0, dtype), c.stream));
		CHECK_OK(srt_sharded_layer_backward(layer, rows_of(&l, DY, l.out),
						    is_embedding ? none : srt_view(dx, 0, dtype),
						    accumulate, c.stream));
		check_pass(&l, y, dx, grad);
	}
	srt_sharded_layer_destroy(layer);
	layer = create(&l, weight, NULL); /* frozen: only outputs */
	CHECK_OK(srt_buffer_zero(y, 0, MAX * 4, c.stream));
	CHECK_OK(srt_sharded_layer_forward(layer, rows_of(&l, X, is_embedding ? 1 : l.in),
					   l.has_bias ? view(&l, B) : none, srt_view(y, 0, dtype),
					   c.stream));
	CHECK_OK(srt_sharded_layer_backward(layer, rows_of(&l, DY, l.out), none, 0, c.stream));
	check_pass(&l, y, dx, grad);
	srt_sharded_layer_destroy(layer);
	srt_sharded_tensor_destroy(weight);
	srt_sharded_tensor_destroy(grad);
	srt_buffer_destroy(y);
	srt_buffer_destroy(dx);
}

/* ---- errors ------------------------------------------------------------------------------ */

static srt_sharded_tensor_t *zeros(srt_dtype_t dtype, int ndim, const tensor_sharding_t *s)
{
	const int64_t shape[] = { 6, 4, 2 };
	srt_sharded_tensor_t *t;

	CHECK_OK_OR_DIE(srt_sharded_tensor_create(c.context, NULL, "w", dtype, ndim, shape,
						  &s->sharding, &t));
	return t;
}

static void test_errors(void)
{
	const bool last = c.rank == c.world - 1;
	srt_sharded_layer_t *layer = NULL;
	tensor_sharding_t rows, columns, twice;
	srt_sharded_tensor_t *w, *cube, *ints, *other, *both;

	tensor_chunks(&rows, 0, c.world);
	tensor_chunks(&columns, 1, c.world);
	tensor_chunks(&twice, 0, c.world + 1);
	twice.locations[c.world].rank = 0;
	w = zeros(SRT_F32, 2, &rows);
	cube = zeros(SRT_F32, 3, &rows);
	ints = zeros(SRT_I32, 2, &rows);
	other = zeros(SRT_F16, 2, &columns);
	both = zeros(SRT_F32, 2, &twice);
	REFUSED(srt_sharded_layer_create_linear(cube, NULL, 1, &layer), SRT_ERR_INVALID_ARGUMENT,
		"'w' must be a matrix of f32, f16 or bf16, in chunks");
	REFUSED(srt_sharded_layer_create_embedding(ints, NULL, 1, &layer), SRT_ERR_INVALID_ARGUMENT,
		"must be a matrix");
	REFUSED(srt_sharded_layer_create_linear(w, last ? other : NULL, 1, &layer),
		SRT_ERR_INVALID_ARGUMENT, "the gradient of the weight 'w' has another shape");
	REFUSED(srt_sharded_layer_create_linear(both, NULL, 1, &layer), SRT_ERR_INVALID_ARGUMENT,
		"are both on rank 0");
	REFUSED(srt_sharded_layer_create_linear(w, NULL, last ? -1 : 1, &layer),
		SRT_ERR_INVALID_ARGUMENT, "-1 rows of the input of 'w'");
	REFUSED(srt_sharded_layer_create_linear(w, NULL, INT64_MAX, &layer),
		SRT_ERR_INVALID_ARGUMENT, "too many rows of the input of 'w'");
	CHECK(layer == NULL);
	srt_sharded_tensor_destroy(cube);
	srt_sharded_tensor_destroy(ints);
	srt_sharded_tensor_destroy(other);
	srt_sharded_tensor_destroy(both);
	srt_sharded_tensor_destroy(w);
}

/* An embedding cut by columns has no memory of rows x vocabulary. */
static void test_no_sum(void)
{
	const int64_t shape[] = { (int64_t)1 << 30, 0 };
	tensor_sharding_t columns;
	srt_sharded_tensor_t *w;
	srt_sharded_layer_t *layer;

	tensor_chunks(&columns, 1, c.world);
	CHECK_OK_OR_DIE(srt_sharded_tensor_create(c.context, NULL, "w", SRT_F32, 2, shape,
						  &columns.sharding, &w));
	CHECK_OK_OR_DIE(srt_sharded_layer_create_embedding(w, NULL, (int64_t)1 << 20, &layer));
	srt_sharded_layer_destroy(layer);
	srt_sharded_tensor_destroy(w);
}

/* The last rank's call is wrong: the job fails on all ranks, with its sentence. */
static void test_wrong_pass(void)
{
	srt_sharded_layer_t *layer = NULL;
	tensor_sharding_t rows;
	srt_sharded_tensor_t *w;
	srt_status_t status;
	const srt_view_t x = srt_view(memory[X], 0, SRT_F32), y = srt_view(memory[Y], 0, SRT_F32),
			 none = { 0 };

	tensor_chunks(&rows, 0, c.world);
	w = zeros(SRT_F32, 2, &rows);
	status = srt_sharded_layer_create_linear(w, NULL, 1, &layer);
	if (c.rank == c.world - 1) {
		CHECK_OK_OR_DIE(status);
		REFUSED(srt_sharded_layer_backward(layer, y, none, 0, c.stream), SRT_ERR_STATE,
			"the backward pass of 'w' follows no forward pass");
	} else {
		/* The first of these calls that learns of it. */
		if (status == SRT_OK)
			status = srt_sharded_layer_forward(layer, x, none, y, c.stream);
		if (status == SRT_OK)
			status = srt_stream_sync(c.stream);
		CHECK_INT(status, SRT_ERR_STATE);
		CHECK_ERROR_HAS("the backward pass of 'w' follows no forward pass");
	}
	srt_sharded_layer_destroy(layer);
	srt_sharded_tensor_destroy(w);
}

int main(int argc, char **argv)
{
	const bool is_long = check_is_long();

	tensor_case_open(&c);
	CHECK_OR_DIE(c.world <= MAX_RANKS);
	for (int t = 0; t < NTENSORS; t++)
		CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(c.context), SRT_MEM_DEVICE,
						  MAX * 4, "whole", &memory[t]));
	if (argc > 1 && strcmp(argv[1], "wrong") == 0) {
		test_wrong_pass();
	} else {
		for (uint64_t i = 0; i < (is_long ? 40 : 6); i++) {
			random_state = 9973 * (i + 1);
			for (int dim = 0; dim < 2; dim++) {
				test_layer(false, dim, SRT_F32);
				test_layer(false, dim, SRT_F16);
				test_layer(true, dim, SRT_F32);
				test_layer(true, dim, SRT_BF16);
			}
		}
		test_errors();
		test_no_sum();
	}
	for (int t = 0; t < NTENSORS; t++)
		srt_buffer_destroy(memory[t]);
	if (argc > 1) { /* the stream has failed */
		srt_stream_destroy(c.stream);
		srt_context_destroy(c.context);
	} else {
		tensor_case_close(&c);
	}
	return check_done();
}
