/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table errors_combined (replay.h): what PyTorch does where features meet. Each row is done
 * with this library on the ranks of the job. It has the outcome and the fact that were recorded, or
 * better ones, or others for a reason that is printed. The table is for any number of ranks: a mesh
 * of two dimensions has 2 rows, and exists where the number is even.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay_net.h"

/*
 * SAME: the recorded outcome and fact. BETTER: PyTorch fails or has a worse fact, ours works.
 * OTHER: on purpose. BETTER_FIRST, BETTER_SECOND: BETTER where this dimension of the mesh has
 * several ranks, else SAME.
 */
typedef enum relation { SAME, BETTER, OTHER, BETTER_FIRST, BETTER_SECOND } relation_t;

typedef struct row {
	const char *name;
	relation_t relation;
	combine_fn *run;
	net_recipe_t recipe;
} row_t;

#define CHECK_ROW(holds, ...) verdict_exact(job->verdict, holds, __VA_ARGS__)

/* ---- the table -------------------------------------------------------------------------- */

static const srt_precision_t fsdp1_f16 = { .size = sizeof(fsdp1_f16),
					   .param = SRT_F16,
					   .reduce = SRT_F16,
					   .buffer = SRT_F16,
					   .rule = SRT_PRECISION_FSDP1 },
			     fsdp2_f16 = { .size = sizeof(srt_precision_t), .param = SRT_F16 },
			     fsdp2_bf16 = { .size = sizeof(srt_precision_t), .param = SRT_BF16 },
			     fsdp1 = { .size = sizeof(srt_precision_t),
				       .rule = SRT_PRECISION_FSDP1 };

#define SHARDED .scaled = true, .rule = SRT_SCALER_SHARDED
#define PLAIN .scaled = true, .rule = SRT_SCALER_PLAIN
#define NO_FACTOR .words = "must be a factor of the"

static const row_t rows[] = {
	{ "fsdp1_cpu_offload",
	  BETTER,
	  combine_step,
	  { .precision = &fsdp1, .offload = true, SHARDED } },
	{ "fsdp1_mixed_requires_grad_flat",
	  SAME,
	  combine_refuse,
	  { .precision = &fsdp1,
	    .flat = SRT_FLAT_PADDED,
	    .frozen = "0.weight",
	    .words = "must have uniform requires_grad" } },
	{ "fsdp1_hybrid_no_mesh",
	  SAME,
	  combine_refuse,
	  { .precision = &fsdp1,
	    .mesh = NET_HYBRID,
	    .no_mesh = true,
	    .words = "need option mesh" } },
	{ "fsdp1_batchnorm_f16",
	  SAME,
	  combine_normalise,
	  { .precision = &fsdp1_f16, .layers = NET_BATCHNORM } },
	{ "fsdp2_batchnorm_bf16",
	  BETTER,
	  combine_normalise,
	  { .precision = &fsdp2_bf16, .layers = NET_BATCHNORM } },
	{ "fsdp2_batchnorm_f16",
	  BETTER,
	  combine_normalise,
	  { .precision = &fsdp2_f16, .layers = NET_BATCHNORM } },
	{ "fsdp2_half_gradscaler",
	  SAME,
	  combine_refuse,
	  { .stored = SRT_F16, PLAIN, .words = "the gradient of '0.weight' is f16" } },
	{ "fsdp2_half_shardedgradscaler", SAME, combine_find, { .stored = SRT_F16, SHARDED } },
	{ "fsdp2_mixed_dtypes",
	  SAME,
	  combine_refuse,
	  { .mixed = true, .words = "'1.weight' has dtype f16" } },
	{ "ignored_clip", BETTER, combine_clip, { .ignoring = true, .norm_p = 2 } },
	{ "ignored_gradscaler", BETTER, combine_find_ignored, { .ignoring = true, PLAIN } },
	{ "ignored_shardedgradscaler",
	  BETTER,
	  combine_find_ignored,
	  { .ignoring = true, SHARDED } },
	{ "ignored_adam_foreach",
	  BETTER,
	  combine_step,
	  { .ignoring = true, .optimizer = SRT_OPTIM_ADAM } },
	{ "ignored_adam_default",
	  SAME,
	  combine_step,
	  { .ignoring = true, .optimizer = SRT_OPTIM_ADAM } },
	{ "tp_part_clip",
	  BETTER,
	  combine_clip,
	  { .mesh = NET_TENSOR, .layers = NET_PAIR_FIRST, .norm_p = 2 } },
	{ "tp_part_gradscaler",
	  SAME,
	  combine_find,
	  { .mesh = NET_TENSOR, .layers = NET_PAIR_FIRST, PLAIN } },
	{ "tp_part_adam_foreach",
	  SAME,
	  combine_step,
	  { .mesh = NET_TENSOR, .layers = NET_PAIR_FIRST, .optimizer = SRT_OPTIM_ADAM } },
	{ "tp_clip_f32", SAME, combine_clip, { .mesh = NET_TENSOR, .norm_p = 2 } },
	{ "tp_clip_inf_f32", BETTER, combine_clip, { .mesh = NET_TENSOR, .norm_p = SRT_NORM_INF } },
	{ "tp_clip_bf16",
	  BETTER,
	  combine_clip,
	  { .mesh = NET_TENSOR, .stored = SRT_BF16, .norm_p = 2 } },
	{ "fsdp2_clip_bf16", BETTER, combine_clip, { .stored = SRT_BF16, .norm_p = 2 } },
	{ "hsdp_clip", SAME, combine_clip, { .mesh = NET_HYBRID, .norm_p = 2 } },
	{ "tp_uneven",
	  BETTER_SECOND,
	  combine_clip,
	  { .mesh = NET_TENSOR, .layers = NET_UNEVEN, .norm_p = 2 } },
	{ "tp_inf_replicated",
	  SAME,
	  combine_find,
	  { .mesh = NET_TENSOR, PLAIN, .spoiled = "1.bias" } },
	{ "tp_inf_sharded",
	  SAME,
	  combine_find,
	  { .mesh = NET_TENSOR, PLAIN, .spoiled = "0.weight" } },
	{ "tp_inf_first_on_dp_mesh",
	  BETTER_SECOND,
	  combine_find,
	  { .mesh = NET_TENSOR, .layers = NET_PAIR_LAST, PLAIN, .spoiled = "1.weight" } },
	{ "tp_inf_first_on_dp_mesh_sharded_scaler",
	  SAME,
	  combine_find,
	  { .mesh = NET_TENSOR, .layers = NET_PAIR_LAST, SHARDED, .spoiled = "1.weight" } },
	{ "hsdp_inf_one_replica",
	  BETTER_FIRST,
	  combine_find,
	  { .mesh = NET_HYBRID, PLAIN, .spoiled = "0.weight", .spoils_rank0 = true } },
	{ "hsdp_inf_one_replica_sharded_scaler",
	  SAME,
	  combine_find,
	  { .mesh = NET_HYBRID, SHARDED, .spoiled = "0.weight", .spoils_rank0 = true } },
	{ "hsdp_offload",
	  SAME,
	  combine_step,
	  { .mesh = NET_HYBRID, .offload = true, .optimizer = SRT_OPTIM_ADAM } },
	{ "all_reduce_off_1d",
	  OTHER,
	  combine_count,
	  { .accumulation = SRT_ACCUMULATE_LAST_ALL_REDUCE,
	    .words = "gradients can be read after srt_engine_finish_backward() only" } },
	{ "all_reduce_off_hsdp",
	  SAME,
	  combine_count,
	  { .mesh = NET_HYBRID, .accumulation = SRT_ACCUMULATE_LAST_ALL_REDUCE } },
	{ "zero_grad_unreduced", BETTER, combine_drop, { .accumulation = SRT_ACCUMULATE_LAST } },
	{ "zero_grad_partial_hsdp",
	  BETTER,
	  combine_drop,
	  { .mesh = NET_HYBRID, .accumulation = SRT_ACCUMULATE_LAST_ALL_REDUCE } },
	{ "zero_grad_fsdp1_no_sync",
	  SAME,
	  combine_drop,
	  { .precision = &fsdp1, .accumulation = SRT_ACCUMULATE_LAST } },
	{ "tied_two_units",
	  SAME,
	  combine_refuse,
	  { .tied = true, .words = "tied parameters must be in one unit" } },
	{ "reshard_int_no_factor",
	  SAME,
	  combine_reshard,
	  { .reshard = NET_RESHARD_NO_FACTOR, NO_FACTOR } },
	{ "reshard_int_world", SAME, combine_reshard, { .reshard = NET_RESHARD_WORLD } },
	{ "reshard_int_1", SAME, combine_reshard, { .reshard = 1 } },
	{ "reshard_int_hsdp",
	  SAME,
	  combine_reshard,
	  { .mesh = NET_HYBRID, .reshard = 2, NO_FACTOR } },
	{ "reshard_int_offload",
	  SAME,
	  combine_reshard,
	  { .reshard = 2, .offload = true, NO_FACTOR } },
};

/* The recorded fact in `fact`, with 1 for each finding that is not 0: ranks add theirs up. */
static void read_fact(const json_t *recorded, char *fact, size_t nfact)
{
	const char *text = golden_text(recorded, "fact");
	const char *from =
		text != NULL && strstr(text, "found_inf") != NULL ? strchr(text, '[') : NULL;
	size_t used;
	char *end;

	used = (size_t)snprintf(fact, nfact, "%.*s", from != NULL ? (int)(from - text) : (int)nfact,
				text != NULL ? text : "");
	while (from != NULL && used < nfact && (*from == '[' || *from == ',')) {
		const double found = strtod(from + 1, &end);

		used += (size_t)snprintf(fact + used, nfact - used, "%s%.1f",
					 *from == '[' ? "[" : ", ", found != 0 ? 1.0 : 0.0);
		from = end;
	}
	if (from != NULL && used < nfact)
		snprintf(fact + used, nfact - used, "%s", from);
}

/* How the outcome relates to PyTorch's on this number of ranks. */
static relation_t find_relation(const net_job_t *job, const row_t *row)
{
	const net_recipe_t *recipe = &row->recipe;

	/* both refuse the mesh */
	if (!net_has_mesh(job, recipe))
		return SAME;
	/* groups of several ranks for one shard, which PyTorch refuses */
	if (row->run == combine_reshard && net_count_shards(job, recipe) == 1 &&
	    net_reshard(job, recipe) > 1)
		return BETTER;
	if (row->relation >= BETTER_FIRST)
		return job->shape[row->relation - BETTER_FIRST] > 1 ? BETTER : SAME;
	return row->relation;
}

static void compare_row(net_job_t *job, const row_t *row, const char *outcome, const char *fact,
			const net_fact_t *ours, int *count)
{
	const relation_t relation = find_relation(job, row);
	const bool is_same =
		ours->works == !strcmp(outcome, "ok") && (!fact[0] || !strcmp(fact, ours->fact));

	CHECK_ROW(is_same == (relation == SAME), "%s: recorded %s '%s', ours %s '%s'", row->name,
		  outcome, fact, ours->works ? "ok" : "error", ours->fact);
	CHECK_ROW(relation == SAME || ours->works, "%s: does not work", row->name);
	count[relation]++;
	if (relation == OTHER && job->rank == 0)
		printf("     other: %s: %s\n", row->name, row->recipe.words);
}

static srt_status_t run_row(net_job_t *job, const row_t *row, const json_t *recorded, int *count)
{
	const char *outcome = golden_text(recorded, "outcome");
	const size_t nfact = 128 + 8 * (size_t)job->world;
	char *facts = srt_calloc(2, nfact, "facts");
	net_fact_t ours = { .nfact = nfact, .fact = facts };
	srt_status_t status = SRT_OK;

	if (facts == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	job->row = row->name;
	read_fact(recorded, facts + nfact, nfact);
	if (outcome == NULL || (strcmp(outcome, "ok") && strcmp(outcome, "error")))
		status = srt_fail(SRT_ERR_FORMAT, "%s: the recorded outcome is '%s'", row->name,
				  outcome != NULL ? outcome : "");
	else if (net_has_mesh(job, &row->recipe))
		status = row->run(job, &row->recipe, &ours);
	if (status == SRT_OK)
		compare_row(job, row, outcome, facts + nfact, &ours, count);
	free(facts);
	return status;
}

static const row_t *find_row(const char *name)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(rows); i++)
		if (name != NULL && !strcmp(rows[i].name, name))
			return &rows[i];
	return NULL;
}

/* The meshes of two dimensions: 2 x half of the ranks, unless a message of PyTorch names another
 * one. */
static void find_shape(const json_t *table, int world, int shape[2])
{
	static const char mesh[] = "DeviceMesh((dp=%d, tp=%d)";
	const json_t *row;
	int dp, tp;
	size_t i;

	shape[0] = 2;
	shape[1] = world / 2;
	json_array_foreach(table, i, row)
	{
		const char *at = golden_text(row, "message");

		while (at != NULL && (at = strstr(at, "DeviceMesh")) != NULL) {
			if (sscanf(at++, mesh, &dp, &tp) != 2)
				continue;
			shape[0] = dp;
			shape[1] = tp;
		}
	}
}

srt_status_t replay_errors(golden_t *g, srt_context_t *context, verdict_t *v, char *note,
			   size_t nnote)
{
	const json_t *table = json_object_get(g->json, "rows"), *recorded;
	int count[3] = { 0 }, shape[2];
	net_job_t job;
	size_t i;

	find_shape(table, srt_context_world_size(context), shape);
	SRT_TRY(net_job_open(&job, context, shape, v));
	verdict_exact(v, json_array_size(table) == SRT_ARRAY_LEN(rows), "%zu rows, not %zu",
		      json_array_size(table), SRT_ARRAY_LEN(rows));
	json_array_foreach(table, i, recorded)
	{
		const char *name = golden_text(recorded, "name");
		const row_t *row = find_row(name);

		verdict_exact(v, row != NULL, "the row '%s' is unknown", name != NULL ? name : "");
		if (row == NULL)
			continue;
		SRT_TRY(run_row(&job, row, recorded, count));
	}
	net_job_close(&job);
	snprintf(note, nnote, "%d rows as PyTorch, %d better, %d other", count[SAME], count[BETTER],
		 count[OTHER]);
	return verdict_join(v, context);
}
