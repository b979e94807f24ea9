/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Comparing replicas: with ddp every rank has all values and optimizer states and steps them alike,
 * with replicas of shards every rank of the same shard. Ranks that begin with different ones would
 * train different models, silently. A tensor is compared by its largest element and its
 * reproducible sum (reproducible_sum.c), one of bytes, and states in 8 bits, by a hash that the
 * host computes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"
#include "runtime/engine/step/reproducible_sum.h"
#include "runtime/engine/step/step.h"

/* The digest of one tensor, or of all. Exchanged as plain bytes. */
typedef struct digest {
	double bins[2];
	double max;
	uint64_t bytes; /* hash of tensors of SRT_U8 */
} digest_t;

/* Bytes that are copied to the host at a time. */
#define PIECE_NBYTES ((size_t)1 << 20)

srt_status_t srt_replicas_fail(const srt_engine_t *engine, const char *param, int first, int rank)
{
	return srt_fail(
		SRT_ERR_MISMATCH,
		"parameter '%s' or its optimizer state differs between rank %d and rank %d: every "
		"rank must initialise it with the same values and seeds or load the same file, and "
		"change it alike",
		param, srt_comm_world_rank(engine->comm, first),
		srt_comm_world_rank(engine->comm, rank));
}

/* Elements of the arena: all values, states of the trainable ones. */
static const size_t *arena_nelem(const srt_engine_t *engine, int arena)
{
	return arena == SRT_ROLE_MASTER ? engine->memory.layout.all :
					  engine->memory.layout.trainable;
}

static srt_status_t digest_terms(srt_engine_t *engine, const srt_terms_t *terms, int nterms,
				 srt_stream_t *stream, digest_t *digest)
{
	const srt_view_t out =
		srt_view(engine->storage.staging, engine->memory.staging.norm, SRT_F32);
	srt_reproducible_sum_t sum;
	int64_t nelem = 0;
	float max;

	for (int i = 0; i < nterms; i++)
		nelem += terms[i].nelem;
	if (nelem == 0)
		return SRT_OK;
	SRT_TRY(srt_reproducible_sum_local(&engine->scalars.norm_sum, stream, &sum));
	SRT_TRY(srt_reproducible_sum_max(&sum, terms, nterms, stream));
	SRT_TRY(srt_reproducible_sum_total(&sum, terms, nterms, nelem, 1, 1, out, stream));
	SRT_TRY(srt_buffer_copy_to_host(&max, sum.max.buffer, sum.max.offset, sizeof(max), stream));
	SRT_TRY(srt_buffer_copy_to_host(digest->bins, sum.local_bins.buffer, sum.local_bins.offset,
					sizeof(digest->bins), stream));
	digest->max = (double)max;
	if (!isfinite(max)) /* the bits of a NaN depend on the device, those of the bins on it */
		*digest = (digest_t){ .max = -1.0, .bytes = digest->bytes };
	return SRT_OK;
}

/* Tensors of SRT_U8, and states in 8 bits. */
static srt_status_t digest_bytes(srt_view_t view, size_t nbytes, srt_stream_t *stream,
				 digest_t *digest)
{
	srt_status_t status = SRT_OK;
	void *piece;

	if (nbytes == 0)
		return SRT_OK;
	piece = srt_calloc(1, PIECE_NBYTES, "bytes to compare replicas");
	if (piece == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t at = 0, n; at < nbytes && status == SRT_OK; at += n) {
		n = nbytes - at < PIECE_NBYTES ? nbytes - at : PIECE_NBYTES;
		status = srt_buffer_copy_to_host(piece, view.buffer, view.offset + at, n, stream);
		digest->bytes = srt_hash64(digest->bytes, piece, n);
	}
	free(piece);
	return status;
}

static bool is_in_8_bits(const srt_engine_t *engine, int arena)
{
	return arena >= SRT_ROLE_STATE && srt_optim_in_8_bits(engine->optim);
}

static srt_status_t digest_arena(srt_engine_t *engine, int arena, srt_stream_t *stream,
				 digest_t *digest)
{
	const srt_layout_t *layout = &engine->memory.layout;
	srt_terms_t terms[SRT_NPARTS];
	int n = 0;

	if (is_in_8_bits(engine, arena))
		return digest_bytes(srt_view(engine->storage.arena[arena], 0, SRT_U8),
				    layout->nbytes[arena], stream, digest);
	for (int part = 0; part < SRT_NPARTS; part++) {
		const srt_view_t view =
			srt_view(engine->storage.arena[arena], layout->offset[arena][part],
				 srt_part_stored(part));
		const size_t nelem = arena_nelem(engine, arena)[part];

		if (part == SRT_PART_BYTES)
			SRT_TRY(digest_bytes(view, nelem, stream, digest));
		else if (nelem > 0)
			terms[n++] = (srt_terms_t){ view, (int64_t)nelem };
	}
	return digest_terms(engine, terms, n, stream, digest);
}

static srt_status_t digest_param(srt_engine_t *engine, const srt_param_t *param, int arena,
				 srt_stream_t *stream, digest_t *digest)
{
	const srt_terms_t term = { srt_param_shard_view(param, arena), param->shard.nelem };

	if (arena != SRT_ROLE_MASTER && param->frozen)
		return SRT_OK;
	if (param->dtype == SRT_U8)
		return digest_bytes(term.x, param->shard.nbytes, stream, digest);
	if (is_in_8_bits(engine, arena))
		return digest_bytes(term.x, srt_state8_nbytes(param, arena - SRT_ROLE_STATE),
				    stream, digest);
	return digest_terms(engine, &term, 1, stream, digest);
}

/* Two ranks with copies of a shard; equal ones: none. */
typedef struct pair {
	int first, second;
} pair_t;

/* The first two ranks with copies of a shard whose digests differ. Collective. */
static srt_status_t compare_digests(srt_engine_t *engine, bool cells, const digest_t *mine,
				    pair_t *differ)
{
	digest_t *all = srt_comm_calloc(engine->comm, (size_t)engine->world, sizeof(*all),
					"comparing the replicas");
	srt_status_t status = all != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	*differ = (pair_t){ 0 };
	if (status == SRT_OK)
		status = srt_comm_oob_allgather_for(engine->comm, "comparing the replicas", mine,
						    sizeof(*mine), all);
	for (int r = 1; status == SRT_OK && r < engine->world; r++) {
		const int first = srt_shard_first_copy(engine, cells, r);

		if (memcmp(&all[r], &all[first], sizeof(*all)) != 0) {
			*differ = (pair_t){ first, r };
			break;
		}
	}
	free(all);
	return status;
}

static srt_status_t compare_params(srt_engine_t *engine, int arena, srt_stream_t *stream)
{
	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *param = engine->params[i];
		digest_t digest = { 0 };
		pair_t differ;

		SRT_TRY(digest_param(engine, param, arena, stream, &digest));
		SRT_TRY(compare_digests(engine, param->is_cut, &digest, &differ));
		if (differ.first != differ.second)
			return srt_replicas_fail(engine, param->name, differ.first, differ.second);
	}
	return SRT_OK;
}

/* One arena. If it differs, tensor by tensor for the message; with cells always, as some tensors
 * have more copies than others. */
static srt_status_t compare_arena(srt_engine_t *engine, int arena, srt_stream_t *stream)
{
	digest_t digest = { 0 };
	pair_t differ;

	if (srt_cell_count(engine) > 1)
		return compare_params(engine, arena, stream);
	SRT_TRY(digest_arena(engine, arena, stream, &digest));
	SRT_TRY(compare_digests(engine, false, &digest, &differ));
	if (differ.first == differ.second)
		return SRT_OK;
	SRT_TRY(compare_params(engine, arena, stream));
	return srt_fail(SRT_ERR_MISMATCH,
			"the values or optimizer states of rank %d and rank %d differ between "
			"their tensors, where nothing may write",
			differ.first, differ.second);
}

static srt_status_t compare(srt_engine_t *engine, srt_stream_t *stream)
{
	srt_stream_t *home;

	if ((srt_shard_replicas(engine, engine->world) == 1 && srt_cell_count(engine) == 1) ||
	    engine->nparams == 0)
		return SRT_OK;
	/* Edge: the last change of values, perhaps on another stream -> this read of them. */
	SRT_TRY(srt_stream_wait_event(stream, engine->order.stepped));
	SRT_TRY(srt_home_enter(engine, stream, &home));
	SRT_TRY(compare_arena(engine, SRT_ROLE_MASTER, home));
	for (int k = 0; k < engine->memory.nstates + srt_optim_in_8_bits(engine->optim); k++)
		SRT_TRY(compare_arena(engine, SRT_ROLE_STATE + k, home));
	return srt_home_leave(engine, stream);
}

srt_status_t srt_replicas_compare(srt_engine_t *engine, srt_stream_t *stream)
{
	return srt_comm_share_failure(engine->comm, "comparing the replicas", stream,
				      compare(engine, stream));
}
