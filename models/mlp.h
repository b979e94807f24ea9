/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small models without attention, one unit per child module and a root without parameters;
 * for recorded traces and tests. srt_engine_materialize() gives them PyTorch's initial values.
 *
 *     linear stack:  Linear layers named 0, 1, ... without activation
 *     unused:        b(relu(mid.lin1(relu(a(x))))), all (d,d); mid.lin2 is declared, never used
 */
#ifndef SRT_MODELS_MLP_H
#define SRT_MODELS_MLP_H

#include <shardrt/shardrt.h>

#include "models/model.h"
#include <shardrt/models/tape.h>

/** Most layers of a stack. */
#define SRT_MLP_MAX_LAYERS 16

/** A small model declared on an engine. Opaque. */
typedef struct srt_mlp srt_mlp_t;

/** Tensors of a recorded model. */
typedef struct srt_mlp_io {
	srt_tensor_t *x;      /* (rows, first dim), input */
	srt_tensor_t *target; /* (rows, last dim), input */
	srt_tensor_t *loss;   /* (rows,1) = sum of squares by row, kept */
} srt_mlp_io_t;

/** Declares a linear stack dims[0] -> dims[1] -> ... -> dims[ndims-1]. @param[out] mlp owned by
 * the caller. */
srt_status_t srt_mlp_declare_stack(srt_engine_t *engine, const int64_t *dims, int ndims, int bias,
				   const srt_model_options_t *options, srt_mlp_t **mlp);

/** Declares the `unused` model of width d. @param[out] mlp owned by the caller. */
srt_status_t srt_mlp_declare_unused(srt_engine_t *engine, int64_t d,
				    const srt_model_options_t *options, srt_mlp_t **mlp);

/** Frees the description, not the engine's parameters. NULL is allowed. */
void srt_mlp_destroy(srt_mlp_t *mlp);

/** Records the model with a squared-error loss on `rows` rows. */
srt_status_t srt_mlp_record(const srt_mlp_t *mlp, srt_tape_t *tape, int64_t rows, srt_mlp_io_t *io);

#endif
