/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One hash for all parameters: XXH3-128 over the values, tensor after tensor in the order of their
 * names (compared as bytes; ties once, under the declared name), little-endian, in the
 * dtype in which they are stored, NaN as 7fc00000 (7e00 in f16, 7fc0 in bf16).
 * It does not depend on the sharding: equal runs have equal hashes. Every rank hashes the whole
 * tensors and compares the hash with those of the others, so replicas that differ are found.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "runtime/engine/verify.h"

#ifdef HAVE_XXHASH

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "collectives/comm.h"
#include "runtime/engine/gather_full.h"

static int compare_names(const void *a, const void *b)
{
	srt_param_t *const *pa = a, *const *pb = b;

	return strcmp((*pa)->name, (*pb)->name);
}

/* All NaNs become one; bytes in little-endian order. */
static void canonicalize_f32(uint32_t *values, size_t nelem)
{
	for (size_t i = 0; i < nelem; i++) {
		if ((values[i] & 0x7fffffffu) > 0x7f800000u)
			values[i] = 0x7fc00000u;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		values[i] = __builtin_bswap32(values[i]);
#endif
	}
}

/* The same for 16 bits; infinity and NaN of the type. */
static void canonicalize_16(uint16_t *values, size_t nelem, unsigned infinity, uint16_t nan)
{
	for (size_t i = 0; i < nelem; i++) {
		if ((values[i] & 0x7fffu) > infinity)
			values[i] = nan;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		values[i] = __builtin_bswap16(values[i]);
#endif
	}
}

static void canonicalize(const srt_param_t *param, void *values)
{
	if (param->dtype == SRT_F32)
		canonicalize_f32(values, (size_t)param->whole_nelem);
	else if (param->dtype == SRT_F16)
		canonicalize_16(values, (size_t)param->whole_nelem, 0x7c00u, 0x7e00u);
	else
		canonicalize_16(values, (size_t)param->whole_nelem, 0x7f80u, 0x7fc0u);
}

/* Fails, with the first parameter by name whose values differ between ranks. Collective. */
static srt_status_t fail_replicas(srt_engine_t *engine, srt_param_t **sorted, void *tensor,
				  XXH128_canonical_t *all, srt_stream_t *stream)
{
	for (size_t i = 0; i < engine->nparams; i++) {
		XXH128_canonical_t mine;

		SRT_TRY(srt_param_get(sorted[i], SRT_PARAM_VALUE, tensor, stream));
		canonicalize(sorted[i], tensor);
		XXH128_canonicalFromHash(&mine, XXH3_128bits(tensor, sorted[i]->whole_nbytes));
		SRT_TRY(srt_comm_oob_allgather_for(engine->comm, "comparing the parameters", &mine,
						   sizeof(mine), all));
		for (int r = 1; r < engine->world; r++) {
			if (memcmp(&all[r], &all[0], sizeof(mine)) != 0)
				return srt_replicas_fail(engine, sorted[i]->name, 0, r);
		}
	}
	return srt_fail(SRT_ERR_MISMATCH,
			"srt_engine_hash: the ranks hashed different values of the parameters, but "
			"read equal ones afterwards: another thread changes them, or the memory of "
			"a rank is damaged");
}

/* Every rank has hashed the whole tensors, so the hashes must be equal. Collective. */
static srt_status_t compare_hashes(srt_engine_t *engine, srt_param_t **sorted, void *tensor,
				   const unsigned char hash[16], srt_stream_t *stream)
{
	XXH128_canonical_t *all = srt_comm_calloc(engine->comm, (size_t)engine->world, sizeof(*all),
						  "comparing the hashes");
	srt_status_t status = all != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	bool equal = true;

	if (status == SRT_OK)
		status = srt_comm_oob_allgather_for(engine->comm, "comparing the hashes", hash,
						    sizeof(*all), all);
	for (int r = 1; status == SRT_OK && r < engine->world; r++)
		equal = equal && memcmp(&all[r], &all[0], sizeof(*all)) == 0;
	if (!equal)
		status = fail_replicas(engine, sorted, tensor, all, stream);
	free(all);
	return status;
}

static srt_status_t hash_params(srt_param_t **sorted, size_t nparams, void *tensor,
				XXH3_state_t *state, srt_stream_t *stream)
{
	const srt_gather_sink_t sink = { .host = tensor, .host_nbytes = SIZE_MAX };

	for (size_t i = 0; i < nparams; i++) {
		SRT_TRY(srt_param_gather(sorted[i], SRT_PARAM_VALUE, &sink, stream));
		canonicalize(sorted[i], tensor);
		if (XXH3_128bits_update(state, tensor, sorted[i]->whole_nbytes) != XXH_OK)
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
	void *tensor;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(hash);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_hash"));
	for (size_t i = 0; i < engine->nparams; i++) {
		if (engine->params[i]->whole_nbytes > most)
			most = engine->params[i]->whole_nbytes;
	}
	sorted = srt_calloc(engine->nparams, sizeof(*sorted), "order of names");
	tensor = srt_calloc(1, most, "an unsharded tensor for the hash");
	state = XXH3_createState();
	if (state == NULL)
		srt_fail(SRT_ERR_OUT_OF_MEMORY, "no memory for the state of a hash");
	if (sorted != NULL && tensor != NULL && state != NULL)
		status = srt_stream_sync(stream);
	status = srt_comm_status_consensus(engine->comm, "hashing the parameters", status);
	if (status == SRT_OK) {
		memcpy(sorted, engine->params, engine->nparams * sizeof(*sorted));
		qsort(sorted, engine->nparams, sizeof(*sorted), compare_names);
		XXH3_128bits_reset(state);
		status = srt_local_take_changes(engine, stream);
	}
	if (status == SRT_OK)
		status = hash_params(sorted, engine->nparams, tensor, state, stream);
	if (status == SRT_OK) {
		XXH128_canonical_t canonical;

		XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
		status = compare_hashes(engine, sorted, tensor, canonical.digest, stream);
		if (status == SRT_OK)
			memcpy(hash, canonical.digest, sizeof(canonical.digest));
	}
	XXH3_freeState(state);
	free(tensor);
	free(sorted);
	return status;
}

#else

srt_status_t srt_engine_hash(srt_engine_t *engine, srt_stream_t *stream, unsigned char hash[16])
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(hash);
	return srt_fail(
		SRT_ERR_UNSUPPORTED,
		"srt_engine_hash needs libxxhash, but the library was built without it: install it "
		"(Debian: libxxhash-dev) and configure again");
}

#endif
