/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backend "toy": the smallest complete one, walked through in docs/porting.md. A device that
 * is no device: its memory is host memory that the library cannot address, its work starts after
 * random delays, its kernels are the portable ones compiled for the processor. It fills only the
 * slots that are required, so everything optional runs in its fallback.
 *
 * As a test it finds edges that are missing between streams: work starts late, in an order that
 * differs from run to run, and freed memory is overwritten. TOY_SEED=N repeats a run's delays,
 * TOY_DELAY_US=N bounds them (default 200, 0 = none).
 */
#ifndef SRT_TESTS_BACKEND_TOY_TOY_H
#define SRT_TESTS_BACKEND_TOY_TOY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "device/backend.h"
#include "kernels/cpu.h"

#define TOY_ALIGN 64u

/* device.c */
typedef struct toy_device {
	const srt_host_services_t *host;
	srt_cpu_isa_t isa; /* the best that the processor has */
	uint32_t seed;
	uint32_t delay_us;
	_Atomic uint32_t nstreams; /* ever made */
} toy_device_t;

/* memory.c */
typedef struct toy_mem {
	unsigned char *bytes;
	size_t nbytes;
	bool pinned; /* the library may have the address */
	bool owned;  /* bytes are freed with it; not of wrap_host */
} toy_mem_t;

/* stream.c */
typedef struct toy_stream {
	toy_device_t *device;
	uint32_t random; /* state of the delays */
} toy_stream_t;

extern const srt_backend_device_ops_t toy_device_ops;
extern const srt_backend_mem_ops_t toy_mem_ops;
extern const srt_backend_stream_ops_t toy_stream_ops;

#endif
