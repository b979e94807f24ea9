/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internals of the engine, shared by its folders. Each folder calls those above it:
 *
 *   declare/  options.c, unit.c,     options; units; parameters with name, shape, group, ties
 *             param.c, buffers.c     buffers of units: declared, broadcast, read and written
 *             precision.c, lookup.c  the policy of dtypes; what was declared, by place and name
 *             cell.c                 tensor parallelism: which part each rank computes with
 *   layout/   roles.c                which tensors a parameter has: dtype, spread, lifetime
 *             shard.c, part.c        which elements each rank owns, where its arenas have them
 *             flow.c, average.c      how gradients go to the shards; the divisors of averages
 *             home.c                 the stream of the owned values
 *             plan.c, slots.c, staging.c  all memory, from the declaration alone
 *             matrices.c             which rank iterates which matrix of Muon
 *   checks/   verify_declaration.c   declarations compared across ranks
 *             verify_order.c         calls and their arguments compared across ranks
 *             check.c                the invariants of an engine
 *             check_step.c           mistakes of the program, found by SHARDRT_CHECK=1
 *             audit.c                wrong sums of gradients, found by SHARDRT_AUDIT=1
 *   step/     pass.c                 the calls around the program's compute
 *             unshard.c              parameters gathered, prefetched, released, kept in groups
 *             reduce.c               gradients zeroed where missing, summed over ranks, accumulated
 *             writes.c               changes of values by the program, seen by the next pass
 *             replicas.c             values that several ranks have, compared
 *             finish.c               reduced gradients unscaled, clipped, read
 *             offload.c              copies between the device and the host
 *             reproducible_sum.c, grad_norm.c  sums and the norm, independent of the sharding
 *             optim.c                the owned shards stepped (runtime/optimizer); groups
 *             matrices.c             updates of matrices to their owners, and back
 *             step.c                 the order of a step, on one page
 *   values/   values.c               values set, initialised
 *             access.c, gather_full.c  views inside a pass; unsharded tensors read
 *             local.c                shards as views that the program reads and writes
 *             full_params.c          full tensors of a unit, for the program to read and write
 *             optim_state.c          groups are declared, states set
 *             hash.c, print.c        the hash of all values; an engine printed
 *   build/    engine.c               engines created, reset, destroyed
 *             memory_check.c         the plan compared with free memory
 *             allocate.c, build.c    memory allocated, collectives created
 *
 * The parts of the structs below are in state.h of a folder, and in layout/memory.h.
 */
#ifndef SRT_RUNTIME_ENGINE_ENGINE_H
#define SRT_RUNTIME_ENGINE_ENGINE_H

#include <stdbool.h>

#include <shardrt/engine.h>
#include <shardrt/module.h>

#include "base/base.h"
#include "runtime/engine/checks/state.h"
#include "runtime/engine/declare/state.h"
#include "runtime/engine/layout/memory.h"
#include "runtime/engine/step/state.h"
#include "runtime/optimizer/optimizer.h"

struct srt_param {
	srt_unit_t *unit;
	char *name;
	char **aliases; /* other names (ties) */
	size_t naliases;
	srt_dtype_t dtype;
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
	int64_t whole_nelem;
	size_t whole_nbytes;
	bool is_cut; /* over the ranks of tensor parallelism */
	srt_cut_t cut;
	/* Elements of this rank's cell: of the whole tensor, unless it is cut. */
	int64_t nelem;
	size_t nbytes; /* in the stored dtype */
	bool frozen;
	size_t group;
	float weight_decay, lr_scale;
	bool is_unset;           /* of a module tree, and nothing has given it values */
	size_t index;            /* in order of declaration, over all units */
	int32_t trainable;       /* index in tables of the trainable ones, or -1 */
	size_t unsharded_offset; /* elements, in the unsharded layout of its unit */
	size_t flat_offset;      /* elements, in the flat parameter of its unit */

	/* set by srt_engine_build() */
	srt_param_shard_t shard;
	srt_param_views_t views;
	size_t listed; /* index in the list of the optimizer */
	srt_param_matrix_t matrix;

	srt_param_grad_t grad;
	srt_param_checks_t checks;
};

struct srt_unit_buffer {
	srt_unit_t *unit;
	char *name;
	srt_dtype_t dtype; /* after the policy's cast */
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
	int64_t nelem;
	size_t nbytes, offset; /* offset: bytes, in unit_buffers.memory of the engine */
	bool is_unset;         /* of a module tree, and nothing has given it values */
};

/* The full parameters of a unit, while they are summoned. */
typedef struct srt_full {
	const srt_unit_t *unit; /* of srt_unit_full_params_begin() */
	const srt_stream_t *stream;
	bool writeback, with_grads, on_host;
	srt_buffer_t *values, *grads; /* NULL: this rank does not have them */
	bool *has_grad;               /* by parameter of the unit */
} srt_full_t;

struct srt_unit {
	srt_engine_t *engine;
	srt_unit_t *parent; /* NULL: the root */
	char *name;
	size_t index; /* in order of declaration */
	int depth;
	srt_param_t **params; /* in order of declaration */
	size_t nparams;
	srt_precision_t precision;
	int reshard;
	srt_flat_t flat;
	size_t flat_nelem;      /* up to the end of the last parameter */
	srt_unit_types_t types; /* of `precision`, resolved */
	size_t unsharded_nelem; /* unsharded layout: trainable parameters, then frozen ones */
	size_t trainable_nelem; /* its first part: the layout of the unsharded gradients */

	/* NULL: none. Gradients in an arena have a slot without memory, which orders their uses. */
	srt_slot_t *slot[SRT_NSLOT_KINDS];
	srt_unit_flow_t flow;
	srt_unit_unshard_t unshard;
	srt_unit_grads_t grads;
	srt_unit_pass_t pass;
	srt_full_t *full;   /* NULL: its full parameters are not summoned */
	bool is_hashed;     /* checks: used since it was gathered */
	srt_audit_t *audit; /* NULL: none */
};

/* Between begin and end of a pass: the program may be reading the unsharded values. */
static inline bool srt_unit_in_use(const srt_unit_t *unit)
{
	return unit->pass.in_forward || unit->pass.in_backward || unit->pass.recompute > 0;
}

/* A save that was begun and not ended (runtime/checkpoint). */
typedef struct srt_open_save {
	struct srt_open_save *next;
	/* The engine is destroyed: waits for the save's thread, and removes it from the list. */
	void (*abandon)(struct srt_open_save *save);
} srt_open_save_t;

struct srt_engine {
	srt_comm_t *comm; /* of all ranks of the engine */
	int rank, world;
	srt_context_t *context;
	srt_device_t *device;
	srt_stream_t *comm_stream;

	srt_engine_options_t options; /* `optim` is NULL: groups[0] */
	srt_precision_t precision;    /* what options.precision points to */
	srt_unit_t **units;           /* [0] is the root */
	size_t nunits;
	srt_param_t **params;
	size_t nparams;
	srt_module_t *modules; /* the root of its tree; NULL: declared by the program */
	srt_engine_comms_t comms;
	srt_declared_t declared;
	srt_unit_buffers_t unit_buffers;

	bool build_begun, built;
	srt_memory_t memory;
	srt_storage_t storage;
	srt_home_t home;
	srt_optim_t *optim; /* over the shards of all trainable parameters */
	srt_matrices_t matrices;

	srt_engine_checks_t checks;
	srt_step_t step;
	srt_order_t order;
	srt_scalars_t scalars;
	srt_writes_t writes;
	srt_open_save_t *saves;
};

#endif
