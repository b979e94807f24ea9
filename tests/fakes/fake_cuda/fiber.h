/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The threads of a block as fibers: each runs to its next barrier, in an order that differs by seed
 * from barrier to barrier, then all go on. One block at a time, on whatever thread of the host.
 */
#ifndef SRT_TESTS_FAKE_CUDA_FIBER_H
#define SRT_TESTS_FAKE_CUDA_FIBER_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/fakes/fake_cuda/kernel.h"

/* Who is running; access.c compares these. */
typedef struct fake_who {
	uint32_t block;    /* from 1 on */
	uint16_t thread;   /* of the block */
	uint16_t interval; /* barriers so far */
} fake_who_t;

extern fake_who_t fake_who;

/* Runs a block. False: it ended in a complaint, and is not to be gone on with. */
bool fake_block_run(const fake_kernel_t *kernel, void **params, uint32_t *random);

/* Whether the address is in the fibers' stacks. */
extern uintptr_t fake_stacks;
#define FAKE_STACK_NBYTES ((size_t)65536)
#define FAKE_STACKS_NBYTES (FAKE_STACK_NBYTES * FAKE_MAX_THREADS)

/* access.c. The launch of a kernel for a context begins, and ends. */
struct fake_lane;
void fake_access_begin(void *ctx, const fake_kernel_t *kernel);
void fake_access_end(struct fake_lane *lane);
/* One complaint a launch. */
void fake_access_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
