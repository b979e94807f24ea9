/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared parts of the launchers of <shardrt/ops.h>. A launcher names its tensors with their sizes,
 * fills the kernel's argument struct and calls srt_op_launch(), which checks all of them, takes the
 * grid from the kernel's table and submits the launch to the stream. All launchers have this
 * structure.
 */
#ifndef SRT_RUNTIME_OPS_OPS_H
#define SRT_RUNTIME_OPS_OPS_H

#include <shardrt/ops.h>

#include "runtime/ops/step.h"

/* One tensor of a call, in the order of the kernel's places. */
typedef struct srt_op_tensor {
	const char *name; /* as the header calls it */
	srt_view_t view;
	int64_t nelem; /* from srt_op_size(); -1: a size is negative or the product overflows */
	enum {
		SRT_OP_DTYPE_SAME, /* that of the first tensor of this kind */
		SRT_OP_DTYPE_F32,
		SRT_OP_DTYPE_F16,
		SRT_OP_DTYPE_BF16,
		SRT_OP_DTYPE_F64,
		SRT_OP_DTYPE_I32,
		SRT_OP_DTYPE_I64,
		SRT_OP_DTYPE_U8,
		SRT_OP_DTYPE_BYTES, /* SRT_U8: a struct of 4- and 8-byte fields, aligned to 8 */
	} dtype;
} srt_op_tensor_t;

/* A call as its launcher describes it. */
typedef struct srt_op_call {
	const char *name; /* "srt_op_softmax" */
	srt_stream_t *stream;
	srt_kernel_id_t kernel;
	bool in_place; /* an output may be an input, at the same place */
	const void *args;
} srt_op_call_t;

/* Reads the struct `args` of a program into `full`, which has its type and the defaults. Neither
 * stream nor args may be NULL. */
srt_status_t srt_op_read(const char *name, srt_stream_t *stream, const void *args, const char *type,
			 void *full, size_t nbytes);
#define SRT_OP_READ(type, full, args, stream)                                                      \
	SRT_TRY(srt_op_read(__func__, stream, args, #type, &(full), sizeof(type)))

/* Product of two or three sizes; -1 if one is negative or the product does not fit. */
int64_t srt_op_size(int64_t a, int64_t b);
int64_t srt_op_size3(int64_t a, int64_t b, int64_t c);

/* SRT_ERR_INVALID_ARGUMENT for rows of no elements, which have no maximum and no mean. */
srt_status_t srt_op_check_width(const char *name, int64_t rows, int64_t n);

/* Elements of rows that are ld apart (0: n), the last one without what follows it; -1 as above. */
int64_t srt_op_pitched_size(int64_t rows, int64_t n, int64_t ld);

/* SRT_ERR_INVALID_ARGUMENT unless ld is 0, or n <= ld < 2^31. */
srt_status_t srt_op_check_pitch(const char *name, int64_t n, int64_t ld);

/* SRT_ERR_INVALID_ARGUMENT unless the part is a range of its vocabulary. */
srt_status_t srt_op_check_part(const char *name, const srt_vocab_part_t *part);

/* How a tensor lies in its view: rows of `width` elements, ld apart. */
typedef struct srt_op_rows {
	int64_t width, ld; /* 0: one row with everything */
} srt_op_rows_t;

/* The first half of srt_op_launch() for calls of several kernels: checks tensors with the access
 * letters of kernels.def. Two tensors whose rows alternate, as `rows` (one for each, or NULL)
 * describes them, do not overlap. */
srt_status_t srt_op_check_rows(const srt_op_call_t *call, const char *access,
			       const srt_op_tensor_t *tensors, const srt_op_rows_t *rows,
			       srt_dtype_t *dtype);

/* Checks all tensors of a call and finds their common dtype. */
srt_status_t srt_op_check(const srt_op_call_t *call, const srt_op_tensor_t *tensors,
			  srt_dtype_t *dtype);

/* Checks and launches. `tensors` has one entry for each of the kernel's places; the other arguments
 * are those of srt_op_call_t. */
srt_status_t srt_op_launch(const char *name, srt_kernel_id_t kernel, bool in_place,
			   const void *args, const srt_op_tensor_t *tensors, srt_stream_t *stream);

/* srt_op_launch() where the rows of two tensors may alternate: srt_op_check_rows(). */
srt_status_t srt_op_launch_rows(const srt_op_call_t *call, const srt_op_tensor_t *tensors,
				const srt_op_rows_t *rows);

/* The second half of srt_op_launch(), for launchers that do something between check and launch, or
 * whose command may have a tuned version. */
srt_status_t srt_op_put(const srt_op_call_t *call, srt_command_kind_t kind,
			const srt_op_tensor_t *tensors, int ntensors, srt_dtype_t dtype);

/* Computes the fields low to most of the uniform distribution on [low, high).
 * SRT_ERR_INVALID_ARGUMENT unless it is a range of finite numbers that has a value of the dtype. */
srt_status_t srt_op_uniform_range(const char *call, srt_dtype_t dtype, float low, float high,
				  srt_k_uniform_t *args);

/* Raises *nbytes to the scratch that a command needs on a device. */
void srt_op_scratch(srt_device_t *device, srt_command_t *command, size_t *nbytes);

#endif
