/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meshes and splits on as many ranks as the launcher starts: shapes, coordinates, the communicators
 * along each dimension, slices, what is refused, and the order in which objects are destroyed.
 *
 * Modes "late" and "die": the last rank comes too late to a split, or dies before it.
 *
 * Reliability: a mesh or a slice that only one rank describes wrongly | the other ranks wait for
 * `SHARDRT_TIMEOUT` | the same error on all ranks
 */
#include <limits.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "collectives/mesh.h"
#include "tests/harness/job.h"

#define MAX_WORLD 8
#define N 33 /* elements a rank */

static const char *const names[] = { "replicate", "shard", "inner" };

/* ---- collectives over a communicator ------------------------------------------------------ */

static float value(int world_rank, size_t i)
{
	return (float)((int)(job_noise((uint64_t)world_rank, i) % 2001) - 1000);
}

/* An all-gather and an all-reduce, whose members are `ranks` of the world. */
static void check_collectives(job_t *job, srt_comm_t *comm, const int *ranks)
{
	const int size = srt_comm_size(comm), rank = srt_comm_rank(comm);
	srt_coll_segment_t segments[MAX_WORLD];
	srt_coll_owner_t owners[MAX_WORLD];
	const size_t nelem = N * (size_t)size;
	float *host, *part;
	srt_buffer_t *full = job_buffer(job, nelem, "full", &host);
	srt_buffer_t *shard = job_buffer(job, N, "shard", &part);
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_GATHER,
		.name = "along a dimension",
		.dtype = SRT_F32,
		.full = srt_view(full, 0, SRT_F32),
		.shard = srt_view(shard, 0, SRT_F32),
		.owners = owners,
	};
	srt_coll_t *gather = NULL, *sum = NULL;

	for (int r = 0; r < size; r++) {
		segments[r] = (srt_coll_segment_t){ (size_t)r * N, 0, N };
		owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
	}
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &gather));
	desc.kind = SRT_COLL_ALL_REDUCE;
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &sum));
	for (size_t i = 0; i < N; i++)
		part[i] = value(job->rank, (size_t)rank * N + i);
	job_put(job, shard, part);
	CHECK_OK(srt_coll_start(gather, NULL, job->stream));
	job_get(job, host, full);
	for (size_t i = 0; i < nelem; i++)
		CHECK(host[i] == value(ranks[i / N], i));
	for (size_t i = 0; i < nelem; i++)
		host[i] = value(job->rank, i);
	job_put(job, full, host);
	CHECK_OK(srt_coll_start(sum, NULL, job->stream));
	job_get(job, host, full);
	for (size_t i = 0; i < nelem; i++) {
		float want = 0;

		for (int r = 0; r < size; r++)
			want += value(ranks[r], i);
		CHECK(host[i] == want);
	}
	CHECK_OK(srt_coll_wait_readers(gather, job->stream));
	CHECK_OK(srt_coll_wait_readers(sum, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(gather);
	srt_coll_destroy(sum);
	job_drop(shard, part);
	job_drop(full, host);
}

/* The communicator's ranks are these of the world, in this order. */
static void check_members(job_t *job, srt_comm_t *comm, const int *ranks, int n)
{
	int all[MAX_WORLD];

	CHECK_INT(srt_comm_size(comm), n);
	CHECK_INT(ranks[srt_comm_rank(comm)], job->rank);
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(comm, &job->rank, sizeof(int), all));
	CHECK(memcmp(all, ranks, (size_t)n * sizeof(int)) == 0);
	check_collectives(job, comm, ranks);
}

/* ---- shapes --------------------------------------------------------------------------------- */

/* The coordinates of a rank of a row-major grid, by counting. */
static void count_to(const int *shape, int ndim, int rank, int *at)
{
	memset(at, 0, (size_t)ndim * sizeof(*at));
	for (; rank > 0; rank--) {
		int d = ndim - 1;

		while (++at[d] == shape[d])
			at[d--] = 0;
	}
}

/* The ranks that have this rank's coordinates in all dimensions that are not in `dims`. */
static int list_ranks(const job_t *job, const int *shape, int ndim, unsigned dims, int *ranks)
{
	int mine[SRT_MESH_MAX_DIMS], at[SRT_MESH_MAX_DIMS], n = 0;

	count_to(shape, ndim, job->rank, mine);
	for (int r = 0; r < job->size; r++) {
		bool same = true;

		count_to(shape, ndim, r, at);
		for (int d = 0; d < ndim; d++)
			same = same && ((dims >> d & 1) != 0 || at[d] == mine[d]);
		if (same)
			ranks[n++] = r;
	}
	return n;
}

static void check_shape(job_t *job, const int *shape, int ndim)
{
	int at[SRT_MESH_MAX_DIMS], ranks[MAX_WORLD];
	srt_mesh_t *mesh = NULL;

	CHECK_OK_OR_DIE(srt_mesh_create(job->world, ndim, shape, names, &mesh));
	count_to(shape, ndim, job->rank, at);
	CHECK_INT(srt_mesh_ndim(mesh), ndim);
	CHECK_INT(srt_mesh_size(mesh, NULL), job->size);
	CHECK_INT(srt_mesh_coordinate(mesh, NULL), job->rank);
	CHECK(srt_mesh_comm(mesh, NULL) == job->world);
	for (int d = 0; d < ndim; d++) {
		int n = list_ranks(job, shape, ndim, 1u << d, ranks);

		CHECK_STR(srt_mesh_name(mesh, d), names[d]);
		CHECK_INT(srt_mesh_size(mesh, names[d]), shape[d]);
		CHECK_INT(srt_mesh_coordinate(mesh, names[d]), at[d]);
		CHECK_INT(srt_comm_rank(srt_mesh_comm(mesh, names[d])), at[d]);
		/* All ranks: not another communicator, which could not have NCCL. */
		CHECK((srt_mesh_comm(mesh, names[d]) == job->world) == (n == job->size));
		check_members(job, srt_mesh_comm(mesh, names[d]), ranks, n);
	}
	CHECK_STR(srt_mesh_name(mesh, -1), "");
	CHECK_STR(srt_mesh_name(mesh, ndim), "");
	CHECK_INT(srt_mesh_size(mesh, "other"), 0);
	CHECK_INT(srt_mesh_coordinate(mesh, "other"), -1);
	CHECK(srt_mesh_comm(mesh, "other") == NULL);
	for (unsigned dims = 1; dims < 1u << ndim; dims++) {
		const char *kept[SRT_MESH_MAX_DIMS];
		srt_mesh_t *sub = NULL;
		int nkept = 0, n = list_ranks(job, shape, ndim, dims, ranks);

		for (int d = 0; d < ndim; d++)
			if ((dims >> d & 1) != 0)
				kept[nkept++] = names[d];
		CHECK_OK_OR_DIE(srt_mesh_slice(mesh, nkept, kept, &sub));
		CHECK_INT(srt_mesh_ndim(sub), nkept);
		for (int i = 0; i < nkept; i++) {
			CHECK_INT(srt_mesh_size(sub, kept[i]), srt_mesh_size(mesh, kept[i]));
			CHECK_INT(srt_mesh_coordinate(sub, kept[i]),
				  srt_mesh_coordinate(mesh, kept[i]));
		}
		CHECK((srt_mesh_comm(sub, NULL) == job->world) == (n == job->size));
		check_members(job, srt_mesh_comm(sub, NULL), ranks, n);
		srt_mesh_destroy(sub);
	}
	srt_mesh_destroy(mesh);
}

static void test_shapes(job_t *job)
{
	for (int a = 1; a <= job->size; a++) {
		for (int b = 1; job->size % a == 0 && b <= job->size / a; b++) {
			const int shape[] = { a, b, job->size / a / b };

			if (job->size / a % b != 0)
				continue;
			check_shape(job, shape, 3);
			if (shape[2] == 1)
				check_shape(job, shape, 2);
		}
	}
	check_shape(job, &job->size, 1);
}

/* Without a communicator nothing is collective. */
static void test_plan_mesh(void)
{
	const int shape[] = { 16, 1024 };
	srt_mesh_t *mesh = NULL, *sub = NULL;

	CHECK_OK_OR_DIE(srt_mesh_create(NULL, 2, shape, names, &mesh));
	CHECK_INT(srt_mesh_size(mesh, NULL), 16384);
	CHECK_INT(srt_mesh_coordinate(mesh, "shard"), 0);
	CHECK(srt_mesh_comm(mesh, NULL) == NULL && srt_mesh_comm(mesh, "shard") == NULL);
	CHECK_OK_OR_DIE(srt_mesh_slice(mesh, 1, names + 1, &sub));
	srt_mesh_destroy(mesh);
	CHECK_INT(srt_mesh_size(sub, NULL), 1024);
	CHECK_STATUS(srt_mesh_slice(sub, 1, names, &mesh), SRT_ERR_INVALID_ARGUMENT);
	srt_mesh_destroy(sub);
}

/* ---- splits --------------------------------------------------------------------------------- */

static void test_split(job_t *job)
{
	int ranks[MAX_WORLD], n = 0;
	srt_comm_t *comm = NULL;

	/* Three colours that are not in order, and ranks without one. */
	for (int r = 0; r < job->size; r++)
		if (r % 3 == job->rank % 3)
			ranks[n++] = r;
	CHECK_OK_OR_DIE(
		srt_comm_split(job->world,
			       job->rank % 3 == 1 ? SRT_COLOUR_NONE : INT_MAX - job->rank % 3, NULL,
			       &comm));
	CHECK((comm == NULL) == (job->rank % 3 == 1));
	if (comm != NULL)
		check_members(job, comm, ranks, n);
	srt_comm_destroy(comm);
	CHECK_OK(srt_comm_split(job->world, SRT_COLOUR_NONE, "nobody", &comm));
	CHECK(comm == NULL);
	/* A group of a group, and two of the same name. */
	for (int twice = 0; twice < 2; twice++) {
		srt_comm_t *half = NULL, *one = NULL;

		CHECK_OK_OR_DIE(srt_comm_split(job->world, job->rank % 2, "half", &half));
		CHECK_OK_OR_DIE(srt_comm_split(half, job->rank, "half", &one));
		CHECK_INT(srt_comm_size(half), (job->size + 1 - job->rank % 2) / 2);
		check_members(job, one, &job->rank, 1);
		srt_comm_destroy(half);
		srt_comm_destroy(one);
	}
}

/* ---- what is refused ------------------------------------------------------------------------ */

/* All ranks have the same last error. */
static void check_same_error(job_t *job, const char *words)
{
	char mine[512] = "", all[MAX_WORLD][512];

	CHECK_ERROR_HAS(words);
	snprintf(mine, sizeof(mine), "%s", srt_error_last());
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, mine, sizeof(mine), all));
	for (int r = 0; r < job->size; r++)
		CHECK_STR(all[r], all[0]);
}

typedef struct bad_mesh {
	int ndim, shape[5];
	const char *names[5];
	const char *words;
} bad_mesh_t;

static void test_bad_meshes(job_t *job)
{
	const int n = job->size;
	const bad_mesh_t cases[] = {
		{ 0, { 1 }, { "a" }, "0 dimensions, must be 1 to 4" },
		{ 5, { 1, 1, 1, 1, 1 }, { "a", "b", "c", "d", "e" }, "5 dimensions" },
		{ 2, { n, 1 }, { "a", "a" }, "dimensions 0 and 1 are both called 'a'" },
		{ 2, { n, 1 }, { "a", "" }, "the name of dimension 1 has 0 bytes" },
		{ 1, { n }, { "sixteen bytes xx" }, "has 16 bytes, must have 1 to 15" },
		{ 1, { n }, { NULL }, "the name of dimension 0" },
		{ 2, { n, 0 }, { "a", "b" }, "dimension 'b' has 0 ranks, must have at least 1" },
		{ 2, { -n, -1 }, { "a", "b" }, "dimension 'a' has -" },
		{ 2, { n, 2 }, { "a", "b" }, "but communicator \"world\" has" },
		{ 2, { INT_MAX, 3 }, { "a", "b" }, "is more than 2147483647" },
	};
	const char *good[] = { "a" };
	srt_mesh_t *mesh = NULL;

	for (size_t i = 0; i < SRT_ARRAY_LEN(cases); i++) {
		const bad_mesh_t *c = &cases[i];

		CHECK_STATUS(srt_mesh_create(job->world, c->ndim, c->shape, c->names, &mesh),
			     SRT_ERR_INVALID_ARGUMENT);
		check_same_error(job, c->words);
		/* A wrong mesh on one rank only. */
		CHECK_STATUS(job->rank == n / 2 ? srt_mesh_create(job->world, c->ndim, c->shape,
								  c->names, &mesh) :
						  srt_mesh_create(job->world, 1, &n, good, &mesh),
			     SRT_ERR_INVALID_ARGUMENT);
		check_same_error(job, c->words);
		CHECK(mesh == NULL);
	}
}

static void test_bad_slices(job_t *job)
{
	const int shape[] = { 1, job->size };
	const char *const turned[] = { "shard", "replicate" };
	const char *const missing[] = { "shard", NULL };
	const bool odd = job->rank == job->size - 1;
	srt_mesh_t *mesh = NULL, *sub = NULL;

	CHECK_OK_OR_DIE(srt_mesh_create(job->world, 2, shape, names, &mesh));
	CHECK_STATUS(srt_mesh_slice(mesh, 2, turned, &sub), SRT_ERR_INVALID_ARGUMENT);
	check_same_error(job, "'replicate' is not a dimension of the mesh, or not in the order");
	CHECK_STATUS(srt_mesh_slice(mesh, 2, missing, &sub), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_mesh_slice(mesh, 1, names + 2, &sub), SRT_ERR_INVALID_ARGUMENT);
	check_same_error(job, "'inner' is not a dimension");
	CHECK_STATUS(srt_mesh_slice(mesh, odd ? 3 : 2, names, &sub), SRT_ERR_INVALID_ARGUMENT);
	check_same_error(job, "3 dimensions, must be 1 to 2");
	CHECK(sub == NULL);
	srt_mesh_destroy(mesh);
}

/* Each rank is right, but they differ. */
static void test_mismatch(job_t *job)
{
	const bool odd = job->rank == job->size - 1;
	const int shape[2][2] = { { 1, job->size }, { job->size, 1 } };
	const char *const swapped[] = { "shard", "replicate" };
	srt_mesh_t *mesh = NULL, *sub = NULL;
	srt_comm_t *comm = NULL;

	if (job->size == 1)
		return;
	CHECK_STATUS(srt_mesh_create(job->world, 2, shape[odd], names, &mesh), SRT_ERR_MISMATCH);
	check_same_error(job, "rank 0 creates the mesh replicate=1,shard=");
	CHECK_STATUS(srt_mesh_create(job->world, 2, shape[0], odd ? swapped : names, &mesh),
		     SRT_ERR_MISMATCH);
	check_same_error(job, "the mesh shard=1,replicate=");
	CHECK_STATUS(srt_comm_split(job->world, 0, odd ? "tp" : "dp", &comm), SRT_ERR_MISMATCH);
	check_same_error(job, "rank 0 splits into groups \"dp\", rank ");
	CHECK_STATUS(srt_comm_split(job->world, odd ? -2 : 0, "dp", &comm),
		     SRT_ERR_INVALID_ARGUMENT);
	check_same_error(job, "is -2, must be at least 0, or SRT_COLOUR_NONE");
	CHECK(mesh == NULL && comm == NULL);
	if (job->size % 2 == 0 && job->size > 2) {
		const int cube[] = { 2, job->size / 2, 1 };

		CHECK_OK_OR_DIE(srt_mesh_create(job->world, 3, cube, names, &mesh));
		CHECK_STATUS(srt_mesh_slice(mesh, odd ? 1 : 2, names + 1, &sub), SRT_ERR_MISMATCH);
		check_same_error(job, "rank 0 splits into groups \"shard,inner\", rank ");
		CHECK(sub == NULL);
		srt_mesh_destroy(mesh);
	}
	/* Nothing of this is left. */
	CHECK_OK_OR_DIE(srt_mesh_create(job->world, 2, shape[0], names, &mesh));
	srt_mesh_destroy(mesh);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static int nwarnings;

static void count_warning(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	nwarnings +=
		level == SRT_LOG_WARN &&
		strstr(message, "before 2 of its collectives, engines, meshes and scalers") != NULL;
}

/* The mesh's communicator is destroyed first: the mesh can only be destroyed. */
static void test_destroy_comm_first(job_t *job)
{
	const int shape[] = { 1, job->size };
	srt_mesh_t *mesh = NULL, *sub = NULL;
	srt_comm_t *comm = NULL;

	CHECK_OK_OR_DIE(srt_comm_split(job->world, 0, "to go", &comm));
	CHECK_OK_OR_DIE(srt_mesh_create(comm, 2, shape, names, &mesh));
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	srt_log_set(count_warning, SRT_LOG_WARN, NULL);
	srt_comm_destroy(comm);
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	/* "shard" has all ranks, with one rank "replicate" too. */
	CHECK_INT(nwarnings, job->size > 1);
	CHECK(srt_mesh_slice(mesh, 1, names, &sub) != SRT_OK);
	CHECK_ERROR_HAS("communicator \"to go\"");
	CHECK(sub == NULL);
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	srt_mesh_destroy(mesh);
	/* A slice outlives its mesh. */
	CHECK_OK_OR_DIE(srt_mesh_create(job->world, 2, shape, names, &mesh));
	CHECK_OK_OR_DIE(srt_mesh_slice(mesh, 1, names, &sub));
	srt_mesh_destroy(mesh);
	check_members(job, srt_mesh_comm(sub, NULL), &job->rank, 1);
	srt_mesh_destroy(sub);
}

/* The last rank does not come to a split in time, or not at all. */
static void run_missing(job_t *job, bool dies)
{
	const bool is_last = job->rank == job->size - 1;
	srt_comm_t *comm = NULL;
	double start;
	char who[32];

	job_set_timeout(job, dies ? job->bootstrap->timeout_s : 0.3);
	if (is_last && dies)
		kill(getpid(), SIGKILL);
	while (is_last && !srt_comm_poisoned(job->world))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	snprintf(who, sizeof(who), "rank %d", job->size - 1);
	start = srt_now_s();
	CHECK_STATUS(srt_comm_split(job->world, job->rank % 2, "halves", &comm),
		     dies ? SRT_ERR_PEER_DEAD : SRT_ERR_TIMEOUT);
	CHECK_WITHIN(5, start);
	CHECK_ERROR_HAS(dies ? who : "rank 0 gave up after");
	CHECK_ERROR_HAS("splitting into groups \"halves\"");
	CHECK(comm == NULL);
}

int main(int argc, char **argv)
{
	job_t job;

	job_open(&job);
	CHECK_OR_DIE(job.size <= MAX_WORLD);
	if (argc > 1) {
		run_missing(&job, strcmp(argv[1], "die") == 0);
		job_close(&job);
		return check_done();
	}
	test_shapes(&job);
	test_plan_mesh();
	test_split(&job);
	test_bad_meshes(&job);
	test_bad_slices(&job);
	test_mismatch(&job);
	test_destroy_comm_first(&job);
	job_close(&job);
	return check_done();
}
