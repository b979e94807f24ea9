/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts with NCCL, which nothing on the stream compares or waits for; run by
 * test_nccl_linked.sh on the backend "linked" and by test_nccl.sh.
 *
 *     test_nccl_order last      ranks start different gathers of one size: an error, no mixture;
 *                                 the last rank, with another one, comes last, or first (others),
 *                                 or at any time (nobody)
 *     test_nccl_order ahead     a rank that owns nothing waits for one that is many starts late
 *     test_nccl_order abort     3 ranks: every wait for the device after a start was aborted
 *                                 fails, on whatever stream, rank and communicator
 */
#include <time.h>

#include "collectives/transports/nccl/nccl.h"
#include "tests/harness/job.h"

#define N 1000
#define MAX_WORLD 8

typedef struct gather {
	srt_coll_t *coll;
	srt_buffer_t *full_buffer, *shard_buffer;
	float *full, *shard;
} gather_t;

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static float value(int rank, size_t i)
{
	return (float)(rank * 10000 + (int)i);
}

/* nelem of each rank; none is owned by anybody with nelem 0. */
static gather_t make_gather(job_t *job, srt_comm_t *comm, const char *name, size_t nelem)
{
	gather_t g = { 0 };
	srt_coll_segment_t segment[MAX_WORLD];
	srt_coll_owner_t owner[MAX_WORLD];
	int size = srt_comm_size(comm);

	g.full_buffer = job_buffer(job, (size_t)size * N, "full", &g.full);
	g.shard_buffer = job_buffer(job, N, "shard", &g.shard);
	for (int r = 0; r < size; r++) {
		segment[r] = (srt_coll_segment_t){ (size_t)r * nelem, 0, nelem };
		owner[r] = (srt_coll_owner_t){ &segment[r], nelem > 0 };
	}
	const srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_GATHER,
		.name = name,
		.dtype = SRT_F32,
		.full = srt_view(g.full_buffer, 0, SRT_F32),
		.shard = srt_view(g.shard_buffer, 0, SRT_F32),
		.owners = owner,
	};
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &g.coll));
	CHECK(g.coll->transport == &srt_transport_nccl);
	for (size_t i = 0; i < N; i++)
		g.shard[i] = value(srt_comm_rank(comm), i);
	job_put(job, g.shard_buffer, g.shard);
	/* The starts are on other streams. */
	CHECK_OK(srt_stream_sync(job->stream));
	return g;
}

static void drop_gather(gather_t *g)
{
	srt_coll_destroy(g->coll);
	job_drop(g->shard_buffer, g->shard);
	job_drop(g->full_buffer, g->full);
}

static srt_comm_t *make_group(job_t *job, const int *ranks, int n, const char *name)
{
	srt_comm_t *comm = NULL;

	CHECK_OK_OR_DIE(srt_comm_create_group(job->world, ranks, n, name, &comm));
	/* No rank poisons it while others still create it. */
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	return comm;
}

/* ---- order -------------------------------------------------------------------------------- */

/* Waits until the rank has announced its start of this number. */
static void wait_announced(const srt_comm_t *comm, int rank, uint32_t number)
{
	const srt_nccl_t *nccl = comm->transport_data;

	while (!srt_shm_flag_reached(srt_shm_flag_of(nccl->announced, rank, SRT_SHM_PUBLISH),
				     number))
		sleep_ms(1);
}

typedef enum late { LATE_NOBODY, LATE_LAST, LATE_OTHERS } late_t;

/* The last rank starts the other one, perhaps when the others have started theirs, or before. */
static void check_order(job_t *job, late_t late)
{
	srt_comm_t *comm = job->world;
	gather_t a = make_gather(job, comm, "unit a", N), b = make_gather(job, comm, "unit b", N);
	int odd = job->rank == job->size - 1;
	srt_stream_t *stream = NULL;
	srt_status_t status;
	bool started;
	double since;
	char words[64];

	CHECK_OK_OR_DIE(srt_stream_create(job->device, 0, "order", &stream));
	CHECK_OK(srt_coll_start(a.coll, NULL, stream));
	CHECK_OK(srt_coll_start(b.coll, NULL, stream));
	CHECK_OK(srt_buffer_copy_to_host(b.full, b.full_buffer, 0, srt_buffer_nbytes(b.full_buffer),
					 stream));
	for (int r = 0; r < job->size; r++)
		CHECK(b.full[(size_t)r * N + 7] == value(r, 7));
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	since = srt_now_s();
	for (int r = 0; late == LATE_LAST && odd && r < job->size - 1; r++)
		wait_announced(comm, r, comm->nstarts + 1);
	if (late == LATE_OTHERS && !odd)
		wait_announced(comm, job->size - 1, comm->nstarts + 1);
	status = srt_coll_start(odd ? b.coll : a.coll, NULL, stream);
	started = status == SRT_OK;
	if (started)
		status = srt_stream_sync(stream);
	/* The late rank sees it at the start; so may a rank that had not compared yet. */
	CHECK(late == LATE_NOBODY || odd != (late == LATE_LAST) || !started);
	CHECK_STATUS(status, SRT_ERR_MISMATCH);
	CHECK_WITHIN(2, since);
	CHECK_ERROR_HAS("started all-gather of \"unit a\"");
	snprintf(words, sizeof(words), "rank %d started all-gather of \"unit b\"", job->size - 1);
	CHECK_ERROR_HAS(words);
	/* Copies to the host also fail. */
	if (started)
		CHECK_STATUS(srt_buffer_copy_to_host(a.full, a.full_buffer, 0, sizeof(float),
						     stream),
			     SRT_ERR_MISMATCH);
	CHECK_STATUS(srt_coll_start(a.coll, NULL, stream), SRT_ERR_MISMATCH);
	drop_gather(&b);
	drop_gather(&a);
	srt_stream_destroy(stream);
}

/* ---- ahead -------------------------------------------------------------------------------- */

#define NSTARTS 600 /* more than the log of starts has */

static void check_ahead(job_t *job)
{
	gather_t g = make_gather(job, job->world, "nothing", 0);
	gather_t h = make_gather(job, job->world, "something", N);
	int late = job->rank == job->size - 1;
	double since = srt_now_s();

	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	if (late)
		sleep_ms(300);
	for (int i = 0; i < NSTARTS; i++)
		CHECK_OK(srt_coll_start(g.coll, NULL, job->stream));
	CHECK(srt_now_s() - since > 0.25);
	/* More starts than may be in flight. */
	for (int i = 0; i < NSTARTS / 4; i++)
		CHECK_OK(srt_coll_start(h.coll, NULL, job->stream));
	job_get(job, h.full, h.full_buffer);
	for (int r = 0; r < job->size; r++)
		CHECK(h.full[(size_t)r * N + 7] == value(r, 7));
	drop_gather(&h);
	drop_gather(&g);
}

/* ---- abort -------------------------------------------------------------------------------- */

static void check_aborted(srt_status_t status)
{
	CHECK_INT(status, SRT_ERR_ABORTED);
	CHECK_ERROR_HAS("no more of this");
}

/* A gather of the world, where rank 2 never comes; after it on rank 0 a barrier of ranks 0 and 1,
 * which is by host functions. */
static void check_abort(job_t *job)
{
	const srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				       .kind = SRT_COLL_BARRIER,
				       .name = "barrier" };
	srt_comm_t *pair = make_group(job, (const int[]){ 0, 1 }, 2, "pair");
	gather_t g = make_gather(job, job->world, "first", N);
	srt_stream_t *other = NULL, *fresh = NULL;
	srt_event_t *event = NULL;
	srt_coll_t *barrier = NULL;
	int done = 0;

	CHECK_OK_OR_DIE(srt_stream_create(job->device, 0, "other", &other));
	CHECK_OK_OR_DIE(srt_stream_create(job->device, 0, "fresh", &fresh));
	CHECK_OK_OR_DIE(srt_event_create(job->device, &event));
	if (pair != NULL)
		CHECK_OK_OR_DIE(srt_coll_create(pair, &desc, &barrier));
	CHECK(pair == NULL || pair->transport == &srt_transport_staged);
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	if (job->rank == 0) {
		CHECK_OK(srt_coll_start(g.coll, NULL, job->stream));
		CHECK_OK(srt_event_record(event, job->stream));
		CHECK_OK(srt_stream_wait_event(other, event));
		CHECK_OK(srt_coll_start(barrier, NULL, other));
	} else if (job->rank == 1) {
		CHECK_OK(srt_coll_start(barrier, NULL, fresh));
	}
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	if (job->rank == 2) {
		sleep_ms(50);
		srt_comm_abort(job->world, "no more of this");
	} else if (job->rank == 1) {
		check_aborted(srt_stream_sync(fresh));
		CHECK_ERROR_HAS("all-gather of \"first\"");
		/* The rank's own device had no start in flight. */
		CHECK_OK(srt_stream_sync(other));
	} else {
		check_aborted(srt_event_sync(event));
		CHECK_ERROR_HAS("all-gather of \"first\"");
		check_aborted(srt_event_query(event, &done));
		check_aborted(srt_stream_sync(other));
		check_aborted(srt_stream_sync(job->stream));
		check_aborted(srt_buffer_copy_to_host(g.full, g.full_buffer, 0, sizeof(float),
						      job->stream));
		/* The device has failed, with all its streams. */
		check_aborted(srt_stream_sync(fresh));
	}
	drop_gather(&g);
	srt_event_destroy(event);
	srt_stream_destroy(fresh);
	srt_stream_destroy(other);
	srt_coll_destroy(barrier);
	srt_comm_destroy(pair);
}

int main(int argc, char **argv)
{
	const char *mode = argc == 2 ? argv[1] : "";
	job_t job;

	job_open(&job);
	if (strcmp(mode, "last") == 0) {
		check_order(&job, LATE_LAST);
	} else if (strcmp(mode, "others") == 0) {
		check_order(&job, LATE_OTHERS);
	} else if (strcmp(mode, "nobody") == 0) {
		check_order(&job, LATE_NOBODY);
	} else if (strcmp(mode, "ahead") == 0) {
		check_ahead(&job);
	} else if (strcmp(mode, "abort") == 0) {
		check_abort(&job);
	} else {
		CHECK_MSG(0, "test_nccl_order last | others | nobody | ahead | abort");
	}
	job_close(&job);
	return check_done();
}
