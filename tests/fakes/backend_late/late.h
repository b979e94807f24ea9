/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backend "late": the toy device (tests/fakes/backend_toy/) with driver streams that run each
 * command as early or as late as their order allows. It finds missing edges: between two commands
 * that no event orders, some seed runs the wrong one first. Nothing sleeps and no thread runs
 * ahead: the order follows from the seed and from the order of the calls.
 *
 *     streams   a command waits in its stream until a thread waits for the stream or for an event
 *               of it, or until the stream has an early phase (stream.c)
 *     memory    freed memory becomes NaN in f32, f16 and bf16, and stays mapped (memory.c)
 *
 * TOY_SEED=N repeats an order; the device prints the seed.
 */
#ifndef SRT_TESTS_BACKEND_LATE_LATE_H
#define SRT_TESTS_BACKEND_LATE_LATE_H

#include <pthread.h>

#include "tests/fakes/backend_toy/toy.h"

typedef struct late_stream late_stream_t;

/* The native queue of a stream, which runs host functions in the stream's order. */
typedef struct late_queue {
	void (*put)(struct late_queue *queue, void (*fn)(void *arg), void *arg);
} late_queue_t;

/* memory.c */
extern const srt_backend_mem_ops_t late_mem_ops;
/* Frees the memory that is kept for late readers of the device. */
void late_mem_release(toy_device_t *device);

/* stream.c */
extern const srt_backend_stream_ops_t late_stream_ops;
/* Frees the device's streams, all of which are destroyed. */
void late_streams_release(toy_device_t *device);

#endif
