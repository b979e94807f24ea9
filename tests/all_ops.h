/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every operation once, on fixed inputs with subnormals, zeros, NaN and uneven sizes, into one
 * arena of device memory whose bytes are the result. For tests that change what must not matter:
 * threads, kind of streams, instruction set, floating-point environment, a backend that fails.
 */
#ifndef SRT_TESTS_ALL_OPS_H
#define SRT_TESTS_ALL_OPS_H

#include "backends/core.h"
#include "tests/check.h"

#include <shardrt/ops.h>

#define OPS_NBYTES ((size_t)24 << 20)
#define OPS_ROWS 97
#define OPS_N 1031

/* The arena and how much of it is taken. */
typedef struct all_ops {
	srt_stream_t *stream;
	srt_buffer_t *buffer;
	size_t used;
	uint32_t seed;
} all_ops_t;

/* For what a test of two threads cannot count. */
static inline void ops_require(bool condition)
{
	if (!condition) {
		fprintf(stderr, "all_ops: out of memory or arena\n");
		exit(1);
	}
}

static inline srt_view_t ops_take(all_ops_t *ops, size_t nelem, srt_dtype_t dtype)
{
	srt_view_t view = srt_view(ops->buffer, ops->used, dtype);

	ops->used = srt_align_up(ops->used + nelem * (srt_dtype_bits(dtype) / 8), 64);
	ops_require(ops->used <= OPS_NBYTES);
	return view;
}

static inline srt_view_t ops_f32(all_ops_t *ops, size_t nelem)
{
	return ops_take(ops, nelem, SRT_F32);
}

static inline uint32_t ops_random(all_ops_t *ops)
{
	ops->seed = ops->seed * 1664525u + 1013904223u;
	return ops->seed >> 8;
}

/* Values in (-1, 1); some zero, some subnormal. */
static inline srt_status_t ops_input(all_ops_t *ops, size_t nelem, srt_view_t *view)
{
	float *host = malloc(nelem * sizeof(float));
	srt_status_t status;

	ops_require(host);
	for (size_t i = 0; i < nelem; i++) {
		uint32_t r = ops_random(ops);

		host[i] = ((float)(r & 0xffff) - 32768.0f) / 32768.0f;
		if (r % 61 == 0)
			host[i] = host[i] < 0 ? -0x1.8p-130f : 0x1.4p-140f;
		if (r % 67 == 0)
			host[i] = 0.0f;
	}
	*view = ops_f32(ops, nelem);
	status = srt_copy_from_host(ops->stream, view->buffer, view->offset, host, nelem * 4);
	free(host);
	return status;
}

static inline srt_status_t ops_ids(all_ops_t *ops, size_t nelem, uint32_t below, srt_view_t *view)
{
	int32_t *host = malloc(nelem * sizeof(*host));
	srt_status_t status;

	ops_require(host);
	for (size_t i = 0; i < nelem; i++)
		host[i] = (int32_t)(ops_random(ops) % below);
	*view = ops_take(ops, nelem, SRT_I32);
	status = srt_copy_from_host(ops->stream, view->buffer, view->offset, host, nelem * 4);
	free(host);
	return status;
}

static inline srt_status_t ops_elementwise(all_ops_t *ops)
{
	const int64_t n = 100003;
	srt_stream_t *s = ops->stream;
	srt_view_t a, b, y;

	SRT_TRY(ops_input(ops, (size_t)n, &a));
	SRT_TRY(ops_input(ops, (size_t)n, &b));
	SRT_TRY(srt_op_fill(s, ops_f32(ops, (size_t)n), 0.3f, n));
	SRT_TRY(srt_op_scale(s, ops_f32(ops, (size_t)n), a, 0x1p-126f, n));
	SRT_TRY(srt_op_divide(s, ops_f32(ops, (size_t)n), a, 3.0f, n));
	SRT_TRY(srt_op_add(s, ops_f32(ops, (size_t)n), a, b, n));
	y = ops_f32(ops, (size_t)n);
	SRT_TRY(srt_op_relu(s, y, a, n));
	SRT_TRY(srt_op_relu_backward(s, ops_f32(ops, (size_t)n), b, y, n));
	SRT_TRY(srt_op_gelu_tanh(s, ops_f32(ops, (size_t)n), a, n));
	SRT_TRY(srt_op_gelu_tanh_backward(s, ops_f32(ops, (size_t)n), b, a, n));
	return srt_op_normal(s, ops_f32(ops, (size_t)n), 1, "w", 5, n, 0.0f, 0.02f);
}

static inline srt_status_t ops_rows(all_ops_t *ops)
{
	const int64_t rows = OPS_ROWS, n = OPS_N;
	const size_t size = (size_t)(rows * n);
	srt_stream_t *s = ops->stream;
	srt_view_t x, dy, gamma, beta, mean, rstd, dx, target;

	SRT_TRY(ops_input(ops, size, &x));
	SRT_TRY(ops_input(ops, size, &dy));
	SRT_TRY(ops_input(ops, (size_t)n, &gamma));
	SRT_TRY(ops_input(ops, (size_t)n, &beta));
	mean = ops_f32(ops, (size_t)rows);
	rstd = ops_f32(ops, (size_t)rows);
	dx = ops_f32(ops, size);
	SRT_TRY(srt_op_layernorm(s, ops_f32(ops, size), mean, rstd, x, gamma, beta, rows, n,
				 1e-5f));
	SRT_TRY(srt_op_layernorm_backward(s, dx, dy, x, mean, rstd, gamma, rows, n, 0));
	SRT_TRY(srt_op_layernorm_backward(s, dx, dy, x, mean, rstd, gamma, rows, n, 1));
	SRT_TRY(srt_op_layernorm_backward_params(s, ops_f32(ops, (size_t)n),
						 ops_f32(ops, (size_t)n), dy, x, mean, rstd, rows,
						 n, 0, 0));
	SRT_TRY(srt_op_bias_backward(s, ops_f32(ops, (size_t)n), dy, rows, n, 0));
	SRT_TRY(srt_op_softmax(s, ops_f32(ops, size), x, rows, n));
	SRT_TRY(ops_ids(ops, (size_t)rows, (uint32_t)n, &target));
	SRT_TRY(srt_op_cross_entropy(s, ops_f32(ops, (size_t)rows), ops_f32(ops, size), x, target,
				     rows, n, 1.0f / 3.0f));
	return srt_op_mse(s, ops_f32(ops, (size_t)rows), ops_f32(ops, size), x, dy, rows, n, 0.5f);
}

static inline srt_status_t ops_embedding(all_ops_t *ops)
{
	const int64_t rows = 300, n = 513, vocab = 50, context = 100;
	srt_stream_t *s = ops->stream;
	srt_view_t table, position, dy, ids;

	SRT_TRY(ops_input(ops, (size_t)(vocab * n), &table));
	SRT_TRY(ops_input(ops, (size_t)(context * n), &position));
	SRT_TRY(ops_input(ops, (size_t)(rows * n), &dy));
	SRT_TRY(ops_ids(ops, (size_t)rows, (uint32_t)vocab, &ids));
	SRT_TRY(srt_op_embedding(s, ops_f32(ops, (size_t)(rows * n)), table, position, ids, rows, n,
				 vocab, context));
	SRT_TRY(srt_op_embedding_backward(s, ops_f32(ops, (size_t)(vocab * n)), dy, ids, rows, n,
					  vocab, 0));
	return srt_op_position_backward(s, ops_f32(ops, (size_t)(context * n)), dy, rows, n,
					context, 0);
}

static inline srt_status_t ops_matmul(all_ops_t *ops)
{
	srt_matmul_t mm = { .m = 131, .n = 257, .k = 600, .alpha = 0.7f };

	SRT_TRY(ops_input(ops, (size_t)(mm.m * mm.k), &mm.a));
	SRT_TRY(ops_input(ops, (size_t)(mm.n * mm.k), &mm.b));
	SRT_TRY(ops_input(ops, (size_t)mm.n, &mm.bias));
	mm.ldc = mm.n;
	for (int i = 0; i < 4; i++) {
		mm.trans_a = i & 1;
		mm.trans_b = i >> 1;
		mm.lda = mm.trans_a ? mm.m : mm.k;
		mm.ldb = mm.trans_b ? mm.k : mm.n;
		mm.c = ops_f32(ops, (size_t)(mm.m * mm.n));
		mm.accumulate = 0;
		SRT_TRY(srt_op_matmul(ops->stream, &mm));
		mm.accumulate = 1;
		SRT_TRY(srt_op_matmul(ops->stream, &mm));
	}
	/* A batch of small ones, and one without a sum. */
	mm = (srt_matmul_t){ .m = 13,
			     .n = 9,
			     .k = 11,
			     .batch = 7,
			     .a = mm.a,
			     .b = mm.b,
			     .lda = 11,
			     .ldb = 9,
			     .ldc = 9,
			     .stride_a = 143,
			     .stride_b = 99,
			     .stride_c = 117 };
	mm.c = ops_f32(ops, 7 * 117);
	SRT_TRY(srt_op_matmul(ops->stream, &mm));
	mm.k = 0;
	mm.c = ops_f32(ops, 7 * 117);
	return srt_op_matmul(ops->stream, &mm);
}

static inline srt_status_t ops_attention(all_ops_t *ops)
{
	srt_attention_t shape = {
		.batch = 2, .context = 67, .heads = 3, .head_dim = 20, .scale = 0.25f
	};
	const size_t out_nelem = 2 * 67 * 3 * 20, stats_nelem = 2 * 3 * 67 * 2;
	srt_stream_t *s = ops->stream;
	srt_view_t qkv, out, stats, dout, scratch;
	size_t scratch_nbytes;

	SRT_TRY(ops_input(ops, 3 * out_nelem, &qkv));
	SRT_TRY(ops_input(ops, out_nelem, &dout));
	SRT_TRY(srt_op_attention_scratch(s->device, &shape, &scratch_nbytes));
	for (shape.causal = 0; shape.causal < 2; shape.causal++) {
		out = ops_f32(ops, out_nelem);
		stats = ops_f32(ops, stats_nelem);
		SRT_TRY(srt_op_attention(s, &shape, out, stats, qkv));
		scratch = ops_f32(ops, scratch_nbytes / 4);
		SRT_TRY(srt_op_attention_backward(s, &shape, ops_f32(ops, 3 * out_nelem), dout, out,
						  qkv, stats, scratch));
		/* Its contents are undefined. */
		SRT_TRY(srt_zero(s, scratch.buffer, scratch.offset, scratch_nbytes));
	}
	return SRT_OK;
}

static inline srt_status_t ops_sums(all_ops_t *ops)
{
	const int64_t n = 200001;
	srt_stream_t *s = ops->stream;
	srt_view_t x, max = ops_f32(ops, 1), bins;

	SRT_TRY(ops_input(ops, (size_t)n, &x));
	SRT_TRY(srt_op_absmax(s, max, x, n, 0));
	SRT_TRY(srt_op_absmax(s, max, x, n / 2, 1));
	for (int power = 1; power <= 3; power++) {
		bins = ops_take(ops, 2, SRT_F64);
		SRT_TRY(srt_op_bin_sum(s, bins, max, x, n, 2 * n, power, 0, 0));
		SRT_TRY(srt_op_bin_sum(s, bins, max, x, n, 2 * n, power, 0, 1));
		SRT_TRY(srt_op_bin_total(s, ops_f32(ops, 1), bins, max, 1, power, 1));
	}
	bins = ops_take(ops, 2, SRT_F64);
	SRT_TRY(srt_op_bin_sum(s, bins, max, x, n, n, 1, 1, 0));
	return srt_op_bin_total(s, ops_f32(ops, 1), bins, max, 1, 1, 0);
}

static inline srt_status_t ops_upload(all_ops_t *ops, const void *bytes, size_t nbytes,
				      srt_view_t *view)
{
	*view = ops_take(ops, nbytes, SRT_U8);
	return srt_copy_from_host(ops->stream, view->buffer, view->offset, bytes, nbytes);
}

static inline srt_status_t ops_optimizers(all_ops_t *ops)
{
	const srt_step_state_t state = { .base_lr = 1e-2f,
					 .min_lr = 1e-4f,
					 .warmup = 3,
					 .lr_steps = 10,
					 .scale = 1.0f,
					 .inv_scale = 1.0f };
	const srt_param_state_t params[3] = { { .used = 1 }, { .used = 0 }, { .used = 1 } };
	const srt_optim_segment_t segments[3] = { { 0, 7001, 0, 0 },
						  { 7001, 99, 1, 1 },
						  { 7104, 90001, 1, 2 } };
	const srt_optim_group_t groups[2] = { { 1.0f, 0.1f }, { 0.5f, 0.0f } };
	const srt_sgd_t sgd = { .momentum = 0.9f, .nesterov = 1 };
	const srt_adam_t adam = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f };
	srt_optim_args_t args = { .nsegments = 3, .nelem = 7104 + 90001 };
	srt_stream_t *s = ops->stream;
	srt_view_t norm;

	SRT_TRY(ops_upload(ops, &state, sizeof(state), &args.state));
	SRT_TRY(ops_upload(ops, params, sizeof(params), &args.params));
	SRT_TRY(ops_upload(ops, segments, sizeof(segments), &args.segments));
	SRT_TRY(ops_upload(ops, groups, sizeof(groups), &args.groups));
	SRT_TRY(ops_input(ops, (size_t)args.nelem, &args.param));
	SRT_TRY(ops_input(ops, (size_t)args.nelem, &args.grad));
	SRT_TRY(ops_input(ops, 1, &norm));
	args.m = ops_f32(ops, (size_t)args.nelem);
	args.v = ops_f32(ops, (size_t)args.nelem);
	args.vmax = ops_f32(ops, (size_t)args.nelem);
	for (int step = 0; step < 2; step++) {
		SRT_TRY(srt_op_step_advance(s, args.state, args.params, 3, norm, 0.5f, adam.beta1,
					    adam.beta2));
		SRT_TRY(srt_op_adam(s, &args, &adam));
	}
	SRT_TRY(srt_op_sgd(s, &args, &sgd));
	SRT_TRY(srt_op_adam(s, &args,
			    &(srt_adam_t){ .beta1 = 0.9,
					   .beta2 = 0.99,
					   .eps = 1e-8f,
					   .amsgrad = 1,
					   .maximize = 1 }));
	return srt_op_adam(s, &args,
			   &(srt_adam_t){
				   .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8f, .decoupled = 1 });
}

/* Runs everything on a stream of its own; *bytes (OPS_NBYTES) is the caller's to free. */
static inline srt_status_t all_ops(srt_device_t *device, unsigned char **bytes)
{
	static srt_status_t (*const families[])(all_ops_t *) = {
		ops_elementwise, ops_rows, ops_embedding,  ops_matmul,
		ops_attention,   ops_sums, ops_optimizers,
	};
	all_ops_t ops = { .seed = 42 };
	srt_status_t status;

	*bytes = NULL;
	SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, OPS_NBYTES, "all operations",
				  &ops.buffer));
	status = srt_stream_create(device, 0, "all", &ops.stream);
	for (size_t i = 0; status == SRT_OK && i < SRT_ARRAY_LEN(families); i++)
		status = families[i](&ops);
	if (status == SRT_OK) {
		*bytes = malloc(OPS_NBYTES);
		ops_require(*bytes);
		status = srt_copy_to_host(ops.stream, *bytes, ops.buffer, 0, OPS_NBYTES);
	}
	srt_stream_destroy(ops.stream);
	srt_buffer_destroy(ops.buffer);
	if (status != SRT_OK) {
		free(*bytes);
		*bytes = NULL;
	}
	return status;
}

#endif
