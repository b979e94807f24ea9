/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of a tape, for models/tape*.c and models/layer_*.c only.
 *
 * Time runs from 0: node i of N runs forward at i and backward at 2N-1-i; 2N is after both. Every
 * piece of memory is a block with the first and last time at which it holds something; two
 * blocks share bytes of the arena only if these intervals do not meet.
 */
#ifndef SRT_MODELS_TAPE_IMPL_H
#define SRT_MODELS_TAPE_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "models/layers.h"
#include "models/tape.h"
#include "models/try.h"

enum {
	SRT_NODE_INPUTS = 5,
	SRT_NODE_PARAMS = 2,
	SRT_NODE_SAVED = 2,
	SRT_NO_BLOCK = -1,
};

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
	int nuses;
	int keep;
	int needs_grad;
	int value;               /* block */
	int grad;                /* block of the complete gradient, once planned */
	struct srt_tensor *next; /* of the tape's list */
};

/* One pass. */
typedef struct srt_run {
	srt_tape_t *tape;
	srt_stream_t *stream;
	srt_buffer_t *arena;
	float grad_scale;
	int training;
} srt_run_t;

/* A kind of layer. */
typedef struct srt_layer {
	const char *name;
	unsigned keeps_in;  /* bit j: backward reads the value of input j */
	int keeps_out;      /* backward reads the value of the output */
	int is_loss;        /* backward starts here, without a gradient of the output */
	int adds;           /* backward can add onto the gradient of input 0 (SRT_TO_ADD) */
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

/* Constants of the layers that have some. */
typedef struct srt_node_args {
	srt_attention_t attention;
	float eps;
	int64_t context;
	int64_t padding;
	int64_t chunk_rows;
	const int64_t *row;
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
	size_t saved_nbytes[SRT_NODE_SAVED]; /* made by forward, read by backward */
	size_t forward_scratch, backward_scratch;
	srt_node_args_t args;

	srt_unit_t *unit; /* of a boundary */
	int is_begin;

	/* the plan */
	int saved[SRT_NODE_SAVED], scratch_forward, scratch_backward; /* blocks */
	int grad_out;                                                 /* block */
	int has_backward;
	srt_grad_to_t to[SRT_NODE_INPUTS];
};

struct srt_tape {
	srt_device_t *device;
	srt_tape_mode_t mode;
	srt_node_t *nodes;
	int nnodes, nodes_room;
	srt_block_t *blocks;
	int nblocks, blocks_room;
	srt_tensor_t *tensors;
	int open_units;
	int finished;
	size_t nbytes;
	size_t scratch_nbytes; /* of the stream that it runs on */
	srt_buffer_t *arena;
	srt_status_t status;
	char error[256];
};

/* Remembers the first failure; the message is printf-like, or NULL to take srt_last_error(). */
srt_status_t srt_tape_fail(srt_tape_t *tape, srt_status_t status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- recording, for layers -------------------------------------------------------------- */

/* A description of the node to record; zero-initialise, set what the layer has. */
typedef struct srt_node_desc {
	const srt_layer_t *layer;
	srt_tensor_t *in[SRT_NODE_INPUTS];
	srt_param_t *param[SRT_NODE_PARAMS];
	int64_t rows, n; /* of the output, SRT_F32 */
	size_t saved_nbytes[SRT_NODE_SAVED];
	size_t forward_scratch, backward_scratch;
	srt_node_args_t args;
} srt_node_desc_t;

/* Records the node and makes its output; NULL after a failure. */
srt_tensor_t *srt_tape_record(srt_tape_t *tape, const srt_node_desc_t *desc);

/* Whether a layer may go on: the tape is good and the tensor is there. */
int srt_tape_usable(srt_tape_t *tape, const srt_tensor_t *x);

/* Checks a parameter's shape: ndim dimensions of the given sizes, -1 = any. */
int srt_tape_param_is(srt_tape_t *tape, const char *layer, const srt_param_t *param, int ndim,
		      int64_t d0, int64_t d1);

/* Bytes of rows * n floats; fails the tape on overflow. */
size_t srt_tape_f32_nbytes(srt_tape_t *tape, int64_t rows, int64_t n);

/* ---- running, for layers ---------------------------------------------------------------- */

/* View of a block. */
srt_view_t srt_run_block(const srt_run_t *run, int block, srt_dtype_t dtype);
/* Value of a tensor. */
srt_view_t srt_run_value(const srt_run_t *run, const srt_tensor_t *tensor);
/* Gradient of the node's output. */
srt_view_t srt_run_grad_out(const srt_run_t *run, const srt_node_t *node);
/* Saved value k of the node. */
srt_view_t srt_run_saved(const srt_run_t *run, const srt_node_t *node, int k);
/* Gathered value of the node's parameter k; buffer NULL if the node has none. */
srt_status_t srt_run_param(const srt_run_t *run, const srt_node_t *node, int k, srt_view_t *view);

/* The memory for the gradient of input j, and whether the layer adds to it. 0: no gradient. */
int srt_run_grad_in(const srt_run_t *run, const srt_node_t *node, int j, srt_view_t *view,
		    int *accumulate);

/* The memory for the gradient of parameter k; view->buffer NULL if it is absent or frozen. */
srt_status_t srt_run_param_grad(const srt_run_t *run, const srt_node_t *node, int k,
				srt_view_t *view, int *accumulate);
/* To be called when that gradient is queued; does nothing if it is absent or frozen. */
srt_status_t srt_run_param_ready(const srt_node_t *node, int k);

/* ---- between tape.c and tape_plan.c ------------------------------------------------------ */

/* A new block that lives at one time; SRT_NO_BLOCK for 0 bytes. */
int srt_tape_block(srt_tape_t *tape, size_t nbytes, int time);
/* Lifetimes, gradients, offsets: everything from the recorded nodes. */
srt_status_t srt_tape_plan(srt_tape_t *tape);

#endif
