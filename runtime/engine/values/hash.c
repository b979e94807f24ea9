/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One hash for all parameters: XXH3-128 over the values, tensor after tensor in the order of their
 * names (compared as bytes; ties once, under the declared name), little-endian, in the
 * dtype in which they are stored, NaN as 7fc00000 (7e00 in f16, 7fc0 in bf16): base/hash128.h.
 * It does not depend on the sharding: equal runs have equal hashes, and so have the files and
 * checkpoints that they save (runtime/checkpoint/formats/file_hash.c). Every rank hashes the whole
 * tensors and compares the hash with those of the others, so replicas that differ are found.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash128.h"
#include "collectives/comm.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/step/step.h"
#include "runtime/engine/values/gather_full.h"

/* A hash, as ranks exchange it. */
typedef struct digest {
	unsigned char bytes[SRT_HASH128_NBYTES];
} digest_t;

/* What a rank hashes with. */
typedef struct hashing {
	srt_engine_t *engine;
	srt_param_t **sorted; /* the parameters, by name */
	void *tensor;         /* the largest of them, unsharded */
	srt_hash128_t *state;
} hashing_t;

static int compare_names(const void *a, const void *b)
{
	srt_param_t *const *pa = a, *const *pb = b;

	return strcmp((*pa)->name, (*pb)->name);
}

/* Fails, with the first parameter by name whose values differ between ranks. Collective. */
static srt_status_t fail_replicas(const hashing_t *h, digest_t *all, srt_stream_t *stream)
{
	for (size_t i = 0; i < h->engine->nparams; i++) {
		const srt_param_t *param = h->sorted[i];
		digest_t mine;

		SRT_TRY(srt_param_get(h->sorted[i], SRT_PARAM_VALUE, h->tensor, stream));
		srt_hash128_reset(h->state);
		srt_hash128_add_values(h->state, param->dtype, h->tensor,
				       (size_t)param->whole_nelem);
		srt_hash128_get(h->state, mine.bytes);
		SRT_TRY(srt_comm_oob_allgather_for(h->engine->comm, "comparing the parameters",
						   &mine, sizeof(mine), all));
		for (int r = 1; r < h->engine->world; r++) {
			if (memcmp(&all[r], &all[0], sizeof(mine)) != 0)
				return srt_replicas_fail(h->engine, param->name, 0, r);
		}
	}
	return srt_fail(SRT_ERR_MISMATCH,
			"srt_engine_hash: the ranks hashed different values of the parameters, but "
			"read equal ones afterwards: another thread changes them, or the memory of "
			"a rank is damaged");
}

/* Every rank has hashed the whole tensors, so the hashes must be equal. Collective. */
static srt_status_t compare_hashes(const hashing_t *h, const digest_t *mine, srt_stream_t *stream)
{
	srt_comm_t *comm = h->engine->comm;
	digest_t *all = srt_comm_calloc(comm, (size_t)h->engine->world, sizeof(*all),
					"comparing the hashes");
	srt_status_t status = all != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	bool equal = true;

	if (status == SRT_OK)
		status = srt_comm_oob_allgather_for(comm, "comparing the hashes", mine,
						    sizeof(*mine), all);
	for (int r = 1; status == SRT_OK && r < h->engine->world; r++)
		equal = equal && memcmp(&all[r], &all[0], sizeof(*all)) == 0;
	if (!equal)
		status = fail_replicas(h, all, stream);
	free(all);
	return status;
}

static srt_status_t hash_params(const hashing_t *h, srt_stream_t *stream)
{
	const srt_gather_sink_t sink = { .host = h->tensor, .host_nbytes = SIZE_MAX };

	for (size_t i = 0; i < h->engine->nparams; i++) {
		srt_param_t *param = h->sorted[i];

		SRT_TRY(srt_param_gather(param, SRT_PARAM_VALUE, &sink, stream));
		srt_hash128_add_values(h->state, param->dtype, h->tensor,
				       (size_t)param->whole_nelem);
	}
	return SRT_OK;
}

/* Memory for the hash; the parameters in the order of names. Local. */
static srt_status_t prepare(hashing_t *h)
{
	const srt_engine_t *engine = h->engine;
	size_t most = 0;

	for (size_t i = 0; i < engine->nparams; i++) {
		if (engine->params[i]->whole_nbytes > most)
			most = engine->params[i]->whole_nbytes;
	}
	SRT_TRY(srt_hash128_create("srt_engine_hash", &h->state));
	h->sorted = srt_calloc(engine->nparams, sizeof(*h->sorted), "order of names");
	h->tensor = srt_calloc(1, most, "an unsharded tensor for the hash");
	if (h->sorted == NULL || h->tensor == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memcpy(h->sorted, engine->params, engine->nparams * sizeof(*h->sorted));
	qsort(h->sorted, engine->nparams, sizeof(*h->sorted), compare_names);
	return SRT_OK;
}

srt_status_t srt_engine_hash(srt_engine_t *engine, unsigned char hash[16], srt_stream_t *stream)
{
	hashing_t h = { .engine = engine };
	srt_status_t status;
	digest_t digest;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(hash);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_hash"));
	status = prepare(&h);
	if (status == SRT_OK)
		status = srt_stream_sync(stream);
	status = srt_comm_status_consensus(engine->comm, "hashing the parameters", status);
	if (status == SRT_OK)
		status = srt_writes_before_read(engine, stream);
	if (status == SRT_OK)
		status = hash_params(&h, stream);
	if (status == SRT_OK) {
		srt_hash128_get(h.state, digest.bytes);
		status = compare_hashes(&h, &digest, stream);
	}
	if (status == SRT_OK)
		memcpy(hash, digest.bytes, sizeof(digest.bytes));
	srt_hash128_destroy(h.state);
	free(h.tensor);
	free(h.sorted);
	return status;
}
