/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What train_own.c leaves out: tied and frozen parameters, micro-batches, clipping, a schedule,
 * evaluation, a moving average of the weights, saving and loading. docs/guide.md explains it. The
 * compute is a placeholder: x and y learn the frozen parameter `goal` from samples.
 *
 *     shardrun -n 2 ./train_all model.safetensors
 */
#include <shardrt/ops.h>
#include <shardrt/shardrt.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 200, MICRO = 4, N = 12 };

static srt_context_t *context;
static srt_stream_t *stream;
static srt_unit_t *root, *child;
static srt_param_t *goal, *x, *y;            /* (N) each */
static srt_view_t sample, gradient, loss[3]; /* (N), (N), (1) each */

static void check(srt_status_t status)
{
	if (status != SRT_OK) {
		fprintf(stderr, "%s\n", srt_error_last());
		exit(1);
	}
}

/* Use k of a parameter: loss[k]; in a backward pass also its gradient, divided by MICRO. */
static void use(srt_param_t *param, int k, int is_backward)
{
	srt_loss_t mse = SRT_LOSS_INIT;
	srt_view_t to;
	int accumulate; /* 1: an earlier use or micro-batch has stored a gradient */

	check(srt_param_data(param, &mse.x)); /* the unsharded values */
	mse.rows = 1, mse.n = N, mse.grad_scale = 1.0f / MICRO;
	mse.target = sample, mse.loss = loss[k], mse.dx = gradient;
	check(srt_op_mse(&mse, stream));
	if (!is_backward)
		return;
	check(srt_param_grad(param, &to, &accumulate));
	check(accumulate ? srt_op_add(to, to, gradient, N, stream) :
			   srt_op_scale(to, gradient, 1.0f, N, stream));
	check(srt_param_grad_ready(param));
}

static void forward(int number, float noise) /* of a sample of this rank */
{
	srt_normal_t random = SRT_NORMAL_INIT;
	srt_view_t value;

	random.y = sample, random.seed = 1, random.name = "samples", random.nelem = N;
	random.first = ((int64_t)srt_context_rank(context) << 32) + number * N;
	random.std = noise;
	check(srt_op_normal(&random, stream));
	check(srt_unit_forward_begin(root, stream));
	check(srt_param_data(goal, &value));
	check(srt_op_add(sample, sample, value, N, stream));
	use(x, 0, 0);
	check(srt_unit_forward_begin(child, stream)); /* inside its parent */
	use(y, 1, 0);
	check(srt_unit_forward_end(child, stream));
	use(x, 2, 0);
	check(srt_unit_forward_end(root, stream));
}

static void backward(void)
{
	check(srt_unit_backward_begin(root, stream));
	use(x, 2, 1);
	check(srt_unit_backward_begin(child, stream));
	use(y, 1, 1);
	check(srt_unit_backward_end(child, stream)); /* queues the reduction of its gradient */
	use(x, 0, 1); /* tied: one gradient, to which each use adds */
	check(srt_unit_backward_end(root, stream));
}

/* An evaluation is a forward pass alone; here it has no noise, so all ranks have the same loss. */
static void report(int step)
{
	float row[3];

	forward(0, 0.0f);
	check(srt_buffer_copy_to_host(row, loss[0].buffer, loss[0].offset, sizeof(row), stream));
	if (srt_context_rank(context) == 0)
		printf("step %3d  loss %.5f\n", step, (double)(row[0] + row[1] + row[2]));
}

int main(int argc, char **argv)
{
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT; /* zero3 */
	srt_optim_options_t adamw = SRT_OPTIM_OPTIONS_INIT;
	srt_param_options_t frozen = SRT_PARAM_OPTIONS_INIT;
	const char *path = argc > 1 ? argv[1] : "train_all.safetensors";
	int64_t shape[] = { N };
	srt_view_t value, average;
	srt_part_t part;
	srt_engine_t *engine;
	srt_buffer_t *memory;
	srt_status_t status;

	options.microbatches = MICRO, options.accumulation = SRT_ACCUMULATE_LAST;
	options.optim = &adamw;
	adamw.lr = 0.05f; /* 10 steps of warm-up, then half a cosine down to min_lr */
	adamw.min_lr = 0.02f, adamw.warmup = 10, adamw.lr_steps = STEPS;
	frozen.frozen = 1;
	check(srt_context_create(NULL, &context));
	check(srt_stream_create(srt_context_device(context), 0, "compute", &stream));
	check(srt_engine_create(context, &options, &engine));
	check(srt_unit_create(engine, NULL, "root", NULL, &root));
	check(srt_unit_create(engine, root, "child", NULL, &child));
	check(srt_param_create(root, "goal", SRT_F32, 1, shape, &frozen, &goal));
	check(srt_param_create(root, "first.x", SRT_F32, 1, shape, NULL, &x));
	check(srt_param_tie(root, x, "last.x")); /* another name of the same tensor */
	check(srt_param_create(child, "y", SRT_F32, 1, shape, NULL, &y));
	check(srt_engine_build(engine));
	check(srt_param_part(x, srt_context_rank(context), &part));
	check(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE, 256, "data", &memory));
	sample = srt_view(memory, 0, SRT_F32);
	gradient = srt_view(memory, 64, SRT_F32);
	average = srt_view(memory, 128, SRT_F32); /* of x, the part of this rank */
	for (size_t k = 0; k < 3; k++)
		loss[k] = srt_view(memory, 192 + k * sizeof(float), SRT_F32);
	check(srt_param_init_normal(goal, 1, 0.0f, 1.0f, stream)); /* x and y are zero */
	status = srt_engine_load(engine, path, stream);
	check(status == SRT_ERR_NOT_FOUND ? SRT_OK : status); /* then this is a new training */
	check(srt_engine_write_begin(engine, stream)); /* outside it would slow later passes */
	check(srt_param_local(x, SRT_PARAM_VALUE, &value));
	check(srt_engine_write_end(engine, stream));
	for (int step = 0; step < STEPS; step++) {
		if (step % 50 == 0)
			report(step);
		for (int m = 0; m < MICRO; m++) {
			check(srt_engine_microbatch(engine, m, MICRO));
			forward(step * MICRO + m, 0.5f);
			backward();
		}
		check(srt_engine_finish_backward(engine, stream));
		check(srt_engine_clip(engine, 2, 1.0f, stream));
		check(srt_engine_step(engine, stream));
		check(srt_op_scale(average, average, step == 0 ? 0.0f : 0.95f, part.nelem, stream));
		check(srt_op_axpy(average, value, step == 0 ? 1.0f : 0.05f, part.nelem, stream));
	}
	report(STEPS);
	check(srt_engine_write_begin(engine, stream)); /* saves the average instead of the values */
	check(srt_op_scale(value, average, 1.0f, part.nelem, stream));
	check(srt_engine_write_end(engine, stream));
	report(STEPS);
	check(srt_engine_save(engine, path, NULL, 0, stream));
	srt_engine_destroy(engine);
	srt_buffer_destroy(memory);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return 0;
}
