/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the parts of test_tuned share: tensors of any of the three types on the device and, as they
 * should become, on the host, each between guards; the portable kernels on the host's side.
 */
#ifndef SRT_TESTS_TUNED_TENSOR_H
#define SRT_TESTS_TUNED_TENSOR_H

#include "kernels/cpu.h"
#include "tests/harness/device.h"

typedef enum values { PLAIN, HARD, TINY, NVALUES } values_t;

/* What all cases run on. */
extern srt_device_t *tt_device;
extern srt_stream_t *tt_stream;
extern const char *tt_form; /* the device's form, for messages */
/* Elements of a guard: an odd number aligns tensors to nothing but an element, 64 to 16 bytes. */
extern size_t tt_nguard;

typedef struct tensor {
	srt_dtype_t dtype;
	size_t nelem;
	unsigned char *host; /* guards too; NULL = an absent tensor */
	srt_buffer_t *buffer;
} tensor_t;

uint32_t tt_random(void);
/* In SRT_F16 TINY is larger: its sums of products are subnormal there. */
float tt_value(srt_dtype_t dtype, values_t kind);
/* Elements are the guards' value, or random. Dies on failure. */
tensor_t tt_tensor(srt_dtype_t dtype, int64_t nelem, const char *name);
tensor_t tt_random_tensor(srt_dtype_t dtype, int64_t nelem, values_t kind, const char *name);
/* Bytes on the host of element i. */
unsigned char *tt_at(const tensor_t *t, int64_t i);
void tt_put(const tensor_t *t, int64_t i, float v);
void tt_upload(tensor_t *t);
srt_view_t tt_view(const tensor_t *t);
/* Elements of the device's tensor, guards included, that are not as on the host. */
size_t tt_wrong(const tensor_t *t);
void tt_drop(tensor_t *t);
/* The portable kernel of the dtype on the host's side of the tensors. */
void tt_portable(srt_kernel_id_t kernel, srt_dtype_t dtype, const void *args,
		 tensor_t *const *tensors);

/* tuned_matmul.c, tuned_attention.c: the cases; all: also those that are alike in every form of the
 * device, or long; tiny: a few groups of each kernel; large: tiles of 128 rows on a GPU of one
 * multiprocessor. */
void tt_test_matmul(bool all);
void tt_test_matmul_tiny(void);
void tt_test_matmul_large(srt_dtype_t dtype);
void tt_test_attention(bool all);
void tt_test_attention_tiny(void);
void tt_test_attention_large(srt_dtype_t dtype);

#endif
