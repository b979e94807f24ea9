/* SPDX-License-Identifier: BSD-3-Clause */
/* What all models share: options (dtype, memory, weight decay and frozen parameters, recomputation)
 * failures, a constant. */
#ifndef SRT_MODELS_MODEL_H
#define SRT_MODELS_MODEL_H

#include <shardrt/shardrt.h>

/** The dimension of a mesh for tensor parallelism. */
#define SRT_MODEL_TENSOR_DIM "tp"

/** Options of a model. Zero-initialise: parameters in SRT_F32 (SRT_DTYPE_NONE too), no decay,
 * nothing frozen. */
typedef struct srt_model_options {
	srt_dtype_t dtype; /* of the parameters, their gradients and the optimizer's state */
	int recompute; /* 1: layers or blocks run forward again in the backward pass, which keeps
			     * only their inputs (srt_tape_recompute_begin()) */
	float matrix_decay; /* weight decay of parameters of two dimensions */
	float vector_decay; /* of the others: biases and norms */
	int (*frozen)(const char *name, void *arg); /* 1: no gradient; NULL = none are */
	void *arg;
	int reshard;     /* of all units, as in srt_unit_options_t */
	srt_flat_t flat; /* of all units */
	/* NULL, or the engine's mesh: a model for tensor-parallel ranks is cut over its dimension
	 * SRT_MODEL_TENSOR_DIM. Must outlive the model. */
	const srt_mesh_t *mesh;
} srt_model_options_t;

/** Sets the thread's last error to a printf-like sentence; returns status. */
srt_status_t srt_model_fail(srt_status_t status, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/** A parameter of a module tree. */
typedef struct srt_model_param_spec {
	const char *name; /* with the modules that it is in: "blocks.0.attn.qkv.weight" */
	const char *kind; /* of the last of these modules */
	int64_t rows, n;  /* n = 0: one dimension */
	int is_cut;       /* over the tensor-parallel ranks of options->mesh, if it has several: */
	int tensor_dim, nblocks; /* as in srt_placement_t */
	const srt_init_t *init;  /* recorded; NULL: the kind has a default (srt_init_default()) */
} srt_model_param_spec_t;

/** Adds a parameter to a module under these options, with the modules of its name that are missing.
 */
srt_status_t srt_model_add_param(srt_module_t *root, const srt_model_param_spec_t *spec,
				 const srt_model_options_t *options);

/** The module of this path; created as srt_model_add_param() does. */
srt_status_t srt_model_module(srt_module_t *root, const char *path, const char *kind,
			      srt_module_t **module);

/** Units of the root and of what the policy chooses, all under these options. The engine owns the
 * tree, also after a failure: then it is freed. */
srt_status_t srt_model_wrap(srt_engine_t *engine, srt_module_t *root,
			    const srt_wrap_policy_t *policy, const srt_model_options_t *options);

/** The number of tensor-parallel ranks of these options, at least 1. */
int srt_model_tensor_ranks(const srt_model_options_t *options);

#endif
