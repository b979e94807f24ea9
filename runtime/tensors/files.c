/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sharded tensors in safetensors files. Rank 0 writes whole tensors, one after the other. A rank
 * reads the runs of its shards.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/formats/model_file.h"
#include "runtime/tensors/tensors.h"

static const char saving[] = "saving sharded tensors", loading[] = "loading sharded tensors";

/* This rank's list. */
static srt_status_t check_tensors(srt_sharded_tensor_t *const *tensors, size_t ntensors)
{
	for (size_t i = 1; i < ntensors; i++) {
		if (tensors[i] == NULL || tensors[i]->comm != tensors[0]->comm)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"tensor %zu of the list is absent or on another "
					"communicator than '%s'",
					i, tensors[0]->name);
	}
	return SRT_OK;
}

/* Collective: all ranks have a list of the same tensors. */
static srt_status_t agree_on_tensors(srt_sharded_tensor_t *const *tensors, size_t ntensors,
				     srt_status_t status, const char *what)
{
	srt_comm_t *comm = tensors[0]->comm;
	uint64_t hash = 0;

	if (status == SRT_OK)
		status = check_tensors(tensors, ntensors);
	SRT_TRY(srt_comm_status_consensus(comm, what, status));
	for (size_t i = 0; i < ntensors; i++)
		hash = srt_hash64(hash, tensors[i]->name, strlen(tensors[i]->name) + 1);
	return srt_verify_list(comm, what, "tensors", ntensors, hash);
}

static size_t whole_nbytes(const srt_sharded_tensor_t *t)
{
	return (size_t)t->nelem * srt_dtype_size(t->dtype);
}

/* ---- save -------------------------------------------------------------------------------- */

/* On rank 0. */
static srt_status_t create_file(srt_sharded_tensor_t *const *tensors, size_t ntensors,
				const char *path, srt_safetensors_writer_t **writer)
{
	srt_safetensors_entry_t *entries = srt_calloc(ntensors, sizeof(*entries), saving);
	srt_status_t status;

	if (entries == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < ntensors; i++) {
		entries[i] = (srt_safetensors_entry_t){ .name = tensors[i]->name,
							.dtype = tensors[i]->dtype,
							.ndim = tensors[i]->ndim };
		memcpy(entries[i].shape, tensors[i]->shape, sizeof(entries[i].shape));
	}
	status = srt_safetensors_writer_create(path, entries, ntensors, NULL, 0, writer);
	free(entries);
	return status;
}

/* Writes a tensor that was gathered on rank 0. */
static srt_status_t write_whole(srt_safetensors_writer_t *writer, size_t i, srt_buffer_t *whole,
				srt_stream_t *stream)
{
	void *host = srt_calloc(whole->nbytes + 1, 1, saving);
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (host != NULL)
		status = srt_buffer_copy_to_host(host, whole, 0, whole->nbytes, stream);
	if (status == SRT_OK)
		status = srt_safetensors_writer_put(writer, i, host);
	free(host);
	return status;
}

/* Collective: tensor i. */
static srt_status_t save_tensor(const srt_sharded_tensor_t *t, srt_safetensors_writer_t *writer,
				size_t i, srt_stream_t *stream)
{
	const bool is_root = t->comm->rank == 0;
	srt_buffer_t *whole = NULL;
	srt_status_t status;

	status = srt_buffer_create(t->comm->device, SRT_MEM_DEVICE, is_root ? whole_nbytes(t) : 0,
				   t->name, &whole);
	status = srt_comm_status_consensus(t->comm, saving, status);
	if (status == SRT_OK)
		status = srt_sharded_tensor_gather(t, 0, srt_view(whole, 0, t->dtype), stream);
	if (status == SRT_OK)
		status = srt_comm_status_consensus(t->comm, saving,
						   is_root ? write_whole(writer, i, whole, stream) :
							     SRT_OK);
	srt_buffer_destroy(whole);
	return status;
}

srt_status_t srt_sharded_tensor_save(srt_sharded_tensor_t *const *tensors, size_t ntensors,
				     const char *path, srt_stream_t *stream)
{
	srt_safetensors_writer_t *writer = NULL;
	srt_comm_t *comm;
	srt_status_t status;

	SRT_NOT_NULL(tensors);
	SRT_NOT_NULL(stream);
	if (ntensors == 0 || tensors[0] == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: the list of tensors is empty",
				__func__);
	comm = tensors[0]->comm;
	SRT_TRY(agree_on_tensors(tensors, ntensors,
				 comm->rank == 0 ? srt_check_not_null(path, __func__, "path") :
						   SRT_OK,
				 saving));
	status = comm->rank == 0 ? create_file(tensors, ntensors, path, &writer) : SRT_OK;
	status = srt_comm_status_consensus(comm, saving, status);
	for (size_t i = 0; i < ntensors && status == SRT_OK; i++)
		status = save_tensor(tensors[i], writer, i, stream);
	if (status == SRT_OK)
		status = srt_comm_status_consensus(comm, saving,
						   comm->rank == 0 ?
							   srt_safetensors_writer_commit(writer) :
							   SRT_OK);
	srt_safetensors_writer_destroy(writer);
	return status;
}

/* ---- load -------------------------------------------------------------------------------- */

static srt_status_t check_entry(const srt_sharded_tensor_t *t, const srt_safetensors_t *file,
				const char *path)
{
	const srt_safetensors_tensor_t *entry = srt_safetensors_find(file, t->name);
	char want[128] = "", have[160] = "";
	size_t at = 0;

	if (entry == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s has no tensor '%s'", path, t->name);
	if (entry->dtype == t->dtype && entry->ndim == t->ndim &&
	    memcmp(entry->shape, t->shape, (size_t)t->ndim * sizeof(*t->shape)) == 0)
		return SRT_OK;
	for (int d = 0; d < t->ndim; d++)
		at += (size_t)snprintf(want + at, sizeof(want) - at, "%s%lld", d > 0 ? "," : "",
				       (long long)t->shape[d]);
	at = 0;
	for (int d = 0; d < srt_safetensors_nsizes(entry) && at < sizeof(have); d++)
		at += (size_t)snprintf(have + at, sizeof(have) - at, "%s%lld", d > 0 ? "," : "",
				       (long long)entry->shape[d]);
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "tensor '%s' is %s (%s) in %s, but %s (%s) here",
			t->name, entry->dtype_name, have, path, srt_dtype_name(t->dtype), want);
}

/* Opens the file and checks all that is read from it. */
static srt_status_t open_file(srt_sharded_tensor_t *const *tensors, size_t ntensors,
			      const char *path, srt_safetensors_t **file)
{
	SRT_TRY(srt_model_file_open(path, file));
	for (size_t i = 0; i < ntensors; i++)
		SRT_TRY(check_entry(tensors[i], *file, path));
	return SRT_OK;
}

/* Collective: all ranks have opened one file. */
static srt_status_t compare_files(srt_comm_t *comm, const srt_safetensors_t *file, const char *path)
{
	const srt_safetensors_identity_t *mine = srt_safetensors_identity(file);
	srt_safetensors_identity_t *all =
		srt_comm_calloc(comm, (size_t)comm->size, sizeof(*all), loading);
	srt_status_t status;

	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(comm, loading, mine, sizeof(*mine), all);
	for (int r = 1; r < comm->size && status == SRT_OK; r++) {
		if (memcmp(&all[r], &all[0], sizeof(*all)) != 0)
			status = srt_fail(
				SRT_ERR_MISMATCH,
				"%s: ranks %d and %d have opened different files; load a "
				"file that all ranks see and that no job replaces meanwhile",
				path, comm->world_rank[0], comm->world_rank[r]);
	}
	free(all);
	return status;
}

/* The runs of this rank's i-th shard. */
static srt_status_t load_shard(srt_sharded_tensor_t *t, size_t i, const srt_safetensors_t *file,
			       srt_stream_t *stream)
{
	const srt_safetensors_tensor_t *entry = srt_safetensors_find(file, t->name);
	const srt_shard_t *shard = &t->shards[t->local[i]];
	const int64_t nelem = srt_shard_nelem(shard, t->ndim);
	const size_t size = srt_dtype_size(t->dtype);
	int nouter = 0;
	const int64_t n = srt_shard_run_length(t, shard, &nouter);
	char *host = srt_calloc((size_t)nelem * size + 1, 1, loading);
	srt_status_t status = host != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	for (int64_t at = 0; at < nelem && status == SRT_OK; at += n) {
		const int64_t first = srt_shard_run_first(t, shard, nouter, at / n);

		status = srt_safetensors_read(file, entry, (size_t)first * size, (size_t)n * size,
					      host + (size_t)at * size);
	}
	if (status == SRT_OK)
		status = srt_sharded_tensor_set(t, i, host, stream);
	free(host);
	return status;
}

static srt_status_t load_shards(srt_sharded_tensor_t *const *tensors, size_t ntensors,
				const srt_safetensors_t *file, srt_stream_t *stream)
{
	for (size_t i = 0; i < ntensors; i++) {
		for (size_t k = 0; k < tensors[i]->nlocal; k++)
			SRT_TRY(load_shard(tensors[i], k, file, stream));
	}
	SRT_TRY(srt_stream_sync(stream));
	return srt_safetensors_check_unchanged(file);
}

srt_status_t srt_sharded_tensor_load(srt_sharded_tensor_t *const *tensors, size_t ntensors,
				     const char *path, srt_stream_t *stream)
{
	srt_safetensors_t *file = NULL;
	srt_comm_t *comm;
	srt_status_t status;

	SRT_NOT_NULL(tensors);
	SRT_NOT_NULL(path);
	SRT_NOT_NULL(stream);
	if (ntensors == 0 || tensors[0] == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: the list of tensors is empty",
				__func__);
	comm = tensors[0]->comm;
	SRT_TRY(agree_on_tensors(tensors, ntensors, SRT_OK, loading));
	status =
		srt_comm_status_consensus(comm, loading, open_file(tensors, ntensors, path, &file));
	if (status == SRT_OK)
		status = compare_files(comm, file, path);
	if (status == SRT_OK)
		status = srt_comm_status_consensus(comm, loading,
						   load_shards(tensors, ntensors, file, stream));
	srt_safetensors_close(file);
	return status;
}
