/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank of a fault trial: a whole program, whose calls are drawn by a seed, in which one rank may
 * fail. Started by fault_trials.c.
 *
 *     fault_job run FOLDER SEED [RANK FAULT MOMENT DELAY_NS]   RANK fails (fault_point.h)
 *     fault_job check FOLDER                                   alone: loads the latest checkpoint,
 *                                                              then saves one
 *
 * In FOLDER are the records of the ranks and `saves`, the folder of the checkpoints. Ranks learn
 * their place from the library, so that any launcher may start them. The exit status is 0, or 3 if
 * a call has failed.
 */
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/engine/engine_case.h"
#include "tests/engine/fault_point.h"
#include "tests/harness/job.h"

#define N 3000
#define MAX_RANKS 16
#define EXIT_FAILED 3

typedef enum draw {
	DRAW_STRATEGY,
	DRAW_OPTIONS,
	DRAW_GROUP,
	DRAW_ORDER,
	DRAW_COLL,
	DRAW_END
} draw_t;

enum { NKINDS = SRT_COLL_SEND_RECV + 1 };

/* A collective of each kind on one communicator. */
typedef struct collectives {
	srt_comm_t *comm;
	srt_buffer_t *full[NKINDS], *shard[NKINDS];
	srt_coll_t *coll[NKINDS];
	bool started[NKINDS];
} collectives_t;

typedef struct program {
	uint64_t seed;
	char saves[512];
	srt_context_t *context;
	int rank, size;
	srt_stream_t *streams[2]; /* of collectives */
	collectives_t of_world, of_group;
	srt_mesh_t *mesh;
	srt_scaler_t *scaler;
	engine_case_t model;
	bool has_model;
	srt_checkpoint_write_t *write;
	int nrounds, nsteps, nsaves;
} program_t;

static uint64_t draw(const program_t *p, draw_t what, int i)
{
	return job_noise(p->seed * 16 + (uint64_t)what, (uint64_t)i);
}

/* ---- collectives --------------------------------------------------------------------------- */

static srt_status_t make_buffers(program_t *p, collectives_t *c)
{
	const size_t nbytes = (size_t)(srt_comm_size(c->comm) + 1) * N * sizeof(float);

	for (int k = 0; k < NKINDS; k++) {
		SRT_TRY(srt_buffer_create(srt_context_device(p->context),
					  srt_comm_mem_kind(c->comm), nbytes, "full", &c->full[k]));
		SRT_TRY(srt_buffer_create(srt_context_device(p->context),
					  srt_comm_mem_kind(c->comm), nbytes, "shard",
					  &c->shard[k]));
	}
	return SRT_OK;
}

/* One collective of each kind. With more than two ranks the last one owns nothing. */
static srt_status_t make_collectives(program_t *p, collectives_t *c)
{
	const int size = srt_comm_size(c->comm);
	srt_coll_segment_t segments[MAX_RANKS];
	srt_coll_owner_t owners[MAX_RANKS];
	srt_coll_message_t messages[MAX_RANKS];
	char name[32];

	for (int r = 0; r < size; r++) {
		const size_t nelem = size > 2 && r == size - 1 ? 0 : N - (size_t)r;

		segments[r] = (srt_coll_segment_t){ (size_t)r * N, 0, nelem };
		owners[r] = (srt_coll_owner_t){ &segments[r], nelem > 0 };
		messages[r] = (srt_coll_message_t){ r, (r + 1) % size, 0, 0, nelem };
	}
	DO(make_buffers(p, c));
	for (int k = 0; k < NKINDS; k++) {
		const srt_coll_desc_t desc = {
			.size = sizeof(srt_coll_desc_t),
			.kind = (srt_coll_kind_t)k,
			.name = name,
			.dtype = SRT_F32,
			.full = srt_view(c->full[k], 0, SRT_F32),
			.shard = srt_view(c->shard[k], 0, SRT_F32),
			.owners = owners,
			.split = N / 2,
			.messages = messages,
			.nmessages = (size_t)size,
		};

		snprintf(name, sizeof(name), "layer %d", k);
		DO(srt_coll_create(c->comm, &desc, &c->coll[k]));
	}
	return SRT_OK;
}

/* Several starts in flight on two streams. */
static srt_status_t run_collectives(program_t *p, collectives_t *c)
{
	const int round = p->nrounds++;

	if (c->comm == NULL) /* this rank is not in the group */
		return SRT_OK;
	for (int i = 0; i < 6; i++) {
		const int k = (int)(draw(p, DRAW_COLL, round * 6 + i) % NKINDS);

		if (c->started[k])
			DO(srt_coll_wait_readers(c->coll[k], p->streams[k % 2]));
		c->started[k] = true;
		DO(srt_coll_start(c->coll[k], NULL, p->streams[k % 2]));
	}
	DO(srt_stream_sync(p->streams[0]));
	DO(srt_stream_sync(p->streams[1]));
	return SRT_OK;
}

static void end_collectives(collectives_t *c)
{
	for (int k = 0; k < NKINDS; k++) {
		srt_coll_destroy(c->coll[k]);
		srt_buffer_destroy(c->full[k]);
		srt_buffer_destroy(c->shard[k]);
	}
}

/* A group of all ranks but one, if there are more than two. */
static srt_status_t make_group(program_t *p)
{
	const int left_out = p->size > 2 ? (int)(draw(p, DRAW_GROUP, 0) % (uint64_t)p->size) : -1;
	int ranks[MAX_RANKS], n = 0;

	for (int r = 0; r < p->size; r++) {
		if (r != left_out)
			ranks[n++] = r;
	}
	DO(srt_comm_create_group(srt_context_world(p->context), ranks, n, "group",
				 &p->of_group.comm));
	return p->of_group.comm == NULL ? SRT_OK : make_collectives(p, &p->of_group);
}

/* Two groups that live for a moment. */
static srt_status_t use_split(program_t *p, srt_comm_t **comm)
{
	srt_comm_t *world = srt_context_world(p->context);
	char all[MAX_RANKS], mine = (char)p->rank;

	DO(srt_comm_split(world, p->rank % 2, "half", comm));
	DO(srt_comm_oob_allgather(*comm, &mine, 1, all));
	return SRT_OK;
}

/* ---- the engine ------------------------------------------------------------------------ */

static srt_status_t make_mesh(program_t *p, srt_engine_options_t *options)
{
	static const char *const names[] = { "replicate", "shard" };
	const int nreplicas = p->size % 2 == 0 ? 2 : 1;
	const int shape[] = { nreplicas, p->size / nreplicas };

	DO(srt_mesh_create(srt_context_world(p->context), 2, shape, names, &p->mesh));
	options->mesh = p->mesh;
	return SRT_OK;
}

/* Every second program has zero3. */
static srt_status_t make_engine(program_t *p)
{
	static const srt_strategy_t others[] = { SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO1,
						 SRT_STRATEGY_ZERO2, SRT_STRATEGY_HYBRID };
	const uint64_t which = draw(p, DRAW_STRATEGY, 0), bits = draw(p, DRAW_OPTIONS, 0);
	srt_engine_options_t options =
		case_adamw(which % 2 == 0 ? SRT_STRATEGY_ZERO3 : others[which / 2 % 4]);

	options.microbatches = 2;
	options.prefetch = bits & 1 ? 2 : 1;
	options.accumulation = bits & 2 ? SRT_ACCUMULATE_LAST : SRT_ACCUMULATE_EVERY;
	if (options.strategy == SRT_STRATEGY_HYBRID)
		SRT_TRY(make_mesh(p, &options));
	if (bits & 4)
		DO(srt_scaler_create(p->context, NULL, &p->scaler));
	case_declare(&p->model, p->context, &options, 5);
	p->has_model = true;
	DO(srt_engine_build(p->model.engine));
	for (size_t i = 0; i < p->model.nparams; i++)
		DO(srt_param_init_normal(p->model.param[i], 1, 0.0f, 0.5f, p->model.stream));
	return SRT_OK;
}

/* Every second step is still in flight when it returns. */
static srt_status_t run_step(program_t *p)
{
	engine_case_t *c = &p->model;

	if (p->scaler != NULL)
		(void)test_scaler_view(p->scaler); /* the loss is scaled */
	DO(case_passes(c, p->nsteps, 1 + p->nsteps % 2));
	if (p->scaler == NULL) {
		DO(srt_engine_step(c->engine, c->stream));
	} else {
		DO(srt_scaler_step(p->scaler, c->engine, c->stream));
		DO(srt_scaler_update(p->scaler, c->stream));
	}
	if (p->nsteps++ % 2 == 0)
		DO(srt_stream_sync(c->stream));
	return SRT_OK;
}

/* ---- files --------------------------------------------------------------------------------- */

/* A build without jansson or libxxhash has no checkpoints. */
static bool not_built;

static srt_status_t if_built(srt_status_t status)
{
	not_built = not_built || status == SRT_ERR_UNSUPPORTED;
	return not_built ? SRT_OK : status;
}

#define DO_IF_BUILT(call) DO_AS(#call, if_built(call))

static void record_save(program_t *p)
{
	if (!not_built)
		fault_record("saved %d", p->nsaves);
	p->nsaves++;
}

static srt_checkpoint_options_t save_options(program_t *p)
{
	return (srt_checkpoint_options_t){ .size = sizeof(srt_checkpoint_options_t),
					   .scaler = p->scaler };
}

static void save_path(const program_t *p, int n, char path[600])
{
	snprintf(path, 600, "%s/save-%d", p->saves, n);
}

static srt_status_t save(program_t *p)
{
	const srt_checkpoint_options_t options = save_options(p);
	char path[600];

	save_path(p, p->nsaves, path);
	DO_IF_BUILT(srt_checkpoint_save(p->model.engine, path, &options, p->model.stream));
	record_save(p);
	return SRT_OK;
}

static srt_status_t save_during_step(program_t *p)
{
	const srt_checkpoint_options_t options = save_options(p);
	char path[600];
	srt_checkpoint_write_t *write;

	save_path(p, p->nsaves, path);
	DO_IF_BUILT(srt_checkpoint_save_begin(p->model.engine, path, &options, &p->write,
					      p->model.stream));
	SRT_TRY(run_step(p));
	if (p->write == NULL)
		return SRT_OK;
	write = p->write;
	p->write = NULL;
	DO(srt_checkpoint_save_end(write));
	record_save(p);
	return SRT_OK;
}

static srt_status_t load(program_t *p)
{
	const srt_checkpoint_options_t options = save_options(p);
	char path[600];

	if (p->nsaves == 0)
		SRT_TRY(save(p));
	save_path(p, p->nsaves - 1, path);
	DO_IF_BUILT(srt_checkpoint_load(p->model.engine, path, &options, p->model.stream));
	return SRT_OK;
}

static srt_status_t save_and_load_file(program_t *p)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/model.safetensors", p->saves);
	DO(srt_engine_save(p->model.engine, path, NULL, 0, p->model.stream));
	DO(srt_engine_load(p->model.engine, path, p->model.stream));
	return SRT_OK;
}

/* ---- the program --------------------------------------------------------------------------- */

static srt_status_t open_context(program_t *p)
{
	DO(srt_context_create(NULL, &p->context));
	fault_set_world(srt_context_world(p->context));
	p->rank = srt_context_rank(p->context);
	p->size = srt_context_world_size(p->context);
	CHECK_OR_DIE(p->size <= MAX_RANKS);
	for (int i = 0; i < 2; i++)
		DO(srt_stream_create(srt_context_device(p->context), 0, "collectives",
				     &p->streams[i]));
	return SRT_OK;
}

typedef enum action {
	ACTION_WORLD,
	ACTION_GROUP,
	ACTION_SPLIT,
	ACTION_STEP,
	ACTION_SAVE,
	ACTION_SAVE_DURING_STEP,
	ACTION_LOAD,
	ACTION_FILE,
	NACTIONS,
} action_t;

static srt_status_t act(program_t *p, action_t action)
{
	srt_comm_t *half = NULL;
	srt_status_t status;

	switch (action) {
	case ACTION_WORLD:
		return run_collectives(p, &p->of_world);
	case ACTION_GROUP:
		return run_collectives(p, &p->of_group);
	case ACTION_SPLIT:
		status = use_split(p, &half);
		srt_comm_destroy(half);
		return status;
	case ACTION_STEP:
		return run_step(p);
	case ACTION_SAVE:
		return save(p);
	case ACTION_SAVE_DURING_STEP:
		return save_during_step(p);
	case ACTION_LOAD:
		return load(p);
	case ACTION_FILE:
		return save_and_load_file(p);
	case NACTIONS:
		break;
	}
	return SRT_OK;
}

/* Every action, in an order of the seed, with steps and collectives between them. */
static srt_status_t act_all(program_t *p)
{
	action_t order[NACTIONS];

	for (int i = 0; i < NACTIONS; i++) {
		const int j = (int)(draw(p, DRAW_ORDER, i) % (uint64_t)(i + 1));

		order[i] = order[j];
		order[j] = (action_t)i;
	}
	for (int i = 0; i < NACTIONS; i++) {
		SRT_TRY(act(p, order[i]));
		SRT_TRY(act(p, draw(p, DRAW_ORDER, NACTIONS + i) % 2 ? ACTION_STEP : ACTION_GROUP));
	}
	return SRT_OK;
}

static srt_status_t run(program_t *p)
{
	char all[MAX_RANKS], mine = 0;

	SRT_TRY(open_context(p));
	p->of_world.comm = srt_context_world(p->context);
	SRT_TRY(make_collectives(p, &p->of_world));
	SRT_TRY(make_group(p));
	SRT_TRY(run_collectives(p, &p->of_world));
	SRT_TRY(make_engine(p));
	SRT_TRY(act_all(p));
	DO(srt_stream_sync(p->model.stream));
	fault_record("final %ld", fault_ncalls() + 1);
	DO(srt_comm_oob_allgather(srt_context_world(p->context), &mine, 1, all));
	return SRT_OK;
}

static void end(program_t *p)
{
	fault_point("srt_checkpoint_save_end");
	if (p->write != NULL)
		(void)srt_checkpoint_save_end(p->write);
	fault_point("srt_engine_destroy");
	if (p->has_model)
		case_destroy(&p->model);
	srt_scaler_destroy(p->scaler);
	srt_mesh_destroy(p->mesh);
	fault_point("srt_coll_destroy");
	end_collectives(&p->of_group);
	end_collectives(&p->of_world);
	fault_point("srt_comm_destroy");
	srt_comm_destroy(p->of_group.comm);
	srt_stream_destroy(p->streams[0]);
	srt_stream_destroy(p->streams[1]);
	fault_set_world(NULL);
	fault_point("srt_context_destroy");
	srt_context_destroy(p->context);
}

/* Leaves in order. The other ranks do not end the save, so it cannot be ended here. */
static void leave(void *arg)
{
	program_t *p = arg;

	if (p->write != NULL)
		srt_comm_abort(srt_context_world(p->context), "it leaves during a save");
	end(p);
}

static fault_t find_fault(const char *name)
{
	for (int i = 0; i < NFAULTS; i++) {
		if (strcmp(name, fault_names[i]) == 0)
			return (fault_t)i;
	}
	CHECK_OR_DIE(!"a fault");
	return FAULT_NONE;
}

/* The latest checkpoint is complete, and the next save removes what killed ones have left. */
static void check_saves(program_t *p)
{
	const srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	char path[600];

	CHECK_OK_OR_DIE(srt_context_create(NULL, &p->context));
	case_declare(&p->model, p->context, &options, 5);
	case_build(&p->model);
	CHECK_OK_OR_DIE(srt_checkpoint_latest(p->saves, path, sizeof(path)));
	printf("%s\n", path);
	CHECK_OK_OR_DIE(srt_checkpoint_load(p->model.engine, path, NULL, p->model.stream));
	snprintf(path, sizeof(path), "%s/next", p->saves);
	CHECK_OK(srt_checkpoint_save(p->model.engine, path, NULL, p->model.stream));
	snprintf(path, sizeof(path), "%s/model.safetensors", p->saves);
	CHECK_OK(srt_engine_save(p->model.engine, path, NULL, 0, p->model.stream));
	case_destroy(&p->model);
	srt_context_destroy(p->context);
}

int main(int argc, char **argv)
{
	static program_t p;
	const struct rlimit no_core = { 0, 0 };
	const int rank = fault_rank();
	srt_status_t status;

	CHECK_OR_DIE(argc >= 3);
	snprintf(p.saves, sizeof(p.saves), "%s/saves", argv[2]);
	if (strcmp(argv[1], "check") == 0) {
		check_saves(&p);
		return check_done();
	}
	CHECK_OR_DIE(argc == 4 || argc == 8);
	CHECK_OR_DIE(rank >= 0);
	setrlimit(RLIMIT_CORE, &no_core);
	p.seed = strtoull(argv[3], NULL, 10);
	fault_open(argv[2], rank);
	if (argc == 8 && rank == atoi(argv[4]))
		fault_plan(find_fault(argv[5]), atol(argv[6]), atol(argv[7]), leave, &p);
	status = run(&p);
	if (status == SRT_OK)
		CHECK_INT(p.rank, rank);
	/* A program that gives up may destroy what it has, or not. */
	if (status != SRT_OK && draw(&p, DRAW_END, rank) % 2 == 0)
		return EXIT_FAILED;
	end(&p);
	if (status != SRT_OK)
		return EXIT_FAILED;
	fault_record("done %lld", fault_now_ns());
	return check_done();
}
