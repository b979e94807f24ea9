/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the engine: units, parameters, shards, plan. For people and bug reports. */
#include <shardrt/engine.h>

#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

static void print_param(const srt_param_t *param, FILE *out)
{
	srt_part_t part;

	if (srt_param_part(param, param->unit->engine->rank, &part) != SRT_OK)
		return;
	fprintf(out, "%*s  %s %s (", 2 * param->unit->depth, "", param->name,
		srt_dtype_name(param->dtype));
	for (int d = 0; d < param->ndim; d++)
		fprintf(out, "%s%lld", d > 0 ? ", " : "", (long long)param->shape[d]);
	fprintf(out, part.is_flat ? ") elements %lld..%lld" : ") rows %lld..%lld",
		(long long)(part.is_flat ? part.first : part.offset[0]),
		(long long)(part.is_flat ? part.first + part.nelem :
					   part.offset[0] + part.size[0]));
	if (param->frozen)
		fprintf(out, ", frozen");
	else
		fprintf(out, ", group %zu, decay %g, lr x%g", param->group,
			(double)param->weight_decay, (double)param->lr_scale);
	for (size_t i = 0; i < param->naliases; i++)
		fprintf(out, ", also %s", param->aliases[i]);
	fputc('\n', out);
}

static void print_unit(const srt_unit_t *unit, const srt_memory_t *memory, FILE *out)
{
	static const char *const kinds[] = {
		[SRT_SLOT_PARAMS] = "",      [SRT_SLOT_GRADS] = "gradient ",
		[SRT_SLOT_SUMS] = "sum ",    [SRT_SLOT_UPLOADS] = "upload ",
		[SRT_SLOT_PARTS] = "group ",
	};
	const srt_unit_types_t *t = &unit->types;

	fprintf(out, "%*sunit %s: %zu parameters, %zu bytes unsharded", 2 * unit->depth, "",
		unit->name, unit->nparams, unit->unsharded_nelem * srt_dtype_size(t->compute));
	if (unit->flat != SRT_FLAT_NO)
		fprintf(out, ", flat, %lld elements a rank",
			(long long)srt_shard_flat_chunk(unit, unit->engine->world));
	if (t->compute != t->stored || t->reduce != t->stored)
		fprintf(out, ", computes in %s, reduces in %s", srt_dtype_name(t->compute),
			srt_dtype_name(t->reduce));
	for (int k = 0; k < SRT_NSLOT_KINDS; k++) {
		if (memory->slots[k].slot_of[unit->index] >= 0)
			fprintf(out, ", %sslot %d", kinds[k],
				memory->slots[k].slot_of[unit->index]);
	}
	fputc('\n', out);
	for (size_t i = 0; i < unit->nparams; i++)
		print_param(unit->params[i], out);
}

static void print_plan(const srt_plan_t *plan, FILE *out)
{
	fprintf(out,
		"bytes: parameter shards %zu, gradient shards %zu, optimizer state %zu, buffers "
		"%zu,\n",
		plan->param_shards, plan->grad_shards, plan->optimizer_state, plan->buffers);
	fprintf(out,
		"       unsharded parameters %zu in %d slots, unsharded gradients %zu, staging "
		"%zu,\n",
		plan->unsharded, plan->nslots, plan->unsharded_grads, plan->staging);
	if (plan->host_total > 0)
		fprintf(out,
			"       on the host: parameter shards %zu, gradients %zu, optimizer state "
			"%zu, tables %zu, total %zu,\n",
			plan->host_params, plan->host_grads, plan->host_state, plan->host_staging,
			plan->host_total);
	fprintf(out, "       total %zu; memory of other ranks mapped here: %zu\n", plan->total,
		plan->peer_mapped);
	if (plan->rank_total != plan->total)
		fprintf(out,
			"       of the program: activations %zu, scratch of matrix products and "
			"attention %zu; total of the rank %zu\n",
			plan->activations, plan->scratch, plan->rank_total);
}

srt_status_t srt_engine_print(const srt_engine_t *engine, FILE *out)
{
	srt_memory_t memory;
	srt_plan_t plan = SRT_PLAN_INIT;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(out);
	SRT_TRY(srt_engine_plan(engine, engine->rank, engine->world, &plan));
	SRT_TRY(srt_memory_plan(engine, engine->rank, engine->world, &memory));
	fprintf(out,
		"engine: %s, rank %d of %d, %zu units, %zu parameters, %lld trainable elements\n",
		srt_strategy_name(engine->options.strategy), engine->rank, engine->world,
		engine->nunits, engine->nparams, (long long)engine->declared.trainable_nelem);
	for (size_t u = 0; u < engine->nunits; u++)
		print_unit(engine->units[u], &memory, out);
	print_plan(&plan, out);
	srt_memory_free(&memory);
	return SRT_OK;
}
