/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values of parameters: this rank's shard as a view, initialised and set.
 *
 * Each rank writes its own rows only, so no rank needs an unsharded tensor. Random values are keyed
 * by (seed, name, element) and do not depend on the sharding. gather_full.c reads unsharded
 * tensors.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/shard.h"
#include "runtime/engine/verify.h"

srt_view_t srt_param_local(srt_param_t *param, srt_param_what_t what)
{
	const int k = (int)what - (int)SRT_PARAM_STATE0;
	const srt_engine_t *engine;

	if (param == NULL)
		return (srt_view_t){ 0 };
	if (what == SRT_PARAM_VALUE)
		return param->local;
	engine = param->unit->engine;
	if (what == SRT_PARAM_GRAD)
		return engine->any_backward && !engine->finished ? (srt_view_t){ 0 } :
								   param->local_grad;
	if (param->frozen || k < 0 || k >= engine->memory.nstates || !engine->built)
		return (srt_view_t){ 0 };
	return srt_param_shard_view(param, SRT_ROLE_STATE + k);
}

/* The compute dtype's copy of this rank's shard, where there is one. */
static srt_status_t round_param(const srt_param_t *param, srt_stream_t *stream)
{
	if (param->local_compute.buffer == NULL)
		return SRT_OK;
	return srt_op_cast(stream, param->local_compute, param->local,
			   param->nrows * param->row_nelem);
}

srt_status_t srt_values_round(srt_unit_t *unit, srt_stream_t *stream)
{
	for (size_t i = 0; i < unit->nparams; i++)
		SRT_TRY(round_param(unit->params[i], stream));
	return SRT_OK;
}

/* After the values of the parameter changed on `stream`. */
static srt_status_t end_write(srt_param_t *param, srt_stream_t *stream)
{
	SRT_TRY(round_param(param, stream));
	SRT_TRY(srt_check_record(param, stream));
	return srt_unshard_changed(param->unit->engine, stream);
}

/* Before values change on `stream`; end_write() follows the change. */
static srt_status_t begin_write(srt_param_t *param, const char *call, srt_stream_t *stream)
{
	srt_unit_t *unit = param->unit;

	SRT_TRY(srt_engine_require_built(unit->engine, call));
	if (srt_unit_in_use(unit))
		return srt_fail(SRT_ERR_STATE,
				"%s changes parameter '%s' while its unit '%s' is in use: change "
				"parameters outside of passes",
				call, param->name, unit->name);
	unit->uses = 0; /* a backward pass needs a forward pass of the new values */
	return srt_unshard_wait_readers(unit, stream);
}

static uint32_t float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

srt_status_t srt_param_init_normal(srt_param_t *param, uint64_t seed, float mean, float std,
				   srt_stream_t *stream)
{
	SRT_NOT_NULL(param);
	SRT_NOT_NULL(stream);

	const uint64_t key[] = { seed, float_bits(mean), float_bits(std) };
	const srt_engine_t *engine = param->unit->engine;
	const int64_t begin = param->row0 * param->row_nelem;
	const int64_t end = begin + param->nrows * param->row_nelem;
	srt_view_t y = param->local;

	SRT_TRY(begin_write(param, "srt_param_init_normal", stream));
	SRT_TRY(srt_verify_call(param->unit->engine, SRT_ACTION_INIT_NORMAL, (uint32_t)param->index,
				srt_hash64(0, key, sizeof(key))));
	for (int64_t at = begin, n, first; at < end; at += n) {
		n = srt_cell_run(param, srt_cell_index(engine, engine->rank), at, &first);
		n = n < end - at ? n : end - at;
		y.offset = param->local.offset + (size_t)(at - begin) * srt_dtype_size(y.dtype);
		SRT_TRY(srt_op_normal(stream, y, seed, param->name, first, n, mean, std));
	}
	return end_write(param, stream);
}

srt_status_t srt_param_init_constant(srt_param_t *param, float value, srt_stream_t *stream)
{
	SRT_NOT_NULL(param);
	SRT_NOT_NULL(stream);
	SRT_TRY(begin_write(param, "srt_param_init_constant", stream));
	SRT_TRY(srt_verify_float(param->unit->engine, SRT_ACTION_INIT_CONSTANT,
				 (uint32_t)param->index, value));
	SRT_TRY(srt_op_fill(stream, param->local, value, param->nrows * param->row_nelem));
	return end_write(param, stream);
}

srt_status_t srt_param_set_rows(srt_param_t *param, const char *call, const void *rows,
				srt_stream_t *stream)
{
	size_t nbytes = (size_t)param->nrows * param->row_nbytes;

	SRT_TRY(begin_write(param, call, stream));
	if (nbytes > 0)
		SRT_TRY(srt_copy_from_host(stream, param->local.buffer, param->local.offset, rows,
					   nbytes));
	return end_write(param, stream);
}

srt_status_t srt_param_set(srt_param_t *param, const void *unsharded, srt_stream_t *stream)
{
	srt_packed_t packed;
	srt_status_t status;

	SRT_NOT_NULL(param);
	if (param->whole_nbytes > 0)
		SRT_NOT_NULL(unsharded);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_cell_pack(param, unsharded, &packed));
	status = srt_param_set_rows(param, "srt_param_set", packed.rows, stream);
	free(packed.owned);
	SRT_TRY(status);
	return srt_verify_call(param->unit->engine, SRT_ACTION_SET, (uint32_t)param->index, 0);
}

srt_status_t srt_engine_write_begin(srt_engine_t *engine, srt_stream_t *stream)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_write_begin"));
	if (engine->writing)
		return srt_fail(SRT_ERR_STATE, "srt_engine_write_begin() was called before: call "
					       "srt_engine_write_end() first");
	for (size_t u = 0; u < engine->nunits; u++) {
		if (srt_unit_in_use(engine->units[u]))
			return srt_fail(
				SRT_ERR_STATE,
				"srt_engine_write_begin() while unit '%s' is in use: change "
				"parameters outside of passes",
				engine->units[u]->name);
	}
	for (size_t u = 0; u < engine->nunits; u++) {
		SRT_TRY(srt_unshard_wait_readers(engine->units[u], stream));
		SRT_TRY(srt_check_unchanged(engine->units[u], stream));
	}
	SRT_TRY(srt_verify_call(engine, SRT_ACTION_WRITE, 0, 1));
	engine->writing = true;
	engine->write_stream = stream;
	return SRT_OK;
}

srt_status_t srt_engine_write_end(srt_engine_t *engine, srt_stream_t *stream)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_write_end"));
	if (!engine->writing)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_write_end() without srt_engine_write_begin()");
	if (stream != engine->write_stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_write_end() with another stream than that of "
				"srt_engine_write_begin()");
	for (size_t u = 0; u < engine->nunits; u++) {
		/* srt_param_get() may have gathered in between. */
		SRT_TRY(srt_unshard_wait_readers(engine->units[u], stream));
		SRT_TRY(srt_values_round(engine->units[u], stream));
		/* A backward pass needs a forward pass of the new values. */
		engine->units[u]->uses = 0;
	}
	SRT_TRY(srt_verify_call(engine, SRT_ACTION_WRITE, 0, 0));
	engine->writing = false;
	SRT_TRY(srt_check_record_all(engine, stream));
	return srt_unshard_changed(engine, stream);
}
