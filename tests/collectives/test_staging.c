/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is particular to staged collectives: bounce buffers that streams share, bounce buffers that
 * come and go, slots that the ranks do not agree on; and how many host functions a start of each
 * kind costs, on either transport. Run by test_staging.sh with slots of 1 KiB.
 */
#include <time.h>

#include "collectives/collective.h"
#include "collectives/transports/hierarchy/hierarchy.h"
#include "tests/harness/job.h"

#define N 3000 /* elements of a rank: some rounds */
#define MAX_WORLD 64

static srt_coll_owner_t owners[MAX_WORLD];
static srt_coll_segment_t segments[MAX_WORLD];

static void make_owners(const job_t *job)
{
	for (int r = 0; r < job->size; r++) {
		segments[r] = (srt_coll_segment_t){ (size_t)r * N, 0, N };
		owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
	}
}

typedef struct sides {
	srt_buffer_t *full_buffer, *shard_buffer;
	float *full, *shard;
	srt_view_t whole, part;
} sides_t;

static void open_sides(job_t *job, sides_t *s)
{
	s->full_buffer = job_buffer(job, (size_t)job->size * N, "full", &s->full);
	s->shard_buffer = job_buffer(job, N, "shard", &s->shard);
	s->whole = srt_view(s->full_buffer, 0, SRT_F32);
	s->part = srt_view(s->shard_buffer, 0, SRT_F32);
}

static void close_sides(sides_t *s)
{
	job_drop(s->shard_buffer, s->shard);
	job_drop(s->full_buffer, s->full);
}

static srt_coll_t *make(job_t *job, srt_coll_kind_t kind, const sides_t *s, const char *name)
{
	srt_coll_t *coll = NULL;
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = kind,
		.name = name,
		.dtype = SRT_F32,
		.full = s->whole,
		.shard = s->part,
		.owners = owners,
	};

	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	return coll;
}

static srt_status_t nap(void *arg)
{
	nanosleep(&(struct timespec){ .tv_nsec = (long)(uintptr_t)arg }, NULL);
	return SRT_OK;
}

/* Naps at places that differ by rank and stream. */
static void delay(job_t *job, srt_stream_t *stream, int k, int which)
{
	uint64_t z = job_noise((uint64_t)(job->rank * 2 + which), (uint64_t)k);

	if (z % 3 == 0)
		CHECK_OK(srt_stream_host_fn(stream, nap, (void *)(uintptr_t)(z % 900000)));
}

/* ---- bounce buffers ------------------------------------------------------------------------ */

/* Two gathers and a sum on two streams that no event orders: the starts of a set of bounce buffers
 * run in turn on whatever stream they are. */
static void two_streams(job_t *job)
{
	enum { ROUNDS = 25 };
	srt_coll_epilogue_t add = SRT_COLL_EPILOGUE_INIT;
	srt_stream_t *other = NULL;
	sides_t a, b, c;
	srt_coll_t *gather_a, *gather_b, *sum;
	double n = job->size, want = 0;

	add.accumulate = 1;
	CHECK_OK_OR_DIE(srt_stream_create(job->device, 0, "other", &other));
	open_sides(job, &a);
	open_sides(job, &b);
	open_sides(job, &c);
	gather_a = make(job, SRT_COLL_ALL_GATHER, &a, "first");
	gather_b = make(job, SRT_COLL_ALL_GATHER, &b, "second");
	sum = make(job, SRT_COLL_REDUCE_SCATTER, &c, "sum");
	for (int k = 1; k <= ROUNDS; k++) {
		delay(job, job->stream, k, 0);
		CHECK_OK(srt_coll_wait_readers(gather_a, job->stream));
		CHECK_OK(srt_op_fill(a.part, (float)(k * 100 + job->rank), N, job->stream));
		CHECK_OK_OR_DIE(srt_coll_start(gather_a, NULL, job->stream));
		delay(job, other, k, 1);
		CHECK_OK(srt_coll_wait_readers(gather_b, other));
		CHECK_OK(srt_op_fill(b.part, (float)(k * 100 - job->rank), N, other));
		CHECK_OK_OR_DIE(srt_coll_start(gather_b, NULL, other));
		CHECK_OK(srt_coll_wait_readers(sum, other));
		CHECK_OK(srt_op_fill(c.whole, (float)(k + job->rank), N * job->size, other));
		CHECK_OK_OR_DIE(srt_coll_start(sum, &add, other));
		want += n * k + n * (n - 1) / 2;
	}
	CHECK_OK_OR_DIE(srt_stream_sync(job->stream));
	CHECK_OK_OR_DIE(srt_stream_sync(other));
	job_get(job, a.full, a.full_buffer);
	job_get(job, b.full, b.full_buffer);
	job_get(job, c.shard, c.shard_buffer);
	for (int r = 0; r < job->size; r++) {
		for (size_t i = 0; i < N; i += 7) {
			CHECK(a.full[(size_t)r * N + i] == (float)(ROUNDS * 100 + r));
			CHECK(b.full[(size_t)r * N + i] == (float)(ROUNDS * 100 - r));
		}
	}
	for (size_t i = 0; i < N; i += 7)
		CHECK(c.shard[i] == (float)want);
	CHECK_OK(srt_coll_wait_readers(gather_a, job->stream));
	CHECK_OK(srt_coll_wait_readers(gather_b, job->stream));
	CHECK_OK(srt_coll_wait_readers(sum, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(sum);
	srt_coll_destroy(gather_b);
	srt_coll_destroy(gather_a);
	close_sides(&c);
	close_sides(&b);
	close_sides(&a);
	srt_stream_destroy(other);
}

static void run_gather(job_t *job, srt_coll_t *gather, sides_t *s, float mark)
{
	CHECK_OK(srt_op_fill(s->part, mark + (float)job->rank, N, job->stream));
	CHECK_OK_OR_DIE(srt_coll_start(gather, NULL, job->stream));
	/* Another one may be the next to read the same shard. */
	CHECK_OK(srt_coll_wait_readers(gather, job->stream));
	job_get(job, s->full, s->full_buffer);
	for (int r = 0; r < job->size; r++)
		CHECK(s->full[(size_t)r * N] == mark + (float)r &&
		      s->full[(size_t)r * N + N - 1] == mark + (float)r);
}

/* What a plan says that such collectives allocate. */
static size_t plan_scratch(const job_t *job, srt_coll_uses_t uses)
{
	srt_coll_memory_t memory;

	CHECK_OK(srt_coll_plan(job->world, job->world->world_rank, job->size, job->rank, &uses,
			       &memory));
	return memory.scratch;
}

/* A set of bounce buffers is shared by all its users, counted exactly, freed with the last; a rank
 * may let go of its collectives before others do. */
static void lifetimes(job_t *job)
{
	const size_t copy = plan_scratch(job, (srt_coll_uses_t){ .copies = true });
	const size_t sum = plan_scratch(job, (srt_coll_uses_t){ .sums = true, .nsums = 1 });
	sides_t s;
	size_t before;
	srt_coll_t *one, *two, *three;

	open_sides(job, &s);
	before = srt_device_allocated(job->device);
	one = make(job, SRT_COLL_ALL_GATHER, &s, "one");
	CHECK_INT(srt_device_allocated(job->device), before + copy);
	two = make(job, SRT_COLL_BROADCAST, &s, "two");
	CHECK_INT(srt_device_allocated(job->device), before + copy);
	three = make(job, SRT_COLL_REDUCE_SCATTER, &s, "three");
	CHECK_INT(srt_device_allocated(job->device), before + copy + sum);
	srt_coll_destroy(three);
	srt_coll_destroy(two);
	CHECK_INT(srt_device_allocated(job->device), before + copy);
	run_gather(job, one, &s, 1000);
	if (job->rank % 2 == 0)
		srt_coll_destroy(one);
	two = make(job, SRT_COLL_ALL_GATHER, &s, "two");
	if (job->rank % 2 == 1)
		srt_coll_destroy(one);
	run_gather(job, two, &s, 2000);
	three = make(job, SRT_COLL_ALL_GATHER, &s, "three");
	CHECK_INT(srt_device_allocated(job->device), before + copy);
	run_gather(job, three, &s, 3000);
	run_gather(job, two, &s, 4000);
	srt_coll_destroy(three);
	srt_coll_destroy(two);
	CHECK_INT(srt_device_allocated(job->device), before);
	close_sides(&s);
}

/* Slots of different sizes: the same error on all ranks, and no harm done. */
static void different_slots(job_t *job)
{
	char old[32], mine[512] = "", all[MAX_WORLD][512];

	if (job->world->transport->maps_sources || job->size < 2)
		return;
	srt_comm_destroy(job->world);
	snprintf(old, sizeof(old), "%s", srt_config_string("SHARDRT_STAGING_BYTES"));
	if (job->rank == 1)
		setenv("SHARDRT_STAGING_BYTES", "96k", 1);
	CHECK_STATUS(srt_comm_create_world(job->bootstrap, job->device, &job->world),
		     SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("SHARDRT_STAGING_BYTES makes slots of");
	CHECK_ERROR_HAS("on rank 1");
	snprintf(mine, sizeof(mine), "%s", srt_error_last());
	setenv("SHARDRT_STAGING_BYTES", old, 1);
	CHECK_OK_OR_DIE(srt_comm_create_world(job->bootstrap, job->device, &job->world));
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, mine, sizeof(mine), all));
	for (int r = 0; r < job->size; r++)
		CHECK_STR(all[r], all[0]);
}

/* ---- host functions ------------------------------------------------------------------- */

static struct {
	const srt_backend_t *real;
	_Atomic int ncopies, nlaunches;
} counted;

static srt_status_t count_submit(void *stream, const srt_command_t *command)
{
	counted.ncopies += command->kind == SRT_COMMAND_COPY;
	counted.nlaunches += command->kind <= SRT_COMMAND_ATTENTION_BACKWARD;
	return counted.real->stream->submit(stream, command);
}

/* The most starts for the stages of a hierarchical collective, some of which wait for readers. */
static int most_of_stages(const srt_stages_t *s, int zero_copy, const int staged[2])
{
	int most = 0;

	for (uint32_t i = 0; i < s->nstages; i++) {
		const srt_coll_t *stage = s->stages[i];

		if (stage != NULL && stage->has_slots)
			most += staged[0] + staged[1] * (int)stage->nrounds + 1;
		else if (stage != NULL)
			most += zero_copy + 2;
	}
	return most;
}

/* At most so many host functions: on devices each may cost tens of microseconds. */
static void counts(job_t *job)
{
	static const struct {
		srt_coll_kind_t kind;
		const char *name;
		int zero_copy; /* of a start and its wait for readers */
		int staged[2]; /* of a start: these, and for each round these */
	} kinds[] = {
		{ SRT_COLL_ALL_GATHER, "all-gather", 2, { 2, 2 } },
		{ SRT_COLL_REDUCE_SCATTER, "reduce-scatter", 2, { 2, 2 } },
		{ SRT_COLL_ALL_REDUCE, "all-reduce", 3, { 4, 2 } },
		{ SRT_COLL_BROADCAST, "broadcast", 1, { 2, 2 } },
		{ SRT_COLL_BARRIER, "barrier", 1, { 0, 1 } },
	};
	srt_backend_t backend = *job->device->backend;
	srt_backend_stream_ops_t stream_ops = *backend.stream;
	sides_t s;

	counted.real = job->device->backend;
	stream_ops.submit = count_submit;
	backend.stream = &stream_ops;
	open_sides(job, &s);
	job->device->backend = &backend;
	for (size_t k = 0; k < SRT_ARRAY_LEN(kinds); k++) {
		srt_coll_t *coll = make(job, kinds[k].kind, &s, kinds[k].name);
		const srt_stages_t *stages =
			coll->transport->runs_stages ? coll->transport_data : NULL;
		int most = kinds[k].zero_copy, fns, all;
		uint64_t before;

		if (coll->has_slots)
			most = kinds[k].staged[0] + kinds[k].staged[1] * (int)coll->nrounds;
		if (stages != NULL)
			most = most_of_stages(stages, kinds[k].zero_copy, kinds[k].staged);
		if (kinds[k].kind == SRT_COLL_BROADCAST && job->rank != 0 && !coll->has_slots &&
		    stages == NULL)
			most = 2;
		counted.ncopies = counted.nlaunches = 0;
		before = job->device->nhost_fns;
		CHECK_OK_OR_DIE(srt_coll_start(coll, NULL, job->stream));
		fns = (int)(job->device->nhost_fns - before);
		CHECK_OK(srt_coll_wait_readers(coll, job->stream));
		CHECK_OK_OR_DIE(srt_stream_sync(job->stream));
		all = (int)(job->device->nhost_fns - before);
		CHECK_MSG(fns <= (job->size == 1 ? 0 : most), "%s: %d host functions, at most %d",
			  kinds[k].name, fns, most);
		CHECK(all - fns <= (stages != NULL ? (int)stages->nstages : 1));
		if (job->rank == 0)
			printf("%d ranks, %s, %u rounds: %s: %d host functions, then %d of the "
			       "wait for readers, %d copies, %d launches\n",
			       job->size, coll->transport->name, (unsigned)coll->nrounds,
			       kinds[k].name, fns, all - fns, counted.ncopies, counted.nlaunches);
		srt_coll_destroy(coll);
	}
	job->device->backend = counted.real;
	close_sides(&s);
}

int main(void)
{
	job_t job;

	job_open(&job);
	CHECK_OR_DIE(job.size <= MAX_WORLD);
	make_owners(&job);
	two_streams(&job);
	lifetimes(&job);
	different_slots(&job);
	counts(&job);
	job_close(&job);
	return check_done();
}
