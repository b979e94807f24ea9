/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a case: training with several strategies, a table once; prints its verdict (replay.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay.h"

srt_status_t replay_join_status(srt_context_t *context, srt_status_t status)
{
	int world = srt_context_world_size(context);
	int mine = (int)status, *all = srt_calloc((size_t)world, sizeof(*all), "statuses");
	srt_status_t joined = status;

	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (srt_comm_oob_allgather(srt_context_world(context), &mine, sizeof(mine), all) != SRT_OK)
		joined = SRT_ERR_ABORTED;
	for (int r = 0; r < world && joined == SRT_OK; r++)
		if (all[r] != SRT_OK)
			joined = srt_fail((srt_status_t)all[r], "rank %d failed", r);
	free(all);
	return joined;
}

replay_outcome_t replay_print_verdict(const golden_t *g, const verdict_t *v, const char *with,
				      const char *note, bool speak)
{
	bool failed = v->nfailed > 0 || v->ncompared == 0;
	const char *why;

	if (!speak)
		return failed ? REPLAY_FAIL : REPLAY_PASS;
	printf("%s %-34s %-15s worst %8.3g  %s", failed ? "FAIL" : "PASS", g->name, with, v->worst,
	       v->worst_key[0] ? v->worst_key : "(all exact)");
	if (note[0])
		printf("  [%s]", note);
	if (golden_limit(g, &why) > 1)
		printf("\n     wider: up to %.3g tolerances: %s", golden_limit(g, &why), why);
	if (v->nfailed > 0)
		printf("\n     %lld of %lld comparisons: %s", (long long)v->nfailed,
		       (long long)v->ncompared, v->failure);
	printf("\n");
	return failed ? REPLAY_FAIL : REPLAY_PASS;
}

/* One way to run a case. */
typedef struct run {
	srt_strategy_t strategy;
	bool on_mesh;
	int reshard;
	srt_flat_t flat;
	const char *name;
	int first_step; /* resumes after this one; 0: from the start */
	bool loads;     /* the state, which the run before has saved */
} run_t;

/* A number that differs from case to case. */
static unsigned turn_of(const golden_t *g)
{
	unsigned turn = 0;

	for (const char *c = g->name; *c; c++)
		turn = turn * 31 + (unsigned char)*c;
	return turn;
}

/* Ranks of the groups that units are resharded to; 0: none. */
static int reshard_of(const golden_t *g)
{
	return (int)json_integer_value(json_object_get(g->json, "reshard_after_forward"));
}

/* Bits do not depend on the strategy: besides zero3 and ddp the one that the case was recorded
 * with, or another one by turns. */
static run_t choose_third(const golden_t *g)
{
	static const run_t others[] = {
		{ .strategy = SRT_STRATEGY_ZERO2, .name = "zero2" },
		{ .strategy = SRT_STRATEGY_ZERO1, .name = "zero1" },
		{ .strategy = SRT_STRATEGY_ZERO3, .reshard = SRT_RESHARD_NEVER, .name = "kept" },
	};
	const char *strategy = golden_text(g->json, "sharding_strategy");

	if (strategy != NULL && !strcmp(strategy, "SHARD_GRAD_OP"))
		return others[0];
	if (json_is_false(json_object_get(g->json, "reshard_after_forward")))
		return others[2];
	if (reshard_of(g) != 0)
		return (run_t){ .strategy = SRT_STRATEGY_ZERO1,
				.reshard = reshard_of(g),
				.name = "zero1 in groups" };
	return others[turn_of(g) % (golden_can_keep(g) ? 3 : 2)];
}

/* Replicas of shards have the bits of zero3, but not where their sums are added up apart. */
static run_t choose_second(const golden_t *g)
{
	const char *sync = golden_text(g->json, "accum_sync");

	if (sync != NULL && !strcmp(sync, "last_all_reduce"))
		return (run_t){ .strategy = SRT_STRATEGY_ZERO1, .on_mesh = true, .name = "zero1" };
	return (run_t){ .strategy = SRT_STRATEGY_DDP, .name = "ddp" };
}

/* Frozen parameters and others in one unit cannot be flat without views. */
static srt_flat_t other_flat(const golden_t *g)
{
	const json_t *param;
	bool frozen = false;
	size_t i;

	json_array_foreach(json_object_get(g->json, "params"), i, param)
	{
		frozen |= !golden_is_set(param, "requires_grad");
	}
	return golden_flat(g) == SRT_FLAT_VIEWS && !frozen ? SRT_FLAT_PADDED : SRT_FLAT_VIEWS;
}

static replay_outcome_t run_train(golden_t *g, srt_context_t *context, bool one, bool speak)
{
	const bool hybrid = golden_is_hybrid(g), tensor = golden_is_tensor(g);
	const int resume_at = (int)golden_number(g->json, "resume_at", 0);
	const srt_flat_t flat = golden_flat(g);
	run_t runs[] = {
		hybrid ? (run_t){ .strategy = SRT_STRATEGY_HYBRID,
				  .on_mesh = true,
				  .reshard = reshard_of(g),
				  .name = "hybrid" } :
			 (run_t){ .strategy = SRT_STRATEGY_ZERO3,
				  .reshard = reshard_of(g),
				  .name = "zero3" },
		choose_second(g),
		hybrid ? (run_t){ .strategy = SRT_STRATEGY_ZERO2,
				  .on_mesh = true,
				  .name = "zero2" } :
			 choose_third(g),
		{ .name = "resumed",
		  .strategy = hybrid ? SRT_STRATEGY_HYBRID : SRT_STRATEGY_ZERO3,
		  .on_mesh = hybrid,
		  .first_step = resume_at },
		choose_second(g),
		{ .strategy = hybrid ? SRT_STRATEGY_HYBRID : SRT_STRATEGY_ZERO3,
		  .on_mesh = hybrid,
		  .name = "rows" },
		{ .strategy = hybrid ? SRT_STRATEGY_HYBRID : SRT_STRATEGY_ZERO3,
		  .on_mesh = hybrid,
		  .flat = other_flat(g),
		  .name = "other form" },
	};
	verdict_t joined = { 0 };
	char with[64] = "";

	/* FSDP1: in the recorded form, by rows, and in the other form of flat parameters. */
	runs[0].flat = runs[2].flat = runs[3].flat = flat;
	if (golden_is_replicated(g))
		runs[1].flat = flat;
	runs[4].name = "loaded";
	runs[4].first_step = resume_at;
	runs[4].loads = true;
	for (size_t i = 0; i < SRT_ARRAY_LEN(runs); i++) {
		verdict_t v = { 0 };
		replay_t r = { .golden = g,
			       .context = context,
			       .strategy = runs[i].strategy,
			       .on_mesh = runs[i].on_mesh || tensor,
			       .reshard = runs[i].reshard,
			       .flat = runs[i].flat,
			       .first_step = runs[i].first_step,
			       .loads = runs[i].loads,
			       .clip_in_step = i > 0 && golden_is_set(g->json, "clip") &&
					       !golden_is_set(g->json, "scaler"),
			       .verdict = &v };
		srt_status_t status;

		if (i < 3 ? one && i != turn_of(g) % 3 :
		    i < 5 ? resume_at == 0 :
			    one || flat == SRT_FLAT_NO)
			continue;
#ifndef HAVE_XXHASH /* no checkpoints */
		if (runs[i].loads)
			continue;
#endif
		status = replay_train(&r);
		if (status != SRT_OK)
			fprintf(stderr, "%s: rank %d, %s: %s: %s\n", g->name,
				srt_context_rank(context), runs[i].name, srt_status_string(status),
				srt_error_last());
		if (replay_join_status(context, status) != SRT_OK ||
		    verdict_join(&v, context) != SRT_OK) {
			if (speak)
				printf("FAIL %s %s ended early\n", g->name, runs[i].name);
			return REPLAY_FAIL;
		}
		snprintf(with + strlen(with), sizeof(with) - strlen(with), "%s%s",
			 with[0] != '\0' ? "+" : "", runs[i].name);
		if (strchr(with, '+') == NULL || v.nfailed > joined.nfailed ||
		    (v.nfailed == joined.nfailed && v.worst > joined.worst))
			joined = v;
	}
	return replay_print_verdict(g, &joined, with, "", speak);
}

replay_outcome_t replay_run_case(const char *dir, bool one, srt_context_t *context)
{
	int rank = srt_context_rank(context), world = srt_context_world_size(context);
	replay_outcome_t outcome = REPLAY_BAD;
	verdict_t v = { 0 };
	char note[256] = "";
	srt_status_t status;
	golden_t g;

	status = golden_open(dir, rank, &g);
	if (status != SRT_OK)
		fprintf(stderr, "replay: %s\n", srt_error_last());
	if (replay_join_status(context, status) != SRT_OK) {
		outcome = REPLAY_BAD;
	} else if ((strcmp(g.kind, "train") || replay_is_sharded_add(&g)) &&
		   g.world_size == world) {
		status = replay_table(&g, context, &v, note, sizeof(note));
		if (status == SRT_OK)
			status = verdict_join(&v, context);
		if (status == SRT_OK) {
			outcome = replay_print_verdict(&g, &v, "table", note, rank == 0);
		} else if (status == SRT_ERR_UNSUPPORTED) {
			outcome = REPLAY_SKIP;
			snprintf(note, sizeof(note), "%s", srt_error_last());
		} else {
			outcome = REPLAY_FAIL;
			fprintf(stderr, "%s: %s\n", g.name, srt_error_last());
			if (rank == 0)
				printf("FAIL %s table ended early\n", g.name);
		}
	} else if (!strcmp(g.kind, "train") && golden_unsupported(&g, note, sizeof(note))) {
		outcome = REPLAY_SKIP;
	} else if (g.world_size != world) {
		if (rank == 0)
			fprintf(stderr, "replay: %s is for %d ranks: shardrun -n %d\n", g.name,
				g.world_size, g.world_size);
	} else {
		outcome = run_train(&g, context, one, rank == 0);
	}
	if (outcome == REPLAY_SKIP && rank == 0)
		printf("skip: scenario %s (%s) %s\n", g.scenario, g.name, note);
	golden_close(&g);
	return outcome;
}
