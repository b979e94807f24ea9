/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backend contract: all that a device family must provide.
 *
 * A backend is a set of `static const` tables of functions. The device layer (device/device.h)
 * owns the public objects srt_device_t, srt_buffer_t, srt_stream_t and srt_event_t, checks
 * arguments, counts bytes and calls these slots with the backend's objects (`void *`).
 *
 * Conventions
 *   - Every function returns a status. On failure it has called host->fail() once with a complete
 *     message, and has no effect.
 *   - "async": returns once the work is queued in stream order. "sync": done on return.
 *   - A NULL slot means: not supported. The device layer then uses a fallback or returns
 *     SRT_ERR_UNSUPPORTED. Slots marked "required" must not be NULL.
 *   - Sizes and offsets are bytes unless named otherwise. Arguments are already validated.
 *   - The required slots and the portable kernels are enough for all features.
 */
#ifndef SRT_DEVICE_BACKEND_H
#define SRT_DEVICE_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/backend.h>
#include <shardrt/device.h>
#include <shardrt/export.h>
#include <shardrt/log.h>
#include <shardrt/native.h>
#include <shardrt/ops.h>

#include "kernels/command.h"
#include "kernels/table.h"

/* Raised whenever a struct in this file changes. */
#define SRT_BACKEND_ABI 13u

/* Services of the library for backends, passed to probe(). Valid until the process ends. */
typedef struct srt_host_services {
	uint32_t abi;
	/* Sets the calling thread's last error and returns `status`. */
	srt_status_t (*fail)(srt_status_t status, const char *format, ...)
		__attribute__((format(printf, 2, 3)));
	void (*log)(srt_log_level_t level, const char *format, ...)
		__attribute__((format(printf, 2, 3)));
	/* The calling thread's last error, e.g. of a failed host function. */
	const char *(*last_error)(void);
	/* Value of a variable of the configuration table, validated; never NULL. */
	const char *(*config)(const char *name);
	/* Sets a variable that the driver's library reads, unless the user has set it. */
	void (*env_default)(const char *name, const char *value);
	/* Path of the folder `name` of the user's cache, which it creates; 0: no cache folder. */
	int (*cache_folder)(const char *name, char *path, size_t path_nbytes);
	/* Cores that this process may use. */
	int (*cores)(void);
	/* Host memory; aligned to 64 bytes; NULL when out of memory (fail() was called). */
	void *(*alloc)(size_t nbytes);
	void (*free)(void *p);
} srt_host_services_t;

/* Which device the caller requests. */
typedef struct srt_device_request {
	const char *selector; /* value of SHARDRT_DEVICE, "" = choose */
	int local_rank;       /* ranks of a node are spread over devices */
	int local_size;
	int threads;      /* compute threads of a CPU device, 0 = choose */
	const char *bind; /* a value of SHARDRT_BIND, for a CPU device; NULL: the variable's */
	int exact;        /* 1: a device that fails its self-test is refused */
	int fast;         /* 1: numerics mode fast */
	/* 1: the user did not name a backend (SHARDRT_BACKEND=auto): choose among the devices that
	 * describe() calls accelerators. */
	int accelerator;
	/* The program's own context and device, to be used instead of the ones that the selector
	 * means; NULL: none. Only for backends with the slot `native` of the device. */
	const srt_native_device_t *native;
} srt_device_request_t;

/* What a device can do; filled by device_open. */
typedef struct srt_backend_caps {
	char name[128];    /* for people */
	char isa[16];      /* CPU instruction set or "" */
	int threads;       /* compute threads of a CPU device, else 0 */
	int async_streams; /* streams run concurrently with the caller */
	int host_memory;   /* mem_host() works for SRT_MEM_DEVICE and SRT_MEM_PEER */
	int peer_memory;   /* SRT_MEM_PEER, export_handle() and import_handle() work in the
			    * node; else wrap_host() must work, and collectives stage */
	int peer_begin;    /* with peer_memory: SRT_COMMAND_PEER_BEGIN is needed */
	/* With peer_memory: devices of the same kind can map each other's memory. */
	char peer_kind[16];
	size_t mem_nbytes; /* total, 0 = unknown */
	/* Devices with the same id share one memory, also across processes of the node: the
	 * memory check adds the needs of their ranks. All 0: unknown. */
	unsigned char memory_id[16];
	/* Bytes of device memory that the driver and its libraries may allocate later, outside
	 * these tables. The memory check keeps them free. */
	size_t driver_overhead;
	int has_fast; /* numerics mode fast differs from exact */
} srt_backend_caps_t;

/* How another rank of the node maps a SRT_MEM_PEER allocation. */
typedef struct srt_mem_handle {
	int fd; /* a descriptor to be passed over a Unix socket, or -1 */
	uint64_t nbytes;
} srt_mem_handle_t;

/* ---- device --------------------------------------------------------------------------- */
typedef struct srt_backend_device_ops {
	/* sync, required. Number of usable devices; 0 with the reason in the last error (library
	 * missing, no driver, ICD list empty). Must be cheap, and safe without any device. */
	srt_status_t (*probe)(const srt_host_services_t *host, int *ndevices);
	/* sync, NULL ok (then `auto` never chooses this backend, and names are not shown). Device
	 * 0 <= number < ndevices of the last probe, without opening it. */
	srt_status_t (*describe)(const srt_host_services_t *host, int number,
				 srt_device_description_t *description);
	/* sync, required. Opens a device, runs its self-test, fills caps. */
	srt_status_t (*open)(const srt_host_services_t *host, const srt_device_request_t *request,
			     void **device, srt_backend_caps_t *caps);
	/* sync, NULL ok. Loads and tests the kernels of a type before the device has work: loading
	 * at the first use may wait for all work of the device. The first use reports an error.
	 * Thread-safe. */
	void (*prepare)(void *device, srt_dtype_t dtype);
	/* sync, required. All streams and memory of the device have been freed. */
	void (*close)(void *device);
	/* sync, NULL ok. Fails if the device has an asynchronous (sticky) error, e.g. ECC or a
	 * kernel's fault. Called after a wait has failed with SRT_ERR_DEVICE, from any thread. */
	srt_status_t (*poll_error)(void *device);
	/* sync, NULL ok (no native handles). The driver's context and device, of this family of
	 * devices. They belong to the backend. */
	void (*native)(void *device, void **context, void **id);
} srt_backend_device_ops_t;

/* ---- memory --------------------------------------------------------------------------- */
typedef struct srt_backend_mem_ops {
	/* sync, required. nbytes > 0; bytes are zero. `name` is for messages. */
	srt_status_t (*alloc)(void *device, srt_mem_kind_t kind, size_t nbytes, const char *name,
			      void **mem);
	/* sync, required. Frees memory of alloc or import_handle; of wrap_host, the object only. */
	void (*free)(void *device, void *mem);
	/* required. Host address of an allocation: of pinned memory always, of other kinds with
	 * caps.host_memory, else NULL. */
	void *(*host)(void *device, void *mem);
	/* sync, NULL ok (then peer_memory is 0). The owner keeps the handle's fd. */
	srt_status_t (*export_handle)(void *device, void *mem, srt_mem_handle_t *handle);
	/* sync, NULL ok. Maps a peer's memory, which copies may write; owns the descriptor on
	 * success. */
	srt_status_t (*import_handle)(void *device, const srt_mem_handle_t *handle, void **mem);
	/* sync, NULL ok (unknown). Bytes of device memory that any process can still allocate; 0:
	 * unknown. */
	size_t (*available)(void *device);
	/* sync, required where caps.peer_memory may be 0. Memory of the caller, page-aligned
	 * and shared with other processes, as an object that only copies read and write, in stream
	 * order like pinned memory. The backend neither clears nor frees it; it outlives the
	 * object. Other processes change its bytes: each copy from it must read them again, and
	 * each copy to it must be visible when later host functions of the stream run. */
	srt_status_t (*wrap_host)(void *device, void *host, size_t nbytes, const char *name,
				  void **mem);
	/* sync, NULL ok. The driver's handle of the memory; fails for memory that has none. */
	srt_status_t (*native)(void *device, void *mem, void **handle);
	/* sync, NULL ok. Device memory of the program by the driver's handle, as an object that all
	 * commands use. The backend neither clears nor frees the memory. */
	srt_status_t (*wrap_native)(void *device, void *handle, size_t nbytes, const char *name,
				    void **mem);
} srt_backend_mem_ops_t;

/* A function that runs in stream order on a host thread; must not call the device. Its
 * failure poisons the stream. */
typedef srt_status_t srt_host_fn(void *arg);

/* ---- streams and events ---------------------------------------------------------------
 *
 * A backend has driver streams or not. If not, sync and the event slots are NULL, and the work is
 * complete when submit() returns. The stream queue (device/stream_queue.h) lies between the
 * backend and the callers: it keeps the order, runs host functions, waits for events that are not
 * recorded yet, and stores the first failure. Slots marked "driver" are called between enter() and
 * leave(), in the floating-point environment of docs/numerics.md, and by one thread at a time per
 * stream. */
typedef struct srt_backend_stream_ops {
	/* sync, required. */
	srt_status_t (*create)(void *device, int priority, const char *name, void **stream);
	/* sync, required. Waits for the stream's work. */
	void (*destroy)(void *stream);
	/* async, required, driver. Submits the command to the driver's stream, or runs it. The
	 * command is not valid after return. Bindings are device memory; one side of a copy may be
	 * pinned memory. With caps.host_memory each binding may be pinned memory. */
	srt_status_t (*submit)(void *stream, const srt_command_t *command);
	/* sync, NULL ok. The driver's queue, as SRT_COMMAND_NATIVE passes it. */
	void *(*native)(void *stream);
	/* sync, driver, NULL ok (see above). Waits for the submitted commands. sleep: the wait may
	 * be long, so the thread should not spin. */
	srt_status_t (*sync)(void *stream, int sleep);
	/* sync, driver, required without caps.host_memory. Copies device memory to pageable host
	 * memory; the stream is idle. */
	srt_status_t (*read)(void *stream, void *dst, void *mem, size_t offset, size_t nbytes);

	/* sync, driver, NULL ok (operations need no scratch). Gives the stream at least nbytes of
	 * device memory for its operations: the maximum of scratch() over them. These operations
	 * then allocate nothing. The stream is idle. */
	srt_status_t (*reserve)(void *stream, size_t nbytes);
	/* sync, NULL ok (0). Upper bound of the scratch bytes that a stream needs for a command.
	 * Of the bindings it only reads which are absent. */
	size_t (*scratch)(void *device, const srt_command_t *command);
	/* sync, NULL ok (none). Bytes of scratch that the device's streams hold, reserved or not,
	 * and the number of scratch allocations so far. Any thread. */
	void (*scratch_usage)(void *device, size_t *nbytes, uint64_t *nallocations);

	/* sync, driver; these six exist with sync, else NULL. The event is not recorded yet. */
	srt_status_t (*event_create)(void *device, void **event);
	/* sync, driver. Submitted waits remain valid. */
	void (*event_destroy)(void *device, void *event);
	/* async, driver. Records the end of the submitted commands. Submitted waits for an earlier
	 * record do not change. */
	srt_status_t (*event_record)(void *stream, void *event);
	/* async, driver. Later commands of another stream wait for a recorded event. */
	srt_status_t (*event_wait)(void *stream, void *event);
	/* sync, driver. Waits for a recorded event. */
	srt_status_t (*event_sync)(void *device, void *event);
	/* driver. 1: the recorded event was reached, or failed. */
	int (*event_query)(void *device, void *event);

	/* NULL ok, both. Prepares the calling thread for driver calls. 0: it failed; the next call
	 * of the driver reports the error, and leave() is not called. */
	int (*enter)(void *device);
	void (*leave)(void *device);
} srt_backend_stream_ops_t;

/* ---- collectives by a library like NCCL ------------------------------------------------- */

#define SRT_COMM_ID_NBYTES 128

/* Identifies a communicator to the ranks that join it; created by one rank, sent to the others. */
typedef struct srt_comm_id {
	unsigned char bytes[SRT_COMM_ID_NBYTES];
} srt_comm_id_t;

/* The library and device of a rank. All ranks see all descriptions before they use the library. */
typedef struct srt_comm_description {
	char library[48];            /* name and version, for messages */
	uint32_t version;            /* must be the same on all ranks */
	unsigned char device_id[16]; /* identifies the device, also in other processes */
	size_t driver_overhead;      /* memory that the library may allocate later */
} srt_comm_description_t;

/*
 * A communicator of the library over all ranks of the job, at most one on a device. It moves bytes
 * between devices without the host. Its sums are in its own order, and used in numerics mode fast
 * only. The table may be NULL: collectives are then zero copy or staged.
 *
 * Threads: one thread at a time makes all calls, except poll(), abort() and group_run(), which
 * other threads may call at any time. Only group_run() may wait for other ranks, and destroy() for
 * some seconds. All work is submitted to one stream.
 */
typedef struct srt_backend_comm_ops {
	/* "nccl"; the same on all ranks that use it together. */
	const char *name;
	/* sync. Describes the library and the device. Fails if the library cannot be used. */
	srt_status_t (*probe)(void *device, srt_comm_description_t *description);
	/* sync. A new id, for one communicator. */
	srt_status_t (*make_id)(void *device, srt_comm_id_t *id);
	/* Begins to join; poll() reports when all ranks have joined. */
	srt_status_t (*init)(void *device, const srt_comm_id_t *id, int rank, int size,
			     void **comm);
	/* sync. *pending = 1: ranks have not joined yet. Fails with an asynchronous error of the
	 * library. */
	srt_status_t (*poll)(void *comm, int *pending);
	/* sync. Ends its work on streams, with incomplete bytes; the streams continue. Local. Only
	 * destroy() may be called after it. */
	void (*abort)(void *comm);
	/* sync. Frees the communicator. Local after abort(). Else the work of all ranks has ended,
	 * and all ranks call it. */
	void (*destroy)(void *comm);
	/* Calls between the two are one group: they start together, in no order. Not nested. */
	srt_status_t (*group_begin)(void *comm);
	/* sync. *group: the group, to be run in stream order; NULL: it is empty. */
	srt_status_t (*group_end)(void *comm, void **group);
	/* Submits the group to the driver's stream and frees it. Called on a thread that may block:
	 * the driver or connecting peers may delay it. stream NULL: only frees the group. */
	srt_status_t (*group_run)(void *stream, void *group);
	/* In a group. nbytes > 0 to another rank, which calls recv with the same nbytes. Several
	 * between the same two ranks are matched in the order of calls. */
	srt_status_t (*send)(void *comm, void *mem, size_t offset, size_t nbytes, int peer);
	srt_status_t (*recv)(void *comm, void *mem, size_t offset, size_t nbytes, int peer);
	/* In a group, NULL ok (sends and receives are used). The root's bytes to mem + offset of
	 * each rank. */
	srt_status_t (*broadcast)(void *comm, void *mem, size_t offset, size_t nbytes, int root);
	/* In a group, NULL ok (sends and receives are used). nbytes of each rank, to dst + rank *
	 * nbytes of all ranks; a rank's own bytes may be there already. */
	srt_status_t (*all_gather)(void *comm, void *dst, size_t dst_offset, void *src,
				   size_t src_offset, size_t nbytes);
	/* In a group, NULL ok (sends, receives and the exact sum are used). Of all ranks' src, the
	 * sum of the elements [rank * nelem, + nelem) to dst, in the library's order. */
	srt_status_t (*reduce_scatter)(void *comm, void *dst, size_t dst_offset, void *src,
				       size_t src_offset, size_t nelem, srt_dtype_t dtype);
	/* In a group, NULL ok. The sum of all elements, in place, on all ranks. */
	srt_status_t (*all_reduce)(void *comm, void *mem, size_t offset, size_t nelem,
				   srt_dtype_t dtype);
} srt_backend_comm_ops_t;

/* ---- the backend ---------------------------------------------------------------------- */
typedef struct srt_backend {
	uint32_t abi;        /* SRT_BACKEND_ABI */
	const char *kernels; /* srt_kernels_digest: both sides use the same kernel arguments */
	const char *name;
	const char *aliases; /* "xpu" or "" */
	const srt_backend_device_ops_t *device;
	const srt_backend_mem_ops_t *mem;
	const srt_backend_stream_ops_t *stream;
	const srt_backend_comm_ops_t *comm; /* NULL ok */
} srt_backend_t;

/* The built-in backend. */
const srt_backend_t *srt_backend_cpu(void);

/* Whether it can use oneDNN in numerics mode fast, which is loaded; the last error says why not. */
srt_status_t srt_cpu_onednn_probe(void);

/*
 * A module is a shared object "shardrt_backend_NAME.so" that exports this one function. It uses the
 * library through `host` only, not through symbols. It always returns the same table; `abi` is the
 * library's SRT_BACKEND_ABI. A module that does not support that version may still return its table
 * (the library compares table->abi), or NULL after host->fail(). The library does not call the
 * function again after it has accepted a table. A module is never unloaded.
 */
typedef const srt_backend_t *srt_backend_module_fn(const srt_host_services_t *host, uint32_t abi);
#define SRT_BACKEND_MODULE_SYMBOL "srt_backend_module"
SRT_API srt_backend_module_fn srt_backend_module;

#endif
