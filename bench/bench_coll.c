/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Speed of the collectives, compared with memcpy of the same bytes in the same run:
 *
 *     shardrun -n 2 bench/bench_coll [BYTES ...]      (4 KiB, 1 MiB, 64 MiB of full buffer)
 *     shardrun -n 2 bench/bench_coll -m [BYTES ...]   messages from rank 0 to the last rank alone
 *
 * algbw = full buffer / time; busbw as nccl-tests defines it: x (n-1)/n for all-gather and
 * reduce-scatter, x 2(n-1)/n for all-reduce. The best of several repeats, each the mean over some
 * starts; all ranks begin together. All ranks run memcpy at the same time too. The last column is
 * the transport; SHARDRT_PEER_MEMORY=no makes it "staged", SHARDRT_COLLECTIVES=ucx "ucx". Messages are
 * started one after the other, and the sources stay as they are, so several are in flight.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shardrt/shardrt.h>

#define REPEATS 5

typedef struct bench {
	srt_context_t *context;
	srt_comm_t *world;
	srt_stream_t *stream;
	srt_coll_t *barrier;
	int rank, size;
} bench_t;

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check_status(srt_status_t status)
{
	if (status == SRT_OK)
		return;
	fprintf(stderr, "bench_coll: %s\n", srt_last_error());
	exit(1);
}

static void run_barrier(bench_t *b)
{
	check_status(srt_coll_start(b->barrier, NULL, b->stream));
	check_status(srt_stream_sync(b->stream));
}

/* The slowest rank's time counts. */
static double max_over_ranks(bench_t *b, double mine)
{
	double *all = calloc((size_t)b->size, sizeof(*all)), most = 0;

	if (all == NULL)
		exit(1);
	check_status(srt_comm_oob_allgather(b->world, &mine, sizeof(mine), all));
	for (int r = 0; r < b->size; r++)
		most = all[r] > most ? all[r] : most;
	free(all);
	return most;
}

/* waits: for the readers of each start, not only of the last one. */
static double time_coll(bench_t *b, srt_coll_t *coll, int starts, bool waits)
{
	double best = 1e9;

	for (int k = 0; k < REPEATS; k++) {
		run_barrier(b);
		double start = now_s();
		for (int i = 0; i < starts; i++) {
			check_status(srt_coll_start(coll, NULL, b->stream));
			if (waits || i + 1 == starts)
				check_status(srt_coll_wait_readers(coll, b->stream));
		}
		check_status(srt_stream_sync(b->stream));
		double t = max_over_ranks(b, (now_s() - start) / starts);
		best = t < best ? t : best;
	}
	return best;
}

static double time_memcpy(bench_t *b, void *dst, const void *src, size_t nbytes, int starts)
{
	double best = 1e9;

	for (int k = 0; k < REPEATS; k++) {
		run_barrier(b);
		double start = now_s();
		for (int i = 0; i < starts; i++) {
			memcpy(dst, src, nbytes);
			__asm__ volatile("" ::: "memory"); /* keeps each copy */
		}
		double t = max_over_ranks(b, (now_s() - start) / starts);
		best = t < best ? t : best;
	}
	return best;
}

static const char *transport_name(const bench_t *b)
{
	const char *asked = getenv("SHARDRT_COLLECTIVES");

	if (b->size == 1)
		return "";
	if (asked != NULL && strcmp(asked, "ucx") == 0)
		return "ucx";
	return srt_comm_mem_kind(b->world) == SRT_MEM_PEER ? "zero copy" : "staged";
}

static void bench_message(bench_t *b, size_t nbytes)
{
	const srt_coll_message_t message = { .from = 0,
					     .to = b->size - 1,
					     .nelem = nbytes / sizeof(float) };
	const int starts = nbytes >= 16000000 ? 20 : nbytes >= 1000000 ? 200 : 2000;
	const srt_mem_kind_t kind = srt_comm_mem_kind(b->world);
	srt_device_t *device = srt_context_device(b->context);
	srt_buffer_t *full, *shard;
	srt_coll_t *coll;
	double t;

	check_status(srt_buffer_create(device, kind, nbytes, "full", &full));
	check_status(srt_buffer_create(device, kind, nbytes, "shard", &shard));
	const srt_coll_desc_t desc = {
		.kind = SRT_COLL_SEND_RECV,
		.name = "bench",
		.dtype = SRT_F32,
		.full = srt_view(full, 0, SRT_F32),
		.shard = srt_view(shard, 0, SRT_F32),
		.messages = &message,
		.nmessages = 1,
	};
	check_status(srt_coll_create(b->world, &desc, &coll));
	t = time_coll(b, coll, starts, false);
	if (b->rank == 0)
		printf("%-15s %10zu %10.1f %8.2f             %s\n", "send-recv", nbytes, t * 1e6,
		       (double)nbytes / t * 1e-9, transport_name(b));
	srt_coll_destroy(coll);
	srt_buffer_destroy(shard);
	srt_buffer_destroy(full);
}

static void bench_size(bench_t *b, size_t nbytes)
{
	static const struct {
		srt_coll_kind_t kind;
		const char *name;
		double factor; /* of (n-1)/n */
	} kinds[] = { { SRT_COLL_ALL_GATHER, "all-gather", 1 },
		      { SRT_COLL_REDUCE_SCATTER, "reduce-scatter", 1 },
		      { SRT_COLL_ALL_REDUCE, "all-reduce", 2 } };
	size_t n = (size_t)b->size, each = nbytes / sizeof(float) / n;
	int starts = nbytes >= 16000000 ? 3 : nbytes >= 100000 ? 50 : 2000;
	srt_device_t *device = srt_context_device(b->context);
	srt_coll_owner_t *owners = calloc(n, sizeof(*owners));
	srt_coll_segment_t *segments = calloc(n, sizeof(*segments));
	srt_mem_kind_t kind = srt_comm_mem_kind(b->world);
	srt_buffer_t *full, *shard;

	if (owners == NULL || segments == NULL)
		exit(1);
	for (size_t r = 0; r < n; r++) {
		segments[r] = (srt_coll_segment_t){ r * each, 0, each };
		owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
	}
	nbytes = n * each * sizeof(float);
	check_status(srt_buffer_create(device, kind, nbytes, "full", &full));
	check_status(srt_buffer_create(device, kind, nbytes / n, "shard", &shard));
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		srt_coll_t *coll;
		srt_coll_desc_t desc = {
			.kind = kinds[k].kind,
			.name = "bench",
			.dtype = SRT_F32,
			.full = srt_view(full, 0, SRT_F32),
			.shard = srt_view(shard, 0, SRT_F32),
			.owners = owners,
		};
		check_status(srt_coll_create(b->world, &desc, &coll));
		double t = time_coll(b, coll, starts, true), alg = (double)nbytes / t * 1e-9;
		if (b->rank == 0)
			printf("%-15s %10zu %10.1f %8.2f %8.2f    %s\n", kinds[k].name, nbytes,
			       t * 1e6, alg, alg * kinds[k].factor * (double)(n - 1) / (double)n,
			       transport_name(b));
		srt_coll_destroy(coll);
	}
	void *other = malloc(nbytes), *some = malloc(nbytes);
	if (other == NULL || some == NULL)
		exit(1);
	memset(other, 0, nbytes);
	memset(some, 1, nbytes);
	double t = time_memcpy(b, other, some, nbytes, starts);
	if (b->rank == 0)
		printf("%-15s %10zu %10.1f %8.2f\n", "memcpy", nbytes, t * 1e6,
		       (double)nbytes / t * 1e-9);
	free(some);
	free(other);
	srt_buffer_destroy(shard);
	srt_buffer_destroy(full);
	free(segments);
	free(owners);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 4 << 10, 1 << 20, 64 << 20 };
	const srt_coll_desc_t desc = { .kind = SRT_COLL_BARRIER, .name = "together" };
	const bool messages = argc > 1 && strcmp(argv[1], "-m") == 0;
	void (*bench)(bench_t *, size_t) = messages ? bench_message : bench_size;
	bench_t b = { 0 };

	argc -= messages;
	argv += messages;
	check_status(srt_context_create(NULL, &b.context));
	b.world = srt_context_world(b.context);
	b.rank = srt_context_rank(b.context);
	b.size = srt_context_world_size(b.context);
	check_status(srt_stream_create(srt_context_device(b.context), 0, "bench", &b.stream));
	check_status(srt_coll_create(b.world, &desc, &b.barrier));
	if (b.rank == 0)
		printf("%d ranks\n%-15s %10s %10s %8s %8s\n", b.size, "", "bytes", "us", "algbw",
		       "busbw GB/s, transport");
	if (argc > 1) {
		for (int i = 1; i < argc; i++)
			bench(&b, strtoull(argv[i], NULL, 10));
	} else {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			bench(&b, sizes[i]);
	}
	srt_coll_destroy(b.barrier);
	srt_stream_destroy(b.stream);
	srt_context_destroy(b.context);
	return 0;
}
