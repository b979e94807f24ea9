/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A case of the tape's tests: parameters, an input, layers and a loss, on random values; one
 * forward and backward pass through it (tape_case.c); and the checks that each case passes
 * (tape_check.c).
 */
#ifndef SRT_TESTS_TAPE_CASE_H
#define SRT_TESTS_TAPE_CASE_H

#include <math.h>

#include <shardrt/models/layers.h>
#include "models/tape_impl.h"
#include "tests/harness/check.h"
#include "tests/harness/random.h"

enum { MAX_PARAMS = 4, MAX_EXTRA = 4 };

/* What all cases run on. */
extern srt_context_t *tape_context;
extern srt_device_t *tape_device;
extern srt_stream_t *tape_stream;

typedef struct tape_run tape_run_t;

typedef struct tape_case {
	const char *name;
	srt_dtype_t
		dtype; /* of the input, the parameters and further floats; all values are in it */
	const srt_precision_t *precision; /* of the engine */
	int64_t rows, n;                  /* of the input */
	int64_t ids;                      /* > 0: the input is ids below this instead */
	int64_t shape[MAX_PARAMS][2];     /* 0: no such parameter; n = 0: a vector */
	int corner;                       /* the layers have one where the input is 0 */
	int64_t targets;                  /* > 0: the layers end in a loss with such targets */
	srt_tensor_t *(*build)(tape_run_t *run); /* from run->x */
} tape_case_t;

struct tape_run {
	const tape_case_t *c;
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *param[MAX_PARAMS];
	int nparams;
	srt_tape_t *tape;
	srt_tensor_t *x, *target, *loss;
	srt_tensor_t *extra[MAX_EXTRA]; /* further inputs, made by `build` */
	int nextra;
	srt_buffer_t *arena;
	srt_view_t scale; /* of the losses, absent unless a test sets it */
	void *extra_values[MAX_EXTRA];
	float *extra_grads[MAX_EXTRA]; /* of those that take one */
	float *values[MAX_PARAMS], *grads[MAX_PARAMS], *xvalues, *xgrad, *losses;
	void *target_values;
};

/* main() calls these first and last: they create and destroy what all cases run on. The second one
 * returns main()'s exit status. */
void tape_begin(void);
int tape_end(void);

/* The engine and the parameters of r->c, for a test that records the tape itself. */
void tape_declare(tape_run_t *r);

void tape_open(tape_run_t *r, const tape_case_t *c);
void tape_close(tape_run_t *r);

/* Records the case's tape with its arena; part of tape_open(). */
void tape_record(tape_run_t *r);

/* The dtype of a case, SRT_F32 if it names none. */
static inline srt_dtype_t tape_dtype(const tape_case_t *c)
{
	return c->dtype != SRT_DTYPE_NONE ? c->dtype : SRT_F32;
}

/* For a case's layers: a further input. Floats (f32: of the case's dtype) take a gradient; i32
 * are lengths or first keys, u8 masks. */
srt_tensor_t *tape_extra(tape_run_t *r, srt_dtype_t dtype, int64_t rows, int64_t n);

/* n elements of 4 bytes, to be freed. */
void *tape_zeros(size_t n);
size_t tape_nelem(const srt_tensor_t *x);
/* Copies floats, which a 16-bit view has rounded, or other elements of 4 bytes. */
void tape_put(srt_view_t view, const void *values, int64_t nelem);
void tape_get(srt_view_t view, void *values, int64_t nelem);

/* Forward and backward pass over an arena of NaN; copies gradients and losses to the host and
 * returns the sum of the losses. */
double tape_pass(tape_run_t *r);

/* The gradients equal finite differences. */
void tape_check_gradients(const tape_case_t *c);

/* A pass has the same bits with the memory plan as with a plan that shares nothing, and allocates
 * nothing. */
void tape_check_plan(const tape_case_t *c);

/* Digest of the losses and gradients in 16 bits of all cases so far: equal on all devices. */
extern uint64_t tape_digest;

/* In f16 and bf16: losses and gradients are those of the same values in f32, within 16 roundings of
 * their largest, and the check of the plan. */
void tape_check_dtypes(const tape_case_t *c);

/* The head and its loss, in chunks of rows. */
extern int64_t tape_head_rows; /* 0: the layer's own */
srt_tensor_t *tape_head(tape_run_t *r);

/* The gradient of the first is added onto that of the second. */
srt_tensor_t *tape_head_twice(tape_run_t *r);

#endif
