/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small tree of units with awkward parameters, and a step over it, for the tests of the engine.
 *
 * There is no model: the gradient of a parameter is a pseudo-random multiple of the parameter
 * itself, which differs by rank, step, micro-batch and parameter. So each step reads all whole
 * parameters on a stream and writes all whole gradients on it, and every bit of the result depends
 * on gathers, reductions and the optimizer being right and in order.
 */
#ifndef SRT_TESTS_ENGINE_CASE_H
#define SRT_TESTS_ENGINE_CASE_H

#include <shardrt/shardrt.h>

#include "device/device.h"
#include "runtime/engine/engine.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

#define NBLOCKS 4
#define MAX_CASE_PARAMS 32

typedef struct engine_case {
	srt_engine_t *engine;
	srt_stream_t *stream;
	srt_buffer_t *scratch;
	srt_unit_t *root, *block[NBLOCKS], *inner, *never;
	srt_param_t *param[MAX_CASE_PARAMS];
	srt_view_t value[MAX_CASE_PARAMS], grad[MAX_CASE_PARAMS]; /* srt_param_address() */
	int has_addresses;
	size_t nparams;
	srt_param_t *tied;
	srt_dtype_t stored;
	size_t ngroups;
	const char *cut_over; /* as in case_types_t */
	int cut_parts;
	bool muon;
	int rank;   /* that the gradients depend on */
	int unused; /* "b2.unused" has no gradient: 0: it has; 1: on no rank; 2: on rank 0 alone */
	float poison; /* not 0: a factor of the gradient of "b1.weight" on the last rank */
	int delay;    /* sleep in stream order at random places */
	int check;    /* srt_engine_check() between all calls */
} engine_case_t;

/* A float in [-1, 1) from a few numbers. */
float case_random(uint32_t a, uint32_t b, uint32_t c, uint32_t d);
srt_engine_options_t case_adamw(srt_strategy_t strategy);
/* The optimizer of case_adamw() with an eps for SRT_F16. */
extern const srt_optim_options_t case_adamw_eps;
srt_param_t *case_param(engine_case_t *c, srt_unit_t *unit, const char *name, int64_t rows,
			int64_t columns, int frozen, float decay);

/* h: rows of most parameters; 5 over 4 ranks is 2, 2, 1, 0. */
void case_declare(engine_case_t *c, srt_context_t *context, const srt_engine_options_t *options,
		  int64_t h);

/* How case_declare_as() differs from case_declare(). Zero: not at all. */
typedef struct case_types {
	srt_dtype_t stored;               /* of all parameters */
	const srt_precision_t *of_block1; /* and of its inner unit; the others: by the options */
	int reshard;                      /* of the blocks */
	srt_flat_t flat; /* of all units; without views only those whose parameters are alike */
	/* 2: matrices are in a group; 3: and vectors in another; the root's are not */
	size_t ngroups;
	const char *cut_over; /* a dimension of the mesh that most parameters are cut over */
	int cut_parts;        /* parts of its placement; 0: one for each rank */
	bool muon;            /* the group of matrices is of Muon */
} case_types_t;
void case_declare_as(engine_case_t *c, srt_context_t *context, const srt_engine_options_t *options,
		     int64_t h, const case_types_t *types);
void case_build(engine_case_t *c);
void case_destroy(engine_case_t *c);

/* Gradients of the parameters whose name begins with the unit's name and ".". */
srt_status_t case_backward_unit(engine_case_t *c, srt_unit_t *unit, const char *name, int step,
				int micro);
srt_status_t case_forward(engine_case_t *c, int step);
srt_status_t case_backward(engine_case_t *c, int step, int micro);

/* All micro-batches of a step, without the step's end. */
srt_status_t case_passes(engine_case_t *c, int step, int nmicro);
srt_status_t case_step(engine_case_t *c, int step, int nmicro);
size_t case_nelem(const engine_case_t *c);
/* Bytes allocated on the device and on the host device, and those of a plan. */
size_t case_allocated(srt_context_t *context);
size_t case_planned(const srt_plan_t *plan);
/* Elements of a case that is not declared. */
size_t case_total_nelem(srt_context_t *context, int64_t h);

/* All tensors of one kind, one after the other; absent ones are 0. To be freed. */
float *case_collect(engine_case_t *c, srt_param_what_t what);

/* Offset of a parameter in what case_collect() returns. */
size_t case_offset(const engine_case_t *c, const char *name);

/* ---- cases that poison their communicator: each has a group of all ranks (at most 16) ------- */

srt_comm_t *case_group(srt_context_t *context, const char *name);
/* Declares and builds a case of at most two micro-batches in such a group. */
srt_comm_t *case_begin(engine_case_t *c, srt_context_t *context, srt_strategy_t strategy,
		       const char *name);
void case_wait_for_all(srt_context_t *context);
/* A step that is right, and over on all ranks. */
void case_first_step(engine_case_t *c, srt_context_t *context);
/* No rank ends its work while others wait for it. */
void case_end(engine_case_t *c, srt_context_t *context, srt_comm_t *group);

#endif
