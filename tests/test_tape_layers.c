/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layers of a tape that do more than map values to values: embeddings with a padding row.
 */
#include "tests/tape_check.h"

/* ---- embedding with a padding row ---------------------------------------------------------- */

static int64_t padding;

static srt_tensor_t *embedding(run_t *r)
{
	return srt_layer_embedding_padded(r->tape, r->x, r->param[0], r->param[1], 5, padding);
}

/* The same values and gradients as without, but for the row's own: zero. */
static void test_padding(void)
{
	const test_case_t c = { .name = "embedding with padding",
				.rows = 20,
				.n = 1,
				.ids = 4,
				.shape = { { 9, 3 }, { 7, 3 } },
				.build = embedding };
	uint64_t seed = random_state;
	run_t plain, padded;

	padding = -1;
	open_run(&plain, &c);
	pass(&plain);
	for (padding = 0; padding < 9; padding += 2) {
		float *row = plain.grads[0] + 3 * padding, old[3] = { row[0], row[1], row[2] };
		int is_used = 0;

		random_state = seed; /* the same values */
		open_run(&padded, &c);
		pass(&padded);
		for (int i = 0; i < 20; i++)
			is_used |= ((const int32_t *)(void *)plain.xvalues)[i] == padding;
		CHECK_MSG(is_used == (padding < 4) && is_used == (old[0] != 0.0f),
			  "row %lld: its use is not as the case wants it", (long long)padding);
		row[0] = row[1] = row[2] = 0.0f;
		CHECK_BITS(padded.losses, plain.losses, 20);
		CHECK_BITS(padded.grads[0], plain.grads[0], 9 * 3);
		CHECK_BITS(padded.grads[1], plain.grads[1], 7 * 3);
		memcpy(row, old, sizeof(old));
		close_run(&padded);
	}
	close_run(&plain);
	padding = 2;
	test_plan(&c);
}

static void test_padding_outside(void)
{
	const test_case_t c = { .shape = { { 9, 3 } } };
	run_t r = { .c = &c };

	declare(&r);
	for (padding = -2; padding <= 9; padding += 11) {
		CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &r.tape));
		r.x = srt_tape_input(r.tape, SRT_I32, 10, 1);
		CHECK(embedding(&r) == NULL);
		CHECK(strstr(srt_tape_error(r.tape), "the table has 9 rows") != NULL);
		srt_tape_destroy(r.tape);
	}
	r.tape = NULL;
	close_run(&r);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	test_padding();
	test_padding_outside();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
