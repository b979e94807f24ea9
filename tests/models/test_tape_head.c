/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The head that is computed in chunks of rows: against product and loss apart and against chunks of
 * other sizes, bit for bit, and what memory it saves. Rows without a target have neither loss nor
 * gradient.
 */
#include "tests/models/tape_case.h"

static srt_tensor_t *head_apart(tape_run_t *r)
{
	srt_tensor_t *logits = srt_layer_linear(r->tape, r->x, r->param[0], NULL);

	return srt_layer_cross_entropy(r->tape, logits, r->target);
}

static tape_case_t head_case(int64_t rows, srt_tensor_t *(*build)(tape_run_t *))
{
	return (tape_case_t){ .name = "head",
			      .rows = rows,
			      .n = 24,
			      .targets = 37,
			      .shape = { { 37, 24 } },
			      .build = build };
}

static void test_head_bits(int64_t rows)
{
	const tape_case_t chunked = head_case(rows, tape_head), apart = head_case(rows, head_apart);
	tape_run_t a, b;
	uint64_t seed = random_state;

	tape_open(&a, &chunked);
	random_state = seed; /* the same values */
	tape_open(&b, &apart);
	for (int64_t i = 1; i < rows; i += 5)
		((int32_t *)a.target_values)[i] = ((int32_t *)b.target_values)[i] = -100;
	tape_pass(&a);
	tape_pass(&b);
	for (int64_t i = 1; i < rows; i += 5) {
		CHECK(a.losses[i] == 0.0f);
		for (int j = 0; j < 24; j++)
			CHECK(a.xgrad[24 * i + j] == 0.0f);
	}
	CHECK_BITS(a.losses, b.losses, (size_t)rows);
	CHECK_BITS(a.xgrad, b.xgrad, (size_t)(rows * 24));
	CHECK_BITS(a.grads[0], b.grads[0], 37 * 24);
	tape_close(&a);
	tape_close(&b);
}

/* However many rows are taken at a time: the same bits, in a gradient that is stored and in one
 * that is added to. */
static void test_head_chunks(srt_tensor_t *(*build)(tape_run_t *))
{
	const tape_case_t c = head_case(1601, build);
	uint64_t seed = random_state;
	tape_run_t want, got;

	tape_head_rows = SRT_HEAD_ROWS;
	tape_open(&want, &c);
	tape_pass(&want);
	for (tape_head_rows = 1024; tape_head_rows <= 2048; tape_head_rows += 512) {
		random_state = seed; /* the same values */
		tape_open(&got, &c);
		tape_pass(&got);
		CHECK(srt_tape_nbytes(got.tape) > srt_tape_nbytes(want.tape));
		CHECK_BITS(got.losses, want.losses, (size_t)c.rows);
		CHECK_BITS(got.xgrad, want.xgrad, (size_t)(c.rows * c.n));
		CHECK_BITS(got.grads[0], want.grads[0], 37 * 24);
		tape_close(&got);
	}
	tape_head_rows = 0;
	tape_close(&want);
}

/* The plan of 2048 rows by GPT-2's vocabulary: whole logits against chunks of 512 rows. */
static void test_head_memory(void)
{
	enum { ROWS = 2048, N = 8, VOCAB = 50257 };
	const tape_case_t c = {
		.name = "head memory", .rows = ROWS, .n = N, .shape = { { VOCAB, N } }
	};
	const size_t chunk = (size_t)SRT_HEAD_ROWS * VOCAB * 4, whole = (size_t)ROWS * VOCAB * 4;
	size_t nbytes[2];
	tape_run_t r = { .c = &c };

	tape_head_rows = SRT_HEAD_ROWS; /* a GPU's default is more */
	tape_declare(&r);
	for (int apart = 0; apart < 2; apart++) {
		CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &r.tape));
		r.x = srt_tape_input(r.tape, SRT_F32, ROWS, N);
		r.target = srt_tape_input(r.tape, SRT_I32, ROWS, 1);
		srt_tape_unit_begin(r.tape, r.root);
		r.loss = apart ? head_apart(&r) : tape_head(&r);
		srt_tape_unit_end(r.tape);
		CHECK_OK(srt_tape_finish(r.tape));
		nbytes[apart] = srt_tape_nbytes(r.tape);
		srt_tape_destroy(r.tape);
	}
	printf("activations of 2048 rows, vocabulary 50257: %zu bytes, with whole logits %zu\n",
	       nbytes[0], nbytes[1]);
	CHECK(nbytes[0] >= chunk && nbytes[0] < chunk + (1u << 20));
	CHECK(nbytes[1] >= whole);
	tape_head_rows = 0;
	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &r.tape));
	r.x = srt_tape_input(r.tape, SRT_F32, ROWS, N);
	r.target = srt_tape_input(r.tape, SRT_I32, ROWS, 1);
	CHECK(srt_layer_head_loss(r.tape, r.x, r.param[0], r.target, 500) == NULL);
	CHECK_ERROR_HAS("chunks of 500 rows, must be a multiple of 512");
	srt_tape_destroy(r.tape);
	srt_engine_destroy(r.engine);
	for (int k = 0; k < r.nparams; k++) {
		free(r.values[k]);
		free(r.grads[k]);
	}
}

int main(void)
{
	tape_begin();
	test_head_bits(1);
	test_head_bits(512);
	test_head_bits(513);
	test_head_bits(1201);
	test_head_chunks(tape_head);
	test_head_chunks(tape_head_twice);
	test_head_memory();
	return tape_end();
}
