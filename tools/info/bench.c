/* SPDX-License-Identifier: BSD-3-Clause */
/* See bench.h. The best of several repeats of a row counts, each of some starts. */
#include "tools/info/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shardrt/ops.h>

#include "models/try.h"
#include "tools/common.h"
#include "tools/info/info.h"
#include "tools/peak.h"

#define ROWS 16            /* about: --seconds is divided among them */
#define REPEAT_S 0.005     /* of a repeat: longer than what ranks need to begin together */
#define NBYTES (64u << 20) /* of what is copied: more than most caches */
#define N 4096             /* (N,N) floats have NBYTES */
#define MAX_STREAMS 64     /* copies at the same time */

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The time of the slowest rank; all ranks go on together. */
static srt_status_t find_slowest(bench_t *b, double *seconds)
{
	int us, rank;

	SRT_TRY(tool_find_largest(&b->ranks, "on a time", (int)fmin(*seconds * 1e6, 2e9), &us,
				  &rank));
	*seconds = fmax(us, 1) * 1e-6;
	return SRT_OK;
}

void bench_print(bench_t *b, const bench_row_t *row, double seconds, double speed)
{
	const double share = row->limit > 0.0 ? speed / row->limit : 0.0;
	char time_us[32] = "-", of_limit[32] = "-";

	if (seconds > 0.0)
		snprintf(time_us, sizeof(time_us), "%.1f", seconds * 1e6);
	if (share > 0.0)
		snprintf(of_limit, sizeof(of_limit), "%.3f", share);
	b->nlow += share > 0.0 && share < row->low;
	if (b->ranks.rank == 0)
		printf("%-40s %11s %10.2f %-8s %6s%s\n", row->name, time_us, speed * 1e-9,
		       row->is_flop ? "GFLOP/s" : "GB/s", of_limit,
		       share > 0.0 && share < row->low ? "  low" : "");
	fflush(stdout);
}

srt_status_t bench_measure(bench_t *b, const bench_row_t *row, double *speed)
{
	double left = b->row_s, best = HUGE_VAL;
	int starts = 1;

	/* The first repeat is not counted: memory is touched, and threads are woken. */
	for (int repeat = 0; repeat < 2 || left > 0.0; repeat++) {
		double seconds = 0.0, began;

		SRT_TRY(find_slowest(b, &seconds)); /* a barrier */
		began = now_s();
		for (int i = 0; i < starts; i++)
			SRT_TRY(row->start(b, row->arg));
		SRT_TRY(srt_stream_sync(b->stream));
		seconds = now_s() - began;
		SRT_TRY(find_slowest(b, &seconds));
		left -= seconds;
		if (repeat > 0)
			best = fmin(best, seconds / starts);
		starts = (int)fmin(fmax(REPEAT_S * starts / seconds, 1.0), 1e5);
	}
	bench_print(b, row, best, row->amount / best);
	if (speed != NULL)
		*speed = row->amount / best;
	return SRT_OK;
}

/* ---- multiply-adds --------------------------------------------------------------------------- */

/* The lowest of the ranks' speeds, by the time of 10^12 operations; 0 if one is not known. */
static srt_status_t find_lowest(bench_t *b, double *flops)
{
	double seconds = *flops > 0.0 ? 1e12 / *flops : HUGE_VAL;

	SRT_TRY(find_slowest(b, &seconds));
	*flops = seconds < 1e3 ? 1e12 / seconds : 0.0;
	return SRT_OK;
}

/* One thread of rank 0 while the others wait, then all threads of all ranks. */
static srt_status_t measure_peak(bench_t *b)
{
	bench_row_t row = { .name = "multiply-adds, one thread", .is_flop = true, .low = 0.85 };
	double one = b->ranks.rank == 0 ? tool_peak(b->info.isa, 1) : HUGE_VAL, all;
	char name[48];

	SRT_TRY(find_lowest(b, &one));
	all = one > 0.0 ? tool_peak(b->info.isa, b->info.threads) : 0.0;
	SRT_TRY(find_lowest(b, &all));
	if (all == 0.0) {
		if (b->ranks.rank == 0)
			printf("multiply-adds: not measured on %s\n",
			       *b->info.isa ? b->info.isa : b->info.backend);
		return SRT_OK;
	}
	b->flops = all;
	bench_print(b, &row, 0.0, one);
	snprintf(name, sizeof(name), "multiply-adds, all threads (%d)", b->info.threads);
	row.name = name;
	row.limit = b->info.threads * one;
	b->is_all_low = b->flops / row.limit < row.low;
	bench_print(b, &row, 0.0, b->flops);
	return SRT_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct memory {
	srt_buffer_t *from, *to;
	srt_stream_t *streams[MAX_STREAMS]; /* a copy of a CPU runs on its stream's thread */
	size_t nstreams;
	srt_matmul_t one_row;
} memory_t;

static srt_status_t start_copies(bench_t *b, void *arg)
{
	const memory_t *m = arg;
	const size_t part = NBYTES / m->nstreams / 64 * 64;

	(void)b;
	for (size_t i = 0; i < m->nstreams; i++)
		SRT_TRY(srt_buffer_copy(m->to, i * part, m->from, i * part,
					i + 1 < m->nstreams ? part : NBYTES - i * part,
					m->streams[i]));
	for (size_t i = 0; i < m->nstreams; i++)
		SRT_TRY(srt_stream_sync(m->streams[i]));
	return SRT_OK;
}

static srt_status_t run_memory(bench_t *b, memory_t *m)
{
	bench_row_t row = { "copy, 64 MiB", start_copies, m, 2.0 * NBYTES, false, 0.0, 0.0 };
	srt_matmul_t *mm = &m->one_row;

	m->nstreams = b->info.threads > 1 ? (size_t)b->info.threads : 1;
	m->nstreams = m->nstreams < MAX_STREAMS ? m->nstreams : MAX_STREAMS;
	SRT_TRY(srt_buffer_create(b->device, SRT_MEM_DEVICE, NBYTES, "from", &m->from));
	SRT_TRY(srt_buffer_create(b->device, SRT_MEM_DEVICE, NBYTES, "to", &m->to));
	for (size_t i = 0; i < m->nstreams; i++)
		SRT_TRY(srt_stream_create(b->device, 0, "copy", &m->streams[i]));
	SRT_TRY(srt_op_fill(srt_view(m->from, 0, SRT_F32), 0.5f, (int64_t)N * N, b->stream));
	SRT_TRY(srt_stream_sync(b->stream));
	SRT_TRY(bench_measure(b, &row, &b->copy));
	*mm = (srt_matmul_t)SRT_MATMUL_INIT;
	mm->m = 1, mm->n = N, mm->k = N, mm->trans_b = 1;
	mm->a = srt_view(m->to, 0, SRT_F32);
	mm->b = srt_view(m->from, 0, SRT_F32);
	mm->c = srt_view(m->to, NBYTES / 2, SRT_F32);
	row = (bench_row_t){ "read, 64 MiB: product of one row",
			     bench_start_product,
			     mm,
			     NBYTES,
			     false,
			     b->copy,
			     0.5 };
	return bench_measure(b, &row, NULL);
}

static srt_status_t measure_memory(bench_t *b)
{
	memory_t m = { .from = NULL };
	const srt_status_t status = run_memory(b, &m);

	for (size_t i = 0; i < m.nstreams; i++)
		srt_stream_destroy(m.streams[i]);
	srt_buffer_destroy(m.to);
	srt_buffer_destroy(m.from);
	return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

static srt_status_t measure_all(bench_t *b)
{
	double load;

	SRT_TRY(srt_stream_create(b->device, 0, "bench", &b->stream));
	if (b->ranks.rank == 0) {
		printf("%s, %s%s%s, %d rank%s", b->info.backend, b->info.name,
		       *b->info.isa ? ", " : "", b->info.isa, b->ranks.world,
		       b->ranks.world == 1 ? "" : "s");
		if (b->info.threads)
			printf(" of %d thread%s", b->info.threads, b->info.threads == 1 ? "" : "s");
		if (getloadavg(&load, 1) == 1)
			printf(", load average %.2f", load);
		printf(". Speeds are of a rank, all ranks at the same time.\n");
		printf("%-40s %11s %10s %-8s %6s\n", "", "us", "speed", "", "share");
	}
	b->before = bench_usage(&b->set);
	SRT_TRY(measure_peak(b));
	SRT_TRY(measure_memory(b));
	SRT_TRY(bench_products(b));
	SRT_TRY(bench_collectives(b));
	SRT_TRY(bench_step(b));
	return bench_hints(b);
}

typedef struct choice {
	char text[128]; /* what the rows depend on, in words */
	cpu_set_t set;
} choice_t;

/* All ranks get the same rows, for the same time. Also finds b->set. */
static srt_status_t check_alike(bench_t *b, int seconds, tool_why_t *why)
{
	choice_t mine = { .text = "" }, *all = calloc((size_t)b->ranks.world, sizeof(*all));
	srt_status_t status;

	if (all == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no memory for %d ranks",
				      b->ranks.world);
	snprintf(mine.text, sizeof(mine.text), "%s%s%s, threads: %d, --seconds %d", b->info.backend,
		 *b->info.isa ? " " : "", b->info.isa, b->info.threads, seconds);
	sched_getaffinity(0, sizeof(mine.set), &mine.set);
	status = srt_comm_oob_allgather(b->ranks.comm, &mine, sizeof(mine), all);
	for (int r = 0; status == SRT_OK && r < b->ranks.world; r++) {
		CPU_OR(&b->set, &b->set, &all[r].set);
		if (!why->status && strcmp(all[r].text, all[0].text) != 0)
			tool_why_usage(why,
				       "--bench needs ranks that are alike: rank 0 has %s; rank %d "
				       "has %s",
				       all[0].text, r, all[r].text);
	}
	free(all);
	return status;
}

int info_bench(int seconds)
{
	const srt_context_options_t options = { .size = sizeof(options),
						.numerics = SRT_NUMERICS_EXACT };
	bench_t b = { .info = SRT_DEVICE_INFO_INIT, .row_s = (double)seconds / ROWS };
	tool_why_t differ = { .status = 0 };
	srt_status_t status;
	char why[600];

	if (info_backend_is_unusable(why, sizeof(why))) {
		tool_error("%s", why);
		return 1;
	}
	if (srt_context_create(&options, &b.context) != SRT_OK) {
		tool_error("%s", srt_error_last());
		return 1;
	}
	b.device = srt_context_device(b.context);
	b.ranks.comm = srt_context_world(b.context);
	b.ranks.rank = srt_context_rank(b.context);
	b.ranks.world = srt_context_world_size(b.context);
	status = srt_device_get_info(b.device, &b.info);
	if (status == SRT_OK)
		status = check_alike(&b, seconds, &differ);
	if (status == SRT_OK && differ.status)
		tool_report_why(&b.ranks, "on the ranks", &differ, true);
	else if (status == SRT_OK)
		status = measure_all(&b);
	if (status != SRT_OK)
		tool_report_failure(&b.ranks, status);
	srt_stream_destroy(b.stream);
	srt_context_destroy(b.context);
	return status != SRT_OK ? 1 : differ.status;
}
