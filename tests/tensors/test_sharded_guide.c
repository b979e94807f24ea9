/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The excerpts of docs/guide.md on sharded tensors: a Linear layer whose weight is cut by rows
 * learns to give zero, then goes on with the weight cut by columns. Run by test_sharded_tensor.sh.
 */
#include <shardrt/ops.h>

#include "tests/tensors/tensor_case.h"

enum { ROWS = 3, IN = 5, OUT = 6, NSTEPS = 10, MAX_WORLD = 64 };

static srt_context_t *context;
static srt_stream_t *stream;
static srt_view_t whole, x, target, y, dy, loss;
static srt_sharded_tensor_t *w, *dw;
static srt_sharded_layer_t *layer;
static srt_optim_t *optim;

static void check(srt_status_t status)
{
	CHECK_OK_OR_DIE(status);
}

static srt_view_t allocate(size_t nelem)
{
	srt_buffer_t *buffer;

	check(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE, nelem * sizeof(float),
				"data", &buffer));
	return srt_view(buffer, 0, SRT_F32);
}

static void shard_by_rows(void)
{
	srt_shard_location_t locations[MAX_WORLD] = { 0 };
	const int64_t shape[] = { OUT, IN };
	const srt_view_t values = whole; /* of rank 0 */

	for (int r = 0; r < srt_context_world_size(context); r++)
		locations[r].rank = r; /* any ranks, in any order */
	const srt_sharding_t by_rows = { .size = sizeof(by_rows),
					 .kind = SRT_SHARDING_CHUNK,
					 .dim = 0,
					 .locations = locations,
					 .nlocations = (size_t)srt_context_world_size(context) };
	check(srt_sharded_tensor_create_from(context, NULL, "linear.weight", 2, shape, &by_rows, 0,
					     values, &w, stream));
	check(srt_sharded_tensor_create_like(w, "linear.weight.grad", &dw));
	check(srt_sharded_layer_create_linear(w, dw, ROWS, &layer));
}

static void create_optimizer(void)
{
	srt_sharded_optim_param_t param = SRT_SHARDED_OPTIM_PARAM_INIT;
	srt_optim_options_t sgd = SRT_OPTIM_SGD_INIT;

	sgd.lr = 0.01f;
	sgd.momentum = 0.9;
	param.name = "linear.weight";
	param.value = w;
	param.grad = dw;
	check(srt_sharded_optim_create(context, NULL, &sgd, 1, &param, 1, &optim, stream));
}

static void train(void)
{
	const srt_view_t none = { 0 };
	srt_loss_t mse = SRT_LOSS_INIT;

	mse.rows = ROWS, mse.n = OUT;
	mse.x = y, mse.target = target, mse.loss = loss, mse.dx = dy;
	check(srt_sharded_layer_forward(layer, x, none, y, stream)); /* this rank's rows */
	check(srt_op_mse(&mse, stream));
	check(srt_sharded_layer_backward(layer, dy, none, 0, stream)); /* dw: of all ranks' rows */
	check(srt_optim_step(optim, stream));
}

static float get_loss(void)
{
	float rows[ROWS];

	check(srt_buffer_copy_to_host(rows, loss.buffer, 0, sizeof(rows), stream));
	return rows[0] + rows[1] + rows[2];
}

static void reshard(void)
{
	const int last = srt_context_world_size(context) - 1;
	const srt_shard_location_t ends[] = { { .rank = last }, { .rank = 0 } };
	const srt_sharding_t by_columns = { .size = sizeof(by_columns),
					    .dim = 1,
					    .locations = ends,
					    .nlocations = last > 0 ? 2 : 1 };
	srt_sharded_tensor_t *old = w, *old_dw = dw;
	srt_optim_t *old_optim = optim;

	srt_sharded_layer_destroy(layer);
	check(srt_sharded_tensor_reshard(old, &by_columns, &w, stream)); /* one all-to-all */
	check(srt_sharded_tensor_create_like(w, "linear.weight.grad", &dw));
	check(srt_sharded_layer_create_linear(w, dw, ROWS, &layer));
	create_optimizer();
	check(srt_sharded_optim_load(optim, old_optim, stream)); /* momentum, step counts, lr */
	srt_optim_destroy(old_optim);
	srt_sharded_tensor_destroy(old_dw);
	srt_sharded_tensor_destroy(old);
}

int main(void)
{
	const srt_view_t *const views[] = { &whole, &x, &target, &y, &dy, &loss };
	float first, middle, last;

	check(srt_context_create(NULL, &context));
	check(srt_stream_create(srt_context_device(context), 0, "compute", &stream));
	CHECK_OR_DIE(srt_context_world_size(context) <= MAX_WORLD);
	whole = allocate(OUT * IN);
	x = allocate(ROWS * IN);
	target = allocate(ROWS * OUT); /* zero */
	y = allocate(ROWS * OUT);
	dy = allocate(ROWS * OUT);
	loss = allocate(ROWS);
	check(srt_op_normal(&(srt_normal_t){ .size = sizeof(srt_normal_t),
					     .y = whole,
					     .seed = 1,
					     .name = "w",
					     .nelem = OUT * IN,
					     .std = 1.0f },
			    stream));
	check(srt_op_normal(&(srt_normal_t){ .size = sizeof(srt_normal_t),
					     .y = x,
					     .seed = 1,
					     .name = "x",
					     .first =
						     (int64_t)srt_context_rank(context) * ROWS * IN,
					     .nelem = ROWS * IN,
					     .std = 0.25f },
			    stream));
	shard_by_rows();
	create_optimizer();
	train();
	first = get_loss();
	for (int step = 1; step < NSTEPS; step++)
		train();
	middle = get_loss();
	reshard();
	for (int step = 0; step < NSTEPS; step++)
		train();
	last = get_loss();
	CHECK_MSG(middle < first && last < middle, "losses %g, %g, %g", (double)first,
		  (double)middle, (double)last);
	srt_optim_destroy(optim);
	srt_sharded_layer_destroy(layer);
	srt_sharded_tensor_destroy(dw);
	srt_sharded_tensor_destroy(w);
	for (int i = 0; i < 6; i++)
		srt_buffer_destroy(views[i]->buffer);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
