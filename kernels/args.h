/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Argument structs of the portable kernels, read by all three compilers: fixed-width types, widest
 * first, filled up by `reserved` so that no compiler adds padding (table.c asserts the sizes).
 * Filled by the launchers of runtime/ops/; sizes are in elements. The grid of a launch follows from
 * its struct: srt_kernel_grid().
 */
#ifndef SRT_KERNELS_ARGS_H
#define SRT_KERNELS_ARGS_H

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
#define SRT_K_OPENCL 1
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
#else
#include <stdint.h>
#endif

#define SRT_K_LANES 64              /* of every kernel; part of the results of row sums */
#define SRT_K_ELEMENTS 2048         /* elements of one group of an elementwise kernel */
#define SRT_K_REDUCE_ELEMENTS 16384 /* elements of one group of absmax and bin_sum */
#define SRT_K_MATMUL_KB 512         /* a chain of the matrix product restarts at its multiples */
#define SRT_K_ROW_BLOCK 128         /* rows of one chain in sums over rows */
#define SRT_K_COLUMN_PARTS 4        /* CUDA blocks of one group of sums over rows */
#define SRT_K_EMBED_COLUMNS 512     /* columns of one group of embedding_backward */
#define SRT_K_EMBED_BUCKETS 1024    /* a group of it owns every 1024th row; a power of two */
#define SRT_K_MAX_RANKS 8           /* inputs of reduce_ranks */
#define SRT_K_MAX_PARTS 8           /* inputs of sum_parts */
#define SRT_K_QUANT_BLOCK 64        /* columns of 8-bit codes that share a scale */
#define SRT_K_CODE_BLOCK 256        /* adam8: most elements of a block, which has one absmax */
#define SRT_K_CODE_BLOCKS 8         /* blocks of one group of adam8 */
#define SRT_K_COO_DIMS 4            /* most dimensions of the indices of coo_* */

/* fill (value), scale (value), divide (value), axpy (value), cast_from_*, accumulate_*, add, relu*,
 * gelu_tanh*, unscale (value), clip (max_norm), activation.k (softcap*: value), batchnorm_rstd
 * (eps) */
typedef struct srt_k_elem {
	int64_t nelem;
	float value;
	int32_t reserved;
} srt_k_elem_t;

/* reduce_ranks, reduce_partial, reduce_finish */
typedef struct srt_k_reduce_ranks {
	int64_t nelem;
	int32_t nranks;     /* 1..SRT_K_MAX_RANKS inputs, places 1..nranks */
	float divisor;      /* the sum is divided by it; 0 = not */
	int32_t accumulate; /* 1: added onto the destination */
	float predivisor;   /* each input is divided by it before the sum; 0 = not */
	int32_t is_f32;     /* reduce_finish: the destination is floats, whatever T is */
	int32_t reserved;
} srt_k_reduce_ranks_t;

typedef struct srt_k_sum_parts {
	int64_t rows, n;
	int64_t stride;     /* from a part after the first one to the next */
	int32_t nparts;     /* 1..SRT_K_MAX_PARTS */
	int32_t accumulate; /* 1: added onto the destination */
} srt_k_sum_parts_t;

/* bias_backward, layernorm*, rmsnorm*, batchnorm, batchnorm_backward*, softmax*, log_softmax*,
 * cross_entropy, mse, sum_loss */
typedef struct srt_k_rows {
	int64_t rows, n;
	float value;         /* layernorm, rmsnorm: eps; cross_entropy, mse, sum_loss: grad_scale */
	int32_t accumulate;  /* onto the (first) output */
	int32_t accumulate2; /* onto the second output: dbeta */
	int32_t ld;          /* cross_entropy: from a row of x and dx to the next; 0: n */
	int32_t one_plus;    /* rmsnorm, rmsnorm_backward: the weight is 1 + gamma */
	int32_t reserved;
} srt_k_rows_t;

/* glu_*: rows of y and dy are n apart */
typedef struct srt_k_glu {
	int64_t rows, n;
	int64_t ldg, ldu, lddg, lddu; /* from a row of g, u, dg, du to the next */
	int32_t add_dg, add_du;       /* 1: added onto the output */
} srt_k_glu_t;

typedef struct srt_k_rotary {
	int64_t rows, heads, head_dim;
	int64_t dim;        /* rotated values of a head, the first ones; even */
	int64_t ldx, ldy;   /* from a row to the next */
	int64_t npositions; /* rows of the tables */
	int64_t copied;     /* last heads of a row, which are not rotated */
	int32_t backward;   /* 1: by the opposite angle */
	int32_t accumulate;
} srt_k_rotary_t;

typedef struct srt_k_quantize {
	int64_t rows, n;
} srt_k_quantize_t;

/* batchnorm_stats */
typedef struct srt_k_batchnorm {
	int64_t rows, n;
	float eps;
	float momentum; /* weight of the new statistics */
} srt_k_batchnorm_t;

/* embedding, embedding_backward, position_backward */
typedef struct srt_k_embedding {
	int64_t rows, n;
	int64_t vocab;         /* rows of this table */
	int64_t before, after; /* rows of the parts before and after it, of a table that is cut */
	int64_t context;
	int32_t accumulate;
	int32_t padding; /* embedding_backward: 1 + the id without a gradient; 0 = none */
} srt_k_embedding_t;

typedef struct srt_k_index_copy {
	int64_t rows, n;
	int64_t yrows;    /* rows of y */
	int64_t ldx, ldy; /* from a row to the next */
} srt_k_index_copy_t;

/* cross_entropy_part, cross_entropy_merge */
typedef struct srt_k_vocab {
	int64_t rows, n;
	int64_t first;  /* column of the whole logits that is the first one here */
	int64_t vocab;  /* columns of the whole logits */
	int64_t stride; /* between the statistics of two parts */
	int64_t ld;     /* from a row of x and dx to the next; 0: n */
	int32_t nparts;
	float value; /* grad_scale */
} srt_k_vocab_t;

typedef struct srt_k_matmul {
	int64_t m, n, k;
	int64_t batch; /* at least 1 here */
	int64_t lda, ldb, ldc;
	int64_t stride_a, stride_b, stride_c;
	float alpha; /* 1 = none; the launcher turns 0 into 1 */
	int32_t trans_a, trans_b;
	int32_t accumulate;
	int32_t c_is_f32; /* whatever T is */
	int32_t reserved;
} srt_k_matmul_t;

/* Heads of queries that share a head of keys. */
#define SRT_K_ATTENTION_GROUP 127

/* attention, attention_backward_* */
typedef struct srt_k_attention {
	int64_t batch, queries, keys, heads, head_dim;
	int64_t kv_heads; /* divides heads; one of it for at most SRT_K_ATTENTION_GROUP of them */
	int64_t offset;   /* of the queries among the keys, 0 to keys */
	int64_t ldq, ldk, ldv; /* between rows of q, k, v */
	int64_t lddq, lddk, lddv;
	float scale;
	int32_t causal;
} srt_k_attention_t;

/* copy_strided: outermost dimension first, 1 with strides of 0 where there are fewer; no size is 0.
 * A group has a tile of the last two. */
typedef struct srt_k_strided {
	int64_t size[5], stride_y[5], stride_x[5];
	int64_t tile_rows, tile_columns;
	int32_t nbytes; /* of an element: 1, 2, 4 or 8 */
	int32_t reserved;
} srt_k_strided_t;

typedef struct srt_k_normal {
	uint64_t seed;
	uint64_t name; /* srt_kernel_name_hash() */
	int64_t first; /* global number of the first element */
	int64_t nelem;
	float mean, std;
} srt_k_normal_t;

typedef struct srt_k_uniform {
	uint64_t seed;
	uint64_t name; /* srt_kernel_name_hash() */
	int64_t first; /* global number of the first element */
	int64_t nelem;
	float low, range;  /* low + range * u, with u in [0, 1), */
	float least, most; /* limited to values of the dtype in [low, high) */
} srt_k_uniform_t;

typedef struct srt_k_dropout {
	uint64_t seed;
	uint64_t name; /* srt_kernel_name_hash() */
	int64_t first; /* global number of the first element */
	int64_t nelem;
	float rate;
	float scale; /* 1 / (1 - rate); 0 where nothing is kept */
} srt_k_dropout_t;

typedef struct srt_k_bins {
	int64_t nelem;       /* absmax, bin_sum: of this part; bin_total: pairs of bins */
	int64_t total_nelem; /* bin_sum: of all parts of all ranks */
	int32_t power;       /* 1, 2, 3 */
	int32_t flag;        /* bin_sum: is_signed; bin_total: root */
} srt_k_bins_t;

typedef struct srt_k_step {
	int64_t nparams;
	float beta1_hi, beta1_lo; /* beta1 = hi + lo: srt_kernel_split() */
	float beta2_hi, beta2_lo;
	float max_norm;
	int32_t reserved;
} srt_k_step_t;

typedef struct srt_k_sgd {
	int64_t nelem, nsegments;
	float momentum;
	float undampened; /* 1 - dampening */
	int32_t nesterov;
	int32_t maximize;
	int32_t grad_is_f32; /* sgd_master: gradients are floats, whatever T is */
	int32_t reserved;
} srt_k_sgd_t;

typedef struct srt_k_adam {
	int64_t nelem; /* adam8: blocks */
	int64_t nsegments;
	float beta2;
	float weight1, weight2; /* 1 - beta1, 1 - beta2, subtracted in double */
	float eps;
	int32_t decoupled;
	int32_t maximize;
	int32_t grad_is_f32;  /* adam_master, adam8: as in srt_k_sgd_t */
	int32_t param_is_f32; /* adam8: so are the parameters */
} srt_k_adam_t;

/* muon_update, muon_step */
typedef struct srt_k_muon {
	int64_t nelem, nsegments;
	float momentum;
	float weight; /* 1 - momentum */
	float ratio;  /* factor of the learning rate by the matrix's shape */
	int32_t nesterov;
} srt_k_muon_t;

/* coo_*: entries in coordinate form; indices (ndim, nnz), values (nnz, block) */
typedef struct srt_k_coo {
	int64_t nnz;
	int64_t block;
	int64_t width; /* coo_merge: of the runs that are sorted */
	int64_t shape[SRT_K_COO_DIMS];
	int32_t ndim;
	int32_t wide;       /* 1: indices have 64 bits, 0: 32 */
	int32_t round_each; /* coo_sum: every addition is rounded to the values' type */
	int32_t reserved;
} srt_k_coo_t;

typedef struct srt_k_scale_loss {
	int64_t nelem;
	float scale;    /* if there is no state */
	int32_t is_f32; /* y is floats, whatever T is */
} srt_k_scale_loss_t;

typedef struct srt_k_scaler {
	int64_t growth, backoff; /* the factors: bits of doubles */
	int32_t interval;
	int32_t is_sharded; /* the rule: SRT_SCALER_SHARDED */
} srt_k_scaler_t;

/* srt_schedule_t; table.c asserts that they agree. */
#define SRT_K_SCHEDULE_COSINE 0
#define SRT_K_SCHEDULE_LINEAR 1
#define SRT_K_SCHEDULE_STABLE 2
#define SRT_K_SCHEDULE_CONSTANT 3

/* The step state of a group of parameters, or of a loss scaler. All fields have 4 bytes. */
typedef struct srt_k_step_state {
	int32_t step;           /* real steps done, the current one included */
	float lr;               /* of this step */
	float scale;            /* loss scale */
	float inv_scale;        /* 1/scale */
	float found_inf;        /* non-zero: skip the step */
	float clip_coef;        /* the optimizers multiply gradients by it */
	float grad_norm;        /* of the last step, before clipping; not finite if a gradient is
				 * not, or by overflow */
	float base_lr;          /* schedule: peak */
	float min_lr;           /* schedule: at the end */
	int32_t warmup;         /* schedule: steps of linear warm-up; 0 = none */
	int32_t lr_steps;       /* schedule: steps of the whole; 0 = constant base_lr */
	int32_t schedule;       /* srt_schedule_t */
	int32_t decay_steps;    /* SRT_SCHEDULE_STABLE: steps of the way down, the last ones */
	int32_t skipped;        /* steps that found_inf has skipped */
	int32_t growth_tracker; /* of a loss scaler: clean steps since the scale last changed */
	float clipped_by;       /* what srt_op_clip() last multiplied gradients by, in place */
} srt_k_step_state_t;

/* The step state of a parameter. */
typedef struct srt_k_param_state {
	int32_t used; /* 0: no rank has a gradient; the parameter is left alone in this step */
	int32_t step; /* real steps of this parameter (as torch counts) */
	float bias1;  /* 1 - beta1^step, rounded once (a float power would lose its digits) */
	float bias2;  /* 1 - beta2^step */
} srt_k_param_state_t;

/* A run of elements in the flat buffers that belongs to one parameter. */
typedef struct srt_k_segment {
	int64_t offset; /* elements from the start of the flat buffers */
	int64_t nelem;
	int32_t group; /* index into the group table */
	int32_t param; /* index into the parameter states */
} srt_k_segment_t;

/* A segment of adam8: whole rows, cut into blocks of up to SRT_K_CODE_BLOCK elements from where
 * each row begins. */
typedef struct srt_k_segment8 {
	int64_t offset;       /* elements from the start of the values, gradients and copies */
	int64_t row;          /* elements of a row */
	int64_t block;        /* number of its first block among those of the launch; they rise */
	int64_t state;        /* bytes from the start of m and v to its codes, or floats */
	int64_t absmax;       /* pairs (of m, of v) before its own; -1: m and v are floats */
	int32_t group, param; /* as in srt_k_segment_t */
} srt_k_segment8_t;

/* Hyper-parameters of parameters that have them in common. */
typedef struct srt_k_group {
	float lr_scale; /* learning rate: state.lr * lr_scale */
	float weight_decay;
} srt_k_group_t;

#endif
