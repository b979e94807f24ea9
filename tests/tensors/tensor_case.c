/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tensors/tensor_case.h"

#include "base/base.h"
#include "tests/harness/random.h"

void tensor_case_open(tensor_case_t *c)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &c->context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(c->context), 0, "test", &c->stream));
	c->rank = srt_context_rank(c->context);
	c->world = srt_context_world_size(c->context);
}

srt_sharded_tensor_t *tensor_create(tensor_case_t *c, const char *name, srt_dtype_t dtype, int ndim,
				    const int64_t *shape, const srt_sharding_t *sharding)
{
	srt_sharded_tensor_t *tensor;

	CHECK_OK_OR_DIE(srt_sharded_tensor_create(c->context, NULL, name, dtype, ndim, shape,
						  sharding, &tensor));
	return tensor;
}

void tensor_case_close(tensor_case_t *c)
{
	CHECK_OK(srt_stream_sync(c->stream));
	srt_stream_destroy(c->stream);
	srt_context_destroy(c->context);
}

void tensor_chunks(tensor_sharding_t *s, int dim, int nranks)
{
	s->sharding = (srt_sharding_t){ .size = sizeof(srt_sharding_t),
					.kind = SRT_SHARDING_CHUNK,
					.dim = dim,
					.locations = s->locations,
					.nlocations = (size_t)nranks };
	for (int r = 0; r < nranks; r++)
		s->locations[r] = (srt_shard_location_t){ .rank = r };
}

static srt_shard_location_t random_location(const tensor_case_t *c)
{
	const int rank = (int)(random32() % (unsigned)c->world);

	return (srt_shard_location_t){ .rank = rank, .on_host = random32() % 4 == 0 };
}

/* Cuts a random box of the list in two, at a random index. */
static void cut_box(tensor_sharding_t *s, const tensor_case_t *c, int ndim)
{
	srt_shard_t *box = &s->shards[random32() % s->sharding.nshards];
	srt_shard_t *rest = &s->shards[s->sharding.nshards++];
	const unsigned d = random32() % (unsigned)ndim;
	const int64_t n = (int64_t)(random32() % (uint64_t)(box->size[d] + 1));

	*rest = *box;
	rest->location = random_location(c);
	rest->offset[d] += n;
	rest->size[d] -= n;
	box->size[d] = n;
}

void tensor_random_sharding(tensor_sharding_t *s, const tensor_case_t *c, int ndim,
			    const int64_t *shape)
{
	if (random32() % 2 == 0) {
		tensor_chunks(s, (int)(random32() % (unsigned)(2 * ndim)) - ndim,
			      1 + (int)(random32() % (unsigned)(2 * c->world)));
		for (size_t i = 0; i < s->sharding.nlocations; i++)
			s->locations[i] = random_location(c);
		return;
	}
	s->sharding = (srt_sharding_t){ .size = sizeof(srt_sharding_t),
					.kind = SRT_SHARDING_BOXES,
					.shards = s->shards,
					.nshards = 1 };
	s->shards[0] = (srt_shard_t){ .location = random_location(c) };
	for (int d = 0; d < ndim; d++)
		s->shards[0].size[d] = shape[d];
	for (uint32_t n = random32() % 8; n > 0; n--)
		cut_box(s, c, ndim);
}

srt_buffer_t *tensor_upload(tensor_case_t *c, const void *bytes, size_t nbytes)
{
	srt_buffer_t *buffer;

	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(c->context), SRT_MEM_DEVICE, nbytes,
					  "whole", &buffer));
	CHECK_OK(srt_buffer_copy_from_host(buffer, 0, bytes, nbytes, c->stream));
	return buffer;
}

unsigned char *tensor_random_bytes(size_t nbytes)
{
	unsigned char *bytes = malloc(nbytes + 1);

	CHECK_OR_DIE(bytes != NULL);
	for (size_t i = 0; i < nbytes; i++)
		bytes[i] = (unsigned char)random32();
	return bytes;
}

void tensor_cut(const srt_shard_t *shard, int ndim, const int64_t *shape, size_t size,
		const unsigned char *whole, unsigned char *part)
{
	int64_t nelem = 1;

	for (int d = 0; d < ndim; d++)
		nelem *= shard->size[d];
	for (int64_t i = 0; i < nelem; i++) {
		int64_t rest = i, stride = 1, from = 0;

		for (int d = ndim - 1; d >= 0; d--) {
			from += (shard->offset[d] + rest % shard->size[d]) * stride;
			rest /= shard->size[d];
			stride *= shape[d];
		}
		memcpy(part + (size_t)i * size, whole + (size_t)from * size, size);
	}
}

static size_t shard_nbytes(const srt_sharded_tensor_t *tensor, size_t i, srt_shard_t *shard)
{
	const int ndim = srt_sharded_tensor_shape(tensor, NULL);
	size_t nbytes = srt_dtype_bits(srt_sharded_tensor_dtype(tensor)) / 8;

	CHECK_OK_OR_DIE(srt_sharded_tensor_shard_at(tensor,
						    srt_sharded_tensor_local_index(tensor, i),
						    shard));
	for (int d = 0; d < ndim; d++)
		nbytes *= (size_t)shard->size[d];
	return nbytes;
}

void tensor_check(tensor_case_t *c, const srt_sharded_tensor_t *tensor, const void *whole,
		  const char *what)
{
	const size_t size = srt_dtype_bits(srt_sharded_tensor_dtype(tensor)) / 8;
	int64_t shape[SRT_MAX_DIMS];
	const int ndim = srt_sharded_tensor_shape(tensor, shape);

	for (size_t i = 0; i < srt_sharded_tensor_local_count(tensor); i++) {
		srt_shard_t shard;
		const size_t nbytes = shard_nbytes(tensor, i, &shard);
		unsigned char *want = malloc(nbytes + 1), *got = malloc(nbytes + 1);

		CHECK_OR_DIE(want != NULL && got != NULL);
		CHECK_INT(shard.location.rank, c->rank);
		tensor_cut(&shard, ndim, shape, size, whole, want);
		CHECK_OK(srt_sharded_tensor_get(tensor, i, got, c->stream));
		CHECK_MSG(memcmp(got, want, nbytes) == 0, "%s: tensor %s, shard %zu of rank %d",
			  what, srt_sharded_tensor_name(tensor), i, c->rank);
		CHECK((srt_sharded_tensor_local(tensor, i).buffer == NULL) == (nbytes == 0));
		free(want);
		free(got);
	}
}

void tensor_set(tensor_case_t *c, srt_sharded_tensor_t *tensor, const void *whole)
{
	const size_t size = srt_dtype_bits(srt_sharded_tensor_dtype(tensor)) / 8;
	int64_t shape[SRT_MAX_DIMS];
	const int ndim = srt_sharded_tensor_shape(tensor, shape);

	for (size_t i = 0; i < srt_sharded_tensor_local_count(tensor); i++) {
		srt_shard_t shard;
		const size_t nbytes = shard_nbytes(tensor, i, &shard);
		unsigned char *part = malloc(nbytes + 1);

		CHECK_OR_DIE(part != NULL);
		tensor_cut(&shard, ndim, shape, size, whole, part);
		CHECK_OK(srt_sharded_tensor_set(tensor, i, part, c->stream));
		free(part);
	}
}
