/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Orders of destroying, with work in flight: all are safe. One mode per run, run by
 * test_lifetimes.sh:
 *
 *     orders   streams, buffers, events, communicators, collectives, an engine, a scaler and an
 *              optimizer in many orders, the context among them
 *     late     an engine is destroyed while the last rank, which is alive, keeps a gather waiting
 *     files    the descriptors that an engine keeps open do not grow with the number of ranks
 *     fork     a child by fork() destroys everything, twice; the parent goes on
 *     save     an engine is destroyed while checkpoints are being saved
 *     die      an engine is destroyed after the last rank has died, while the caller's stream still
 *              runs the engine's collectives
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/engine/engine_case.h"

#include "collectives/comm.h"

#define N 1024
#define NORDERS 12

typedef enum object {
	CONTEXT,
	STREAM,
	OTHER_STREAM,
	EVENT,
	BUFFER,
	SOURCE,
	GROUP,
	COLL,
	GROUP_COLL,
	ENGINE,
	ENGINE_SCRATCH,
	ENGINE_STREAM,
	SCALER,
	OPTIM,
	NOBJECTS,
} object_t;

typedef struct objects {
	srt_context_t *context;
	srt_stream_t *stream, *other;
	srt_event_t *event;
	srt_buffer_t *buffer, *source;
	srt_comm_t *group;
	srt_coll_t *coll, *group_coll;
	engine_case_t engine;
	srt_scaler_t *scaler;
	srt_optim_t *optim;
} objects_t;

static const srt_engine_options_t plain = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0.1f);

static atomic_int nwarnings;

static void count_warnings(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	if (level == SRT_LOG_WARN && strstr(message, " before ") != NULL)
		atomic_fetch_add(&nwarnings, 1);
}

static atomic_int nfailures;

static void count_failures(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	if (level == SRT_LOG_ERROR && strstr(message, "is gone") != NULL)
		atomic_fetch_add(&nfailures, 1);
}

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

static srt_coll_t *create_gather(const objects_t *o, srt_comm_t *comm, const char *name)
{
	srt_coll_segment_t segments[16];
	srt_coll_owner_t owners[16];
	const srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_GATHER,
		.name = name,
		.dtype = SRT_F32,
		.full = srt_view(o->buffer, 0, SRT_F32),
		.shard = srt_view(o->source, 0, SRT_F32),
		.owners = owners,
	};
	srt_coll_t *coll = NULL;

	for (int r = 0; r < srt_comm_size(comm); r++) {
		segments[r] = (srt_coll_segment_t){ (size_t)r * N, 0, N };
		owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
	}
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &coll));
	return coll;
}

static void create_optim(objects_t *o)
{
	const srt_optim_options_t options = SRT_OPTIM_ADAM_INIT;
	srt_optim_param_t param = SRT_OPTIM_PARAM_INIT;

	param.name = "p";
	param.nelem = N;
	param.value = srt_view(o->buffer, 0, SRT_F32);
	param.grad = srt_view(o->source, 0, SRT_F32);
	CHECK_OK_OR_DIE(srt_optim_create(srt_context_device(o->context), &options, 1, &param, 1,
					 &o->optim, o->stream));
}

/* Creates one object of each kind, with work in flight on all. */
static void create_objects(objects_t *o, srt_context_t *context)
{
	const int world = srt_context_world_size(context);
	srt_device_t *device = srt_context_device(context);
	int ranks[16];

	*o = (objects_t){ .context = context };
	for (int r = 0; r < world; r++)
		ranks[r] = r;
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "s", &o->stream));
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "other", &o->other));
	CHECK_OK_OR_DIE(srt_event_create(device, &o->event));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, (size_t)world * N * sizeof(float),
					  "b", &o->buffer));
	CHECK_OK_OR_DIE(
		srt_buffer_create(device, SRT_MEM_PEER, N * sizeof(float), "source", &o->source));
	CHECK_OK_OR_DIE(srt_comm_create_group(srt_context_world(context), ranks, world, "group",
					      &o->group));
	o->coll = create_gather(o, srt_context_world(context), "coll");
	o->group_coll = create_gather(o, o->group, "group coll");
	case_declare(&o->engine, context, &plain, 5);
	case_build(&o->engine);
	CHECK_OK_OR_DIE(srt_scaler_create(context, NULL, &o->scaler));
	create_optim(o);

	CHECK_OK(srt_coll_start(o->coll, NULL, o->stream));
	CHECK_OK(srt_event_record(o->event, o->stream));
	CHECK_OK(srt_stream_wait_event(o->other, o->event));
	CHECK_OK(srt_coll_start(o->group_coll, NULL, o->other));
	CHECK_OK(srt_coll_wait_readers(o->coll, o->other));
	CHECK_OK(case_step(&o->engine, 0, 1));
	CHECK_OK(case_forward(&o->engine, 1));
	CHECK_OK(srt_optim_step(o->optim, o->other));
	for (int i = 0; i < 20; i++)
		CHECK_OK(srt_op_scale(srt_view(o->buffer, 0, SRT_F32),
				      srt_view(o->buffer, 0, SRT_F32), 1.01f, N, o->other));
}

static void destroy_object(objects_t *o, object_t which)
{
	switch (which) {
	case CONTEXT:
		srt_context_destroy(o->context);
		break;
	case STREAM:
		srt_stream_destroy(o->stream);
		break;
	case OTHER_STREAM:
		srt_stream_destroy(o->other);
		break;
	case EVENT:
		srt_event_destroy(o->event);
		break;
	case BUFFER:
		srt_buffer_destroy(o->buffer);
		break;
	case SOURCE:
		srt_buffer_destroy(o->source);
		break;
	case GROUP:
		srt_comm_destroy(o->group);
		break;
	case COLL:
		srt_coll_destroy(o->coll);
		break;
	case GROUP_COLL:
		srt_coll_destroy(o->group_coll);
		break;
	case ENGINE:
		srt_engine_destroy(o->engine.engine);
		break;
	case ENGINE_SCRATCH:
		srt_buffer_destroy(o->engine.scratch);
		break;
	case ENGINE_STREAM:
		srt_stream_destroy(o->engine.stream);
		break;
	case SCALER:
		srt_scaler_destroy(o->scaler);
		break;
	case OPTIM:
		srt_optim_destroy(o->optim);
		break;
	case NOBJECTS:
		break;
	}
}

/* Destroys the objects from `first` in an order; number 0: the reverse of creating, 1: the order of
 * creating, else a random one. */
static void destroy_in_order(objects_t *o, int number, int first)
{
	int order[NOBJECTS];

	for (int i = 0; i < NOBJECTS; i++)
		order[i] = number == 0 ? NOBJECTS - 1 - i : i;
	for (int i = NOBJECTS - 1; number > 1 && i > 0; i--) {
		int j = (int)((case_random((uint32_t)number, (uint32_t)i, 0, 0) + 1) / 2 *
			      (float)(i + 1)) %
			(i + 1);
		int t = order[i];

		order[i] = order[j];
		order[j] = t;
	}
	for (int i = 0; i < NOBJECTS; i++) {
		if (order[i] >= first)
			destroy_object(o, (object_t)order[i]);
	}
}

/*
 * A world of one rank: a context each time. Others join once: the context is the last, and in the
 * last order the first.
 *
 * Reliability: objects destroyed in a wrong order | use of freed memory | safe, with a warning
 */
static void run_orders(srt_context_t *context)
{
	const srt_context_options_t alone = { .size = sizeof(alone), .bootstrap = "" };
	const bool joins_once = srt_context_world_size(context) > 1;
	objects_t o;

	srt_context_world(context)->bootstrap->close_s = 600; /* on a slow machine too */
	srt_log_set(count_warnings, SRT_LOG_WARN, NULL);
	for (int number = 0; number < NORDERS; number++) {
		srt_context_t *one = context;

		atomic_store(&nwarnings, 0);
		if (!joins_once)
			CHECK_OK_OR_DIE(srt_context_create(&alone, &one));
		create_objects(&o, one);
		destroy_in_order(&o, number, joins_once ? STREAM : CONTEXT);
		CHECK_MSG(number != 0 || atomic_load(&nwarnings) == 0, "the right order warns");
		CHECK_MSG(number != 1 || atomic_load(&nwarnings) > 0, "a wrong order is silent");
		if (joins_once)
			CHECK_OK(srt_comm_oob_allgather(srt_context_world(context), NULL, 0, NULL));
	}
	atomic_store(&nwarnings, 0);
	create_objects(&o, context);
	CHECK_OK(srt_stream_sync(o.stream));
	CHECK_OK(srt_comm_oob_allgather(srt_context_world(context), NULL, 0, NULL));
	destroy_object(&o, CONTEXT);
	CHECK(atomic_load(&nwarnings) > 0);
	if (joins_once) {
		CHECK_STATUS(srt_coll_start(o.coll, NULL, o.stream), SRT_ERR_STATE);
		CHECK_ERROR_HAS("destroyed communicator \"world\"");
		CHECK_STATUS(srt_coll_start(o.group_coll, NULL, o.stream), SRT_ERR_STATE);
		CHECK_ERROR_HAS("destroyed the context");
	}
	destroy_in_order(&o, 2, STREAM);
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
}

/*
 * Reliability: a child by fork() that destroys a scaler or an optimizer | it is freed there | left
 * alone, as all objects
 */
static void run_fork(srt_context_t *context)
{
	objects_t o;
	pid_t child;
	int status = -1;

	create_objects(&o, context);
	child = fork();
	CHECK_OR_DIE(child >= 0);
	if (child == 0) {
		destroy_in_order(&o, 0, CONTEXT);
		destroy_in_order(&o, 1, CONTEXT);
		_exit(0);
	}
	CHECK_INT(waitpid(child, &status, 0), child);
	CHECK_INT(status, 0);
	CHECK_OK(srt_optim_step(o.optim, o.other));
	CHECK_OK(srt_stream_sync(o.other));
	destroy_in_order(&o, 0, STREAM);
}

/* ---- other ranks --------------------------------------------------------------------------- */

/* Built; the first step is done on all ranks. */
static void build_engine(srt_context_t *context, engine_case_t *c)
{
	case_declare(c, context, &plain, 5);
	case_build(c);
	CHECK_OK(case_step(c, 0, 1));
	CHECK_OK(srt_stream_sync(c->stream));
	CHECK_OK(srt_comm_oob_allgather(srt_context_world(context), NULL, 0, NULL));
}

static int count_files(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* One for each of this rank's own buffers that peers map. */
static void run_files(srt_context_t *context)
{
	const int before = count_files();
	engine_case_t c;

	build_engine(context, &c);
	CHECK_MSG(count_files() - before <= 6, "%d descriptors, %d before", count_files(), before);
	case_destroy(&c);
	CHECK_INT(count_files(), before);
}

/*
 * Reliability: an engine destroyed while a rank is late | waits for that rank, up to 600 s |
 * returns after 0.5 s; the other ranks get the reason
 */
static void run_late(srt_context_t *context)
{
	srt_comm_t *world = srt_context_world(context);
	const bool is_late = srt_comm_rank(world) == srt_comm_size(world) - 1;
	engine_case_t c;
	double start;

	build_engine(context, &c);
	if (is_late) {
		while (!srt_comm_poisoned(world))
			sleep_ms(1);
	} else {
		CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
		start = srt_now_s();
		srt_engine_destroy(c.engine);
		CHECK_WITHIN(1, start);
		CHECK_STATUS(srt_stream_sync(c.stream), SRT_ERR_ABORTED);
		CHECK_ERROR_HAS("destroyed the engine while all-gather of");
	}
	CHECK_STATUS(srt_comm_oob_allgather(world, NULL, 0, NULL), SRT_ERR_ABORTED);
	CHECK_ERROR_HAS("destroyed the engine while all-gather of");
	if (is_late)
		srt_engine_destroy(c.engine);
	srt_buffer_destroy(c.scratch);
	srt_stream_destroy(c.stream);
}

/*
 * Reliability: an engine destroyed while a save is open | SIGSEGV, in the save's thread or at its
 * end | a warning; the end is an error
 */
static void run_save(srt_context_t *context)
{
	srt_checkpoint_write_t *writes[2];
	char folder[64];
	engine_case_t c;

	srt_log_set(count_warnings, SRT_LOG_WARN, NULL);
	build_engine(context, &c);
	for (int i = 0; i < 2; i++) {
		srt_status_t status;

		snprintf(folder, sizeof(folder), "tests/engine/test_lifetimes.dir/%d", i);
		status = srt_checkpoint_save_begin(c.engine, folder, NULL, &writes[i], c.stream);
		if (status == SRT_ERR_UNSUPPORTED)
			CHECK_SKIP("%s", srt_error_last());
		CHECK_OK_OR_DIE(status);
	}
	srt_engine_destroy(c.engine);
	CHECK_INT(atomic_load(&nwarnings), 2);
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(srt_checkpoint_save_end(writes[i]), SRT_ERR_STATE);
		CHECK_ERROR_HAS("the engine was destroyed before");
	}
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	srt_buffer_destroy(c.scratch);
	srt_stream_destroy(c.stream);
}

/*
 * Reliability: an engine destroyed after a death, with work in flight | use of freed memory,
 * SIGSEGV | a clean end
 *
 * Reliability: the death of a rank, in the log | no word | one message
 */
static void run_die(srt_context_t *context)
{
	srt_comm_t *world = srt_context_world(context);
	srt_buffer_t *losses;
	engine_case_t c;

	srt_log_set(count_failures, SRT_LOG_WARN, NULL);
	build_engine(context, &c);
	if (srt_comm_rank(world) == srt_comm_size(world) - 1)
		raise(SIGKILL);
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE, 4096,
					  "losses", &losses));
	/* SRT_OK, unless the death is known already. */
	(void)srt_engine_sum(c.engine, srt_view(losses, 0, SRT_F32), 16, 64,
			     srt_view(losses, 2048, SRT_F32), c.stream);
	CHECK_STATUS(srt_comm_oob_allgather(world, NULL, 0, NULL), SRT_ERR_PEER_DEAD);
	srt_engine_destroy(c.engine);
	while (atomic_load(&nfailures) == 0) /* by the progress thread */
		sleep_ms(1);
	srt_buffer_destroy(losses);
	CHECK_STATUS(srt_coll_start(NULL, NULL, c.stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_INT(atomic_load(&nfailures), 1); /* the death, once */
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	printf("rank %d survives\n", srt_comm_rank(world));
	srt_buffer_destroy(c.scratch);
	srt_stream_destroy(c.stream);
}

int main(int argc, char **argv)
{
	const char *mode = argc == 2 ? argv[1] : "";
	srt_context_t *context;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	if (strcmp(mode, "orders") == 0) {
		run_orders(context);
		return check_done();
	}
	if (strcmp(mode, "late") == 0)
		run_late(context);
	else if (strcmp(mode, "fork") == 0)
		run_fork(context);
	else if (strcmp(mode, "files") == 0)
		run_files(context);
	else if (strcmp(mode, "save") == 0)
		run_save(context);
	else if (strcmp(mode, "die") == 0)
		run_die(context);
	else
		CHECK_MSG(0, "no such mode: %s", mode);
	srt_context_destroy(context);
	return check_done();
}
