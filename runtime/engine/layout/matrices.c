/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The matrices of Muon: which rank iterates each, and where their parts are.
 *
 * A matrix is iterated whole, by its owner, which is any of the job's ranks. The matrices are dealt
 * out by cost, the most expensive first, each to the rank that has least so far. Each rank has
 * memory for the updates of its shards, in bf16, and for those of the whole matrices that it owns;
 * one rank alone owns what it has. All is a pure function of the declaration, so each rank knows
 * where every other one has what.
 */
#include <stdlib.h>

#include "collectives/comm.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

bool srt_param_is_matrix(const srt_param_t *param)
{
	return !param->frozen &&
	       param->unit->engine->optim->groups[param->group].kind == SRT_OPTIM_MUON;
}

static srt_status_t check_matrix(const srt_param_t *param)
{
	const srt_engine_t *engine = param->unit->engine;

	if (param->ndim != 2)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' is in group %zu, of Muon, and has %d dimensions, "
				"must have 2: put it in a group of AdamW (srt_param_options_t)",
				param->name, param->group, param->ndim);
	if (param->unit->types.stored != SRT_F32)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"parameter '%s' is in group %zu, of Muon, and is stored in %s: "
				"Muon steps f32, from which a precision policy makes copies of 16 "
				"bits to compute with",
				param->name, param->group,
				srt_dtype_name(param->unit->types.stored));
	if (srt_cell_count(engine) > 1)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"parameter '%s' is in group %zu, of Muon, which is not for engines "
				"with tensor-parallel ranks: use AdamW, or a mesh without '%s'",
				param->name, param->group,
				engine->comms.mesh->names[engine->comms.tensor_dim]);
	return SRT_OK;
}

/* ---- owners ------------------------------------------------------------------------------ */

typedef struct cost {
	double flops; /* of an iteration */
	size_t index; /* of the parameter */
} cost_t;

static int compare_costs(const void *a, const void *b)
{
	const cost_t *x = a, *y = b;

	if (x->flops != y->flops)
		return x->flops > y->flops ? -1 : 1;
	return x->index < y->index ? -1 : 1;
}

static double count_flops(const srt_param_t *param)
{
	const double a = (double)param->shape[0], b = (double)param->shape[1];
	const double r = a < b ? a : b, c = a < b ? b : a;

	return r * r * (2 * c + r);
}

/* The owner of each matrix, by parameter index; -1 of other parameters. owners: to be freed. */
static srt_status_t deal_matrices(const srt_engine_t *engine, int world, int **owners)
{
	static const char what[] = "owners of matrices";
	cost_t *costs = srt_calloc(engine->nparams, sizeof(*costs), what);
	double *sums = srt_calloc((size_t)world, sizeof(*sums), what);
	int *owner = srt_calloc(engine->nparams, sizeof(*owner), what);
	size_t n = 0;

	for (size_t i = 0; costs != NULL && sums != NULL && owner != NULL && i < engine->nparams;
	     i++) {
		owner[i] = -1;
		if (srt_param_is_matrix(engine->params[i]))
			costs[n++] = (cost_t){ count_flops(engine->params[i]), i };
	}
	if (n > 0)
		qsort(costs, n, sizeof(*costs), compare_costs);
	for (size_t i = 0; i < n; i++) {
		int least = 0;

		for (int r = 1; r < world; r++)
			least = sums[r] < sums[least] ? r : least;
		sums[least] += costs[i].flops;
		owner[costs[i].index] = least;
	}
	free(costs);
	free(sums);
	*owners = owner;
	return costs != NULL && sums != NULL && owner != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

/* ---- places ------------------------------------------------------------------------------ */

/* Aligned, elements of SRT_BF16. */
static size_t place(size_t *at, size_t nelem)
{
	const size_t offset = *at;

	*at = srt_align_up(offset + nelem, SRT_TENSOR_ALIGN / sizeof(uint16_t));
	return offset;
}

size_t srt_matrices_updates(const srt_engine_t *engine, int rank, int world, size_t *offsets)
{
	size_t at = 0;

	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *param = engine->params[i];
		int64_t first;
		size_t offset;

		if (!srt_param_is_matrix(param))
			continue;
		offset = place(&at, (size_t)srt_shard_range(param, rank, world, &first));
		if (offsets != NULL)
			offsets[i] = offset;
	}
	return at * sizeof(uint16_t);
}

/* Bytes of the whole matrices that a rank owns; offsets as above. */
static size_t place_owned(const srt_engine_t *engine, const int *owner, int rank, size_t *offsets)
{
	size_t at = 0;

	for (size_t i = 0; i < engine->nparams; i++) {
		size_t offset;

		if (owner[i] != rank)
			continue;
		offset = place(&at, (size_t)engine->params[i]->nelem);
		if (offsets != NULL)
			offsets[i] = offset;
	}
	return at * sizeof(uint16_t);
}

/* Bytes of updates and of whole matrices of the other ranks whose memory this one can map. */
static size_t count_peers(const srt_engine_t *engine, const int *owner, int rank, int world)
{
	size_t nbytes = 0;

	for (int r = 0; r < world; r++) {
		if (r == rank || (world == srt_comm_size(engine->comm) &&
				  !srt_comm_same_node(engine->comm, rank, r)))
			continue;
		nbytes += srt_matrices_updates(engine, r, world, NULL);
		nbytes += place_owned(engine, owner, r, NULL);
	}
	return nbytes;
}

srt_status_t srt_matrices_plan(const srt_engine_t *engine, int rank, int world,
			       srt_matrices_plan_t *plan)
{
	srt_status_t status = SRT_OK;
	int *owner;

	*plan = (srt_matrices_plan_t){ 0 };
	if (!srt_optim_has_muon(engine->optim))
		return SRT_OK;
	for (size_t i = 0; i < engine->nparams; i++) {
		if (srt_param_is_matrix(engine->params[i]))
			SRT_TRY(check_matrix(engine->params[i]));
	}
	SRT_TRY(deal_matrices(engine, world, &owner));
	plan->updates = srt_matrices_updates(engine, rank, world, NULL);
	for (size_t i = 0; i < engine->nparams && status == SRT_OK; i++) {
		const int64_t *shape = engine->params[i]->shape;
		size_t work;

		if (owner[i] != rank)
			continue;
		work = srt_muon_work_nbytes(shape[0], shape[1]);
		plan->work = work > plan->work ? work : plan->work;
		status = srt_muon_scratch(engine->device, shape[0], shape[1], &plan->scratch);
	}
	if (world > 1) {
		plan->owned = place_owned(engine, owner, rank, NULL);
		plan->peers = count_peers(engine, owner, rank, world);
	}
	free(owner);
	return status;
}

srt_status_t srt_matrices_place(srt_engine_t *engine)
{
	static const char what[] = "places of matrices";
	size_t *offsets = srt_calloc(engine->nparams, sizeof(*offsets), what);
	size_t *owned = srt_calloc(engine->nparams, sizeof(*owned), what);
	int *owner = NULL;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (offsets != NULL && owned != NULL)
		status = deal_matrices(engine, engine->world, &owner);
	if (status == SRT_OK) {
		srt_matrices_updates(engine, engine->rank, engine->world, offsets);
		for (int r = 0; r < engine->world; r++)
			place_owned(engine, owner, r, owned);
	}
	for (size_t i = 0; status == SRT_OK && i < engine->nparams; i++)
		engine->params[i]->matrix = (srt_param_matrix_t){ .owner = owner[i],
								  .update = offsets[i],
								  .owned = owned[i] };
	free(offsets);
	free(owned);
	free(owner);
	return status;
}
