/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unsharding: a unit's parameters gathered into its slot before use, prefetched, released.
 *
 * Gathers run on the engine's communication stream. Releasing is lazy: a slot keeps the values
 * until another unit needs it or the values change, so a unit that is used again soon (the last
 * ones of the forward pass, the root) is not gathered twice. Which gathers run depends on the order
 * of the calls only, never on timing: it is the same on all ranks.
 *
 * A unit that is resharded to groups of n ranks is gathered from all of them once. When its slot
 * goes to another unit before its backward pass, each rank keeps its part of the slot
 * (SRT_SLOT_PARTS), and later gathers are within the group, from these parts, until the values
 * change.
 *
 * With offload the shard is uploaded first, and without shards nothing else is done (offload.c).
 *
 * Units without a slot (ddp, one rank) are always unsharded: the program uses the values in place,
 * and a change of the values waits for these uses.
 */
#include <math.h>

#include "collectives/comm.h"
#include "runtime/engine/checks/checks.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"
#include "runtime/engine/step/step.h"

/* The stream that writes to the unit's slot. */
static srt_stream_t *gather_stream(const srt_unit_t *unit)
{
	const srt_engine_t *engine = unit->engine;

	return unit->unshard.gather != NULL ? engine->comm_stream : engine->home.copy_stream;
}

/* Before the slot of the unit's values is overwritten on the communication stream: this rank's part
 * of them, for the backward pass to come. */
static srt_status_t keep_part(srt_unit_t *unit)
{
	const srt_engine_t *engine = unit->engine;
	const size_t elem = srt_dtype_size(unit->types.compute);
	size_t first, nelem;

	if (unit->unshard.regather == NULL || unit->unshard.has_part ||
	    !unit->unshard.is_gathered || unit->pass.uses == 0)
		return SRT_OK;
	if (unit->unshard.is_part_exposed)
		/* Edge: the peers' gathers of the last part -> the new one. */
		SRT_TRY(srt_coll_wait_readers(unit->unshard.regather, engine->comm_stream));
	unit->unshard.is_part_exposed = false;
	nelem = srt_shard_part_nelem(unit, engine->comms.group->size, engine->comms.group->rank,
				     &first);
	SRT_TRY(srt_buffer_copy(engine->storage.slot_buffer[SRT_SLOT_PARTS],
				unit->slot[SRT_SLOT_PARTS]->offset,
				engine->storage.slot_buffer[SRT_SLOT_PARAMS],
				unit->slot[SRT_SLOT_PARAMS]->offset + first * elem, nelem * elem,
				engine->comm_stream));
	unit->unshard.has_part = true;
	return SRT_OK;
}

/* The unit's values -> its slot, from all ranks or, if they have parts, from its group. */
static srt_status_t queue_gather(srt_unit_t *unit)
{
	srt_stream_t *stream = gather_stream(unit);
	srt_coll_t *gather = unit->unshard.has_part ? unit->unshard.regather : unit->unshard.gather;

	/* Edge: the program's last use of the slot -> what overwrites it. */
	SRT_TRY(srt_stream_wait_event(stream, unit->slot[SRT_SLOT_PARAMS]->released));
	if (!unit->unshard.has_part)
		SRT_TRY(srt_upload(unit));
	if (gather == NULL)
		return SRT_OK;
	unit->unshard.is_exposed = unit->unshard.is_exposed || !unit->unshard.has_part;
	unit->unshard.is_part_exposed = unit->unshard.is_part_exposed || unit->unshard.has_part;
	return srt_coll_start(gather, NULL, stream);
}

static srt_status_t start_gather(srt_unit_t *unit)
{
	srt_slot_t *slot = unit->slot[SRT_SLOT_PARAMS];
	srt_unit_t *holder = slot->holder;

	if (holder != NULL && holder != unit) {
		if (srt_unit_in_use(holder))
			return srt_fail(
				SRT_ERR_STATE,
				"unit '%s' needs the memory of unit '%s', which is still in use: "
				"end that one first, declare them as parent and child, or raise "
				"srt_engine_options_t.prefetch",
				unit->name, holder->name);
		SRT_TRY(keep_part(holder));
		holder->unshard.is_gathered = false;
		holder->unshard.is_prefetched = false;
	}
	slot->holder = NULL;
	unit->unshard.is_gathered = false;
	SRT_TRY(queue_gather(unit));
	SRT_TRY(srt_event_record(unit->unshard.gathered, gather_stream(unit)));
	slot->holder = unit;
	unit->unshard.is_gathered = true;
	unit->is_hashed = false;
	return SRT_OK;
}

/* The unit's values are unsharded for later work on `stream`. */
srt_status_t srt_unshard_begin(srt_unit_t *unit, srt_stream_t *stream)
{
	SRT_TRY(srt_check_unchanged(unit, stream));
	if (unit->slot[SRT_SLOT_PARAMS] ==
	    NULL) /* Edge: the last change of the values -> their use. */
		return srt_stream_wait_event(stream, unit->engine->order.stepped);
	if (!unit->unshard.is_gathered)
		SRT_TRY(start_gather(unit));
	unit->unshard.is_prefetched = false;
	/* Edge: the gather -> the program's use. */
	SRT_TRY(srt_stream_wait_event(stream, unit->unshard.gathered));
	return srt_check_unsharded(unit, stream);
}

/* Uses on several streams are ordered by the communication stream. */
static srt_status_t end_use_in_place(srt_engine_t *engine, srt_stream_t *stream)
{
	if (engine->order.user != NULL && engine->order.user != stream) {
		/* Edge: the last use, on another stream -> the next change. */
		SRT_TRY(srt_stream_wait_event(engine->comm_stream, engine->order.used));
		engine->order.has_several_users = true;
	}
	engine->order.user = stream;
	return srt_event_record(engine->order.used, stream);
}

static srt_status_t wait_uses_in_place(srt_engine_t *engine, srt_stream_t *stream)
{
	if (engine->order.user == NULL)
		return SRT_OK;
	/* Edge: the program's uses of the values -> the change. */
	SRT_TRY(srt_stream_wait_event(stream, engine->order.used));
	if (engine->order.has_several_users)
		SRT_TRY(srt_reduce_join(engine, stream));
	engine->order.user = NULL;
	engine->order.has_several_users = false;
	return SRT_OK;
}

/* Ends the use by `stream`. */
srt_status_t srt_unshard_end(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_slot_t *slot = unit->slot[SRT_SLOT_PARAMS];

	if (slot == NULL)
		return end_use_in_place(unit->engine, stream);
	SRT_TRY(srt_check_unsharded(unit, stream));
	if (slot->user != NULL && slot->user != stream)
		/* Edge: the last use, on another stream -> gathers into the slot from now on. */
		SRT_TRY(srt_stream_wait_event(gather_stream(unit), slot->released));
	slot->user = stream;
	return srt_event_record(slot->released, stream);
}

/*
 * Starts gathering the units that followed this one in the last pass. Never takes the slot of a
 * unit that is in use or prefetched.
 */
srt_status_t srt_unshard_prefetch(srt_unit_t *unit, bool backward)
{
	srt_unit_t *next = unit;
	const srt_slot_t *slot;

	for (int i = 0; i < unit->engine->options.prefetch; i++) {
		next = backward ? next->pass.next_backward : next->pass.next_forward;
		if (next == NULL)
			break;
		slot = next->slot[SRT_SLOT_PARAMS];
		if (slot == NULL || next->unshard.is_gathered)
			continue;
		if (slot->holder != NULL &&
		    (srt_unit_in_use(slot->holder) || slot->holder->unshard.is_prefetched))
			break;
		SRT_TRY(start_gather(next));
		next->unshard.is_prefetched = true;
	}
	return SRT_OK;
}

srt_status_t srt_unshard_wait_shard_read(srt_unit_t *unit, srt_stream_t *stream)
{
	SRT_TRY(wait_uses_in_place(unit->engine, stream));
	if (unit->engine->home.stream != NULL) /* Edge: the copy of the values -> the change. */
		return srt_stream_wait_event(stream, unit->unshard.uploaded);
	if (!unit->unshard.is_exposed)
		return SRT_OK;
	/* Edge: this rank's own gather, which reads the shard -> the change. */
	SRT_TRY(srt_stream_wait_event(stream, unit->unshard.gathered));
	/* Edge: the peers' gathers -> the change. */
	SRT_TRY(srt_coll_wait_readers(unit->unshard.gather, stream));
	unit->unshard.is_exposed = false;
	return SRT_OK;
}

/* Before `stream` changes the unit's shard. */
srt_status_t srt_unshard_wait_readers(srt_unit_t *unit, srt_stream_t *stream)
{
	/* Edge: earlier changes, perhaps on another stream -> this one. */
	SRT_TRY(srt_stream_wait_event(stream, unit->engine->order.stepped));
	SRT_TRY(srt_unshard_wait_shard_read(unit, stream));
	unit->unshard.is_gathered = false;
	unit->unshard.is_prefetched = false;
	unit->unshard.is_uploaded = false;
	unit->unshard.has_part = false;
	return SRT_OK;
}

/* After `stream` changed shards, or tables of the step. */
srt_status_t srt_unshard_changed(srt_engine_t *engine, srt_stream_t *stream)
{
	SRT_TRY(srt_event_record(engine->order.stepped, stream));
	if (engine->home.stream != NULL) /* Edge: the change -> uploads from now on. */
		SRT_TRY(srt_stream_wait_event(engine->home.copy_stream, engine->order.stepped));
	/* Edge: the change -> gathers, reductions and the step from now on. */
	return srt_stream_wait_event(engine->comm_stream, engine->order.stepped);
}

srt_status_t srt_unshard_release(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine = unit->engine;
	srt_slot_t *slot = unit->slot[SRT_SLOT_PARAMS];
	const srt_role_t role = srt_role(unit, SRT_ROLE_UNSHARDED, engine->world);

	srt_check_set_views(unit);
	if (!engine->checks.on || slot == NULL || role.lifetime != SRT_LIFETIME_USE ||
	    srt_unit_in_use(unit) || slot->holder != unit)
		return SRT_OK;
	SRT_TRY(keep_part(unit));
	/* Edge: the copy of the unit's part -> this write. */
	SRT_TRY(srt_order_streams(engine, engine->comm_stream, stream));
	/* Edge: uses by other streams -> this write. */
	SRT_TRY(srt_stream_wait_event(stream, slot->released));
	/* Bytes are filled in pairs. */
	SRT_TRY(srt_op_fill(srt_view(engine->storage.slot_buffer[SRT_SLOT_PARAMS], slot->offset,
				     role.dtype == SRT_U8 ? SRT_BF16 : role.dtype),
			    NAN, (int64_t)unit->unsharded_nelem / (role.dtype == SRT_U8 ? 2 : 1),
			    stream));
	SRT_TRY(srt_event_record(slot->released, stream));
	slot->holder = NULL;
	unit->unshard.is_gathered = false;
	return SRT_OK;
}
