/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The head that is computed in chunks of rows: against product and loss apart and against chunks of
 * other sizes, bit for bit, and what memory it saves.
 */
#include "tests/models/tape_case.h"

static srt_tensor_t *head_apart(run_t *r)
{
	srt_tensor_t *logits = srt_layer_linear(r->tape, r->x, r->param[0], NULL);

	return srt_layer_cross_entropy(r->tape, logits, r->target);
}

static test_case_t head_case(int64_t rows, srt_tensor_t *(*build)(run_t *))
{
	return (test_case_t){ .name = "head",
			      .rows = rows,
			      .n = 24,
			      .targets = 37,
			      .shape = { { 37, 24 } },
			      .build = build };
}

static void test_head_bits(int64_t rows)
{
	const test_case_t chunked = head_case(rows, head), apart = head_case(rows, head_apart);
	run_t a, b;
	uint64_t seed = random_state;

	open_run(&a, &chunked);
	random_state = seed; /* the same values */
	open_run(&b, &apart);
	pass(&a);
	pass(&b);
	CHECK_BITS(a.losses, b.losses, (size_t)rows);
	CHECK_BITS(a.xgrad, b.xgrad, (size_t)(rows * 24));
	CHECK_BITS(a.grads[0], b.grads[0], 37 * 24);
	close_run(&a);
	close_run(&b);
}

/* However many rows are taken at a time: the same bits, in a gradient that is stored and in one
 * that is added to. */
static void test_head_chunks(srt_tensor_t *(*build)(run_t *))
{
	const test_case_t c = head_case(1601, build);
	uint64_t seed = random_state;
	run_t want, got;

	open_run(&want, &c);
	pass(&want);
	for (head_chunk_rows = 1024; head_chunk_rows <= 2048; head_chunk_rows += 512) {
		random_state = seed; /* the same values */
		open_run(&got, &c);
		pass(&got);
		CHECK(srt_tape_nbytes(got.tape) > srt_tape_nbytes(want.tape));
		CHECK_BITS(got.losses, want.losses, (size_t)c.rows);
		CHECK_BITS(got.xgrad, want.xgrad, (size_t)(c.rows * c.n));
		CHECK_BITS(got.grads[0], want.grads[0], 37 * 24);
		close_run(&got);
	}
	head_chunk_rows = 0;
	close_run(&want);
}

/* The plan of 2048 rows by GPT-2's vocabulary: whole logits against chunks of 512 rows. */
static void test_head_memory(void)
{
	enum { ROWS = 2048, N = 8, VOCAB = 50257 };
	const test_case_t c = {
		.name = "head memory", .rows = ROWS, .n = N, .shape = { { VOCAB, N } }
	};
	const size_t chunk = (size_t)SRT_HEAD_ROWS * VOCAB * 4, whole = (size_t)ROWS * VOCAB * 4;
	size_t nbytes[2];
	run_t r = { .c = &c };

	declare(&r);
	for (int apart = 0; apart < 2; apart++) {
		CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &r.tape));
		r.x = srt_tape_input(r.tape, SRT_F32, ROWS, N);
		r.target = srt_tape_input(r.tape, SRT_I32, ROWS, 1);
		srt_tape_unit_begin(r.tape, r.root);
		r.loss = apart ? head_apart(&r) : head(&r);
		srt_tape_unit_end(r.tape);
		CHECK_OK(srt_tape_finish(r.tape));
		nbytes[apart] = srt_tape_nbytes(r.tape);
		srt_tape_destroy(r.tape);
	}
	printf("activations of 2048 rows, vocabulary 50257: %zu bytes, with whole logits %zu\n",
	       nbytes[0], nbytes[1]);
	CHECK(nbytes[0] >= chunk && nbytes[0] < chunk + (1u << 20));
	CHECK(nbytes[1] >= whole);
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &r.tape));
	r.x = srt_tape_input(r.tape, SRT_F32, ROWS, N);
	r.target = srt_tape_input(r.tape, SRT_I32, ROWS, 1);
	CHECK(!srt_layer_head_loss(r.tape, r.x, r.param[0], r.target, 500));
	CHECK(strstr(srt_tape_error(r.tape), "chunks of 500 rows, must be a multiple of 512"));
	srt_tape_destroy(r.tape);
	srt_engine_destroy(r.engine);
	for (int k = 0; k < r.nparams; k++) {
		free(r.values[k]);
		free(r.grads[k]);
	}
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	test_head_bits(1);
	test_head_bits(512);
	test_head_bits(513);
	test_head_bits(1201);
	test_head_chunks(head);
	test_head_chunks(head_twice);
	test_head_memory();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
