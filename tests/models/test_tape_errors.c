/* SPDX-License-Identifier: BSD-3-Clause */
/* Mistakes in recording a tape: each is an error with a sentence, the first one stays. */
#include "models/layers.h"
#include "models/tape_impl.h"
#include "tests/harness/check.h"

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
	CHECK(srt_layer_add(tape, x, y) == NULL);
	CHECK(strstr(srt_tape_error(tape), "shapes differ") != NULL);
	CHECK(srt_layer_gelu(tape, x) == NULL); /* the first failure stays */
	CHECK(srt_tape_finish(tape) == SRT_ERR_INVALID_ARGUMENT);
	CHECK(srt_tape_forward(tape, stream) == SRT_ERR_INVALID_ARGUMENT);
	CHECK(srt_layer_gelu(other, x) == NULL);
	CHECK(strstr(srt_tape_error(other), "another tape") != NULL);
	srt_tape_destroy(tape);
	srt_tape_destroy(other);

	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
	x = srt_layer_gelu(tape, srt_tape_input(tape, SRT_F32, 2, 3));
	CHECK_OK(srt_tape_finish(tape));
	CHECK(srt_tape_forward(tape, stream) == SRT_ERR_STATE);
	CHECK(strstr(srt_tape_error(tape), "arena") != NULL);
	CHECK(srt_layer_gelu(tape, x) == NULL);
	srt_tape_destroy(tape);

	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
	CHECK(srt_tape_input(tape, SRT_F32, INT64_MAX / 2, 3) == NULL);
	CHECK(strstr(srt_tape_error(tape), "too large") != NULL);
	srt_tape_destroy(tape);
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
	x = srt_tape_input(tape, SRT_F32, 6, 8);
	CHECK(srt_layer_attention_of(tape, &(srt_attention_in_t){
						   .q = x,
						   .k = srt_tape_input(tape, SRT_F32, 6, 16),
						   .mask = srt_tape_input(tape, SRT_U8, 2, 4),
						   .batch = 2,
						   .heads = 2 }) == NULL);
	CHECK(strstr(srt_tape_error(tape), "mask (2,4) do not match") != NULL);
	srt_tape_destroy(tape);
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
	srt_tape_unit_end(tape);
	CHECK(srt_tape_finish(tape) == SRT_ERR_STATE);
	srt_tape_destroy(tape);
	srt_tape_destroy(NULL);
}

int main(void)
{
	srt_context_t *context;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	test_mistakes();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
