/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gradient scaler of <shardrt/scaler.h>: memory, the scaling of losses, getters and setters.
 *
 * The scale is an srt_k_step_state_t on the device, the form that srt_op_unscale(),
 * srt_op_scale_loss() and srt_op_scaler_update() take, so a step moves nothing to the host.
 */
#include "runtime/scaler/scaler.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/fpenv.h"
#include "collectives/comm.h"

#define ALIGN 64u /* of the parts of the buffer */

/* ---- options --------------------------------------------------------------------------------- */

static srt_status_t check_factors(const char *call, double growth, double backoff, int64_t interval)
{
	if (!(growth > 1.0))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: growth_factor is %g, must be above 1", call, growth);
	if (!(backoff > 0.0 && backoff < 1.0))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: backoff_factor is %g, must be above 0 and below 1", call,
				backoff);
	if (interval < 1)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: growth_interval is %lld, must be at least 1", call,
				(long long)interval);
	return SRT_OK;
}

static srt_status_t complete_options(srt_context_t *context, srt_scaler_options_t *options)
{
	static const char call[] = "srt_scaler_create";

	if (options->rule != SRT_SCALER_PLAIN && options->rule != SRT_SCALER_SHARDED)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: there is no rule %d", call,
				(int)options->rule);
	if (options->comm == NULL)
		options->comm = srt_context_world(context);
	if (!(options->init_scale > 0) || options->init_scale - options->init_scale != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: init_scale is %g, must be positive and finite", call,
				(double)options->init_scale);
	return check_factors(call, options->growth_factor, options->backoff_factor,
			     options->growth_interval);
}

/* ---- create and destroy ---------------------------------------------------------------------- */

/* Volatile: srt_fpenv_enter() orders memory only. */
static float inverse_of(volatile float scale)
{
	srt_fpenv_t env = srt_fpenv_enter();
	volatile float inverse = (float)(1.0 / (double)scale);

	srt_fpenv_leave(env);
	return inverse;
}

static srt_view_t field(const srt_scaler_t *scaler, size_t offset)
{
	return srt_view(scaler->buffer, scaler->state.offset + offset, SRT_F32);
}

/* Scale and inverse, which are neighbours. */
static srt_status_t upload_scale(srt_scaler_t *scaler, float scale, srt_stream_t *stream)
{
	const float pair[] = { scale, inverse_of(scale) };

	return srt_buffer_copy_from_host(scaler->buffer, scaler->scale.offset, pair, sizeof(pair),
					 stream);
}

/* The buffer is zero but for the scale. */
static srt_status_t allocate(srt_scaler_t *scaler, srt_device_t *device)
{
	const size_t local = srt_align_up(sizeof(srt_k_step_state_t), ALIGN), all = local + ALIGN;
	srt_stream_t *stream;
	srt_status_t status;

	SRT_TRY(srt_event_create(device, &scaler->done));
	SRT_TRY(srt_buffer_create(device, srt_comm_mem_kind(scaler->options.comm),
				  all + (size_t)scaler->world * sizeof(float), "gradient scaler",
				  &scaler->buffer));
	scaler->state = srt_view(scaler->buffer, 0, SRT_U8);
	scaler->scale = field(scaler, offsetof(srt_k_step_state_t, scale));
	scaler->found_inf = field(scaler, offsetof(srt_k_step_state_t, found_inf));
	scaler->local_found = srt_view(scaler->buffer, local, SRT_F32);
	scaler->all_found = srt_view(scaler->buffer, all, SRT_F32);
	SRT_TRY(srt_stream_create(device, 0, "scaler", &stream));
	status = upload_scale(scaler, scaler->options.init_scale, stream);
	if (status == SRT_OK)
		status = srt_stream_sync(stream);
	srt_stream_destroy(stream);
	return status;
}

srt_status_t srt_scaler_create(srt_context_t *context, const srt_scaler_options_t *options,
			       srt_scaler_t **out)
{
	srt_scaler_options_t complete = SRT_SCALER_OPTIONS_INIT;
	srt_scaler_t *scaler;
	srt_status_t status = SRT_OK;

	SRT_NOT_NULL(context);
	SRT_TRY(srt_check_not_null(out, __func__, "scaler"));
	SRT_TRY(srt_struct_read(&complete, sizeof(complete), options, "srt_scaler_options_t"));
	SRT_TRY(complete_options(context, &complete));
	scaler = srt_comm_calloc(complete.comm, 1, sizeof(*scaler), "a gradient scaler");
	if (scaler == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	scaler->options = complete;
	scaler->world = srt_comm_size(complete.comm);
	if (!complete.disabled && !srt_comm_poisoned(complete.comm)) /* else refused below */
		status = allocate(scaler, srt_context_device(context));
	if (!complete.disabled)
		status = srt_comm_status_consensus(complete.comm, "creating a gradient scaler",
						   status);
	if (status == SRT_OK && !complete.disabled && scaler->world > 1)
		status = srt_coll_create_gather(scaler->options.comm, scaler->local_found,
						scaler->all_found, 1, "gradient scaler",
						&scaler->gather);
	if (status != SRT_OK) {
		srt_scaler_destroy(scaler);
		return status;
	}
	*out = scaler;
	return SRT_OK;
}

void srt_scaler_destroy(srt_scaler_t *scaler)
{
	if (scaler == NULL ||
	    (scaler->buffer != NULL && srt_device_is_inherited(scaler->buffer->device)))
		return;
	srt_coll_destroy(scaler->gather);
	srt_event_destroy(scaler->done);
	srt_buffer_destroy(scaler->buffer);
	free(scaler->users);
	free(scaler);
}

/* ---- order ----------------------------------------------------------------------------------- */

srt_status_t srt_scaler_begin(srt_scaler_t *scaler, srt_stream_t *stream)
{
	/* Edge: the last call, perhaps on another stream -> this one. */
	return srt_stream_wait_event(stream, scaler->done);
}

srt_status_t srt_scaler_end(srt_scaler_t *scaler, srt_stream_t *stream)
{
	return srt_event_record(scaler->done, stream);
}

/* ---- the loss -------------------------------------------------------------------------------- */

srt_dtype_t srt_scaler_dtype(const srt_scaler_t *scaler, srt_dtype_t dtype, int ndim)
{
	const bool promotes = scaler != NULL && !scaler->options.disabled &&
			      scaler->options.rule == SRT_SCALER_PLAIN;

	if (scaler == NULL)
		return SRT_DTYPE_NONE;
	return promotes && ndim == 0 && (dtype == SRT_F16 || dtype == SRT_BF16) ? SRT_F32 : dtype;
}

/* *output: a copy of output i of a program's array, checked. */
static srt_status_t read_output(const srt_scaler_t *scaler, const srt_scaler_output_t *outputs,
				size_t i, srt_scaler_output_t *output)
{
	srt_dtype_t dtype;

	*output = (srt_scaler_output_t)SRT_SCALER_OUTPUT_INIT;
	SRT_TRY(srt_struct_read(output, sizeof(*output), srt_struct_at(outputs, i),
				"srt_scaler_output_t"));
	dtype = srt_scaler_dtype(scaler, output->x.dtype, output->ndim);
	if (output->nelem < 0 || output->ndim < 0 || (output->ndim == 0 && output->nelem != 1))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_scaler_scale: output %zu has %d dimensions and %lld elements",
				i, output->ndim, (long long)output->nelem);
	if (output->y.dtype != dtype)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_scaler_scale: y of output %zu is %s, must be %s: see "
				"srt_scaler_dtype()",
				i, srt_dtype_name(output->y.dtype), srt_dtype_name(dtype));
	return SRT_OK;
}

/* y = x, if it is not the same memory. */
static srt_status_t pass_through(const srt_scaler_output_t *output, srt_stream_t *stream)
{
	const srt_view_t x = output->x, y = output->y;

	if (x.buffer == y.buffer && x.offset == y.offset)
		return SRT_OK;
	return srt_buffer_copy(y.buffer, y.offset, x.buffer, x.offset,
			       (size_t)output->nelem * srt_dtype_size(x.dtype), stream);
}

srt_status_t srt_scaler_scale(srt_scaler_t *scaler, const srt_scaler_output_t *outputs,
			      size_t noutputs, srt_stream_t *stream)
{
	srt_scaler_output_t output;

	SRT_NOT_NULL(scaler);
	if (noutputs > 0)
		SRT_NOT_NULL(outputs);
	SRT_NOT_NULL(stream);
	for (size_t i = 0; i < noutputs; i++)
		SRT_TRY(read_output(scaler, outputs, i, &output));
	if (!scaler->options.disabled)
		SRT_TRY(srt_scaler_begin(scaler, stream));
	for (size_t i = 0; i < noutputs; i++) {
		SRT_TRY(read_output(scaler, outputs, i, &output));
		if (scaler->options.disabled)
			SRT_TRY(pass_through(&output, stream));
		else
			SRT_TRY(srt_op_scale_loss(output.y, output.x, scaler->state, 0,
						  output.nelem, stream));
	}
	if (scaler->options.disabled)
		return SRT_OK;
	scaler->in_use = true;
	return srt_scaler_end(scaler, stream);
}

srt_status_t srt_scaler_view(srt_scaler_t *scaler, srt_view_t *view)
{
	SRT_NOT_NULL(scaler);
	SRT_NOT_NULL(view);
	scaler->in_use = true;
	*view = scaler->scale;
	return SRT_OK;
}

/* ---- state ----------------------------------------------------------------------------------- */

srt_status_t srt_scaler_set_scale(srt_scaler_t *scaler, float scale, srt_stream_t *stream)
{
	SRT_NOT_NULL(scaler);
	SRT_NOT_NULL(stream);
	if (!(scale > 0))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_scaler_set_scale: scale is %g, must be positive",
				(double)scale);
	if (scaler->options.disabled)
		return SRT_OK;
	SRT_TRY(srt_scaler_begin(scaler, stream));
	SRT_TRY(upload_scale(scaler, scale, stream));
	SRT_TRY(srt_buffer_zero(scaler->buffer, scaler->found_inf.offset, sizeof(float), stream));
	scaler->nusers = 0;
	return srt_scaler_end(scaler, stream);
}

static srt_status_t read_block(srt_scaler_t *scaler, srt_stream_t *stream,
			       srt_k_step_state_t *block)
{
	SRT_TRY(srt_scaler_begin(scaler, stream));
	return srt_buffer_copy_to_host(block, scaler->buffer, scaler->state.offset, sizeof(*block),
				       stream);
}

srt_status_t srt_scaler_get_state(srt_scaler_t *scaler, srt_scaler_state_t *state,
				  srt_stream_t *stream)
{
	srt_k_step_state_t block;

	SRT_NOT_NULL(scaler);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(state);
	if (scaler->options.disabled) {
		*state = (srt_scaler_state_t){ 0 };
		return SRT_OK;
	}
	SRT_TRY(read_block(scaler, stream, &block));
	*state = (srt_scaler_state_t){ .scale = block.scale,
				       .growth_tracker = block.growth_tracker,
				       .growth_interval = scaler->options.growth_interval,
				       .growth_factor = scaler->options.growth_factor,
				       .backoff_factor = scaler->options.backoff_factor };
	return SRT_OK;
}

static srt_status_t check_state(const srt_scaler_state_t *state)
{
	static const char call[] = "srt_scaler_set_state";

	if (state->growth_interval == 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: the state is empty, perhaps saved by a disabled scaler", call);
	if (!(state->scale >= 0) || state->growth_tracker < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: scale is %g and growth_tracker %d, must be at least 0", call,
				(double)state->scale, (int)state->growth_tracker);
	return check_factors(call, state->growth_factor, state->backoff_factor,
			     state->growth_interval);
}

srt_status_t srt_scaler_set_state(srt_scaler_t *scaler, const srt_scaler_state_t *state,
				  srt_stream_t *stream)
{
	SRT_NOT_NULL(scaler);
	SRT_NOT_NULL(state);
	SRT_NOT_NULL(stream);
	if (scaler->options.disabled)
		return SRT_OK;
	SRT_TRY(check_state(state));
	SRT_TRY(srt_scaler_begin(scaler, stream));
	SRT_TRY(upload_scale(scaler, state->scale, stream));
	SRT_TRY(srt_buffer_copy_from_host(scaler->buffer,
					  scaler->state.offset +
						  offsetof(srt_k_step_state_t, growth_tracker),
					  &state->growth_tracker, sizeof(state->growth_tracker),
					  stream));
	scaler->options.growth_interval = state->growth_interval;
	scaler->options.growth_factor = state->growth_factor;
	scaler->options.backoff_factor = state->backoff_factor;
	return srt_scaler_end(scaler, stream);
}

srt_status_t srt_scaler_get_found_inf(srt_scaler_t *scaler, float *found_inf, srt_stream_t *stream)
{
	srt_k_step_state_t block = { 0 };

	SRT_NOT_NULL(scaler);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(found_inf);
	if (!scaler->options.disabled)
		SRT_TRY(read_block(scaler, stream, &block));
	*found_inf = block.found_inf;
	return SRT_OK;
}
