/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Native handles: a program's own kernels on the library's buffers and streams, the library on the
 * program's own context and memory. The handles are void pointers here; <shardrt/opencl.h> and
 * <shardrt/cuda.h> have the same with the types of OpenCL and CUDA. docs/embedding.md, "Own
 * kernels", has the rules for each backend.
 *
 * A handle belongs to the library and is valid until its object is destroyed. `backend` is the name
 * of the family whose handle the caller expects, "opencl" or "cuda": for an object of another one
 * the call fails with SRT_ERR_INVALID_ARGUMENT, and the sentence names the backend of the object.
 */
#ifndef SHARDRT_NATIVE_H
#define SHARDRT_NATIVE_H

#include <stddef.h>

#include <shardrt/device.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Most bytes of the argument of a function that is enqueued. */
#define SRT_ENQUEUE_MAX_NBYTES 240

/**
 * A function of the program for srt_stream_enqueue().
 * @param queue the stream's cl_command_queue or CUstream; NULL on the CPU.
 * @param arg the copy of the argument, aligned to 16 bytes; valid during the call.
 * @return SRT_OK, or a failure after srt_error_set() with a sentence.
 */
typedef srt_status_t srt_enqueue_fn(void *queue, const void *arg);

/**
 * Frees what the argument of an enqueued function refers to, for srt_stream_enqueue().
 * @param arg the copy of the argument that the function gets.
 */
typedef void srt_release_fn(const void *arg);

/**
 * Calls fn(queue, a copy of arg) in stream order, once, where the stream's work is handed to the
 * driver: all earlier commands of the stream are in the queue, no later one is. The function
 * submits its own work to the queue and returns. It must not wait for the device, another stream or
 * another rank. On the CPU the function does its work itself: earlier commands are done, and later
 * ones begin after it has returned.
 *
 * The function runs on the calling thread during this call, or on a thread of the stream. It may
 * call the driver, the getters of this header, of <shardrt/opencl.h> and <shardrt/cuda.h>,
 * srt_buffer_host(), srt_view_host() and srt_error_set(). A call that submits to a stream or waits
 * for one fails with SRT_ERR_STATE. Its failure is the stream's: later commands are skipped, and
 * srt_stream_sync() returns it. If the stream has failed, this call returns its failure. If the
 * stream fails between this call and the function's turn, the function is not called.
 *
 * If this call returns SRT_OK, release(arg) is called once: after the function has returned, or in
 * its turn if the stream has failed, at the latest in srt_stream_destroy(). The argument then
 * belongs to release(), also where it is called during this call. If this call fails, neither
 * function is called, and the argument remains the caller's. release() runs where the function
 * runs, with the same limits. What work in the driver's queue still reads must not be freed in it.
 *
 * Buffers that the function uses may be destroyed after this call: destroying any buffer of the
 * device waits for the streams that functions were enqueued on.
 * @param arg NULL if arg_nbytes is 0. Pointers in it must stay valid until the function has run.
 * @param arg_nbytes at most SRT_ENQUEUE_MAX_NBYTES.
 * @param release may be NULL.
 */
SRT_API srt_status_t srt_stream_enqueue(srt_stream_t *stream, srt_enqueue_fn *fn, const void *arg,
					size_t arg_nbytes, srt_release_fn *release);

/**
 * The context and the device of the driver that a device of the library uses.
 * @param[out] native its size by SRT_NATIVE_DEVICE_INIT; set on success only.
 * Thread-safe.
 */
SRT_API srt_status_t srt_device_native(srt_device_t *device, const char *backend,
				       srt_native_device_t *native);

/**
 * The driver's queue of a stream. Use it in a function of srt_stream_enqueue(), or after
 * srt_stream_sync(): the library may hold commands of the stream back, so work that is put on the
 * queue at another time may overtake them. It must not be released or destroyed.
 * @param[out] queue cl_command_queue, CUstream; set on success only.
 * Thread-safe.
 */
SRT_API srt_status_t srt_stream_native(srt_stream_t *stream, const char *backend, void **queue);

/**
 * The driver's handle of a buffer's memory. It is that of the whole buffer: the offset of an
 * srt_view_t in bytes applies to it.
 * @param[out] memory cl_mem; CUdeviceptr as a pointer; NULL for an empty buffer; set on success
 *             only.
 * @return SRT_ERR_UNSUPPORTED for memory without a handle: on OpenCL SRT_MEM_PINNED, aliases and
 *         memory of srt_buffer_wrap(), which have host addresses; on CUDA an alias or memory of
 *         srt_buffer_wrap() that the driver refused to register.
 * Thread-safe.
 */
SRT_API srt_status_t srt_buffer_native(srt_buffer_t *buffer, const char *backend, void **memory);

/**
 * Host memory of the program as a buffer, whose bytes do not change. On a CPU device all operations
 * use it. On other devices it is like SRT_MEM_PINNED: srt_buffer_copy() reads and writes it, and
 * kernels may be unable to. Between the stream's commands on it and the program's accesses,
 * srt_stream_sync() or srt_event_sync() keeps the order. Peers cannot map it: a zero copy
 * collective accepts it as a destination and refuses it as a source.
 * @param host aligned to 16 bytes. It must outlive the buffer, which does not free it.
 * @param nbytes more than 0.
 * @param name as that of srt_buffer_create(); NULL: "unnamed".
 * @param[out] buffer owned by the caller, freed by srt_buffer_destroy(); set on success only.
 * Thread-safe.
 */
SRT_API srt_status_t srt_buffer_wrap(srt_device_t *device, void *host, size_t nbytes,
				     const char *name, srt_buffer_t **buffer);

/**
 * Device memory of the program as a buffer that all operations use, whose bytes do not change. The
 * device must use the context of the memory (srt_device_native(), srt_context_options_t.native).
 * Peers cannot map it: a zero copy collective accepts it as a destination and refuses it as a
 * source; staged collectives and NCCL accept it as both. Only commands of the library's streams and
 * their events are ordered: order the program's own queues by srt_stream_enqueue() or
 * srt_stream_sync().
 * @param memory cl_mem, which is retained until the buffer is destroyed; CUdeviceptr, a multiple of
 *        16, whose memory must outlive the buffer.
 * @param nbytes more than 0, at most the size of the memory.
 * @param name as that of srt_buffer_create(); NULL: "unnamed".
 * @param[out] buffer owned by the caller, freed by srt_buffer_destroy(), which does not free the
 *             memory; set on success only.
 * Thread-safe.
 */
SRT_API srt_status_t srt_buffer_wrap_native(srt_device_t *device, const char *backend, void *memory,
					    size_t nbytes, const char *name, srt_buffer_t **buffer);

#ifdef __cplusplus
}
#endif
#endif
