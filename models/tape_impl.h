/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of a tape, for models/tape*.c, models/layer_*.c and what records decoders.
 *
 * Every layer has the same parts: a function that checks the shapes and records a node, a forward
 * and a backward function, and a `static const srt_layer_t` that has them and the values that the
 * backward pass reads again.
 *
 * Tensor parts (srt_tape_set_tensor_parts()): a sum that the tensor-parallel ranks cut is made of
 * parts of equal length, in fp32, which are added by the pairwise tree: own ones by a rank, then
 * those of the ranks. models/layer_parts.c. With sequence parallelism each rank has some rows of
 * what is not cut by columns. models/layer_rows.c.
 *
 * Time runs from 0: node i of N runs forward at i. The backward pass follows in reverse order;
 * where it reaches the last node of a section that is recomputed, it first runs the section's nodes
 * forward again. Every piece of memory is a block with the first and last time at which it holds
 * something; two blocks share bytes of the arena only if these intervals do not meet.
 */
#ifndef SRT_MODELS_TAPE_IMPL_H
#define SRT_MODELS_TAPE_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/models/layers.h>
#include <shardrt/models/tape.h>
#include "models/try.h"

enum {
	SRT_NODE_INPUTS = 6,
	SRT_NODE_PARAMS = 2,
	SRT_NODE_SAVED = 2,
	SRT_NODE_SUMS = 9,
	SRT_NO_BLOCK = -1,
};

/* When a parameter is cast: before the node runs forward, forward again, or backward. */
enum { SRT_CAST_FORWARD, SRT_CAST_AGAIN, SRT_CAST_BACKWARD, SRT_NCASTS };

typedef struct srt_node srt_node_t;

/* A piece of the arena. */
typedef struct srt_block {
	size_t nbytes, offset;
	int first, last; /* times, both inclusive */
} srt_block_t;

struct srt_tensor {
	srt_tape_t *tape;
	srt_dtype_t dtype;
	int64_t rows, n;
	int producer; /* node, or -1 for an input */
	int origin;   /* the producer; of a unit's input that was cast, the unit's begin */
	int section;  /* of the producer */
	int nuses;
	int keep;
	int needs_grad;
	int grad_parts;   /* the number of parts, SRT_F32, that the gradient is kept in, or 0 */
	int regathers;    /* its rows are not kept for the backward pass: gathered again */
	int regather_at;  /* the first node of the backward pass that reads them, or -1 */
	int has_own_rows; /* this rank's, of rows that are cut over the ranks */
	int value;        /* block */
	int again;        /* block of the recomputed value, for the nodes of the section */
	int grad;         /* block of the complete gradient, once planned */
	struct srt_tensor *next; /* of the tape's list */
};

/* One pass. */
typedef struct srt_run {
	srt_tape_t *tape;
	srt_stream_t *stream;
	srt_buffer_t *arena;
	float grad_scale;
	srt_view_t scale; /* (1), SRT_F32, or absent: multiplies grad_scale */
	int training;
	int section;    /* whose tensors have their recomputed values; 0 = none */
	int recomputes; /* a forward function runs again */
	int backward;   /* the backward pass runs */
} srt_run_t;

/* What the tensor-parallel ranks of a tape sum when a layer has run. */
typedef enum srt_sum {
	SRT_SUM_NONE,
	SRT_SUM_OUTPUT,   /* its output in the forward pass */
	SRT_SUM_GRADIENT, /* its gradient of input 0 in the backward pass; it must not add */
	SRT_SUM_PARAM,    /* norm_n values of parameter 0's gradient, in the backward scratch, which
			   * the layer makes and adds: srt_run_sum_param(), or the first part of
			   * them */
	SRT_SUM_OUTPUT_PARTS,   /* the first part of its output, in the forward scratch, */
	SRT_SUM_GRADIENT_PARTS, /* or of the gradient of its output; the layer sums:
				 * srt_run_add_parts() */
	SRT_SUM_OUTPUT_ROWS,    /* the same, of which a rank gets its rows, own_offset into the */
	SRT_SUM_GRADIENT_ROWS   /* scratch, or in the backward scratch: srt_run_own_sum() */
} srt_sum_t;

/* What the tensor-parallel ranks of a tape gather for a layer. */
enum {
	SRT_GATHER_STATS = 1 << 0,   /* statistics of rows: srt_tape_stats_nbytes() */
	SRT_GATHER_ROWS = 1 << 1,    /* input 0, whose rows are cut, as its output */
	SRT_GATHER_COLUMNS = 1 << 2, /* input 0, in each pass */
	SRT_GATHER_GRAD_OUT = 1 << 3 /* the gradient of the output: both (nranks, rows, n) at the
				      * start of the scratch of the pass */
};

/* A kind of layer. */
typedef struct srt_layer {
	const char *name;
	unsigned keeps_in; /* bit j: backward reads the value of input j */
	int keeps_out;     /* backward reads the value of the output */
	int is_loss;       /* backward starts here, without a gradient of the output */
	int adds;          /* backward can add onto the fp32 gradient of input 0 (SRT_TO_ADD) */
	int is_view;       /* the output is input 0: forward does nothing */
	srt_sum_t sums;
	unsigned gathers;   /* SRT_GATHER_STATS ... */
	int by_row;         /* takes rows that are cut over the ranks */
	int in_for_param;   /* backward reads input 0 for the gradient of parameter 0 alone */
	unsigned passes_on; /* bit j: the gradient of input j may have the memory of the output's */
	srt_status_t (*forward)(const srt_run_t *run, const srt_node_t *node);
	srt_status_t (*backward)(const srt_run_t *run, const srt_node_t *node);
	/* NULL: none. Raises tape->scratch_nbytes to what a stream keeps for the layer. */
	srt_status_t (*measure)(srt_tape_t *tape, const srt_node_t *node);
} srt_layer_t;

/* How a node's contribution is stored or added to the gradient of an input. */
typedef enum srt_grad_how {
	SRT_TO_NONE,  /* the input takes no gradient */
	SRT_TO_STORE, /* stored in `block` */
	SRT_TO_SHARE, /* stored in `block`, which is also the output's gradient */
	SRT_TO_ADD,   /* added by the layer onto what `block` holds */
	SRT_TO_MERGE, /* stored in `block`, then the tape adds `before` */
} srt_grad_how_t;

typedef struct srt_grad_to {
	srt_grad_how_t how;
	int block;
	int before;
} srt_grad_to_t;

/* This rank's parts of a sum: `nblocks` blocks of it, of which each part has a piece. */
typedef struct srt_parts {
	int nparts, nblocks;
	int64_t block, chunk; /* terms of a block, of a piece; the last piece may be shorter */
} srt_parts_t;

/* Constants of the layers that have some. */
typedef struct srt_node_args {
	srt_parts_t parts; /* of the output of a rowwise layer, of the gradient of a colwise one */
	srt_attention_t attention;
	srt_attention_cache_t cache; /* of new tokens */
	float eps;
	int64_t context;
	int64_t padding;
	int64_t chunk_rows, sum_rows; /* of a chunk; of one product of the weight's gradient */
	int64_t first_row;            /* of the rows of the parameters that are used */
	int64_t nrows;
	srt_vocab_part_t part; /* this rank's, of a vocabulary that is cut */
	int64_t stats_rows;    /* that the ranks gather at a time, */
	size_t stats_offset;   /* into the scratch or the first saved value */
	size_t own_offset;     /* of the own rows of a sum, into the forward scratch */
	srt_dtype_t loss_dtype;
	size_t scale_offset; /* into the backward scratch: where the scale of the loss is rounded */
	const int64_t *row;
	float factor; /* of a scale or a soft cap */
	srt_glu_t act;
	srt_rotary_t rotary;
	int64_t norm_n; /* values that an RMSNorm normalises together */
	int one_plus;   /* its weight is 1 + the parameter */
	srt_batchnorm_in_t batchnorm;
	const srt_dropout_at_t *dropout_at;
	const char *dropout_name;
	float dropout_rate;
} srt_node_args_t;

struct srt_node {
	const srt_layer_t *layer; /* NULL: a unit boundary */
	srt_tensor_t *in[SRT_NODE_INPUTS];
	srt_tensor_t *out;
	srt_param_t *param[SRT_NODE_PARAMS];
	int param_again[SRT_NODE_PARAMS]; /* the backward pass has written this gradient before */
	size_t cast_nbytes
		[SRT_NODE_PARAMS]; /* of a frozen parameter of another dtype, cast for each
					      * use; 0: none */
	srt_param_t *scales;       /* of parameter 0, if it is in 8 bits */
	size_t saved_nbytes[SRT_NODE_SAVED]; /* made by forward, read by backward */
	size_t forward_scratch, backward_scratch;
	srt_node_args_t args;

	srt_unit_t *unit; /* of a boundary */
	int is_begin;
	int section; /* that is recomputed; 0 = none */

	/* the plan */
	int saved[SRT_NODE_SAVED], scratch_forward, scratch_backward; /* blocks */
	int saved_again[SRT_NODE_SAVED], scratch_again;               /* of the recomputation */
	int cast[SRT_NODE_PARAMS][SRT_NCASTS];
	int grad_out; /* block */
	int has_backward;
	int recomputed;
	int when_again, when_backward; /* times */
	srt_grad_to_t to[SRT_NODE_INPUTS];

	srt_coll_t *sum[SRT_NODE_SUMS]; /* of the bound tape: tape_sums.c */
};

/* A unit between begin and end, while recording. */
typedef struct srt_open_unit {
	srt_unit_t *unit;
	int begin; /* node */
	srt_unit_types_t types;
} srt_open_unit_t;

/* A tensor that was cast where a unit begins. */
typedef struct srt_unit_cast {
	const srt_tensor_t *from;
	srt_tensor_t *to;
	int begin; /* node of the unit's begin */
} srt_unit_cast_t;

struct srt_tape {
	srt_device_t *device;
	srt_tape_mode_t mode;
	srt_node_t *nodes;
	int nnodes, nodes_room;
	srt_block_t *blocks;
	int nblocks, blocks_room;
	srt_tensor_t *tensors;
	srt_open_unit_t *open; /* the innermost unit last */
	int nopen, open_room;
	srt_unit_cast_t *casts;
	int ncasts, casts_room;
	int section, nsections; /* the open section, 0 = none; sections so far */
	int section_open_units; /* units that were open where it began */
	int finished;
	int end; /* the time after both passes */
	size_t nbytes;
	size_t scratch_nbytes; /* of the stream that it runs on */
	srt_buffer_t *arena;
	srt_buffer_t *own_arena;     /* NULL: the arena is the caller's */
	srt_find_value_t find_value; /* NULL: the values are those that the units gather */
	const void *find_arg;
	srt_find_scales_t find_scales; /* NULL: there are no weights in 8 bits */
	const void *scales_arg;
	int nranks, rank; /* that layers are cut over, and this rank among them */
	int nparts;       /* tensor parts of all ranks; 1: none */
	int cuts_rows;    /* sequence parallelism over several ranks */
	srt_comm_t *comm; /* of these ranks; NULL: one, or a mesh to plan with */
	srt_status_t status;
	char error[1024];
};

/* Remembers the first failure; the message is printf-like, or NULL to take srt_error_last().
 * Returns srt_tape_status(). */
srt_status_t srt_tape_fail(srt_tape_t *tape, srt_status_t status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The status of the first failure, with its sentence as the thread's last error; or SRT_OK. */
srt_status_t srt_tape_status(const srt_tape_t *tape);

/* ---- recording, for layers -------------------------------------------------------------- */

/* A description of the node to record; zero-initialise, set what the layer has. */
typedef struct srt_node_desc {
	const srt_layer_t *layer;
	srt_tensor_t *in[SRT_NODE_INPUTS];
	srt_param_t *param[SRT_NODE_PARAMS];
	srt_dtype_t dtype; /* of the output */
	int64_t rows, n;
	size_t saved_nbytes[SRT_NODE_SAVED];
	size_t forward_scratch, backward_scratch;
	srt_node_args_t args;
} srt_node_desc_t;

/* Records the node and makes its output; NULL after a failure. */
srt_tensor_t *srt_tape_record(srt_tape_t *tape, const srt_node_desc_t *desc);

/* Whether a layer may go on: the tape is good and the tensor is there. */
int srt_tape_usable(srt_tape_t *tape, const srt_tensor_t *x);

/* An input of a layer, of a float dtype, as the open units have it: cast where it comes from
 * outside of a unit that casts its inputs. NULL after a failure. */
srt_tensor_t *srt_tape_enter(srt_tape_t *tape, const char *layer, srt_tensor_t *x);

/* Whether two inputs of a layer have one dtype. */
int srt_tape_same_dtype(srt_tape_t *tape, const char *layer, const srt_tensor_t *a,
			const srt_tensor_t *b);

/* The dtype in which the innermost open unit computes; SRT_F32 outside of units. */
srt_dtype_t srt_tape_compute_dtype(const srt_tape_t *tape);

/* The array with memory for one more element; NULL: out of memory. */
void *srt_tape_grow(void *array, int n, int *room, size_t size);

/* Records a unit boundary. */
void srt_tape_boundary(srt_tape_t *tape, srt_unit_t *unit, int is_begin);

/* Checks a parameter's shape: ndim dimensions of the given sizes, -1 = any. */
int srt_tape_param_is(srt_tape_t *tape, const char *layer, const srt_param_t *param, int ndim,
		      int64_t d0, int64_t d1);

/* Checks the input of a cross-entropy and its targets, SRT_I32 of (rows,1). */
int srt_tape_targets_are(srt_tape_t *tape, const srt_tensor_t *x, const srt_tensor_t *targets);

/* A product of dense matrices, without its tensors. */
static inline srt_matmul_t srt_dense_product(int64_t m, int64_t n, int64_t k, int trans_a,
					     int trans_b)
{
	srt_matmul_t mm = SRT_MATMUL_INIT;

	mm.m = m;
	mm.n = n;
	mm.k = k;
	mm.trans_a = trans_a;
	mm.trans_b = trans_b;
	return mm;
}

/* This rank's part of a vocabulary, cut as srt_placement_t cuts rows. */
srt_vocab_part_t srt_tape_vocab_part(const srt_tape_t *tape, int64_t vocab);
/* The part of the rows of a matrix that this rank has, which must be cut over the ranks of the
 * tape; fails if it has none. n: its columns, -1 = any. */
int srt_tape_param_part(srt_tape_t *tape, const char *layer, const srt_param_t *param, int64_t n,
			srt_vocab_part_t *part);

/* Whether layers cut their sums in parts, or over ranks. */
static inline int srt_tape_is_cut(const srt_tape_t *tape)
{
	return tape->nranks > 1 || tape->nparts > 1;
}

/* Tensor parts of a rank; 1 without them. */
static inline int srt_tape_own_parts(const srt_tape_t *tape)
{
	return tape->nparts > 1 ? tape->nparts / tape->nranks : 1;
}

/* Blocks, and tensors in one block, begin at multiples of this, for vector loads and sub-buffers
 * of GPUs. */
#define SRT_BLOCK_ALIGN ((size_t)256)

/* Where the next one begins, after nbytes. */
static inline size_t srt_align_block(size_t nbytes)
{
	return (nbytes + SRT_BLOCK_ALIGN - 1) / SRT_BLOCK_ALIGN * SRT_BLOCK_ALIGN;
}

/* Bytes of a layer that gathers: its own statistics of `rows` rows, 3 floats for each part, and
 * those of all ranks. They are in its first saved value if it saves one, else in its scratch. */
size_t srt_tape_stats_nbytes(srt_tape_t *tape, int64_t rows);

/* Bytes of rows * n floats; fails the tape on overflow. */
size_t srt_tape_f32_nbytes(srt_tape_t *tape, int64_t rows, int64_t n);
/* Bytes of this rank's parts of (rows,n), floats; fails the tape on overflow. */
size_t srt_tape_parts_nbytes(srt_tape_t *tape, int64_t rows, int64_t n);

/* ---- running, for layers ---------------------------------------------------------------- */

/* The dtype of the node's inputs, or of its output if no input is of floats. */
srt_dtype_t srt_node_dtype(const srt_node_t *node);
/* View of a block. */
srt_view_t srt_run_block(const srt_run_t *run, int block, srt_dtype_t dtype);
/* Value of a tensor. */
srt_view_t srt_run_value(const srt_run_t *run, const srt_tensor_t *tensor);
/* Gradient of the node's output. */
srt_view_t srt_run_grad_out(const srt_run_t *run, const srt_node_t *node);
/* Saved value k of the node, SRT_F32. */
srt_view_t srt_run_saved(const srt_run_t *run, const srt_node_t *node, int k);
/* Scratch of the node's forward function. */
srt_view_t srt_run_scratch(const srt_run_t *run, const srt_node_t *node, srt_dtype_t dtype);
/* Gathered value of the node's parameter k in the dtype of the node's inputs, which it must have
 * unless it is frozen; buffer NULL if the node has none. */
srt_status_t srt_run_param(const srt_run_t *run, const srt_node_t *node, int k, srt_view_t *view);

/* The memory for the gradient of input j, and whether the layer adds to it. 0: no gradient. */
int srt_run_grad_in(const srt_run_t *run, const srt_node_t *node, int j, srt_view_t *view,
		    int *accumulate);

/* The memory for the gradient of parameter k; view->buffer NULL if it is absent or frozen. */
srt_status_t srt_run_param_grad(const srt_run_t *run, const srt_node_t *node, int k,
				srt_view_t *view, int *accumulate);
/* What the gradients of a loss are multiplied by: run->grad_scale, and run->scale or absent;
 * rounded if the loss is of a 16-bit dtype. */
srt_status_t srt_run_loss_scale(const srt_run_t *run, const srt_node_t *node, float *grad_scale,
				srt_view_t *scale);
/* To be called when that gradient is queued; does nothing if it is absent or frozen. */
srt_status_t srt_run_param_ready(const srt_node_t *node, int k);

/* ---- layer_parts.c ---------------------------------------------------------------------- */

/* x, with a gradient in parts, which its uses add to; made once for the uses of a section. NULL
 * after a failure. */
srt_tensor_t *srt_tape_to_parts(srt_tape_t *tape, srt_tensor_t *x);

/* This rank's parts of a sum over dimension `dim` of a parameter, in whose `nblocks` equal blocks
 * it has the same elements; fails if it has others than srt_placement_t.nparts gives it. */
int srt_tape_parts_of(srt_tape_t *tape, const char *layer, const srt_param_t *param, int dim,
		      int nblocks, srt_parts_t *parts);

/* Scratch of the stream for the parts of such a product. */
srt_status_t srt_tape_measure_parts(srt_tape_t *tape, const srt_matmul_t *mm,
				    const srt_parts_t *parts, srt_dtype_t dtype);

/* Makes each part of a product, (m,n) SRT_F32 at mm->c and each further one `stride` elements
 * after it; added to what is there with mm->accumulate. */
srt_status_t srt_run_part_products(const srt_run_t *run, const srt_matmul_t *mm,
				   const srt_parts_t *parts, int64_t stride);

/* out (rows,n) = the sum of all parts of all ranks + bias, which may be absent; onto out with
 * sum->accumulate. sum: rows, n, the own parts, which are overwritten, bias, out. Of a layer that
 * cuts rows, out has this rank's. */
srt_status_t srt_run_add_parts(const srt_run_t *run, const srt_node_t *node,
			       const srt_sum_parts_t *sum);

/* The backward function of a layer whose output has a gradient in parts: their sum is the gradient
 * of the input. */
srt_status_t srt_run_backward_parts(const srt_run_t *run, const srt_node_t *node);

/* ---- layer_rows.c ----------------------------------------------------------------------- */

/* Whether rows can be cut over the ranks; fails the tape if not. */
int srt_tape_can_cut_rows(srt_tape_t *tape, const char *layer, int64_t rows);

/* The rows of all ranks of x, which has this rank's, with a gradient in parts. */
srt_tensor_t *srt_tape_gather_rows(srt_tape_t *tape, srt_tensor_t *x);

/* The gradient of the output of the node, that of all ranks' rows if it has its own. */
srt_status_t srt_run_whole_grad_out(const srt_run_t *run, const srt_node_t *node, srt_view_t *dy);

/* The gradients of a norm's parameters over its own rows, (vectors,n) in fp32, for a layer with
 * SRT_SUM_PARAM: bytes of the backward scratch; x and dy, widened there; and the sums over the
 * ranks, stored as those of the parameters that take gradients. */
size_t srt_tape_row_params_nbytes(srt_tape_t *tape, const srt_tensor_t *x, int nvectors);
srt_status_t srt_run_widen_rows(const srt_run_t *run, const srt_node_t *node, int nvectors,
				srt_view_t *x, srt_view_t *dy);
srt_status_t srt_run_add_row_params(const srt_run_t *run, const srt_node_t *node, int nvectors,
				    const srt_view_t *grads, const int *accumulate);

/* ---- tape_sums.c ------------------------------------------------------------------------ */

/* Compares the sums of the tensor-parallel ranks and creates their collectives. Collective over
 * them. */
srt_status_t srt_tape_create_sums(srt_tape_t *tape);
void srt_tape_destroy_sums(srt_tape_t *tape);

/* Sums what the node's layer has made; nothing for a layer without sums. */
srt_status_t srt_run_sum_output(const srt_run_t *run, const srt_node_t *node);
srt_status_t srt_run_sum_gradient(const srt_run_t *run, const srt_node_t *node);
/* Sums what the node adds to the gradient of parameter 0. Called by layers. */
srt_status_t srt_run_sum_param(const srt_run_t *run, const srt_node_t *node);
/* Sums the first part of all ranks. Called by srt_run_add_parts(). */
srt_status_t srt_run_sum_parts(const srt_run_t *run, const srt_node_t *node);
/* This rank's rows of the sum of a layer that cuts rows. */
srt_view_t srt_run_own_sum(const srt_run_t *run, const srt_node_t *node, srt_dtype_t dtype);

/* Statistics of this rank's parts, and of all parts, (parts, 3 * stats_rows); SRT_F32. */
srt_view_t srt_run_stats(const srt_run_t *run, const srt_node_t *node);
srt_view_t srt_run_all_stats(const srt_run_t *run, const srt_node_t *node);
/* Gathers them. Called by layers. */
srt_status_t srt_run_gather_stats(const srt_run_t *run, const srt_node_t *node);

/* Gathers input 0, or the gradient of the output, of all ranks as (nranks, rows, n) at the start of
 * the scratch of the pass that runs. Called by layers. */
srt_status_t srt_run_gather_input(const srt_run_t *run, const srt_node_t *node);
srt_status_t srt_run_gather_grad_out(const srt_run_t *run, const srt_node_t *node);

/* ---- layer_loss.c ----------------------------------------------------------------------- */

/* Makes the statistics of own->nparts parts of `chunk` columns each, the last ones shorter, of the
 * logits own->x, which are the columns own->part. Of `own` are set rows, x, target, part, nparts,
 * stride and stats. */
srt_status_t srt_loss_make_stats(const srt_loss_t *own, int64_t chunk, srt_stream_t *stream);

/* Makes the statistics of a cross-entropy over this rank's columns x of logits, `rows` of them and
 * at most stats_rows, and gathers those of all ranks. */
srt_status_t srt_run_vocab_stats(const srt_run_t *run, const srt_node_t *node, srt_view_t x,
				 srt_view_t targets, int64_t rows);
/* Sets the statistics of all parts. */
void srt_run_set_stats(const srt_run_t *run, const srt_node_t *node, srt_loss_t *loss);

/* ---- between tape.c and tape_plan.c ------------------------------------------------------ */

/* Whether values of a dtype are floats that layers compute with. */
int srt_is_float(srt_dtype_t dtype);
/* A new block that lives at one time; SRT_NO_BLOCK for 0 bytes. */
int srt_tape_block(srt_tape_t *tape, size_t nbytes, int time);
/* Lifetimes, gradients, offsets: everything from the recorded nodes. */
srt_status_t srt_tape_plan(srt_tape_t *tape);

#endif
