/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Offload: what an engine owns is in host memory (roles.c), and the device has copies.
 *
 *     values          host -> copy stream -> slot of the unit on the device -> all-gather
 *     gradients       reduction -> SRT_ROLE_REDUCED -> copy stream -> landing -> added on the host;
 *                     or -> SRT_ROLE_GRAD, copied to the host after the last backward pass
 *     norm, found_inf host -> exchange -> all-gather -> exchange -> host
 *
 * Everything on the host is done on the home stream. Copies run on the copy stream of the device,
 * concurrently with compute and with other collectives. One edge between the two devices orders a
 * unit's copy, not one for each parameter. The host thread waits for none of it.
 *
 * The host device is the device itself if that one computes in host memory; then these are edges
 * between its streams, and the copies are real all the same.
 */
#include "device/device.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/step/step.h"

/* ---- tables ------------------------------------------------------------------------------ */

srt_buffer_t *srt_tables_device(const srt_engine_t *engine)
{
	return engine->storage.staging_alias != NULL ? engine->storage.staging_alias :
						       engine->storage.staging;
}

srt_status_t srt_exchange_wait_readers(srt_engine_t *engine, srt_coll_t *coll, srt_stream_t *home)
{
	/* Offload: srt_exchange_start() waits, as it writes what they read. */
	return engine->home.stream == NULL ? srt_coll_wait_readers(coll, home) : SRT_OK;
}

srt_status_t srt_exchange_start(srt_engine_t *engine, srt_coll_t *coll, srt_table_range_t mine,
				srt_table_range_t all, srt_stream_t *home)
{
	srt_stream_t *stream = engine->home.copy_stream;

	if (engine->home.stream == NULL)
		return srt_coll_start(coll, NULL, home);
	/* Edge: what the host wrote -> its copy. */
	SRT_TRY(srt_order_streams(engine, home, stream));
	/* Edge: the peers' last reading -> the new bytes. */
	SRT_TRY(srt_coll_wait_readers(coll, stream));
	SRT_TRY(srt_buffer_copy(engine->storage.exchange, mine.offset,
				engine->storage.staging_alias, mine.offset, mine.nbytes, stream));
	SRT_TRY(srt_coll_start(coll, NULL, stream));
	SRT_TRY(srt_buffer_copy(engine->storage.staging_alias, all.offset, engine->storage.exchange,
				all.offset, all.nbytes, stream));
	/* Edge: the copies -> the host's use of them. */
	return srt_order_streams(engine, stream, home);
}

/* ---- values ------------------------------------------------------------------------------ */

/* Before the copy stream overwrites an uploaded shard. */
static srt_status_t wait_shard_read(srt_unit_t *unit, srt_stream_t *stream)
{
	if (!unit->unshard.is_exposed)
		return SRT_OK;
	/* Edge: this rank's gather of what was uploaded -> the new upload. */
	SRT_TRY(srt_stream_wait_event(stream, unit->unshard.gathered));
	/* Edge: the peers' gathers -> the new upload. */
	SRT_TRY(srt_coll_wait_readers(unit->unshard.gather, stream));
	unit->unshard.is_exposed = false;
	return SRT_OK;
}

/* The unit's shards, or without shards its unsharded parameters. */
static srt_status_t copy_values(const srt_unit_t *unit, srt_stream_t *stream)
{
	const srt_engine_t *engine = unit->engine;
	const int role = (int)srt_role_gathered(unit);
	const size_t elem = srt_dtype_size(unit->types.compute);

	for (size_t i = 0; i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];
		const srt_view_t from = srt_param_device_view(param, role);
		srt_view_t to = param->views.unsharded;

		if (unit->slot[SRT_SLOT_UPLOADS] != NULL)
			to = srt_view(engine->storage.slot_buffer[SRT_SLOT_UPLOADS],
				      unit->slot[SRT_SLOT_UPLOADS]->offset +
					      param->shard.upload_offset * elem,
				      unit->types.compute);
		SRT_TRY(srt_buffer_copy(to.buffer, to.offset, from.buffer, from.offset,
					(size_t)param->shard.nelem * elem, stream));
	}
	return SRT_OK;
}

srt_status_t srt_upload(srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;
	srt_slot_t *slot = unit->slot[SRT_SLOT_UPLOADS];

	if (engine->home.stream == NULL || (slot != NULL && unit->unshard.is_uploaded))
		return SRT_OK;
	if (slot != NULL && slot->holder != NULL) {
		SRT_TRY(wait_shard_read(slot->holder, engine->home.copy_stream));
		slot->holder->unshard.is_uploaded = false;
	}
	SRT_TRY(copy_values(unit, engine->home.copy_stream));
	SRT_TRY(srt_event_record(unit->unshard.uploaded, engine->home.copy_stream));
	if (slot == NULL)
		return SRT_OK;
	slot->holder = unit;
	unit->unshard.is_uploaded = true;
	/* Edge: the upload -> the gather. */
	return srt_stream_wait_event(engine->comm_stream, unit->unshard.uploaded);
}

/* ---- gradients --------------------------------------------------------------------------- */

srt_status_t srt_download_prepare(const srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;

	if (!engine->options.offload.grads)
		return SRT_OK;
	/* Edge: the copy of the last reduced gradients -> the new ones. */
	return srt_stream_wait_event(engine->comm_stream, engine->home.downloaded);
}

srt_status_t srt_download(srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;
	const srt_view_t from = unit->grads.reduced_sums;

	if (!engine->options.offload.grads)
		return SRT_OK;
	/* Edge: the reduction -> the copy. */
	SRT_TRY(srt_order_streams(engine, engine->comm_stream, engine->home.copy_stream));
	/* Edge: the addition of what landed last -> the copy. */
	SRT_TRY(srt_stream_wait_event(engine->home.copy_stream, engine->home.landed));
	SRT_TRY(srt_buffer_copy(engine->storage.landing_alias, 0, from.buffer, from.offset,
				unit->grads.shard_nelem * srt_dtype_size(from.dtype),
				engine->home.copy_stream));
	SRT_TRY(srt_event_record(engine->home.downloaded, engine->home.copy_stream));
	/* Edge: the copy -> the addition. */
	SRT_TRY(srt_stream_wait_event(engine->home.stream, engine->home.downloaded));
	for (size_t i = 0; i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];

		if (!param->frozen)
			SRT_TRY(srt_reduce_store(param->views.local_grad,
						 srt_view(engine->storage.landing,
							  param->views.reduced_grad.offset -
								  from.offset,
							  from.dtype),
						 param->shard.nelem, unit->grads.has_reduced,
						 engine->home.stream));
	}
	return srt_event_record(engine->home.landed, engine->home.stream);
}

srt_status_t srt_download_arena(srt_engine_t *engine, srt_stream_t *stream)
{
	if (engine->home.stream == NULL || engine->options.offload.grads)
		return SRT_OK;
	/* Edge: the last step, which read the old ones -> the copy. */
	SRT_TRY(srt_stream_wait_event(stream, engine->order.stepped));
	return srt_buffer_copy(engine->storage.arena_alias[SRT_ROLE_DOWNLOADED], 0,
			       engine->storage.arena[SRT_ROLE_GRAD], 0,
			       engine->memory.layout.nbytes[SRT_ROLE_GRAD], stream);
}
