/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model of opencl_kernel.c and cuda_kernel.c, y = w2 . relu(w1 x): all but the program's
 * kernels. It is trained twice, with the library's operation and with the kernels.
 */
#ifndef RELU_MODEL_H
#define RELU_MODEL_H

#include <shardrt/ops.h>
#include <shardrt/shardrt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 32, IN = 4, HIDDEN = 16, STEPS = 100 }; /* ROWS samples of IN numbers */
enum { X, TARGET, H, A, Y, DY, DA, DH, LOSS, NTENSORS };
static const int64_t nelem[NTENSORS] = { ROWS * IN, ROWS,         ROWS *HIDDEN, ROWS *HIDDEN, ROWS,
					 ROWS,      ROWS *HIDDEN, ROWS *HIDDEN, ROWS };
static srt_view_t tensor[NTENSORS];

/* What the program's function gets a copy of: y = relu(x), or dx = dy where y > 0. */
typedef struct relu_call {
	int is_backward;
	srt_view_t y, x, dx, dy;
	unsigned nelem;
} relu_call_t;

static void check(srt_status_t status)
{
	if (status != SRT_OK) {
		fprintf(stderr, "%s\n", srt_error_last());
		exit(1);
	}
}

/* The activation or its gradient; fn NULL: by the library's operation. */
static void activate(srt_stream_t *stream, int is_backward, srt_enqueue_fn *fn)
{
	const relu_call_t call = { is_backward, tensor[A],  tensor[H],
				   tensor[DH],  tensor[DA], (unsigned)nelem[A] };

	if (fn != NULL)
		check(srt_stream_enqueue(stream, fn, &call, sizeof(call), NULL));
	else if (is_backward)
		check(srt_op_relu_backward(tensor[DH], tensor[DA], tensor[A], nelem[A], stream));
	else
		check(srt_op_relu(tensor[A], tensor[H], nelem[A], stream));
}

/* A product of dense matrices, without its tensors. */
static srt_matmul_t product(int64_t m, int64_t n, int64_t k, int trans_a, int trans_b)
{
	srt_matmul_t mm = SRT_MATMUL_INIT;

	mm.m = m, mm.n = n, mm.k = k;
	mm.trans_a = trans_a, mm.trans_b = trans_b;
	mm.lda = trans_a ? m : k, mm.ldb = trans_b ? k : n, mm.ldc = n;
	return mm;
}

/* Forward and backward pass. */
static void step(srt_unit_t *unit, srt_param_t *w1, srt_param_t *w2, srt_stream_t *stream,
		 srt_enqueue_fn *fn)
{
	srt_matmul_t up = product(ROWS, HIDDEN, IN, 0, 1);
	srt_matmul_t down = product(ROWS, 1, HIDDEN, 0, 1);
	srt_matmul_t da = product(ROWS, HIDDEN, 1, 0, 0);
	srt_matmul_t dw1 = product(HIDDEN, IN, ROWS, 1, 0);
	srt_matmul_t dw2 = product(1, HIDDEN, ROWS, 1, 0);
	srt_loss_t mse = SRT_LOSS_INIT;

	mse.rows = ROWS, mse.n = 1, mse.grad_scale = 1.0f / ROWS;
	mse.x = tensor[Y], mse.target = tensor[TARGET], mse.loss = tensor[LOSS];
	mse.dx = tensor[DY];
	up.a = dw1.b = tensor[X], up.c = tensor[H], down.a = dw2.b = tensor[A], down.c = tensor[Y];
	da.a = dw2.a = tensor[DY], da.c = tensor[DA], dw1.a = tensor[DH];
	check(srt_unit_forward_begin(unit, stream));
	check(srt_param_data(w1, &up.b));
	check(srt_param_data(w2, &down.b));
	check(srt_op_matmul(&up, stream));
	activate(stream, 0, fn);
	check(srt_op_matmul(&down, stream));
	check(srt_unit_forward_end(unit, stream));
	check(srt_op_mse(&mse, stream));
	check(srt_unit_backward_begin(unit, stream));
	check(srt_param_data(w2, &da.b));
	check(srt_param_grad(w1, &dw1.c, &dw1.accumulate));
	check(srt_param_grad(w2, &dw2.c, &dw2.accumulate));
	check(srt_op_matmul(&dw2, stream));
	check(srt_op_matmul(&da, stream));
	activate(stream, 1, fn);
	check(srt_op_matmul(&dw1, stream));
	check(srt_param_grad_ready(w1));
	check(srt_param_grad_ready(w2));
	check(srt_unit_backward_end(unit, stream));
}

static void train(srt_context_t *context, srt_stream_t *stream, srt_enqueue_fn *fn, float *losses)
{
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
	srt_optim_options_t sgd = SRT_OPTIM_SGD_INIT;
	const int64_t shape1[] = { HIDDEN, IN }, shape2[] = { 1, HIDDEN };
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *w1, *w2;

	sgd.lr = 0.05f;
	options.optim = &sgd;
	check(srt_engine_create(context, &options, &engine));
	check(srt_unit_create(engine, NULL, "model", NULL, &unit));
	check(srt_param_create(unit, "w1", SRT_F32, 2, shape1, NULL, &w1));
	check(srt_param_create(unit, "w2", SRT_F32, 2, shape2, NULL, &w2));
	check(srt_engine_build(engine));
	check(srt_param_init_normal(w1, 1, 0.0f, 0.5f, stream));
	check(srt_param_init_normal(w2, 1, 0.0f, 0.5f, stream));
	for (int i = 0; i < STEPS; i++) {
		step(unit, w1, w2, stream, fn);
		check(srt_engine_step(engine, stream)); /* gradients averaged over the ranks */
	}
	check(srt_buffer_copy_to_host(losses, tensor[LOSS].buffer, tensor[LOSS].offset,
				      ROWS * sizeof(float), stream));
	srt_engine_destroy(engine);
}

/* Trains both; 0: they end with the same bits and a small loss. */
static int compare_models(srt_context_t *context, srt_enqueue_fn *fn)
{
	srt_device_t *device = srt_context_device(context);
	srt_normal_t random = SRT_NORMAL_INIT;
	float losses[2][ROWS], sum = 0.0f;
	srt_buffer_t *buffers[NTENSORS];
	srt_stream_t *stream;

	check(srt_stream_create(device, 0, "compute", &stream));
	for (int i = 0; i < NTENSORS; i++) {
		check(srt_buffer_create(device, SRT_MEM_DEVICE, (size_t)nelem[i] * sizeof(float),
					"tensor", &buffers[i]));
		tensor[i] = srt_view(buffers[i], 0, SRT_F32);
	}
	/* Every rank has its own samples. */
	random.y = tensor[X], random.seed = 1, random.name = "x", random.nelem = nelem[X];
	random.first = srt_context_rank(context) * nelem[X];
	check(srt_op_normal(&random, stream));
	check(srt_op_fill(tensor[TARGET], 0.5f, nelem[TARGET], stream));
	train(context, stream, NULL, losses[0]);
	train(context, stream, fn, losses[1]);
	for (int i = 0; i < ROWS; i++)
		sum += losses[1][i] / ROWS;
	printf("loss %g\n", (double)sum);
	for (int i = 0; i < NTENSORS; i++)
		srt_buffer_destroy(buffers[i]);
	srt_stream_destroy(stream);
	if (memcmp(losses[0], losses[1], sizeof(losses[0])) != 0) {
		fprintf(stderr, "the two models differ\n");
		return 1;
	}
	return sum < 0.1f ? 0 : 1;
}

#endif
