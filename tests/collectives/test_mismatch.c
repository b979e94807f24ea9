/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that disagree: each field of a collective's description differs on one rank, and each time
 * all ranks get the same sentence, which names rank, unit and both values; then the communicator is
 * as good as before. Also: a description that is wrong on one rank only, other groups, other
 * exchanges, another order of starts.
 */
#include "collectives/collective.h"
#include "tests/harness/job.h"

#define N 64

typedef enum {
	FIELD_KIND,
	FIELD_NAME,
	FIELD_DTYPE,
	FIELD_ROOT,
	FIELD_COUNT,
	FIELD_FULL_OFFSET,
	FIELD_SHARD_OFFSET,
	FIELD_NSEGMENTS,
	LOCAL_NO_PEER_MEMORY,
	LOCAL_TOO_SMALL,
	LOCAL_WRONG_DTYPE,
	LOCAL_OVERFLOW,
	LOCAL_OVERLAP,
	NFIELDS
} field_t;

/* Reliability: segments of a collective that overlap | the result depended on timing | refused */
static const struct {
	srt_status_t status;
	const char *words[4]; /* that the sentence must have; %d is the odd rank */
} expected[NFIELDS] = {
	[FIELD_KIND] = { SRT_ERR_MISMATCH,
			 { "rank 0", "rank %d", "all-gather", "reduce-scatter" } },
	[FIELD_NAME] = { SRT_ERR_MISMATCH, { "rank 0", "rank %d", "block 3", "block 4" } },
	[FIELD_DTYPE] = { SRT_ERR_MISMATCH, { "rank %d", "block 3", "f32", "i32" } },
	[FIELD_ROOT] = { SRT_ERR_MISMATCH, { "rank %d", "block 3", "root is 0", "1 on" } },
	[FIELD_COUNT] = { SRT_ERR_MISMATCH, { "rank %d", "block 3", " 64 ", " 63 " } },
	[FIELD_FULL_OFFSET] = { SRT_ERR_MISMATCH,
				{ "rank %d", "block 3", "segments differ", "table" } },
	[FIELD_SHARD_OFFSET] = { SRT_ERR_MISMATCH,
				 { "rank %d", "block 3", "segments differ", "table" } },
	[FIELD_NSEGMENTS] = { SRT_ERR_MISMATCH, { "rank %d", "block 3", "has 1 ", "has 2 " } },
	[LOCAL_NO_PEER_MEMORY] = { SRT_ERR_INVALID_ARGUMENT,
				   { "rank %d", "block 3", "SRT_MEM_PEER", "private" } },
	[LOCAL_TOO_SMALL] = { SRT_ERR_INVALID_ARGUMENT,
			      { "rank %d", "block 3", "do not fit", "shard" } },
	[LOCAL_WRONG_DTYPE] = { SRT_ERR_INVALID_ARGUMENT, { "rank %d", "block 3", "f16", "f32" } },
	[LOCAL_OVERFLOW] = { SRT_ERR_INVALID_ARGUMENT,
			     { "rank %d", "block 3", "too large", "segment" } },
	[LOCAL_OVERLAP] = { SRT_ERR_INVALID_ARGUMENT,
			    { "rank %d", "block 3", "overlap at element 62", "full layout" } },
};

/* This rank's last error against all ranks' errors. */
static void check_same_error(job_t *job, srt_comm_t *comm)
{
	char mine[512] = "", all[64][512];

	snprintf(mine, sizeof(mine), "%s", srt_error_last());
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(comm, mine, sizeof(mine), all));
	for (int r = 0; r < job->size; r++)
		CHECK_STR(all[r], all[0]);
}

static void check_field(job_t *job, field_t field, int odd)
{
	srt_coll_segment_t segments[2] = { { 0, 0, N }, { 0, 0, 0 } };
	srt_coll_owner_t owners[64] = { { 0 } };
	float *host;
	srt_buffer_t *buffer = job_buffer(job, N + 8, "peer", &host), *other = NULL;
	srt_coll_t *coll = NULL;
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = field == FIELD_ROOT ? SRT_COLL_BROADCAST : SRT_COLL_ALL_GATHER,
		.name = "block 3",
		.dtype = SRT_F32,
		.full = srt_view(buffer, 0, SRT_F32),
		.shard = srt_view(buffer, 0, SRT_F32),
		.owners = owners,
	};
	int here = job->rank == odd;

	/* The odd rank owns everything, so that what is wrong with it is its own. */
	owners[odd] = (srt_coll_owner_t){ segments, 1 };
	CHECK_OK_OR_DIE(srt_buffer_create(job->device, SRT_MEM_DEVICE, sizeof(float) * N, "private",
					  &other));
	if (here) {
		switch (field) {
		case FIELD_KIND:
			desc.kind = SRT_COLL_REDUCE_SCATTER;
			break;
		case FIELD_NAME:
			desc.name = "block 4";
			break;
		case FIELD_DTYPE:
			desc.dtype = desc.full.dtype = desc.shard.dtype = SRT_I32;
			break;
		case FIELD_ROOT:
			desc.root = 1;
			break;
		case FIELD_COUNT:
			segments[0].nelem--;
			break;
		case FIELD_FULL_OFFSET:
			segments[0].full_offset = 1;
			break;
		case FIELD_SHARD_OFFSET:
			segments[0].shard_offset = 1;
			break;
		case FIELD_NSEGMENTS:
			owners[odd].nsegments = 2;
			break;
		case LOCAL_NO_PEER_MEMORY:
			desc.shard.buffer = other;
			break;
		case LOCAL_TOO_SMALL:
			desc.shard.offset = 16 * sizeof(float);
			break;
		case LOCAL_WRONG_DTYPE:
			desc.shard.dtype = SRT_F16;
			break;
		case LOCAL_OVERFLOW:
			segments[0].full_offset = SIZE_MAX / 2;
			break;
		case LOCAL_OVERLAP:
			segments[1] = (srt_coll_segment_t){ N - 2, 0, 1 };
			owners[(odd + 1) % job->size] = (srt_coll_owner_t){ &segments[1], 1 };
			break;
		default:
			break;
		}
	}
	CHECK_STATUS(srt_coll_create(job->world, &desc, &coll), expected[field].status);
	CHECK(coll == NULL);
	for (int i = 0; i < 4; i++) {
		char words[64], *d;
		snprintf(words, sizeof(words), "%s", expected[field].words[i]);
		d = strstr(words, "%d");
		if (d != NULL)
			snprintf(d, 16, "%d", odd);
		CHECK_ERROR_HAS(words);
	}
	check_same_error(job, job->world);
	srt_buffer_destroy(other);
	job_drop(buffer, host);
}

/* The communicator still works. */
static void check_alive(job_t *job)
{
	srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				 .kind = SRT_COLL_BARRIER,
				 .name = "still alive" };
	srt_coll_t *barrier = NULL;

	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &barrier));
	CHECK_OK(srt_coll_start(barrier, NULL, job->stream));
	CHECK_OK_OR_DIE(srt_stream_sync(job->stream));
	srt_coll_destroy(barrier);
}

static void check_groups(job_t *job)
{
	int ranks[64], last = job->size - 1;
	srt_comm_t *comm = NULL;

	for (int r = 0; r < job->size; r++)
		ranks[r] = r;
	CHECK_STATUS(srt_comm_create_group(job->world, ranks,
					   job->rank == last ? job->size - 1 : job->size, "row",
					   &comm),
		     SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("row");
	check_same_error(job, job->world);
	CHECK_STATUS(srt_comm_create_group(job->world, ranks, job->size,
					   job->rank == last ? "row" : "column", &comm),
		     SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("column");
	check_same_error(job, job->world);
	if (job->rank == last)
		ranks[0] = ranks[1];
	CHECK_STATUS(srt_comm_create_group(job->world, ranks, job->size, "row", &comm),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("rising order");
	check_same_error(job, job->world);
	CHECK(comm == NULL);
}

/* Any rank that came in time may stand for those that are right; all ranks name the same one. */
static void check_order_error(job_t *job, const srt_coll_t *a, const srt_coll_t *b)
{
	char mine[512] = "", all[64][512], even[64], odd[64];
	const char *said = strstr(srt_error_last(), ": rank ");
	char *waited;

	snprintf(even, sizeof(even), "started %s of \"unit a\"", a->algorithm->name);
	snprintf(odd, sizeof(odd), "rank %d started %s of \"unit b\"", job->size - 1,
		 b->algorithm->name);
	CHECK_ERROR_HAS(even);
	CHECK_ERROR_HAS(odd);
	/* Past what this rank was doing it is the same. */
	snprintf(mine, sizeof(mine), "%s", said != NULL ? said : "");
	waited = strstr(mine, " (waited");
	if (waited != NULL)
		memset(waited, 0, (size_t)(mine + sizeof(mine) - waited));
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, mine, sizeof(mine), all));
	for (int r = 0; r < job->size; r++)
		CHECK_STR(all[r], all[0]);
}

/* The last rank starts `odd_kind` where the others start `kind`: no hang, an error on all that
 * names both. Poisons, so it uses a separate group. A stream per case: a failed one stays failed.
 */
static void check_order(job_t *job, srt_coll_kind_t kind, srt_coll_kind_t odd_kind, int late_ms)
{
	float *full, *shard;
	srt_buffer_t *full_buffer = job_buffer(job, N, "full", &full);
	srt_buffer_t *shard_buffer = job_buffer(job, N, "shard", &shard);
	srt_coll_segment_t segments[64];
	srt_coll_owner_t owners[64];
	srt_comm_t *comm = job_group_of_all(job, "order");
	srt_coll_t *a = NULL, *b = NULL;
	srt_stream_t *stream = NULL;
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = kind,
		.name = "unit a",
		.dtype = SRT_F32,
		.full = srt_view(full_buffer, 0, SRT_F32),
		.shard = srt_view(shard_buffer, 0, SRT_F32),
		.owners = owners,
	};
	int odd = job->rank == job->size - 1;
	double start;

	for (int r = 0; r < job->size; r++) {
		segments[r] = (srt_coll_segment_t){ (size_t)r, 0, 1 };
		owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
	}
	CHECK_OK_OR_DIE(srt_stream_create(job->device, 0, "order", &stream));
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &a));
	desc.name = "unit b";
	desc.kind = odd_kind;
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &b));
	/* Some right starts before. */
	for (int i = 0; i < 300; i++)
		CHECK_OK(srt_coll_start(i % 2 ? a : b, NULL, stream));
	CHECK_OK(srt_stream_sync(stream));
	/* Nobody fails while others still wait for these. */
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	start = srt_now_s();
	while (odd && srt_now_s() - start < late_ms * 1e-3)
		;
	CHECK_STATUS(job_start_and_wait(odd ? b : a, stream), SRT_ERR_MISMATCH);
	CHECK_WITHIN(2.0 + late_ms * 1e-3, start);
	check_order_error(job, a, b);
	/* It stays so. */
	CHECK_STATUS(srt_coll_start(a, NULL, stream), SRT_ERR_MISMATCH);
	CHECK_STATUS(srt_comm_oob_allgather(comm, &odd, 0, &odd), SRT_ERR_MISMATCH);
	srt_stream_destroy(stream);
	srt_coll_destroy(b);
	srt_coll_destroy(a);
	job_drop(shard_buffer, shard);
	job_drop(full_buffer, full);
	srt_comm_destroy(comm);
}

/* A group of a split fails alone. The first of a communicator: its id was that of a part of its
 * hierarchy. */
static void check_split(job_t *job)
{
	srt_comm_t *comm = NULL;

	CHECK_OK_OR_DIE(srt_comm_split(job->world, job->rank % 2, "parity", &comm));
	if (job->rank % 2 == 0)
		srt_comm_abort(comm, "only this group");
	/* It goes to all ranks before this exchange. */
	check_alive(job);
	CHECK(srt_comm_poisoned(comm) == (job->rank % 2 == 0));
	CHECK(!srt_comm_poisoned(job->world));
	srt_comm_destroy(comm);
}

/* Exchanges of different lengths. */
static void check_exchange(job_t *job)
{
	/* The second two fill one message, but have different numbers of them. */
	static const size_t nbytes[][2] = { { 8, 16 }, { 4000, 9000 } };
	static char mine[9000], all[64 * 9000];

	for (size_t k = 0; k < SRT_ARRAY_LEN(nbytes); k++) {
		srt_comm_t *comm = job_group_of_all(job, "lengths");

		CHECK_STATUS(srt_comm_oob_allgather(comm, mine, nbytes[k][job->rank == 0], all),
			     SRT_ERR_MISMATCH);
		CHECK_ERROR_HAS("different data");
		srt_comm_destroy(comm);
	}
}

/* Over UCX. The last rank starts something else than the first of many broadcasts, whose root waits
 * for nobody: the root is not so far ahead that nobody knows that start any more. */
static void check_ahead(job_t *job)
{
	float *host;
	srt_buffer_t *buffer = job_buffer(job, 1, "full", &host);
	srt_comm_t *comm = job_group_of_all(job, "ahead");
	const bool odd = job->rank == job->size - 1;
	srt_coll_segment_t segment = { 0, 0, 1 };
	srt_coll_owner_t owners[64] = { 0 };
	srt_coll_t *a = NULL, *b = NULL, *c = NULL;
	srt_stream_t *stream = NULL;
	srt_status_t status = SRT_OK;
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_BROADCAST,
		.name = "unit a",
		.dtype = SRT_F32,
		.full = srt_view(buffer, 0, SRT_F32),
		.owners = owners,
	};

	owners[0] = (srt_coll_owner_t){ &segment, 1 };
	CHECK_OK_OR_DIE(srt_stream_create(job->device, 0, "ahead", &stream));
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &a));
	desc = (srt_coll_desc_t){ .size = sizeof(srt_coll_desc_t),
				  .kind = SRT_COLL_BARRIER,
				  .name = "unit b" };
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &b));
	desc.name = "unit c";
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &c));
	for (int i = 0; i < 600 && !odd && status == SRT_OK; i++)
		status = srt_coll_start(a, NULL, stream);
	if (status == SRT_OK)
		status = job_start_and_wait(odd ? c : b, stream);
	CHECK_STATUS(status, SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("all ranks must start the same ones in the same order");
	srt_stream_destroy(stream);
	srt_coll_destroy(c);
	srt_coll_destroy(b);
	srt_coll_destroy(a);
	job_drop(buffer, host);
	srt_comm_destroy(comm);
}

int main(void)
{
	job_t job;

	job_open(&job);
	if (job.size < 2)
		CHECK_SKIP("a single rank cannot disagree");
	for (int field = 0; field < NFIELDS; field++) {
		/* Staged collectives take memory of any kind. */
		if (field == LOCAL_NO_PEER_MEMORY && !srt_comm_zero_copy(job.world))
			continue;
		/* The comparison is against rank 0, so it is never the odd one in words. */
		for (int odd = 1; odd<job.size; odd += job.size> 2 ? job.size - 2 : 1)
			check_field(&job, (field_t)field, odd);
	}
	check_split(&job);
	check_groups(&job);
	check_order(&job, SRT_COLL_BARRIER, SRT_COLL_BARRIER, 0);
	check_order(&job, SRT_COLL_BARRIER, SRT_COLL_BARRIER, 50);
	check_order(&job, SRT_COLL_ALL_GATHER, SRT_COLL_REDUCE_SCATTER, 0);
	check_order(&job, SRT_COLL_REDUCE_SCATTER, SRT_COLL_BARRIER, 0);
	check_order(&job, SRT_COLL_BARRIER, SRT_COLL_ALL_REDUCE, 0);
	check_exchange(&job);
	check_alive(&job);
	if (job.world->transport == &srt_transport_ucx)
		check_ahead(&job);
	job_close(&job);
	return check_done();
}
