/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replaying recorded traces ("golden cases") on the real library.
 *
 *     replay_case.c      a case's folder: description, tensors
 *     replay_features.c  what a case needs that cannot be replayed yet, by its fields
 *     replay_compare.c   the comparison rule: tolerances, outliers, exact things; the verdict
 *     replay_layout.c    which elements each rank held in the recorded run
 *     replay_precision.c policies and dtypes; the table of dtype rules
 *     replay_model.c     units and parameters as recorded; layers in the unit that owns them
 *     replay_modules.c   the same as a module tree, with marks
 *     replay_meta.c      the table of wrap policies and orders of initial values
 *     replay_chain.c, replay_decoder.c, replay_gpt.c, replay_transformer.c
 *                          the models of the cases, on a tape
 *     replay_buffers.c   buffers of a model: statistics of BatchNorm, constants
 *     replay_train.c     kind "train": the training loop, compared with the recorded one
 *     replay_ignored.c   parameters that each rank has for itself
 *     replay_resume.c    a fresh engine in the state that was recorded after a step
 *     replay_grads.c     the gradients of a step: values injected, which ranks' are finite
 *     replay_rounding.c  steps of parameters in 16 bits, as torch rounds them
 *     replay_step.c      comparing the engine within and after a step
 *     replay_table.c     kind "table": optimizer traces
 *     replay_shards.c    kind "table": which rank has which elements
 *     replay_sharded.c, replay_sharded_add.c
 *                        kind "table": sharded tensors and their optimizer
 *     replay_scaler.c, replay_sparse.c, replay_sequences.c
 *                        kind "table": unscaling, sparse gradients, scaled outputs, divide factors,
 *                        the scaler's state machine
 *     replay_casts.c     the table of casts
 *     replay_init.c      the table of initial distributions
 *     replay_errors.c, replay_combine.c, replay_net.c
 *                        kind "table": what PyTorch refuses, and what the library does instead
 *     replay_run.c       runs a case and prints its verdict
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
#include <shardrt/models/families.h>
#include <shardrt/models/layers.h>
#include <shardrt/models/tape.h>
#include "models/transformer.h"
#include "runtime/checkpoint/formats/safetensors.h"
#include "tests/harness/options.h"

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
/* Whether a case is a table of this name; what follows after a '_' tells several of them apart. */
bool golden_is_named(const golden_t *g, const char *table);
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

/* Whether a case is of the format of transformers' recordings. */
bool golden_is_hf(const golden_t *g);
/* Whether the case is a decoder that computes in bf16. transformers rounds within its layers: its
 * gradients are up to 3 tolerances from those in double with the same rounded weights. */
bool golden_is_wide(const golden_t *g);

/* How many tolerances the values of the case may be off: 1, or the limit of a case that is known to
 * need more, and why. */
double golden_limit(const golden_t *g, const char **why);

/* n values of a key: want as recorded. A tolerance for `key` has precedence. */
void verdict_values(verdict_t *v, const golden_t *g, const char *key, const float *got,
		    const float *want, size_t n);
void verdict_scalar(verdict_t *v, const golden_t *g, const char *key, double got, double want);
/* Something that must hold exactly. */
void verdict_exact(verdict_t *v, bool holds, const char *format, ...) SRT_PRINTF(3, 4);
/* Joins the verdicts of all ranks; the same on all afterwards. */
srt_status_t verdict_join(verdict_t *v, srt_context_t *context);

/* ---- a case as a whole ------------------------------------------------------------------ */

/* REPLAY_BAD: no case, or for another number of ranks. */
typedef enum replay_outcome { REPLAY_PASS, REPLAY_FAIL, REPLAY_SKIP, REPLAY_BAD } replay_outcome_t;

/* Runs a case of kind "train" or "table"; `one`: with one strategy. Collective. */
replay_outcome_t replay_run_case(const char *dir, bool one, srt_context_t *context);
/* Any rank's failure is everybody's: ranks that went on would wait for the others. */
srt_status_t replay_join_status(srt_context_t *context, srt_status_t status);
/* Prints a line if `speak`. `with`: how it was run; `note`: what else is to be said, or "". */
replay_outcome_t replay_print_verdict(const golden_t *g, const verdict_t *v, const char *with,
				      const char *note, bool speak);

/* ---- the recorded run ------------------------------------------------------------------- */

/* Elements first .. first + n - 1 of a parameter are what a rank held in the recorded run: of the
 * whole one, or with tensor parallelism of the rank's cell. */
void golden_shard(const golden_t *g, const char *param, int rank, int64_t *first, int64_t *n);

/* Whether the ranks were replicas of shards. */
bool golden_is_hybrid(const golden_t *g);

/* Whether the mesh has tensor-parallel ranks; the coordinate of a rank among them, else 0. */
bool golden_is_tensor(const golden_t *g);
int golden_tensor_index(const golden_t *g, int rank);
/* The coordinate of a rank among those with different data. */
int golden_data_index(const golden_t *g, int rank);

/* The dimension of a parameter that is cut over the tensor-parallel ranks; -1: none. */
int golden_cut_dim(const golden_t *g, const char *param);
/* The shape of a rank's cell, SRT_MAX_DIMS sizes. @return its first row in the whole parameter. */
int64_t golden_cell(const golden_t *g, const char *param, int rank, int64_t *shape);

/* The form of the units' flat parameters; SRT_FLAT_NO: the run was not one of FSDP1. */
srt_flat_t golden_flat(const golden_t *g);

/* Ranks that a parameter was cut over; which shard a rank held. */
int golden_nshards(const golden_t *g);
int golden_shard_index(const golden_t *g, int rank);

/* Whether a parameter is outside of all units: each rank has its own. */
bool golden_is_ignored(const golden_t *g, const char *param);

/* Whether all ranks held the whole parameters. */
bool golden_is_replicated(const golden_t *g);

/* The description of a parameter; NULL if the case has none of this name. */
const json_t *golden_param(const golden_t *g, const char *name);

/* "f32", "f16" or "bf16"; false for another text or NULL. */
bool golden_dtype(const char *text, srt_dtype_t *dtype);

/* ---- running -------------------------------------------------------------------------- */

#define REPLAY_MAX_INPUTS 2

/* A tensor of the tape that is filled from the case's inputs. */
typedef struct replay_input {
	const char *name;
	srt_tensor_t *tensor;
	bool is_counted; /* r->divisor is the number of values that are not below 0 */
} replay_input_t;

/* A buffer of the model. Floats are on the device, integers here. */
typedef struct replay_buffer {
	const char *name;
	srt_dtype_t dtype; /* SRT_I64: an integer */
	size_t nelem;
	srt_view_t view;
	int64_t *integers;
	srt_tensor_t *constant; /* NULL, or a row of the tape with these values */
} replay_buffer_t;

typedef struct replay {
	golden_t *golden;
	srt_context_t *context;
	srt_strategy_t strategy;
	bool on_mesh;      /* of several dimensions, as recorded */
	int reshard;       /* of the units below the root */
	srt_flat_t flat;   /* of all units */
	int first_step;    /* the recorded step whose state is loaded before; 0: none */
	bool loads;        /* from a checkpoint, which the run without this has saved */
	bool clip_in_step; /* clipping by the options of the engine, not by a call */
	verdict_t *verdict;

	srt_comm_t *comm; /* of the ranks that share the parameters */
	srt_comm_t *own;  /* NULL, or what comm is: this rank alone */
	srt_mesh_t *mesh; /* NULL, or the recorded one */
	srt_stream_t *stream;
	srt_stream_t *home; /* of the device that has this rank's shards */
	srt_precision_t precision, root_precision;
	srt_engine_t *engine;
	srt_comm_t *alone; /* of this rank, for parameters outside of the units, or NULL: */
	srt_engine_t *ignored;
	srt_unit_t *ignored_unit;
	srt_scaler_t *scaler; /* NULL: the case has none */
	const struct replay_model *model;
	srt_decoder_t *decoder; /* models of the library, or the units below */
	srt_decoder_io_t decoder_io;
	srt_transformer_t *transformer;
	srt_unit_t **units; /* as in case.json; the root is the last one */
	srt_unit_t *open;   /* the unit that is being recorded; NULL: the root alone */
	srt_tape_t *tape;
	srt_buffer_t *arena;
	replay_input_t inputs[REPLAY_MAX_INPUTS];
	int ninputs;
	srt_tensor_t *loss;
	srt_dtype_t output_dtype, loss_dtype;
	double divisor; /* what the sum of the loss's rows is divided by */

	replay_buffer_t *buffers;
	size_t nbuffers;
	srt_buffer_t *buffer_memory;
	srt_coll_t *broadcast; /* of the buffers, NULL without */
	bool is_reduced;       /* the last backward pass was, so DDP broadcasts the buffers */

	int nskipped;                 /* steps so far */
	struct replay_before *before; /* by parameter: what a step in 16 bits starts from */
} replay_t;

/* A model of the cases: how it is declared on the engine and recorded on a tape. */
typedef struct replay_model {
	const char *name;
	const char *losses; /* separated by spaces, or one text with spaces */
	const char *hyper;  /* the fields of model.hyper, separated by spaces */
	const char *inputs; /* separated by spaces */
	srt_status_t (*declare)(replay_t *r);
	srt_status_t (*record)(replay_t *r); /* for the shapes of the first micro-batch */
} replay_model_t;

/* The model of this name with this loss, NULL if there is none. */
const replay_model_t *replay_model_find(const char *name, const char *loss);

/* Whether `word` is one of these, which are separated by spaces. */
bool golden_is_one_of(const char *words, const char *word);

/* ---- models */
/* Units and parameters as in case.json. */
srt_status_t replay_declare_units(replay_t *r);
/* By a module tree, where the case has one. */
bool replay_has_modules(const replay_t *r);
srt_status_t replay_declare_modules(replay_t *r);
/* A parameter as in case.json; `shape` has SRT_MAX_DIMS sizes. */
srt_status_t replay_param_options(replay_t *r, const char *name, srt_dtype_t *dtype, int *ndim,
				  int64_t *shape, srt_param_options_t *options);
/* Declares gpt by the model library or, where the case's units are others, as in case.json. */
srt_status_t replay_declare_gpt(replay_t *r);
/* Declares a decoder of the model library by the config.json of a folder. */
srt_status_t replay_declare_decoder(replay_t *r);
/* Declares the Transformer of the model library. */
srt_status_t replay_declare_transformer(replay_t *r);
/* Whether its units, with their options, are those of the case. */
bool golden_is_library_transformer(const golden_t *g);
/* Whether the units of the case's model can keep their memory. */
bool golden_can_keep(const golden_t *g);
/* Options of the library's models. */
srt_status_t replay_model_options(replay_t *r, srt_model_options_t *options);
/* model.hyper. */
const json_t *replay_hyper(const replay_t *r);
/* Records the root's beginning; the end, the output and the loss of y. */
void replay_begin(replay_t *r);
srt_status_t replay_end(replay_t *r, srt_tensor_t *y);
/* Records an input for the shape of its first micro-batch: floats (rows,n), integers (rows,1). */
srt_status_t replay_input(replay_t *r, const char *name, srt_tensor_t **x);
/* The parameter "module.what", with its unit open; NULL if the case has none. */
srt_param_t *replay_param(replay_t *r, const char *module, const char *what);
srt_tensor_t *replay_linear(replay_t *r, srt_tensor_t *x, const char *module);
srt_tensor_t *replay_layernorm(replay_t *r, srt_tensor_t *x, const char *module);
srt_status_t replay_record_chain(replay_t *r);
srt_status_t replay_record_tied_ae(replay_t *r);
srt_status_t replay_record_decoder(replay_t *r);
srt_status_t replay_record_gpt(replay_t *r);
srt_status_t replay_record_transformer(replay_t *r);

/* Compares how far parameters are from the recorded last ones, where the case has that. */
srt_status_t replay_compare_movement(replay_t *r);

/* ---- buffers */
srt_status_t replay_buffers_create(replay_t *r);
void replay_buffers_destroy(replay_t *r);
const replay_buffer_t *replay_buffer_find(const replay_t *r, const char *name);
/* The buffer's values belong into a row (1,n) of the tape. */
srt_status_t replay_buffer_fills(replay_t *r, const char *name, srt_tensor_t *row);
/* Fills those rows, once the tape is bound. */
srt_status_t replay_buffers_fill(replay_t *r);
/* What precedes and follows a forward pass in training mode. */
srt_status_t replay_buffers_broadcast(replay_t *r);
void replay_buffers_count(replay_t *r);
/* Compares one recorded buffer of this rank. */
srt_status_t replay_buffer_compare(replay_t *r, const char *key, const char *name);

/* ---- precision */
/* A recorded policy: its casts of parameters, reductions and buffers. */
srt_status_t replay_policy(const json_t *policy, srt_precision_rule_t rule,
			   srt_precision_t *precision);
/* Sets r->precision and r->root_precision by the case's policy. */
srt_status_t replay_precision(replay_t *r);
/* The dtype of a unit's output. */
srt_dtype_t replay_output_dtype(const srt_unit_types_t *types);
/* The table of dtype rules. */
srt_status_t replay_dtype_rules(golden_t *g, verdict_t *v);

/* ---- gradients */
/* Sets what the case injects into the gradients of step s. */
srt_status_t replay_inject(replay_t *r, int s);
/* Compares on which ranks gradients are infinite or NaN. */
srt_status_t replay_compare_finite(replay_t *r, int s);

/* Copies nbytes of this rank's shards, which may be on the host device. Blocking. */
srt_status_t replay_read_local(replay_t *r, void *host, srt_view_t view, size_t nbytes);
srt_status_t replay_write_local(replay_t *r, srt_view_t view, const void *host, size_t nbytes);

/* Sets or loads the state after step r->first_step. */
srt_status_t replay_resume(replay_t *r);
/* Sets a parameter to n values; this rank's rows of another tensor of it to those of `full`. */
srt_status_t replay_set_param(replay_t *r, srt_param_t *p, const float *x, size_t n);
srt_status_t replay_set_local(replay_t *r, srt_param_t *p, srt_param_what_t what,
			      const float *full);

/* Around an optimizer step, the parameters' `step`-th, that is not skipped. */
srt_status_t replay_rounding_begin(replay_t *r);
srt_status_t replay_rounding_end(replay_t *r, int step);
void replay_rounding_free(replay_t *r);

/* ---- parameters of both engines */
/* Creates the engine and the unit of ignored parameters, if there are any, with the options of the
 * other one; srt_engine_wrap() declares the parameters. */
srt_status_t replay_ignored_create(replay_t *r, const srt_engine_options_t *options);
srt_status_t replay_ignored_build(replay_t *r);
srt_status_t replay_ignored_step(replay_t *r);
void replay_ignored_destroy(replay_t *r);
bool replay_is_ignored(const replay_t *r, const srt_param_t *p);
/* Whether the units are flat and cut as they were in the recorded run. */
bool replay_is_flat_as_recorded(const replay_t *r);
/* As srt_engine_param_find(), srt_engine_param_at() and srt_param_part() of this rank. */
srt_param_t *replay_find(const replay_t *r, const char *name);
srt_param_t *replay_nth(const replay_t *r, size_t i);
srt_status_t replay_part(const replay_t *r, const srt_param_t *p, srt_part_t *part);

/* Replays a case of kind "train" with one strategy. */
srt_status_t replay_train(replay_t *r);

/* ---- comparing; parts of replay_train() */
/* The step's tensors of some kinds ("grad", "param optim"), gradients times `factor`. */
srt_status_t replay_compare_kinds(replay_t *r, int s, const char *kinds, float factor);
/* Which gradients exist, and their dtypes. */
srt_status_t replay_compare_grads(replay_t *r, int s);
/* Norm, counts, what is skipped; then parameters, optimizer state and buffers after step s. */
srt_status_t replay_compare_step(replay_t *r, int s);
/* Where the shards lie and what was recorded before step 1. */
srt_status_t replay_compare_start(replay_t *r);
/* Whether a step was recorded as skipped, on any rank. */
bool replay_is_skipped(const replay_t *r, int s);
/* A recorded step. */
const json_t *replay_step_of(const replay_t *r, int s);

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

/* The table of wrap policies and orders of initial values. */
srt_status_t replay_meta(golden_t *g, srt_context_t *context, verdict_t *v);

/* The table of casts. */
srt_status_t replay_init(golden_t *g, verdict_t *v);
srt_status_t replay_casts(golden_t *g, srt_context_t *context, verdict_t *v);
/* The tables of shards. */
srt_status_t replay_shards(golden_t *g, srt_context_t *context, verdict_t *v);

/* The tables of sharded optimizers. */
srt_status_t replay_sharded_optimizer(golden_t *g, srt_context_t *context, verdict_t *v);
/* A case of kind "train" whose parameters are a sharded tensor and a plain one. */
bool replay_is_sharded_add(const golden_t *g);
srt_status_t replay_sharded_add(golden_t *g, srt_context_t *context, verdict_t *v);

/* Replays a case of kind "table". SRT_ERR_UNSUPPORTED with the reason for one not built yet. */
srt_status_t replay_table(golden_t *g, srt_context_t *context, verdict_t *v, char *note,
			  size_t nnote);
/* The part of a replay for tables about the loss scaler. */
srt_status_t replay_scaler(golden_t *g, srt_context_t *context, verdict_t *v, char *note,
			   size_t nnote);

#endif
