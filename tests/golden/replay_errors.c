/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table errors_combined (replay.h): what PyTorch does where features meet. Each row is done
 * with this library on the ranks of the job. It has the outcome and the fact that were recorded, or
 * better ones, or others for a reason that is printed.
 */
#include "config.h"

#include <ctype.h>
#include <string.h>

#include "tests/golden/replay_net.h"

/* SAME: the recorded outcome and fact. BETTER: PyTorch fails or has a worse fact, ours works.
 * OTHER: on purpose. */
typedef enum relation { SAME, BETTER, OTHER } relation_t;

typedef struct row {
	const char *name, *outcome; /* of PyTorch */
	relation_t relation;
	combine_fn *run;
	net_recipe_t recipe;
} row_t;

#define CHECK_ROW(holds, ...) verdict_exact(job->verdict, holds, __VA_ARGS__)

/* ---- the table -------------------------------------------------------------------------- */

static const srt_precision_t fsdp1_f16 = { .param = SRT_CAST_F16,
					   .reduce = SRT_CAST_F16,
					   .buffer = SRT_CAST_F16,
					   .rule = SRT_PRECISION_FSDP1 },
			     fsdp2_f16 = { .param = SRT_CAST_F16 },
			     fsdp2_bf16 = { .param = SRT_CAST_BF16 },
			     fsdp1 = { .rule = SRT_PRECISION_FSDP1 };

#define SHARDED .scaled = true, .rule = SRT_SCALER_SHARDED
#define PLAIN .scaled = true, .rule = SRT_SCALER_PLAIN

static const row_t rows[] = {
	{ "fsdp1_cpu_offload",
	  "error",
	  BETTER,
	  combine_step,
	  { .precision = &fsdp1, .offload = true, SHARDED } },
	{ "fsdp1_mixed_requires_grad_flat",
	  "error",
	  SAME,
	  combine_refuse,
	  { .precision = &fsdp1,
	    .flat = SRT_FLAT_PADDED,
	    .frozen = "0.weight",
	    .words = "must have uniform requires_grad" } },
	{ "fsdp1_hybrid_no_mesh",
	  "error",
	  SAME,
	  combine_refuse,
	  { .precision = &fsdp1,
	    .mesh = NET_HYBRID,
	    .no_mesh = true,
	    .words = "need option mesh" } },
	{ "fsdp1_batchnorm_f16",
	  "ok",
	  SAME,
	  combine_normalise,
	  { .precision = &fsdp1_f16, .layers = NET_BATCHNORM } },
	{ "fsdp2_batchnorm_bf16",
	  "error",
	  BETTER,
	  combine_normalise,
	  { .precision = &fsdp2_bf16, .layers = NET_BATCHNORM } },
	{ "fsdp2_batchnorm_f16",
	  "error",
	  BETTER,
	  combine_normalise,
	  { .precision = &fsdp2_f16, .layers = NET_BATCHNORM } },
	{ "fsdp2_half_gradscaler",
	  "error",
	  SAME,
	  combine_refuse,
	  { .stored = SRT_F16, PLAIN, .words = "the gradient of '0.weight' is f16" } },
	{ "fsdp2_half_shardedgradscaler",
	  "ok",
	  SAME,
	  combine_find,
	  { .stored = SRT_F16, SHARDED } },
	{ "fsdp2_mixed_dtypes",
	  "error",
	  SAME,
	  combine_refuse,
	  { .mixed = true, .words = "'1.weight' has dtype f16" } },
	{ "ignored_clip", "error", BETTER, combine_clip, { .ignoring = true, .norm_p = 2 } },
	{ "ignored_gradscaler",
	  "error",
	  BETTER,
	  combine_find_ignored,
	  { .ignoring = true, PLAIN } },
	{ "ignored_shardedgradscaler",
	  "error",
	  BETTER,
	  combine_find_ignored,
	  { .ignoring = true, SHARDED } },
	{ "ignored_adam_foreach",
	  "error",
	  BETTER,
	  combine_step,
	  { .ignoring = true, .optimizer = SRT_OPTIMIZER_ADAM } },
	{ "ignored_adam_default",
	  "ok",
	  SAME,
	  combine_step,
	  { .ignoring = true, .optimizer = SRT_OPTIMIZER_ADAM } },
	{ "tp_part_clip",
	  "error",
	  BETTER,
	  combine_clip,
	  { .mesh = NET_TENSOR, .layers = NET_PAIR_FIRST, .norm_p = 2 } },
	{ "tp_part_gradscaler",
	  "ok",
	  SAME,
	  combine_find,
	  { .mesh = NET_TENSOR, .layers = NET_PAIR_FIRST, PLAIN } },
	{ "tp_part_adam_foreach",
	  "ok",
	  SAME,
	  combine_step,
	  { .mesh = NET_TENSOR, .layers = NET_PAIR_FIRST, .optimizer = SRT_OPTIMIZER_ADAM } },
	{ "tp_clip_f32", "ok", SAME, combine_clip, { .mesh = NET_TENSOR, .norm_p = 2 } },
	{ "tp_clip_inf_f32",
	  "ok",
	  BETTER,
	  combine_clip,
	  { .mesh = NET_TENSOR, .norm_p = SRT_NORM_INF } },
	{ "tp_clip_bf16",
	  "ok",
	  BETTER,
	  combine_clip,
	  { .mesh = NET_TENSOR, .stored = SRT_BF16, .norm_p = 2 } },
	{ "fsdp2_clip_bf16", "ok", BETTER, combine_clip, { .stored = SRT_BF16, .norm_p = 2 } },
	{ "hsdp_clip", "ok", SAME, combine_clip, { .mesh = NET_HYBRID, .norm_p = 2 } },
	{ "tp_uneven",
	  "error",
	  BETTER,
	  combine_clip,
	  { .mesh = NET_TENSOR, .layers = NET_UNEVEN, .norm_p = 2 } },
	{ "tp_inf_replicated",
	  "ok",
	  SAME,
	  combine_find,
	  { .mesh = NET_TENSOR, PLAIN, .spoiled = "1.bias" } },
	{ "tp_inf_sharded",
	  "ok",
	  SAME,
	  combine_find,
	  { .mesh = NET_TENSOR, PLAIN, .spoiled = "0.weight" } },
	{ "tp_inf_first_on_dp_mesh",
	  "ok",
	  BETTER,
	  combine_find,
	  { .mesh = NET_TENSOR, .layers = NET_PAIR_LAST, PLAIN, .spoiled = "1.weight" } },
	{ "tp_inf_first_on_dp_mesh_sharded_scaler",
	  "ok",
	  SAME,
	  combine_find,
	  { .mesh = NET_TENSOR, .layers = NET_PAIR_LAST, SHARDED, .spoiled = "1.weight" } },
	{ "hsdp_inf_one_replica",
	  "ok",
	  BETTER,
	  combine_find,
	  { .mesh = NET_HYBRID, PLAIN, .spoiled = "0.weight", .spoils_rank0 = true } },
	{ "hsdp_inf_one_replica_sharded_scaler",
	  "ok",
	  SAME,
	  combine_find,
	  { .mesh = NET_HYBRID, SHARDED, .spoiled = "0.weight", .spoils_rank0 = true } },
	{ "hsdp_offload",
	  "ok",
	  SAME,
	  combine_step,
	  { .mesh = NET_HYBRID, .offload = true, .optimizer = SRT_OPTIMIZER_ADAM } },
	{ "all_reduce_off_1d",
	  "ok",
	  OTHER,
	  combine_count,
	  { .accumulation = SRT_ACCUMULATE_LAST_ALL_REDUCE,
	    .words = "gradients can be read after srt_engine_finish_backward() only" } },
	{ "all_reduce_off_hsdp",
	  "ok",
	  SAME,
	  combine_count,
	  { .mesh = NET_HYBRID, .accumulation = SRT_ACCUMULATE_LAST_ALL_REDUCE } },
	{ "zero_grad_unreduced",
	  "ok",
	  BETTER,
	  combine_drop,
	  { .accumulation = SRT_ACCUMULATE_LAST } },
	{ "zero_grad_partial_hsdp",
	  "ok",
	  BETTER,
	  combine_drop,
	  { .mesh = NET_HYBRID, .accumulation = SRT_ACCUMULATE_LAST_ALL_REDUCE } },
	{ "zero_grad_fsdp1_no_sync",
	  "ok",
	  SAME,
	  combine_drop,
	  { .precision = &fsdp1, .accumulation = SRT_ACCUMULATE_LAST } },
	{ "tied_two_units",
	  "error",
	  SAME,
	  combine_refuse,
	  { .tied = true, .words = "tied parameters must be in one unit" } },
	{ "reshard_int_no_factor",
	  "error",
	  SAME,
	  combine_refuse,
	  { .reshard = 3, .words = "must be a factor of the" } },
	{ "reshard_int_world", "ok", SAME, combine_step, { .reshard = 4 } },
	{ "reshard_int_1", "ok", SAME, combine_step, { .reshard = 1 } },
	{ "reshard_int_hsdp", "ok", SAME, combine_step, { .mesh = NET_HYBRID, .reshard = 2 } },
	{ "reshard_int_offload", "ok", SAME, combine_step, { .reshard = 2, .offload = true } },
};

/* Any finding counts as 1. */
static void read_fact(const json_t *recorded, char *fact, size_t nfact)
{
	snprintf(fact, nfact, "%s",
		 golden_text(recorded, "fact") ? golden_text(recorded, "fact") : "");
	for (char *c = strstr(fact, "found_inf") ? strchr(fact, '[') : NULL; c && c[1]; c++)
		if (isdigit((unsigned char)c[0]) && c[0] != '0' && c[1] == '.')
			*c = '1';
}

static srt_status_t run_row(net_job_t *job, const row_t *row, const json_t *recorded)
{
	const char *outcome = golden_text(recorded, "outcome");
	net_fact_t ours = { 0 };
	char fact[128];
	bool is_same;

	job->row = row->name;
	read_fact(recorded, fact, sizeof(fact));
	CHECK_ROW(outcome && !strcmp(outcome, row->outcome),
		  "%s: the recorded outcome is %s, not %s", row->name,
		  outcome ? outcome : "missing", row->outcome);
	SRT_TRY(row->run(job, &row->recipe, &ours));
	is_same =
		ours.works == !strcmp(row->outcome, "ok") && (!fact[0] || !strcmp(fact, ours.fact));
	CHECK_ROW(is_same == (row->relation == SAME), "%s: recorded %s '%s', ours %s '%s'",
		  row->name, row->outcome, fact, ours.works ? "ok" : "error", ours.fact);
	CHECK_ROW(row->relation == SAME || ours.works, "%s: does not work", row->name);
	return SRT_OK;
}

static const row_t *find_row(const char *name)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(rows); i++)
		if (name && !strcmp(rows[i].name, name))
			return &rows[i];
	return NULL;
}

srt_status_t replay_errors(golden_t *g, srt_context_t *context, verdict_t *v, char *note,
			   size_t nnote)
{
	const json_t *table = json_object_get(g->json, "rows"), *recorded;
	int count[3] = { 0 };
	net_job_t job;
	size_t i;

	SRT_TRY(net_job_open(&job, context, v));
	verdict_exact(v, json_array_size(table) == SRT_ARRAY_LEN(rows), "%zu rows, not %zu",
		      json_array_size(table), SRT_ARRAY_LEN(rows));
	json_array_foreach(table, i, recorded)
	{
		const char *name = golden_text(recorded, "name");
		const row_t *row = find_row(name);

		verdict_exact(v, row != NULL, "the row '%s' is unknown", name ? name : "");
		if (!row)
			continue;
		SRT_TRY(run_row(&job, row, recorded));
		count[row->relation]++;
		if (row->relation == OTHER && job.rank == 0)
			printf("     other: %s: %s\n", row->name, row->recipe.words);
	}
	net_job_close(&job);
	snprintf(note, nnote, "%d rows as PyTorch, %d better, %d other", count[SAME], count[BETTER],
		 count[OTHER]);
	return verdict_join(v, context);
}
