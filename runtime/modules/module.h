/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Module trees, from the declaration to initial values:
 *
 *     module.c        modules, parameters, ties and buffers added; freed
 *     lookup.c        found and visited; the order of the tree
 *     policy.c        which modules become units
 *     wrap.c          units, parameters and buffers of an engine
 *     materialize.c   initial values, in PyTorch's order
 *     reset.c         initial values of one module
 *     print.c         printed
 */
#ifndef SRT_RUNTIME_MODULES_MODULE_H
#define SRT_RUNTIME_MODULES_MODULE_H

#include <stdbool.h>

#include <shardrt/init.h>
#include <shardrt/module.h>

#include "base/base.h"

/* A parameter, with perhaps several names. */
typedef struct srt_module_tensor {
	srt_dtype_t dtype;
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
	int64_t nelem;
	srt_param_options_t options;
	char *mesh_dim; /* NULL, or what the options' placement points to */
	bool ignored;
	srt_init_t *recorded; /* initial values, one after the other */
	size_t nrecorded, recorded_room;

	/* set by srt_engine_wrap() */
	const srt_module_t *home; /* that has its first name */
	srt_module_t *unit;       /* that becomes the unit of the parameter; NULL: ignored */
	srt_param_t *param;       /* NULL: in no engine */

	unsigned visit;
} srt_module_tensor_t;

/* A name of a parameter in a module. */
typedef struct srt_module_entry {
	char *name;
	srt_module_tensor_t *tensor;
} srt_module_entry_t;

typedef struct srt_module_buffer {
	char *name;
	srt_dtype_t dtype;
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
	srt_unit_buffer_t *buffer; /* NULL: in no engine */
} srt_module_buffer_t;

typedef struct srt_module_child_at {
	char *name;
	srt_module_t *module;
} srt_module_child_t;

typedef struct srt_module_tree {
	srt_module_t **modules; /* [0] is the root; after srt_tree_sort() in order */
	size_t nmodules, modules_room;
	srt_module_tensor_t **tensors;
	size_t ntensors, tensors_room;
	srt_engine_t *engine; /* that owns the tree; NULL: none */
	unsigned visit;       /* of the last walk that marks what it has seen */
} srt_module_tree_t;

struct srt_module {
	srt_module_tree_t *tree;
	char *path, *kind;
	srt_module_child_t *children;
	size_t nchildren, children_room;
	srt_module_t **parents;
	size_t nparents, parents_room;
	srt_module_entry_t *params;
	size_t nparams, params_room;
	srt_module_buffer_t *buffers;
	size_t nbuffers, buffers_room;
	srt_module_init_fn *reset; /* NULL: that of the kind */
	void *reset_arg;
	bool ignored;
	bool is_marked, has_options; /* srt_module_wrap(), with options */
	srt_module_t *mate;          /* the first of the modules that are one unit; NULL: alone */
	srt_unit_options_t options;  /* of its unit, if it becomes one */
	srt_precision_t precision;   /* NULL, or what the options point to */

	/* set by srt_engine_wrap() */
	srt_module_t *above; /* of its first place; NULL: the root */
	bool is_unit;
	srt_module_t *leader; /* of a mate: the first of its modules in order, which has the unit */
	bool is_placing;      /* a leader: the units above its modules are being found */
	srt_unit_t *made;     /* from this module */
	srt_module_t *unit; /* that has what is in this module: itself, its leader, or one above */
	srt_module_t *parent; /* of a unit: the unit above */
	size_t depth;         /* of a unit below the root */
	bool is_placed;       /* unit, parent and depth are set */
	int64_t nwrapped;     /* elements in units at or below it, as the policy counts them */
	bool is_materialized; /* srt_engine_materialize() has seen it */

	unsigned visit;
};

/* ---- module.c */
/* Frees the whole tree. */
void srt_tree_free(srt_module_tree_t *tree);
/* "path.name", to be freed; NULL without memory. */
char *srt_module_join(const char *path, const char *name);
srt_status_t srt_module_copy_options(srt_module_t *module, const srt_unit_options_t *options);

srt_status_t srt_module_check_open(const srt_module_t *module, const char *call);
srt_status_t srt_module_check_not_root(const srt_module_t *module, const char *call,
				       const char *why);

/* ---- lookup.c */
/* Puts tree->modules into the order of the tree, with their paths. */
srt_status_t srt_tree_sort(srt_module_tree_t *tree);
srt_module_entry_t *srt_module_entry(const srt_module_t *module, const char *name);
/* Whether a walk that marks what it has seen comes to a module for the first time. */
bool srt_module_enter(srt_module_t *module);

/* ---- policy.c */
/* A program's policy, NULL: the default, checked with those in it. */
srt_status_t srt_policy_read(const srt_wrap_policy_t *given, srt_wrap_policy_t *policy);
/* Sets is_unit and the options of all modules, of which none has been a unit. */
srt_status_t srt_policy_apply(srt_module_t *root, const srt_wrap_policy_t *policy,
			      const srt_unit_options_t *options);

#endif
