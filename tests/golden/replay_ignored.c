/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameters that fully_shard ignores (replay.h): each rank has another engine for them, over a
 * communicator of this rank alone. Their gradients are not reduced, and the rank steps them.
 */
#include "config.h"

#include "runtime/engine/engine.h"
#include "tests/golden/replay.h"

static const json_t *ignored_of(const golden_t *g)
{
	return json_object_get(g->json, "ignored");
}

srt_status_t replay_ignored_create(replay_t *r, const srt_engine_options_t *options)
{
	const srt_unit_options_t of_unit = { .size = sizeof(of_unit),
					     .precision = &r->root_precision };
	srt_engine_options_t of_rank = *options;

	if (json_array_size(ignored_of(r->golden)) == 0)
		return SRT_OK;
	SRT_TRY(srt_comm_split(srt_context_world(r->context), srt_context_rank(r->context),
			       "ignored parameters", &r->alone));
	of_rank.comm = r->alone;
	of_rank.mesh = NULL;
	of_rank.strategy = SRT_STRATEGY_DDP;
	of_rank.norm_p = 0;
	of_rank.max_norm = 0;
	SRT_TRY(srt_engine_create(r->context, &of_rank, &r->ignored));
	return srt_unit_create(r->ignored, NULL, "ignored", &of_unit, &r->ignored_unit);
}

srt_status_t replay_ignored_build(replay_t *r)
{
	return r->ignored != NULL ? srt_engine_build(r->ignored) : SRT_OK;
}

srt_status_t replay_ignored_step(replay_t *r)
{
	return r->ignored != NULL ? srt_engine_step(r->ignored, r->stream) : SRT_OK;
}

void replay_ignored_destroy(replay_t *r)
{
	srt_engine_destroy(r->ignored);
	srt_comm_destroy(r->alone);
}

bool replay_is_ignored(const replay_t *r, const srt_param_t *p)
{
	return r->ignored != NULL && p->unit->engine == r->ignored;
}

srt_param_t *replay_find(const replay_t *r, const char *name)
{
	srt_param_t *p = srt_engine_param_find(r->engine, name);

	return p != NULL || r->ignored == NULL ? p : srt_engine_param_find(r->ignored, name);
}

srt_param_t *replay_nth(const replay_t *r, size_t i)
{
	const size_t n = r->engine->nparams;

	if (i < n || r->ignored == NULL)
		return srt_engine_param_at(r->engine, i);
	return srt_engine_param_at(r->ignored, i - n);
}

srt_status_t replay_part(const replay_t *r, const srt_param_t *p, srt_part_t *part)
{
	const srt_comm_t *comm = replay_is_ignored(r, p) ? r->alone : r->comm;

	return srt_param_part(p, srt_comm_rank(comm), part);
}
