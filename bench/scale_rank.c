/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank of the sample: the library's own start and one step of a GPT, without compute. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/scale.h"
#include "runtime/engine/engine.h"

static void check_status(srt_status_t status)
{
	if (status == SRT_OK)
		return;
	fprintf(stderr, "scale: %s\n", srt_error_last());
	exit(1);
}

static double count_params(const srt_unit_t *unit)
{
	double n = 0;

	for (size_t i = 0; i < unit->nparams; i++)
		n += (double)unit->params[i]->nelem;
	return n;
}

typedef struct walk {
	srt_engine_t *engine;
	srt_stream_t *stream;
	scale_record_t *record;
	scale_count_t before;
} walk_t;

/* The messages since the last call are those of this one. */
static void add_op(walk_t *w, int kind, const srt_unit_t *unit)
{
	scale_op_t *op = &w->record->ops[w->record->nops++];
	scale_count_t now;

	if (w->record->nops > SCALE_MAX_OPS) {
		fprintf(stderr, "scale: the model has too many units\n");
		exit(1);
	}
	check_status(srt_stream_sync(w->stream));
	check_status(srt_stream_sync(w->engine->comm_stream));
	now = scale_links_data();
	op->kind = kind;
	op->nparams = unit != NULL ? count_params(unit) : 0;
	for (int far = 0; far < 2; far++) {
		op->data.messages[far] = now.messages[far] - w->before.messages[far];
		op->data.bytes[far] = now.bytes[far] - w->before.bytes[far];
	}
	op->data.rounds = now.rounds - w->before.rounds;
	w->before = now;
}

static void begin_forward(walk_t *w, srt_unit_t *unit)
{
	check_status(srt_unit_forward_begin(unit, w->stream));
	add_op(w, SCALE_FORWARD, unit);
}

static void begin_backward(walk_t *w, srt_unit_t *unit)
{
	check_status(srt_unit_backward_begin(unit, w->stream));
	add_op(w, SCALE_BACKWARD, unit);
}

static void end_backward(walk_t *w, srt_unit_t *unit)
{
	srt_view_t view;
	int accumulate;

	for (size_t i = 0; i < unit->nparams; i++) {
		check_status(srt_param_grad(unit->params[i], &view, &accumulate));
		check_status(srt_param_grad_ready(unit->params[i]));
	}
	check_status(srt_unit_backward_end(unit, w->stream));
	add_op(w, SCALE_REDUCE, unit);
}

/* The calls of a step: the first unit is the root, the others its blocks. No pass came before, so
 * nothing is prefetched, and each call sends what its unit needs. */
static void run_step(walk_t *w)
{
	srt_unit_t **units = w->engine->units;
	const size_t n = w->engine->nunits;

	begin_forward(w, units[0]);
	for (size_t u = 1; u < n; u++) {
		begin_forward(w, units[u]);
		check_status(srt_unit_forward_end(units[u], w->stream));
	}
	check_status(srt_unit_forward_end(units[0], w->stream));
	begin_backward(w, units[0]);
	for (size_t u = n - 1; u > 0; u--) {
		begin_backward(w, units[u]);
		end_backward(w, units[u]);
	}
	end_backward(w, units[0]);
	check_status(srt_engine_step(w->engine, w->stream));
	add_op(w, SCALE_STEP, NULL);
}

static size_t allocated(void)
{
	const struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

void scale_rank_run(const srt_decoder_config_t *config, scale_record_t *record)
{
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
	const srt_model_options_t model = { .matrix_decay = 0.1f };
	const double start = srt_awake_s();
	const size_t before = allocated();
	walk_t w = { .record = record };
	srt_context_t *context;
	srt_plan_t plan = SRT_PLAN_INIT;
	srt_decoder_t *decoder;

	options.norm_p = 2;
	options.max_norm = 1.0f;
	check_status(srt_context_create(NULL, &context));
	record->join_s = srt_awake_s() - start;
	check_status(srt_stream_create(srt_context_device(context), 0, "compute", &w.stream));
	check_status(srt_engine_create(context, &options, &w.engine));
	check_status(srt_decoder_declare(w.engine, config, &model, &decoder));
	check_status(srt_engine_plan(w.engine, srt_context_rank(context), 0, &plan));
	check_status(srt_engine_build(w.engine));
	record->build_s = srt_awake_s() - start - record->join_s;
	record->control = scale_links_control();
	record->plan = plan.total;
	record->tables = allocated() - before;
	check_status(srt_decoder_init(decoder, 1, w.stream));
	check_status(srt_stream_sync(w.stream));
	w.before = scale_links_data();
	run_step(&w);
	record->connections = scale_links_connections();
	srt_decoder_destroy(decoder);
	srt_engine_destroy(w.engine);
	srt_stream_destroy(w.stream);
	srt_context_destroy(context);
}
