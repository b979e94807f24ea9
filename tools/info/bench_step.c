/* SPDX-License-Identifier: BSD-3-Clause */
/* A training step of the preset nano, with zero3 and AdamW in fp32; see bench.h. */
#include <shardrt/models/families.h>

#include "models/try.h"
#include "tools/info/bench.h"

enum { SEQUENCES = 12, CONTEXT = 64, TOKENS = SEQUENCES * CONTEXT };

typedef struct step {
	srt_engine_t *engine;
	srt_decoder_t *decoder;
	srt_tape_t *tape;
} step_t;

static srt_status_t start_step(bench_t *b, void *arg)
{
	const step_t *s = arg;

	SRT_TRY(srt_tape_forward(s->tape, b->stream));
	SRT_TRY(srt_tape_backward(s->tape, 1.0f / TOKENS, (srt_view_t){ 0 }, b->stream));
	return srt_engine_step(s->engine, b->stream);
}

static srt_status_t run_step(bench_t *b, step_t *s)
{
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
	const srt_model_options_t model = { .dtype = SRT_F32 };
	bench_row_t row = {
		"training step, nano, 12 x 64 tokens", start_step, s, 0.0, true, b->flops, 0.4
	};
	srt_decoder_config_t config;
	srt_decoder_io_t io;
	int32_t ids[TOKENS];

	for (int i = 0; i < TOKENS; i++)
		ids[i] = i % 251;
	SRT_TRY(srt_decoder_preset("nano", &config));
	row.amount = srt_decoder_flops_per_token(&config, CONTEXT) * TOKENS;
	SRT_TRY(srt_engine_create(b->context, &options, &s->engine));
	SRT_TRY(srt_decoder_declare(s->engine, &config, &model, &s->decoder));
	SRT_TRY(srt_engine_build(s->engine));
	SRT_TRY(srt_decoder_init(s->decoder, 1, b->stream));
	SRT_TRY(srt_tape_create(b->device, SRT_TAPE_TRAINING, &s->tape));
	SRT_TRY(srt_decoder_record_loss(s->decoder, s->tape, SEQUENCES, CONTEXT, &io));
	SRT_TRY(srt_tape_allocate(s->tape));
	SRT_TRY(srt_decoder_put_positions(&io, NULL, b->stream));
	SRT_TRY(srt_decoder_put_tokens(&io, ids, ids, b->stream));
	return bench_measure(b, &row, NULL);
}

srt_status_t bench_step(bench_t *b)
{
	step_t s = { .engine = NULL };
	const srt_status_t status = run_step(b, &s);

	srt_tape_destroy(s.tape);
	srt_decoder_destroy(s.decoder);
	srt_engine_destroy(s.engine);
	return status;
}
