/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU backend's own objects. A device has a thread pool and makes streams of one kind:
 *
 *   inline   work runs on the caller, at the call; no overlap
 *   threads  each stream has a worker thread and a bounded queue of operations
 *
 * Either way an operation is run by stream.c with the stream's failure checked first and
 * the floating-point environment of docs/numerics.md in force.
 */
#ifndef SRT_BACKENDS_CPU_CPU_H
#define SRT_BACKENDS_CPU_CPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "backends/backend.h"
#include "backends/cpu/matmul.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/pool.h"
#include "backends/selftest.h"
#include "kernels/cpu.h"

#define SRT_CPU_ALIGN 64u
#define SRT_CPU_FAILURE_NBYTES 512

/* A failure on its way from the thread where it happened to those that wait for it. */
typedef struct srt_cpu_failure {
	srt_status_t status; /* SRT_OK: none */
	char message[SRT_CPU_FAILURE_NBYTES];
} srt_cpu_failure_t;

/* The end of a stream at one moment. The event that was recorded and every wait on it hold a
 * reference; the last one puts it back on the device's list of free points. */
typedef struct srt_cpu_point {
	struct srt_cpu_point *next_free;
	int refs; /* under the device's points_lock */
	pthread_mutex_t lock;
	pthread_cond_t reached_cond;
	bool reached;
	srt_cpu_failure_t failure; /* of the recording stream, when reached */
} srt_cpu_point_t;

typedef struct srt_cpu_device {
	const srt_host_services_t *host;
	srt_cpu_isa_t isa;
	const srt_cpu_gemm_t *gemm; /* NULL: only portable kernels */
	srt_cpu_onednn_t *fast;     /* products of numerics mode fast, or NULL */
	int threads;
	bool threaded_streams;
	bool may_spin; /* there is a core for every thread of every local rank */
	srt_cpu_pool_t *pool;
	void *saved_binding; /* of the thread that opened the device, or NULL */
	pthread_mutex_t points_lock;
	srt_cpu_point_t *free_points;
	srt_selftest_t selftest;
	atomic_size_t kept;     /* bytes of all streams' scratch */
	_Atomic uint64_t nkept; /* how often it was allocated */
} srt_cpu_device_t;

typedef struct srt_cpu_mem {
	unsigned char *host;
	size_t nbytes;
	size_t mapped; /* bytes of the mapping, 0 = from the allocator */
	int fd;        /* of the memfd, or -1 */
	bool wrapped;  /* the memory is not ours */
} srt_cpu_mem_t;

typedef struct srt_cpu_event {
	srt_cpu_device_t *device;
	pthread_mutex_t lock;
	srt_cpu_point_t *point; /* of the last record, or NULL */
} srt_cpu_event_t;

typedef struct srt_cpu_stream srt_cpu_stream_t;
typedef struct srt_cpu_op srt_cpu_op_t;

/* Does an operation; runs in stream order with the environment set. */
typedef srt_status_t srt_cpu_op_fn(srt_cpu_stream_t *stream, const srt_cpu_op_t *op);

/* One operation with everything it needs: a slot of the queue. */
struct srt_cpu_op {
	srt_cpu_op_fn *run;
	bool even_if_failed; /* must run on a poisoned stream too: it holds a reference */
	union {
		struct {
			void *dst;
			const void *src;
			size_t nbytes;
		} copy;
		struct {
			unsigned char *dst;
			const unsigned char *src;
			srt_copy_rows_t rows;
		} rows;
		struct {
			void *dst;
			size_t nbytes;
			unsigned char bytes[SRT_LAUNCH_MAX_ARGS];
		} store;
		struct {
			srt_launch_t launch;
			_Alignas(16) unsigned char args[SRT_LAUNCH_MAX_ARGS];
		} launch;
		struct {
			srt_matmul_t mm;
			srt_dtype_t dtype;
			srt_place_t places[4];
			int exact;
		} matmul;
		struct {
			srt_attention_t shape;
			srt_dtype_t dtype;
			srt_place_t places[12];
		} attention;
		struct {
			srt_host_fn *fn;
			void *arg;
		} host;
		srt_cpu_point_t *point;
	} u;
};

struct srt_cpu_stream {
	srt_cpu_device_t *device;
	bool is_selftest;          /* runs what has not been tested */
	srt_cpu_failure_t failure; /* the first one; of a threaded stream under `lock` */
	void *scratch;             /* of tuned kernels; for the thread that runs operations */
	size_t scratch_nbytes;

	/* Threaded streams only. submitted - completed = operations in the ring. */
	pthread_t worker;
	pthread_mutex_t lock;
	pthread_cond_t work_cond; /* the worker waits for operations, or the end */
	pthread_cond_t room_cond; /* callers wait for room or for completion */
	srt_cpu_op_t *ring;
	uint64_t submitted, completed;
	bool ending;
};

/* device.c: the tables of backend.c point here, as do those of the other files below. */
extern const srt_backend_device_ops_t srt_cpu_device_ops;
extern const srt_backend_mem_ops_t srt_cpu_mem_ops;
extern const srt_backend_stream_ops_t srt_cpu_stream_ops;
extern const srt_backend_work_ops_t srt_cpu_work_ops;

/* stream.c. Puts an operation on a stream (runs it at once on an inline one); op is copied. */
srt_status_t srt_cpu_stream_put(srt_cpu_stream_t *stream, const srt_cpu_op_t *op);
/* Waits for all operations put so far. */
void srt_cpu_stream_drain(srt_cpu_stream_t *stream);
/* The same, and returns the first failure. */
srt_status_t srt_cpu_stream_sync(void *stream);
/* Scratch of at least nbytes for the running operation, aligned to 64; NULL: the error is set. */
void *srt_cpu_stream_scratch(srt_cpu_stream_t *stream, size_t nbytes);

/* event.c */
srt_status_t srt_cpu_points_reserve(srt_cpu_device_t *device, size_t n);
void srt_cpu_points_free(srt_cpu_device_t *device);
srt_status_t srt_cpu_event_create(void *device, void **event);
void srt_cpu_event_destroy(void *event);
srt_status_t srt_cpu_event_record(void *event, void *stream);
srt_status_t srt_cpu_event_wait(void *stream, void *event);
srt_status_t srt_cpu_event_sync(void *event);
srt_status_t srt_cpu_event_query(void *event, int *done);

/* topology.c. Model name of the processor. */
void srt_cpu_model_name(char *name, size_t name_nbytes);
/* Binds the calling thread, and the threads it makes from now on, to this rank's own cores, as
 * SHARDRT_BIND says. *saved is for srt_cpu_unbind(), NULL if nothing was bound. */
srt_status_t srt_cpu_bind(int local_rank, int local_size, int threads, void **saved);
void srt_cpu_unbind(void *saved);

#endif
