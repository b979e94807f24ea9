/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mistakes in recording and running a tape: each is an error with a sentence, the first one stays.
 *
 * Reliability: a call of the models library that fails | the sentence of an earlier call, or none |
 * its own sentence
 */
#include <shardrt/models/layers.h>
#include "models/mlp.h"
#include "models/tape_impl.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

static srt_device_t *device;
static srt_stream_t *stream;

static void test_mistakes(void)
{
	srt_tape_t *tape, *other;
	srt_tensor_t *x, *y;

	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &other));
	x = srt_tape_input(tape, SRT_F32, 2, 3);
	y = srt_tape_input(tape, SRT_F32, 3, 2);
	CHECK(srt_layer_mul(tape, x, y) == NULL);
	CHECK_ERROR_HAS("mul: shapes differ, (2,3) and (3,2)");
	CHECK(srt_layer_gelu(tape, x) == NULL); /* the first failure stays */
	CHECK(srt_tape_finish(tape) == SRT_ERR_INVALID_ARGUMENT);
	CHECK(srt_tape_forward(tape, stream) == SRT_ERR_INVALID_ARGUMENT);
	CHECK(srt_layer_gelu(other, x) == NULL);
	CHECK_ERROR_HAS("another tape");
	srt_tape_destroy(tape);
	srt_tape_destroy(other);

	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
	x = srt_layer_gelu(tape, srt_tape_input(tape, SRT_F32, 2, 3));
	CHECK_OK(srt_tape_finish(tape));
	CHECK(srt_tape_forward(tape, stream) == SRT_ERR_STATE);
	CHECK_ERROR_HAS("arena");
	CHECK(srt_layer_gelu(tape, x) == NULL);
	srt_tape_destroy(tape);

	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
	CHECK(srt_tape_input(tape, SRT_F32, INT64_MAX / 2, 3) == NULL);
	CHECK_ERROR_HAS("too large");
	srt_tape_destroy(tape);
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
	x = srt_tape_input(tape, SRT_F32, 6, 8);
	CHECK(srt_layer_attention_of(tape, &(srt_attention_in_t){
						   .q = x,
						   .k = srt_tape_input(tape, SRT_F32, 6, 16),
						   .mask = srt_tape_input(tape, SRT_U8, 2, 4),
						   .batch = 2,
						   .heads = 2 }) == NULL);
	CHECK_ERROR_HAS("mask (2,4), first (0,0) do not match");
	srt_tape_destroy(tape);
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
	srt_tape_unit_end(tape);
	CHECK(srt_tape_finish(tape) == SRT_ERR_STATE);
	srt_tape_destroy(tape);
	srt_tape_destroy(NULL);
	CHECK_STATUS(srt_tape_create(NULL, SRT_TAPE_FORWARD, &tape), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is NULL");
}

/* The sentence of a call is not what an earlier call left. */
#define CHECK_REFUSED(call, status, words)                                                         \
	do {                                                                                       \
		srt_error_set(SRT_ERR_IO, "of an earlier call");                                   \
		CHECK_STATUS(call, status);                                                        \
		CHECK_ERROR_HAS(words);                                                            \
	} while (0)

static srt_tape_t *make_tape(srt_tape_mode_t mode)
{
	srt_tape_t *tape;

	CHECK_OK_OR_DIE(srt_tape_create(device, mode, &tape));
	return tape;
}

static void test_sentences(srt_context_t *context)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0);
	const int64_t dims[2] = { 3, 3 };
	const srt_view_t no_scale = { 0 };
	unsigned char bytes[4] = { 0 };
	srt_buffer_t *arena;
	srt_tensor_t *x;
	srt_engine_t *engine;
	srt_module_t *root;
	srt_mlp_t *mlp;
	srt_tape_t *tape;

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, 8, "arena", &arena));
	tape = make_tape(SRT_TAPE_FORWARD);
	srt_layer_gelu(tape, srt_tape_input(tape, SRT_F32, 2, 3));
	CHECK_REFUSED(srt_tape_bind(tape, arena), SRT_ERR_STATE, "before it is finished");
	CHECK_REFUSED(srt_tape_finish(tape), SRT_ERR_STATE, "before it is finished");
	srt_tape_destroy(tape);

	tape = make_tape(SRT_TAPE_FORWARD);
	srt_layer_gelu(tape, srt_tape_input(tape, SRT_F32, 2, 3));
	CHECK_OK(srt_tape_finish(tape));
	CHECK_REFUSED(srt_tape_bind(tape, arena), SRT_ERR_INVALID_ARGUMENT, "it got 8");
	CHECK_REFUSED(srt_tape_forward(tape, stream), SRT_ERR_INVALID_ARGUMENT, "it got 8");
	CHECK_REFUSED(srt_tape_backward(tape, 1.0f, no_scale, stream), SRT_ERR_INVALID_ARGUMENT,
		      "it got 8");
	srt_tape_destroy(tape);

	CHECK_REFUSED(srt_tensor_put(NULL, bytes, stream), SRT_ERR_INVALID_ARGUMENT, "put: tensor");
	CHECK_REFUSED(srt_tensor_get(NULL, bytes, stream), SRT_ERR_INVALID_ARGUMENT, "get: tensor");
	tape = make_tape(SRT_TAPE_FORWARD);
	x = srt_tape_input(tape, SRT_F32, 1, 1);
	CHECK_OK(srt_tape_finish(tape));
	CHECK_REFUSED(srt_tensor_put(x, bytes, stream), SRT_ERR_INVALID_ARGUMENT, "NULL");
	CHECK_REFUSED(srt_tensor_get(x, bytes, stream), SRT_ERR_INVALID_ARGUMENT, "NULL");
	srt_tape_destroy(tape);

	tape = make_tape(SRT_TAPE_FORWARD);
	CHECK_OK(srt_tape_finish(tape));
	CHECK_OK(srt_tape_bind(tape, arena));
	CHECK_REFUSED(srt_tape_backward(tape, 1.0f, no_scale, stream), SRT_ERR_STATE,
		      "for the forward pass only");
	srt_tape_destroy(tape);

	tape = make_tape(SRT_TAPE_FORWARD);
	srt_tape_recompute_begin(tape);
	CHECK_REFUSED(srt_tape_finish(tape), SRT_ERR_STATE, "is still open");
	srt_tape_destroy(tape);
	srt_buffer_destroy(arena);

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_REFUSED(srt_mlp_declare_stack(engine, dims, 1, 0, NULL, &mlp),
		      SRT_ERR_INVALID_ARGUMENT, "ndims is 1, must be from 2 to 17");
	CHECK_REFUSED(srt_mlp_declare_stack(engine, (const int64_t[]){ 3, -1 }, 2, 0, NULL, &mlp),
		      SRT_ERR_INVALID_ARGUMENT, "'weight' of module '0' (Linear)");
	srt_engine_destroy(engine);
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_REFUSED(srt_mlp_declare_unused(engine, -1, NULL, &mlp), SRT_ERR_INVALID_ARGUMENT,
		      "'weight' of module 'a' (Linear)");
	srt_engine_destroy(engine);

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_mlp_declare_unused(engine, 3, NULL, &mlp));
	root = srt_engine_module(engine);
	CHECK(srt_module_is_unit(srt_module_find(root, "mid")));
	CHECK(!srt_module_is_unit(srt_module_find(root, "mid.lin1")));
	CHECK(srt_module_unit(srt_module_find(root, "mid.lin2")) ==
	      srt_module_unit(srt_module_find(root, "mid")));
	CHECK_OK(srt_engine_build(engine));
	CHECK_OK(srt_engine_materialize(engine, NULL, stream)); /* all kinds have defaults */
	srt_mlp_destroy(mlp);
	srt_engine_destroy(engine);

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_mlp_declare_stack(engine, dims, 2, 0, NULL, &mlp));
	tape = make_tape(SRT_TAPE_TRAINING);
	CHECK_REFUSED(srt_mlp_record(mlp, tape, 0, &(srt_mlp_io_t){ 0 }), SRT_ERR_INVALID_ARGUMENT,
		      "input (0,3)");
	srt_tape_destroy(tape);
	srt_mlp_destroy(mlp);
	srt_engine_destroy(engine);
}

static void test_rotary_refused(void)
{
	srt_rotary_in_t in = { .npositions = SRT_ROPE_MAX_POSITIONS };
	srt_rope_t rope = SRT_ROPE_INIT;
	srt_buffer_t *tables = NULL;

	rope.dim = INT64_MAX - 1;
	CHECK_REFUSED(srt_rotary_create(device, &rope, &in, &tables), SRT_ERR_INVALID_ARGUMENT,
		      "2 .. 2147483647");
	in.npositions = 0;
	rope.dim = 2;
	CHECK_REFUSED(srt_rotary_create(device, &rope, &in, &tables), SRT_ERR_INVALID_ARGUMENT,
		      "0 positions");
	CHECK_REFUSED(srt_rotary_create(device, NULL, &in, &tables), SRT_ERR_INVALID_ARGUMENT,
		      "rope, in or tables is NULL");
	CHECK_REFUSED(srt_rotary_create(device, &rope, &in, NULL), SRT_ERR_INVALID_ARGUMENT,
		      "rope, in or tables is NULL");
	CHECK(tables == NULL && in.cos.buffer == NULL);
}

int main(void)
{
	srt_context_t *context;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	test_mistakes();
	test_sentences(context);
	test_rotary_refused();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
