/* SPDX-License-Identifier: BSD-3-Clause */
/* What all models share: modules, parameters and units under a model's options. */
#ifndef SRT_MODELS_MODEL_H
#define SRT_MODELS_MODEL_H

#include <shardrt/models/model.h>
#include "models/try.h"

/** A parameter of a module tree. */
typedef struct srt_model_param_spec {
	const char *name; /* with the modules that it is in: "blocks.0.attn.qkv.weight" */
	const char *kind; /* of the last of these modules */
	int64_t rows, n;  /* n = 0: one dimension */
	int is_cut;       /* over the tensor-parallel ranks of options->mesh, if it has several: */
	int tensor_dim, nblocks, nparts; /* as in srt_placement_t */
	const srt_init_t *init; /* recorded; NULL: the kind has a default (srt_init_default()) */
	int is_adapter;         /* trainable where options->lora freezes the others */
	size_t group;           /* of the engine's optimizer */
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
