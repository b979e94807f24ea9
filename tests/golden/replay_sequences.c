/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays the table of the loss scaler's state machine (replay.h): the scale over long sequences of
 * steps, odd values of found_inf, and the order of calls.
 */
#include "config.h"
#include "runtime/ops/step.h"

#include <math.h>
#include <string.h>

#include "tests/golden/replay_fixture.h"
#include "tests/harness/options.h"

#define GRAD 64 /* byte of the gradient, after the optimizer's step state */

typedef struct machine {
	fixture_t *f;
	srt_context_t *context;
	srt_scaler_t *scaler;
	srt_view_t state;
} machine_t;

static srt_scaler_rule_t rule_of(const json_t *row)
{
	const char *class = golden_text(row, "class");

	return class != NULL && !strcmp(class, "ShardedGradScaler") ? SRT_SCALER_SHARDED :
								      SRT_SCALER_PLAIN;
}

static double hex_number(const json_t *value)
{
	const char *text = json_string_value(value);

	return text != NULL ? strtod(text, NULL) : (double)NAN;
}

/* The scaler's work must have completed. */
static srt_status_t destroy_scaler(machine_t *m)
{
	srt_status_t status = srt_stream_sync(m->f->stream);

	srt_scaler_destroy(m->scaler);
	return status;
}

/* Where the program's optimizer is told of an infinity. */
static srt_view_t found_inf(const machine_t *m)
{
	return srt_view(m->state.buffer, m->state.offset + offsetof(srt_k_step_state_t, found_inf),
			SRT_F32);
}

/* A check of one gradient. */
static srt_status_t unscale_value(machine_t *m, srt_dtype_t dtype, float value)
{
	const srt_scaler_grad_t grad = { .size = sizeof(srt_scaler_grad_t),
					 .name = "w",
					 .grad = srt_view(m->f->buffer, GRAD, dtype),
					 .nelem = 1 };

	SRT_TRY(srt_buffer_copy_from_host(m->f->buffer, GRAD, &value, sizeof(value), m->f->stream));
	return srt_scaler_unscale_grads(m->scaler, found_inf(m), &grad, 1, m->f->stream);
}

/* ---- sequences of steps ---------------------------------------------------------------------- */

static void compare_scale(machine_t *m, int row, int step, const srt_scaler_state_t *got,
			  float scale, int tracker)
{
	verdict_exact(m->f->verdict,
		      fixture_same(&got->scale, &scale, 1) && got->growth_tracker == tracker,
		      "row %d, step %d: scale %a, tracker %d, recorded %a, %d", row, step,
		      (double)got->scale, (int)got->growth_tracker, (double)scale, tracker);
}

/* Steps of one sequence; scale_after has pairs of a scale and its number of steps. */
static srt_status_t run_steps(machine_t *m, const json_t *row, int number)
{
	const char *found = golden_text(row, "found_inf");
	const json_t *scales = json_object_get(row, "scale_after");
	const json_t *trackers = json_object_get(row, "growth_tracker_after");
	size_t nsteps = found != NULL ? strlen(found) : 0, step = 0;
	srt_scaler_state_t got;

	for (size_t run = 0; run < json_array_size(scales); run++) {
		const json_t *pair = json_array_get(scales, run);
		float scale = (float)hex_number(json_array_get(pair, 0));
		json_int_t left = json_integer_value(json_array_get(pair, 1));

		for (; left > 0 && step < nsteps; left--, step++) {
			int tracker = (int)json_integer_value(json_array_get(trackers, step));

			SRT_TRY(unscale_value(m, SRT_F32, found[step] == '1' ? INFINITY : 1.0f));
			SRT_TRY(srt_scaler_update(m->scaler, m->f->stream));
			SRT_TRY(srt_scaler_get_state(m->scaler, &got, m->f->stream));
			compare_scale(m, number, (int)step, &got, scale, tracker);
		}
	}
	verdict_exact(m->f->verdict,
		      nsteps > 0 && step == nsteps && json_array_size(trackers) == nsteps,
		      "row %d: %zu of %zu steps", number, step, nsteps);
	return SRT_OK;
}

static srt_status_t run_sequence(machine_t *m, const json_t *row, int number)
{
	const json_t *config = json_object_get(row, "config");
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;
	srt_status_t status;

	options.rule = rule_of(row);
	options.init_scale = (float)hex_number(json_object_get(config, "init_scale"));
	options.growth_factor = hex_number(json_object_get(config, "growth_factor"));
	options.backoff_factor = hex_number(json_object_get(config, "backoff_factor"));
	options.growth_interval =
		(int)golden_number(config, "growth_interval", options.growth_interval);
	SRT_TRY(srt_scaler_create(m->context, &options, &m->scaler));
	test_scaler_view(m->scaler);
	status = run_steps(m, row, number);
	SRT_TRY(destroy_scaler(m));
	return status;
}

/* Values of found_inf that no check makes: on the operation itself. */
static srt_status_t run_special(machine_t *m, const json_t *row, int number)
{
	srt_k_step_state_t state = {
		.scale = (float)hex_number(json_object_get(row, "scale_before")),
		.found_inf = (float)hex_number(json_object_get(row, "found_inf")),
	};
	srt_scaler_state_t got;

	SRT_TRY(srt_buffer_copy_from_host(m->f->buffer, m->state.offset, &state, sizeof(state),
					  m->f->stream));
	SRT_TRY(srt_op_scaler_update(m->state, rule_of(row), 2.0, 0.5, 1, m->f->stream));
	SRT_TRY(srt_buffer_copy_to_host(&state, m->f->buffer, m->state.offset, sizeof(state),
					m->f->stream));
	got = (srt_scaler_state_t){ .scale = state.scale, .growth_tracker = state.growth_tracker };
	compare_scale(m, number, -1, &got, (float)hex_number(json_object_get(row, "scale_after")),
		      (int)golden_number(row, "growth_tracker_after", -1));
	verdict_exact(m->f->verdict, state.found_inf == 0.0f, "found_inf is %g afterwards",
		      (double)state.found_inf);
	return SRT_OK;
}

/* ---- the order of calls ---------------------------------------------------------------------- */

static srt_status_t call_update(machine_t *m)
{
	return srt_scaler_update(m->scaler, m->f->stream);
}

static srt_status_t call_update_scaled(machine_t *m)
{
	test_scaler_view(m->scaler);
	return srt_scaler_update(m->scaler, m->f->stream);
}

static srt_status_t call_unscale(machine_t *m)
{
	return unscale_value(m, SRT_F32, 1.0f);
}

static srt_status_t call_step(machine_t *m)
{
	return srt_scaler_step_grads(m->scaler, found_inf(m));
}

static srt_status_t call_new_scale(machine_t *m)
{
	return srt_scaler_set_scale(m->scaler, 16.0f, m->f->stream);
}

static srt_status_t call_unscale_f16(machine_t *m)
{
	return unscale_value(m, SRT_F16, 1.0f);
}

/* A scaler with options that are refused. */
static srt_status_t create_refused(machine_t *m, const srt_scaler_options_t *options)
{
	srt_scaler_t *scaler = NULL;
	srt_status_t status = srt_scaler_create(m->context, options, &scaler);

	srt_scaler_destroy(scaler);
	return status;
}

static srt_status_t call_create_growth(machine_t *m)
{
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;

	options.growth_factor = 1.0;
	return create_refused(m, &options);
}

static srt_status_t call_create_backoff(machine_t *m)
{
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;

	options.backoff_factor = 1.0;
	return create_refused(m, &options);
}

static srt_status_t call_step_nothing(machine_t *m)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_status_t status;

	SRT_TRY(srt_engine_create(m->context, &options, &engine));
	status = srt_unit_create(engine, NULL, "root", NULL, &unit);
	if (status == SRT_OK)
		status = srt_engine_build(engine);
	if (status == SRT_OK)
		status = srt_scaler_step(m->scaler, engine, m->f->stream);
	srt_engine_destroy(engine);
	return status;
}

static const struct {
	const char *call; /* as recorded, in this order */
	srt_status_t (*run)(machine_t *m);
	srt_status_t status;
} calls[] = {
	{ "update() before scale()", call_update, SRT_ERR_STATE },
	{ "unscale_() before scale()", call_unscale, SRT_ERR_STATE },
	{ "update() before any unscale_/step", call_update_scaled, SRT_ERR_STATE },
	{ "unscale_() first", call_unscale, SRT_OK },
	{ "unscale_() twice", call_unscale, SRT_ERR_STATE },
	{ "step() first", call_step, SRT_OK },
	{ "step() twice", call_step, SRT_ERR_STATE },
	{ "unscale_() after step()", call_unscale, SRT_ERR_STATE },
	{ "update() after step()", call_update, SRT_OK },
	{ "update(new_scale=16.0)", call_new_scale, SRT_OK },
	{ "GradScaler.unscale_() of fp16 gradients", call_unscale_f16, SRT_ERR_INVALID_ARGUMENT },
	{ "GradScaler(growth_factor=1.0)", call_create_growth, SRT_ERR_INVALID_ARGUMENT },
	{ "GradScaler(backoff_factor=1.0)", call_create_backoff, SRT_ERR_INVALID_ARGUMENT },
	{ "GradScaler.step() when no parameter has a gradient", call_step_nothing, SRT_ERR_STATE },
};

static srt_status_t run_calls(machine_t *m, const json_t *order)
{
	SRT_TRY(srt_scaler_create(m->context, NULL, &m->scaler));
	verdict_exact(m->f->verdict, json_array_size(order) == SRT_ARRAY_LEN(calls),
		      "%zu calls are recorded", json_array_size(order));
	for (size_t i = 0; i < SRT_ARRAY_LEN(calls); i++) {
		const json_t *row = json_array_get(order, i);
		const char *call = golden_text(row, "call");
		srt_status_t status = calls[i].run(m);

		verdict_exact(m->f->verdict,
			      call != NULL && !strcmp(call, calls[i].call) &&
				      golden_is_set(row, "ok") == (calls[i].status == SRT_OK) &&
				      status == calls[i].status,
			      "%s: %s", call != NULL ? call : "?", srt_status_string(status));
	}
	return destroy_scaler(m);
}

srt_status_t replay_sequences(fixture_t *f, srt_context_t *context)
{
	machine_t m = { .f = f, .context = context, .state = srt_view(f->buffer, 0, SRT_U8) };
	const json_t *json = f->golden->json, *row;
	size_t i;

	json_array_foreach(json_object_get(json, "sequences"), i, row)
		SRT_TRY(run_sequence(&m, row, (int)i));
	json_array_foreach(json_object_get(json, "special_found_inf"), i, row)
		SRT_TRY(run_special(&m, row, (int)i));
	return run_calls(&m, json_object_get(json, "call_order"));
}
