/* SPDX-License-Identifier: BSD-3-Clause */
/* What changes during a step: of an engine, of its units and of its parameters. */
#ifndef SRT_RUNTIME_ENGINE_STEP_STATE_H
#define SRT_RUNTIME_ENGINE_STEP_STATE_H

#include <stdbool.h>

#include <shardrt/engine.h>

#include "runtime/engine/step/reproducible_sum.h"

/* ---- of an engine */

/* The current step. */
typedef struct srt_step {
	uint64_t nsteps; /* since the build */
	int microbatch, nmicrobatches;
	bool microbatch_over; /* the next one is announced: the next pass ends this one first */
	bool backward_begun;  /* in this micro-batch */
	bool any_backward;    /* in this step */
	bool finished;        /* srt_engine_finish_backward() was called in this step ... */
	const srt_stream_t *finish_stream; /* ... with this stream; compared only */
	bool clipped;                      /* srt_engine_clip() was called in this step */
	bool warned_nonfinite; /* a step with gradients that are not finite was reported */
	bool norm_is_set;      /* the norm of the step state is not of a step of this engine */
	bool found_inf;        /* found_inf of the step state was written in this step */
	srt_unit_t *last_forward, *last_backward;
	srt_unit_t *partial_user; /* whose sums over a replica peers may be reading; NULL: none */
} srt_step_t;

/* What later work waits for. */
typedef struct srt_order {
	srt_event_t *stepped;     /* the end of the last step, or of a change between steps */
	srt_event_t *summed;      /* the end of the last srt_engine_sum() */
	srt_event_t *used;        /* the end of the last use of a unit without a slot ... */
	const srt_stream_t *user; /* ... on this stream; NULL: none since the last change */
	bool has_several_users;   /* since the last change other streams used such units too */
} srt_order_t;

/* Changes of values that the program makes itself: writes.c. */
typedef struct srt_writes {
	bool open; /* between srt_engine_write_begin() and srt_engine_write_end() ... */
	const srt_stream_t *stream; /* ... on this stream; compared only */
	bool unseen;                /* between passes values may change without these calls */
} srt_writes_t;

/* Scalars that ranks combine: in the tables of srt_staging_t. */
typedef struct srt_scalars {
	float *flags;        /* host copy of staging.flags */
	bool flags_uploaded; /* staging.flags equals it */
	srt_coll_t *reduce_flags;
	srt_coll_t *gather_found; /* of staging.found; NULL: one rank */
	srt_reproducible_sum_t norm_sum, user_sum;
} srt_scalars_t;

/* The collectives of Muon's matrices: matrices.c. NULL: none, or one rank. */
typedef struct srt_matrices {
	srt_coll_t *gather;  /* updates -> owners */
	srt_coll_t *scatter; /* owners -> updates */
} srt_matrices_t;

/* ---- of a unit */

/* The passes of a unit. */
typedef struct srt_unit_pass {
	bool in_forward, in_backward;
	int recompute; /* forward calls inside the backward pass, by activation checkpointing */
	int uses;      /* forward uses of this pass whose backward has not ended */
	srt_unit_t *next_forward; /* the unit that followed in the last pass, for prefetching */
	srt_unit_t *next_backward;
} srt_unit_pass_t;

/* The unsharded values of a unit. */
typedef struct srt_unit_unshard {
	srt_coll_t *gather;    /* shards -> slot; NULL: not needed */
	srt_coll_t *regather;  /* parts of the group -> slot; NULL: no groups */
	srt_event_t *gathered; /* the gather's end on the communication stream */
	srt_event_t *uploaded; /* offload: the last reading of values on the host has ended */
	bool is_gathered; /* its slot has current values, or a gather that writes them is queued */
	bool is_prefetched;   /* gathered, and not used since */
	bool is_exposed;      /* peers may be reading this rank's shard */
	bool is_uploaded;     /* offload: its slot has the current shard, or a copy is queued */
	bool has_part;        /* the ranks of its group have parts of the current values */
	bool is_part_exposed; /* peers may be reading this rank's part */
} srt_unit_unshard_t;

/* The gradients of a unit. */
typedef struct srt_unit_grads {
	srt_coll_t *reduce;      /* unsharded gradients -> shards, or in place; NULL: not needed */
	srt_coll_t *all_reduce;  /* shards of the replicas, in place; NULL: not needed */
	srt_event_t *reduced;    /* the last reading of unsharded_grad, or addition, has ended */
	srt_view_t partial_sums; /* trainable shards of SRT_ROLE_PARTIAL ... */
	srt_view_t reduced_sums; /* ... and of SRT_ROLE_REDUCED; without buffer: none */
	size_t shard_nelem;      /* elements of both, with padding */
	bool backward_done;      /* gradients of this micro-batch are final on this rank */
	bool has_reduced;        /* the shard has a reduced gradient of this step */
	bool has_partial;        /* the sum over the replica has one that is not in it yet */
	bool keeps_grads;        /* unsharded gradients stay: the next micro-batch adds to them */
} srt_unit_grads_t;

/* ---- of a parameter */

/* The gradient of a parameter. */
typedef struct srt_param_grad {
	/* in the current step */
	bool written; /* unsharded_grad has a gradient that is in no sum yet */
	bool summed;  /* summed_grad, apart from unsharded_grad, has gradients */
	bool used;    /* ready in some micro-batch of the step */
	/* in the current backward pass of the unit */
	bool requested; /* srt_param_grad() was called */
	bool ready;     /* srt_param_grad_ready() was called */
	bool warned;    /* that a requested gradient was not ready; once for the run */
} srt_param_grad_t;

#endif
