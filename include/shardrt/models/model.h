/* SPDX-License-Identifier: BSD-3-Clause */
/* What all models have: dtype and memory, weight decay and frozen parameters, recomputation. */
#ifndef SHARDRT_MODELS_MODEL_H
#define SHARDRT_MODELS_MODEL_H

#include <shardrt/shardrt.h>

/** The dimension of a mesh for tensor parallelism. */
#define SRT_MODEL_TENSOR_DIM "tp"

/** Options of a model. Zero-initialise: parameters in SRT_F32 (SRT_DTYPE_NONE too), no decay,
 * nothing frozen. */
typedef struct srt_model_options {
	srt_dtype_t dtype; /* of the parameters, their gradients and the optimizer's state */
	int recompute; /* 1: layers or blocks run forward again in the backward pass, which keeps
			     * only their inputs (srt_tape_recompute_begin()) */
	float matrix_decay;  /* weight decay of parameters of two dimensions */
	float vector_decay;  /* of the others: biases and norms */
	size_t linear_group; /* group of the weights of a decoder's Linear layers, without those of
			      * its head (srt_engine_group_create()) */
	int (*frozen)(const char *name, void *arg); /* 1: no gradient; NULL = none are */
	void *arg;
	/* 1: training passes of a decoder over tensor-parallel ranks cut rows over them where
	 * columns are not cut: srt_tape_set_sequence_parallel() */
	int sequence_parallel;
	int reshard;     /* of all units, as in srt_unit_options_t */
	srt_flat_t flat; /* of all units */
	/* NULL, or the engine's mesh: a model for tensor-parallel ranks is cut over its dimension
	 * SRT_MODEL_TENSOR_DIM. Must outlive the model. */
	const srt_mesh_t *mesh;
	/* NULL, or the adapters of a decoder (lora.h), copied: they are trainable, and all other
	 * parameters frozen. */
	const struct srt_lora *lora;
	/* With lora: in which the parameters of the blocks are stored, but for adapters. In layers
	 * that compute in another dtype they are widened, or rounded, for each use. NONE: dtype.
	 * SRT_U8: the weights of Linear layers in 8 bits (srt_quantize()), the others in
	 * `dtype`. */
	srt_dtype_t base_dtype;
} srt_model_options_t;

#endif
