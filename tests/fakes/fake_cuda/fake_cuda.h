/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libfake_cuda.so: a libcuda that needs no GPU, and what a test can ask of it.
 *
 * It implements the driver functions that the cuda backend uses (backends/cuda/driver.h).
 * Device memory is host memory between guard zones, streams are threads with random delays,
 * kernels are the CUDA text of the kernels, compiled through shim.h, and run a block at a time,
 * a fiber for each thread. What is wrong ends the process with a sentence: memory outside of
 * live allocations, races between operations that no event orders, races within a kernel,
 * handles that do not live, barriers that some threads only reach, leaks. The library runs over
 * it with SHARDRT_BACKEND=cuda and SHARDRT_CUDA_DRIVER=.../libfake_cuda.so.
 *
 * The environment, read when it is loaded (set() changes the same later):
 *
 *   FAKE_CUDA_SEED=N            repeats a run's delays and orders (printed with a complaint)
 *   FAKE_CUDA_DELAY_US=N        bound of the delays, default 100, 0 = none
 *   FAKE_CUDA_QUEUE=N           operations that wait on a stream, at most, default 1000: a call
 *                               that puts another one waits, and so does every other call about
 *                               a stream or an event meanwhile
 *   FAKE_CUDA_KERNELS=text|cpu  the CUDA text (default), or portable kernels in the form compiled
 *                               for the processor: much faster, without the checks within kernels
 *   FAKE_CUDA_DEVICES=N         default 1; 0: cuInit says that there is none
 *   FAKE_CUDA_DRIVER_VERSION=N  default that of cuda.h
 *   FAKE_CUDA_CAPABILITY=N      default 90
 *   FAKE_CUDA_MULTIPROCESSORS=N default 132
 *   FAKE_CUDA_MEM_BYTES=N       of each device, default 16 GiB
 *   FAKE_CUDA_FAIL=K            the K-th call that can fail fails, with CUDA_ERROR_UNKNOWN
 *   FAKE_CUDA_MIG=1             the devices are slices of one GPU: one place on the PCI bus,
 *                               each with its own UUID
 *   FAKE_CUDA_PAGEABLE=refuse   asynchronous copies of host memory that is not pinned are an error
 */
#ifndef SRT_TESTS_FAKE_CUDA_FAKE_CUDA_H
#define SRT_TESTS_FAKE_CUDA_FAKE_CUDA_H

#include <cuda.h>

/* One call of the driver. Streams and events are numbered from 1 in the order of creation. */
typedef struct fake_cuda_call {
	const char *name;
	CUresult status;
	unsigned stream, event; /* 0: none */
	const char *kernel;     /* of cuLaunchKernel, else NULL */
} fake_cuda_call_t;

typedef struct fake_cuda_api {
	/* Forgets calls, faults, complaints and counts. */
	void (*reset)(void);
	/* The k-th call from now on that can fail returns `code` and does nothing; 0 = none. */
	void (*fail_at)(long k, CUresult code);
	/* Fails one of the calls of one name. */
	void (*fail_call)(const char *name, long k, CUresult code);
	/* The k-th operation that is put on a stream from now on fails when it runs, which every
	 * later call of its context reports, as with a faulting kernel. */
	void (*fail_later)(long k, CUresult code);
	/* The name of the call or operation that failed so; "" if it has not come. */
	const char *(*failed)(void);

	/* Calls of a name, NULL = of all. */
	long (*count)(const char *name);
	/* Call i from 0 on; NULL after the last. */
	const fake_cuda_call_t *(*call)(long i);
	/* Calls that made the host wait for the device. */
	long (*host_syncs)(void);
	/* Copies of host memory that is neither pinned nor registered. */
	long (*pageable_copies)(void);

	/* 1: complaints are collected instead of ending the process. */
	void (*collect)(int on);
	long (*complaints)(void);
	/* The first one; "" if none. */
	const char *(*complaint)(void);
	/* What was live when a context's last reference was released, over all so far. A leak is a
	 * complaint too. */
	long (*leaks)(void);
	/* What is live now: allocations, streams, events, modules. */
	long (*live)(void);
	/* Pairs of operations on the same memory that the race finder has compared. */
	long (*compared)(void);

	/* "seed", "delay_us", "queue", "kernels" (0 text, 1 cpu), "devices", "driver_version",
	 * "capability", "multiprocessors", "mem_bytes", "mig", "pageable" (1 refuse); "fault": all
	 * contexts fail, with that code; "block_threads": the most threads of a block, for all
	 * kernels, as on a device with few registers (0: what the launch bounds of each kernel
	 * say). */
	void (*set)(const char *what, long value);
} fake_cuda_api_t;

/* The one symbol apart from the driver's. */
#define FAKE_CUDA_API_SYMBOL "fake_cuda_api"
typedef const fake_cuda_api_t *fake_cuda_api_fn(void);

#endif
