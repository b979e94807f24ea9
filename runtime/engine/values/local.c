/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This rank's shards as views, which the program reads and writes.
 *
 * Changes of values between srt_engine_write_begin() and srt_engine_write_end() are known: what was
 * gathered before is dropped once. After srt_param_local() has returned values outside of such a
 * pair, the program may change them between any two passes, unseen. From then on
 *
 *     the begin of a forward pass drops what is gathered, rounds copies in the compute dtype again,
 *     and orders the gathers after the work that its stream has;
 *     the end of a pass waits, on its stream, until no rank reads this rank's shards.
 */
#include "runtime/engine/checks/verify.h"

static bool in_pass(const srt_engine_t *engine)
{
	return srt_unit_in_use(engine->units[0]);
}

static srt_status_t wait_shards_read(srt_engine_t *engine, srt_stream_t *stream)
{
	for (size_t u = 0; u < engine->nunits; u++)
		SRT_TRY(srt_unshard_wait_shard_read(engine->units[u], stream));
	return SRT_OK;
}

/* From now on the program may change values. */
static srt_status_t allow_changes(srt_engine_t *engine)
{
	if (engine->program_writes || engine->writing)
		return SRT_OK;
	if (!in_pass(engine)) { /* else the end of the pass waits */
		SRT_TRY(wait_shards_read(engine, engine->comm_stream));
		SRT_TRY(srt_stream_sync(engine->comm_stream));
	}
	engine->program_writes = true;
	return SRT_OK;
}

static srt_status_t find_local(srt_param_t *param, srt_param_what_t what, srt_view_t *view)
{
	const int k = (int)what - (int)SRT_PARAM_STATE0;
	srt_engine_t *engine;

	SRT_TRY(srt_check_not_null(param, "srt_param_local", "param"));
	engine = param->unit->engine;
	SRT_TRY(srt_engine_require_built(engine, "srt_param_local"));
	if (what == SRT_PARAM_VALUE) {
		SRT_TRY(allow_changes(engine));
		srt_param_has_values(param); /* the program may write them */
		*view = param->local;
		return SRT_OK;
	}
	if (what == SRT_PARAM_GRAD) {
		SRT_TRY(srt_finish_check_grad(param));
		*view = param->local_grad;
		return SRT_OK;
	}
	if (param->frozen || k < 0 || k >= engine->memory.nstates)
		return srt_fail(SRT_ERR_NOT_FOUND, "parameter '%s' has no optimizer state %d",
				param->name, k);
	*view = srt_param_shard_view(param, SRT_ROLE_STATE + k);
	return SRT_OK;
}

srt_view_t srt_param_local(srt_param_t *param, srt_param_what_t what)
{
	srt_view_t view = { 0 };

	return find_local(param, what, &view) == SRT_OK ? view : (srt_view_t){ 0 };
}

/* Values changed before the present end of `stream`. */
static srt_status_t take_changes(srt_engine_t *engine, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_TRY(srt_home_enter(engine, stream, &home));
	for (size_t u = 0; u < engine->nunits; u++) {
		SRT_TRY(srt_unshard_wait_readers(engine->units[u], home));
		SRT_TRY(srt_values_round(engine->units[u], home));
	}
	SRT_TRY(srt_check_record_all(engine, home));
	SRT_TRY(srt_unshard_changed(engine, home));
	return srt_home_leave(engine, stream);
}

srt_status_t srt_local_take_changes(srt_engine_t *engine, srt_stream_t *stream)
{
	const bool may_differ = engine->program_writes || engine->writing;
	bool gathered = false;

	if (in_pass(engine))
		return SRT_OK;
	for (size_t u = 0; u < engine->nunits; u++)
		gathered = gathered || engine->units[u]->is_gathered || engine->units[u]->has_part;
	if (gathered) /* the same on all ranks, and what follows must be */
		SRT_TRY(srt_verify_call(engine, SRT_ACTION_REUSE, 0, !may_differ));
	if (!may_differ)
		return SRT_OK;
	return take_changes(engine, stream);
}

srt_status_t srt_local_end_pass(srt_engine_t *engine, srt_stream_t *stream)
{
	return engine->program_writes ? wait_shards_read(engine, stream) : SRT_OK;
}

srt_status_t srt_engine_write_begin(srt_engine_t *engine, srt_stream_t *stream)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_write_begin"));
	if (engine->writing)
		return srt_fail(SRT_ERR_STATE, "srt_engine_write_begin() was called before: call "
					       "srt_engine_write_end() first");
	SRT_TRY(srt_full_check(engine, "srt_engine_write_begin"));
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
		if (!engine->program_writes)
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
	/* A backward pass needs a forward pass of the new values. */
	for (size_t u = 0; u < engine->nunits; u++)
		engine->units[u]->uses = 0;
	SRT_TRY(srt_verify_call(engine, SRT_ACTION_WRITE, 0, 0));
	engine->writing = false;
	return take_changes(engine, stream); /* srt_param_get() may have gathered in between */
}
