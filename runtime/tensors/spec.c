/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shardings: which boxes a tensor is cut into, where they are, and their elements. Pure functions;
 * the checks do not depend on the rank, so all ranks fail alike.
 */
#include <string.h>

#include "runtime/tensors/tensors.h"

size_t srt_sharding_count(const srt_sharding_t *sharding)
{
	return sharding->kind == SRT_SHARDING_CHUNK ? sharding->nlocations : sharding->nshards;
}

int64_t srt_shard_nelem(const srt_shard_t *shard, int ndim)
{
	int64_t nelem = 1;

	for (int d = 0; d < ndim; d++)
		nelem *= shard->size[d];
	return nelem;
}

srt_status_t srt_check_shape(const char *name, int ndim, const int64_t *shape, int64_t *nelem)
{
	int64_t nbytes;

	if (ndim < 1 || ndim > SRT_MAX_DIMS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"sharded tensor '%s' has %d dimensions, must have 1 to %d", name,
				ndim, SRT_MAX_DIMS);
	*nelem = 1;
	for (int d = 0; d < ndim; d++) {
		if (shape[d] < 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"sharded tensor '%s': the size of dimension %d is %lld",
					name, d, (long long)shape[d]);
		if (shape[d] > INT64_MAX / 16 || __builtin_mul_overflow(*nelem, shape[d], nelem) ||
		    __builtin_mul_overflow(*nelem, (int64_t)8, &nbytes))
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"sharded tensor '%s' is too large", name);
	}
	return SRT_OK;
}

static srt_status_t check_location(srt_shard_location_t location, size_t i, int nranks)
{
	if (location.rank < 0 || location.rank >= nranks)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"the location of shard %zu is rank %d, but the communicator has ranks "
			"0 to %d",
			i, location.rank, nranks - 1);
	if (location.on_host != 0 && location.on_host != 1)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"on_host of the location of shard %zu is %d, must be 0 or 1", i,
				location.on_host);
	return SRT_OK;
}

/* ---- chunks ------------------------------------------------------------------------------ */

static srt_status_t cut_chunks(const srt_sharding_t *sharding, int nranks, int ndim,
			       const int64_t *shape, srt_shard_t *shards)
{
	const int dim = sharding->dim < 0 ? sharding->dim + ndim : sharding->dim;
	const int64_t nlocations = (int64_t)sharding->nlocations;
	int64_t split;

	if (dim < 0 || dim >= ndim)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the sharding cuts dimension %d of a tensor of %d dimensions: must "
				"be %d to %d",
				sharding->dim, ndim, -ndim, ndim - 1);
	split = shape[dim] / nlocations + (shape[dim] % nlocations != 0);
	for (int64_t i = 0; i < nlocations; i++) {
		srt_shard_t *shard = &shards[i];

		SRT_TRY(check_location(sharding->locations[i], (size_t)i, nranks));
		*shard = (srt_shard_t){ .location = sharding->locations[i] };
		memcpy(shard->size, shape, (size_t)ndim * sizeof(*shape));
		shard->offset[dim] = split * i;
		shard->size[dim] = srt_max64(srt_min64(shape[dim], split * (i + 1)) - split * i, 0);
	}
	return SRT_OK;
}

/* ---- boxes ------------------------------------------------------------------------------- */

static srt_status_t check_box(const srt_shard_t *box, size_t i, int nranks, int ndim,
			      const int64_t *shape)
{
	SRT_TRY(check_location(box->location, i, nranks));
	for (int d = 0; d < ndim; d++) {
		if (box->offset[d] < 0 || box->size[d] < 0 || box->offset[d] > shape[d] ||
		    box->size[d] > shape[d] - box->offset[d])
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"shard %zu has %lld indices from %lld on of dimension %d, "
					"which has %lld",
					i, (long long)box->size[d], (long long)box->offset[d], d,
					(long long)shape[d]);
	}
	return SRT_OK;
}

static bool overlaps(const srt_shard_t *a, const srt_shard_t *b, int ndim)
{
	for (int d = 0; d < ndim; d++) {
		if (srt_max64(a->offset[d], b->offset[d]) >=
		    srt_min64(a->offset[d] + a->size[d], b->offset[d] + b->size[d]))
			return false;
	}
	return true;
}

/* Boxes inside the tensor that do not overlap and have as many elements cover it. */
static srt_status_t take_boxes(const srt_sharding_t *sharding, int nranks, int ndim,
			       const int64_t *shape, srt_shard_t *shards)
{
	int64_t nelem = 1, covered = 0;

	for (int d = 0; d < ndim; d++)
		nelem *= shape[d];
	for (size_t i = 0; i < sharding->nshards; i++) {
		const srt_shard_t *box = &sharding->shards[i];

		SRT_TRY(check_box(box, i, nranks, ndim, shape));
		for (size_t j = 0; j < i; j++) {
			if (overlaps(&sharding->shards[j], box, ndim))
				return srt_fail(SRT_ERR_INVALID_ARGUMENT,
						"shards %zu and %zu of the sharding overlap", j, i);
		}
		shards[i] = (srt_shard_t){ .location = box->location };
		memcpy(shards[i].offset, box->offset, (size_t)ndim * sizeof(*shape));
		memcpy(shards[i].size, box->size, (size_t)ndim * sizeof(*shape));
		covered += srt_shard_nelem(box, ndim);
	}
	if (covered != nelem)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the shards have %lld elements together, the tensor has %lld",
				(long long)covered, (long long)nelem);
	return SRT_OK;
}

srt_status_t srt_check_sharding(const srt_sharding_t *sharding)
{
	const bool chunks = sharding->kind == SRT_SHARDING_CHUNK;
	const char *of = chunks ? "locations" : "shards";
	const size_t n = srt_sharding_count(sharding);

	if (n == 0 || (chunks ? sharding->locations == NULL : sharding->shards == NULL))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "the sharding has no %s", of);
	if (n > INT32_MAX)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the sharding has %zu %s, must have at most %d", n, of, INT32_MAX);
	return SRT_OK;
}

srt_status_t srt_sharding_resolve(const srt_sharding_t *given, int nranks, int ndim,
				  const int64_t *shape, srt_shard_t *shards, size_t nshards)
{
	srt_sharding_t read = SRT_SHARDING_INIT;
	const srt_sharding_t *sharding = &read;
	int64_t nelem;

	SRT_TRY(srt_check_not_null(given, __func__, "sharding"));
	SRT_NOT_NULL(shape);
	SRT_NOT_NULL(shards);
	SRT_TRY(srt_struct_read(&read, sizeof(read), given, "srt_sharding_t"));
	SRT_TRY(srt_check_shape("of the sharding", ndim, shape, &nelem));
	if (sharding->kind != SRT_SHARDING_CHUNK && sharding->kind != SRT_SHARDING_BOXES)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%d is not a kind of sharding",
				(int)sharding->kind);
	SRT_TRY(srt_check_sharding(sharding));
	if (nshards != srt_sharding_count(sharding))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_sharding_resolve: memory for %zu shards, the sharding has %zu",
				nshards, srt_sharding_count(sharding));
	return sharding->kind == SRT_SHARDING_CHUNK ?
		       cut_chunks(sharding, nranks, ndim, shape, shards) :
		       take_boxes(sharding, nranks, ndim, shape, shards);
}

srt_shard_t srt_shard_whole(int ndim, const int64_t *shape, int rank)
{
	srt_shard_t whole = { .location = { rank, 0 } };

	memcpy(whole.size, shape, (size_t)ndim * sizeof(*shape));
	return whole;
}

/* ---- runs -------------------------------------------------------------------------------- */

int64_t srt_shard_run_length(const srt_sharded_tensor_t *t, const srt_shard_t *shard, int *nouter)
{
	int64_t n = 1;
	int d = t->ndim - 1;

	while (d > 0 && shard->size[d] == t->shape[d])
		n *= shard->size[d--];
	*nouter = d;
	return n * shard->size[d];
}

int64_t srt_shard_run_first(const srt_sharded_tensor_t *t, const srt_shard_t *shard, int nouter,
			    int64_t i)
{
	int64_t stride = 1, first = 0;

	for (int d = t->ndim - 1; d >= 0; d--) {
		int64_t index = shard->offset[d];

		if (d < nouter) {
			index += i % shard->size[d];
			i /= shard->size[d];
		}
		first += index * stride;
		stride *= t->shape[d];
	}
	return first;
}
