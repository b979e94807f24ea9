/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model of modules, as in PyTorch: a tree of three kinds is wrapped by a policy, gets its initial
 * values in the shards, and trains in bf16 with everything that it owns in host memory.
 *
 *     cc -std=c11 train_modules.c $(pkg-config --cflags --libs shardrt) -o train_modules
 *     shardrun -n 2 ./train_modules
 *
 * The model learns to reproduce its input: head(mix(fc(x))). docs/guide.md explains it.
 */
#include <shardrt/ops.h>
#include <shardrt/shardrt.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 16, WIDTH = 8, HIDDEN = 32, STEPS = 300, ROOM = ROWS * HIDDEN * 4 };

static srt_context_t *context;
static srt_stream_t *stream;
static srt_buffer_t *memory;

static void check(srt_status_t status)
{
	if (status != SRT_OK) {
		fprintf(stderr, "%s\n", srt_error_last());
		exit(1);
	}
}

static srt_view_t tensor(int i, srt_dtype_t dtype) /* memory for ROWS * HIDDEN numbers */
{
	return srt_view(memory, (size_t)i * ROOM, dtype);
}

/* The values of a kind that PyTorch does not have. */
static srt_status_t reset_mix(srt_module_t *mix, uint64_t seed, srt_stream_t *on, void *arg)
{
	(void)arg;
	return srt_param_init_normal(srt_module_param(mix, "weight"), seed, 0.0f, 0.2f, on);
}

static srt_module_t *add(srt_module_t *root, const char *name, const char *kind, int64_t out,
			 int64_t in)
{
	const int64_t shape[] = { out, in };
	srt_module_t *module;

	check(srt_module_create(root, name, kind, &module));
	check(srt_module_add_param(module, "weight", SRT_F32, 2, shape, NULL));
	return module;
}

/* y = x weight^T, x (ROWS,in), y (ROWS,out), in bf16; the module is a unit. */
static void forward(srt_module_t *module, srt_view_t y, srt_view_t x, int64_t out, int64_t in)
{
	srt_matmul_t mm = SRT_MATMUL_INIT;

	mm.m = ROWS, mm.n = out, mm.k = in, mm.trans_b = 1, mm.a = x, mm.c = y;
	check(srt_unit_forward_begin(srt_module_unit(module), stream));
	check(srt_param_data(srt_module_param(module, "weight"), &mm.b));
	check(srt_op_matmul(&mm, stream));
	check(srt_unit_forward_end(srt_module_unit(module), stream));
}

static void backward(srt_module_t *module, srt_view_t dx, srt_view_t dy, srt_view_t x, int64_t out,
		     int64_t in)
{
	srt_param_t *weight = srt_module_param(module, "weight");
	srt_matmul_t dw = SRT_MATMUL_INIT, mm = SRT_MATMUL_INIT;

	dw.m = out, dw.n = in, dw.k = ROWS, dw.trans_a = 1, dw.a = dy, dw.b = x;
	mm.m = ROWS, mm.n = in, mm.k = out, mm.a = dy, mm.c = dx;
	check(srt_unit_backward_begin(srt_module_unit(module), stream));
	check(srt_param_data(weight, &mm.b));
	check(srt_op_matmul(&mm, stream));
	check(srt_param_grad(weight, &dw.c, &dw.accumulate));
	check(srt_op_matmul(&dw, stream));
	check(srt_param_grad_ready(weight));
	check(srt_unit_backward_end(srt_module_unit(module), stream));
}

/* One step on ROWS samples of this rank. @return the loss of the first of them. */
static float train(srt_engine_t *engine, srt_module_t *const *layers, int step)
{
	static const int64_t sizes[] = { WIDTH, HIDDEN, HIDDEN, WIDTH };
	const srt_view_t target = tensor(0, SRT_F32), y = tensor(1, SRT_F32);
	const srt_view_t dy = tensor(2, SRT_F32), loss = tensor(11, SRT_F32);
	srt_unit_t *root = srt_module_unit(srt_engine_module(engine));
	srt_normal_t random = SRT_NORMAL_INIT;
	srt_loss_t mse = SRT_LOSS_INIT;
	srt_view_t x[4], dx[4];
	float value;

	for (int i = 0; i < 4; i++)
		x[i] = tensor(3 + i, SRT_BF16), dx[i] = tensor(7 + i, SRT_BF16);
	random.y = target, random.seed = 1, random.name = "samples";
	random.first = ((int64_t)srt_context_rank(context) << 32) + step * ROWS * WIDTH;
	random.nelem = ROWS * WIDTH;
	check(srt_op_normal(&random, stream));
	check(srt_op_cast(x[0], target, ROWS * WIDTH, stream));
	check(srt_unit_forward_begin(root, stream));
	for (int i = 0; i < 3; i++)
		forward(layers[i], x[i + 1], x[i], sizes[i + 1], sizes[i]);
	check(srt_unit_forward_end(root, stream));
	check(srt_op_cast(y, x[3], ROWS * WIDTH, stream));
	mse.rows = ROWS, mse.n = WIDTH, mse.grad_scale = 1.0f / (ROWS * WIDTH);
	mse.x = y, mse.target = target, mse.loss = loss, mse.dx = dy;
	check(srt_op_mse(&mse, stream));
	check(srt_op_cast(dx[3], dy, ROWS * WIDTH, stream));
	check(srt_unit_backward_begin(root, stream));
	for (int i = 2; i >= 0; i--)
		backward(layers[i], dx[i], dx[i + 1], x[i], sizes[i + 1], sizes[i]);
	check(srt_unit_backward_end(root, stream));
	check(srt_engine_step(engine, stream));
	check(srt_buffer_copy_to_host(&value, loss.buffer, loss.offset, sizeof(value), stream));
	return value;
}

int main(void)
{
	const srt_precision_t bf16 = { .size = sizeof(bf16), .param = SRT_BF16, .reduce = SRT_F32 };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT; /* zero3 */
	srt_optim_options_t adamw = SRT_OPTIM_OPTIONS_INIT;
	const char *const kinds[] = { "Linear", "Mix", "Head", NULL };
	srt_wrap_policy_t policy = SRT_WRAP_POLICY_INIT;
	const srt_init_t small = { .kind = SRT_INIT_UNIFORM, .low = -0.1, .high = 0.1 };
	srt_module_t *root, *layers[3];
	srt_engine_t *engine;

	policy.rule = SRT_WRAP_KINDS, policy.kinds = kinds;
	options.precision = &bf16;
	options.offload = (srt_offload_t){ .params = 1, .grads = 1, .state = 1 };
	options.optim = &adamw, adamw.lr = 0.01f;
	check(srt_context_create(NULL, &context));
	check(srt_stream_create(srt_context_device(context), 0, "compute", &stream));
	check(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE, 12 * ROOM, "data",
				&memory));
	check(srt_module_create(NULL, NULL, "Autoencoder", &root));
	layers[0] = add(root, "fc", "Linear", HIDDEN, WIDTH);
	layers[1] = add(root, "mix", "Mix", HIDDEN, HIDDEN);
	check(srt_module_set_reset(layers[1], reset_mix, NULL));
	layers[2] = add(root, "head", "Head", WIDTH, HIDDEN);
	check(srt_module_record_init(layers[2], "weight", &small));
	check(srt_engine_create(context, &options, &engine));
	check(srt_engine_wrap(engine, root, &policy, NULL)); /* the engine owns the tree now */
	check(srt_engine_build(engine));
	check(srt_engine_materialize(engine, NULL, stream)); /* each rank fills its rows */
	for (int step = 0; step <= STEPS; step++) {
		float loss = train(engine, layers, step);
		if (step % 100 == 0 && srt_context_rank(context) == 0)
			printf("step %3d  loss %.5f\n", step, (double)loss);
	}
	srt_engine_destroy(engine);
	srt_buffer_destroy(memory);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return 0;
}
