/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The options of an engine, read and checked. Called by srt_engine_create().
 */
#include <string.h>

#include "runtime/engine/declare/declare.h"

const char *srt_strategy_name(srt_strategy_t strategy)
{
	static const char *const names[] = {
		[SRT_STRATEGY_DDP] = "ddp",       [SRT_STRATEGY_ZERO1] = "zero1",
		[SRT_STRATEGY_ZERO2] = "zero2",   [SRT_STRATEGY_ZERO3] = "zero3",
		[SRT_STRATEGY_HYBRID] = "hybrid",
	};

	return names[strategy];
}

static int find_dim(const srt_mesh_t *mesh, const char *named, const char *first,
		    const char *second)
{
	int dim = srt_mesh_find(mesh, named != NULL ? named : first);

	return dim < 0 && named == NULL && second != NULL ? srt_mesh_find(mesh, second) : dim;
}

void srt_options_dims(const srt_engine_options_t *o, int *shard_dim, int *replicate_dim,
		      int *tensor_dim)
{
	const bool ddp = o->strategy == SRT_STRATEGY_DDP;

	*shard_dim = *replicate_dim = *tensor_dim = -1;
	if (o->mesh == NULL)
		return;
	if (!ddp)
		*shard_dim = find_dim(o->mesh, o->shard_dim, "shard", "dp");
	*replicate_dim = find_dim(o->mesh, o->replicate_dim, "replicate", ddp ? "dp" : NULL);
	for (int i = 0; i < o->mesh->ndim; i++) {
		if (i != *shard_dim && i != *replicate_dim)
			*tensor_dim = i;
	}
}

/* A dimension that was named, or that the strategy needs. */
static srt_status_t check_dim(const srt_engine_options_t *o, const char *named, int dim,
			      bool is_needed, const char *option, const char *defaults)
{
	if (dim >= 0 || (named == NULL && !is_needed))
		return SRT_OK;
	if (named != NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option %s is '%s', which is not a dimension of the mesh", option,
				named);
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"strategy %s needs a dimension of the mesh called %s: set option %s if it "
			"has another name",
			srt_strategy_name(o->strategy), defaults, option);
}

static srt_status_t check_mesh(const srt_engine_options_t *o)
{
	const bool ddp = o->strategy == SRT_STRATEGY_DDP;
	const bool hybrid = o->strategy == SRT_STRATEGY_HYBRID;
	int shard, replicate, tensor;

	if (o->mesh == NULL && (hybrid || o->shard_dim != NULL || o->replicate_dim != NULL))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"strategy hybrid and options shard_dim and replicate_dim need "
				"option mesh");
	if (o->mesh == NULL)
		return SRT_OK;
	if (o->comm != NULL || (ddp && o->shard_dim != NULL))
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			o->comm != NULL ?
				"options comm and mesh are both set: the mesh has the ranks" :
				"option shard_dim with strategy ddp, which shards nothing");
	srt_options_dims(o, &shard, &replicate, &tensor);
	SRT_TRY(check_dim(o, o->shard_dim, shard, !ddp, "shard_dim", "'shard' or 'dp'"));
	SRT_TRY(check_dim(o, o->replicate_dim, replicate, ddp || hybrid, "replicate_dim",
			  ddp ? "'replicate' or 'dp'" : "'replicate'"));
	if (shard >= 0 && shard == replicate)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"options shard_dim and replicate_dim name the same dimension '%s'",
				o->mesh->names[shard]);
	for (int i = 0; i < o->mesh->ndim; i++) {
		if (i != shard && i != replicate && i != tensor)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"strategy %s has no use for both dimensions '%s' and '%s' "
					"of the mesh: only one is for tensor parallelism",
					srt_strategy_name(o->strategy), o->mesh->names[i],
					o->mesh->names[tensor]);
	}
	return SRT_OK;
}

srt_status_t srt_options_read(const srt_engine_options_t *given, srt_engine_options_t *o,
			      srt_optim_options_t *optim)
{
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;

	*o = (srt_engine_options_t)SRT_ENGINE_OPTIONS_INIT;
	SRT_TRY(srt_struct_read(o, sizeof(*o), given, "srt_engine_options_t"));
	if ((unsigned)o->strategy > SRT_STRATEGY_HYBRID || (unsigned)o->average > SRT_AVERAGE_SUM ||
	    (unsigned)o->accumulation > SRT_ACCUMULATE_LAST_ALL_REDUCE)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"one of the options strategy (%d), average (%d), accumulation (%d) "
				"is not a value of its enum",
				(int)o->strategy, (int)o->average, (int)o->accumulation);
	SRT_TRY(check_mesh(o));
	SRT_TRY(srt_optim_read_options(o->optim, optim));
	o->optim = NULL;
	if ((o->offload.params || o->offload.grads) && !o->offload.state &&
	    optim->kind != SRT_OPTIM_NONE)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option offload has %s without state: the optimizer steps where "
				"its state is; set offload.state too, or SRT_OPTIM_NONE",
				o->offload.params ? "params" : "grads");
	if ((o->allocate == NULL) != (o->free == NULL))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"one of the options allocate and free is NULL: set both or none");
	if (o->allocate != NULL && (o->offload.params || o->offload.grads || o->offload.state))
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"options allocate and offload are both set: offloaded memory is "
				"shared by two devices, and only the library can allocate it");
	if (!(o->divide_factor >= 0.0f && o->divide_factor <= 0x1.fffffep127f) ||
	    (o->divide_factor != 0.0f && o->average == SRT_AVERAGE_SUM))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option divide_factor is %g, must be finite and at least 0, and 0 "
				"where nothing is divided (SRT_AVERAGE_SUM)",
				(double)o->divide_factor);
	SRT_TRY(srt_precision_resolve(o->precision, SRT_F32, &types));
	if (o->microbatches < 1 || o->prefetch < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option microbatches is %d, must be at least 1; option prefetch is "
				"%d, must be at least 0",
				o->microbatches, o->prefetch);
	if (o->accumulation == SRT_ACCUMULATE_TREE &&
	    (o->microbatches & (o->microbatches - 1)) != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option microbatches is %d, must be a power of two with "
				"SRT_ACCUMULATE_TREE",
				o->microbatches);
	if (o->norm_p != 0 && o->norm_p != 1 && o->norm_p != 2 && o->norm_p != 3 &&
	    o->norm_p != SRT_NORM_INF)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option norm_p is %d, must be 0, 1, 2, 3 or SRT_NORM_INF",
				o->norm_p);
	if (o->max_norm != o->max_norm)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "option max_norm is NaN");
	if (o->norm_p == 0 && o->max_norm > 0.0f)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option max_norm is %g but norm_p is 0: set the norm to clip by",
				(double)o->max_norm);
	return SRT_OK;
}

int srt_engine_count_states(const srt_engine_t *engine)
{
	return engine->optim->nstates;
}
