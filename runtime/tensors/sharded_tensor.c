/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sharded tensors: creation, metadata, this rank's shards. All ranks describe the same tensor, or
 * all fail with what differs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tensors/tensors.h"

#define ALIGN 64u /* of a shard in its buffer */

/* ---- what the ranks compare -------------------------------------------------------------- */

/* A rank's description of the tensor that it creates. Fixed size, no pointers. */
typedef struct record {
	int32_t status; /* of the rank's own checks */
	int32_t dtype, ndim, kind, dim;
	uint64_t nshards;
	uint64_t shards_hash;
	uint64_t name_hash;
	int64_t shape[SRT_MAX_DIMS];
	char name[64]; /* truncated; the hash is of the full name */
	char text[SRT_CONTROL_TEXT];
} record_t;

static void fill_record(const srt_sharded_tensor_t *t, srt_status_t status, record_t *mine)
{
	memset(mine, 0, sizeof(*mine));
	mine->status = (int32_t)status;
	snprintf(mine->name, sizeof(mine->name), "%s", t->name != NULL ? t->name : "");
	if (status != SRT_OK) {
		snprintf(mine->text, sizeof(mine->text), "%s", srt_error_last());
		return;
	}
	mine->dtype = (int32_t)t->dtype;
	mine->ndim = t->ndim;
	mine->kind = (int32_t)t->kind;
	mine->dim = t->dim;
	mine->nshards = t->nshards;
	mine->name_hash = srt_hash64(0, t->name, strlen(t->name));
	mine->shards_hash = srt_hash64(0, t->shards, t->nshards * sizeof(*t->shards));
	memcpy(mine->shape, t->shape, (size_t)t->ndim * sizeof(*t->shape));
}

/* "f32 (5,3)" */
static const char *print_shape(const record_t *r, char *text, size_t size)
{
	size_t at = (size_t)snprintf(text, size, "%s (", srt_dtype_name((srt_dtype_t)r->dtype));

	for (int d = 0; d < r->ndim; d++)
		at += (size_t)snprintf(text + at, size - at, "%s%lld", d > 0 ? "," : "",
				       (long long)r->shape[d]);
	snprintf(text + at, size - at, ")");
	return text;
}

/* Compares b, of rank rb of the world, with a, of rank ra. The message names both values. */
static srt_status_t verify_record(const record_t *a, int ra, const record_t *b, int rb)
{
	char at_a[160], at_b[160];

	if (a->name_hash != b->name_hash)
		return srt_fail(SRT_ERR_MISMATCH,
				"the ranks create different sharded tensors: rank %d '%s', rank %d "
				"'%s'",
				ra, a->name, rb, b->name);
	if (a->dtype != b->dtype || a->ndim != b->ndim ||
	    memcmp(a->shape, b->shape, sizeof(a->shape)) != 0)
		return srt_fail(SRT_ERR_MISMATCH,
				"sharded tensor '%s' is %s on rank %d, %s on rank %d", a->name,
				print_shape(a, at_a, sizeof(at_a)), ra,
				print_shape(b, at_b, sizeof(at_b)), rb);
	if (a->kind != b->kind || a->dim != b->dim)
		return srt_fail(SRT_ERR_MISMATCH,
				"sharded tensor '%s' is cut in %s of dimension %d on rank %d, in "
				"%s of dimension %d on rank %d",
				a->name, a->kind == SRT_SHARDING_CHUNK ? "chunks" : "boxes", a->dim,
				ra, b->kind == SRT_SHARDING_CHUNK ? "chunks" : "boxes", b->dim, rb);
	if (a->nshards != b->nshards || a->shards_hash != b->shards_hash)
		return srt_fail(
			SRT_ERR_MISMATCH,
			"sharded tensor '%s': the shards or their locations differ: rank %d "
			"has %llu shards (table %016llx), rank %d has %llu (table %016llx)",
			a->name, ra, (unsigned long long)a->nshards,
			(unsigned long long)a->shards_hash, rb, (unsigned long long)b->nshards,
			(unsigned long long)b->shards_hash);
	return SRT_OK;
}

/* Collective: `status` of all ranks, and their descriptions. */
static srt_status_t verify_tensor(const srt_sharded_tensor_t *t, srt_status_t status)
{
	srt_comm_t *comm = t->comm;
	record_t mine, *all;
	char what[128];

	if (comm->size == 1)
		return status;
	snprintf(what, sizeof(what), "creating sharded tensor '%s'",
		 t->name != NULL ? t->name : "");
	fill_record(t, status, &mine);
	all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*all), what);
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(comm, what, &mine, sizeof(mine), all);
	for (int r = 0; r < comm->size && status == SRT_OK; r++) {
		all[r].name[sizeof(all[r].name) - 1] = '\0';
		all[r].text[sizeof(all[r].text) - 1] = '\0';
		if (all[r].status > SRT_OK && all[r].status < SRT_STATUS_COUNT)
			status = srt_fail((srt_status_t)all[r].status, "%s: on rank %d: %s", what,
					  comm->world_rank[r], all[r].text);
	}
	for (int r = 1; r < comm->size && status == SRT_OK; r++)
		status = verify_record(&all[0], comm->world_rank[0], &all[r], comm->world_rank[r]);
	free(all);
	return status;
}

srt_status_t srt_verify_list(srt_comm_t *comm, const char *what, const char *of, size_t n,
			     uint64_t hash)
{
	const uint64_t mine[2] = { n, hash };
	uint64_t *all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(mine), what);
	srt_status_t status;

	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(comm, what, mine, sizeof(mine), all);
	for (int r = 1; r < comm->size && status == SRT_OK; r++) {
		const uint64_t *theirs = all + 2 * (size_t)r;

		if (memcmp(all, theirs, sizeof(mine)) != 0)
			status = srt_fail(SRT_ERR_MISMATCH,
					  "%s: the %s differ: rank %d has %llu (list %016llx), "
					  "rank %d has %llu (list %016llx)",
					  what, of, comm->world_rank[0], (unsigned long long)all[0],
					  (unsigned long long)all[1], comm->world_rank[r],
					  (unsigned long long)theirs[0],
					  (unsigned long long)theirs[1]);
	}
	free(all);
	return status;
}

/* ---- created ----------------------------------------------------------------------------- */

/* Copies and checks the description. Does not depend on the rank. */
static srt_status_t describe(srt_sharded_tensor_t *t, const char *name, srt_dtype_t dtype, int ndim,
			     const int64_t *shape, const srt_sharding_t *given)
{
	srt_sharding_t read = SRT_SHARDING_INIT;
	const srt_sharding_t *sharding = &read;

	SRT_TRY(srt_struct_read(&read, sizeof(read), given, "srt_sharding_t"));
	t->name = srt_strdup(name);
	if (t->name == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (srt_dtype_bits(dtype) == 0 || srt_dtype_bits(dtype) % 8 != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"sharded tensor '%s' has dtype %s (%d), must have that of elements "
				"of whole bytes",
				name, srt_dtype_name(dtype), (int)dtype);
	SRT_TRY(srt_check_shape(name, ndim, shape, &t->nelem));
	t->dtype = dtype;
	t->ndim = ndim;
	for (int d = 0; d < SRT_MAX_DIMS; d++)
		t->shape[d] = d < ndim ? shape[d] : 1;
	t->kind = sharding->kind;
	if (t->kind == SRT_SHARDING_CHUNK)
		t->dim = sharding->dim < 0 ? sharding->dim + ndim : sharding->dim;
	if (srt_check_sharding(sharding) != SRT_OK)
		return srt_fail_prefix(SRT_ERR_INVALID_ARGUMENT, "sharded tensor '%s': ", name);
	t->nshards = srt_sharding_count(sharding);
	t->shards = srt_calloc(t->nshards + 1, sizeof(*t->shards), "the shards of a tensor");
	if (t->shards == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (srt_sharding_resolve(sharding, t->comm->size, ndim, shape, t->shards, t->nshards) ==
	    SRT_OK)
		return SRT_OK;
	return srt_fail_prefix(SRT_ERR_INVALID_ARGUMENT, "sharded tensor '%s': ", name);
}

/* Which buffer a shard of this rank is in. */
static int home_of(const srt_sharded_tensor_t *t, const srt_shard_t *shard)
{
	return shard->location.on_host && t->host.device != NULL;
}

/* This rank's shards, and their memory: zero. */
static srt_status_t allocate(srt_sharded_tensor_t *t)
{
	size_t nbytes[2] = { 0 };
	bool on_host = false;

	t->local = srt_calloc(t->nshards + 1, sizeof(*t->local), "the shards of a rank");
	t->views = srt_calloc(t->nshards + 1, sizeof(*t->views), "the shards of a rank");
	if (t->local == NULL || t->views == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < t->nshards; i++) {
		if (t->shards[i].location.rank != t->comm->rank)
			continue;
		t->local[t->nlocal++] = i;
		on_host |= t->shards[i].location.on_host != 0;
	}
	if (on_host)
		SRT_TRY(srt_host_side_create(t->context, &t->host));
	for (size_t i = 0; i < t->nlocal; i++) {
		const srt_shard_t *shard = &t->shards[t->local[i]];
		const int home = home_of(t, shard);

		t->views[i] = srt_view(NULL, nbytes[home], t->dtype);
		nbytes[home] += srt_align_up((size_t)srt_shard_nelem(shard, t->ndim) *
						     srt_dtype_size(t->dtype),
					     ALIGN);
	}
	SRT_TRY(srt_buffer_create(t->comm->device, SRT_MEM_DEVICE, nbytes[0], t->name,
				  &t->buffers[0]));
	if (t->host.device != NULL)
		SRT_TRY(srt_buffer_create(t->host.device, SRT_MEM_PINNED, nbytes[1], t->name,
					  &t->buffers[1]));
	for (size_t i = 0; i < t->nlocal; i++) {
		const srt_shard_t *shard = &t->shards[t->local[i]];

		if (srt_shard_nelem(shard, t->ndim) > 0)
			t->views[i].buffer = t->buffers[home_of(t, shard)];
	}
	return SRT_OK;
}

srt_status_t srt_sharded_tensor_create(srt_context_t *context, srt_comm_t *comm, const char *name,
				       srt_dtype_t dtype, int ndim, const int64_t *shape,
				       const srt_sharding_t *sharding, srt_sharded_tensor_t **out)
{
	srt_sharded_tensor_t *t;
	srt_status_t status;

	SRT_NOT_NULL(context);
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(shape);
	SRT_NOT_NULL(sharding);
	SRT_TRY(srt_check_not_null(out, __func__, "tensor"));
	if (comm == NULL)
		comm = srt_context_world(context);
	t = srt_comm_calloc(comm, 1, sizeof(*t), "a sharded tensor");
	if (t == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	t->context = context;
	t->comm = comm;
	srt_comm_hold(comm);
	status = verify_tensor(t, describe(t, name, dtype, ndim, shape, sharding));
	if (status == SRT_OK)
		status = srt_comm_status_consensus(comm, "creating a sharded tensor", allocate(t));
	if (status != SRT_OK) {
		srt_sharded_tensor_destroy(t);
		return status;
	}
	*out = t;
	return SRT_OK;
}

srt_status_t srt_sharded_tensor_create_like(const srt_sharded_tensor_t *t, const char *name,
					    srt_sharded_tensor_t **like)
{
	srt_sharding_t sharding;
	srt_shard_location_t *locations;
	srt_status_t status;

	SRT_TRY(srt_check_not_null(t, __func__, "tensor"));
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(like);
	locations = srt_comm_calloc(t->comm, t->nshards, sizeof(*locations), "a sharded tensor");
	if (locations == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < t->nshards; i++)
		locations[i] = t->shards[i].location;
	sharding = (srt_sharding_t){ .size = sizeof(sharding),
				     .kind = t->kind,
				     .dim = t->dim,
				     .locations = locations,
				     .nlocations = t->nshards,
				     .shards = t->shards,
				     .nshards = t->nshards };
	status = srt_sharded_tensor_create(t->context, t->comm, name, t->dtype, t->ndim, t->shape,
					   &sharding, like);
	free(locations);
	return status;
}

void srt_sharded_tensor_destroy(srt_sharded_tensor_t *t)
{
	if (t == NULL || srt_device_is_inherited(t->comm->device))
		return;
	for (int home = 0; home < 2; home++)
		srt_buffer_destroy(t->buffers[home]);
	srt_host_side_destroy(&t->host);
	srt_comm_release(t->comm);
	free(t->views);
	free(t->local);
	free(t->shards);
	free(t->name);
	free(t);
}

/* ---- metadata ---------------------------------------------------------------------------- */

const char *srt_sharded_tensor_name(const srt_sharded_tensor_t *t)
{
	return t != NULL ? t->name : "";
}

srt_dtype_t srt_sharded_tensor_dtype(const srt_sharded_tensor_t *t)
{
	return t != NULL ? t->dtype : SRT_DTYPE_NONE;
}

int srt_sharded_tensor_shape(const srt_sharded_tensor_t *t, int64_t *shape)
{
	if (t == NULL)
		return 0;
	if (shape != NULL)
		memcpy(shape, t->shape, sizeof(t->shape));
	return t->ndim;
}

size_t srt_sharded_tensor_shard_count(const srt_sharded_tensor_t *t)
{
	return t != NULL ? t->nshards : 0;
}

srt_status_t srt_sharded_tensor_shard_at(const srt_sharded_tensor_t *t, size_t i,
					 srt_shard_t *shard)
{
	SRT_TRY(srt_check_not_null(t, __func__, "tensor"));
	SRT_NOT_NULL(shard);
	if (i >= t->nshards)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"sharded tensor '%s' has %zu shards, there is no shard %zu",
				t->name, t->nshards, i);
	*shard = t->shards[i];
	return SRT_OK;
}

size_t srt_sharded_tensor_local_count(const srt_sharded_tensor_t *t)
{
	return t != NULL ? t->nlocal : 0;
}

size_t srt_sharded_tensor_local_index(const srt_sharded_tensor_t *t, size_t i)
{
	return t == NULL ? 0 : i < t->nlocal ? t->local[i] : t->nshards;
}

bool srt_sharded_tensor_matches(const srt_sharded_tensor_t *a, const srt_sharded_tensor_t *b)
{
	return a->comm == b->comm && a->dtype == b->dtype && a->ndim == b->ndim &&
	       memcmp(a->shape, b->shape, sizeof(a->shape)) == 0;
}

bool srt_sharded_tensor_same_shards(const srt_sharded_tensor_t *a, const srt_sharded_tensor_t *b)
{
	return a->nshards == b->nshards &&
	       memcmp(a->shards, b->shards, a->nshards * sizeof(*a->shards)) == 0;
}

/* ---- this rank's shards ------------------------------------------------------------------ */

srt_view_t srt_sharded_tensor_local(const srt_sharded_tensor_t *t, size_t i)
{
	return t != NULL && i < t->nlocal && t->views[i].buffer != NULL ? t->views[i] :
									  (srt_view_t){ 0 };
}

static srt_status_t check_local(const srt_sharded_tensor_t *t, size_t i)
{
	if (i < t->nlocal)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"rank %d has %zu shards of sharded tensor '%s', there is no shard %zu",
			srt_comm_world_rank(t->comm, t->comm->rank), t->nlocal, t->name, i);
}

static bool is_empty(const srt_sharded_tensor_t *t, size_t i)
{
	return i < t->nlocal && t->views[i].buffer == NULL;
}

static size_t local_nbytes(const srt_sharded_tensor_t *t, size_t i)
{
	return (size_t)srt_shard_nelem(&t->shards[t->local[i]], t->ndim) * srt_dtype_size(t->dtype);
}

srt_status_t srt_sharded_tensor_get(const srt_sharded_tensor_t *t, size_t i, void *host,
				    srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_TRY(srt_check_not_null(t, __func__, "tensor"));
	if (!is_empty(t, i))
		SRT_NOT_NULL(host);
	SRT_NOT_NULL(stream);
	SRT_TRY(check_local(t, i));
	if (is_empty(t, i))
		return srt_stream_sync(stream);
	SRT_TRY(srt_host_side_enter(&t->host, t->views[i].buffer->device, stream, &home));
	return srt_buffer_copy_to_host(host, t->views[i].buffer, t->views[i].offset,
				       local_nbytes(t, i), home);
}

srt_status_t srt_sharded_tensor_set(srt_sharded_tensor_t *t, size_t i, const void *host,
				    srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_TRY(srt_check_not_null(t, __func__, "tensor"));
	if (!is_empty(t, i))
		SRT_NOT_NULL(host);
	SRT_NOT_NULL(stream);
	SRT_TRY(check_local(t, i));
	if (is_empty(t, i))
		return SRT_OK;
	SRT_TRY(srt_host_side_enter(&t->host, t->views[i].buffer->device, stream, &home));
	SRT_TRY(srt_buffer_copy_from_host(t->views[i].buffer, t->views[i].offset, host,
					  local_nbytes(t, i), home));
	return srt_host_side_leave(&t->host, home, stream);
}
