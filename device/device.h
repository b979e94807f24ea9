/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device layer: the public objects, and the internal functions that the engine, the collectives
 * and the operations use. Implemented in the files of this folder.
 */
#ifndef SRT_DEVICE_DEVICE_H
#define SRT_DEVICE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "device/backend.h"
#include "base/base.h"
#include "kernels/table.h"

/* Streams of one device: bit `number % 64` of each. */
typedef _Atomic uint64_t srt_stream_set_t;

struct srt_device {
	const srt_backend_t *backend;
	void *impl;
	pid_t pid; /* of the process that opened it */
	/* The context, and each buffer, stream, event and communicator. The last one closes it. */
	atomic_int nholders;
	srt_backend_caps_t caps;
	srt_numerics_t numerics;       /* EXACT or FAST */
	atomic_size_t allocated;       /* bytes, all kinds */
	_Atomic uint64_t nallocations; /* total so far */
	_Atomic uint64_t nlaunches;    /* kernels and tuned operations submitted */
	_Atomic uint64_t nhost_fns;    /* host functions submitted */
	_Atomic uint64_t nstreams;     /* created so far */

	pthread_mutex_t gens_lock; /* protects the event generations (event.c): */
	struct srt_event_gen *free_gens;
	int ngens;                  /* event generations that exist */
	int ngens_held;             /* maximum that events and streams hold at a time */
	int nwaits;                 /* of other devices' streams for generations of this device */
	pthread_cond_t waited_cond; /* nwaits is 0 */

	atomic_int failure;           /* srt_status_t; never cleared (srt_device_fail()) */
	pthread_mutex_t failure_lock; /* serializes writers of failure */
	char failure_text[512];       /* written before failure */
	atomic_int news_ms;           /* time in which a peer may report the cause of a failure */

	pthread_mutex_t streams_lock; /* protects the list and the streams' ndrains */
	pthread_cond_t drained_cond;  /* a stream's ndrains is 0 */
	srt_stream_t *streams;        /* that exist */
	srt_stream_set_t enqueued_on; /* streams with functions of the program */
};

/* Whether this process is a child by fork() of the one that opened the device: its threads are not
 * here, so the child's destructors leave the device and its objects alone. */
static inline bool srt_device_is_inherited(const srt_device_t *device)
{
	return device->pid != getpid();
}

struct srt_buffer {
	srt_device_t *device;
	void *impl; /* NULL when nbytes is 0 */
	size_t nbytes;
	srt_mem_kind_t kind;
	bool imported;            /* a peer's memory */
	srt_buffer_t *original;   /* whose bytes these are; NULL: its own */
	bool is_window;           /* a part of `original`, at the same offsets */
	bool is_closed;           /* of a window: nothing may use it */
	size_t first;             /* of a window: its first byte; nbytes is its end */
	bool counted;             /* in the device's bytes and allocations */
	atomic_int nholders;      /* its owner, and objects that refer to it */
	srt_stream_set_t streams; /* that have had commands on it */
	char *name;
};

/* A failure of a stream, stored for the threads that wait for the stream. */
typedef struct srt_failure {
	srt_status_t status; /* SRT_OK: none */
	char message[512];
} srt_failure_t;

/* How a stream's commands are run (stream_queue.h). */
typedef enum srt_stream_mode {
	SRT_STREAM_INLINE, /* by the caller, at the call */
	SRT_STREAM_WORKER, /* by the stream's worker thread */
	SRT_STREAM_DRIVER, /* by the driver's stream; host commands by the worker */
} srt_stream_mode_t;

#define SRT_STAGING_NSEGMENTS 4

/* Staging of uploads: pinned memory in segments, used in turn (upload.c). */
typedef struct srt_upload_staging {
	void *mem;            /* the backend's memory object; NULL: none yet */
	unsigned char *bytes; /* its host address */
	size_t used;          /* bytes of the current segment */
	int segment;
	struct srt_event *left[SRT_STAGING_NSEGMENTS]; /* recorded after a segment's last upload */
} srt_upload_staging_t;

struct srt_stream {
	srt_device_t *device;
	void *impl;
	char *name;
	uint64_t number;    /* among the streams of its device, from 1 */
	srt_stream_t *next; /* in the device's list */
	int ndrains;        /* threads in srt_device_drain() that wait for it */
	srt_stream_mode_t mode;
	bool is_reserved; /* srt_stream_reserve() has been called */
	size_t reserved;  /* maximum bytes passed to it */
	srt_upload_staging_t staging;

	/* The stream queue (stream_queue.c). submitted - completed = commands in the ring. While
	 * the ring is empty, the thread that holds the lock may submit to the backend; else only
	 * the worker does. */
	pthread_mutex_t lock;      /* protects the following members */
	srt_failure_t failure;     /* the first one */
	atomic_bool failure_known; /* a call has returned it, an event has it, or it was logged */
	pthread_cond_t work_cond;  /* the worker waits for commands or `ending` */
	pthread_cond_t space_cond; /* callers wait for space or for completion */
	pthread_t worker;
	srt_command_t *ring; /* NULL: no worker yet */
	uint64_t submitted, completed;
	uint64_t wake_at; /* the number of completed commands at which callers are woken */
	bool ending;
};

struct srt_event {
	srt_device_t *device;
	pthread_mutex_t lock;
	struct srt_event_gen *gen; /* generation of the last record, or NULL (event.c) */
	_Atomic uint64_t stream;   /* number of the last recording stream; 0: none */
};

/* Whether the name means automatic choice: NULL, "" or "auto". */
bool srt_backend_is_auto(const char *name);

/* Finds the backend of a name or an alias; loads its module if necessary. "auto" is the first of
 * cuda and opencl that has an accelerator, else cpu: only this choice probes for devices, and a
 * missing module is not an error. For another name the error reports whether the backend is
 * unknown, not installed, or does not load, and why. Thread-safe. */
srt_status_t srt_backend_lookup(const char *name, const srt_backend_t **backend);

/* Registers a backend, which must remain valid until the process ends. Thread-safe. */
srt_status_t srt_backend_add(const srt_backend_t *backend);

/* Calls of a backend's slots `probe`, `describe` and `open`, one at a time in the process: drivers
 * that look for their devices in two threads crash. The first one counts the devices; if there are
 * none, the status is SRT_OK and the last error is the reason. */
srt_status_t srt_backend_probe(const srt_backend_t *backend, int *ndevices);
srt_status_t srt_backend_describe(const srt_backend_t *backend, int number,
				  srt_device_description_t *description);
srt_status_t srt_backend_open(const srt_backend_t *backend, const srt_device_request_t *request,
			      void **device, srt_backend_caps_t *caps);

/* probe.c: what a backend's driver answered in a separate process. */
typedef struct srt_probe {
	char *module;       /* the file of the backend */
	bool failed;        /* the module does not load, or the driver ended or hung the process */
	int ndevices;       /* usable ones */
	char why_none[512]; /* if failed or without a device: a sentence that says why */
	srt_device_description_t *devices;
} srt_probe_t;

/* *probe: the answer of a backend that is not loaded in this process, valid until the process ends;
 * a driver is asked once. NULL: ask it in this process, where it is loaded, not installed, or
 * without the program for this. Thread-safe. */
void srt_backend_probe_apart(const char *name, const srt_probe_t **probe);
/* Whether this process has loaded the backend or has it built in. Thread-safe. */
bool srt_backend_is_loaded(const char *name);

/* The names of the families in the order of the documentation, then of the other registered
 * backends; NULL past the last. */
const char *srt_backend_name(size_t i);
/* The file that a backend was loaded from, or ""; valid until the process ends. */
const char *srt_backend_module_path(const srt_backend_t *backend);

/* Finds a file that is installed with the modules of backends, or the module of a backend (module.c
 * lists the folders). The caller frees *path. NULL: not found, and the last error lists the
 * folders. */
srt_status_t srt_module_file_find(const char *name, char **path);
srt_status_t srt_backend_module_find(const char *name, char **path);
/* Loads a module. Modules are never unloaded: their threads may outlive their devices. */
srt_status_t srt_backend_module_load(const char *name, const char *path,
				     const srt_backend_t **backend);

/* Whether it is in numerics mode fast and has faster kernels for it. */
bool srt_device_is_fast(const srt_device_t *device);
/* Opens a device of the named backend; numerics DEFAULT is EXACT. */
srt_status_t srt_device_open(const char *backend, const srt_device_request_t *request,
			     srt_numerics_t numerics, srt_device_t **device);
/* Gives up the caller's hold. Logs a warning if other objects still hold the device. */
void srt_device_close(srt_device_t *device);
/* Keeps the device open until the matching srt_device_release(). Thread-safe. */
void srt_device_hold(srt_device_t *device);
void srt_device_release(srt_device_t *device);
/* Waits for the present work of the streams in the set; the streams store failures. Thread-safe. */
void srt_device_drain(srt_device_t *device, uint64_t streams);
/* Calls the slot `prepare` of the backend, if it has one. */
void srt_device_prepare(srt_device_t *device, srt_dtype_t dtype);

/* Sets the device's asynchronous (sticky) error: none of its results may be used afterwards. The
 * first error stays. Call it before the driver continues with wrong bytes, e.g. before the abort of
 * a collective. Thread-safe. */
void srt_device_fail(srt_device_t *device, srt_status_t status, const char *sentence);
/* Returns the device's sticky error and sets the last error. Call it after a wait for the device
 * has returned, and before results are used or published to peers. Thread-safe. */
srt_status_t srt_device_check(const srt_device_t *device);
/* After a wait that returned `status`: a driver error may become the device's error. */
srt_status_t srt_device_waited(srt_device_t *device, srt_status_t status);

/* Submits a portable kernel to a stream. Checks the views against their buffers; a view whose
 * buffer is NULL becomes an absent binding. Copies args. */
srt_status_t srt_launch(srt_stream_t *stream, srt_kernel_id_t kernel, srt_dtype_t dtype,
			int64_t ngroups, const void *args, size_t args_nbytes,
			const srt_view_t *views, int nviews);

/* Sets the numerics mode and the bindings of a kernel's command, before srt_queue_put(). Checks the
 * views against their buffers; a view whose buffer is NULL becomes an absent binding. */
srt_status_t srt_command_bind(srt_stream_t *stream, srt_command_t *command, const srt_view_t *views,
			      int nviews);

/* Fails unless the bytes lie in the buffer, and both belong to one device. */
srt_status_t srt_check_range(const char *call, const srt_stream_t *stream,
			     const srt_buffer_t *buffer, size_t offset, size_t nbytes);

/* Fails unless [view.offset, + nelem elements) lies in the view's buffer and is aligned. */
srt_status_t srt_view_check(const srt_view_t *view, size_t nelem, const char *what);

/* Rows of `width` bytes. */
typedef struct srt_copy_rows {
	size_t dst_offset, src_offset; /* of the first row */
	size_t dst_pitch, src_pitch;   /* between rows */
	size_t width, nrows;
} srt_copy_rows_t;

/* Copies rows within a device; source and destination must not overlap, and in one buffer their
 * pitches must be the same. */
srt_status_t srt_copy_rows(srt_stream_t *stream, srt_buffer_t *dst, srt_buffer_t *src,
			   const srt_copy_rows_t *rows);

/* Calls fn(the driver's stream, arg) in stream order, on a thread that may block. Earlier commands
 * have been submitted to the driver's stream; later ones follow the work that fn submits. The
 * stream is NULL after a failure. */
srt_status_t srt_stream_call(srt_stream_t *stream, srt_status_t (*fn)(void *stream, void *arg),
			     void *arg);

/* Runs fn(arg) in stream order on a host thread; fn must not use the device. */
srt_status_t srt_stream_host_fn(srt_stream_t *stream, srt_host_fn *fn, void *arg);
/* Runs fn(arg) in stream order on a host thread; failed(arg, status, message) is called instead if
 * the stream has failed. Both report failures themselves, as those of a communicator: the stream
 * does not log them. */
srt_status_t srt_stream_host_fn_or(srt_stream_t *stream, srt_host_fn *fn,
				   void (*failed)(void *arg, int status, const char *message),
				   void *arg);
/* Fails with the failure of the stream or its device, if it is known already. Does not wait. */
srt_status_t srt_stream_check(srt_stream_t *stream);

/* Records that a command for the stream refers to an object of the set. Thread-safe. */
static inline void srt_stream_set_add(srt_stream_set_t *set, const srt_stream_t *stream)
{
	const uint64_t bit = UINT64_C(1) << (stream->number % 64);

	if (!(atomic_load_explicit(set, memory_order_relaxed) & bit))
		atomic_fetch_or_explicit(set, bit, memory_order_relaxed);
}

/* Keeps the buffer's memory until the matching srt_buffer_destroy(). Thread-safe. */
void srt_buffer_hold(srt_buffer_t *buffer);

/* A buffer that is the part of `buffer` from byte `first`, at the same offsets, for views that must
 * not leave the part. It holds `buffer`. While is_closed is set, calls refuse its views. */
srt_status_t srt_buffer_window(srt_buffer_t *buffer, size_t first, size_t nbytes, const char *name,
			       srt_buffer_t **window);
/* Refuses bytes outside of a window, or of a closed one; other buffers pass. */
srt_status_t srt_window_check(const srt_buffer_t *buffer, size_t offset, size_t nbytes,
			      const char *what);

/* Peer memory. The handle's fd belongs to the buffer. */
srt_status_t srt_buffer_export(srt_buffer_t *buffer, srt_mem_handle_t *handle);
srt_status_t srt_buffer_import(srt_device_t *device, const srt_mem_handle_t *handle,
			       const char *name, srt_buffer_t **buffer);
/* Submits SRT_COMMAND_PEER_BEGIN if the device needs it. */
srt_status_t srt_buffer_peer_begin(srt_buffer_t *buffer, size_t offset, size_t nbytes,
				   srt_stream_t *stream);

/* Existing host memory (page-aligned, nbytes > 0) as a buffer of kind SRT_MEM_PINNED that
 * srt_buffer_copy() reads and writes. `own`: this rank owns the memory, so the device counts it as
 * allocated. The memory must outlive the buffer, which does not free it. */
srt_status_t srt_buffer_wrap_host(srt_device_t *device, void *host, size_t nbytes, bool own,
				  const char *name, srt_buffer_t **buffer);

/* Memory of the program as a buffer, through the slot wrap_host or wrap_native. */
typedef srt_status_t srt_wrap_fn(void *device, void *memory, size_t nbytes, const char *name,
				 void **mem);
srt_status_t srt_buffer_wrap_memory(srt_device_t *device, srt_mem_kind_t kind, srt_wrap_fn *wrap,
				    void *memory, size_t nbytes, const char *name,
				    srt_buffer_t **buffer);

/* The services for backends. */
const srt_host_services_t *srt_host_services(void);

#endif
