/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices, buffers, streams and events.
 *
 * Work is submitted to streams and runs in stream order; only events order work of two streams.
 * A failed operation poisons its stream: later operations are skipped, and srt_stream_sync()
 * returns the first failure. A device may have an asynchronous (sticky) error: every wait for the
 * device then returns that error.
 */
#ifndef SHARDRT_DEVICE_H
#define SHARDRT_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/context.h>
#include <shardrt/dtype.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Memory that operations on a device can use. Owns its bytes. Opaque. */
typedef struct srt_buffer srt_buffer_t;
/** An ordered queue of operations on a device. Opaque. */
typedef struct srt_stream srt_stream_t;
/** A point in a stream that others can wait for. Opaque. */
typedef struct srt_event srt_event_t;

/** Kinds of memory of a buffer. */
typedef enum srt_mem_kind {
	SRT_MEM_DEVICE, /* the device's own memory */
	SRT_MEM_PINNED, /* host memory with fast asynchronous copies; has a host address */
	/* Device memory that other ranks of the node can map (collectives); where the device has
	 * none, like SRT_MEM_DEVICE. */
	SRT_MEM_PEER,
} srt_mem_kind_t;

/**
 * A part of a buffer; a value, which does not grow. A view does not own the buffer. `offset` is in
 * bytes and must be a multiple of the dtype's size. A view with buffer NULL is "absent" where a
 * call allows it.
 */
typedef struct srt_view {
	srt_buffer_t *buffer;
	size_t offset; /* bytes */
	srt_dtype_t dtype;
} srt_view_t;

/** Properties of a device, filled by srt_device_get_info(). Strings are valid until the device is
 * closed. */
typedef struct srt_device_info {
	size_t size;         /* set by SRT_DEVICE_INFO_INIT */
	const char *backend; /* "cpu", "opencl", "cuda" */
	const char *name;    /* e.g. the processor's model name */
	const char *isa;     /* instruction set in use on a CPU ("avx512"), else "" */
	int threads;         /* compute threads of a CPU device, else 0 */
	int async_streams;   /* 1 if streams run concurrently with the calling thread */
	size_t mem_nbytes;   /* total memory, 0 if unknown */
	int host_memory;     /* 1 if device memory has host addresses (srt_buffer_host) */
	int fast;            /* 1 in numerics mode fast, if the device has faster kernels for it */
	/* The UUID of a GPU; of devices that use host memory the cgroup whose limit it has, or one
	 * value for the machine. Devices of ranks on one node with the same id share one memory;
	 * all 0: unknown. */
	unsigned char memory_id[16];
} srt_device_info_t;

/** Sets srt_device_info_t.size. */
#define SRT_DEVICE_INFO_INIT                                                                       \
	{                                                                                          \
		.size = sizeof(srt_device_info_t)                                                  \
	}

/** Describes a device. @param[out] info its size is set; filled on success only. Thread-safe. */
SRT_API srt_status_t srt_device_get_info(const srt_device_t *device, srt_device_info_t *info);

/** Bytes now allocated on the device through this library: buffers of all kinds, and the scratch
 * of its streams (srt_stream_reserve()). Thread-safe. */
SRT_API size_t srt_device_allocated(const srt_device_t *device);

/** Number of allocations made on the device through this library so far, including the scratch of
 * streams. Thread-safe. */
SRT_API uint64_t srt_device_allocations(const srt_device_t *device);

/** Number of kernels submitted to the device's streams so far; a matrix product or an attention
 * with a tuned version on the device counts as one. Thread-safe. */
SRT_API uint64_t srt_device_launches(const srt_device_t *device);

/**
 * Allocates a buffer, its bytes zero.
 * @param nbytes may be 0: the buffer is valid and empty.
 * @param name its purpose ("block3 gradients"); copied; used in messages; NULL: "unnamed".
 * @param[out] buffer owned by the caller, set on success only.
 * @return SRT_ERR_OUT_OF_MEMORY (the message contains the name and the size).
 * Thread-safe.
 */
SRT_API srt_status_t srt_buffer_create(srt_device_t *device, srt_mem_kind_t kind, size_t nbytes,
				       const char *name, srt_buffer_t **buffer);

/**
 * Frees a buffer. Waits for the streams that had commands on it. Memory that a collective, an
 * optimizer or an alias refers to is freed with the last of these objects. NULL is allowed.
 * Thread-safe for different buffers.
 */
SRT_API void srt_buffer_destroy(srt_buffer_t *buffer);

/**
 * The bytes of another device's buffer, to copy from and to on streams of `device`. Kernels of the
 * device may be unable to read them. Events order the two devices' work on the bytes.
 * @param buffer must have a host address, e.g. SRT_MEM_PINNED memory of srt_context_host(); it is
 *        kept until the alias is destroyed. One of `device` itself is its own alias.
 * @param[out] alias owned by the caller, freed by srt_buffer_destroy(); set on success only.
 * @return SRT_ERR_UNSUPPORTED for a buffer without a host address.
 * Thread-safe.
 */
SRT_API srt_status_t srt_buffer_alias(srt_device_t *device, srt_buffer_t *buffer,
				      srt_buffer_t **alias);

/** Size in bytes. Thread-safe. */
SRT_API size_t srt_buffer_nbytes(const srt_buffer_t *buffer);

/**
 * Host address of a buffer's first byte, or NULL if it has none (device memory of a GPU).
 * Reading or writing through it is ordered against streams only by srt_stream_sync() or
 * srt_event_sync(). Thread-safe.
 */
SRT_API void *srt_buffer_host(srt_buffer_t *buffer);

/** Host address of a view's first byte, or NULL, as srt_buffer_host(); NULL too for a view that is
 * absent or begins outside its buffer. Thread-safe. */
SRT_API void *srt_view_host(srt_view_t view);

/** Makes a view. A convenience, always succeeds. Thread-safe. */
SRT_API srt_view_t srt_view(srt_buffer_t *buffer, size_t offset_nbytes, srt_dtype_t dtype);

/**
 * Makes a stream.
 * @param priority 0 is normal, negative more urgent; a hint.
 * @param name copied, for messages and traces; NULL: "unnamed".
 * @param[out] stream owned by the caller, set on success only.
 */
SRT_API srt_status_t srt_stream_create(srt_device_t *device, int priority, const char *name,
				       srt_stream_t **stream);

/** Waits for the stream's work, then frees it. NULL is allowed. Thread-safe for different
 * streams. */
SRT_API void srt_stream_destroy(srt_stream_t *stream);

/** Waits until all work of the stream has ended; returns the stream's first failure. */
SRT_API srt_status_t srt_stream_sync(srt_stream_t *stream);

/**
 * Gives the stream at least nbytes of device memory for its operations: scratch of tuned matrix
 * products and attention, workspace of cuBLASLt. Without it, operations allocate when they need it.
 * All operations of a stream share this memory, so a stream needs the maximum over its operations:
 * srt_op_matmul_memory() and srt_op_attention_memory() return the bytes of one. Operations within
 * nbytes allocate nothing. A larger operation still allocates more; cuBLASLt uses the reserved
 * workspace only. Waits for the stream's work if it allocates; a call with no more bytes than
 * before does nothing.
 * @return SRT_ERR_OUT_OF_MEMORY: the stream does not change.
 */
SRT_API srt_status_t srt_stream_reserve(srt_stream_t *stream, size_t nbytes);

/**
 * Bytes of device memory that any process can still allocate; 0 if the device does not report it.
 * Thread-safe.
 */
SRT_API size_t srt_device_available(srt_device_t *device);

/** The device that a stream belongs to. Thread-safe. */
SRT_API srt_device_t *srt_stream_device(const srt_stream_t *stream);

/** Makes an event, not recorded yet. @param[out] event owned by the caller. */
SRT_API srt_status_t srt_event_create(srt_device_t *device, srt_event_t **event);
/** Frees an event; waits that are already queued remain valid. NULL is allowed. */
SRT_API void srt_event_destroy(srt_event_t *event);
/** Records the present end of the stream in the event. Asynchronous. */
SRT_API srt_status_t srt_event_record(srt_event_t *event, srt_stream_t *stream);
/**
 * Makes the stream's later work wait for the event's last record. Asynchronous. A wait for an event
 * that was never recorded has no effect. A failure of the recording stream passes to this stream.
 * The event may belong to another device: a thread of the stream waits for it, and a failure of
 * that device passes to this stream too.
 */
SRT_API srt_status_t srt_stream_wait_event(srt_stream_t *stream, srt_event_t *event);
/** Blocks the caller until the event's last record is reached. */
SRT_API srt_status_t srt_event_sync(srt_event_t *event);
/**
 * Whether the event's last record is reached, or its stream has failed. Does not wait.
 * @param[out] done 0 or 1; also set if the call fails.
 * @return if done is 1, the failure that srt_event_sync() returns.
 */
SRT_API srt_status_t srt_event_query(srt_event_t *event, int *done);

/**
 * Copies nbytes; source and destination must not overlap. Asynchronous in the stream's order.
 */
SRT_API srt_status_t srt_buffer_copy(srt_buffer_t *dst, size_t dst_offset, srt_buffer_t *src,
				     size_t src_offset, size_t nbytes, srt_stream_t *stream);
/** Copies from host memory, which may be reused when the call returns. */
SRT_API srt_status_t srt_buffer_copy_from_host(srt_buffer_t *dst, size_t dst_offset,
					       const void *src, size_t nbytes,
					       srt_stream_t *stream);
/** Copies to host memory; waits for the stream, so the bytes are valid when the call returns. */
SRT_API srt_status_t srt_buffer_copy_to_host(void *dst, srt_buffer_t *src, size_t src_offset,
					     size_t nbytes, srt_stream_t *stream);
/** Sets nbytes to zero. Asynchronous in the stream's order. */
SRT_API srt_status_t srt_buffer_zero(srt_buffer_t *dst, size_t dst_offset, size_t nbytes,
				     srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
