/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Changes of values that the program makes itself, through the views of srt_param_local().
 *
 * Changes between srt_engine_write_begin() and srt_engine_write_end() are known: what was gathered
 * before is dropped once. After srt_param_local() has returned values outside of such a pair, the
 * program may change them between any two passes, unseen. From then on
 *
 *     the begin of a forward pass drops what is gathered, rounds copies in the compute dtype again,
 *     and orders the gathers after the work that its stream has;
 *     the end of a pass waits, on its stream, until no rank reads this rank's shards.
 */
#include "runtime/engine/checks/checks.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/step/step.h"

static srt_status_t wait_shards_read(srt_engine_t *engine, srt_stream_t *stream)
{
	for (size_t u = 0; u < engine->nunits; u++)
		SRT_TRY(srt_unshard_wait_shard_read(engine->units[u], stream));
	return SRT_OK;
}

srt_status_t srt_writes_allow(srt_engine_t *engine)
{
	if (engine->writes.unseen || engine->writes.open)
		return SRT_OK;
	if (!srt_unit_in_use(engine->units[0])) { /* else the end of the pass waits */
		SRT_TRY(wait_shards_read(engine, engine->comm_stream));
		SRT_TRY(srt_stream_sync(engine->comm_stream));
	}
	engine->writes.unseen = true;
	return SRT_OK;
}

srt_status_t srt_writes_take(srt_engine_t *engine, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_TRY(srt_home_enter(engine, stream, &home));
	for (size_t u = 0; u < engine->nunits; u++) {
		SRT_TRY(srt_unshard_wait_readers(engine->units[u], home));
		SRT_TRY(srt_unit_round(engine->units[u], home));
	}
	SRT_TRY(srt_check_record_all(engine, home));
	SRT_TRY(srt_unshard_changed(engine, home));
	return srt_home_leave(engine, stream);
}

srt_status_t srt_writes_before_read(srt_engine_t *engine, srt_stream_t *stream)
{
	const bool may_differ = engine->writes.unseen || engine->writes.open;
	bool gathered = false;

	if (srt_unit_in_use(engine->units[0]))
		return SRT_OK;
	for (size_t u = 0; u < engine->nunits; u++)
		gathered = gathered || engine->units[u]->unshard.is_gathered ||
			   engine->units[u]->unshard.has_part;
	if (gathered) /* the same on all ranks, and what follows must be */
		SRT_TRY(srt_verify_call(engine, SRT_ACTION_REUSE, 0, !may_differ));
	if (!may_differ)
		return SRT_OK;
	return srt_writes_take(engine, stream);
}

srt_status_t srt_writes_end_pass(srt_engine_t *engine, srt_stream_t *stream)
{
	return engine->writes.unseen ? wait_shards_read(engine, stream) : SRT_OK;
}
