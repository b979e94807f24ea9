/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shardrt-info --bench: a table of speeds, each with its share of the limit that bounds it, and the
 * causes of low shares that can be found.
 *
 *     bench.c              ranks, time, rows, multiply-adds, memory
 *     bench_products.c     matrix products
 *     bench_collectives.c  collectives
 *     bench_step.c         a training step
 *     bench_hints.c        causes of low shares
 *
 * All ranks make the same calls, and measure at the same time. Only rank 0 prints.
 */
#ifndef SRT_TOOLS_INFO_BENCH_H
#define SRT_TOOLS_INFO_BENCH_H

#include <sched.h>
#include <stdbool.h>

#include <shardrt/shardrt.h>

#include "tools/ranks.h"

/** What processors did so far, in seconds. */
typedef struct bench_usage {
	double wall, busy, own; /* busy: for all programs; own: for this rank */
	double stolen;          /* not given to this machine by its hypervisor */
} bench_usage_t;

/** A measurement that runs on a device. */
typedef struct bench {
	tool_ranks_t ranks;
	srt_context_t *context;
	srt_device_t *device;
	srt_stream_t *stream;
	srt_device_info_t info;
	double row_s;       /* time for a row */
	double flops;       /* multiply-adds of a rank, FLOP/s; 0: not known */
	double copy;        /* bytes that a rank reads and writes, a second */
	char fast_why[512]; /* why there are no rows of mode fast; "": there are */
	int nlow, ncauses;  /* rows whose share is low, causes that were found */
	bool is_all_low;    /* threads are slower together */
	cpu_set_t set;      /* processors that the ranks may use, if they are on one node */
	bench_usage_t before;
} bench_t;

/** Starts the work of a row once, on b->stream or so that it has ended. */
typedef srt_status_t bench_start_fn(bench_t *b, void *arg);

/** A row. */
typedef struct bench_row {
	const char *name;
	bench_start_fn *start;
	void *arg;
	double amount; /* of a start: FLOP, or bytes */
	bool is_flop;
	double limit; /* of the amount, per second; 0: none is known */
	double low;   /* a smaller share is low */
} bench_row_t;

/** Measures and prints a row. @param[out] speed amount per second of the slowest rank; or NULL. */
srt_status_t bench_measure(bench_t *b, const bench_row_t *row, double *speed);

/** Prints a row that was measured. @param seconds of a start; 0: not shown. */
void bench_print(bench_t *b, const bench_row_t *row, double seconds, double speed);

/** Starts the product *arg, of type srt_matmul_t. */
bench_start_fn bench_start_product;

/** Products of a Transformer's layer, in exact mode and, where the device has it, in fast mode. */
srt_status_t bench_products(bench_t *b);

/** All-gather, reduce-scatter, all-reduce. With one rank, none. */
srt_status_t bench_collectives(bench_t *b);

/** A training step of the preset nano. */
srt_status_t bench_step(bench_t *b);

/** The present usage of the processors. */
bench_usage_t bench_usage(const cpu_set_t *set);

/** Prints causes of low shares that are found. Collective. */
srt_status_t bench_hints(bench_t *b);

#endif
