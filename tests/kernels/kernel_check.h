/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a portable kernel in all instruction sets of this machine and two ways of splitting its
 * groups, or on the device of SHARDRT_BACKEND, and compares every place with what a plain
 * reference says, bit for bit (NaN as a class). Each place lies between guard bytes; inputs must
 * come back unchanged. main() ends with `return kc_done();`.
 *
 *     kc_begin(SRT_K_ADD, &args, "what");
 *     kc_out(before, expected, n);  kc_in(a, n * sizeof(float));  kc_same(0);  kc_absent();
 *     kc_run();
 *
 * A case in 16 bits: kc_begin_as(dtype, ...), all tensors of the model's dtype by kc_in_t() and
 * kc_out(), what is float in any case by kc_in() and kc_out_floats(). The test hands over floats;
 * inputs have been through kc_round(), and `expected` is rounded here, once. In SRT_F32 these are
 * all the same.
 */
#ifndef SRT_TESTS_KERNEL_CHECK_H
#define SRT_TESTS_KERNEL_CHECK_H

#include <math.h>

#include "kernels/cpu.h"
#include "tests/harness/bits.h"
#include "tests/harness/device.h"
#include "tests/harness/half.h"
#include "tests/harness/random.h"

void kc_begin_as(srt_dtype_t dtype, srt_kernel_id_t kernel, const void *args, const char *what);
void kc_begin(srt_kernel_id_t kernel, const void *args, const char *what);

/* Rounds n numbers to the dtype. */
void kc_round(srt_dtype_t dtype, float *x, int64_t n);
void kc_in(const void *data, size_t nbytes);

/* n floats; before NULL = the kernel must write all of them. */
void kc_out_floats(const float *before, const float *expected, int64_t n);

/* A tensor of the case's dtype. */
void kc_out(const float *before, const float *expected, int64_t n);

/* n numbers of the case's dtype that are only read. */
void kc_in_t(const float *x, int64_t n);

/* A struct or doubles that are only read. */
void kc_in_struct(const void *data, size_t nbytes);
void kc_out_bytes(const void *before, const void *expected, size_t nbytes);
void kc_same(int place);
void kc_absent(void);
void kc_run(void);

/* The device of SHARDRT_BACKEND and its stream, for a test that launches by itself: kc_run() opens
 * them for a backend other than cpu. */
extern srt_device_t *kc_device;
extern srt_stream_t *kc_stream;
void kc_open(void);

/* Closes the device; main()'s exit status. */
int kc_done(void);

/* ---- inputs --------------------------------------------------------------------------- */
/* Uniform in (-1, 1), with sizes spread over some powers of two. */
float kc_mild(void);

/* Any bit pattern of the nasty kinds, one in four; else mild. */
float kc_hard(void);

/* n floats of source(), or zeros if it is NULL; to be freed. */
float *kc_floats(int64_t n, float (*source)(void));

/* ---- the orders of docs/numerics.md, written plainly ------------------------------------ */
/* The sum of 64 partials by halving. */
float kc_tree64(const float partial[64]);
float kc_row_sum(const float *x, int64_t n);
float kc_row_dot(const float *x, const float *y, int64_t n);

/* The maximum, NaN if there is one, a zero as +0. */
float kc_row_max(const float *x, int64_t n);

/* Level by level, neighbours, an odd last one passes up. Destroys x; n >= 1. */
float kc_pairwise(float *x, int64_t n);

/* Sum over rows of a column, of g or of g * h: blocks of 128 as chains, then the pairwise tree. */
float kc_column_sum(const float *g, const float *h, int64_t rows, int64_t n, int64_t j);

#endif
