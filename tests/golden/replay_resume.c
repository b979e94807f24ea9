/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Resuming a case (replay.h): a fresh engine gets what was recorded after step `resume_at`, which
 * is a complete state: values, optimizer state, step counts, and those of the gradient scaler. It
 * saves a checkpoint, from which another engine gets the same. The steps after it are then replayed
 * as usual.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay.h"
#include "tests/harness/half.h"

srt_status_t replay_read_local(replay_t *r, void *host, srt_view_t view, size_t nbytes)
{
	SRT_TRY(srt_stream_sync(r->stream));
	return srt_buffer_copy_to_host(host, view.buffer, view.offset, nbytes, r->home);
}

srt_status_t replay_write_local(replay_t *r, srt_view_t view, const void *host, size_t nbytes)
{
	SRT_TRY(srt_stream_sync(r->stream));
	SRT_TRY(srt_buffer_copy_from_host(view.buffer, view.offset, host, nbytes, r->home));
	return srt_stream_sync(r->home);
}

srt_status_t replay_set_local(replay_t *r, srt_param_t *p, srt_param_what_t what, const float *full)
{
	srt_view_t view = test_local(p, what);
	srt_status_t status;
	srt_part_t part;
	void *stored;
	size_t n;

	SRT_TRY(replay_part(r, p, &part));
	n = (size_t)part.nelem;
	if (n == 0)
		return SRT_OK;
	stored = srt_calloc(n, sizeof(*full), "elements");
	if (stored == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++)
		half_put(view.dtype, stored, i, full[(size_t)part.first + i]);
	status = replay_write_local(r, view, stored, n * srt_dtype_bits(view.dtype) / 8);
	free(stored);
	return status;
}

/* Optimizer state of one parameter; any: it had some. */
static srt_status_t set_states(replay_t *r, srt_param_t *p, int k, bool *any)
{
	static const struct {
		const char *name;
		srt_param_what_t what;
	} states[] = { { "momentum_buffer", SRT_PARAM_STATE0 },
		       { "exp_avg", SRT_PARAM_STATE0 },
		       { "exp_avg_sq", SRT_PARAM_STATE1 },
		       { "max_exp_avg_sq", SRT_PARAM_STATE2 } };
	srt_status_t status;
	char key[256];
	float *full;

	*any = false;
	for (size_t i = 0; i < SRT_ARRAY_LEN(states); i++) {
		snprintf(key, sizeof(key), "step%d.optim.%s.%s", k, srt_param_name(p),
			 states[i].name);
		if (srt_safetensors_find(r->golden->expect, key) == NULL)
			continue;
		SRT_TRY(golden_floats(r->golden->expect, key, (size_t)srt_param_nelem(p), &full));
		status = replay_set_local(r, p, states[i].what, full);
		free(full);
		SRT_TRY(status);
		*any = true;
	}
	return SRT_OK;
}

/* The real steps of the engine, and those that were skipped. */
static srt_status_t set_steps(replay_t *r, int32_t steps)
{
	srt_step_info_t state = SRT_STEP_INFO_INIT;

	SRT_TRY(srt_optim_get_step_info(srt_engine_optim(r->engine), 0, &state, r->stream));
	state.step = steps;
	state.skipped = r->nskipped;
	return srt_optim_set_step_info(srt_engine_optim(r->engine), 0, &state, r->stream);
}

static srt_status_t resume_scaler(replay_t *r, int k)
{
	const json_t *step = replay_step_of(r, k);
	srt_scaler_state_t state;

	SRT_TRY(srt_scaler_get_state(r->scaler, &state, r->stream));
	state.scale = (float)golden_scalar(json_object_get(step, "scale_after"));
	state.growth_tracker = (int32_t)golden_number(step, "growth_tracker_after", 0);
	return srt_scaler_set_state(r->scaler, &state, r->stream);
}

#ifdef HAVE_XXHASH
/* Saves the state as a checkpoint of the build folder, or loads it and removes it. */
static srt_status_t pass_checkpoint(replay_t *r)
{
	const srt_checkpoint_options_t options = { .size = sizeof(srt_checkpoint_options_t),
						   .scaler = r->scaler };
	char folder[256];

	snprintf(folder, sizeof(folder), "tests/golden/%s.%d.checkpoint", r->golden->name,
		 r->own != NULL ? srt_context_rank(r->context) : 0);
	if (!r->loads)
		return srt_checkpoint_save(r->engine, folder, &options, r->stream);
	SRT_TRY(srt_checkpoint_load(r->engine, folder, &options, r->stream));
	if (srt_comm_rank(r->comm) == 0)
		return srt_checkpoint_remove(folder);
	return SRT_OK;
}
#endif

static srt_status_t set_recorded(replay_t *r)
{
	const int k = r->first_step;
	srt_param_t *p;
	char key[256];
	float *full;
	bool any;

	for (size_t i = 0; (p = replay_nth(r, i)) != NULL; i++) {
		size_t n = (size_t)srt_param_nelem(p);
		srt_status_t status;

		snprintf(key, sizeof(key), "step%d.param.%s", k, srt_param_name(p));
		SRT_TRY(golden_floats(r->golden->expect, key, n, &full));
		status = replay_set_param(r, p, full, n);
		free(full);
		SRT_TRY(status);
		if (!srt_param_requires_grad(p))
			continue;
		SRT_TRY(set_states(r, p, k, &any));
		if (any)
			SRT_TRY(test_set_steps(r->engine, p, k - r->nskipped, r->stream));
	}
	SRT_TRY(set_steps(r, k - r->nskipped));
	return r->scaler != NULL ? resume_scaler(r, k) : SRT_OK;
}

srt_status_t replay_resume(replay_t *r)
{
	for (int s = 1; s <= r->first_step; s++)
		r->nskipped += replay_is_skipped(r, s);
	if (!r->loads)
		SRT_TRY(set_recorded(r));
#ifdef HAVE_XXHASH
	return pass_checkpoint(r);
#else
	return SRT_OK;
#endif
}
