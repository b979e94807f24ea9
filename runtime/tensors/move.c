/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moving sharded tensors: scatter, gather, copy, reshard. Each is a transfer between two sets of
 * boxes (transfer.c), made and freed by the call. A whole tensor on a rank is one box.
 */
#include <string.h>

#include "runtime/tensors/tensors.h"

static srt_side_t side_of(const srt_sharded_tensor_t *t)
{
	return (srt_side_t){ t->shards, t->nshards };
}

/* One transfer, which has ended when the call returns. Collective. */
static srt_status_t move(const srt_sharded_tensor_t *t, srt_side_t from, const srt_view_t *have,
			 srt_side_t to, const srt_view_t *get, srt_stream_t *stream)
{
	srt_transfer_t *transfer;
	srt_status_t status;

	SRT_TRY(srt_transfer_create(t->context, t->comm, t->name, t->dtype, t->ndim, from, to,
				    &transfer));
	status = srt_transfer_run(transfer, have, get, stream);
	if (status == SRT_OK)
		status = srt_comm_share_failure(t->comm, "moving a sharded tensor", stream,
						srt_stream_sync(stream));
	srt_transfer_destroy(transfer);
	return status;
}

/* ---- scatter, gather --------------------------------------------------------------------- */

static srt_status_t check_stream(const srt_comm_t *comm, const srt_stream_t *stream)
{
	if (stream->device == comm->device)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"stream \"%s\" belongs to another device than communicator \"%s\"",
			stream->name, comm->name);
}

static srt_status_t check_whole(const srt_sharded_tensor_t *t, int root, srt_view_t whole,
				const srt_stream_t *stream)
{
	SRT_TRY(check_stream(t->comm, stream));
	if (root < 0 || root >= t->comm->size)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the root %d of sharded tensor '%s' is not a rank of the "
				"communicator",
				root, t->name);
	if (t->comm->rank != root || (t->nelem == 0 && whole.buffer == NULL))
		return SRT_OK;
	SRT_TRY(srt_view_check(&whole, (size_t)t->nelem, "the whole tensor"));
	if (whole.dtype != t->dtype)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the whole tensor is %s, sharded tensor '%s' is %s",
				srt_dtype_name(whole.dtype), t->name, srt_dtype_name(t->dtype));
	if (whole.buffer->device != t->comm->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the whole tensor, buffer \"%s\", belongs to another device than "
				"communicator \"%s\"",
				whole.buffer->name, t->comm->name);
	return SRT_OK;
}

srt_status_t srt_sharded_tensor_scatter(srt_sharded_tensor_t *t, int root, srt_view_t whole,
					srt_stream_t *stream)
{
	srt_shard_t box;

	SRT_TRY(srt_check_not_null(t, __func__, "tensor"));
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_comm_status_consensus(t->comm, "scattering a sharded tensor",
					  check_whole(t, root, whole, stream)));
	box = srt_shard_whole(t->ndim, t->shape, root);
	return move(t, (srt_side_t){ &box, 1 }, &whole, side_of(t), t->views, stream);
}

srt_status_t srt_sharded_tensor_gather(const srt_sharded_tensor_t *t, int root, srt_view_t whole,
				       srt_stream_t *stream)
{
	srt_shard_t box;

	SRT_TRY(srt_check_not_null(t, __func__, "tensor"));
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_comm_status_consensus(t->comm, "gathering a sharded tensor",
					  check_whole(t, root, whole, stream)));
	box = srt_shard_whole(t->ndim, t->shape, root);
	return move(t, side_of(t), t->views, (srt_side_t){ &box, 1 }, &whole, stream);
}

/* ---- copy, reshard ----------------------------------------------------------------------- */

static srt_status_t check_copy(const srt_sharded_tensor_t *to, const srt_sharded_tensor_t *from,
			       const srt_stream_t *stream)
{
	SRT_TRY(check_stream(from->comm, stream));
	if (to->comm != from->comm)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"sharded tensor '%s' is on communicator \"%s\", '%s' on \"%s\"",
				to->name, to->comm->name, from->name, from->comm->name);
	if (!srt_sharded_tensor_matches(to, from))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"sharded tensor '%s' has another shape or dtype than '%s'",
				to->name, from->name);
	return SRT_OK;
}

/* Between equal shardings: each rank has the same shards of both, at the same offsets. */
static srt_status_t copy_local(srt_sharded_tensor_t *to, const srt_sharded_tensor_t *from,
			       srt_stream_t *stream)
{
	for (int home = 0; home < 2; home++) {
		srt_stream_t *at;

		if (from->buffers[home] == NULL || from->buffers[home]->nbytes == 0)
			continue;
		SRT_TRY(srt_host_side_enter(&from->host, from->buffers[home]->device, stream, &at));
		SRT_TRY(srt_buffer_copy(to->buffers[home], 0, from->buffers[home], 0,
					from->buffers[home]->nbytes, at));
		SRT_TRY(srt_host_side_leave(&from->host, at, stream));
	}
	return srt_stream_sync(stream);
}

srt_status_t srt_sharded_tensor_copy(srt_sharded_tensor_t *to, const srt_sharded_tensor_t *from,
				     srt_stream_t *stream)
{
	SRT_NOT_NULL(to);
	SRT_NOT_NULL(from);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_comm_status_consensus(from->comm, "copying a sharded tensor",
					  check_copy(to, from, stream)));
	if (to == from)
		return SRT_OK;
	if (srt_sharded_tensor_same_shards(to, from))
		return srt_comm_share_failure(from->comm, "copying a sharded tensor", stream,
					      copy_local(to, from, stream));
	return move(from, side_of(from), from->views, side_of(to), to->views, stream);
}

srt_status_t srt_sharded_tensor_reshard(const srt_sharded_tensor_t *t,
					const srt_sharding_t *sharding,
					srt_sharded_tensor_t **resharded, srt_stream_t *stream)
{
	srt_sharded_tensor_t *made;
	srt_status_t status;

	SRT_TRY(srt_check_not_null(t, __func__, "tensor"));
	SRT_NOT_NULL(sharding);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(resharded);
	SRT_TRY(srt_sharded_tensor_create(t->context, t->comm, t->name, t->dtype, t->ndim, t->shape,
					  sharding, &made));
	status = srt_sharded_tensor_copy(made, t, stream);
	if (status != SRT_OK) {
		srt_sharded_tensor_destroy(made);
		return status;
	}
	*resharded = made;
	return SRT_OK;
}

srt_status_t srt_sharded_tensor_create_from(srt_context_t *context, srt_comm_t *comm,
					    const char *name, int ndim, const int64_t *shape,
					    const srt_sharding_t *sharding, int root,
					    srt_view_t whole, srt_sharded_tensor_t **tensor,
					    srt_stream_t *stream)
{
	srt_sharded_tensor_t *made;
	srt_status_t status;

	SRT_NOT_NULL(context);
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(shape);
	SRT_NOT_NULL(sharding);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(tensor);
	SRT_TRY(srt_sharded_tensor_create(context, comm, name, whole.dtype, ndim, shape, sharding,
					  &made));
	status = srt_sharded_tensor_scatter(made, root, whole, stream);
	if (status != SRT_OK) {
		srt_sharded_tensor_destroy(made);
		return status;
	}
	*tensor = made;
	return SRT_OK;
}
