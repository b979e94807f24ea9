/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A command: one piece of work for a stream as plain data. runtime/ops and device/submit.c make
 * it, the stream queue copies it, and the backend's submit() puts it into the driver's stream. No
 * device addresses and no tables of pointers: a tensor argument is a binding (memory object, byte
 * offset), and the kernel adds the offset.
 */
#ifndef SRT_KERNELS_COMMAND_H
#define SRT_KERNELS_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/dtype.h>
#include <shardrt/native.h>
#include <shardrt/status.h>

#include "kernels/args.h"

#define SRT_COMMAND_MAX_BINDINGS 13
#define SRT_COMMAND_MAX_ARGS 256 /* bytes */

/* A backend's memory object and a byte offset in it; mem NULL = absent argument. */
typedef struct srt_binding {
	void *mem;
	size_t offset;
} srt_binding_t;

typedef enum srt_command_kind {
	/* A portable kernel: bindings, grid and args as kernels.def says. */
	SRT_COMMAND_KERNEL,
	/* The kernels "matmul" and "attention", for which a backend may have tuned versions. */
	SRT_COMMAND_MATMUL,
	SRT_COMMAND_ATTENTION,
	/* Bindings: dq, dk, dv, dout, out, q, k, v, stats, scratch, lengths, mask, first; the first
	 * three and the last three may be absent. Args: attention. srt_command_expand() makes its
	 * portable kernels; ngroups is 1. */
	SRT_COMMAND_ATTENTION_BACKWARD,
	/* Bindings: destination, source. Args: copy. No overlap; rows within the device, or one row
	 * to or from pinned memory; within one memory object both pitches are the same. */
	SRT_COMMAND_COPY,
	/* nbytes of the binding. */
	SRT_COMMAND_ZERO,
	/* nbytes from host memory, which stays as it is until the stream has come so far, to the
	 * binding. */
	SRT_COMMAND_UPLOAD,
	/*
	 * nbytes of the binding, which is SRT_MEM_PEER or imported memory; only where
	 * caps.peer_begin is set. Peers and this device look at the same bytes in turns, and host
	 * functions of the stream order the turns. What earlier commands wrote to own memory is
	 * visible to peers when later host functions of the stream run; what the owner of imported
	 * memory wrote before is what later commands read. Other parts of the allocation stay in
	 * use by kernels meanwhile. The device never writes imported memory, and peers never write
	 * this device's own.
	 */
	SRT_COMMAND_PEER_BEGIN,
	/* A backend's own kernel, by its own number: what submit() makes of the three above. */
	SRT_COMMAND_TUNED,
	/* A function of the program: native.fn(the driver's queue, native.arg) submits work to the
	 * queue. Without driver streams the queue is NULL, and the function computes on the host.
	 */
	SRT_COMMAND_NATIVE,
	/* The stream queue's own; no backend sees them. */
	SRT_COMMAND_HOST_FN,
	SRT_COMMAND_CALL,
	SRT_COMMAND_EVENT_RECORD,
	SRT_COMMAND_EVENT_WAIT,
} srt_command_kind_t;

/* Rows of `width` bytes, pitches apart. */
typedef struct srt_copy_args {
	size_t dst_pitch, src_pitch;
	size_t width, nrows;
} srt_copy_args_t;

typedef struct srt_command {
	uint16_t kind;   /* srt_command_kind_t */
	uint16_t kernel; /* srt_kernel_id_t, kernels/table.h; of SRT_COMMAND_TUNED the backend's */
	uint16_t dtype;  /* srt_dtype_t of the tensors: selects the kernel's variant */
	uint16_t exact;  /* a tuned version must have the portable kernel's bits */
	uint16_t nbindings;
	uint16_t args_nbytes;
	int64_t ngroups; /* grid, in groups of the kernel's lanes */
	srt_binding_t bindings[SRT_COMMAND_MAX_BINDINGS];
	/* The kernel's packed struct, or: */
	_Alignas(16) union {
		unsigned char args[SRT_COMMAND_MAX_ARGS];
		srt_k_matmul_t matmul;
		srt_k_attention_t attention;
		srt_copy_args_t copy;
		struct {
			size_t nbytes;
			const void *host; /* of an upload */
		} bytes;
		struct {
			srt_enqueue_fn *fn;
			srt_release_fn *release; /* NULL: none. Called by the stream queue */
			_Alignas(16) unsigned char arg[SRT_ENQUEUE_MAX_NBYTES];
		} native;
		struct {
			srt_status_t (*fn)(void *arg);
			/* Called instead of fn if the stream has failed; may be NULL. */
			void (*failed)(void *arg, int status, const char *message);
			void *arg;
		} host;
		struct {
			srt_status_t (*fn)(void *stream, void *arg);
			void *arg;
		} call;
		struct srt_event_gen *gen; /* device/stream_queue.h */
	};
} srt_command_t;

#endif
