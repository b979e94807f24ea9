/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The types of an engine, and what it is told and tells in structs: precision policies, options of
 * engines, units and parameters, the rows of the memory plan. To look things up; <shardrt/engine.h>
 * has the functions and includes this header.
 */
#ifndef SHARDRT_ENGINE_OPTIONS_H
#define SHARDRT_ENGINE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/context.h>
#include <shardrt/dtype.h>
#include <shardrt/export.h>
#include <shardrt/mesh.h>
#include <shardrt/optimizer.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The engine. Opaque. */
typedef struct srt_engine srt_engine_t;
/** A set of parameters that are gathered and released together. Opaque. */
typedef struct srt_unit srt_unit_t;
/** A parameter. Opaque. */
typedef struct srt_param srt_param_t;
/** A tensor of a unit that is not trained (srt_unit_buffer_create()). Opaque. */
typedef struct srt_unit_buffer srt_unit_buffer_t;

/** One of the tensors of a parameter. */
typedef enum srt_param_what {
	SRT_PARAM_VALUE,
	SRT_PARAM_GRAD,   /* reduced; clipped by srt_engine_clip() only */
	SRT_PARAM_STATE0, /* momentum_buffer or exp_avg; values in fp32 also if it is in 8 bits */
	SRT_PARAM_STATE1, /* exp_avg_sq */
	SRT_PARAM_STATE2, /* max_exp_avg_sq */
} srt_param_what_t;

/* ---- mixed precision ------------------------------------------------------------------- */

/*
 * In which dtypes the values, gradients and sums of a unit exist. A policy is declared for an
 * engine or a unit and resolved with the dtype in which parameters are stored. The rules are those
 * of torch.distributed.fsdp: MixedPrecisionPolicy of fully_shard, and MixedPrecision of
 * FullyShardedDataParallel (docs/parity.md). docs/numerics.md, "Cast points", says where a value is
 * rounded.
 */

/** Whose rules complete a policy. */
typedef enum srt_precision_rule {
	SRT_PRECISION_FSDP2, /* fully_shard */
	SRT_PRECISION_FSDP1, /* FullyShardedDataParallel */
} srt_precision_rule_t;

/** A mixed-precision policy. SRT_DTYPE_NONE: no cast. */
typedef struct srt_precision {
	size_t size;        /* sizeof(srt_precision_t) */
	srt_dtype_t param;  /* unsharded parameters, their gradients, the unit's compute */
	srt_dtype_t reduce; /* the sum of gradients over ranks; NONE: the dtype of the gradients */
	srt_dtype_t buffer; /* float buffers; FSDP1 only, cast once */
	srt_dtype_t output; /* outputs of the unit */
	srt_precision_rule_t rule;
	int keep_inputs; /* 1: the unit's float inputs are not cast to `param` */
} srt_precision_t;

/** No casts, by the rules of fully_shard. */
#define SRT_PRECISION_INIT                                                                         \
	{                                                                                          \
		.size = sizeof(srt_precision_t)                                                    \
	}

/** The dtypes of a unit: a resolved policy. */
typedef struct srt_unit_types {
	size_t size;            /* sizeof(srt_unit_types_t) */
	srt_dtype_t stored;     /* shards: values, reduced gradients, optimizer state */
	srt_dtype_t compute;    /* unsharded values, and the gradients that a program writes */
	srt_dtype_t accumulate; /* unreduced gradients of several micro-batches are added in it */
	srt_dtype_t reduce;     /* gradients are summed over ranks in it */
	int casts_inputs;       /* 1: float inputs are cast to `compute` where the unit begins */
	srt_dtype_t output;     /* what its outputs are cast to; NONE: not cast */
	srt_dtype_t buffer;     /* what its float buffers are cast to; NONE: not cast */
} srt_unit_types_t;

/** To be filled. */
#define SRT_UNIT_TYPES_INIT                                                                        \
	{                                                                                          \
		.size = sizeof(srt_unit_types_t)                                                   \
	}

/**
 * Resolves a policy.
 *
 *     compute     param, else stored
 *     reduce      reduce, else compute
 *     accumulate  FSDP2: reduce; FSDP1 (no_sync): compute
 *
 * @param precision NULL: no casts.
 * @param stored SRT_F32, SRT_F16 or SRT_BF16; or SRT_U8, which all types then are: no policy casts
 *        bytes.
 * @param[out] types its size by SRT_UNIT_TYPES_INIT; set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for another dtype of `stored` or of the policy, a rule outside
 *         its enum, or a buffer dtype with the rule FSDP2.
 * Thread-safe.
 */
SRT_API srt_status_t srt_precision_resolve(const srt_precision_t *precision, srt_dtype_t stored,
					   srt_unit_types_t *types);

/* ---- options --------------------------------------------------------------------------- */

/** Most dimensions of a parameter. */
#define SRT_MAX_DIMS 5

/**
 * How parameters, gradients and optimizer state are spread over the ranks. All give the same bits;
 * hybrid, and zero1 to zero3 on a mesh with replicas, if a replica is 2^k consecutive ranks.
 * With zero1 to hybrid each rank owns a shard of all parameters, reduced gradients and state, and
 * steps it.
 */
typedef enum srt_strategy {
	SRT_STRATEGY_DDP,    /* everything on every rank, gradients all-reduced */
	SRT_STRATEGY_ZERO1,  /* unsharded parameters and gradients keep their memory */
	SRT_STRATEGY_ZERO2,  /* unsharded parameters keep their memory, gathered once a step (FSDP's
			     * SHARD_GRAD_OP) */
	SRT_STRATEGY_ZERO3,  /* units share memory, gathered before each use (FULL_SHARD) */
	SRT_STRATEGY_HYBRID, /* zero3 within groups of ranks, replicated over the groups
			      * (HYBRID_SHARD); needs a mesh with both dimensions */
} srt_strategy_t;

/** What the sum of the gradients over ranks is divided by, and when (docs/numerics.md). */
typedef enum srt_average {
	SRT_AVERAGE_DEFAULT, /* ONCE; FACTORS for gradients that are reduced in fp16 */
	SRT_AVERAGE_ONCE,    /* one division of the sum by the number of ranks */
	SRT_AVERAGE_FACTORS, /* one before and one after the sum: srt_coll_divide_factors() */
	SRT_AVERAGE_FIRST,   /* each rank's gradient is divided, then summed (PyTorch's DDP) */
	SRT_AVERAGE_SUM,     /* no division */
} srt_average_t;

/** When the gradients of several micro-batches are reduced. */
typedef enum srt_accumulation {
	SRT_ACCUMULATE_EVERY, /* reduce each micro-batch, add the reduced shards */
	SRT_ACCUMULATE_LAST,  /* add unreduced gradients locally, reduce at the last micro-batch */
	/* LAST added pairwise, and the sums of the ranks pairwise too: a step of M
	 * micro-batches of all ranks together has the same bits at every number of ranks. Ranks and
	 * M are powers of two, the reduce dtype is fp32. Needs log2(micro-batches of a rank) sums
	 * more for each unit. */
	SRT_ACCUMULATE_TREE,
	/* EVERY, but what is reduced over the ranks of a replica is added up, in the reduce
	 * dtype, and all-reduced over the replicas at the last micro-batch (PyTorch's
	 * set_requires_all_reduce). Without replicas of shards: EVERY. */
	SRT_ACCUMULATE_LAST_ALL_REDUCE,
} srt_accumulation_t;

/**
 * What is in host memory instead of device memory. If any is, each rank owns values, gradients and
 * optimizer state on its host device (srt_context_host()), which clips, unscales and steps them;
 * the bits are those of the device. What is not offloaded has a copy on the device for the whole
 * run. `params` or `grads` without `state` needs SRT_OPTIM_NONE, as a step is where its state
 * is. Zero: nothing. Does not grow.
 */
typedef struct srt_offload {
	int params; /* 1: shards are copied to the device before each gather */
	int grads;  /* 1: reduced gradients are copied to the host, and added up there */
	int state;  /* 1: the optimizer steps on the host */
} srt_offload_t;

/** Value of srt_engine_options_t.norm_p: the maximum norm. */
#define SRT_NORM_INF 0x7fffffff

/**
 * Allocates memory of an engine. Called by srt_engine_build(), by the thread that calls that.
 * @param name of the memory, e.g. "parameter shards".
 * @return an address of a multiple of 64 bytes, or NULL: srt_engine_build() fails on all ranks with
 *         SRT_ERR_OUT_OF_MEMORY.
 */
typedef void *srt_allocate_fn(size_t nbytes, const char *name, void *arg);
/** Frees it. Called by srt_engine_destroy(), once for each result that is not NULL. */
typedef void srt_free_fn(void *memory, void *arg);

/** Options of srt_engine_create(). */
typedef struct srt_engine_options {
	size_t size;      /* sizeof(srt_engine_options_t) */
	srt_comm_t *comm; /* ranks that share the parameters; NULL = the context's world; must
			   * outlive the engine */
	/*
	 * NULL, or a grid of ranks instead of `comm`; kept. ddp replicates over replicate_dim; the
	 * others shard over shard_dim and, if there is a replicate_dim, replicate the shards over
	 * it: gradients are reduce-scattered within a replica, then all-reduced over the replicas.
	 * One further dimension, "tp" or one that parameters are cut over (srt_placement_t), is for
	 * tensor parallelism: its ranks have the same data.
	 * An engine on a mesh to plan with cannot be built.
	 */
	srt_mesh_t *mesh;
	const char *shard_dim;     /* NULL: "shard", or "dp" (not ddp) */
	const char *replicate_dim; /* NULL: "replicate" if the mesh has it; ddp: or "dp" */
	srt_strategy_t strategy;
	const srt_precision_t *precision; /* of units without their own; NULL = no casts; copied */
	srt_average_t average;
	float divide_factor; /* instead of the number of ranks; 0 = the number of ranks */
	srt_accumulation_t accumulation;
	int microbatches; /* most micro-batches of a step, for the memory plan; at least 1 */
	int prefetch;     /* units gathered ahead of use; at least 0 */
	/* 1: all ranks take the buffers of rank 0 before a forward pass, unless the gradients of
	 * the pass before wait for later micro-batches (PyTorch's DDP) */
	int broadcast_buffers;
	/* 1: the memory of each gradient is zero when a backward pass begins, and srt_param_grad()
	 * always gives accumulate = 1: for compute that can only add */
	int clear_grads;
	/* 1: the first step does not compare the values and optimizer states of ranks with copies
	 * of them, which must be equal: of all ranks with SRT_STRATEGY_DDP, of replicas on a mesh.
	 * SHARDRT_CHECK=1 compares them all the same. */
	int trust_replicas;
	srt_offload_t offload;

	/* The optimizer, and the hyper-parameters of group 0; NULL = SRT_OPTIM_OPTIONS_INIT, which
	 * is AdamW; copied */
	const srt_optim_options_t *optim;

	/* 0: no norm is computed; 1, 2, 3 or SRT_NORM_INF. A gradient that is infinite or NaN on
	 * any rank makes srt_step_info_t.grad_norm infinite or NaN on all ranks. The step uses it
	 * all the same; srt_engine_get_step_info() logs a warning, once. Without a norm nothing
	 * tells. */
	int norm_p;
	float max_norm; /* clip the gradients to this norm; <= 0: no clipping */
	/* 1: a step with an infinite or NaN gradient changes nothing on any rank, and
	 * srt_step_info_t.skipped counts it */
	int skip_nonfinite;

	/*
	 * NULL, or the program allocates shards, and unsharded parameters and gradients, on a
	 * device with host addresses (srt_device_info_t.host_memory). Not with offload, and not
	 * where ranks map each other's memory (srt_comm_mem_kind() is SRT_MEM_PEER): there
	 * srt_engine_build() is SRT_ERR_UNSUPPORTED. May differ between ranks.
	 */
	srt_allocate_fn *allocate;
	srt_free_fn *free; /* NULL with allocate NULL */
	void *allocate_arg;
} srt_engine_options_t;

/** zero3 over the ranks of the context, AdamW, one micro-batch, one unit gathered ahead. */
#define SRT_ENGINE_OPTIONS_INIT                                                                    \
	{                                                                                          \
		.size = sizeof(srt_engine_options_t), .strategy = SRT_STRATEGY_ZERO3,              \
		.microbatches = 1, .prefetch = 1                                                   \
	}

/** Value of srt_unit_options_t.reshard: the unit keeps the memory of its unsharded parameters. */
#define SRT_RESHARD_NEVER (-1)
/** Value of srt_unit_options_t.reshard: the unit shares that memory with others. */
#define SRT_RESHARD_ALWAYS (-2)

/**
 * Whether the parameters of a unit are one flat parameter, as in PyTorch's FSDP1: they follow each
 * other in the order of declaration, each row-major, and each rank owns an equal range of that,
 * which may begin and end inside of a parameter. The bits are the same.
 */
typedef enum srt_flat {
	SRT_FLAT_NO, /* each parameter is sharded by itself, in rows (fully_shard) */
	/* use_orig_params=True: each parameter begins at a multiple of 16 bytes in the compute
	 * dtype, and the end is padded to a multiple of the ranks */
	SRT_FLAT_VIEWS,
	/* use_orig_params=False: no alignment, and all shards are padded to the size of the first;
	 * the unit's parameters are all trainable or all frozen */
	SRT_FLAT_PADDED,
} srt_flat_t;

/** Options of srt_unit_create(). */
typedef struct srt_unit_options {
	size_t size;                      /* sizeof(srt_unit_options_t) */
	const srt_precision_t *precision; /* NULL: the engine's; copied */
	/*
	 * 0: as the strategy has it; or SRT_RESHARD_NEVER, _ALWAYS.
	 * n > 1: resharded after the forward pass to groups of n consecutive ranks of those that
	 * parameters are sharded over. Each keeps 1/n of the unit in the compute dtype, and the
	 * backward pass gathers within its group, for example on one machine. n is a factor of that
	 * number of ranks, the same for all units that have one; the number itself, or that of all
	 * ranks, is SRT_RESHARD_ALWAYS. 1 is SRT_RESHARD_NEVER, with a warning.
	 */
	int reshard;
	srt_flat_t flat;
} srt_unit_options_t;

/** The engine's options, not flat. */
#define SRT_UNIT_OPTIONS_INIT                                                                      \
	{                                                                                          \
		.size = sizeof(srt_unit_options_t)                                                 \
	}

/**
 * Where the elements of a parameter are on a mesh with a dimension for tensor parallelism. Zero:
 * whole on each of its ranks; compute then gives its gradient equal bits on all of them. Does not
 * grow.
 */
typedef struct srt_placement {
	/* The dimension of the mesh that the parameter is cut over, in chunks of ceil(d / ranks),
	 * as DTensor's Shard does: one that the engine neither shards nor replicates over. NULL:
	 * whole. */
	const char *mesh_dim;
	int tensor_dim; /* the dimension of the parameter that is cut */
	/* 0 or 1: it is cut as a whole; n: it is n equal blocks, and each is cut. A fused weight of
	 * q, k and v has 3, so that a rank has the same heads of each. */
	int nblocks;
	/* 0 or 1: chunks are as above; n, a multiple of the ranks: n parts of ceil(d / n) are cut,
	 * and a rank has n / ranks consecutive ones, so that each number of ranks that divides n
	 * cuts between the same elements. */
	int nparts;
} srt_placement_t;

/** Options of srt_param_create(). */
typedef struct srt_param_options {
	size_t size;        /* sizeof(srt_param_options_t) */
	int frozen;         /* 1: no gradient, no optimizer state */
	size_t group;       /* of srt_engine_group_create(); 0: srt_engine_options_t.optim */
	float weight_decay; /* at least 0, or SRT_OPTIM_GROUP_WEIGHT_DECAY */
	float lr_scale;     /* factor of the learning rate, at least 0 */
	srt_placement_t placement;
} srt_param_options_t;

/** Trainable, of group 0, whole. */
#define SRT_PARAM_OPTIONS_INIT                                                                     \
	{                                                                                          \
		.size = sizeof(srt_param_options_t), .weight_decay = SRT_OPTIM_GROUP_WEIGHT_DECAY, \
		.lr_scale = 1.0f                                                                   \
	}

/* ---- the memory plan ------------------------------------------------------------------- */

/**
 * Bytes of memory of one rank. Exact: srt_engine_build() allocates `total` on the device and, with
 * offload, `host_total` on the host device.
 */
typedef struct srt_plan {
	size_t size;            /* sizeof(srt_plan_t) */
	size_t param_shards;    /* values that this rank owns, and their copies to compute with;
				 * offloaded: the shards that are copied to the device */
	size_t grad_shards;     /* reduced gradients */
	size_t optimizer_state; /* all moments */
	size_t buffers;         /* of units */
	size_t unsharded;       /* slots for unsharded parameters, and what a rank keeps of them for
				 * a group of ranks (srt_unit_options_t.reshard) */
	size_t unsharded_grads; /* slots for unsharded gradients, and for their sums */
	size_t staging;         /* tables; scratch of collectives and norms; work memory of Muon */
	size_t total;           /* sum of the rows above: the engine's memory */
	size_t activations;     /* the program's own, from srt_engine_plan_extra() */
	size_t scratch;         /* of the program's streams, from srt_engine_plan_extra(); Muon's
				 * products on that of srt_engine_step(), if it is more */
	size_t rank_total;      /* total + activations + scratch */
	size_t peer_mapped;     /* memory of other ranks that is mapped here; not in the sums */
	/* With offload, on the host device; not in the sums above: */
	size_t host_params;  /* values that this rank owns, and their copies to compute with */
	size_t host_grads;   /* gradients to be stepped, and the memory they arrive in */
	size_t host_state;   /* all moments */
	size_t host_staging; /* tables */
	size_t host_total;   /* sum of the four */
	int nslots;          /* number of slots for unsharded parameters */
} srt_plan_t;

/** To be filled. */
#define SRT_PLAN_INIT                                                                              \
	{                                                                                          \
		.size = sizeof(srt_plan_t)                                                         \
	}

#ifdef __cplusplus
}
#endif
#endif
