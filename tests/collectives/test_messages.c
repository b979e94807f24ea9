/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-to-all and send-recv on as many ranks as the launcher starts, against plain host code: even
 * and uneven splits, empty rows and columns, nothing at all; rings, several messages of a pair,
 * messages to itself, gaps, several dtypes. Only the destinations are written. Then ranks
 * that disagree, tables that cannot be, and the order of starts.
 */
#include <sched.h>
#include <stdbool.h>
#include <unistd.h>

#include "collectives/collective.h"
#include "tests/harness/job.h"

#define MAX_WORLD 8
#define MAX_MESSAGES (MAX_WORLD * 12)
#define GUARD 0xa5

typedef struct sides {
	srt_buffer_t *full_buffer, *shard_buffer;
	unsigned char *full, *shard, *want; /* bytes */
	size_t full_nbytes, shard_nbytes;
} sides_t;

/* Byte i of what a rank sends. */
static unsigned char value(int rank, int repeat, size_t i)
{
	return (unsigned char)(job_noise((uint64_t)(rank * 16 + repeat), i) >> 9);
}

/* A table and the views it needs on every rank alike, in elements. */
typedef struct table {
	const char *name;
	srt_coll_message_t messages[MAX_MESSAGES];
	size_t nmessages;
	size_t splits[MAX_WORLD * MAX_WORLD];
	size_t nelem; /* of both sides */
} table_t;

static void make_sides(job_t *job, const table_t *t, size_t elem_nbytes, sides_t *s)
{
	/* Views begin at element 4; the buffers are larger. */
	s->full_nbytes = s->shard_nbytes = (t->nelem + 7) * elem_nbytes;
	CHECK_OK_OR_DIE(srt_buffer_create(job->device, srt_comm_mem_kind(job->world),
					  s->full_nbytes, "full", &s->full_buffer));
	CHECK_OK_OR_DIE(srt_buffer_create(job->device, SRT_MEM_DEVICE, s->shard_nbytes, "shard",
					  &s->shard_buffer));
	s->full = malloc(s->full_nbytes);
	s->shard = malloc(s->shard_nbytes);
	s->want = malloc(s->shard_nbytes);
	CHECK_OR_DIE(s->full != NULL && s->shard != NULL && s->want != NULL);
}

static void free_sides(sides_t *s)
{
	srt_buffer_destroy(s->full_buffer);
	srt_buffer_destroy(s->shard_buffer);
	free(s->full);
	free(s->shard);
	free(s->want);
}

static srt_coll_desc_t describe(const table_t *t, const sides_t *s, srt_coll_kind_t kind,
				srt_dtype_t dtype)
{
	size_t at = 4 * (srt_dtype_bits(dtype) / 8);

	return (srt_coll_desc_t){
		.size = sizeof(srt_coll_desc_t),
		.kind = kind,
		.name = t->name,
		.dtype = dtype,
		.full = srt_view(s->full_buffer, at, dtype),
		.shard = srt_view(s->shard_buffer, at, dtype),
		.splits = t->splits,
		.messages = t->messages,
		.nmessages = t->nmessages,
	};
}

/* Checks what arrived against t->messages, which also describe the splits. */
static void expect(const job_t *job, const table_t *t, size_t elem_nbytes, int repeat,
		   unsigned char *want)
{
	for (size_t i = 0; i < t->nmessages; i++) {
		const srt_coll_message_t *m = &t->messages[i];

		for (size_t k = 0; m->to == job->rank && k < m->nelem * elem_nbytes; k++)
			want[(4 + m->shard_offset) * elem_nbytes + k] =
				value(m->from, repeat, (4 + m->full_offset) * elem_nbytes + k);
	}
}

static void run(job_t *job, const table_t *t, srt_coll_kind_t kind, srt_dtype_t dtype, bool even)
{
	const size_t elem_nbytes = srt_dtype_bits(dtype) / 8;
	srt_coll_t *coll = NULL;
	srt_coll_desc_t desc;
	sides_t s;

	make_sides(job, t, elem_nbytes, &s);
	desc = describe(t, &s, kind, dtype);
	if (even) {
		desc.splits = NULL;
		desc.split = t->splits[0];
	}
	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	for (int repeat = 0; repeat < 3; repeat++) {
		for (size_t i = 0; i < s.full_nbytes; i++)
			s.full[i] = value(job->rank, repeat, i);
		memset(s.shard, GUARD, s.shard_nbytes);
		memset(s.want, GUARD, s.shard_nbytes);
		expect(job, t, elem_nbytes, repeat, s.want);
		CHECK_OK(srt_coll_wait_readers(coll, job->stream));
		test_put(job->stream, s.full_buffer, 0, s.full, s.full_nbytes);
		test_put(job->stream, s.shard_buffer, 0, s.shard, s.shard_nbytes);
		CHECK_OK(srt_coll_start(coll, NULL, job->stream));
		test_get(job->stream, s.shard, s.shard_buffer, 0, s.shard_nbytes);
		CHECK_MSG(memcmp(s.shard, s.want, s.shard_nbytes) == 0, "%s of %s, start %d",
			  t->name, srt_dtype_name(dtype), repeat);
	}
	CHECK_OK(srt_coll_wait_readers(coll, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(coll);
	free_sides(&s);
}

/* ---- all-to-all --------------------------------------------------------------------------- */

typedef enum { EVEN, UNEVEN, EMPTY_ROW, EMPTY_COLUMN, NOTHING, NSHAPES } shape_t;

static size_t split_of(shape_t shape, int from, int to, int size, size_t base)
{
	switch (shape) {
	case EVEN:
		return base;
	case EMPTY_ROW:
		return from == size - 1 ? 0 : base + (size_t)to;
	case EMPTY_COLUMN:
		return to == 0 ? 0 : base + (size_t)from;
	case NOTHING:
		return 0;
	default: /* from none to three times as much */
		return (base * (size_t)((from * 5 + to * 3) % 4)) / 2 + (size_t)(from * to % 3);
	}
}

/* The splits, and the messages that they mean. */
static void make_splits(table_t *t, shape_t shape, int size, size_t base)
{
	static const char *const names[] = { "even", "uneven", "empty row", "empty column",
					     "nothing" };
	size_t column[MAX_WORLD] = { 0 };

	memset(t, 0, sizeof(*t));
	t->name = names[shape];
	for (int from = 0; from < size; from++) {
		size_t row = 0;

		for (int to = 0; to < size; to++) {
			size_t n = split_of(shape, from, to, size, base);

			t->splits[from * size + to] = n;
			t->messages[t->nmessages++] =
				(srt_coll_message_t){ from, to, row, column[to], n };
			row += n;
			column[to] += n;
			t->nelem = row > t->nelem ? row : t->nelem;
			t->nelem = column[to] > t->nelem ? column[to] : t->nelem;
		}
	}
}

static void test_all_to_all(job_t *job)
{
	table_t t;

	for (int shape = 0; shape < NSHAPES; shape++) {
		make_splits(&t, (shape_t)shape, job->size, 1);
		run(job, &t, SRT_COLL_ALL_TO_ALL, SRT_U8, false);
		make_splits(&t, (shape_t)shape, job->size, 1311);
		run(job, &t, SRT_COLL_ALL_TO_ALL, SRT_F32, false);
	}
	make_splits(&t, EVEN, job->size, 777);
	run(job, &t, SRT_COLL_ALL_TO_ALL, SRT_BF16, true);
	/* A send-recv of the same messages is the same. */
	make_splits(&t, UNEVEN, job->size, 333);
	run(job, &t, SRT_COLL_SEND_RECV, SRT_I64, false);
}

/* ---- send-recv ---------------------------------------------------------------------------- */

static void add(table_t *t, int from, int to, size_t full, size_t shard, size_t nelem)
{
	t->messages[t->nmessages++] = (srt_coll_message_t){ from, to, full, shard, nelem };
	t->nelem = full + nelem > t->nelem ? full + nelem : t->nelem;
	t->nelem = shard + nelem > t->nelem ? shard + nelem : t->nelem;
}

static void test_send_recv(job_t *job)
{
	int n = job->size, last = n - 1;
	table_t none = { .name = "none" }, one = { .name = "one" }, ring = { .name = "ring" },
		many = { .name = "many" };

	run(job, &none, SRT_COLL_SEND_RECV, SRT_F32, false);
	/* Ranks between have no part. */
	add(&one, 0, last, 3, 1, 2001);
	run(job, &one, SRT_COLL_SEND_RECV, SRT_F32, false);
	for (int r = 0; r < n; r++)
		add(&ring, r, (r + 1) % n, 0, 5, 4000 + (size_t)r);
	run(job, &ring, SRT_COLL_SEND_RECV, SRT_F16, false);
	for (int r = 0; r < n; r++) {
		/* Equal bytes to all, in pieces that cross, with gaps, and empty ones. */
		for (int to = 0; to < n && to < 4; to++) {
			add(&many, r, to, 100, (size_t)r * 2000 + 1000, 7);
			add(&many, r, to, 0, (size_t)r * 2000, 900);
			add(&many, r, to, 50, (size_t)r * 2000 + 1007, (size_t)(to % 2) * 33);
		}
	}
	run(job, &many, SRT_COLL_SEND_RECV, SRT_F32, false);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void refused(job_t *job, const srt_coll_desc_t *desc, srt_status_t status, const char *a,
		    const char *b)
{
	char mine[512] = "", all[MAX_WORLD][512];
	srt_coll_t *coll = NULL;

	CHECK_STATUS(srt_coll_create(job->world, desc, &coll), status);
	CHECK(coll == NULL);
	CHECK_ERROR_HAS(desc->name);
	CHECK_ERROR_HAS(a);
	CHECK_ERROR_HAS(b);
	snprintf(mine, sizeof(mine), "%s", srt_error_last());
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, mine, sizeof(mine), all));
	for (int r = 0; r < job->size; r++)
		CHECK_STR(all[r], all[0]);
}

static void test_refused(job_t *job)
{
	int odd = job->rank == job->size - 1;
	table_t t = { .name = "unit x" }, u;
	srt_coll_desc_t desc;
	char rank[32];
	sides_t s;

	snprintf(rank, sizeof(rank), "rank %d", job->size - 1);
	add(&t, 0, job->size - 1, 0, 0, 64);
	t.nelem = 200;
	make_sides(job, &t, sizeof(float), &s);
	u = t;
	u.messages[0].nelem -= (size_t)odd;
	desc = describe(&u, &s, SRT_COLL_SEND_RECV, SRT_F32);
	if (job->size > 1)
		refused(job, &desc, SRT_ERR_MISMATCH, "the messages differ", rank);
	u.messages[0].nelem = 64;
	u.messages[0].to = odd ? 0 : job->size - 1;
	if (job->size > 1)
		refused(job, &desc, SRT_ERR_MISMATCH, "the messages differ", "table");
	desc = describe(&t, &s, SRT_COLL_ALL_TO_ALL, SRT_F32);
	t.splits[0] = 5;
	t.splits[job->size * job->size - 1] = 5 + (size_t)odd;
	if (job->size > 1)
		refused(job, &desc, SRT_ERR_MISMATCH, "all-to-all", "the messages differ");
	desc.kind = job->rank == 0 ? SRT_COLL_ALL_TO_ALL : SRT_COLL_SEND_RECV;
	if (job->size > 1)
		refused(job, &desc, SRT_ERR_MISMATCH, "all-to-all", "send-recv");
	t.splits[0] = SIZE_MAX / 2;
	desc.kind = SRT_COLL_ALL_TO_ALL;
	refused(job, &desc, SRT_ERR_INVALID_ARGUMENT, "too large", "rank 0");
	desc = describe(&t, &s, SRT_COLL_SEND_RECV, SRT_F32);
	t.messages[0].to = job->size;
	refused(job, &desc, SRT_ERR_INVALID_ARGUMENT, "message 0 is from rank 0 to rank",
		"has ranks");
	t.messages[0].to = -1;
	refused(job, &desc, SRT_ERR_INVALID_ARGUMENT, "to rank -1", "has ranks");
	t.messages[0].to = job->size - 1;
	add(&t, 0, job->size - 1, 0, 63, 2);
	desc.nmessages = t.nmessages;
	refused(job, &desc, SRT_ERR_INVALID_ARGUMENT, "overlap at element 63", rank);
	t.messages[1].shard_offset = 250;
	refused(job, &desc, SRT_ERR_INVALID_ARGUMENT, "do not fit", rank);
	desc.messages = NULL;
	refused(job, &desc, SRT_ERR_INVALID_ARGUMENT, "table of messages is NULL", "rank 0");
	free_sides(&s);
}

/* Two exchanges of one size started in different order. This poisons, so it uses a separate
 * group. */
static void test_order(job_t *job)
{
	srt_coll_t *a = NULL, *b = NULL;
	srt_stream_t *stream = NULL;
	srt_comm_t *comm = NULL;
	srt_coll_desc_t desc;
	table_t t;
	sides_t s;

	if (job->size == 1)
		return;
	comm = job_group_of_all(job, "order");
	CHECK_OK_OR_DIE(srt_stream_create(job->device, 0, "order", &stream));
	make_splits(&t, EVEN, job->size, 100);
	make_sides(job, &t, sizeof(float), &s);
	desc = describe(&t, &s, SRT_COLL_ALL_TO_ALL, SRT_F32);
	desc.name = "unit a";
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &a));
	desc.name = "unit b";
	desc.kind = SRT_COLL_SEND_RECV;
	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &b));
	CHECK_OK(srt_coll_start(a, NULL, stream));
	CHECK_OK(srt_coll_start(b, NULL, stream));
	CHECK_OK(srt_stream_sync(stream));
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	CHECK_STATUS(job_start_and_wait(job->rank == 0 ? b : a, stream), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("started all-to-all of \"unit a\"");
	CHECK_ERROR_HAS("rank 0 started send-recv of \"unit b\"");
	srt_stream_destroy(stream);
	srt_coll_destroy(b);
	srt_coll_destroy(a);
	free_sides(&s);
	srt_comm_destroy(comm);
}

/* A rank that only sends is at most 1 MiB ahead of one that does not receive yet but takes what
 * comes, whatever the number of collectives: the rest waits at the sender. Then all arrives. */
static void test_ahead(job_t *job)
{
	enum { NCOLLS = 48, NELEM = 32768 };
	static table_t t = { .name = "ahead", .nmessages = 1, .nelem = (size_t)NCOLLS * NELEM };
	srt_coll_t *colls[NCOLLS], *barrier = NULL;
	int npending = 0;
	srt_comm_t *apart = NULL;
	sides_t s;

	if (job->size == 1 || job->world->transport != &srt_transport_ucx ||
	    strcmp(test_backend(), "cpu") != 0)
		return;
	make_sides(job, &t, sizeof(float), &s);
	for (size_t i = 0; i < s.full_nbytes; i++)
		s.full[i] = value(job->rank, 0, i);
	memset(s.want, 0, s.shard_nbytes);
	test_put(job->stream, s.full_buffer, 0, s.full, s.full_nbytes);
	test_put(job->stream, s.shard_buffer, 0, s.want, s.shard_nbytes);
	for (size_t i = 0; i < NCOLLS; i++) {
		t.messages[0] = (srt_coll_message_t){
			.to = job->size - 1,
			.full_offset = i * NELEM,
			.shard_offset = i * NELEM,
			.nelem = NELEM,
		};
		expect(job, &t, sizeof(float), 0, s.want);
		const srt_coll_desc_t desc = describe(&t, &s, SRT_COLL_SEND_RECV, SRT_F32);

		CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &colls[i]));
	}
	apart = job_group_of_all(job, "apart");
	CHECK_OK_OR_DIE(srt_coll_create(apart,
					&(srt_coll_desc_t){ .size = sizeof(srt_coll_desc_t),
							    .kind = SRT_COLL_BARRIER,
							    .name = "apart" },
					&barrier));
	for (int i = 0; job->rank == 0 && i < NCOLLS; i++)
		CHECK_OK_OR_DIE(srt_coll_start(colls[i], NULL, job->stream));
	if (job->rank == 0)
		usleep(100000); /* the others are in the barrier */
	for (int i = 0; job->rank == 0 && i < NCOLLS; i++) {
		for (uint32_t k = 0; k < colls[i]->nstarts; k++)
			npending += atomic_load(&colls[i]->starts[k].npending) != 0;
	}
	CHECK(job->rank != 0 || npending >= NCOLLS - (1 << 20) / (NELEM * (int)sizeof(float)));
	CHECK_OK_OR_DIE(job_start_and_wait(barrier, job->stream));
	for (int i = 0; i < NCOLLS; i++) {
		if (job->rank != 0)
			CHECK_OK_OR_DIE(srt_coll_start(colls[i], NULL, job->stream));
		CHECK_OK_OR_DIE(srt_coll_wait_readers(colls[i], job->stream));
	}
	test_get(job->stream, s.shard, s.shard_buffer, 0, s.shard_nbytes);
	CHECK(memcmp(s.shard, s.want, s.shard_nbytes) == 0);
	for (int i = 0; i < NCOLLS; i++)
		srt_coll_destroy(colls[i]);
	srt_coll_destroy(barrier);
	srt_comm_destroy(apart);
	free_sides(&s);
}

/* Ranks that share one core do not spin: a spinning rank would keep its peer from the core. */
static void test_one_core(void)
{
	cpu_set_t before, one;
	job_t job;
	int cpu = 0;

	CHECK_OR_DIE(sched_getaffinity(0, sizeof(before), &before) == 0);
	while (!CPU_ISSET(cpu, &before))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	CHECK_OR_DIE(sched_setaffinity(0, sizeof(one), &one) == 0);
	job_open(&job);
	CHECK(job.size == 1 || !srt_bootstrap_spins(job.world->bootstrap));
	job_close(&job);
	CHECK_OR_DIE(sched_setaffinity(0, sizeof(before), &before) == 0);
}

int main(void)
{
	job_t job;

	if (strcmp(test_backend(), "cpu") == 0)
		test_one_core();
	job_open(&job);
	CHECK_OR_DIE(job.size <= MAX_WORLD);
	test_all_to_all(&job);
	test_send_recv(&job);
	test_refused(&job);
	test_order(&job);
	test_ahead(&job);
	job_close(&job);
	return check_done();
}
