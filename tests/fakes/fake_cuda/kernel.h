/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between the kernels' text (shim.h) and the fake driver: a kernel's entry in the table that the
 * linker makes of a section, and what kernels call. The text is compiled with -fsanitize=thread, so
 * that each of its accesses is a call too: access.c has those.
 */
#ifndef SRT_TESTS_FAKE_CUDA_KERNEL_H
#define SRT_TESTS_FAKE_CUDA_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_MAX_KERNEL_PARAMS 32
#define FAKE_MAX_THREADS 1024
#define FAKE_MAX_SHARED (227 * 1024)

/* The kernel of one thread: params as cuLaunchKernel has them. */
typedef void fake_kernel_fn(void **params);

typedef struct fake_kernel {
	const char *name;
	fake_kernel_fn *run;
	int max_threads;  /* of __launch_bounds__ */
	int must_threads; /* 1: exactly so many */
	int nplaces;      /* first come so many pairs of a pointer and an offset */
	int nparams;
	size_t sizes[FAKE_MAX_KERNEL_PARAMS];
} fake_kernel_t;

typedef struct fake_dim {
	unsigned x, y, z;
} fake_dim_t;

/* Where the text is at; kernels run one at a time. */
extern fake_dim_t fake_thread_idx, fake_block_idx, fake_block_dim, fake_grid_dim;

/* Whether the processor has fused multiply-adds. */
extern bool fake_has_fma __attribute__((visibility("hidden")));

/* __syncthreads() of the line. */
void fake_barrier(int line);
/* Waits for the threads of the warp, in the same line. */
void fake_warp_sync(int line);
/* Before an atomic operation on the bytes. */
void fake_atomic(const volatile void *p, size_t nbytes);
/* An access of the text that the compiler's calls do not show. */
void fake_touch(const volatile void *p, size_t nbytes, int write);

/* What the linker calls the ends of the section. */
extern const fake_kernel_t *const __start_fake_kernels[], *const __stop_fake_kernels[];

#endif
