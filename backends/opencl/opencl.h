/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The objects of the OpenCL backend. It uses OpenCL 1.2 core only. A stream is an
 * in-order queue.
 */
#ifndef SRT_BACKENDS_OPENCL_OPENCL_H
#define SRT_BACKENDS_OPENCL_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device/backend.h"
#include "backends/common/choose.h"
#include "backends/common/scratch.h"
#include "backends/opencl/source.h"
#include "backends/common/selftest.h"
#include "kernels/table.h"

#define SRT_OCL_NAME_NBYTES 128
#define SRT_OCL_OPTIONS_NBYTES 256
#define SRT_OCL_KEY_NBYTES 4096
#define SRT_OCL_MAX_PROGRAMS 96
#define SRT_OCL_NDTYPES (SRT_BF16 + 1) /* rows of tables of SRT_F32, SRT_F16, SRT_BF16 */
#define SRT_OCL_MAX_KERNELS (SRT_OCL_NDTYPES * SRT_K_COUNT + 60) /* of all programs */

typedef struct srt_ocl_program {
	const srt_ocl_source_t *source;
	char options[SRT_OCL_OPTIONS_NBYTES];
	cl_program program;
} srt_ocl_program_t;

/* The form of a device's matrix product and attention (tuned.c). */
typedef enum srt_ocl_form {
	SRT_OCL_PORTABLE, /* the portable kernels */
	SRT_OCL_VECTOR,   /* tiles in the registers of a work-item: devices of CPU type */
	SRT_OCL_TILED,    /* tiles in local memory: GPUs (backends/gpu) */
} srt_ocl_form_t;

typedef struct srt_ocl_tuning {
	srt_ocl_form_t form;
	int width;     /* vector: floats of a vector; tiled: maximum work-items of a work-group */
	int units;     /* compute units */
	int tile, cut; /* tiled: forced during the self-test (srt_gpu_t) */
	char options[24];
} srt_ocl_tuning_t;

typedef struct srt_ocl_device {
	const srt_host_services_t *host;
	cl_platform_id platform;
	cl_device_id id;
	cl_context context;
	cl_device_type type;
	char name[SRT_OCL_NAME_NBYTES];
	char options[SRT_OCL_OPTIONS_NBYTES]; /* of every program */
	bool holds_id; /* a sub-device or the program's device, which the backend must release */
	bool lanes_as_loop;
	srt_ocl_tuning_t tuning;
	bool unified_memory; /* device memory is host memory */
	bool peer_memory;    /* the start-up probe succeeded */
	cl_ulong max_alloc;  /* bytes of one buffer */

	pthread_mutex_t lock;   /* protects the following members */
	cl_command_queue queue; /* zeroes allocations */
	srt_ocl_program_t programs[SRT_OCL_MAX_PROGRAMS];
	int nprograms, ncompiled, nfrom_cache;
	double build_s; /* spent on both */

	srt_selftest_t selftest;

	srt_scratch_owner_t scratch;
} srt_ocl_device_t;

typedef struct srt_ocl_mem {
	cl_mem buffer;       /* for kernels; NULL: host memory only */
	unsigned char *host; /* NULL: device memory only */
	size_t nbytes;
	size_t mapped; /* bytes of a mapping that the backend owns, else 0 */
	cl_mem pinned; /* the buffer that `host` is a mapping of, or NULL */
	bool borrowed; /* the backend must not free `host` */
	bool imported; /* a peer's memory */
	int fd;        /* of the memfd, or -1 */
} srt_ocl_mem_t;

typedef struct srt_ocl_stream {
	srt_ocl_device_t *device;
	cl_command_queue queue;
	char name[32];
	bool is_selftest; /* runs kernels before they are tested */
	/* Kernel objects hold arguments, so streams do not share them. The thread that submits uses
	 * them. */
	cl_kernel kernels[SRT_OCL_MAX_KERNELS];
	srt_scratch_t scratch;
} srt_ocl_stream_t;

/* device.c. The tables in backend.c refer to this table and those of the files below. */
extern const srt_backend_device_ops_t srt_ocl_device_ops;
extern const srt_backend_mem_ops_t srt_ocl_mem_ops;
extern const srt_backend_stream_ops_t srt_ocl_stream_ops;

/* error.c. The name of an OpenCL status code, "CL_OUT_OF_RESOURCES". */
const char *srt_ocl_code_name(cl_int code);
/* Fails with "<sentence>: CL_NAME (-5)"; out of memory or device by the code. */
srt_status_t srt_ocl_fail(const srt_host_services_t *host, cl_int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* environment.c. Call it before the process's first call of OpenCL; idempotent. */
void srt_ocl_environment(const srt_host_services_t *host);
/* Compute threads of this rank, from the configuration. */
int srt_ocl_rank_threads(const srt_host_services_t *host);

/* list.c */
extern const srt_candidates_t srt_ocl_candidates;
/* Why a device cannot be used, or NULL. */
const char *srt_ocl_why_unusable(cl_device_id id);

/* native.c. Uses the program's context and device instead of a chosen one. */
srt_status_t srt_ocl_use_native(srt_ocl_device_t *device, const srt_native_device_t *native);
/* Slots of backend.h. */
void srt_ocl_device_native(void *device, void **context, void **id);
srt_status_t srt_ocl_mem_native(void *device, void *mem, void **handle);
srt_status_t srt_ocl_wrap_native(void *device, void *handle, size_t nbytes, const char *name,
				 void **mem);

/* program.c. The key of an entry of the cache: its name, the hash and options of what it was made
 * from, device and driver. */
void srt_ocl_key(const srt_ocl_device_t *device, const char *name, uint64_t hash,
		 const char *options, char key[SRT_OCL_KEY_NBYTES]);
/* The built program of a source (source.h), with options in addition to the device's;
 * built or read from the cache at the first call. Thread-safe. */
srt_status_t srt_ocl_program(srt_ocl_device_t *device, const char *source, const char *options,
			     cl_program *program);
/* A kernel object of the stream: slot number of SRT_OCL_MAX_KERNELS, created at the first call.
 * For the thread that submits. Slots from 0 on are the
 * portable kernels', SRT_K_COUNT of each dtype; then come the tuned ones. */
srt_status_t srt_ocl_stream_kernel(srt_ocl_stream_t *stream, int slot, const char *source,
				   const char *options, const char *name, cl_kernel *kernel);
void srt_ocl_programs_free(srt_ocl_device_t *device);

/* cache.c. 64-bit FNV-1a. */
uint64_t srt_ocl_hash(const void *data, size_t nbytes);
/* Program binaries on disk. A binary, host->alloc'ed, of the key or NULL. */
unsigned char *srt_ocl_cache_load(const srt_host_services_t *host, const char *key, size_t *nbytes);
/* Failures are only logged. */
void srt_ocl_cache_store(const srt_host_services_t *host, const char *key,
			 const unsigned char *binary, size_t nbytes);
/* Locks an entry, so that of several processes without it one compiles and the others read. Waits
 * for the owner of the lock; the entry may exist afterwards. Returns the argument of unlock. If the
 * lock is not available, both do nothing. */
int srt_ocl_cache_lock(const srt_host_services_t *host, const char *key);
void srt_ocl_cache_unlock(int lock);

/* work.c. Slot of backend.h. */
srt_status_t srt_ocl_submit(void *stream, const srt_command_t *command);
/* Fails with "stream "NAME": what N bytes failed" unless the code is CL_SUCCESS. */
srt_status_t srt_ocl_queued(const srt_ocl_stream_t *stream, cl_int code, const char *what,
			    size_t nbytes);

/* peer.c */
srt_status_t srt_ocl_peer_alloc(srt_ocl_device_t *device, srt_ocl_mem_t *mem, const char *name);
srt_status_t srt_ocl_peer_export(void *device, void *mem, srt_mem_handle_t *handle);
srt_status_t srt_ocl_peer_import(void *device, const srt_mem_handle_t *handle, void **mem);
srt_status_t srt_ocl_run_peer_begin(srt_ocl_stream_t *stream, const srt_command_t *command);

/* probe.c. Sets device->peer_memory: whether peer.c works on this device. */
srt_status_t srt_ocl_peer_probe(srt_ocl_device_t *device);

#endif
