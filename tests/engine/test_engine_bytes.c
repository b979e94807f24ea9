/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frozen parameters of bytes (SRT_U8), as 8-bit weights are: each strategy, offload, a precision
 * that casts the others; what passes read, what is saved and hashed, the memory that was planned,
 * replicas that differ, and what is refused. Run by test_engine_types.sh.
 */
#include <stdio.h>
#include <unistd.h>

#include "tests/engine/engine_case.h"

enum { ROWS = 7, COLUMNS = 13, NBYTES = ROWS * COLUMNS };

static srt_context_t *context;
static int rank, world;

/* A trainable weight, and bytes in a separate unit. */
typedef struct bytes_case {
	srt_engine_t *engine;
	srt_stream_t *stream;
	srt_unit_t *root, *unit;
	srt_param_t *weight, *bytes;
} bytes_case_t;

static void begin(bytes_case_t *c, const srt_engine_options_t *options, srt_flat_t flat)
{
	const int64_t shape[2] = { ROWS, COLUMNS };
	srt_unit_options_t unit = SRT_UNIT_OPTIONS_INIT;
	srt_param_options_t frozen = SRT_PARAM_OPTIONS_INIT;

	frozen.frozen = 1;
	unit.flat = flat;
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "bytes", &c->stream));
	CHECK_OK_OR_DIE(srt_engine_create(context, options, &c->engine));
	CHECK_OK_OR_DIE(srt_unit_create(c->engine, NULL, "root", NULL, &c->root));
	CHECK_OK_OR_DIE(srt_unit_create(c->engine, c->root, "codes", &unit, &c->unit));
	CHECK_OK_OR_DIE(srt_param_create(c->root, "weight", SRT_F32, 2, shape, NULL, &c->weight));
	CHECK_OK_OR_DIE(srt_param_create(c->unit, "bytes", SRT_U8, 2, shape, &frozen, &c->bytes));
}

static void build(bytes_case_t *c)
{
	srt_plan_t plan = SRT_PLAN_INIT;
	size_t allocated;

	CHECK_OK(srt_engine_plan(c->engine, rank, 0, &plan));
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_engine_build(c->engine));
	CHECK_INT(case_allocated(context) - allocated, case_planned(&plan));
}

static void end(bytes_case_t *c)
{
	srt_engine_destroy(c->engine);
	srt_stream_destroy(c->stream);
}

/* All bit patterns, of which floats would change some. */
static void make_bytes(unsigned char *bytes)
{
	for (int i = 0; i < NBYTES; i++)
		bytes[i] = (unsigned char)(i * 37 + 255);
}

static void set_bytes(bytes_case_t *c)
{
	unsigned char bytes[NBYTES];

	make_bytes(bytes);
	CHECK_STATUS(srt_param_init_constant(c->bytes, 0.0f, c->stream), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("'bytes' has dtype u8, which no distribution gives");
	CHECK_OK(srt_param_set(c->bytes, SRT_PARAM_VALUE, bytes, c->stream));
	CHECK_OK(srt_param_init_normal(c->weight, 7, 0.0f, 0.5f, c->stream));
}

/* What a pass reads. */
static void check_unsharded(bytes_case_t *c)
{
	unsigned char got[NBYTES], want[NBYTES];
	srt_view_t view;

	make_bytes(want);
	CHECK_OK(srt_param_data(c->bytes, &view));
	CHECK(view.dtype == SRT_U8);
	CHECK_OK(srt_buffer_copy_to_host(got, view.buffer, view.offset, NBYTES, c->stream));
	CHECK(memcmp(got, want, NBYTES) == 0);
}

/* A step of the weight, whose gradient is 1. */
static srt_status_t step(bytes_case_t *c)
{
	srt_view_t grad;
	int accumulate;

	CHECK_OK(srt_unit_forward_begin(c->root, c->stream));
	CHECK_OK(srt_unit_forward_begin(c->unit, c->stream));
	check_unsharded(c);
	CHECK_OK(srt_unit_forward_end(c->unit, c->stream));
	CHECK_OK(srt_unit_forward_end(c->root, c->stream));
	CHECK_OK(srt_unit_backward_begin(c->root, c->stream));
	CHECK_OK(srt_unit_backward_begin(c->unit, c->stream));
	check_unsharded(c);
	CHECK_STATUS(srt_param_grad(c->bytes, &grad, &accumulate), SRT_ERR_STATE);
	CHECK_OK(srt_unit_backward_end(c->unit, c->stream));
	CHECK_OK(srt_param_grad(c->weight, &grad, &accumulate));
	CHECK_OK(srt_op_fill(grad, 1.0f, NBYTES, c->stream));
	CHECK_OK(srt_param_grad_ready(c->weight));
	CHECK_OK(srt_unit_backward_end(c->root, c->stream));
	return srt_engine_step(c->engine, c->stream);
}

static void check_bytes(bytes_case_t *c)
{
	unsigned char got[NBYTES], want[NBYTES];

	make_bytes(want);
	CHECK_OK(srt_param_get(c->bytes, SRT_PARAM_VALUE, got, c->stream));
	CHECK(memcmp(got, want, NBYTES) == 0);
}

/* Saved to a file and a checkpoint, hashed there, and loaded into an engine without values. */
static void check_saved(bytes_case_t *c, const srt_engine_options_t *options)
{
	unsigned char hash[16], of_file[16];
	srt_file_t *file;
	char path[64], folder[64];
	bytes_case_t other;

	snprintf(path, sizeof(path), "tests/engine/test_engine_bytes.w%d.tmp", world);
	snprintf(folder, sizeof(folder), "tests/engine/test_engine_bytes.w%d.folder", world);
	CHECK_OK_OR_DIE(srt_engine_save(c->engine, path, NULL, 0, c->stream));
	if (srt_engine_hash(c->engine, hash, c->stream) == SRT_OK) {
		CHECK_OK_OR_DIE(srt_file_open(path, &file));
		CHECK_OK(srt_file_hash_params(file, of_file, NULL));
		CHECK(memcmp(hash, of_file, sizeof(hash)) == 0);
		srt_file_close(file);
	}
	begin(&other, options, SRT_FLAT_VIEWS);
	CHECK_OK_OR_DIE(srt_engine_build(other.engine)); /* another engine has staging memory */
	CHECK_OK(srt_engine_load(other.engine, path, other.stream));
	check_bytes(&other);
	if (srt_checkpoint_save(other.engine, folder, NULL, other.stream) == SRT_OK) {
		end(&other);
		begin(&other, options, SRT_FLAT_NO);
		CHECK_OK_OR_DIE(srt_engine_build(other.engine));
		CHECK_OK(srt_checkpoint_load(other.engine, folder, NULL, other.stream));
		check_bytes(&other);
	}
	end(&other);
	case_wait_for_all(context);
	if (rank == 0) {
		unlink(path);
		srt_checkpoint_remove(folder);
	}
}

static void test_strategies(void)
{
	static const srt_strategy_t strategies[] = { SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO1,
						     SRT_STRATEGY_ZERO2, SRT_STRATEGY_ZERO3 };
	const srt_precision_t precision = { .size = sizeof(precision), .param = SRT_BF16 };
	unsigned char first[16], hash[16];
	bytes_case_t c;

	for (int i = 0; i < 8; i++) {
		srt_engine_options_t options = case_adamw(strategies[i / 2]);

		options.precision = i % 2 ? &precision : NULL;
		options.offload.params = options.offload.grads = options.offload.state = i == 7;
		begin(&c, &options, i % 4 == 2 ? SRT_FLAT_PADDED : SRT_FLAT_NO);
		build(&c);
		set_bytes(&c);
		for (int s = 0; s < 2; s++)
			CHECK_OK_OR_DIE(step(&c));
		check_bytes(&c);
		if (srt_engine_hash(c.engine, hash, c.stream) == SRT_OK) {
			if (i == 0)
				memcpy(first, hash, sizeof(hash));
			CHECK(memcmp(first, hash, sizeof(hash)) == 0);
		}
		if (i == 0 || i == 7)
			check_saved(&c, &options);
		end(&c);
	}
}

/* One byte of the last rank differs. */
static void test_replicas(void)
{
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_DDP);
	srt_comm_t *group = case_group(context, "bytes");
	unsigned char bytes[NBYTES];
	bytes_case_t c;

	options.comm = group;
	begin(&c, &options, SRT_FLAT_NO);
	build(&c);
	set_bytes(&c);
	make_bytes(bytes);
	bytes[NBYTES - 1] ^= rank == world - 1;
	CHECK_OK(srt_param_set(c.bytes, SRT_PARAM_VALUE, bytes, c.stream));
	CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
	CHECK_OK(srt_unit_forward_end(c.root, c.stream));
	CHECK_OK(srt_unit_backward_begin(c.root, c.stream));
	CHECK_OK(srt_unit_backward_end(c.root, c.stream));
	CHECK_STATUS(srt_engine_step(c.engine, c.stream), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("parameter 'bytes'");
	case_wait_for_all(context);
	end(&c);
	srt_comm_destroy(group);
}

static void test_refused(void)
{
	const srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	srt_param_options_t frozen = SRT_PARAM_OPTIONS_INIT;
	const int64_t shape[1] = { 4 };
	srt_engine_t *engine;
	srt_param_t *param;
	srt_unit_t *root;

	frozen.frozen = 1;
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &root));
	CHECK_STATUS(srt_param_create(root, "x", SRT_U8, 1, shape, NULL, &param),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'x' has dtype u8, parameters must have a float dtype, or u8 if they are "
			"frozen");
	CHECK_STATUS(srt_param_create(root, "x", SRT_I32, 1, shape, &frozen, &param),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_OK(srt_param_create(root, "x", SRT_U8, 1, shape, &frozen, &param));
	CHECK_STATUS(srt_param_create(root, "y", SRT_F32, 1, shape, NULL, &param),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("must have one dtype");
	srt_engine_destroy(engine);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	test_strategies();
	if (world > 1)
		test_replicas();
	test_refused();
	srt_context_destroy(context);
	return check_done();
}
