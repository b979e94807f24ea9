/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Module trees: a model as data (torch.nn.Module without forward). A module has a name, a kind,
 * children, its own parameters and buffers, and a function that gives them initial values. It has
 * no memory and no compute: srt_engine_wrap() makes units and parameters of an
 * engine from a tree, srt_engine_materialize() gives them values. A program computes with
 * srt_module_unit() and srt_module_param(), or with its own compute of any kind.
 *
 *     srt_module_create(NULL, NULL, "MyModel", &root);
 *     srt_module_create(root, "lin1", "Linear", &lin1);
 *     srt_module_add_param(lin1, "weight", SRT_F32, 2, shape, NULL);      "lin1.weight"
 *
 * Order. Modules, parameters and buffers are visited depth first: a module, its own parameters in
 * the order in which they were added, then its children in the order in which they were added
 * (torch.nn.Module.named_parameters). A module may be a child of several modules, and a parameter
 * may have a name in several modules (tied weights). The first name in this order is its name in
 * the engine, the others are aliases of it.
 *
 * Ownership. A tree belongs to the program, which frees it with srt_module_destroy(), until
 * srt_engine_wrap() has succeeded; then it belongs to the engine and lives as long. Strings, shapes
 * and options are copied. Names and modules that functions return belong to the tree.
 *
 * Thread safety. A tree belongs to one thread at a time, after srt_engine_wrap() to the engine's.
 * All functions are local.
 */
#ifndef SHARDRT_MODULE_H
#define SHARDRT_MODULE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/init.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A module of a tree. Opaque. */
typedef struct srt_module srt_module_t;

/**
 * Gives values to a module's own parameters and buffers, not to those of its children: a reset
 * function (torch's reset_parameters()), or the param_init callback of srt_engine_materialize().
 * Every rank runs it with the same arguments and makes the same calls.
 * @param module srt_module_param() and srt_module_buffer() have what it sets.
 * @param seed of srt_engine_materialize(), for srt_param_init_normal() and its relatives.
 * @param stream of srt_engine_materialize().
 * @param arg of srt_module_set_reset() or srt_materialize_options_t.
 * @return a failure ends srt_engine_materialize(), with the module's name before the sentence.
 */
typedef srt_status_t srt_module_init_fn(srt_module_t *module, uint64_t seed, srt_stream_t *stream,
					void *arg);

/** Called by srt_module_apply(). @return a failure ends the walk. */
typedef srt_status_t srt_module_visit_fn(srt_module_t *module, void *arg);

/* ---- building a tree ------------------------------------------------------------------- */

/**
 * Creates a module.
 * @param parent whose last child it becomes; NULL: it is the root of a new tree.
 * @param name unique among the children, parameters and buffers of the parent, not empty, without
 *        ".", e.g. "lin1". The root has none: NULL.
 * @param kind e.g. "Linear", for policies and for initial values (srt_module_reset()); not empty.
 * @param[out] module owned by its tree; a root is freed by srt_module_destroy().
 * @return SRT_ERR_INVALID_ARGUMENT for a name or kind that is not allowed; SRT_ERR_STATE for a tree
 *         that is wrapped.
 */
SRT_API srt_status_t srt_module_create(srt_module_t *parent, const char *name, const char *kind,
				       srt_module_t **module);

/**
 * Makes a module of the tree a child of a further module: it is one module with several names.
 * @param name as in srt_module_create().
 * @return SRT_ERR_INVALID_ARGUMENT for a module of another tree, one that is the parent or contains
 *         it, or a name that is not allowed; SRT_ERR_STATE for a tree that is wrapped.
 */
SRT_API srt_status_t srt_module_share(srt_module_t *parent, const char *name, srt_module_t *module);

/**
 * Adds a parameter of the module.
 * @param name as in srt_module_create(), e.g. "weight"; in the engine the names of the modules
 *        precede it.
 * @param dtype SRT_F32, SRT_F16 or SRT_BF16.
 * @param ndim 1 .. SRT_MAX_DIMS.
 * @param shape ndim sizes in elements; 0 is allowed.
 * @param options of srt_param_create(); NULL for the defaults.
 * @return SRT_ERR_INVALID_ARGUMENT for a name, dtype or shape that is not allowed; SRT_ERR_STATE
 *         for a tree that is wrapped. What depends on an engine (groups, placements, the dtype of a
 *         unit) is checked by srt_engine_wrap().
 */
SRT_API srt_status_t srt_module_add_param(srt_module_t *module, const char *name, srt_dtype_t dtype,
					  int ndim, const int64_t *shape,
					  const srt_param_options_t *options);

/**
 * Gives a parameter of another module of the tree a name in this one too (tied weights): one
 * tensor, one gradient, saved once.
 * @param name in this module, as in srt_module_create().
 * @param of that has the parameter; may be this module.
 * @param param its name there.
 * @return SRT_ERR_NOT_FOUND if that module has no such parameter; SRT_ERR_INVALID_ARGUMENT for a
 *         module of another tree or a name that is not allowed; SRT_ERR_STATE for a tree that is
 *         wrapped.
 */
SRT_API srt_status_t srt_module_tie(srt_module_t *module, const char *name, srt_module_t *of,
				    const char *param);

/**
 * Adds a buffer of the module (srt_unit_buffer_create()).
 * @param name, dtype, ndim, shape as in srt_unit_buffer_create(), name as in srt_module_create().
 * @return as srt_module_add_param().
 */
SRT_API srt_status_t srt_module_add_buffer(srt_module_t *module, const char *name,
					   srt_dtype_t dtype, int ndim, const int64_t *shape);

/**
 * Sets the function that gives the module's own parameters and buffers their initial values. Kinds
 * of srt_init_default() need none.
 * @param reset instead of an earlier one or of that of the kind.
 * @param arg passed to it; may be NULL.
 * @return SRT_ERR_INVALID_ARGUMENT if reset is NULL.
 */
SRT_API srt_status_t srt_module_set_reset(srt_module_t *module, srt_module_init_fn *reset,
					  void *arg);

/**
 * Records how a parameter of the module gets its initial values, instead of a reset function
 * (torchdistx.deferred_init). All parameters of the module then need a record. Several records are
 * carried out one after the other.
 * @param param its name in the module.
 * @param init copied; checked by srt_param_init() when it is carried out.
 * @return SRT_ERR_NOT_FOUND for another name.
 */
SRT_API srt_status_t srt_module_record_init(srt_module_t *module, const char *param,
					    const srt_init_t *init);

/**
 * Marks the module as a unit, whatever the policy says of it (torch's wrap(), fully_shard()).
 * @param options of the unit; NULL: those of srt_wrap_options_t. What precision points to is
 *        copied.
 * @return SRT_ERR_INVALID_ARGUMENT for the root, which always is a unit; SRT_ERR_STATE for a tree
 *         that is wrapped.
 */
SRT_API srt_status_t srt_module_wrap(srt_module_t *module, const srt_unit_options_t *options);

/**
 * Marks several modules as one unit, whatever the policy says of them (fully_shard([a, b])): the
 * place for modules that run one after the other, or that share parameters. The unit has the name
 * of the first of them in the order of the tree, and srt_module_unit() of each is the unit. Its
 * parent is the closest unit that contains all of them. Its forward pass begins before the first of
 * them that runs and ends after the last; or it begins and ends for each of them, so that others
 * can run between.
 * @param modules nmodules of one tree, none of them below another.
 * @param options of the unit; NULL: those of srt_wrap_options_t. What precision points to is
 *        copied.
 * @return as srt_module_wrap(); SRT_ERR_INVALID_ARGUMENT for none, modules of several trees, or one
 *         that is in such a unit already. That one is below another, srt_engine_wrap() finds.
 */
SRT_API srt_status_t srt_module_wrap_together(srt_module_t *const *modules, size_t nmodules,
					      const srt_unit_options_t *options);

/**
 * Leaves a module with all below it, or one parameter, out of the engine (ignored_modules,
 * ignored_params): srt_wrap_options_t.ignored says what becomes of them.
 * @param param the name of a parameter of the module, with all its other names; NULL: the module.
 * @return SRT_ERR_NOT_FOUND for another name; SRT_ERR_INVALID_ARGUMENT for the root;
 *         SRT_ERR_STATE for a tree that is wrapped.
 */
SRT_API srt_status_t srt_module_ignore(srt_module_t *module, const char *param);

/** Frees a tree that no engine owns. @param root NULL is allowed; another module than a root is
 * not freed. */
SRT_API void srt_module_destroy(srt_module_t *root);

/* ---- initial values -------------------------------------------------------------------- */

/**
 * Gives the module's own parameters and buffers their initial values, as srt_engine_materialize()
 * does without a callback: by what srt_module_record_init() recorded, else by its reset function,
 * else by PyTorch's default for its kind or for that of a module above (srt_init_default(), which
 * has the kinds). The last two leave parameters alone that an earlier module has
 * (srt_module_is_alias()). Nothing for a module without parameters and buffers. Every rank must
 * call it. Local, asynchronous.
 * @return SRT_ERR_NOT_FOUND for a module with parameters or buffers and none of these, or for one
 *         of them that is not recorded or not of the kind; SRT_ERR_STATE before srt_engine_build();
 *         what the function returns.
 */
SRT_API srt_status_t srt_module_reset(srt_module_t *module, uint64_t seed, srt_stream_t *stream);

/** 1 if a parameter or buffer of the module itself has no values yet (a tensor on torch's meta
 * device). Not counted are those that are not in an engine. */
SRT_API int srt_module_is_unset(const srt_module_t *module);

/** Calls a function for all modules below and then for the module itself, the children of each in
 * their order (torch.nn.Module.apply). A module with several parents is visited several times.
 * @param arg passed to it; may be NULL. @return the first failure of the function. */
SRT_API srt_status_t srt_module_apply(srt_module_t *module, srt_module_visit_fn *visit, void *arg);

/* ---- looking up ------------------------------------------------------------------------ */

/** Name of a module from the root on, "" for the root: of its first place in the tree's order. */
SRT_API const char *srt_module_path(const srt_module_t *module);
/** Kind of a module, of srt_module_create(). */
SRT_API const char *srt_module_kind(const srt_module_t *module);
/** The i-th child; NULL past the end. */
SRT_API srt_module_t *srt_module_child_at(const srt_module_t *module, size_t i);
/** A module below by its path, e.g. "blocks.0.attn"; "" is the module itself. NULL if there is
 * none. */
SRT_API srt_module_t *srt_module_find(srt_module_t *module, const char *path);
/** The name of the i-th own parameter; "" past the end. */
SRT_API const char *srt_module_param_name(const srt_module_t *module, size_t i);
/** 1 if the module has a parameter of this name, and it is another name of one that comes earlier
 * in the order of the tree. A reset function leaves it to that module. */
SRT_API int srt_module_is_alias(const srt_module_t *module, const char *name);

/** The unit in which the module's parameters are gathered: the one that it was made, or that of the
 * closest module above that was made one. NULL before srt_engine_wrap() and for what is ignored. */
SRT_API srt_unit_t *srt_module_unit(const srt_module_t *module);
/** 1 if srt_engine_wrap() made a unit from this module, alone or with others. */
SRT_API int srt_module_is_unit(const srt_module_t *module);
/** An own parameter of this name. NULL before srt_engine_wrap(), if there is none, and for one that
 * is ignored and in no engine. */
SRT_API srt_param_t *srt_module_param(const srt_module_t *module, const char *name);
/** An own buffer of this name; NULL as srt_module_param(). */
SRT_API srt_unit_buffer_t *srt_module_buffer(const srt_module_t *module, const char *name);

/** Prints the tree for people: modules, kinds, parameters and buffers with their shapes and
 * placements, and once it is wrapped the units. @param out owned by the caller. @return
 * SRT_ERR_INVALID_ARGUMENT for NULL. */
SRT_API srt_status_t srt_module_print(const srt_module_t *module, FILE *out);

/* ---- from trees to engines ------------------------------------------------------------- */

/*
 * Which modules become units, and initial values without a tensor that is not sharded (PyTorch's
 * auto_wrap_policy, meta device and param_init_fn).
 *
 *     srt_engine_create(context, &options, &engine);
 *     srt_engine_wrap(engine, root, &policy, NULL);                 units, parameters, buffers
 *     srt_engine_build(engine);                                     memory of the shards
 *     srt_engine_materialize(engine, NULL, stream);
 *
 * The values depend on the seed, the names and the shapes only: they have the same bits at every
 * number of ranks, with every strategy and every policy.
 */

/** How a policy decides. */
typedef enum srt_wrap_rule {
	SRT_WRAP_NONE,     /* the root alone */
	SRT_WRAP_ALWAYS,   /* every module (always_wrap_policy) */
	SRT_WRAP_KINDS,    /* modules of some kinds (ModuleWrapPolicy) */
	SRT_WRAP_SIZE,     /* modules with enough elements (size_based_auto_wrap_policy) */
	SRT_WRAP_CALLBACK, /* what a function says (CustomPolicy) */
	SRT_WRAP_AND,      /* what each of some policies wraps */
	SRT_WRAP_OR,       /* what any of them wraps (_or_policy) */
} srt_wrap_rule_t;

/** A policy. Fields that its rule does not need are refused. Lists of kinds end with NULL. */
typedef struct srt_wrap_policy {
	size_t size; /* sizeof(srt_wrap_policy_t) */
	srt_wrap_rule_t rule;
	const char *const *kinds; /* KINDS */
	/*
	 * SIZE: a module becomes a unit if the elements of its parameters, without those of units
	 * below it, are at least min_nelem. A module with fewer is not looked into, nor is one of
	 * leaf_kinds; one of excluded_kinds becomes no unit. NULL: "MultiheadAttention", and
	 * "ModuleList" and "ModuleDict".
	 */
	int64_t min_nelem;
	const char *const *leaf_kinds, *const *excluded_kinds;
	/* CALLBACK: 1: the module becomes a unit with `options`, which has those of
	 * srt_wrap_options_t and may be changed. The same on all ranks. */
	int (*callback)(const srt_module_t *module, srt_unit_options_t *options, void *arg);
	void *arg;
	const struct srt_wrap_policy *policies; /* AND, OR: npolicies, at least one */
	size_t npolicies;
} srt_wrap_policy_t;

/** SRT_WRAP_NONE; of SRT_WRAP_SIZE the default of PyTorch. */
#define SRT_WRAP_POLICY_INIT                                                                       \
	{                                                                                          \
		.size = sizeof(srt_wrap_policy_t), .min_nelem = 100000000                          \
	}

/** Options of srt_engine_wrap(). */
typedef struct srt_wrap_options {
	size_t size;                     /* sizeof(srt_wrap_options_t) */
	const char *root_name;           /* of the root's unit, which has no path; NULL: "root" */
	const srt_unit_options_t *root;  /* of the root's unit; NULL: the defaults */
	const srt_unit_options_t *units; /* of the others; NULL: the defaults */
	/*
	 * What is ignored (srt_module_ignore()) is not in the engine: its gradients are not
	 * reduced. NULL: it is in no engine. A unit of another engine, for example over a
	 * communicator of this rank alone: its parameters and buffers are declared there. That
	 * engine must outlive this one.
	 */
	srt_unit_t *ignored;
} srt_wrap_options_t;

/** Units as the engine's options have it; what is ignored is in no engine. */
#define SRT_WRAP_OPTIONS_INIT                                                                      \
	{                                                                                          \
		.size = sizeof(srt_wrap_options_t)                                                 \
	}

/**
 * Declares units, parameters and buffers from a tree, before srt_engine_build(), and takes the tree
 * over: after success the engine frees it, and srt_module_destroy() of it is not to be called;
 * after a failure it is the caller's as before. The root is the engine's root unit; units are named
 * and ordered by the paths of their modules in the order of the tree. A unit has the parameters of
 * its module and of those below it that are in no other unit. A parameter with names in several
 * units belongs to their closest common ancestor. Local; the same on all ranks.
 * @param root the tree; owned by the engine after success.
 * @param policy NULL: SRT_WRAP_NONE. Modules of srt_module_wrap() become units with each policy.
 * @param options NULL for the defaults.
 * @return SRT_ERR_INVALID_ARGUMENT for a module that is not a root, a policy without what its rule
 *         needs, a module that is both a unit and ignored, what srt_unit_create(),
 *         srt_param_create() and srt_unit_buffer_create() refuse; SRT_ERR_STATE for an engine that
 *         has units, or a tree that another engine owns. After a failure that is not of the policy
 *         or the options, destroy the engine.
 */
SRT_API srt_status_t srt_engine_wrap(srt_engine_t *engine, srt_module_t *root,
				     const srt_wrap_policy_t *policy,
				     const srt_wrap_options_t *options);

/** The root of the engine's tree; NULL without one. Local. */
SRT_API srt_module_t *srt_engine_module(const srt_engine_t *engine);

/** Options of srt_engine_materialize(). */
typedef struct srt_materialize_options {
	size_t size; /* sizeof(srt_materialize_options_t) */
	uint64_t seed;
	srt_module_init_fn *param_init; /* NULL: reset functions */
	void *arg;                      /* of param_init */
} srt_materialize_options_t;

/** Seed 0, reset functions. */
#define SRT_MATERIALIZE_OPTIONS_INIT                                                               \
	{                                                                                          \
		.size = sizeof(srt_materialize_options_t)                                          \
	}

/**
 * Gives initial values to the shards, unit by unit as PyTorch's FSDP does: units below a unit come
 * first, and a unit whose parameters, and whose buffers with those of units below, all have values
 * is left out. In a unit the modules are visited breadth first, without those of other units and
 * without ignored ones: srt_module_reset() for each with parameters or buffers or, with param_init,
 * that function for every one. Every rank must call it, with the same arguments. Local,
 * asynchronous.
 *
 * A forward pass while a parameter of a tree has no values is SRT_ERR_STATE, and lists them. Values
 * come from this function, srt_param_set(), srt_param_init_normal() and its relatives,
 * srt_param_local() or srt_engine_load().
 * @param options NULL for the defaults.
 * @return SRT_ERR_NOT_FOUND for a module without a reset function; SRT_ERR_INVALID_ARGUMENT for an
 *         arg without param_init; SRT_ERR_STATE before
 *         srt_engine_build(), for an engine without a tree, or inside a pass; what the functions
 *         return.
 */
SRT_API srt_status_t srt_engine_materialize(srt_engine_t *engine,
					    const srt_materialize_options_t *options,
					    srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
