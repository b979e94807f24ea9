/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SHARDRT_AUDIT=1: each reduction of gradients is checked by random projections (projection.h).
 *
 *     record   each rank projects the gradients that the program wrote, block by block of each
 *              owner's shard; those of several micro-batches are added
 *     begin    what the shard has before, if the reduction adds to it
 *     end      the ranks exchange their projections; each owner projects its shard and compares;
 *              the ranks exchange what they found, and return the same error
 *
 * So all between the program's gradients and the shard is checked: conversions, zeroed gradients,
 * additions of micro-batches, the sum over ranks and its divisions, with offload.grads the copy to
 * the host. Shards with replicas have two sums: that within a replica is checked first, and its
 * result is what each replica contributes to the second. Replicas must have the same bits.
 *
 * Projections are computed on the host from copies, and exchanged by the control channel: not by
 * the device or the transport that they check. Nothing is written to tensors.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fpenv.h"
#include "collectives/comm.h"
#include "runtime/engine/checks/audit.h"
#include "runtime/engine/layout/shard.h"
#include "base/projection.h"

static const char doing[] = "auditing the gradients";

/* The audit of a unit. Blocks are ordered by owner, parameter, element; frozen parameters have
 * none. */
struct srt_audit {
	size_t nblocks;          /* of all owners */
	size_t first, nowned;    /* those of this rank */
	srt_projection_t *given; /* [nblocks] this rank's gradients ... */
	int nmicrobatches;       /* ... of as many micro-batches */
	bool adds;               /* the sum is added to what is there */
	/* [nowned] what the sum is added to; its parts; the result; and the first of two results,
	 * which is this rank's part of the second sum */
	srt_projection_t *old, *parts, *reduced, *partial;
	uint64_t *hashes; /* [nparams] of the result */
};

/* What a rank found. Exchanged as plain bytes. */
typedef struct finding {
	int32_t fault; /* srt_projection_fault_t */
	uint32_t param;
	int64_t first, last; /* elements of its cell */
	double error, bound;
} finding_t;

static int64_t count_blocks(int64_t nelem)
{
	return (nelem + SRT_PROJECTION_BLOCK - 1) / SRT_PROJECTION_BLOCK;
}

static size_t count_owned(const srt_unit_t *unit, int rank)
{
	size_t n = 0;
	int64_t first;

	for (size_t i = 0; i < unit->nparams; i++) {
		if (!unit->params[i]->frozen)
			n += (size_t)count_blocks(srt_shard_range(unit->params[i], rank,
								  unit->engine->world, &first));
	}
	return n;
}

static srt_status_t create_audit(srt_unit_t *unit)
{
	const srt_engine_t *engine = unit->engine;
	srt_audit_t *audit = srt_calloc(1, sizeof(*audit), "an audit of gradients");
	size_t n;

	if (audit == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	unit->audit = audit;
	for (int s = 0; s < srt_shard_count(engine, engine->world); s++) {
		if (s == srt_shard_index(engine, engine->rank))
			audit->first = audit->nblocks;
		audit->nblocks += count_owned(unit, srt_shard_rank(engine, engine->rank, s));
	}
	n = audit->nowned = count_owned(unit, engine->rank);
	audit->given = srt_calloc(audit->nblocks + 4 * n + 1, sizeof(srt_projection_t),
				  "projections of gradients");
	audit->hashes = srt_calloc(unit->nparams + 1, sizeof(uint64_t), "hashes of gradients");
	if (audit->given == NULL || audit->hashes == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	audit->old = audit->given + audit->nblocks;
	audit->parts = audit->old + n;
	audit->reduced = audit->parts + n;
	audit->partial = audit->reduced + n;
	return SRT_OK;
}

srt_status_t srt_audit_create(srt_engine_t *engine)
{
	for (size_t u = 0; engine->checks.audits && u < engine->nunits; u++) {
		if (engine->units[u]->trainable_nelem > 0)
			SRT_TRY(create_audit(engine->units[u]));
	}
	return SRT_OK;
}

void srt_audit_free(srt_audit_t *audit)
{
	if (audit == NULL)
		return;
	free(audit->given);
	free(audit->hashes);
	free(audit);
}

void srt_audit_drop(srt_unit_t *unit)
{
	if (unit->audit != NULL)
		unit->audit->nmicrobatches = 0;
}

/* ---- projections of tensors -------------------------------------------------------------- */

/* Adds elements [first, first + nelem) of a parameter, of which `view` has the first one. */
static srt_status_t project(const srt_param_t *param, srt_view_t view, int64_t first, int64_t nelem,
			    srt_stream_t *stream, srt_projection_t *blocks, uint64_t *hash)
{
	const uint64_t key = srt_projection_key(param->unit->engine->step.nsteps, param->index);
	const size_t size = srt_dtype_size(view.dtype), nbytes = (size_t)nelem * size;
	unsigned char *host;
	srt_status_t status;
	srt_fpenv_t env;

	if (nelem == 0)
		return SRT_OK;
	host = srt_calloc(1, nbytes, "a gradient to be audited");
	if (host == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_buffer_copy_to_host(host, view.buffer, view.offset, nbytes, stream);
	if (hash != NULL)
		*hash = 0;
	env = srt_fpenv_enter();
	for (int64_t at = 0; at < nelem && status == SRT_OK; at += SRT_PROJECTION_BLOCK) {
		const int64_t left = nelem - at;
		const int64_t n = left < SRT_PROJECTION_BLOCK ? left : SRT_PROJECTION_BLOCK;
		float x[SRT_PROJECTION_BLOCK];

		srt_projection_widen(x, host + (size_t)at * size, view.dtype, n);
		srt_projection_add_block(blocks++, key, first + at, x, n);
		if (hash != NULL)
			*hash = srt_hash64(*hash, x, (size_t)n * sizeof(*x));
	}
	srt_fpenv_leave(env);
	free(host);
	return status;
}

/* This rank's shard of a sum. */
static srt_view_t view_of(const srt_param_t *param, srt_audit_sum_t sum)
{
	const srt_unit_t *unit = param->unit;
	const srt_view_t sums = unit->grads.reduced_sums.buffer != NULL ? unit->grads.reduced_sums :
									  unit->grads.partial_sums;
	srt_view_t view = unit->grads.partial_sums;

	if (sum == SRT_AUDIT_REDUCED)
		return unit->engine->options.offload.grads ? param->views.local_grad :
							     param->views.device_grad;
	view.offset += (param->views.reduced_grad.offset - sums.offset) /
		       srt_dtype_size(sums.dtype) * srt_dtype_size(view.dtype);
	return view;
}

/* This rank's shards of a sum. */
static srt_status_t project_shards(const srt_unit_t *unit, srt_audit_sum_t sum,
				   srt_projection_t *blocks, uint64_t *hashes)
{
	const srt_engine_t *engine = unit->engine;
	const bool is_home = sum == SRT_AUDIT_REDUCED && engine->options.offload.grads;

	memset(blocks, 0, unit->audit->nowned * sizeof(*blocks));
	for (size_t i = 0; i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];

		if (param->frozen)
			continue;
		SRT_TRY(project(param, view_of(param, sum), param->shard.first, param->shard.nelem,
				is_home ? engine->home.stream : engine->comm_stream, blocks,
				hashes != NULL ? &hashes[i] : NULL));
		blocks += count_blocks(param->shard.nelem);
	}
	return SRT_OK;
}

/* The gradients that the program wrote in this micro-batch. */
static srt_status_t project_given(const srt_unit_t *unit, srt_stream_t *stream)
{
	const srt_engine_t *engine = unit->engine;
	srt_audit_t *audit = unit->audit;
	srt_projection_t *blocks = audit->given;

	if (audit->nmicrobatches++ == 0)
		memset(blocks, 0, audit->nblocks * sizeof(*blocks));
	for (int s = 0; s < srt_shard_count(engine, engine->world); s++) {
		for (size_t i = 0; i < unit->nparams; i++) {
			const srt_param_t *param = unit->params[i];
			srt_view_t view = param->views.unsharded_grad;
			int64_t first, nelem;

			if (param->frozen)
				continue;
			nelem = srt_shard_range(param, srt_shard_rank(engine, engine->rank, s),
						engine->world, &first);
			view.offset += (size_t)first * srt_dtype_size(view.dtype);
			if (param->grad.written)
				SRT_TRY(project(param, view, first, nelem, stream, blocks, NULL));
			blocks += count_blocks(nelem);
		}
	}
	return SRT_OK;
}

/* The other ranks do not wait for a rank that has no memory for its projections, or whose stream
 * has failed. */
static srt_status_t share(const srt_unit_t *unit, srt_status_t status)
{
	if (status == SRT_OK)
		return SRT_OK;
	return srt_comm_fail_alone(unit->engine->comm, doing, status, srt_error_last());
}

srt_status_t srt_audit_record(srt_unit_t *unit, srt_stream_t *stream)
{
	return unit->audit != NULL ? share(unit, project_given(unit, stream)) : SRT_OK;
}

srt_status_t srt_audit_begin(srt_unit_t *unit, srt_audit_sum_t sum)
{
	srt_audit_t *audit = unit->audit;

	if (audit == NULL)
		return SRT_OK;
	audit->adds = sum == SRT_AUDIT_PARTIAL ? unit->grads.has_partial : unit->grads.has_reduced;
	memset(audit->old, 0, audit->nowned * sizeof(*audit->old));
	return audit->adds ? share(unit, project_shards(unit, sum, audit->old, NULL)) : SRT_OK;
}

/* ---- comparison -------------------------------------------------------------------------- */

static bool divides(float divisor)
{
	return divisor != 1.0f;
}

/* The roundings between the parts and the result. n: ranks whose parts are added. */
static srt_rounding_t count_roundings(const srt_unit_t *unit, srt_audit_sum_t sum, bool is_second,
				      int n)
{
	const srt_unit_types_t *t = &unit->types;
	const int nmicro = unit->audit->nmicrobatches, stores = unit->audit->adds ? 2 : 1;
	srt_rounding_t rounding = srt_rounding_none();

	if (!is_second && unit->flow.sums_apart) /* converted, added */
		srt_rounding_add(&rounding, t->reduce, nmicro, n * nmicro);
	if (!is_second && divides(unit->flow.predivisor))
		srt_rounding_add(&rounding, t->reduce, 1, n);
	srt_rounding_add(&rounding, SRT_F32, n - 1, n); /* in any order */
	if (sum == SRT_AUDIT_PARTIAL) {
		srt_rounding_add(&rounding, unit->grads.partial_sums.dtype, stores, 1);
		return rounding;
	}
	srt_rounding_add(&rounding, t->reduce, 1 + divides(unit->flow.divisor), 1);
	srt_rounding_add(&rounding, t->stored, stores, 1);
	return rounding;
}

/* The projections of all ranks -> those of the sums that this rank owns. Collective over `comm`
 * (NULL: one rank). first: this rank's shard in what each rank has. */
static srt_status_t add_parts(const srt_unit_t *unit, srt_comm_t *comm,
			      const srt_projection_t *mine, size_t nblocks, size_t first)
{
	const size_t nranks = comm != NULL ? (size_t)srt_comm_size(comm) : 1;
	srt_audit_t *audit = unit->audit;
	srt_projection_t *all = srt_comm_calloc(unit->engine->comm, nranks * nblocks + 1,
						sizeof(*all), "projections of gradients");
	srt_status_t status = SRT_OK;

	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (comm != NULL)
		status =
			srt_comm_oob_allgather_for(comm, doing, mine, nblocks * sizeof(*mine), all);
	else
		memcpy(all, mine, nblocks * sizeof(*mine));
	memset(audit->parts, 0, audit->nowned * sizeof(*audit->parts));
	for (size_t r = 0; r < nranks && status == SRT_OK; r++) {
		for (size_t b = 0; b < audit->nowned; b++)
			srt_projection_add(&audit->parts[b], &all[r * nblocks + first + b]);
	}
	free(all);
	return status;
}

/* The first block of this rank's shards that is wrong. */
static void find_fault(const srt_unit_t *unit, const srt_projection_t *result,
		       const float divisors[2], const srt_rounding_t *rounding, finding_t *finding)
{
	const srt_audit_t *audit = unit->audit;
	size_t b = 0;

	*finding = (finding_t){ 0 };
	for (size_t i = 0; i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];

		for (int64_t at = 0; !param->frozen && at < param->shard.nelem;
		     at += SRT_PROJECTION_BLOCK, b++) {
			const int64_t left = param->shard.nelem - at;
			const int64_t n = left < SRT_PROJECTION_BLOCK ? left : SRT_PROJECTION_BLOCK;

			finding->fault =
				(int32_t)srt_projection_compare(&result[b], &audit->parts[b],
								&audit->old[b], divisors, rounding,
								n, &finding->error,
								&finding->bound);
			finding->param = (uint32_t)i;
			finding->first = param->shard.first + at;
			finding->last = finding->first + n - 1;
			if (finding->fault != SRT_PROJECTION_OK)
				return;
		}
	}
}

static void list_ranks(const srt_engine_t *engine, const finding_t *all, char *text, size_t nbytes)
{
	size_t used = 0;

	for (int r = 0; r < engine->world; r++) {
		if (all[r].fault == SRT_PROJECTION_OK)
			continue;
		if (used + sizeof(", 4294967295, ...") > nbytes) {
			snprintf(text + used, nbytes - used, ", ...");
			return;
		}
		used += (size_t)snprintf(text + used, nbytes - used, "%s%d", used > 0 ? ", " : "",
					 srt_comm_world_rank(engine->comm, r));
	}
}

static srt_status_t fail(const srt_unit_t *unit, const char *param, const char *what)
{
	const srt_engine_t *engine = unit->engine;

	return srt_fail(
		SRT_ERR_DEVICE,
		"SHARDRT_AUDIT: the gradient of parameter '%s' of unit '%s' in step %llu, "
		"micro-batch %d of %d, %s. A device, its memory or the transport between the "
		"ranks is faulty: compare with another transport (SHARDRT_COLLECTIVES=staged "
		"or shm) and with another device (SHARDRT_DEVICE, SHARDRT_BACKEND)",
		param, unit->name, (unsigned long long)engine->step.nsteps + 1,
		engine->step.microbatch + 1, engine->step.nmicrobatches, what);
}

static srt_status_t fail_sum(const srt_unit_t *unit, srt_audit_sum_t sum, const finding_t *all)
{
	const finding_t *f = all;
	char ranks[64] = "", why[192] = "", what[384];

	while (f->fault == SRT_PROJECTION_OK)
		f++;
	list_ranks(unit->engine, all, ranks, sizeof(ranks));
	if (f->fault == SRT_PROJECTION_WRONG)
		snprintf(why, sizeof(why),
			 "its random projection is off by %.3g, of which rounding explains %.3g",
			 f->error, f->bound);
	else if (f->fault == SRT_PROJECTION_LOST)
		snprintf(why, sizeof(why), "it lacks an infinity or NaN that a rank contributed");
	else
		snprintf(why, sizeof(why),
			 "it has an infinity or NaN, but what the ranks contributed is finite and "
			 "too small to overflow");
	snprintf(what, sizeof(what), "has a wrong sum %s on rank %s, in elements %lld to %lld: %s",
		 sum == SRT_AUDIT_PARTIAL ? "over the ranks of a replica" : "over the ranks", ranks,
		 (long long)f->first, (long long)f->last, why);
	return fail(unit, unit->params[f->param]->name, what);
}

/* All ranks know what each of them found. */
static srt_status_t compare_findings(const srt_unit_t *unit, srt_audit_sum_t sum,
				     const finding_t *mine)
{
	const srt_engine_t *engine = unit->engine;
	finding_t *all = srt_comm_calloc(engine->comm, (size_t)engine->world, sizeof(*all), doing);
	srt_status_t status;

	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(engine->comm, doing, mine, sizeof(*mine), all);
	for (int r = 0; r < engine->world && status == SRT_OK; r++) {
		if (all[r].fault != SRT_PROJECTION_OK)
			status = fail_sum(unit, sum, all);
	}
	free(all);
	return status;
}

/* Replicas have the same bits. */
static srt_status_t compare_replicas(const srt_unit_t *unit)
{
	const srt_engine_t *engine = unit->engine;
	const size_t n = unit->nparams;
	uint64_t *all;
	srt_status_t status;

	all = srt_comm_calloc(engine->comm, (size_t)engine->world * n, sizeof(*all), doing);
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(engine->comm, doing, unit->audit->hashes,
					    n * sizeof(*all), all);
	for (size_t k = 0; k < (size_t)engine->world * n && status == SRT_OK; k++) {
		const int rank = (int)(k / n), first = srt_shard_first_copy(engine, true, rank);
		char what[128];

		if (all[k] == all[(size_t)first * n + k % n])
			continue;
		snprintf(what, sizeof(what), "differs between rank %d and rank %d",
			 srt_comm_world_rank(engine->comm, first),
			 srt_comm_world_rank(engine->comm, rank));
		status = fail(unit, unit->params[k % n]->name, what);
	}
	free(all);
	return status;
}

srt_status_t srt_audit_end(srt_unit_t *unit, srt_audit_sum_t sum)
{
	const srt_engine_t *engine = unit->engine;
	const bool is_second = sum == SRT_AUDIT_REDUCED && unit->grads.partial_sums.buffer != NULL;
	const bool has_replicas =
		sum == SRT_AUDIT_REDUCED && srt_shard_replicas(engine, engine->world) > 1;
	const bool has_shard_comm = !is_second && unit->flow.is_sharded;
	srt_comm_t *comm = has_shard_comm ? engine->comms.shard : engine->comms.replica;
	const float divisors[2] = { is_second ? 1.0f : unit->flow.predivisor,
				    sum == SRT_AUDIT_PARTIAL ? 1.0f : unit->flow.divisor };
	srt_audit_t *audit = unit->audit;
	srt_projection_t *result;
	srt_rounding_t rounding;
	finding_t finding;

	if (audit == NULL)
		return SRT_OK;
	result = sum == SRT_AUDIT_PARTIAL ? audit->partial : audit->reduced;
	rounding = count_roundings(unit, sum, is_second, comm != NULL ? srt_comm_size(comm) : 1);
	SRT_TRY(share(unit,
		      project_shards(unit, sum, result, has_replicas ? audit->hashes : NULL)));
	if (is_second)
		SRT_TRY(add_parts(unit, comm, audit->partial, audit->nowned, 0));
	else
		SRT_TRY(add_parts(unit, comm, audit->given, audit->nblocks, audit->first));
	audit->nmicrobatches = 0;
	find_fault(unit, result, divisors, &rounding, &finding);
	SRT_TRY(compare_findings(unit, sum, &finding));
	return has_replicas ? compare_replicas(unit) : SRT_OK;
}
