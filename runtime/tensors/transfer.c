/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers of a tensor between two sets of boxes over the ranks:
 *
 *     1. pack    each part of an own box that another box needs -> the message to its rank
 *     2. one all-to-all
 *     3. unpack  each part of a message -> its place in an own box
 *
 * A part is the intersection of two boxes. A message has the parts in the order of the two lists,
 * so both ends know where each one is. Parts of boxes on the host device are packed and unpacked
 * there, in host memory that the device copies from and to.
 *
 * Memory: the messages of a rank, sent and received; on the host once more, where it has boxes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tensors/tensors.h"

#include <shardrt/ops.h>

/* A part of an own box, and its elements in a message. */
typedef struct part {
	size_t box;            /* own, in the order of the list */
	srt_strided_t strided; /* y: the message's strides, x: the box's */
	size_t box_offset;     /* elements */
	size_t message_offset; /* elements */
	size_t nelem;
	bool on_host;
} part_t;

/* One direction: messages sent, or received. */
typedef struct messages {
	part_t *parts;
	size_t nparts, room;
	size_t nelem;
	srt_buffer_t *buffer;
	srt_buffer_t *host, *alias; /* in host memory, and the same for the device; NULL: none */
} messages_t;

struct srt_transfer {
	srt_comm_t *comm;
	char *name;
	srt_dtype_t dtype;
	int ndim;
	messages_t send, receive;
	srt_coll_t *coll;
	srt_event_t *done; /* the last run */
	srt_host_side_t host;
};

/* ---- parts ------------------------------------------------------------------------------- */

/* The intersection of two boxes; false: it is empty. */
static bool intersect(const srt_shard_t *a, const srt_shard_t *b, int ndim, srt_shard_t *both)
{
	for (int d = 0; d < ndim; d++) {
		both->offset[d] = srt_max64(a->offset[d], b->offset[d]);
		both->size[d] = srt_min64(a->offset[d] + a->size[d], b->offset[d] + b->size[d]) -
				both->offset[d];
		if (both->size[d] <= 0)
			return false;
	}
	return true;
}

/* Adds the part `both` of a box, at the end of the messages. */
static srt_status_t add_part(messages_t *m, int ndim, size_t index, const srt_shard_t *box,
			     const srt_shard_t *both)
{
	int64_t box_stride = 1, message_stride = 1;
	part_t *parts = srt_grow(m->parts, m->nparts + 1, &m->room, sizeof(*parts),
				 "the parts of a transfer");
	part_t *part;

	if (parts == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	m->parts = parts;
	part = &parts[m->nparts++];
	*part = (part_t){ .box = index,
			  .strided = { .ndim = ndim },
			  .message_offset = m->nelem,
			  .on_host = box->location.on_host != 0 };
	for (int d = ndim - 1; d >= 0; d--) {
		part->strided.size[d] = both->size[d];
		part->strided.stride_x[d] = box_stride;
		part->strided.stride_y[d] = message_stride;
		part->box_offset += (size_t)((both->offset[d] - box->offset[d]) * box_stride);
		box_stride *= box->size[d];
		message_stride *= both->size[d];
	}
	part->nelem = (size_t)message_stride;
	m->nelem += part->nelem;
	return SRT_OK;
}

/* The parts that one rank sends to another one, of which this rank is one end: the sender's, or the
 * receiver's. */
static srt_status_t list_pair(srt_transfer_t *t, srt_side_t from, srt_side_t to, int sender,
			      int receiver, bool is_sender)
{
	messages_t *m = is_sender ? &t->send : &t->receive;
	size_t sent = 0, received;
	srt_shard_t both;

	for (size_t i = 0; i < from.nshards; i++) {
		const srt_shard_t *source = &from.shards[i];

		if (source->location.rank != sender)
			continue;
		received = 0;
		for (size_t j = 0; j < to.nshards; j++) {
			const srt_shard_t *target = &to.shards[j];

			if (target->location.rank != receiver)
				continue;
			if (intersect(source, target, t->ndim, &both))
				SRT_TRY(is_sender ? add_part(m, t->ndim, sent, source, &both) :
						    add_part(m, t->ndim, received, target, &both));
			received++;
		}
		sent++;
	}
	return SRT_OK;
}

/* A rank's messages are in the order of the ranks at the other end. */
static srt_status_t list_parts(srt_transfer_t *t, srt_side_t from, srt_side_t to)
{
	const int rank = t->comm->rank;

	for (int r = 0; r < t->comm->size; r++) {
		SRT_TRY(list_pair(t, from, to, rank, r, true));
		SRT_TRY(list_pair(t, from, to, r, rank, false));
	}
	return SRT_OK;
}

/* Elements from each rank to each other one. */
static void count_splits(const srt_transfer_t *t, srt_side_t from, srt_side_t to, size_t *splits)
{
	srt_shard_t both;

	for (size_t i = 0; i < from.nshards; i++) {
		for (size_t j = 0; j < to.nshards; j++) {
			if (intersect(&from.shards[i], &to.shards[j], t->ndim, &both))
				splits[(size_t)from.shards[i].location.rank *
					       (size_t)t->comm->size +
				       (size_t)to.shards[j].location.rank] +=
					(size_t)srt_shard_nelem(&both, t->ndim);
		}
	}
}

/* ---- created ----------------------------------------------------------------------------- */

static srt_status_t allocate_messages(const srt_transfer_t *t, messages_t *m, const char *what)
{
	const size_t nbytes = m->nelem * srt_dtype_size(t->dtype);
	bool on_host = false;

	for (size_t i = 0; i < m->nparts; i++)
		on_host |= m->parts[i].on_host;
	SRT_TRY(srt_buffer_create(t->comm->device, srt_comm_mem_kind(t->comm), nbytes, what,
				  &m->buffer));
	if (!on_host || t->host.device == NULL)
		return SRT_OK;
	SRT_TRY(srt_buffer_create(t->host.device, SRT_MEM_PINNED, nbytes, what, &m->host));
	return srt_buffer_alias(t->comm->device, m->host, &m->alias);
}

static bool has_host_boxes(const srt_comm_t *comm, srt_side_t side)
{
	for (size_t i = 0; i < side.nshards; i++) {
		if (side.shards[i].location.on_host && side.shards[i].location.rank == comm->rank)
			return true;
	}
	return false;
}

/* What this rank needs without the others. */
static srt_status_t prepare(srt_transfer_t *t, srt_context_t *context, const char *name,
			    srt_side_t from, srt_side_t to)
{
	t->name = srt_strdup(name);
	if (t->name == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (has_host_boxes(t->comm, from) || has_host_boxes(t->comm, to))
		SRT_TRY(srt_host_side_create(context, &t->host));
	SRT_TRY(srt_event_create(t->comm->device, &t->done));
	SRT_TRY(list_parts(t, from, to));
	SRT_TRY(allocate_messages(t, &t->send, "sharded tensor, sent"));
	return allocate_messages(t, &t->receive, "sharded tensor, received");
}

static srt_status_t connect(srt_transfer_t *t, srt_side_t from, srt_side_t to)
{
	const size_t size = (size_t)t->comm->size;
	size_t *splits = srt_comm_calloc(t->comm, size * size, sizeof(*splits), "a transfer");
	srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				 .kind = SRT_COLL_ALL_TO_ALL,
				 .name = t->name,
				 .dtype = t->dtype,
				 .full = srt_view(t->send.buffer, 0, t->dtype),
				 .shard = srt_view(t->receive.buffer, 0, t->dtype),
				 .splits = splits };
	srt_status_t status;

	if (splits == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	count_splits(t, from, to, splits);
	status = srt_coll_create(t->comm, &desc, &t->coll);
	free(splits);
	return status;
}

srt_status_t srt_transfer_create(srt_context_t *context, srt_comm_t *comm, const char *name,
				 srt_dtype_t dtype, int ndim, srt_side_t from, srt_side_t to,
				 srt_transfer_t **out)
{
	srt_transfer_t *t = srt_comm_calloc(comm, 1, sizeof(*t), "a transfer");
	char what[128];
	srt_status_t status;

	if (t == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	t->comm = comm;
	srt_comm_hold(comm);
	t->dtype = dtype;
	t->ndim = ndim;
	snprintf(what, sizeof(what), "moving sharded tensor '%s'", name);
	status = srt_comm_status_consensus(comm, what, prepare(t, context, name, from, to));
	if (status == SRT_OK)
		status = connect(t, from, to);
	if (status != SRT_OK) {
		srt_transfer_destroy(t);
		return status;
	}
	*out = t;
	return SRT_OK;
}

static void free_messages(messages_t *m)
{
	srt_buffer_destroy(m->buffer);
	srt_buffer_destroy(m->alias);
	srt_buffer_destroy(m->host);
	free(m->parts);
}

void srt_transfer_destroy(srt_transfer_t *t)
{
	if (t == NULL)
		return;
	srt_coll_destroy(t->coll);
	free_messages(&t->send);
	free_messages(&t->receive);
	srt_event_destroy(t->done);
	srt_host_side_destroy(&t->host);
	srt_comm_release(t->comm);
	free(t->name);
	free(t);
}

/* ---- run --------------------------------------------------------------------------------- */

/* Packs or unpacks a part. `memory` has the messages. */
static srt_status_t copy_part(const srt_transfer_t *t, const part_t *part, srt_view_t box,
			      srt_buffer_t *memory, bool unpack, srt_stream_t *stream)
{
	const size_t size = srt_dtype_size(t->dtype);
	const srt_view_t message = srt_view(memory, part->message_offset * size, t->dtype);
	srt_strided_t strided = part->strided;

	box.offset += part->box_offset * size;
	if (!unpack)
		return srt_op_copy_strided(message, box, &strided, stream);
	memcpy(strided.stride_y, part->strided.stride_x, sizeof(strided.stride_y));
	memcpy(strided.stride_x, part->strided.stride_y, sizeof(strided.stride_x));
	return srt_op_copy_strided(box, message, &strided, stream);
}

/* The parts in the memory of one device. */
static srt_status_t copy_parts(const srt_transfer_t *t, const messages_t *m,
			       const srt_view_t *boxes, bool on_host, bool unpack,
			       srt_stream_t *stream)
{
	for (size_t i = 0; i < m->nparts; i++) {
		const part_t *part = &m->parts[i];

		if ((part->on_host && m->host != NULL) == on_host)
			SRT_TRY(copy_part(t, part, boxes[part->box], on_host ? m->host : m->buffer,
					  unpack, stream));
	}
	return SRT_OK;
}

/* Between the host's messages and the device's; parts that follow each other by one copy. */
static srt_status_t copy_messages(const srt_transfer_t *t, const messages_t *m, bool unpack,
				  srt_stream_t *stream)
{
	const size_t size = srt_dtype_size(t->dtype);

	for (size_t i = 0, n; i < m->nparts; i += n) {
		const size_t at = m->parts[i].message_offset * size;
		size_t nbytes = 0;

		for (n = 0; i + n < m->nparts && m->parts[i + n].on_host; n++)
			nbytes += m->parts[i + n].nelem * size;
		if (n == 0)
			n = 1;
		else if (unpack)
			SRT_TRY(srt_buffer_copy(m->alias, at, m->buffer, at, nbytes, stream));
		else
			SRT_TRY(srt_buffer_copy(m->buffer, at, m->alias, at, nbytes, stream));
	}
	return SRT_OK;
}

static srt_status_t pack(const srt_transfer_t *t, const srt_view_t *from, srt_stream_t *stream)
{
	const messages_t *m = &t->send;
	srt_stream_t *home;

	/* Edge: the peers' last reading -> the new messages. */
	SRT_TRY(srt_coll_wait_readers(t->coll, stream));
	SRT_TRY(copy_parts(t, m, from, false, false, stream));
	if (m->host == NULL)
		return SRT_OK;
	SRT_TRY(srt_host_side_enter(&t->host, t->host.device, stream, &home));
	SRT_TRY(copy_parts(t, m, from, true, false, home));
	SRT_TRY(srt_host_side_leave(&t->host, home, stream));
	return copy_messages(t, m, false, stream);
}

static srt_status_t unpack(const srt_transfer_t *t, const srt_view_t *to, srt_stream_t *stream)
{
	const messages_t *m = &t->receive;
	srt_stream_t *home;

	SRT_TRY(copy_parts(t, m, to, false, true, stream));
	if (m->host == NULL)
		return SRT_OK;
	SRT_TRY(copy_messages(t, m, true, stream));
	SRT_TRY(srt_host_side_enter(&t->host, t->host.device, stream, &home));
	SRT_TRY(copy_parts(t, m, to, true, true, home));
	return srt_host_side_leave(&t->host, home, stream);
}

static srt_status_t run(srt_transfer_t *t, const srt_view_t *from, const srt_view_t *to,
			srt_stream_t *stream)
{
	/* Edge: the last run, perhaps on another stream -> this one. */
	SRT_TRY(srt_stream_wait_event(stream, t->done));
	SRT_TRY(pack(t, from, stream));
	SRT_TRY(srt_coll_start(t->coll, NULL, stream));
	SRT_TRY(unpack(t, to, stream));
	return srt_event_record(t->done, stream);
}

srt_status_t srt_transfer_run(srt_transfer_t *t, const srt_view_t *from, const srt_view_t *to,
			      srt_stream_t *stream)
{
	const srt_status_t status = run(t, from, to, stream);
	char what[128];

	if (status == SRT_OK)
		return SRT_OK;
	snprintf(what, sizeof(what), "moving sharded tensor '%s'", t->name);
	return srt_comm_fail_alone(t->comm, what, status, srt_error_last());
}
