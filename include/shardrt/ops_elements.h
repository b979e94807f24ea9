/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on single elements: arithmetic, activations, copies between layouts, weights in 8
 * bits, random numbers. The rules of all operations are in <shardrt/ops.h>.
 */
#ifndef SHARDRT_OPS_ELEMENTS_H
#define SHARDRT_OPS_ELEMENTS_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/device.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise ---------------------------------------------------------------------- */

/** y[i] = value. */
SRT_API srt_status_t srt_op_fill(srt_view_t y, float value, int64_t nelem, srt_stream_t *stream);
/** y[i] = a * x[i]; in place allowed. */
SRT_API srt_status_t srt_op_scale(srt_view_t y, srt_view_t x, float a, int64_t nelem,
				  srt_stream_t *stream);
/** y[i] = x[i] / a, one IEEE division; in place allowed. */
SRT_API srt_status_t srt_op_divide(srt_view_t y, srt_view_t x, float a, int64_t nelem,
				   srt_stream_t *stream);
/** y[i] = a * x[i] + y[i], fused: one rounding; x may be y. */
SRT_API srt_status_t srt_op_axpy(srt_view_t y, srt_view_t x, float a, int64_t nelem,
				 srt_stream_t *stream);
/** y[i] = x[i] between any two of SRT_F32, SRT_F16 and SRT_BF16: exact where y is wider, else one
 * rounding to nearest even; too large becomes infinite, NaN stays NaN. Not in place. */
SRT_API srt_status_t srt_op_cast(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream);
/** y[i] = y[i] + x[i] with x[i] rounded to y's dtype first, and the sum rounded to it: the bits of
 * srt_op_cast() and srt_op_add(). Any two of SRT_F32, SRT_F16 and SRT_BF16; x is not y. */
SRT_API srt_status_t srt_op_accumulate(srt_view_t y, srt_view_t x, int64_t nelem,
				       srt_stream_t *stream);
/** y[i] = a[i] + b[i]; y may be a or b. */
SRT_API srt_status_t srt_op_add(srt_view_t y, srt_view_t a, srt_view_t b, int64_t nelem,
				srt_stream_t *stream);
/** y[i] = a[i] * b[i]; y may be a or b. The gradients are da = dy * b and db = dy * a. */
SRT_API srt_status_t srt_op_mul(srt_view_t y, srt_view_t a, srt_view_t b, int64_t nelem,
				srt_stream_t *stream);
/** y[i] = max(x[i], 0), NaN stays; in place allowed. */
SRT_API srt_status_t srt_op_relu(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream);
/** dx[i] = y[i] > 0 ? dy[i] : 0, with y = relu(x); dx may be dy. */
SRT_API srt_status_t srt_op_relu_backward(srt_view_t dx, srt_view_t dy, srt_view_t y, int64_t nelem,
					  srt_stream_t *stream);
/** y[i] = gelu(x[i]), tanh form: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))). */
SRT_API srt_status_t srt_op_gelu_tanh(srt_view_t y, srt_view_t x, int64_t nelem,
				      srt_stream_t *stream);
/** dx[i] = dy[i] * gelu'(x[i]); dx may be dy. */
SRT_API srt_status_t srt_op_gelu_tanh_backward(srt_view_t dx, srt_view_t dy, srt_view_t x,
					       int64_t nelem, srt_stream_t *stream);

/** y[i] = tanh(x[i]); in place allowed. */
SRT_API srt_status_t srt_op_tanh(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream);
/** dx[i] = dy[i] * (1 - y[i]^2), with y = tanh(x); dx may be dy. */
SRT_API srt_status_t srt_op_tanh_backward(srt_view_t dx, srt_view_t dy, srt_view_t y, int64_t nelem,
					  srt_stream_t *stream);
/** y[i] = 1 / (1 + exp(-x[i])); in place allowed. */
SRT_API srt_status_t srt_op_sigmoid(srt_view_t y, srt_view_t x, int64_t nelem,
				    srt_stream_t *stream);
/** dx[i] = dy[i] * y[i] * (1 - y[i]), with y = sigmoid(x); dx may be dy. */
SRT_API srt_status_t srt_op_sigmoid_backward(srt_view_t dx, srt_view_t dy, srt_view_t y,
					     int64_t nelem, srt_stream_t *stream);
/** y[i] = x[i] * sigmoid(x[i]); in place allowed. */
SRT_API srt_status_t srt_op_silu(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream);
/** dx[i] = dy[i] * silu'(x[i]); dx may be dy. */
SRT_API srt_status_t srt_op_silu_backward(srt_view_t dx, srt_view_t dy, srt_view_t x, int64_t nelem,
					  srt_stream_t *stream);
/** y[i] = gelu(x[i]), exact form: x/2 * (1 + erf(x / sqrt(2))); in place allowed. */
SRT_API srt_status_t srt_op_gelu_erf(srt_view_t y, srt_view_t x, int64_t nelem,
				     srt_stream_t *stream);
/** dx[i] = dy[i] * gelu'(x[i]) of the exact form; dx may be dy. */
SRT_API srt_status_t srt_op_gelu_erf_backward(srt_view_t dx, srt_view_t dy, srt_view_t x,
					      int64_t nelem, srt_stream_t *stream);

/** y[i] = cap * tanh(x[i] / cap), between -cap and cap; in place allowed. cap is above 0. */
SRT_API srt_status_t srt_op_softcap(srt_view_t y, srt_view_t x, float cap, int64_t nelem,
				    srt_stream_t *stream);
/** dx[i] = dy[i] * (1 - (y[i] / cap)^2), with y = softcap(x); dx may be dy. */
SRT_API srt_status_t srt_op_softcap_backward(srt_view_t dx, srt_view_t dy, srt_view_t y, float cap,
					     int64_t nelem, srt_stream_t *stream);

/* ---- gated activations ------------------------------------------------------------------ */

/** The activation of a gate: srt_op_silu(), srt_op_gelu_tanh() or srt_op_gelu_erf(). */
typedef enum srt_glu { SRT_GLU_SILU, SRT_GLU_GELU_TANH, SRT_GLU_GELU_ERF } srt_glu_t;

/** The sizes and tensors of a gated activation. A pass uses some of the tensors; the others may be
 * absent. */
typedef struct srt_gated {
	size_t size; /* set by SRT_GATED_INIT */
	srt_glu_t act;
	int64_t rows, n;
	/* Elements from a row of g, u, dg, du to the next, n <= ld < 2^31; 0: n. What lies between
	 * rows is neither read nor written, so g and u may lie in one packed row, and dg and du. */
	int64_t ldg, ldu, lddg, lddu;
	srt_view_t g, u;   /* (rows,n): the gate, and what it multiplies */
	srt_view_t y, dy;  /* (rows,n), dense */
	srt_view_t dg, du; /* (rows,n) */
	int accumulate_dg, accumulate_du;
} srt_gated_t;

/** SRT_GLU_SILU; the other defaults are zero. */
#define SRT_GATED_INIT                                                                             \
	{                                                                                          \
		.size = sizeof(srt_gated_t)                                                        \
	}

/** y = act(g) * u, rounded once; y may be g or u. */
SRT_API srt_status_t srt_op_glu(const srt_gated_t *args, srt_stream_t *stream);
/** dg = dy * u * act'(g) and du = dy * act(g) from dy, g and u. An output may be an input. */
SRT_API srt_status_t srt_op_glu_backward(const srt_gated_t *args, srt_stream_t *stream);

/* ---- copies --------------------------------------------------------------------------- */

/** Most dimensions of a strided copy. */
#define SRT_STRIDED_MAX_DIMS 5

/** Two views of one shape: element (i,j,...) of y is at i * stride_y[0] + j * stride_y[1] + ... A
 * value, which does not grow. */
typedef struct srt_strided {
	int ndim; /* 0..SRT_STRIDED_MAX_DIMS; 0 = one element */
	int64_t size[SRT_STRIDED_MAX_DIMS];
	int64_t stride_y[SRT_STRIDED_MAX_DIMS]; /* in elements; none may be negative */
	int64_t stride_x[SRT_STRIDED_MAX_DIMS]; /* as stride_y; 0 repeats an element */
} srt_strided_t;

/**
 * y = x for all indices of the shape: slices, transposes, permutations, repetitions, bit for bit.
 * Any dtype of whole bytes, the same for both. Bytes between y's elements do not change. y's
 * elements must not overlap: each stride is larger than the extent of all smaller ones. y and x may
 * share a buffer if one begins after the other's last element, or if their largest strides are
 * equal and their rows of that stride do not overlap.
 */
SRT_API srt_status_t srt_op_copy_strided(srt_view_t y, srt_view_t x, const srt_strided_t *shape,
					 srt_stream_t *stream);

/* ---- weights in 8 bits ----------------------------------------------------------------- */

/** Columns of a row that share a scale. */
#define SRT_QUANT_BLOCK 64

/**
 * Rounds a matrix to 8 bits: by row and block of SRT_QUANT_BLOCK columns, the last of a row may be
 * shorter, scale = max |x| / 127 and code = x / scale, to nearest even, between -127 and 127; both
 * are 0 for a block of zeros. In host memory; local; thread-safe. The same bits everywhere.
 * @param x (rows,n).
 * @param[out] codes (rows,n). @param[out] scales (rows,ceil(n / SRT_QUANT_BLOCK)).
 * @return SRT_ERR_INVALID_ARGUMENT for negative sizes, NULL, or a value that is not finite; codes
 *         and scales are then undefined.
 */
SRT_API srt_status_t srt_quantize(const float *x, int64_t rows, int64_t n, int8_t *codes,
				  float *scales);
/** y (rows,n) = code * scale of its block, rounded once: what srt_quantize() made.
 * @param codes SRT_U8, the bytes of its codes. @param scales SRT_F32. */
SRT_API srt_status_t srt_op_dequantize(srt_view_t y, srt_view_t codes, srt_view_t scales,
				       int64_t rows, int64_t n, srt_stream_t *stream);

/* ---- random numbers -------------------------------------------------------------------- */

/** The elements of a tensor, or of a part of it, that get normally distributed numbers. */
typedef struct srt_normal {
	size_t size;      /* set by SRT_NORMAL_INIT */
	srt_view_t y;     /* (nelem) */
	uint64_t seed;    /* seed, name and number of an element determine its value */
	const char *name; /* of the tensor */
	int64_t first;    /* number of y's first element in the tensor */
	int64_t nelem;
	float mean, std;
} srt_normal_t;

/** Mean 0, standard deviation 1. */
#define SRT_NORMAL_INIT                                                                            \
	{                                                                                          \
		.size = sizeof(srt_normal_t), .std = 1.0f                                          \
	}

/**
 * y[i] = mean + std * N(0,1), element first + i of the tensor called `name`. Philox 4x32-10 keyed
 * by (seed, name, global element): the same values however the tensor is sharded.
 */
SRT_API srt_status_t srt_op_normal(const srt_normal_t *args, srt_stream_t *stream);

/** The elements of a tensor, or of a part of it, that get uniformly distributed numbers. */
typedef struct srt_uniform {
	size_t size;      /* set by SRT_UNIFORM_INIT */
	srt_view_t y;     /* (nelem) */
	uint64_t seed;    /* seed, name and number of an element determine its value */
	const char *name; /* of the tensor */
	int64_t first;    /* number of y's first element in the tensor */
	int64_t nelem;
	float low, high;
} srt_uniform_t;

/** From 0 to below 1. */
#define SRT_UNIFORM_INIT                                                                           \
	{                                                                                          \
		.size = sizeof(srt_uniform_t), .high = 1.0f                                        \
	}

/**
 * y[i] = low + (high - low) * U[0,1), element first + i of the tensor called `name`, keyed as in
 * srt_op_normal(). Computed in fp32 and rounded to y's dtype; a result outside of [low, high) is
 * replaced by the nearest value of the dtype in that range. With low == high all elements are low,
 * rounded to the dtype.
 * @return SRT_ERR_INVALID_ARGUMENT for a low above high, for bounds or a difference of them that
 *         are not finite, and for a range low < high without a value of y's dtype.
 */
SRT_API srt_status_t srt_op_uniform(const srt_uniform_t *args, srt_stream_t *stream);

/** The elements of a tensor, or of a part of it, of which some are dropped. */
typedef struct srt_dropout {
	size_t size;      /* set by SRT_DROPOUT_INIT */
	srt_view_t x, y;  /* (nelem) */
	uint64_t seed;    /* seed, name and number of an element determine the choice */
	const char *name; /* of the tensor */
	int64_t first;    /* number of the first element in the tensor */
	int64_t nelem;
	float rate; /* 0 (keeps all elements) to 1 (keeps none) */
} srt_dropout_t;

/** The rate of torch.nn.Dropout. */
#define SRT_DROPOUT_INIT                                                                           \
	{                                                                                          \
		.size = sizeof(srt_dropout_t), .rate = 0.5f                                        \
	}

/**
 * y[i] = x[i] / (1 - rate) with probability 1 - rate, else +0 for any x[i]; in place allowed. The
 * choice depends on (seed, name, first + i) only, as in srt_op_normal(), so the gradient is the
 * same call on dy. Use another seed in each pass.
 */
SRT_API srt_status_t srt_op_dropout(const srt_dropout_t *args, srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
