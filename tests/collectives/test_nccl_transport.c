/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of the NCCL transport only; run by test_nccl_linked.sh on the backend
 * "linked", whose library is a replacement (tests/fakes/backend_linked/).
 *
 *     sums              NCCL's sums are used in numerics mode fast only
 *     fails WORDS...    a sum fails, and the message has all these words
 *     hangs WORDS...    a sum hangs, with a short deadline
 *     full WORDS...     a sum hangs, with more starts than fit a stream's queue
 *     blocked WORDS...  a sum hangs, with more launches after it than fit the driver's queue
 *     many              more messages between two ranks than fit a group
 *     idle              a rank that starts nothing does not delay the others
 *     ops               the backend's table only, on a communicator of one rank
 */
#include "collectives/transports/nccl/nccl.h"
#include "tests/harness/job.h"

#define N 1000 /* elements of a run */
#define RUNS 2
#define MOST_RUNS 12
#define MAX_WORLD 8

/* Both signs, all bits used: another order of adding gives other bits. */
static float value(int rank, size_t i)
{
	uint64_t z = job_noise((uint64_t)rank, i);
	float m = (1.0f + (float)(z >> 40) * 0x1p-24f) * (float)(1 << z % 7);

	return (z >> 39) & 1 ? -m : m;
}

/* The order of the replacement: ranks falling (tests/fakes/fake_nccl/wire.c). */
static float falling(int size, size_t i)
{
	volatile float sum = value(size - 1, i);

	for (int r = size - 2; r >= 0; r--)
		sum = sum + value(r, i);
	return sum;
}

/* docs/numerics.md, up to 4 ranks. */
static float tree(int size, size_t i)
{
	volatile float left = value(0, i), right = 0;

	if (size > 1)
		left = left + value(1, i);
	if (size > 2)
		right = value(2, i);
	if (size > 3)
		right = right + value(3, i);
	return size > 2 ? left + right : left;
}

typedef struct owners {
	srt_coll_owner_t owner[MAX_WORLD];
	srt_coll_segment_t segment[MAX_WORLD][MOST_RUNS];
	size_t nelem;
} owners_t;

/* Parameters cut over the ranks; odd: the last rank has less of the second. */
static void make_owners(owners_t *o, int nruns, int size, int odd)
{
	*o = (owners_t){ 0 };
	for (int k = 0; k < nruns; k++) {
		for (int r = 0; r < size; r++) {
			size_t n = odd && k == 1 && r == size - 1 ? N - 1 : N;

			o->segment[r][k] = (srt_coll_segment_t){ o->nelem, (size_t)k * (N + 3), n };
			o->owner[r] = (srt_coll_owner_t){ o->segment[r], (size_t)nruns };
			o->nelem += n;
		}
	}
}

static void check_sum(job_t *job, srt_coll_kind_t kind, int odd)
{
	srt_comm_t *comm = job->world;
	srt_coll_epilogue_t average = SRT_COLL_EPILOGUE_INIT;
	int to_shard = kind == SRT_COLL_REDUCE_SCATTER;
	float *full, *shard;
	const srt_nccl_coll_t *data;
	srt_coll_t *coll = NULL;
	owners_t o;

	average.divisor = 3.0f;
	average.accumulate = kind == SRT_COLL_REDUCE_SCATTER;
	make_owners(&o, RUNS, job->size, odd);
	srt_buffer_t *full_buffer = job_buffer(job, o.nelem, "full", &full);
	srt_buffer_t *shard_buffer = job_buffer(job, RUNS * (N + 3), "shard", &shard);
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = kind,
		.name = "sum",
		.dtype = SRT_F32,
		.full = srt_view(full_buffer, 0, SRT_F32),
		.shard = srt_view(shard_buffer, 0, SRT_F32),
		.owners = o.owner,
	};
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &coll));
	data = coll->transport_data;
	CHECK_INT(data->sums, srt_nccl_of(coll)->fast && !odd);
	for (int repeat = 0; repeat < 3; repeat++) {
		int differ = 0;

		for (size_t i = 0; i < o.nelem; i++)
			full[i] = value(job->rank, i);
		for (size_t i = 0; i < RUNS * (N + 3); i++)
			shard[i] = 0.5f;
		job_put(job, full_buffer, full);
		job_put(job, shard_buffer, shard);
		CHECK_OK(srt_coll_start(coll, &average, job->stream));
		job_get(job, full, full_buffer);
		job_get(job, shard, shard_buffer);
		for (int r = 0; r < job->size; r++) {
			for (int k = 0; k < RUNS && (r == job->rank || !to_shard); k++) {
				const srt_coll_segment_t *s = &o.segment[r][k];

				for (size_t i = 0; i < s->nelem; i++) {
					size_t at = s->full_offset + i;
					volatile float sum = data->sums ? falling(job->size, at) :
									  tree(job->size, at);
					float got =
						to_shard ? shard[s->shard_offset + i] : full[at];

					sum = sum / 3.0f;
					if (to_shard)
						sum = 0.5f + sum;
					differ += got != sum;
				}
			}
		}
		CHECK_INT(differ, 0);
	}
	CHECK_OK(srt_coll_wait_readers(coll, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(coll);
	job_drop(shard_buffer, shard);
	job_drop(full_buffer, full);
}

static void check_sums(job_t *job)
{
	srt_nccl_t *nccl = job->world->transport_data;
	int differ = 0;

	for (size_t i = 0; i < N; i++)
		differ += falling(job->size, i) != tree(job->size, i);
	CHECK(job->size < 3 || differ > N / 20); /* or the data proves nothing */
	CHECK(job->world->transport == &srt_transport_nccl && !nccl->fast);
	for (int odd = 0; odd < 2; odd++) {
		nccl->fast = false;
		check_sum(job, SRT_COLL_REDUCE_SCATTER, odd);
		nccl->fast = true; /* as where all ranks' numerics are */
		check_sum(job, SRT_COLL_REDUCE_SCATTER, odd);
		check_sum(job, SRT_COLL_ALL_REDUCE, odd);
	}
}

/* ---- more messages than a group takes ------------------------------------------------------ */

#define MANY 700
#define PART 3 /* elements of each, PART + 1 from one to the next: no all-gather */

static void check_many(job_t *job)
{
	const size_t nowned = MANY * (PART + 1), nelem = (size_t)job->size * nowned;
	srt_coll_segment_t *segments = calloc((size_t)job->size * MANY, sizeof(*segments));
	srt_coll_owner_t owners[MAX_WORLD];
	float *full, *shard;
	srt_buffer_t *full_buffer = job_buffer(job, nelem, "full", &full);
	srt_buffer_t *shard_buffer = job_buffer(job, nowned, "shard", &shard);
	srt_coll_t *coll = NULL;
	int differ = 0;

	CHECK_OR_DIE(segments != NULL);
	for (size_t i = 0; i < (size_t)job->size * MANY; i++) {
		size_t k = i % MANY, r = i / MANY;

		segments[i] = (srt_coll_segment_t){ (k * (size_t)job->size + r) * (PART + 1),
						    k * (PART + 1), PART };
	}
	for (int r = 0; r < job->size; r++)
		owners[r] = (srt_coll_owner_t){ &segments[(size_t)r * MANY], MANY };
	const srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_GATHER,
		.name = "many",
		.dtype = SRT_F32,
		.full = srt_view(full_buffer, 0, SRT_F32),
		.shard = srt_view(shard_buffer, 0, SRT_F32),
		.owners = owners,
	};
	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	for (size_t i = 0; i < nowned; i++)
		shard[i] = value(job->rank, i);
	job_put(job, shard_buffer, shard);
	CHECK_OK(srt_coll_start(coll, NULL, job->stream));
	job_get(job, full, full_buffer);
	for (size_t i = 0; i < (size_t)job->size * MANY; i++) {
		for (size_t e = 0; e < PART; e++)
			differ += full[segments[i].full_offset + e] !=
				  value((int)(i / MANY), segments[i].shard_offset + e);
	}
	CHECK_INT(differ, 0);
	srt_coll_destroy(coll);
	job_drop(shard_buffer, shard);
	job_drop(full_buffer, full);
	free(segments);
}

/* ---- failures ----------------------------------------------------------------------------- */

typedef srt_status_t sum_fn(job_t *job, srt_coll_t *coll, srt_buffer_t *buffer);

static srt_status_t sum_until_failure(job_t *job, srt_coll_t *coll, srt_buffer_t *buffer)
{
	(void)buffer;
	for (int i = 0; i < 10; i++) {
		SRT_TRY(srt_coll_start(coll, NULL, job->stream));
		SRT_TRY(srt_stream_sync(job->stream));
	}
	return SRT_OK;
}

static srt_status_t sum_many(job_t *job, srt_coll_t *coll, srt_buffer_t *buffer)
{
	(void)buffer;
	for (int i = 0; i < 64; i++)
		SRT_TRY(srt_coll_start(coll, NULL, job->stream));
	return srt_stream_sync(job->stream);
}

/* The launches that find no room keep the driver busy until the collective is aborted. */
static srt_status_t sum_and_launch(job_t *job, srt_coll_t *coll, srt_buffer_t *buffer)
{
	SRT_TRY(srt_coll_start(coll, NULL, job->stream));
	for (int i = 0; i < 1500; i++)
		SRT_TRY(srt_op_fill(srt_view(buffer, 0, SRT_F32), 1.0f, 1, job->stream));
	return srt_stream_sync(job->stream);
}

/* An all-reduce of all elements, "block 7", in a separate buffer. */
static srt_status_t make_block(job_t *job, srt_buffer_t **buffer, float **full, srt_coll_t **coll)
{
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_REDUCE,
		.name = "block 7",
		.dtype = SRT_F32,
	};
	owners_t o;

	make_owners(&o, MOST_RUNS, job->size, 1);
	*buffer = job_buffer(job, o.nelem, "full", full);
	desc.full = srt_view(*buffer, 0, SRT_F32);
	desc.owners = o.owner;
	return srt_coll_create(job->world, &desc, coll);
}

/* timeout_s: 0 for the usual one. */
static void check_failure(job_t *job, char **words, sum_fn *sum, double timeout_s)
{
	float *full;
	srt_buffer_t *buffer;
	srt_coll_t *coll = NULL;
	srt_status_t status;
	double start = srt_now_s();
	srt_stream_t *other = NULL;

	CHECK_OK_OR_DIE(srt_stream_create(job->device, 0, "other", &other));
	/* A rank that is late may hear of it before its collective is made. */
	status = make_block(job, &buffer, &full, &coll);
	if (timeout_s > 0)
		job_set_timeout(job, timeout_s);
	if (status == SRT_OK)
		status = sum(job, coll, buffer);
	CHECK(status != SRT_OK);
	for (; *words != NULL; words++)
		CHECK_ERROR_HAS(*words);
	/* All streams keep failing, and destroying objects does not block. */
	CHECK(coll == NULL || srt_coll_start(coll, NULL, job->stream) != SRT_OK);
	CHECK(coll == NULL || srt_stream_sync(other) != SRT_OK);
	srt_stream_destroy(other);
	CHECK_WITHIN(4, start);
	srt_coll_destroy(coll);
	job_drop(buffer, full);
}

/* The last rank calls nothing while the others' deadline passes, they close the job and leave: they
 * need not wait for it, though an abort of NCCL's waits for all ranks'. */
static void check_idle(job_t *job)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	const int last = job->size - 1;
	double start;
	float *full;
	srt_buffer_t *buffer;
	srt_coll_t *coll = NULL;

	CHECK_OK_OR_DIE(make_block(job, &buffer, &full, &coll));
	job_set_timeout(job, 0.7);
	start = srt_now_s();
	for (int r = 0; job->rank == last && r < last; r++) {
		while (srt_control_peer_state(job->bootstrap->control, r) == SRT_PEER_ALIVE &&
		       srt_now_s() - start < check_patience(4))
			nanosleep(&ms, NULL);
		CHECK_INT(srt_control_peer_state(job->bootstrap->control, r), SRT_PEER_LEFT);
	}
	CHECK(srt_coll_start(coll, NULL, job->stream) != SRT_OK ||
	      srt_stream_sync(job->stream) != SRT_OK);
	CHECK_ERROR_HAS("SHARDRT_TIMEOUT");
	srt_coll_destroy(coll);
	job_drop(buffer, full);
}

/* ---- the backend's table, without the transport: also with one device ------------- */

static void wait_idle(const srt_backend_comm_ops_t *ops, void *comm)
{
	double start = srt_now_s();
	int pending = 1;

	while (pending && srt_now_s() - start < 60)
		CHECK_OK_OR_DIE(ops->poll(comm, &pending));
	CHECK_INT(pending, 0);
}

static void end_group(const srt_backend_comm_ops_t *ops, void *comm, srt_stream_t *stream)
{
	void *group = NULL;

	CHECK_OK_OR_DIE(ops->group_end(comm, &group));
	CHECK_OK(srt_stream_call(stream, ops->group_run, group));
	CHECK_OK(srt_stream_sync(stream));
}

static void check_ops(job_t *job)
{
	const srt_backend_comm_ops_t *ops = job->device->backend->comm;
	void *device = job->device->impl, *comm = NULL;
	srt_stream_t *stream = job->stream;
	const size_t nbytes = N * sizeof(float);
	float *x, *y;
	srt_buffer_t *bx = job_buffer(job, 2 * N, "x", &x), *by = job_buffer(job, 2 * N, "y", &y);
	srt_comm_description_t description;
	srt_comm_id_t id;

	if (ops == NULL)
		CHECK_SKIP("the backend has no table of collectives");
	CHECK_OK_OR_DIE(ops->probe(device, &description));
	printf("%s\n", description.library);
	CHECK_OK_OR_DIE(ops->make_id(device, &id));
	CHECK_OK_OR_DIE(ops->init(device, &id, 0, 1, &comm));
	wait_idle(ops, comm);
	for (size_t i = 0; i < 2 * N; i++)
		x[i] = value(0, i);
	job_put(job, bx, x);
	CHECK_OK(ops->group_begin(comm));
	CHECK_OK(ops->all_gather(comm, by->impl, 0, bx->impl, nbytes, nbytes));
	end_group(ops, comm, stream);
	wait_idle(ops, comm);
	CHECK_OK(ops->group_begin(comm));
	CHECK_OK(ops->reduce_scatter(comm, by->impl, nbytes, bx->impl, 0, N, SRT_F32));
	CHECK_OK(ops->all_reduce(comm, bx->impl, 0, N, SRT_F32));
	CHECK_OK(ops->broadcast(comm, bx->impl, nbytes, nbytes, 0));
	end_group(ops, comm, stream);
	wait_idle(ops, comm);
	job_get(job, y, by);
	CHECK_BITS(y, x + N, N);
	CHECK_BITS(y + N, x, N);
	job_get(job, y, bx);
	CHECK_BITS(y, x, 2 * N);
	ops->abort(comm);
	ops->destroy(comm);
	job_drop(by, y);
	job_drop(bx, x);
}

int main(int argc, char **argv)
{
	job_t job;

	job_open(&job);
	if (argc == 2 && strcmp(argv[1], "sums") == 0)
		check_sums(&job);
	else if (argc > 2 && strcmp(argv[1], "fails") == 0)
		check_failure(&job, argv + 2, sum_until_failure, 0);
	else if (argc > 2 && strcmp(argv[1], "hangs") == 0)
		check_failure(&job, argv + 2, sum_until_failure, 0.7);
	else if (argc > 2 && strcmp(argv[1], "full") == 0)
		check_failure(&job, argv + 2, sum_many, 0.7);
	else if (argc > 2 && strcmp(argv[1], "blocked") == 0)
		check_failure(&job, argv + 2, sum_and_launch, 0.7);
	else if (argc == 2 && strcmp(argv[1], "many") == 0)
		check_many(&job);
	else if (argc == 2 && strcmp(argv[1], "idle") == 0)
		check_idle(&job);
	else if (argc == 2 && strcmp(argv[1], "ops") == 0)
		check_ops(&job);
	else
		CHECK_MSG(
			0,
			"test_nccl_transport sums | many | fails | hangs | full | blocked WORDS... | idle | ops");
	job_close(&job);
	return check_done();
}
