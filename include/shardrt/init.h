/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Initial distributions of parameters, and those that modules of PyTorch have by default.
 *
 * An srt_init_t describes a distribution; srt_param_init() fills a parameter with it. The other
 * functions are pure: they compute a description from shapes, in double, as torch.nn.init does.
 * They may be called before anything is declared, from any thread.
 */
#ifndef SHARDRT_INIT_H
#define SHARDRT_INIT_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/device.h>
#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Kind of a distribution. */
typedef enum srt_init_kind {
	SRT_INIT_CONSTANT, /* value */
	SRT_INIT_NORMAL,   /* mean + std * N(0,1) */
	SRT_INIT_UNIFORM,  /* low + (high - low) * U[0,1): at least low, below high */
} srt_init_kind_t;

/** A distribution. Numbers that its kind does not name are ignored. Does not grow. */
typedef struct srt_init {
	srt_init_kind_t kind;
	int has_zero_row; /* 1: row `zero_row` of dimension 0 is zero, as the padding_idx of
			     torch.nn.Embedding */
	double value;
	double mean, std;
	double low, high;
	int64_t zero_row;
} srt_init_t;

/**
 * Fills a parameter. The numbers of the distribution are rounded to fp32 first. Philox keyed by
 * (seed, name, element): the values do not depend on the sharding (srt_op_normal(),
 * srt_op_uniform()). Every rank must call it. Local, asynchronous.
 * @param seed ignored for a constant.
 * @return SRT_ERR_INVALID_ARGUMENT for an unknown kind, a negative std, numbers that are not finite
 *         (a constant may be), a low above high, a range without a value of the parameter's dtype,
 *         or a zero_row outside of the parameter; SRT_ERR_STATE before srt_engine_build() or while
 *         its unit is in use.
 */
SRT_API srt_status_t srt_param_init(srt_param_t *param, uint64_t seed, const srt_init_t *init,
				    srt_stream_t *stream);

/* ---- torch.nn.init --------------------------------------------------------------------- */

/**
 * kaiming_uniform_(a): uniform in +-sqrt(3) * gain / sqrt(fan_in), gain = sqrt(2 / (1 + a^2)).
 * fan_in is the number of elements of a row of dimension 0.
 * @param shape ndim sizes in elements, not negative.
 * @return SRT_ERR_INVALID_ARGUMENT for a shape of fewer than two dimensions or more than
 *         SRT_MAX_DIMS, or a size that is negative.
 */
SRT_API srt_status_t srt_init_kaiming_uniform(int ndim, const int64_t *shape, double a,
					      srt_init_t *init);

/**
 * xavier_uniform_(gain): uniform in +-sqrt(3) * gain * sqrt(2 / (fan_in + fan_out)). fan_out is the
 * number of elements of the tensor for each index of dimension 1. The rest as
 * srt_init_kaiming_uniform().
 */
SRT_API srt_status_t srt_init_xavier_uniform(int ndim, const int64_t *shape, double gain,
					     srt_init_t *init);

/** xavier_normal_(gain): mean 0, std gain * sqrt(2 / (fan_in + fan_out)). The rest as
 * srt_init_xavier_uniform(). */
SRT_API srt_status_t srt_init_xavier_normal(int ndim, const int64_t *shape, double gain,
					    srt_init_t *init);

/**
 * The bias of a Linear layer: uniform in +-1 / sqrt(fan_in), 0 without inputs.
 * @param fan_in number of inputs, which the shape of a bias does not have.
 * @return SRT_ERR_INVALID_ARGUMENT for a negative number.
 */
SRT_API srt_status_t srt_init_linear_bias(int64_t fan_in, srt_init_t *init);

/* ---- the defaults of torch.nn's modules ------------------------------------------------ */

/** A parameter or buffer of a module of PyTorch. */
typedef struct srt_init_query {
	size_t size;      /* sizeof(srt_init_query_t) */
	const char *kind; /* class of the module, e.g. "Linear" */
	const char *name; /* within the module, e.g. "weight" or "self_attn.out_proj.bias" */
	int ndim;         /* 0 .. SRT_MAX_DIMS */
	const int64_t *shape;
	int64_t fan_in;  /* for a bias of a Linear: the number of its inputs; else ignored */
	int has_padding; /* 1: for the weight of an Embedding: padding_idx is set */
	int64_t padding_idx;
} srt_init_query_t;

/** Without kind, name and shape. */
#define SRT_INIT_QUERY_INIT                                                                        \
	{                                                                                          \
		.size = sizeof(srt_init_query_t)                                                   \
	}

/**
 * The distribution that the constructor of a module leaves in a parameter or buffer: what the
 * module that has it draws, then what the modules around it draw again. A module named Transformer
 * so redraws all weights in it by xavier_uniform_.
 *
 * Kinds: Linear, Embedding, LayerNorm, BatchNorm1d, MultiheadAttention, TransformerEncoderLayer,
 * TransformerDecoderLayer, TransformerEncoder, TransformerDecoder, Transformer.
 * @return SRT_ERR_NOT_FOUND for another kind, with the list of these, or for a name that the kind
 *         does not have, with the list of its names; SRT_ERR_INVALID_ARGUMENT for a shape that the
 *         distribution is not defined for.
 */
SRT_API srt_status_t srt_init_default(const srt_init_query_t *query, srt_init_t *init);

#ifdef __cplusplus
}
#endif
#endif
