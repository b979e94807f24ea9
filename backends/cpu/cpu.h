/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The objects of the CPU backend. A device has a thread pool. There are no driver streams: the
 * stream queue runs a command on the caller at the call ("inline": no overlap), or on a worker
 * thread of each stream ("threads").
 */
#ifndef SRT_BACKENDS_CPU_CPU_H
#define SRT_BACKENDS_CPU_CPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device/backend.h"
#include "backends/cpu/matmul.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/pool.h"
#include "backends/common/scratch.h"
#include "backends/common/selftest.h"
#include "kernels/cpu.h"

#define SRT_CPU_ALIGN 64u

typedef struct srt_cpu_device {
	const srt_host_services_t *host;
	srt_cpu_isa_t isa;
	const srt_cpu_gemm_t *gemm; /* NULL: only portable kernels */
	srt_cpu_onednn_t *fast;     /* for products of numerics mode fast, or NULL */
	int threads;
	bool threaded_streams;
	bool may_spin; /* there is a core for every thread of every local rank */
	srt_cpu_pool_t *pool;
	void *saved_binding; /* of the thread that opened the device, or NULL */
	srt_selftest_t selftest;
	srt_scratch_owner_t scratch;
} srt_cpu_device_t;

typedef struct srt_cpu_mem {
	unsigned char *host;
	size_t nbytes;
	size_t mapped; /* bytes of the mapping, 0 = from the allocator */
	int fd;        /* of the memfd, or -1 */
	bool wrapped;  /* the caller owns the memory */
} srt_cpu_mem_t;

typedef struct srt_cpu_stream {
	srt_cpu_device_t *device;
	bool is_selftest; /* runs kernels before they are tested */
	srt_scratch_t scratch;
} srt_cpu_stream_t;

/* device.c. The tables in backend.c refer to this table and those of the files below. */
extern const srt_backend_device_ops_t srt_cpu_device_ops;
extern const srt_backend_mem_ops_t srt_cpu_mem_ops;
extern const srt_backend_stream_ops_t srt_cpu_stream_ops;

/* work.c. Slot of backend.h. */
srt_status_t srt_cpu_submit(void *stream, const srt_command_t *command);

/* memory.c. Host address of a binding; NULL = absent. */
void *srt_cpu_tensor(const srt_binding_t *binding);
/* Scratch of at least nbytes for the running command, aligned to 64; NULL: the error is set. */
void *srt_cpu_stream_scratch(srt_cpu_stream_t *stream, size_t nbytes);

/* topology.c. Model name of the processor. */
void srt_cpu_model_name(char *name, size_t name_nbytes);
/* Binds the calling thread, and the threads that it creates later, to this rank's cores, according
 * to `mode`, a value of SHARDRT_BIND. *saved is for srt_cpu_unbind(): NULL if nothing was bound. */
srt_status_t srt_cpu_bind(const char *mode, int local_rank, int local_size, int threads,
			  void **saved);
void srt_cpu_unbind(void *saved);

#endif
