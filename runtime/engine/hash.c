/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One number for all parameters: XXH3-128 over the values, tensor after tensor in the order of
 * their names (bytes compared, ties once, under the name they were declared with), little-endian,
 * NaN as 7fc00000. It does not depend on the sharding, so equal runs have equal hashes.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "runtime/engine/engine.h"

#ifdef HAVE_XXHASH

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "collectives/comm.h"

static int by_name(const void *a, const void *b)
{
	srt_param_t *const *pa = a, *const *pb = b;

	return strcmp((*pa)->name, (*pb)->name);
}

/* NaNs are equal as a class; bytes in little-endian order. */
static void canonicalize(uint32_t *values, size_t nelem)
{
	for (size_t i = 0; i < nelem; i++) {
		if ((values[i] & 0x7fffffffu) > 0x7f800000u)
			values[i] = 0x7fc00000u;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		values[i] = __builtin_bswap32(values[i]);
#endif
	}
}

static srt_status_t hash_params(srt_param_t **sorted, size_t nparams, uint32_t *room,
				XXH3_state_t *state, srt_stream_t *stream)
{
	for (size_t i = 0; i < nparams; i++) {
		SRT_TRY(srt_param_get(sorted[i], SRT_PARAM_VALUE, room, stream));
		canonicalize(room, (size_t)sorted[i]->nelem);
		if (XXH3_128bits_update(state, room, sorted[i]->nbytes) != XXH_OK)
			return srt_fail(SRT_ERR_SYSTEM, "hashing parameter '%s' failed",
					sorted[i]->name);
	}
	return SRT_OK;
}

srt_status_t srt_engine_hash(srt_engine_t *engine, srt_stream_t *stream, unsigned char hash[16])
{
	size_t most = 0;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	srt_param_t **sorted;
	XXH3_state_t *state;
	uint32_t *room;

	SRT_TRY(srt_engine_require_built(engine, "srt_engine_hash"));
	for (size_t i = 0; i < engine->nparams; i++) {
		if (engine->params[i]->nbytes > most)
			most = engine->params[i]->nbytes;
	}
	sorted = srt_calloc(engine->nparams, sizeof(*sorted), "order of names");
	room = srt_calloc(1, most, "a whole tensor for the hash");
	state = XXH3_createState();
	if (state == NULL)
		srt_fail(SRT_ERR_OUT_OF_MEMORY, "no memory for the state of a hash");
	if (sorted != NULL && room != NULL && state != NULL)
		status = SRT_OK;
	status = srt_comm_status_consensus(engine->comm, "hashing the parameters", status);
	if (status == SRT_OK) {
		memcpy(sorted, engine->params, engine->nparams * sizeof(*sorted));
		qsort(sorted, engine->nparams, sizeof(*sorted), by_name);
		XXH3_128bits_reset(state);
		status = hash_params(sorted, engine->nparams, room, state, stream);
	}
	if (status == SRT_OK) {
		XXH128_canonical_t canonical;

		XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
		memcpy(hash, canonical.digest, sizeof(canonical.digest));
	}
	XXH3_freeState(state);
	free(room);
	free(sorted);
	return status;
}

#else

srt_status_t srt_engine_hash(srt_engine_t *engine, srt_stream_t *stream, unsigned char hash[16])
{
	(void)engine;
	(void)stream;
	(void)hash;
	return srt_fail(SRT_ERR_UNSUPPORTED,
			"hashes need libxxhash, which this library was built without: install it "
			"(Debian: libxxhash-dev) and configure again");
}

#endif
