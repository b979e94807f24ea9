/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Speed of the collectives, compared with memcpy of the same bytes in the same run:
 *
 *     shardrun -n 2 bench/bench_coll [BYTES ...]      (4 KiB, 1 MiB, 64 MiB of full buffer)
 *     shardrun -n 2 bench/bench_coll -m [BYTES ...]   messages from rank 0 to the last rank alone
 *
 * algbw = full buffer / time; busbw as nccl-tests defines it: x (n-1)/n for all-gather and
 * reduce-scatter, x 2(n-1)/n for all-reduce. The best of several repeats, each the mean over some
 * starts; all ranks begin together. All ranks run memcpy at the same time too, and the device's own
 * copy. For a buffer that fits no cache the last line is the part of the speed that the bytes
 * allow: the bytes that a rank must read and write at least, its full buffer once and the result
 * once, at the rate of the faster copy, which reads and writes the buffer once. After the timing,
 * every rank checks the bits of one more start ("ok"): a difference ends the program. The last
 * column is srt_comm_transport(): on one node SHARDRT_PEER_MEMORY=no makes it "staged" and
 * SHARDRT_COLLECTIVES=ucx "ucx". Messages are started one after the other, and the sources stay as
 * they are, so the sender has several in flight. The receiver has one: all are for one buffer.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/ops.h>
#include <shardrt/shardrt.h>

#include "bench/coll_rules.h"

/* Buffers of this size fit no cache. */
#define PAST_CACHES_NBYTES ((size_t)64 << 20)

typedef struct bench {
	srt_context_t *context;
	srt_comm_t *world;
	srt_stream_t *stream;
	srt_coll_t *barrier;
	int rank, size;
} bench_t;

static void check_status(srt_status_t status)
{
	if (status == SRT_OK)
		return;
	fprintf(stderr, "bench_coll: %s\n", srt_error_last());
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

/* The device's copy, or memcpy of the buffers' host memory if there are addresses. */
static double time_copy(bench_t *b, srt_buffer_t *dst, srt_buffer_t *src, void *to,
			const void *from, size_t nbytes)
{
	const int starts = starts_of(nbytes);
	double best = 1e9;

	for (int k = 0; k < REPEATS; k++) {
		run_barrier(b);
		double start = now_s();
		for (int i = 0; i < starts; i++) {
			if (to != NULL)
				memcpy(to, from, nbytes);
			else
				check_status(srt_buffer_copy(dst, 0, src, 0, nbytes, b->stream));
			__asm__ volatile("" ::: "memory"); /* keeps each copy */
		}
		run_barrier(b); /* ranks that share a core copy one after the other */
		double t = max_over_ranks(b, (now_s() - start) / starts);
		best = t < best ? t : best;
	}
	return best;
}

/* One side of a collective: the elements of the whole from `first` on. */
typedef struct side {
	srt_buffer_t *buffer;
	size_t nelem, first;
} side_t;

/* Starts the collective once more, from this rank's values. */
static void check_bits(bench_t *b, srt_coll_t *coll, const side_t *from, const side_t *to,
		       const result_t *expected)
{
	const size_t nelem = from->nelem > to->nelem ? from->nelem : to->nelem;
	float *host = malloc(nelem * sizeof(float));

	if (host == NULL)
		exit(1);
	for (size_t i = 0; i < from->nelem; i++)
		host[i] = value_of(b->rank, from->first + i);
	check_status(
		srt_op_fill(srt_view(to->buffer, 0, SRT_F32), 0.5f, (int64_t)to->nelem, b->stream));
	check_status(srt_buffer_copy_from_host(from->buffer, 0, host, from->nelem * sizeof(float),
					       b->stream));
	check_status(srt_coll_start(coll, NULL, b->stream));
	check_status(srt_coll_wait_readers(coll, b->stream));
	check_status(
		srt_buffer_copy_to_host(host, to->buffer, 0, to->nelem * sizeof(float), b->stream));
	check_status(srt_stream_sync(b->stream));
	if (expected->nelem > 0 && !is_result(expected, b->rank, host))
		exit(1);
	free(host);
	run_barrier(b); /* all ranks have checked theirs */
}

static void bench_message(bench_t *b, size_t nbytes)
{
	const size_t nelem = nbytes / sizeof(float);
	const srt_coll_message_t message = { .from = 0, .to = b->size - 1, .nelem = nelem };
	const int starts = nbytes >= 16000000 ? 20 : nbytes >= 1000000 ? 1000 : 10000;
	const srt_mem_kind_t kind = srt_comm_mem_kind(b->world);
	const bool receives = b->rank == message.to;
	const result_t expected = { "send-recv", 0, b->size, nelem, 0, receives ? nelem : 0 };
	srt_device_t *device = srt_context_device(b->context);
	srt_buffer_t *full, *shard;
	srt_coll_t *coll;
	double t;

	check_status(srt_buffer_create(device, kind, nbytes, "full", &full));
	check_status(srt_buffer_create(device, kind, nbytes, "shard", &shard));
	const srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
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
	check_bits(b, coll, &(side_t){ full, nelem, 0 }, &(side_t){ shard, nelem, 0 }, &expected);
	if (b->rank == 0)
		printf("%-15s %10zu %10.2f %8.2f             ok  %s\n", expected.name, nbytes,
		       t * 1e6, (double)nbytes / t * 1e-9, srt_comm_transport(b->world));
	srt_coll_destroy(coll);
	srt_buffer_destroy(shard);
	srt_buffer_destroy(full);
}

/* Seconds of the faster one of memcpy and the device's copy. */
static double bench_copies(bench_t *b, srt_buffer_t *full, size_t nbytes)
{
	void *other = malloc(nbytes), *some = malloc(nbytes);
	srt_buffer_t *copy;
	double t[2];

	if (other == NULL || some == NULL)
		exit(1);
	memset(other, 0, nbytes);
	memset(some, 1, nbytes);
	check_status(srt_buffer_create(srt_context_device(b->context), srt_comm_mem_kind(b->world),
				       nbytes, "copy", &copy));
	t[0] = time_copy(b, NULL, NULL, other, some, nbytes);
	t[1] = time_copy(b, copy, full, NULL, NULL, nbytes);
	for (int i = 0; i < 2 && b->rank == 0; i++)
		printf("%-15s %10zu %10.2f %8.2f\n", i == 0 ? "memcpy" : "device-copy", nbytes,
		       t[i] * 1e6, (double)nbytes / t[i] * 1e-9);
	srt_buffer_destroy(copy);
	free(some);
	free(other);
	return t[0] < t[1] ? t[0] : t[1];
}

/* Returns the seconds of a start. busbw is algbw x factor x (n-1)/n. */
static double bench_kind(bench_t *b, const srt_coll_desc_t *desc, const side_t *from,
			 const side_t *to, const result_t *expected, double factor)
{
	const size_t n = (size_t)b->size, nbytes = n * expected->each * sizeof(float);
	srt_coll_t *coll;

	/* A sum in place grows with each start unless it is of zeros. */
	check_status(srt_buffer_zero(from->buffer, 0, from->nelem * sizeof(float), b->stream));
	check_status(srt_coll_create(b->world, desc, &coll));
	double t = time_coll(b, coll, starts_of(nbytes), true), alg = (double)nbytes / t * 1e-9;
	check_bits(b, coll, from, to, expected);
	if (b->rank == 0)
		printf("%-15s %10zu %10.2f %8.2f %8.2f    ok  %s\n", expected->name, nbytes,
		       t * 1e6, alg, alg * factor * (double)(n - 1) / (double)n,
		       srt_comm_transport(b->world));
	srt_coll_destroy(coll);
	return t;
}

static void bench_size(bench_t *b, size_t nbytes)
{
	const size_t n = (size_t)b->size, each = nbytes / sizeof(float) / n;
	const srt_mem_kind_t kind = srt_comm_mem_kind(b->world);
	srt_device_t *device = srt_context_device(b->context);
	srt_coll_owner_t *owners = calloc(n, sizeof(*owners));
	srt_coll_segment_t *segments = calloc(n, sizeof(*segments));
	side_t full = { NULL, n * each, 0 }, shard = { NULL, each, (size_t)b->rank * each };

	if (owners == NULL || segments == NULL)
		exit(1);
	for (size_t r = 0; r < n; r++) {
		segments[r] = (srt_coll_segment_t){ r * each, 0, each };
		owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
	}
	nbytes = n * each * sizeof(float);
	check_status(srt_buffer_create(device, kind, nbytes, "full", &full.buffer));
	check_status(srt_buffer_create(device, kind, nbytes / n, "shard", &shard.buffer));
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_GATHER,
		.name = "bench",
		.dtype = SRT_F32,
		.full = srt_view(full.buffer, 0, SRT_F32),
		.shard = srt_view(shard.buffer, 0, SRT_F32),
		.owners = owners,
	};
	result_t expected = { "all-gather", 0, b->size, each, 0, n * each };
	const double gather_s = bench_kind(b, &desc, &shard, &full, &expected, 1);
	desc.kind = SRT_COLL_REDUCE_SCATTER;
	expected = (result_t){ "reduce-scatter", 1, b->size, each, shard.first, each };
	const double scatter_s = bench_kind(b, &desc, &full, &shard, &expected, 1);
	desc.kind = SRT_COLL_ALL_REDUCE;
	expected = (result_t){ "all-reduce", 1, b->size, each, 0, n * each };
	const double reduce_s = bench_kind(b, &desc, &full, &full, &expected, 2);
	const double copy_s = bench_copies(b, full.buffer, nbytes);
	if (b->rank == 0 && nbytes >= PAST_CACHES_NBYTES)
		printf("of what the bytes allow: all-gather %.2f, reduce-scatter %.2f, all-reduce "
		       "%.2f\n",
		       copy_s / gather_s, copy_s * (1 + 1 / (double)n) / 2 / scatter_s,
		       copy_s / reduce_s);
	srt_buffer_destroy(shard.buffer);
	srt_buffer_destroy(full.buffer);
	free(segments);
	free(owners);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 4 << 10, 1 << 20, 64 << 20 };
	const srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				       .kind = SRT_COLL_BARRIER,
				       .name = "together" };
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
		       "busbw GB/s, bits, transport");
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
