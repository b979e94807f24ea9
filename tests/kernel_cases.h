/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The portable kernels with arguments and places for any size: tests/kernel_cases.def as a table,
 * the sizes of its families, and reproducible contents of the places (kernel_places.c). Read by
 * tests/test_conformance and bench/bench_kernels.
 */
#ifndef SRT_TESTS_KERNEL_CASES_H
#define SRT_TESTS_KERNEL_CASES_H

#include "backends/core.h"

/* What the letters of a case's sizes mean stands in kernel_cases.def. */
typedef struct kernel_dims {
	int64_t r, n, k, b;
} kernel_dims_t;

/* One place of a launch. */
typedef struct kernel_place {
	int64_t nelem; /* elements; of structs, their number */
	int64_t below; /* ids; segments: elements that they span */
	char type;     /* t of the launch, f float, i int32, l int64, d double, h f16, b bf16,
			* B struct */
	char fill;     /* - absent, o as it is, v values, + of either sign taken as positive,
			* i ids, m maximum of the next place, n multiples of 0.75, 0 zeros;
			* s, p, g, h: step state, parameters, segments, groups;
			* k, c, j, r, #: keys, their counts, order, starts, the number `below` */
} kernel_place_t;

/* Contents of places: ordinary values; zeros, subnormals, ends of ranges, values halfway between
 * 16-bit neighbours among them; infinities, NaN and any bits as well. */
typedef enum kernel_input {
	KERNEL_INPUT_MILD,
	KERNEL_INPUT_EDGE,
	KERNEL_INPUT_HARD,
	KERNEL_INPUT_COUNT
} kernel_input_t;

/* Sizes that cases share. */
typedef struct kernel_family {
	const kernel_dims_t *quick, *more; /* of every run, of long ones as well */
	int nquick, nmore;
	kernel_dims_t bench; /* all 0: takes no time worth measuring */
	unsigned rare;       /* one hard value in so many is not a number or infinite */
} kernel_family_t;

typedef struct kernel_case {
	const char *name;
	srt_kernel_id_t kernel;
	const kernel_family_t *family;
	/* Fills the argument struct (SRT_LAUNCH_MAX_ARGS bytes) and the kernel's places. */
	void (*make)(const kernel_dims_t *dims, void *args, kernel_place_t *places);
} kernel_case_t;

extern const kernel_case_t kernel_cases[];
extern const int kernel_case_count;

/* Bytes of an element, and of the place. */
size_t kernel_place_width(const kernel_place_t *place, srt_dtype_t dtype);
size_t kernel_place_nbytes(const kernel_place_t *place, srt_dtype_t dtype);

/* Fills one place (its bytes, no more); the same bytes for the same case, place, dtype and input
 * everywhere. `found_inf`: what a step state says. MAX_OF_NEXT reads the place behind, `next`. */
void kernel_place_fill(const kernel_case_t *c, int number, const kernel_place_t *places,
		       srt_dtype_t dtype, kernel_input_t input, int found_inf, unsigned char *bytes,
		       const unsigned char *next);

/* Every NaN of a place of floats becomes the canonical one. 16-bit places stay as they are: what a
 * kernel stores there is canonical. */
void kernel_place_canonical(const kernel_place_t *place, srt_dtype_t dtype, unsigned char *bytes);

/* The same by the operation of <shardrt/ops.h> that has tuned versions of its own;
 * SRT_ERR_UNSUPPORTED (no last error) for a kernel that is launched as it is. */
srt_status_t kernel_case_operation(srt_stream_t *stream, srt_kernel_id_t kernel, srt_dtype_t dtype,
				   const void *args, const srt_view_t *views);

/* The backward pass of attention, which is one operation of three kernels, on the arguments and
 * places of the second of them, attention_backward_q; dout stands for out. The scratch place's
 * contents are undefined after it. */
srt_status_t kernel_case_attention_backward(srt_stream_t *stream, srt_dtype_t dtype,
					    const void *args, const srt_view_t *views);

#endif
