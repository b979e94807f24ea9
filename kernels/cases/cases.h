/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cases of the portable kernels: arguments and places for any size (cases.def), the sizes of
 * their families (cases.c) and reproducible contents of the places (case_places.c). Read by the
 * self-test, tests/kernels/test_conformance, tests/kernels/all_cases.h and bench/bench_kernels.
 */
#ifndef SRT_KERNELS_CASES_CASES_H
#define SRT_KERNELS_CASES_CASES_H

#include <stdbool.h>

#include "kernels/table.h"

#define SRT_KERNEL_NDTYPES (SRT_BF16 + 1)     /* rows of tables of SRT_F32, SRT_F16, SRT_BF16 */
#define SRT_KERNEL_DIGEST 0xcbf29ce484222325u /* of nothing */

typedef enum srt_kernel_case_id {
#define CASE(name, ...) SRT_CASE_##name,
#include "kernels/cases/cases.def"
	SRT_CASE_COUNT
} srt_kernel_case_id_t;

/* cases.def says what the letters mean. */
typedef struct srt_kernel_dims {
	int64_t r, n, k, b;
} srt_kernel_dims_t;

/* One place of a launch. */
typedef struct srt_kernel_place {
	int64_t nelem; /* elements; of structs, their number */
	int64_t below; /* ids; segments: elements that they span; step state: the schedule */
	char type;     /* t of the launch, f float, i int32, l int64, d double, h f16, b bf16,
			* y byte, B struct */
	char fill;     /* - absent, o as it is, v values, + of either sign taken as positive,
			* i ids, e ids of which the first is not 0, t none below 0,
			* u every third -1, d falling from below - 1 on, past 0,
			* y any bytes, m maximum of the next place, n multiples of 0.75, 0 zeros;
			* s, p, g, h: step state, parameters, segments, groups; q: those of adam8;
			* k, c, j, r, #: keys, their counts, order, starts, the number `below` */
} srt_kernel_place_t;

/* Contents of places: ordinary values; zeros, subnormals, ends of ranges, values halfway between
 * 16-bit neighbours among them; infinities, NaN and any bits as well. */
typedef enum srt_kernel_input {
	SRT_INPUT_MILD,
	SRT_INPUT_EDGE,
	SRT_INPUT_HARD,
	SRT_INPUT_COUNT
} srt_kernel_input_t;

/* Sizes that cases share. */
typedef struct srt_kernel_family {
	const srt_kernel_dims_t *selftest;     /* of the self-test */
	const srt_kernel_dims_t *quick, *more; /* of every run of tests, of long ones as well */
	int nselftest, nquick, nmore;
	srt_kernel_dims_t bench; /* all 0: takes no time worth measuring */
	unsigned rare;           /* one hard value of this many is not a number or infinite */
} srt_kernel_family_t;

typedef struct srt_kernel_case {
	const char *name;
	srt_kernel_id_t kernel;
	const srt_kernel_family_t *family;
	/* Fills the argument struct (SRT_COMMAND_MAX_ARGS bytes) and the kernel's places. */
	void (*make)(const srt_kernel_dims_t *dims, void *args, srt_kernel_place_t *places);
} srt_kernel_case_t;

extern const srt_kernel_case_t srt_kernel_cases[SRT_CASE_COUNT];
extern const uint64_t srt_kernel_selftest_digests[SRT_CASE_COUNT][SRT_KERNEL_NDTYPES];

/* Bytes of an element, and of the place. */
size_t srt_kernel_place_width(const srt_kernel_place_t *place, srt_dtype_t dtype);
size_t srt_kernel_place_nbytes(const srt_kernel_place_t *place, srt_dtype_t dtype);

/* Fills one place (its bytes, no more); the same bytes for the same case, place, dtype and input
 * everywhere, if the thread has the default floating-point environment. `found_inf`: of a step
 * state. MAX_OF_NEXT reads the place after it, `next`. */
void srt_kernel_place_fill(const srt_kernel_case_t *c, int number, const srt_kernel_place_t *places,
			   srt_dtype_t dtype, srt_kernel_input_t input, bool found_inf,
			   unsigned char *bytes, const unsigned char *next);

/* Every NaN of a place of floats becomes the canonical one. 16-bit places stay as they are: what a
 * kernel stores there is canonical. */
void srt_kernel_place_canonical(const srt_kernel_place_t *place, srt_dtype_t dtype,
				unsigned char *bytes);

/* One launch of a case. All places lie in one piece of memory, with guard bytes between them. */
typedef struct srt_kernel_run {
	const srt_kernel_case_t *c;
	srt_dtype_t dtype;
	int nplaces;
	int64_t ngroups; /* 0: nothing to launch */
	uint64_t args[SRT_COMMAND_MAX_ARGS / 8];
	srt_kernel_place_t places[SRT_COMMAND_MAX_BINDINGS];
	size_t offset[SRT_COMMAND_MAX_BINDINGS];
	size_t nbytes; /* of the memory */
} srt_kernel_run_t;

/* shifted: tensors are as little aligned as an operation allows. */
void srt_kernel_run_init(srt_kernel_run_t *run, const srt_kernel_case_t *c, srt_dtype_t dtype,
			 const srt_kernel_dims_t *dims, bool shifted);
/* All bytes as they are before the launch. */
void srt_kernel_run_fill(const srt_kernel_run_t *run, srt_kernel_input_t input, bool found_inf,
			 unsigned char *bytes);
/* Makes every NaN in what is written the canonical one. */
void srt_kernel_run_canonical(const srt_kernel_run_t *run, unsigned char *bytes);
/* Digest `h`, SRT_KERNEL_DIGEST at first, continued over bytes (FNV-1a by words of eight bytes). */
uint64_t srt_kernel_digest(uint64_t h, const unsigned char *bytes, size_t nbytes);
/* Digest over what is written (after srt_kernel_run_canonical()). */
uint64_t srt_kernel_run_digest(const srt_kernel_run_t *run, uint64_t h, const unsigned char *bytes);

#endif
