/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mixed-precision policy of a case, and the table of dtype rules (replay.h).
 */
#include "config.h"

#include <string.h>

#include "tests/golden/replay.h"

/* The cast to a dtype, or none for null. */
static srt_status_t read_cast(const json_t *object, const char *key, srt_dtype_t *cast)
{
	*cast = SRT_DTYPE_NONE;
	if (!golden_is_set(object, key))
		return SRT_OK;
	return golden_dtype(golden_text(object, key), cast) ?
		       SRT_OK :
		       srt_fail(SRT_ERR_FORMAT, "%s is no float dtype", key);
}

srt_status_t replay_policy(const json_t *policy, srt_precision_rule_t rule,
			   srt_precision_t *precision)
{
	*precision = (srt_precision_t){ .size = sizeof(srt_precision_t), .rule = rule };
	SRT_TRY(read_cast(policy, "param_dtype", &precision->param));
	SRT_TRY(read_cast(policy, "reduce_dtype", &precision->reduce));
	SRT_TRY(read_cast(policy, "buffer_dtype", &precision->buffer));
	precision->keep_inputs = json_is_false(json_object_get(policy, "cast_forward_inputs"));
	return SRT_OK;
}

srt_status_t replay_precision(replay_t *r)
{
	const json_t *policy = json_object_get(r->golden->json, "mixed_precision");
	bool one = !strcmp(r->golden->reference, "fsdp1");

	SRT_TRY(replay_policy(policy, one ? SRT_PRECISION_FSDP1 : SRT_PRECISION_FSDP2,
			      &r->precision));
	r->root_precision = r->precision;
	return read_cast(policy, "output_dtype", &r->root_precision.output);
}

/* ---- the table -------------------------------------------------------------------------- */

static bool is_dtype(const json_t *row, const char *key, srt_dtype_t dtype)
{
	const char *text = golden_text(row, key);

	return text != NULL && !strcmp(text, srt_dtype_name(dtype));
}

/* What a row's list of dtypes of all parameters or gradients must be. */
static bool is_only(const json_t *row, const char *key, srt_dtype_t dtype)
{
	const json_t *list = json_object_get(row, key);

	return json_array_size(list) == 1 && golden_has(list, srt_dtype_name(dtype));
}

srt_dtype_t replay_output_dtype(const srt_unit_types_t *types)
{
	return types->output != SRT_DTYPE_NONE ? types->output : types->compute;
}

/* FSDP1: the module becomes fp16 before or after it is wrapped. */
static srt_status_t check_fsdp1(verdict_t *v, const json_t *row, size_t i)
{
	srt_precision_t precision;
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;

	SRT_TRY(replay_policy(row, SRT_PRECISION_FSDP1, &precision));
	SRT_TRY(srt_precision_resolve(&precision, SRT_F16, &types));
	verdict_exact(v,
		      !golden_is_set(row, "error") && is_only(row, "param_dtypes", types.stored) &&
			      is_only(row, "summon_full_params_dtypes", types.stored) &&
			      is_dtype(row, "flat_param", types.stored) &&
			      is_dtype(row, "orig_param_dtype", types.stored),
		      "row %zu: stored", i);
	verdict_exact(v,
		      is_only(row, "grad_dtypes", types.stored) &&
			      is_dtype(row, "flat_param_grad", types.stored),
		      "row %zu: gradients", i);
	verdict_exact(v,
		      is_dtype(row, "fwd_bwd_param_dtype", types.compute) &&
			      is_dtype(row, "output_dtype", replay_output_dtype(&types)),
		      "row %zu: compute", i);
	verdict_exact(v, is_dtype(row, "effective_reduce_dtype", types.reduce), "row %zu: reduce",
		      i);
	return SRT_OK;
}

static srt_status_t check_fully_shard(verdict_t *v, const json_t *row, size_t i)
{
	srt_precision_t precision;
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;
	srt_dtype_t stored;

	if (!golden_dtype(golden_text(row, "module_dtype"), &stored))
		return srt_fail(SRT_ERR_FORMAT, "row %zu has no module_dtype", i);
	SRT_TRY(replay_policy(row, SRT_PRECISION_FSDP2, &precision));
	SRT_TRY(read_cast(row, "output_dtype", &precision.output));
	SRT_TRY(srt_precision_resolve(&precision, stored, &types));
	verdict_exact(v,
		      !golden_is_set(row, "error") &&
			      is_dtype(row, "sharded_param", types.stored) &&
			      is_dtype(row, "sharded_grad", types.stored),
		      "fully_shard row %zu: stored", i);
	verdict_exact(v,
		      is_dtype(row, "unsharded_param", types.compute) &&
			      is_dtype(row, "input_seen_by_first_layer",
				       types.casts_inputs ? types.compute : stored),
		      "fully_shard row %zu: compute", i);
	verdict_exact(v, is_dtype(row, "output", replay_output_dtype(&types)),
		      "fully_shard row %zu: output", i);
	/* none recorded: the dtype of the unsharded gradient */
	verdict_exact(v,
		      golden_is_set(row, "effective_reduce") ?
			      is_dtype(row, "effective_reduce", types.reduce) :
			      types.reduce == types.compute,
		      "fully_shard row %zu: reduce", i);
	return SRT_OK;
}

srt_status_t replay_dtype_rules(golden_t *g, verdict_t *v)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(g->json, "rows"), i, row)
	{
		SRT_TRY(check_fsdp1(v, row, i));
	}
	json_array_foreach(json_object_get(g->json, "fully_shard_rows"), i, row)
	{
		SRT_TRY(check_fully_shard(v, row, i));
	}
	return SRT_OK;
}
