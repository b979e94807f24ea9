/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From module trees to engines: which modules become units, and initial values without a tensor
 * that is not sharded (PyTorch's auto_wrap_policy, meta device and param_init_fn).
 *
 *     srt_engine_create(context, &options, &engine);
 *     srt_engine_wrap(engine, root, &policy, NULL);                 units, parameters, buffers
 *     srt_engine_build(engine);                                     memory of the shards
 *     srt_engine_materialize(engine, NULL, stream);
 *
 * The values depend on the seed, the names and the shapes only: they have the same bits at every
 * number of ranks, with every strategy and every policy.
 */
#ifndef SHARDRT_WRAP_H
#define SHARDRT_WRAP_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/module.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

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
