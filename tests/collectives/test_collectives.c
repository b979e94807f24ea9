/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every collective, on as many ranks as the launcher starts, against plain host code: data whose
 * sums are exact in any order, and ill-conditioned data against the tree's order computed by
 * other means. Layouts: even, uneven, empty shards, empty segments, many small segments, gaps.
 */
#include <stdbool.h>

#include <shardrt/native.h>

#include "tests/harness/job.h"

#define MAX_SEGMENTS 64
#define GUARD -12345.0f

/* A layout that every rank computes alike. */
typedef struct layout {
	const char *name;
	srt_coll_owner_t owners[64];
	srt_coll_segment_t *segments; /* [size][MAX_SEGMENTS] */
	size_t full_nelem;            /* buffer size; the segments may leave gaps */
	size_t shard_nelem[64];
} layout_t;

typedef enum { EVEN, UNEVEN, EMPTY_LAST, ONE_OWNER, MANY, NOTHING, NLAYOUTS } shape_t;

static size_t owned_nelem(shape_t shape, int rank, int size, size_t base)
{
	switch (shape) {
	case EVEN:
		return base;
	case UNEVEN:
		return base + (size_t)rank * 7 + 1;
	case EMPTY_LAST:
		return rank == size - 1 ? 0 : base + 3;
	case ONE_OWNER:
		return rank == size / 2 ? base : 0;
	case MANY:
		return base / 4;
	default:
		return 0;
	}
}

static void add_segment(layout_t *l, int rank, size_t nelem, size_t gap)
{
	srt_coll_owner_t *o = &l->owners[rank];
	srt_coll_segment_t *s = &l->segments[(size_t)rank * MAX_SEGMENTS + o->nsegments++];

	*s = (srt_coll_segment_t){ l->full_nelem, l->shard_nelem[rank], nelem };
	l->full_nelem += nelem + gap;
	l->shard_nelem[rank] += nelem + gap;
}

static void make_layout(layout_t *l, shape_t shape, int size, size_t base)
{
	static const char *const names[] = { "even",      "uneven", "empty last",
					     "one owner", "many",   "nothing" };

	memset(l, 0, sizeof(*l));
	l->name = names[shape];
	l->segments = calloc((size_t)size * MAX_SEGMENTS, sizeof(*l->segments));
	CHECK_OR_DIE(l->segments != NULL);
	for (int r = 0; r < size; r++)
		l->owners[r].segments = &l->segments[(size_t)r * MAX_SEGMENTS];
	/* MANY: parameters one after the other, each cut over the ranks; some segments empty. */
	for (int i = 0; i < (shape == MANY ? 13 : 1); i++) {
		for (int r = 0; r < size; r++) {
			size_t n = owned_nelem(shape, r, size, base);
			if (shape == MANY)
				n = (i + r) % 4 == 0 ? 0 : n / (size_t)(i + 1) + 1;
			if (n > 0 || shape == MANY)
				add_segment(l, r, n, shape == MANY ? (size_t)(i % 3) : 0);
		}
	}
}

static void free_layout(layout_t *l)
{
	free(l->segments);
}

/* ---- data and the reference ----------------------------------------------------------- */

typedef enum { EXACT_SUMS, ILL_CONDITIONED } data_t;

static float value(data_t data, int rank, size_t i)
{
	uint64_t z = job_noise((uint64_t)rank, i);

	if (data == EXACT_SUMS) /* small integers: sums are exact in any order */
		return (float)((int)(z % 2001) - 1000);
	/* Both signs, all bits used: another order of adding gives other bits. */
	static const float powers[] = { 0.125f, 0.25f, 0.5f, 1.0f, 2.0f, 4.0f, 8.0f };
	float m = (1.0f + (float)(z >> 40) * 0x1p-24f) * powers[z % 7];

	return (z >> 39) & 1 ? -m : m;
}

/* The tree by its recursive definition over [lo, hi): cut at the largest power of two below n. */
static float tree(data_t data, int lo, int hi, size_t i, float predivisor)
{
	int n = hi - lo, half = 1;
	volatile float sum;

	if (n == 1)
		return value(data, lo, i) / predivisor;
	while (half * 2 < n)
		half *= 2;
	sum = tree(data, lo, lo + half, i, predivisor) + tree(data, lo + half, hi, i, predivisor);
	return sum;
}

static float linear(data_t data, int size, size_t i)
{
	volatile float sum = value(data, 0, i);

	for (int r = 1; r < size; r++)
		sum = sum + value(data, r, i);
	return sum;
}

static float expected(const job_t *job, data_t data, size_t i, const srt_coll_epilogue_t *e,
		      float before)
{
	volatile float x = tree(data, 0, job->size, i, e != NULL ? e->predivisor : 1.0f);

	if (e != NULL)
		x = x / e->divisor;
	if (e != NULL && e->accumulate)
		x = before + x;
	return x;
}

/* ---- one collective ------------------------------------------------------------------- */

typedef struct sides {
	srt_buffer_t *full_buffer, *shard_buffer;
	float *full, *shard;              /* host copies */
	size_t full_offset, shard_offset; /* elements; different on each rank */
} sides_t;

static void make_sides(job_t *job, const layout_t *l, sides_t *s)
{
	s->full_offset = 16 * (size_t)(job->rank + 1);
	s->shard_offset = 5 + (size_t)job->rank;
	s->full_buffer = job_buffer(job, l->full_nelem + s->full_offset + 3, "full", &s->full);
	s->shard_buffer = job_buffer(job, l->shard_nelem[job->rank] + s->shard_offset + 3, "shard",
				     &s->shard);
}

static void free_sides(sides_t *s)
{
	job_drop(s->shard_buffer, s->shard);
	job_drop(s->full_buffer, s->full);
}

static void fill_guard(float *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = GUARD;
}

static srt_coll_desc_t describe(const layout_t *l, const sides_t *s, srt_coll_kind_t kind)
{
	return (srt_coll_desc_t){
		.size = sizeof(srt_coll_desc_t),
		.kind = kind,
		.name = l->name,
		.dtype = SRT_F32,
		.full = srt_view(s->full_buffer, s->full_offset * sizeof(float), SRT_F32),
		.shard = srt_view(s->shard_buffer, s->shard_offset * sizeof(float), SRT_F32),
		.owners = l->owners,
	};
}

static void fill_source(job_t *job, const layout_t *l, sides_t *s, bool shard, data_t data)
{
	fill_guard(s->full, srt_buffer_nbytes(s->full_buffer) / sizeof(float));
	fill_guard(s->shard, srt_buffer_nbytes(s->shard_buffer) / sizeof(float));
	if (!shard) {
		for (size_t i = 0; i < l->full_nelem; i++)
			s->full[s->full_offset + i] = value(data, job->rank, i);
		return;
	}
	for (size_t k = 0; k < l->owners[job->rank].nsegments; k++) {
		const srt_coll_segment_t *g = &l->owners[job->rank].segments[k];
		for (size_t i = 0; i < g->nelem; i++)
			s->shard[s->shard_offset + g->shard_offset + i] =
				value(data, job->rank, g->full_offset + i);
	}
}

/* What must be in `full` (or `shard`) afterwards, n elements: everything else untouched, guards
 * included. The caller frees it. */
static float *make_result(job_t *job, const layout_t *l, const sides_t *s, srt_coll_kind_t kind,
			  data_t data, const srt_coll_epilogue_t *e, int root, size_t n)
{
	bool to_shard = kind == SRT_COLL_REDUCE_SCATTER;
	float *want = malloc(n * sizeof(*want) + 1);

	CHECK_OR_DIE(want != NULL);
	fill_guard(want, n);
	if (kind == SRT_COLL_ALL_REDUCE || kind == SRT_COLL_BROADCAST) {
		for (size_t i = 0; i < l->full_nelem; i++)
			want[s->full_offset + i] = value(data, job->rank, i);
	}
	for (int r = 0; r < job->size; r++) {
		if ((to_shard && r != job->rank) || (kind == SRT_COLL_BROADCAST && r != root))
			continue;
		for (size_t k = 0; k < l->owners[r].nsegments; k++) {
			const srt_coll_segment_t *g = &l->owners[r].segments[k];
			for (size_t i = 0; i < g->nelem; i++) {
				size_t at = to_shard ? s->shard_offset + g->shard_offset + i :
						       s->full_offset + g->full_offset + i;
				if (kind == SRT_COLL_ALL_GATHER || kind == SRT_COLL_BROADCAST)
					want[at] = value(data, r, g->full_offset + i);
				else
					want[at] =
						expected(job, data, g->full_offset + i, e, GUARD);
			}
		}
	}
	return want;
}

static void run_kind(job_t *job, shape_t shape, size_t base, srt_coll_kind_t kind, data_t data,
		     const srt_coll_epilogue_t *e)
{
	layout_t l;
	sides_t s;
	srt_coll_t *coll = NULL;
	int root = kind == SRT_COLL_BROADCAST ? job->size / 2 : 0;
	bool to_shard = kind == SRT_COLL_REDUCE_SCATTER;

	make_layout(&l, shape, job->size, base);
	make_sides(job, &l, &s);
	size_t n = srt_buffer_nbytes(to_shard ? s.shard_buffer : s.full_buffer) / sizeof(float);
	float *want = make_result(job, &l, &s, kind, data, e, root, n);
	srt_coll_desc_t desc = describe(&l, &s, kind);
	desc.root = root;
	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	for (int repeat = 0; repeat < 3; repeat++) {
		fill_source(job, &l, &s, kind == SRT_COLL_ALL_GATHER, data);
		CHECK_OK(srt_coll_wait_readers(coll, job->stream));
		job_put(job, s.full_buffer, s.full);
		job_put(job, s.shard_buffer, s.shard);
		CHECK_OK(srt_coll_start(coll, e, job->stream));
		job_get(job, s.full, s.full_buffer);
		job_get(job, s.shard, s.shard_buffer);
		CHECK_BITS(to_shard ? s.shard : s.full, want, n);
	}
	free(want);
	CHECK_OK(srt_coll_wait_readers(coll, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(coll);
	free_sides(&s);
	free_layout(&l);
}

static void test_kinds(job_t *job)
{
	const size_t bases[] = { 1, 97, job->size <= 4 ? 5000 : 20000 / (size_t)job->size };

	for (int shape = 0; shape < NLAYOUTS; shape++) {
		for (size_t b = 0; b < SRT_ARRAY_LEN(bases); b++) {
			for (int data = EXACT_SUMS; data <= ILL_CONDITIONED; data++) {
				run_kind(job, (shape_t)shape, bases[b], SRT_COLL_ALL_GATHER,
					 (data_t)data, NULL);
				run_kind(job, (shape_t)shape, bases[b], SRT_COLL_REDUCE_SCATTER,
					 (data_t)data, NULL);
				run_kind(job, (shape_t)shape, bases[b], SRT_COLL_ALL_REDUCE,
					 (data_t)data, NULL);
				run_kind(job, (shape_t)shape, bases[b], SRT_COLL_BROADCAST,
					 (data_t)data, NULL);
			}
		}
	}
}

static srt_coll_epilogue_t epilogue(float predivisor, float divisor, int accumulate)
{
	return (srt_coll_epilogue_t){ .size = sizeof(srt_coll_epilogue_t),
				      .predivisor = predivisor,
				      .divisor = divisor,
				      .accumulate = accumulate };
}

static void test_epilogues(job_t *job)
{
	const srt_coll_epilogue_t cases[] = {
		epilogue(1.0f, 3.0f, 0),
		epilogue(1.0f, 1.0f, 0),
		epilogue(1.0f, (float)job->size, 0),
		epilogue(1.0f, 1.0f, 1),
		epilogue(1.0f, 7.0f, 1),
		epilogue(3.0f, 1.0f, 0),
		epilogue(3.0f, 7.0f, 1),
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(cases); i++) {
		run_kind(job, UNEVEN, 777, SRT_COLL_REDUCE_SCATTER, ILL_CONDITIONED, &cases[i]);
		if (!cases[i].accumulate)
			run_kind(job, UNEVEN, 777, SRT_COLL_ALL_REDUCE, ILL_CONDITIONED, &cases[i]);
	}
}

/* The ill-conditioned data must tell the tree from rank order, or it proves nothing. */
static void test_data_is_telling(const job_t *job)
{
	int differ = 0;

	for (size_t i = 0; i < 1000; i++)
		differ += tree(ILL_CONDITIONED, 0, job->size, i, 1.0f) !=
			  linear(ILL_CONDITIONED, job->size, i);
	if (job->size > 3)
		CHECK(differ > 200);
}

/* More elements than a tile of an all-reduce, and than a chunk of partial sums (more than 8 ranks).
 */
static void test_large(job_t *job)
{
	run_kind(job, UNEVEN, 40000, SRT_COLL_ALL_REDUCE, ILL_CONDITIONED, NULL);
	run_kind(job, UNEVEN, 40000, SRT_COLL_REDUCE_SCATTER, ILL_CONDITIONED, NULL);
}

static void test_barrier(job_t *job)
{
	srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				 .kind = SRT_COLL_BARRIER,
				 .name = "all here" };
	srt_coll_t *barrier = NULL;

	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &barrier));
	for (int i = 0; i < 100; i++)
		CHECK_OK(srt_coll_start(barrier, NULL, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(barrier);
}

static void check_gathered(const layout_t *l, int size, const float *full)
{
	for (int r = 0; r < size; r++) {
		for (size_t i = 0; i < l->owners[r].segments->nelem; i++)
			CHECK(full[l->owners[r].segments->full_offset + i] ==
			      value(EXACT_SUMS, r, i));
	}
}

/* The shard lies in the full buffer at its own place: nothing is copied for the own part. */
static void test_in_place_gather(job_t *job)
{
	layout_t l;
	float *full;
	srt_coll_t *coll = NULL;

	make_layout(&l, UNEVEN, job->size, 100);
	srt_buffer_t *buffer = job_buffer(job, l.full_nelem, "full", &full);
	const srt_coll_segment_t *mine = l.owners[job->rank].segments;
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_GATHER,
		.name = "in place",
		.dtype = SRT_F32,
		.full = srt_view(buffer, 0, SRT_F32),
		.shard = srt_view(buffer, mine->full_offset * sizeof(float), SRT_F32),
		.owners = l.owners,
	};
	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	for (size_t i = 0; i < mine->nelem; i++)
		full[mine->full_offset + i] = value(EXACT_SUMS, job->rank, i);
	job_put(job, buffer, full);
	CHECK_OK(srt_coll_start(coll, NULL, job->stream));
	job_get(job, full, buffer);
	check_gathered(&l, job->size, full);
	CHECK_OK(srt_coll_wait_readers(coll, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(coll);
	job_drop(buffer, full);
	free_layout(&l);
}

/* Memory of the program: a destination always, a source where peers do not map it. */
static void test_wrapped(job_t *job)
{
	const bool refused = srt_comm_zero_copy(job->world);
	layout_t l;
	float *full, *shard, *host;
	srt_buffer_t *own, *mine[2];
	srt_coll_t *coll = NULL;

	make_layout(&l, UNEVEN, job->size, 100);
	own = job_buffer(job, l.shard_nelem[job->rank], "own", &host);
	full = aligned_alloc(64, srt_align_up(l.full_nelem * sizeof(float), 64));
	shard = aligned_alloc(64, srt_align_up(l.shard_nelem[job->rank] * sizeof(float), 64));
	CHECK_OR_DIE(full != NULL && shard != NULL);
	for (size_t i = 0; i < l.shard_nelem[job->rank]; i++)
		host[i] = shard[i] = value(EXACT_SUMS, job->rank, i);
	job_put(job, own, host);
	CHECK_OK_OR_DIE(
		srt_buffer_wrap(job->device, full, l.full_nelem * sizeof(float), "mine", &mine[0]));
	CHECK_OK_OR_DIE(srt_buffer_wrap(job->device, shard,
					l.shard_nelem[job->rank] * sizeof(float), "my shard",
					&mine[1]));
	for (int source = 0; source < 2; source++) {
		const srt_coll_desc_t desc = {
			.size = sizeof(srt_coll_desc_t),
			.kind = SRT_COLL_ALL_GATHER,
			.name = "wrapped",
			.dtype = SRT_F32,
			.full = srt_view(mine[0], 0, SRT_F32),
			.shard = srt_view(source ? mine[1] : own, 0, SRT_F32),
			.owners = l.owners,
		};

		if (source && refused) {
			CHECK_STATUS(srt_coll_create(job->world, &desc, &coll),
				     SRT_ERR_INVALID_ARGUMENT);
			CHECK_ERROR_HAS("\"my shard\" must be made with SRT_MEM_PEER");
			break;
		}
		memset(full, 0, l.full_nelem * sizeof(float));
		CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
		CHECK_OK(srt_coll_start(coll, NULL, job->stream));
		CHECK_OK(srt_stream_sync(job->stream));
		check_gathered(&l, job->size, full);
		CHECK_OK(srt_coll_wait_readers(coll, job->stream));
		CHECK_OK(srt_stream_sync(job->stream));
		srt_coll_destroy(coll);
	}
	srt_buffer_destroy(mine[0]);
	srt_buffer_destroy(mine[1]);
	free(full);
	free(shard);
	job_drop(own, host);
	free_layout(&l);
}

/* What the script has asked for, or what the devices can do. */
static void test_transport(job_t *job)
{
	const char *asked = srt_config_string("SHARDRT_COLLECTIVES");
	const char *transport = srt_comm_transport(job->world);

	if (job->size == 1)
		CHECK_STR(transport, "none");
	else if (getenv("SRT_TEST_NODES") != NULL)
		CHECK_STR(transport, "hierarchical");
	else if (strcmp(asked, "ucx") == 0 || strcmp(asked, "nccl") == 0)
		CHECK_STR(transport, asked);
	else if (srt_comm_mem_kind(job->world) == SRT_MEM_PEER)
		CHECK_STR(transport, "zero copy");
	else if (strcmp(transport, "nccl") != 0)
		CHECK_STR(transport, "staged");
}

int main(void)
{
	job_t job;

	job_open(&job);
	test_transport(&job);
	test_data_is_telling(&job);
	test_barrier(&job);
	test_kinds(&job);
	test_epilogues(&job);
	test_large(&job);
	test_in_place_gather(&job);
	test_wrapped(&job);
	job_close(&job);
	return check_done();
}
