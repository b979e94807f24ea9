/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context is one rank of a job: its device, its rank number, and the world communicator. A
 * process normally creates one.
 */
#ifndef SHARDRT_CONTEXT_H
#define SHARDRT_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One rank of a job. Opaque. */
typedef struct srt_context srt_context_t;
/** A compute device opened by a context. Opaque. */
typedef struct srt_device srt_device_t;
/** A group of ranks that communicate. Opaque. */
typedef struct srt_comm srt_comm_t;

/** How exactly matrix products and attention follow docs/numerics.md. */
typedef enum srt_numerics {
	SRT_NUMERICS_DEFAULT, /* SHARDRT_NUMERICS, else exact */
	SRT_NUMERICS_EXACT,   /* every bit as docs/numerics.md defines it */
	SRT_NUMERICS_FAST,    /* products by oneDNN or cuBLASLt, attention on tensor cores */
} srt_numerics_t;

/**
 * The program's own context of a driver, and a device of it (<shardrt/native.h>).
 * <shardrt/opencl.h> and <shardrt/cuda.h> make one from their types.
 */
typedef struct srt_native_device {
	size_t size;         /* sizeof(srt_native_device_t) */
	const char *backend; /* "opencl", "cuda" */
	void *context;       /* cl_context, CUcontext */
	void *device;        /* cl_device_id; NULL for CUDA, whose context has one device */
} srt_native_device_t;

/** Neither a context nor a device. */
#define SRT_NATIVE_DEVICE_INIT                                                                     \
	{                                                                                          \
		.size = sizeof(srt_native_device_t)                                                \
	}

/**
 * Sends `nbytes` (at most 1024) at `data` of rank 0 to all ranks, which receive them at `data`, as
 * MPI_Bcast() does. Collective over all ranks of the job, blocking, called by the thread that
 * creates the context. The library sets no deadline.
 * @return 0 on success; else the context is not created, and the error names the value.
 */
typedef int srt_context_broadcast_fn(void *arg, void *data, size_t nbytes);

/**
 * Options of srt_context_create(). A zero field takes its value from the environment variable that
 * its comment names, else from that variable's default.
 */
typedef struct srt_context_options {
	size_t size;         /* sizeof(srt_context_options_t) */
	const char *backend; /* SHARDRT_BACKEND: "auto", "cpu", "opencl", ... */
	const char *device;  /* SHARDRT_DEVICE */
	/* SHARDRT_BOOTSTRAP: set by the launcher; "" or "none" = a world of one rank, "pmix",
	 * "torchrun" = that launcher, "tcp:HOST:PORT" = rank 0 listens there (docs/launchers.md) */
	const char *bootstrap;
	int threads;             /* SHARDRT_THREADS: compute threads of a CPU device */
	double timeout_s;        /* SHARDRT_TIMEOUT: longest wait for other ranks, in seconds */
	srt_numerics_t numerics; /* SHARDRT_NUMERICS */
	const char *bind;        /* SHARDRT_BIND: "auto", "no", "yes" */
	/* The program's own context, which the device of this rank then uses; NULL: the library
	 * makes or shares one. Replaces SHARDRT_BACKEND and SHARDRT_DEVICE. An OpenCL context is
	 * retained; a CUDA context must outlive the srt_context_t and its objects. */
	const srt_native_device_t *native;
	/* For a program that has a transport: the place of this process, which replaces what
	 * launchers tell, and a function by which the ranks find each other. It is called in
	 * srt_context_create() only, and may be NULL for one rank. The option bootstrap must be
	 * NULL. world_size 0: what the launcher tells. Ranks of one node find that out. */
	int rank, world_size;
	srt_context_broadcast_fn *broadcast;
	void *broadcast_arg;
} srt_context_options_t;

/** What the environment says. */
#define SRT_CONTEXT_OPTIONS_INIT                                                                   \
	{                                                                                          \
		.size = sizeof(srt_context_options_t)                                              \
	}

/**
 * Joins the job, opens the device and connects to the other ranks. Collective over all ranks,
 * blocking.
 * @param options NULL for the defaults; strings are borrowed for the call.
 * @param[out] context owned by the caller, freed by srt_context_destroy(); set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for an option or an environment variable outside its range;
 *         SRT_ERR_UNSUPPORTED if the backend is not installed or has no device; SRT_ERR_DEVICE if
 *         the device cannot be opened; SRT_ERR_TIMEOUT or SRT_ERR_PEER_DEAD if a rank did not join:
 *         the sentence names it.
 * Thread-safe: ranks may be threads of one process, with the option `broadcast`; UCX then carries
 * their bytes. Drivers are asked and devices opened by one thread at a time.
 */
SRT_API srt_status_t srt_context_create(const srt_context_options_t *options,
					srt_context_t **context);

/**
 * Leaves the job and frees the context, its device and its world communicator. Waits for other
 * ranks at most half a second. In a job of several nodes rank 0, and one rank of each other node,
 * also carry messages between ranks that have not left: until these have, at most for the deadline
 * (SHARDRT_TIMEOUT). NULL is allowed. Objects of the context should be destroyed first.
 * If some still exist, this logs a warning; after that, collectives, engines and scalers can only
 * be destroyed, and the last object closes the device.
 */
SRT_API void srt_context_destroy(srt_context_t *context);

/** This process's rank, 0 .. world size - 1; -1 for NULL. Thread-safe. */
SRT_API int srt_context_rank(const srt_context_t *context);
/** Number of ranks of the job. Thread-safe. */
SRT_API int srt_context_world_size(const srt_context_t *context);
/** Rank among the ranks of this node; -1 for NULL. Thread-safe. */
SRT_API int srt_context_local_rank(const srt_context_t *context);
/** Number of ranks on this node. Thread-safe. */
SRT_API int srt_context_local_size(const srt_context_t *context);
/** The device; owned by the context. Thread-safe. */
SRT_API srt_device_t *srt_context_device(srt_context_t *context);
/**
 * The processor as a device of this rank, for memory and work next to the context's device: that
 * device itself if it computes in host memory, else a CPU device with the context's threads and
 * numerics. The first call opens it, and binds the calling thread to cores by SHARDRT_BIND.
 * @param[out] host owned by the context, set on success only.
 * @return the error of opening the CPU device, e.g. SRT_ERR_UNSUPPORTED for SHARDRT_CPU_ISA.
 * Thread-safe.
 */
SRT_API srt_status_t srt_context_host(srt_context_t *context, srt_device_t **host);
/** The communicator of all ranks; owned by the context. Thread-safe. */
SRT_API srt_comm_t *srt_context_world(srt_context_t *context);
/** The numerics mode in force; SRT_NUMERICS_DEFAULT for NULL only. Thread-safe. */
SRT_API srt_numerics_t srt_context_numerics(const srt_context_t *context);

#ifdef __cplusplus
}
#endif
#endif
