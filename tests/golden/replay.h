/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replaying recorded traces ("golden cases") on the real library.
 *
 *     replay_case.c      a case's folder: description, tensors
 *     replay_features.c  what a case needs that cannot be replayed yet, by its fields
 *     replay_compare.c   the comparison rule: tolerances, outliers, exact things; the verdict
 *     replay_model.c     the models of the cases, recorded on a tape
 *     replay_train.c     kind "train": the training loop, compared with the recorded one
 *     replay_step.c      comparing the engine after a step
 *     replay_table.c     kind "table": optimizer traces, shard tables
 *     replay_scaler.c, replay_sparse.c, replay_sequences.c
 *                        kind "table": unscaling, sparse gradients, scaled outputs, divide factors,
 *                        the scaler's state machine
 *     replay_casts.c     the table of casts
 *     replay_golden.c    the program
 *
 * Everything recorded in a case is compared, or the case fails. Functions return a status with the
 * library's last error; a deviation is no error but goes to the verdict.
 */
#ifndef SRT_TESTS_REPLAY_H
#define SRT_TESTS_REPLAY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include <shardrt/shardrt.h>

#include "base/base.h"
#include "models/gpt.h"
#include "models/layers.h"
#include "models/tape.h"
#include "runtime/checkpoint/safetensors.h"

/* ---- a case --------------------------------------------------------------------------- */

typedef struct golden {
	const char *dir;
	json_t *json; /* case.json; the strings below belong to it */
	const char *name, *kind, *scenario, *reference;
	int world_size, dp_size, accum, nsteps;
	srt_safetensors_t *expect;       /* NULL if the case has none */
	srt_safetensors_t *init, *input; /* kind "train"; input of this rank */
	srt_safetensors_t *expect_rank;  /* of this rank, NULL if the case has none */
	bool *seen, *seen_rank;          /* which tensors of the expect files were compared */
} golden_t;

/* Reads what a rank needs of a case. SRT_ERR_FORMAT for what is not a case. */
srt_status_t golden_open(const char *dir, int rank, golden_t *g);
void golden_close(golden_t *g);

/* Why a case of kind "train" cannot be replayed yet, in `why`: "needs FEATURE, FEATURE..." or the
 * first field that the replay does not know. false if it can. */
bool golden_unsupported(const golden_t *g, char *why, size_t nwhy);

/* Members of a JSON object; a missing or wrong one reads as NULL, 0, false or `otherwise`. */
const char *golden_text(const json_t *object, const char *key);
double golden_number(const json_t *object, const char *key, double otherwise);
bool golden_is_set(const json_t *object, const char *key); /* there, and not null or false */
bool golden_has(const json_t *array, const char *text);
bool golden_has_int(const json_t *array, int value);
/* A recorded scalar {"dtype","dec","hex"}. */
double golden_scalar(const json_t *scalar);

/* The values of an F32, F16 or BF16 tensor, widened, as a new array; `name` must exist and have
 * nelem elements. */
srt_status_t golden_floats(const srt_safetensors_t *file, const char *name, size_t nelem,
			   float **values);

/* ---- the verdict ---------------------------------------------------------------------- */

typedef struct verdict {
	int64_t ncompared, nfailed;
	double worst;        /* largest deviation in units of its tolerance */
	char worst_key[128]; /* where */
	char failure[256];   /* the first one */
} verdict_t;

/* n values of a key: want as recorded. A tolerance for `key` has precedence. */
void verdict_values(verdict_t *v, const golden_t *g, const char *key, const float *got,
		    const float *want, size_t n);
void verdict_scalar(verdict_t *v, const golden_t *g, const char *key, double got, double want);
/* Something that must hold exactly. */
void verdict_exact(verdict_t *v, bool holds, const char *format, ...) SRT_PRINTF(3, 4);
/* Joins the verdicts of all ranks; the same on all afterwards. */
srt_status_t verdict_join(verdict_t *v, srt_context_t *context);

/* ---- running -------------------------------------------------------------------------- */

typedef struct replay {
	golden_t *golden;
	srt_context_t *context;
	srt_stream_t *stream;
	srt_strategy_t strategy;
	srt_engine_t *engine;
	verdict_t *verdict;
	const struct replay_model *model;
	srt_gpt_t *gpt;
	srt_unit_t **units; /* of a chain model: the root, then as in case.json */
	srt_tape_t *tape;
	srt_buffer_t *arena;
	srt_tensor_t *in[2], *loss;
	int64_t nmean; /* elements that the mean loss is taken over */
} replay_t;

/* A model of the cases: how it is declared on the engine and recorded on a tape. */
typedef struct replay_model {
	const char *name;
	const char *loss;
	const char *hyper;     /* the fields of model.hyper, separated by spaces */
	const char *inputs[2]; /* of the model and of the loss */
	srt_status_t (*declare)(replay_t *r);
	srt_status_t (*record)(replay_t *r); /* for the shapes of the first micro-batch */
} replay_model_t;

/* The model of this name with this loss, NULL if there is none. */
const replay_model_t *replay_model_find(const char *name, const char *loss);

/* Replays a case of kind "train" with one strategy. */
srt_status_t replay_train(replay_t *r);

/* Compares step s after its optimizer step; part of replay_train(). */
srt_status_t replay_compare_step(replay_t *r, int s);
/* Compares where the shards lie and what was recorded before step 1. */
srt_status_t replay_compare_start(replay_t *r);

/* An element of a parameter and its optimizer state. */
typedef struct replay_element {
	float p, m, v, top;
} replay_element_t;

#define REPLAY_TAIL_ALIGN 32 /* elements of a vector loop of torch's */

/* The end of a tensor in 16 bits: what torch and what the kernels make of it (replay_tail.c). */
typedef struct replay_tail {
	srt_dtype_t dtype;
	size_t first, n; /* elements of the tensor, fewer than REPLAY_TAIL_ALIGN */
	int is_sgd, decoupled, amsgrad, nesterov, maximize;
	double lr, decay, momentum, dampening, beta1, beta2, eps;
	replay_element_t ours[REPLAY_TAIL_ALIGN], recorded[REPLAY_TAIL_ALIGN];
} replay_tail_t;

/* One step of all its elements, in both ways. */
void replay_tail_step(replay_tail_t *t, const float *grad, int step);

/* The table of casts. */
srt_status_t replay_casts(golden_t *g, srt_context_t *context, verdict_t *v);

/* Replays a case of kind "table". SRT_ERR_UNSUPPORTED with the reason for one not built yet. */
srt_status_t replay_table(golden_t *g, srt_context_t *context, verdict_t *v, char *note,
			  size_t nnote);
/* Its part for tables about the loss scaler. */
srt_status_t replay_scaler(golden_t *g, srt_context_t *context, verdict_t *v, char *note,
			   size_t nnote);

#endif
