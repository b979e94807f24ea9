/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives over many starts: waits for readers (and that their absence is
 * noticed), more starts in flight than the ring holds, two streams ordered by events, groups,
 * exchanges, buffers shared by several collectives, making and destroying many.
 */
#include <time.h>

#include "tests/harness/job.h"

#define N 4096
#define POISON 777.0f

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static srt_status_t delay(void *arg)
{
	sleep_ms(*(long *)arg);
	return SRT_OK;
}

/* Tells the others and hears from all: an order that no collective under test provides. */
static void rendezvous(job_t *job)
{
	int mine = job->rank, all[64];

	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, &mine, sizeof(mine), all));
	for (int r = 0; r < job->size; r++)
		CHECK_INT(all[r], r);
}

/* ---- waits for readers --------------------------------------------------------------------- */

/*
 * Rank 0 owns everything (gather) or nothing (reduce-scatter, last rank owns), so that it need not
 * wait for a peer; the last rank reads late; rank 0 overwrites its source. With the wait the
 * reader gets the data; without it, the poison: so the check can fail.
 */
static void late_reader(job_t *job, srt_coll_kind_t kind, int waits)
{
	const srt_coll_segment_t all = { 0, 0, N };
	srt_coll_owner_t owners[64] = { { 0 } };
	float *full, *shard;
	srt_buffer_t *full_buffer = job_buffer(job, N, "full", &full);
	srt_buffer_t *shard_buffer = job_buffer(job, N, "shard", &shard);
	int gather = kind == SRT_COLL_ALL_GATHER, last = job->size - 1;
	float *source = gather ? shard : full, *result = gather ? full : shard;
	srt_buffer_t *source_buffer = gather ? shard_buffer : full_buffer;
	long late_ms = 60;
	srt_coll_t *coll = NULL;
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = kind,
		.name = "late reader",
		.dtype = SRT_F32,
		.full = srt_view(full_buffer, 0, SRT_F32),
		.shard = srt_view(shard_buffer, 0, SRT_F32),
		.owners = owners,
	};

	owners[gather ? 0 : last] = (srt_coll_owner_t){ &all, 1 };
	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	for (size_t i = 0; i < N; i++)
		source[i] = job->rank == 0 ? 5.0f : 0.0f;
	job_put(job, source_buffer, source);
	if (job->rank == last) {
		if (waits)
			CHECK_OK(srt_stream_host_fn(job->stream, delay, &late_ms));
		else
			rendezvous(job); /* until rank 0 has overwritten */
	}
	CHECK_OK(srt_coll_start(coll, NULL, job->stream));
	if (job->rank == 0) {
		if (waits)
			CHECK_OK(srt_coll_wait_readers(coll, job->stream));
		CHECK_OK(srt_op_fill(srt_view(source_buffer, 0, SRT_F32), POISON, N, job->stream));
		CHECK_OK_OR_DIE(srt_stream_sync(job->stream));
	}
	if (!waits && job->rank != last)
		rendezvous(job);
	job_get(job, result, gather ? full_buffer : shard_buffer);
	if (job->rank == last) {
		float want = waits ? 5.0f : POISON;
		CHECK_MSG(result[0] == want && result[N - 1] == want,
			  "kind %d, waits %d: got %g, want %g", (int)kind, waits, (double)result[0],
			  (double)want);
	}
	CHECK_OK(srt_coll_wait_readers(coll, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(coll);
	job_drop(shard_buffer, shard);
	job_drop(full_buffer, full);
}

/* Whether every rank reads the others' memory where it lies; else a start copies the source away,
 * and what comes after it without a wait does no harm. */
static int reads_in_place(job_t *job)
{
	int mine = srt_comm_zero_copy(job->world) && job->device->caps.host_memory;
	int all[64], sum = 0;

	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, &mine, sizeof(mine), all));
	for (int r = 0; r < job->size; r++)
		sum += all[r];
	return sum == job->size;
}

/* ---- many starts ---------------------------------------------------------------------- */

static void even_owners(const job_t *job, size_t nelem, srt_coll_owner_t *owners,
			srt_coll_segment_t *segments)
{
	size_t each = (nelem + (size_t)job->size - 1) / (size_t)job->size;

	for (int r = 0; r < job->size; r++) {
		size_t at = each * (size_t)r;
		size_t n = at >= nelem ? 0 : nelem - at < each ? nelem - at : each;
		segments[r] = (srt_coll_segment_t){ at, 0, n };
		owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
	}
}

/* x -> mean over ranks of (x + rank): grows by the mean rank at each round. No host in between. */
static void many_starts(job_t *job)
{
	enum { ROUNDS = 200 };
	srt_coll_owner_t owners[64];
	srt_coll_segment_t segments[64];
	float *full, *own;
	srt_buffer_t *full_buffer = job_buffer(job, N, "full", &full);
	srt_buffer_t *own_buffer = job_buffer(job, N, "own", &own);
	srt_view_t x = srt_view(full_buffer, 0, SRT_F32), add = srt_view(own_buffer, 0, SRT_F32);
	srt_coll_t *coll = NULL;
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_REDUCE,
		.name = "many starts",
		.dtype = SRT_F32,
		.full = x,
		.owners = owners,
	};
	srt_coll_epilogue_t mean = SRT_COLL_EPILOGUE_INIT;

	mean.divisor = (float)job->size;
	even_owners(job, N, owners, segments);
	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	for (size_t i = 0; i < N; i++)
		own[i] = 2.0f * (float)job->rank;
	job_put(job, own_buffer, own);
	for (int k = 0; k < ROUNDS; k++) {
		CHECK_OK(srt_coll_wait_readers(coll, job->stream));
		CHECK_OK(srt_op_add(x, x, add, N, job->stream));
		CHECK_OK_OR_DIE(srt_coll_start(coll, &mean, job->stream));
	}
	job_get(job, full, full_buffer);
	for (size_t i = 0; i < N; i++)
		own[i] = (float)(ROUNDS * (job->size - 1)); /* the mean of 2r is size - 1 */
	CHECK_BITS(full, own, N);
	CHECK_OK(srt_coll_wait_readers(coll, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(coll);
	job_drop(own_buffer, own);
	job_drop(full_buffer, full);
}

/* Gathers of one unit on a communication stream while another stream consumes: as the engine
 * does. */
static void two_streams(job_t *job)
{
	enum { ROUNDS = 50 };
	srt_coll_owner_t owners[64];
	srt_coll_segment_t segments[64];
	float *full, *shard, *sum;
	size_t each = (N + (size_t)job->size - 1) / (size_t)job->size;
	srt_buffer_t *full_buffer = job_buffer(job, N, "full", &full);
	srt_buffer_t *shard_buffer = job_buffer(job, each, "shard", &shard);
	srt_buffer_t *sum_buffer = job_buffer(job, N, "sum", &sum);
	srt_view_t total = srt_view(sum_buffer, 0, SRT_F32);
	srt_view_t whole = srt_view(full_buffer, 0, SRT_F32);
	srt_view_t part = srt_view(shard_buffer, 0, SRT_F32);
	srt_stream_t *comm = NULL;
	srt_event_t *gathered = NULL, *used = NULL;
	srt_coll_t *coll = NULL;
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_GATHER,
		.name = "two streams",
		.dtype = SRT_F32,
		.full = whole,
		.shard = part,
		.owners = owners,
	};

	even_owners(job, N, owners, segments);
	CHECK_OK_OR_DIE(srt_stream_create(job->device, -1, "comm", &comm));
	CHECK_OK_OR_DIE(srt_event_create(job->device, &gathered));
	CHECK_OK_OR_DIE(srt_event_create(job->device, &used));
	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	for (int k = 1; k <= ROUNDS; k++) {
		CHECK_OK(srt_coll_wait_readers(coll, comm));
		CHECK_OK(srt_op_fill(part, (float)(k * (job->rank + 1)),
				     (int64_t)segments[job->rank].nelem, comm));
		CHECK_OK(srt_stream_wait_event(comm, used)); /* full is free again */
		CHECK_OK_OR_DIE(srt_coll_start(coll, NULL, comm));
		CHECK_OK(srt_event_record(gathered, comm));
		CHECK_OK(srt_stream_wait_event(job->stream, gathered)); /* full is complete */
		CHECK_OK(srt_op_add(total, total, whole, N, job->stream));
		CHECK_OK(srt_event_record(used, job->stream));
	}
	job_get(job, sum, sum_buffer);
	for (size_t i = 0; i < N; i++)
		CHECK(sum[i] == (float)(ROUNDS * (ROUNDS + 1) / 2 * (int)(i / each + 1)));
	CHECK_OK(srt_coll_wait_readers(coll, comm));
	CHECK_OK(srt_stream_sync(comm));
	srt_coll_destroy(coll);
	srt_event_destroy(used);
	srt_event_destroy(gathered);
	srt_stream_destroy(comm);
	job_drop(sum_buffer, sum);
	job_drop(shard_buffer, shard);
	job_drop(full_buffer, full);
}

/* Far more collectives than one piece of control memory holds, on one pair of buffers; some die
 * early. Then all again: nothing may be left of the first ones. */
static void make_many(job_t *job)
{
	enum { COUNT = 150 };
	srt_coll_owner_t owners[64];
	srt_coll_segment_t segments[64];
	float *full;
	srt_coll_t *colls[COUNT] = { NULL };

	even_owners(job, 64, owners, segments);
	for (int pass = 0; pass < 2; pass++) {
		srt_buffer_t *buffer = job_buffer(job, 64, "full", &full);
		srt_coll_desc_t desc = {
			.size = sizeof(srt_coll_desc_t),
			.kind = SRT_COLL_ALL_REDUCE,
			.name = "one of many",
			.dtype = SRT_F32,
			.full = srt_view(buffer, 0, SRT_F32),
			.owners = owners,
		};
		for (int i = 0; i < COUNT; i++) {
			CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &colls[i]));
			/* Each rank at another time: destroying is local. */
			if (i % 3 == job->rank % 3 && i % 2 == 0 && pass == 1) {
				srt_coll_destroy(colls[i]);
				colls[i] = NULL;
			}
		}
		for (int i = 0; i < COUNT && pass == 0; i++) {
			for (int k = 0; k < 64; k++)
				full[k] = (float)(i + job->rank);
			job_put(job, buffer, full);
			CHECK_OK_OR_DIE(srt_coll_start(colls[i], NULL, job->stream));
			CHECK_OK(srt_coll_wait_readers(colls[i], job->stream));
			job_get(job, full, buffer);
			CHECK(full[63] == (float)(i * job->size + job->size * (job->size - 1) / 2));
		}
		rendezvous(job);
		for (int i = 0; i < COUNT; i++)
			srt_coll_destroy(colls[i]);
		job_drop(buffer, full);
	}
}

/* ---- groups and exchanges ------------------------------------------------------------- */

static void groups(job_t *job)
{
	int even[64], odd[64], neven = 0, nodd = 0;
	srt_comm_t *evens = NULL, *odds = NULL, *mine;
	float *x;
	srt_buffer_t *buffer = job_buffer(job, 8, "x", &x);
	srt_coll_owner_t owners[64] = { { 0 } };
	const srt_coll_segment_t all = { 0, 0, 8 };
	srt_coll_t *coll = NULL;
	float want = 0;

	for (int r = 0; r < job->size; r++) {
		if (r % 2 == 0)
			even[neven++] = r;
		else
			odd[nodd++] = r;
	}
	CHECK_OK_OR_DIE(srt_comm_create_group(job->world, even, neven, "evens", &evens));
	if (nodd > 0)
		CHECK_OK_OR_DIE(srt_comm_create_group(job->world, odd, nodd, "odds", &odds));
	CHECK((evens != NULL) == (job->rank % 2 == 0));
	CHECK((odds != NULL) == (job->rank % 2 == 1));
	mine = evens != NULL ? evens : odds;
	CHECK_INT(srt_comm_rank(mine), job->rank / 2);
	CHECK_INT(srt_comm_size(mine), job->rank % 2 ? nodd : neven);

	owners[srt_comm_size(mine) - 1] = (srt_coll_owner_t){ &all, 1 };
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_REDUCE,
		.name = job->rank % 2 ? "odd sum" : "even sum",
		.dtype = SRT_F32,
		.full = srt_view(buffer, 0, SRT_F32),
		.owners = owners,
	};
	CHECK_OK_OR_DIE(srt_coll_create(mine, &desc, &coll));
	for (int i = 0; i < 8; i++)
		x[i] = (float)(job->rank + 1);
	job_put(job, buffer, x);
	CHECK_OK_OR_DIE(srt_coll_start(coll, NULL, job->stream));
	CHECK_OK(srt_coll_wait_readers(coll, job->stream));
	job_get(job, x, buffer);
	for (int r = job->rank % 2; r < job->size; r += 2)
		want += (float)(r + 1);
	CHECK(x[0] == want && x[7] == want);
	srt_coll_destroy(coll);
	srt_comm_destroy(odds);
	srt_comm_destroy(evens);
	job_drop(buffer, x);
}

static srt_coll_t *make_over(job_t *job, srt_buffer_t *buffer, srt_coll_kind_t kind)
{
	const srt_coll_segment_t all = { 0, 0, N };
	srt_coll_owner_t owners[64] = { { 0 } };
	const srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = kind,
		.name = "mapped",
		.dtype = SRT_F32,
		.root = job->size - 1,
		.full = srt_view(buffer, 0, SRT_F32),
		.owners = owners,
	};
	srt_coll_t *coll = NULL;

	owners[job->size - 1] = (srt_coll_owner_t){ &all, 1 };
	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	return coll;
}

/* The last rank has lost its mappings of its peers' buffers, while they know its own: it maps them
 * again for a collective whose buffers are not new, and has them for the next one. */
static void lost_mappings(job_t *job)
{
	float *x;
	srt_buffer_t *buffer = job_buffer(job, N, "mapped", &x);
	srt_coll_t *broadcast = make_over(job, buffer, SRT_COLL_BROADCAST);
	srt_coll_t *first = make_over(job, buffer, SRT_COLL_ALL_REDUCE), *sums[2];

	if (job->rank == job->size - 1) {
		srt_coll_destroy(first);
		first = NULL;
	}
	for (int k = 0; k < 2; k++) {
		sums[k] = make_over(job, buffer, SRT_COLL_ALL_REDUCE);
		for (int i = 0; i < N; i++)
			x[i] = (float)(job->rank + 1);
		rendezvous(job); /* no rank reads or writes the buffer any more */
		job_put(job, buffer, x);
		CHECK_OK_OR_DIE(job_start_and_wait(sums[k], job->stream));
		job_get(job, x, buffer);
		CHECK(x[0] == (float)(job->size * (job->size + 1) / 2) && x[N - 1] == x[0]);
	}
	srt_coll_destroy(sums[1]);
	srt_coll_destroy(sums[0]);
	srt_coll_destroy(first);
	srt_coll_destroy(broadcast);
	job_drop(buffer, x);
}

static void exchanges(job_t *job)
{
	/* A post in shared memory has 1968 bytes. */
	static const size_t sizes[] = { 0, 1, 13, 1968, 1969, 32768, 32769, 200000 };

	for (size_t k = 0; k < SRT_ARRAY_LEN(sizes); k++) {
		size_t n = sizes[k];
		unsigned char *send = malloc(n + 1), *recv = malloc(n * (size_t)job->size + 1);

		CHECK_OR_DIE(send != NULL && recv != NULL);
		for (size_t i = 0; i < n; i++)
			send[i] = (unsigned char)job_noise((uint64_t)job->rank, i);
		CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, send, n, recv));
		for (int r = 0; r < job->size; r++) {
			size_t wrong = 0;
			for (size_t i = 0; i < n; i++)
				wrong += recv[(size_t)r * n + i] !=
					 (unsigned char)job_noise((uint64_t)r, i);
			CHECK_INT(wrong, 0);
		}
		free(recv);
		free(send);
	}
}

int main(void)
{
	job_t job;

	job_open(&job);
	exchanges(&job);
	if (job.size > 1) {
		late_reader(&job, SRT_COLL_ALL_GATHER, 1);
		late_reader(&job, SRT_COLL_REDUCE_SCATTER, 1);
		if (reads_in_place(&job)) {
			late_reader(&job, SRT_COLL_ALL_GATHER, 0);
			late_reader(&job, SRT_COLL_REDUCE_SCATTER, 0);
		}
	}
	many_starts(&job);
	two_streams(&job);
	make_many(&job);
	groups(&job);
	lost_mappings(&job);
	rendezvous(&job);
	job_close(&job);
	return check_done();
}
