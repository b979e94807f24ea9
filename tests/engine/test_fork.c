/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In a child by fork() of a rank, calls that talk to other ranks are refused at once, and the
 * parent goes on. Run by test_lifetimes.sh.
 *
 * Reliability: a call that talks to other ranks, in a child by fork() | waited for 5 s or more, and
 * then said that another rank had left | refused at once, with the reason
 */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine/engine_case.h"

#define LIMIT_S 100 /* for a call that waits; not for one that is right */

static const srt_engine_options_t zero3 = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0.1f);

/* In the child: its checks are not those of the parent. */
#define REFUSED(call)                                                                              \
	do {                                                                                       \
		alarm(LIMIT_S);                                                                    \
		CHECK_STATUS(call, SRT_ERR_STATE);                                                 \
		CHECK_ERROR_HAS("child by fork()");                                                \
	} while (0)

/* The calls on the world. */
static void call_comm(srt_context_t *context)
{
	static const char *const names[] = { "shard" };
	static const srt_shard_location_t locations[] = { { .rank = 0 } };
	const srt_sharding_t sharding = { .size = sizeof(sharding),
					  .locations = locations,
					  .nlocations = 1 };
	srt_comm_t *world = srt_context_world(context), *group;
	const int shape[] = { srt_comm_size(world) }, ranks[] = { 0, 1 };
	srt_sharded_tensor_t *tensor;
	srt_scaler_t *scaler;
	srt_mesh_t *mesh;

	REFUSED(srt_comm_oob_allgather(world, NULL, 0, NULL));
	REFUSED(srt_comm_split(world, 0, "group", &group));
	REFUSED(srt_comm_create_group(world, ranks, 2, "group", &group));
	REFUSED(srt_mesh_create(world, 1, shape, names, &mesh));
	REFUSED(srt_scaler_create(context, NULL, &scaler));
	REFUSED(srt_sharded_tensor_create(context, NULL, "t", SRT_F32, 1, (const int64_t[]){ 8 },
					  &sharding, &tensor));
}

/* The calls on an engine between steps. */
static void call_engine(engine_case_t *c, srt_context_t *context, const char *path)
{
	srt_checkpoint_write_t *write;
	unsigned char hash[16];
	srt_engine_t *engine;
	srt_unit_t *unit;
	float values[4096];

	REFUSED(srt_unit_forward_begin(c->root, c->stream));
	REFUSED(srt_engine_hash(c->engine, hash, c->stream));
	REFUSED(srt_engine_save(c->engine, path, NULL, 0, c->stream));
	REFUSED(srt_engine_load(c->engine, path, c->stream));
	REFUSED(srt_checkpoint_save(c->engine, path, NULL, c->stream));
	REFUSED(srt_checkpoint_save_begin(c->engine, path, NULL, &write, c->stream));
	REFUSED(srt_checkpoint_load(c->engine, path, NULL, c->stream));
	REFUSED(srt_unit_full_params_begin(c->root, NULL, c->stream));
	REFUSED(srt_engine_reset(c->engine));
	REFUSED(srt_param_get(c->param[0], SRT_PARAM_VALUE, values, c->stream));
	REFUSED(srt_engine_sum(c->engine, srt_view(c->scratch, 0, SRT_F32), 1, 2,
			       srt_view(c->scratch, 64, SRT_F32), c->stream));
	CHECK_OK(srt_engine_create(context, &zero3, &engine));
	CHECK_OK(srt_unit_create(engine, NULL, "model", NULL, &unit));
	REFUSED(srt_engine_build(engine));
}

typedef enum when { BETWEEN_STEPS, AFTER_BACKWARD, AFTER_REDUCTION } when_t;

static void in_child(engine_case_t *c, srt_context_t *context, when_t when)
{
	const pid_t child = fork();
	int status = -1;

	CHECK_OR_DIE(child >= 0);
	if (child == 0) {
		if (when == BETWEEN_STEPS) {
			call_comm(context);
			call_engine(c, context, "no-such-folder/file");
		} else if (when == AFTER_BACKWARD) {
			REFUSED(srt_engine_finish_backward(c->engine, c->stream));
		} else {
			REFUSED(srt_engine_clip(c->engine, 2, 1.0f, c->stream));
		}
		if (when != BETWEEN_STEPS)
			REFUSED(srt_engine_step(c->engine, c->stream));
		_exit(check_done());
	}
	CHECK_INT(waitpid(child, &status, 0), child);
	CHECK_INT(status, 0);
}

int main(void)
{
	srt_context_t *context = NULL;
	engine_case_t c;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	case_declare(&c, context, &zero3, 5);
	case_build(&c);
	CHECK_OK(case_step(&c, 0, 1));
	in_child(&c, context, BETWEEN_STEPS);
	CHECK_OK(case_passes(&c, 1, 1));
	in_child(&c, context, AFTER_BACKWARD);
	CHECK_OK(srt_engine_finish_backward(c.engine, c.stream));
	in_child(&c, context, AFTER_REDUCTION);
	CHECK_OK(srt_engine_step(c.engine, c.stream));
	CHECK_OK(case_step(&c, 2, 1));
	CHECK_OK(srt_stream_sync(c.stream));
	case_wait_for_all(context);
	case_destroy(&c);
	srt_context_destroy(context);
	return check_done();
}
