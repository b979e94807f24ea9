/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trains a model of one's own with one's own compute: y = w2 . tanh(w1 x) learns sin(3 x).
 *
 *     cc -std=c11 train_own.c $(pkg-config --cflags --libs shardrt) -lm -o train_own
 *     shardrun -n 2 ./train_own
 *
 * Parameters are sharded over the ranks, and unsharded between begin and end of their unit. The
 * compute of this example runs on the host, so it copies values and gradients.
 */
#include <math.h>
#include <shardrt/shardrt.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 32, HIDDEN = 16, STEPS = 300 };

static srt_stream_t *stream;
static srt_unit_t *root, *hidden;
static srt_param_t *w1, *w2;               /* (HIDDEN) each */
static float a[HIDDEN], b[HIDDEN];         /* their unsharded values */
static float x[N], h[N][HIDDEN], error[N]; /* samples, activations, y - sin(3 x) */

static void check(srt_status_t status)
{
	if (status != SRT_OK) {
		fprintf(stderr, "%s\n", srt_error_last());
		exit(1);
	}
}

static void get_unsharded(srt_param_t *param, float *to)
{
	srt_view_t view;

	check(srt_param_data(param, &view));
	check(srt_buffer_copy_to_host(to, view.buffer, view.offset, sizeof(a), stream));
}

static void put_gradient(srt_param_t *param, const float *gradient)
{
	srt_view_t view;
	int accumulate; /* 1 only with several uses or micro-batches: not in this model */

	check(srt_param_grad(param, &view, &accumulate));
	check(srt_buffer_copy_from_host(view.buffer, view.offset, gradient, sizeof(a), stream));
	check(srt_param_grad_ready(param));
}

/* Forward and backward pass; the gradients end with their owners. */
static float forward_backward(void)
{
	float loss = 0.0f, g1[HIDDEN] = { 0 }, g2[HIDDEN] = { 0 };

	check(srt_unit_forward_begin(root, stream));
	check(srt_unit_forward_begin(hidden, stream));
	get_unsharded(w1, a);
	get_unsharded(w2, b);
	for (int i = 0; i < N * HIDDEN; i++)
		h[i / HIDDEN][i % HIDDEN] = tanhf(a[i % HIDDEN] * x[i / HIDDEN]);
	check(srt_unit_forward_end(hidden, stream));
	for (int i = 0; i < N; i++) {
		error[i] = -sinf(3.0f * x[i]);
		for (int j = 0; j < HIDDEN; j++)
			error[i] += b[j] * h[i][j];
		loss += error[i] * error[i] / N;
	}
	check(srt_unit_forward_end(root, stream));
	check(srt_unit_backward_begin(root, stream));
	check(srt_unit_backward_begin(hidden, stream));
	for (int i = 0; i < N; i++)
		for (int j = 0; j < HIDDEN; j++) {
			float dy = 2.0f / N * error[i];
			float dh = dy * b[j] * (1.0f - h[i][j] * h[i][j]);
			g2[j] += dy * h[i][j];
			g1[j] += dh * x[i];
		}
	put_gradient(w1, g1);
	check(srt_unit_backward_end(hidden, stream)); /* on their way to their owners */
	put_gradient(w2, g2);
	check(srt_unit_backward_end(root, stream));
	return loss;
}

int main(void)
{
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT; /* zero3 */
	srt_optim_options_t adam = SRT_OPTIM_ADAM_INIT;
	const int64_t shape[] = { HIDDEN };
	srt_context_t *context;
	srt_engine_t *engine;
	float loss = 0.0f;

	adam.lr = 0.02f;
	options.optim = &adam;
	check(srt_context_create(NULL, &context));
	check(srt_stream_create(srt_context_device(context), 0, "compute", &stream));
	check(srt_engine_create(context, &options, &engine));
	check(srt_unit_create(engine, NULL, "model", NULL, &root));
	check(srt_unit_create(engine, root, "hidden", NULL, &hidden));
	check(srt_param_create(hidden, "w1", SRT_F32, 1, shape, NULL, &w1));
	check(srt_param_create(root, "w2", SRT_F32, 1, shape, NULL, &w2));
	check(srt_engine_build(engine));
	check(srt_param_init_normal(w1, 1, 0.0f, 1.0f, stream));
	check(srt_param_init_normal(w2, 1, 0.0f, 0.3f, stream));
	for (int i = 0, n = srt_context_world_size(context); i < N; i++) /* other ranks: others */
		x[i] = sinf((float)(i * n + srt_context_rank(context)));
	for (int step = 0; step < STEPS; step++) {
		loss = forward_backward();
		check(srt_engine_step(engine, stream)); /* gradients averaged over the ranks */
		if (step % 30 == 0 && srt_context_rank(context) == 0)
			printf("step %3d  loss %.5f\n", step, (double)loss);
	}
	check(srt_stream_sync(stream));
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return loss < 0.02f ? 0 : 1;
}
