/* SPDX-License-Identifier: BSD-3-Clause */
/* The invariants that tests check between all calls of a step. */
#include "runtime/engine/checks/checks.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/shard.h"

#define REQUIRE(cond, ...)                                                                         \
	do {                                                                                       \
		if (!(cond))                                                                       \
			return srt_fail(SRT_ERR_STATE, "engine invariant broken: " __VA_ARGS__);   \
	} while (0)

/* Shards of all ranks cover the cell once, in order of rank. */
static srt_status_t check_ranges(const srt_param_t *param)
{
	const srt_engine_t *engine = param->unit->engine;
	int nshards = srt_shard_count(engine, engine->world);
	int64_t next = 0;

	for (int r = 0; r < nshards; r++) {
		int64_t first;
		const int64_t nelem =
			srt_shard_range(param, srt_shard_rank(engine, engine->rank, r),
					engine->world, &first);

		REQUIRE(first == next && nelem >= 0,
			"elements of '%s' on rank %d begin at %lld, not %lld", param->name, r,
			(long long)first, (long long)next);
		next = first + nelem;
	}
	REQUIRE(next == param->nelem, "the shards of '%s' cover %lld of %lld elements", param->name,
		(long long)next, (long long)param->nelem);
	return SRT_OK;
}

static srt_status_t check_view(const srt_param_t *param, srt_view_t view, size_t nbytes,
			       const char *what)
{
	/* Tensors of flat units follow each other without gaps in arenas. */
	const size_t align =
		param->unit->flat != SRT_FLAT_NO ? srt_dtype_size(view.dtype) : SRT_TENSOR_ALIGN;

	REQUIRE(view.buffer != NULL && view.offset % align == 0 &&
			view.offset <= srt_buffer_nbytes(view.buffer) &&
			nbytes <= srt_buffer_nbytes(view.buffer) - view.offset,
		"the %s of '%s' (%zu bytes at %zu) is outside its buffer or not aligned", what,
		param->name, nbytes, view.offset);
	return SRT_OK;
}

static srt_status_t check_param(const srt_param_t *param)
{
	const srt_unit_t *unit = param->unit;
	const srt_layout_t *layout = &unit->engine->memory.layout;
	size_t shard = param->shard.nbytes;
	size_t compute_nbytes = (size_t)param->nelem * srt_dtype_size(unit->types.compute);

	SRT_TRY(check_ranges(param));
	SRT_TRY(check_view(param, param->views.local, shard, "shard"));
	SRT_TRY(check_view(param, param->views.unsharded, compute_nbytes, "unsharded tensor"));
	REQUIRE(!param->frozen || (!param->grad.written && !param->grad.used),
		"frozen '%s' has a gradient", param->name);
	if (param->frozen)
		return SRT_OK;
	REQUIRE(param->shard.offset + (size_t)param->shard.nelem <=
			layout->trainable[srt_shard_part(unit)],
		"the shard of '%s' is outside the trainable part of its arenas", param->name);
	SRT_TRY(check_view(param, param->views.local_grad, shard, "gradient shard"));
	SRT_TRY(check_view(param, param->views.summed_grad,
			   (size_t)param->nelem * srt_dtype_size(unit->types.reduce),
			   "gradient to be summed"));
	return check_view(param, param->views.unsharded_grad, compute_nbytes, "unsharded gradient");
}

static srt_status_t check_unit(const srt_unit_t *unit)
{
	const srt_slot_t *slot = unit->slot[SRT_SLOT_PARAMS];

	REQUIRE(unit->parent == NULL || !unit->pass.in_forward || unit->parent->pass.in_forward,
		"unit '%s' is in its forward pass, its parent is not", unit->name);
	REQUIRE(unit->parent == NULL || !unit->pass.in_backward || unit->parent->pass.in_backward,
		"unit '%s' is in its backward pass, its parent is not", unit->name);
	REQUIRE(unit->pass.uses >= 0 && unit->pass.recompute >= 0, "unit '%s' has negative counts",
		unit->name);
	if (slot == NULL)
		return SRT_OK;
	REQUIRE(slot->nbytes >= unit->unsharded_nelem * srt_dtype_size(unit->types.compute),
		"the slot of unit '%s' is too small", unit->name);
	REQUIRE(unit->unshard.is_gathered == (slot->holder == unit) || !unit->unshard.is_gathered,
		"unit '%s' counts as gathered, but its slot holds another one", unit->name);
	REQUIRE(!unit->unshard.has_part || unit->unshard.regather != NULL,
		"unit '%s' has a part for a group of ranks, and no group", unit->name);
	REQUIRE(!srt_unit_in_use(unit) || unit->unshard.is_gathered,
		"unit '%s' is in use and not gathered", unit->name);
	return SRT_OK;
}

srt_status_t srt_engine_check(const srt_engine_t *engine)
{
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_check"));
	for (size_t i = 0; i < engine->nparams; i++) {
		REQUIRE(engine->params[i]->index == i, "parameter %zu has index %zu", i,
			engine->params[i]->index);
		SRT_TRY(check_param(engine->params[i]));
	}
	for (size_t u = 0; u < engine->nunits; u++)
		SRT_TRY(check_unit(engine->units[u]));
	REQUIRE(engine->step.microbatch < engine->step.nmicrobatches &&
			engine->step.nmicrobatches <= engine->options.microbatches,
		"micro-batch %d of %d, planned for %d", engine->step.microbatch,
		engine->step.nmicrobatches, engine->options.microbatches);
	REQUIRE(engine->step.any_backward || !engine->step.backward_begun,
		"backward begun and not recorded");
	return SRT_OK;
}
