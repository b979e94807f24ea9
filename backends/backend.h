/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backend contract: all that a device family must provide.
 *
 * A backend is a set of `static const` tables of functions. The generic layer (backends/core.h)
 * owns the public objects srt_device_t, srt_buffer_t, srt_stream_t and srt_event_t, checks
 * arguments, counts bytes and calls these slots with the backend's own objects (`void *`).
 *
 * Conventions
 *   - Every function returns a status; on failure it has called host->fail() once with a full
 *     sentence, and changed nothing it would have to undo.
 *   - "async": returns once the work is queued in stream order. "sync": done on return.
 *   - A NULL slot means: not supported. Unless a slot says "required", the generic layer then has
 *   a
 *     fallback or returns SRT_ERR_UNSUPPORTED; never a crash.
 *   - Sizes and offsets are bytes unless named otherwise. Arguments are already validated.
 *   - What a device needs for everything to work: the required slots and the portable kernels.
 */
#ifndef SRT_BACKENDS_BACKEND_H
#define SRT_BACKENDS_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/backend.h>
#include <shardrt/device.h>
#include <shardrt/export.h>
#include <shardrt/log.h>
#include <shardrt/ops.h>

#include "kernels/launch.h"
#include "kernels/table.h"

/* Raised whenever a struct in this file changes. */
#define SRT_BACKEND_ABI 10u

/* Services of the library for backends, handed over at probe; lives as long as the process. */
typedef struct srt_host_services {
	uint32_t abi;
	/* Sets the calling thread's last error and returns `status`. */
	srt_status_t (*fail)(srt_status_t status, const char *format, ...)
		__attribute__((format(printf, 2, 3)));
	void (*log)(srt_log_level_t level, const char *format, ...)
		__attribute__((format(printf, 2, 3)));
	/* The calling thread's last error, e.g. of a host function that has failed. */
	const char *(*last_error)(void);
	/* Value of a variable of the configuration table, validated; never NULL. */
	const char *(*config)(const char *name);
	/* Sets a variable that the vendor's library reads, unless the user has set it. */
	void (*env_default)(const char *name, const char *value);
	/* The folder `name` of the user's cache, made if need be; 0: none, which is no failure. */
	int (*cache_folder)(const char *name, char *path, size_t path_nbytes);
	/* Cores that this process may use. */
	int (*cores)(void);
	/* Host memory; aligned to 64 bytes; NULL when out of memory (fail() was called). */
	void *(*alloc)(size_t nbytes);
	void (*free)(void *p);
} srt_host_services_t;

/* What the caller wants of a device. */
typedef struct srt_device_request {
	const char *selector; /* SHARDRT_DEVICE's text, "" = choose */
	int local_rank;       /* ranks of a node are spread over devices */
	int local_size;
	int threads; /* compute threads of a CPU device, 0 = choose */
	int exact;   /* 1: a device that fails its self-test is refused */
	int fast;    /* 1: numerics mode fast is asked for, or may be taken as the device's own */
	/* 1: nobody named this backend (SHARDRT_BACKEND=auto): choose only among the devices that
	 * describe() calls accelerators. */
	int accelerator;
} srt_device_request_t;

/* What a device can do; filled by device_open. */
typedef struct srt_backend_caps {
	char name[128];    /* for people */
	char isa[16];      /* CPU instruction set or "" */
	int threads;       /* compute threads of a CPU device, else 0 */
	int async_streams; /* streams run beside the caller */
	int host_memory;   /* mem_host() works for SRT_MEM_DEVICE and SRT_MEM_PEER */
	int peer_memory;   /* SRT_MEM_PEER, export_handle() and import_handle() work within the
			    * node; else wrap_host() must, and collectives stage */
	/* With peer_memory: which devices can map each other's, those that say the same. */
	char peer_kind[16];
	size_t mem_nbytes; /* total, 0 = unknown */
	/* Devices that say the same have one memory, also those of other processes of the node:
	 * what their ranks want of it comes together. All 0: not known. */
	unsigned char memory_id[16];
	/* Bytes of it that the driver and the libraries below the backend may take later, beside
	 * what goes through these tables: kept free when a memory plan is compared with what the
	 * device has left. */
	size_t later_nbytes;
	int default_exact; /* numerics mode when none is asked for */
	int has_fast;      /* numerics mode fast has something faster than exact */
} srt_backend_caps_t;

/* How another rank of the node gets at a SRT_MEM_PEER allocation. */
typedef struct srt_mem_handle {
	int fd; /* a descriptor to be passed over a Unix socket, or -1 */
	uint64_t nbytes;
} srt_mem_handle_t;

/* One strided copy, repeated: rows of `width` bytes. */
typedef struct srt_copy_rows {
	size_t dst_offset, src_offset; /* of the first row */
	size_t dst_pitch, src_pitch;   /* between rows */
	size_t width, nrows;
} srt_copy_rows_t;

/* ---- device --------------------------------------------------------------------------- */
typedef struct srt_backend_device_ops {
	/* sync, required. Number of usable devices; 0 with the reason in the last error (library
	 * missing, no driver, ICD list empty). Must be cheap, and safe without any device. */
	srt_status_t (*probe)(const srt_host_services_t *host, int *ndevices);
	/* sync, NULL ok (then `auto` never takes this backend, and no names are shown). Device
	 * 0 <= number < ndevices of the last probe, without opening it. */
	srt_status_t (*describe)(const srt_host_services_t *host, int number,
				 srt_device_brief_t *brief);
	/* sync, required. Opens a device, runs its self-test, fills caps. */
	srt_status_t (*open)(const srt_host_services_t *host, const srt_device_request_t *request,
			     void **device, srt_backend_caps_t *caps);
	/* sync, NULL ok. Loads and tries whatever kernels of a type it has, so that their first use
	 * does not: that may wait for all work of the device. Called before there is any. What is
	 * wrong is told by the first use. Thread-safe. */
	void (*prepare)(void *device, srt_dtype_t dtype);
	/* sync, required. All its streams and memory are gone. */
	void (*close)(void *device);
	/* sync, NULL ok. Fails if the device has failed as a whole, for good (ECC, a fault of a
	 * kernel). Called after a wait has failed with SRT_ERR_DEVICE, from any thread. */
	srt_status_t (*poll_error)(void *device);
} srt_backend_device_ops_t;

/* ---- memory --------------------------------------------------------------------------- */
typedef struct srt_backend_mem_ops {
	/* sync, required. nbytes > 0; bytes are zero. `name` is for messages. */
	srt_status_t (*alloc)(void *device, srt_mem_kind_t kind, size_t nbytes, const char *name,
			      void **mem);
	/* sync, required. Frees what alloc or import made; of wrap_host, the object alone. */
	void (*free)(void *device, void *mem);
	/* required. Host address of an allocation: of pinned memory always, of other kinds with
	 * caps.host_memory, else NULL. */
	void *(*host)(void *device, void *mem);
	/* sync, NULL ok (then peer_memory is 0). The handle's fd stays the owner's. */
	srt_status_t (*export_handle)(void *device, void *mem, srt_mem_handle_t *handle);
	/* sync, NULL ok. Maps a peer's memory; takes the descriptor over on success. */
	srt_status_t (*import_handle)(void *device, const srt_mem_handle_t *handle, void **mem);
	/* sync, NULL ok (not known). Bytes of device memory that can still be had, by anybody; 0:
	 * not known. */
	size_t (*available)(void *device);
	/* sync, required where caps.peer_memory may be 0. Memory of the caller, page-aligned
	 * and shared with other processes, as an object that copy() reads and writes, in stream
	 * order like pinned memory; nothing else is asked of it. It is neither cleared nor freed,
	 * and outlives the object. Its bytes change without the device's knowing: each copy from
	 * it must read them anew, and each copy to it has written them when later host functions
	 * of the stream run. */
	srt_status_t (*wrap_host)(void *device, void *host, size_t nbytes, const char *name,
				  void **mem);
	/*
	 * async, NULL ok (the device's caches are the host's). Peers and this device look at the
	 * same SRT_MEM_PEER bytes in turns; the turns are ordered by host functions on the stream,
	 * and this makes the bytes of [offset, + nbytes) follow. Other parts of the allocation stay
	 * in use by kernels meanwhile, so nothing may stay mapped after it.
	 *   own memory    what earlier work on the stream wrote is visible to peers when later host
	 *                 functions of the stream run
	 *   imported      what the owner wrote before is what later work on the stream reads
	 * The device never writes imported memory, and peers never write this device's own.
	 */
	srt_status_t (*peer_begin)(void *device, void *stream, void *mem, size_t offset,
				   size_t nbytes);
} srt_backend_mem_ops_t;

/* A function that runs in stream order on a thread of the host; must not call the device. A
 * failure poisons the stream. */
typedef srt_status_t srt_host_fn(void *arg);

/* ---- streams and events --------------------------------------------------------------- */
typedef struct srt_backend_stream_ops {
	/* sync, required. */
	srt_status_t (*create)(void *device, int priority, const char *name, void **stream);
	/* sync, required. Waits for the stream's work. */
	void (*destroy)(void *stream);
	/* sync, required. Returns the stream's first failure. */
	srt_status_t (*sync)(void *stream);
	/* async, required. See srt_host_fn. */
	srt_status_t (*host_fn)(void *stream, srt_host_fn *fn, void *arg);

	/* sync, NULL ok (operations take nothing for themselves). The stream has at least so many
	 * bytes of device memory for its operations from now on, the most that matmul_memory and
	 * attention_memory said of any. Those want no more then, and allocate nothing. Called when
	 * nbytes rises. */
	srt_status_t (*reserve)(void *stream, size_t nbytes);
	/* sync, NULL ok (none). Bytes of device memory that the device's streams keep for their
	 * operations, reserved or not, and how often such memory was ever allocated. Any thread. */
	void (*kept)(void *device, size_t *nbytes, uint64_t *nallocations);

	/* sync, required. Event not recorded yet. */
	srt_status_t (*event_create)(void *device, void **event);
	/* sync, required. Waits queued on it still hold. */
	void (*event_destroy)(void *event);
	/* async, required. */
	srt_status_t (*event_record)(void *event, void *stream);
	/* async, required. Never recorded = no wait. */
	srt_status_t (*event_wait)(void *stream, void *event);
	/* sync, required. */
	srt_status_t (*event_sync)(void *event);
	/* required. */
	srt_status_t (*event_query)(void *event, int *done);
} srt_backend_stream_ops_t;

/* ---- work ----------------------------------------------------------------------------- */
typedef struct srt_backend_work_ops {
	/* async, required. Copy within the device, or to and from pinned memory. No overlap. */
	srt_status_t (*copy)(void *stream, void *dst, size_t dst_offset, void *src,
			     size_t src_offset, size_t nbytes);
	/* async, NULL ok (loop over copy). Copies rows within the device. No overlap; within one
	 * memory object both pitches are the same. ncopies descriptions, copied by the call. */
	srt_status_t (*copy_rows)(void *stream, void *dst, void *src, const srt_copy_rows_t *copies,
				  size_t ncopies);
	/* required. From pageable host memory; *src may be reused on return. */
	srt_status_t (*from_host)(void *stream, void *dst, size_t dst_offset, const void *src,
				  size_t nbytes);
	/* sync, required. Waits for the stream. */
	srt_status_t (*to_host)(void *stream, void *dst, void *src, size_t src_offset,
				size_t nbytes);
	/* async, required. */
	srt_status_t (*zero)(void *stream, void *dst, size_t offset, size_t nbytes);
	/* async, required. Runs a portable kernel. launch->mems are the backend's own objects.
	 * The launch and its argument block are copied by the call. SRT_ERR_UNSUPPORTED without
	 * fail(): there is no such kernel for the dtype. */
	srt_status_t (*launch)(void *stream, const srt_launch_t *launch);
	/* async, NULL ok (portable kernel). Tuned versions, equal to the definition bit for bit
	 * if `exact`; SRT_ERR_UNSUPPORTED without fail() = use the portable kernel. mems as in
	 * launch, the views of mm are not to be used; batch and alpha are set. Places: c, a, b,
	 * bias. */
	srt_status_t (*matmul)(void *stream, const srt_matmul_t *mm, srt_dtype_t dtype,
			       const srt_place_t places[4], int exact);
	/* Likewise; no size is 0, the distances of rows are set. Places: out, stats, q, k, v,
	 * lengths, mask; the last two may be absent. */
	srt_status_t (*attention)(void *stream, const srt_attention_t *shape, srt_dtype_t dtype,
				  const srt_place_t places[7], int exact);
	/* Places: dq, dk, dv, dout, out, q, k, v, stats, scratch, lengths, mask; the first three
	 * and the last two may be absent. */
	srt_status_t (*attention_backward)(void *stream, const srt_attention_t *shape,
					   srt_dtype_t dtype, const srt_place_t places[12],
					   int exact);
	/* sync, NULL ok (0). Bytes of device memory that a stream keeps for the operation, at most,
	 * wherever its places lie. Shapes as in the slots above, without views. */
	size_t (*matmul_memory)(void *device, const srt_matmul_t *mm, srt_dtype_t dtype, int exact);
	size_t (*attention_memory)(void *device, const srt_attention_t *shape, srt_dtype_t dtype,
				   int backward, int masked, int exact);
} srt_backend_work_ops_t;

/* ---- collectives of the vendor's library ------------------------------------------------ */

#define SRT_COMM_ID_NBYTES 128

/* How the ranks of one communicator find each other; made by one rank, handed to the others. */
typedef struct srt_comm_id {
	unsigned char bytes[SRT_COMM_ID_NBYTES];
} srt_comm_id_t;

/* What ranks compare before they use the vendor's library together. */
typedef struct srt_comm_brief {
	char library[48];            /* name and version, for people */
	uint32_t version;            /* must be the same on all ranks */
	unsigned char device_id[16]; /* tells two devices apart, also of different processes */
	size_t later_nbytes;         /* srt_backend_caps_t's, of a communicator that is used */
} srt_comm_brief_t;

/*
 * A communicator of the vendor's library over all ranks of the job, at most one on a device. It
 * moves bytes between devices without the host. Sums are in the library's own order, and only taken
 * in numerics mode fast. The table may be NULL: collectives are then zero copy or staged.
 *
 * Threads: all calls come from one thread at a time, save poll() and stop(), which come from others
 * at any time. No call may block on other ranks, but destroy() for some seconds, and group_end()
 * while the stream is full. All work goes on one stream.
 */
typedef struct srt_backend_comm_ops {
	/* "nccl"; the same on all ranks that use it together. */
	const char *name;
	/* sync. Is the vendor's library there? If not, fail() says why. */
	srt_status_t (*probe)(void *device, srt_comm_brief_t *brief);
	/* sync. A new id, good for one communicator. */
	srt_status_t (*make_id)(void *device, srt_comm_id_t *id);
	/* Begins to join; poll() says when all ranks have. */
	srt_status_t (*init)(void *device, const srt_comm_id_t *id, int rank, int size,
			     void **comm);
	/* sync. *pending = 1: init() is not over yet. Else the vendor's asynchronous failure, if
	 * there is one. */
	srt_status_t (*poll)(void *comm, int *pending);
	/* sync. Ends what is on streams, with whatever bytes have come; streams go on. Local. After
	 * it only destroy() is called. */
	void (*stop)(void *comm);
	/* sync. Frees it. After stop() it is local. Else all work of all ranks has ended, and they
	 * all call it. */
	void (*destroy)(void *comm);
	/* What comes between the two starts together: no order among its parts. Not nested. */
	srt_status_t (*group_begin)(void *comm);
	/* async. Puts it on the stream, in its order. */
	srt_status_t (*group_end)(void *comm);
	/* async, in a group. nbytes > 0 to another rank, which calls recv with as many; several
	 * between the same two ranks are matched in the order of calls. */
	srt_status_t (*send)(void *comm, void *stream, void *mem, size_t offset, size_t nbytes,
			     int peer);
	srt_status_t (*recv)(void *comm, void *stream, void *mem, size_t offset, size_t nbytes,
			     int peer);
	/* async, in a group, NULL ok (sends and receives). The root's bytes to all ranks'
	 * own memory, each rank's place. */
	srt_status_t (*broadcast)(void *comm, void *stream, void *mem, size_t offset, size_t nbytes,
				  int root);
	/* async, in a group, NULL ok (sends and receives). nbytes of each rank, to everybody's
	 * dst + rank * nbytes; the own ones may lie there already. */
	srt_status_t (*all_gather)(void *comm, void *stream, void *dst, size_t dst_offset,
				   void *src, size_t src_offset, size_t nbytes);
	/* async, in a group, NULL ok (sends, receives and the exact sum). Of everybody's src, the
	 * sum of the elements [rank * nelem, + nelem) to dst, in the vendor's order. */
	srt_status_t (*reduce_scatter)(void *comm, void *stream, void *dst, size_t dst_offset,
				       void *src, size_t src_offset, size_t nelem,
				       srt_dtype_t dtype);
	/* Likewise, of all elements, in place, to everybody. */
	srt_status_t (*all_reduce)(void *comm, void *stream, void *mem, size_t offset, size_t nelem,
				   srt_dtype_t dtype);
} srt_backend_comm_ops_t;

/* ---- the backend ---------------------------------------------------------------------- */
typedef struct srt_backend {
	uint32_t abi;        /* SRT_BACKEND_ABI */
	const char *kernels; /* srt_kernels_digest: launches mean the same on both sides */
	const char *name;
	const char *aliases; /* "xpu" or "" */
	const srt_backend_device_ops_t *device;
	const srt_backend_mem_ops_t *mem;
	const srt_backend_stream_ops_t *stream;
	const srt_backend_work_ops_t *work;
	const srt_backend_comm_ops_t *comm; /* NULL ok */
} srt_backend_t;

/* The built-in backend. */
const srt_backend_t *srt_backend_cpu(void);

/*
 * A module is a shared object "shardrt_backend_NAME.so" that exports this one function and needs
 * no symbol of the library: what it wants of it comes through `host`. It returns its table, always
 * the same one; `abi` is the library's SRT_BACKEND_ABI. A module that cannot serve that number may
 * return its table all the same (the library compares table->abi), or NULL after host->fail().
 * The function is called until a table is taken, then no more; the module is never unloaded.
 */
typedef const srt_backend_t *srt_backend_module_fn(const srt_host_services_t *host, uint32_t abi);
#define SRT_BACKEND_MODULE_SYMBOL "srt_backend_module"
SRT_API srt_backend_module_fn srt_backend_module;

#endif
