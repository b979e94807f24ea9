/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gradient scaler: multiplies a loss so that fp16 gradients do not vanish, checks and unscales
 * the gradients before the step, and lets the scale follow what it found. As torch.amp.GradScaler
 * and torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler; the rule says which.
 *
 *     srt_scaler_scale(scaler, &loss, 1, stream);      forward; then backward of the scaled loss
 *     srt_scaler_unscale(scaler, engine, stream);      optional: before gradients are clipped
 *     srt_scaler_step(scaler, engine, stream);         nothing is stepped if an infinity was found
 *     srt_scaler_update(scaler, stream);               once, after the steps of all engines
 *
 * Scale and findings are in device memory: no call but the getters waits. Between two updates an
 * engine goes from READY to UNSCALED to STEPPED:
 *
 *                srt_scaler_unscale()   srt_scaler_step()        srt_scaler_update()
 *     READY      UNSCALED               STEPPED (unscales too)   READY, an error if all are
 *     UNSCALED   an error               STEPPED                  READY
 *     STEPPED    an error               an error                 READY
 *
 * These errors (SRT_ERR_STATE) depend on the order of calls alone, so they are the same on all
 * ranks, and queue nothing. unscale, step and update before the first srt_scaler_scale() or
 * srt_scaler_view() are errors too.
 *
 * The check covers all ranks of an engine, also those that own nothing, and each engine is skipped
 * or stepped by its own gradients. Values are checked before they are multiplied; what the
 * multiplication makes infinite is not found. The scale follows all engines.
 *
 * The dtype of the loss decides how the scale enters the backward pass. By SRT_SCALER_SHARDED an
 * fp16 loss stays fp16, so a scale of 65536 is infinite in it and the first step is always skipped.
 * Compute losses in fp32.
 *
 * Several streams: each call is ordered after the ones before it. What a program reads through
 * srt_scaler_view() it orders itself with srt_scaler_update().
 *
 * Thread safety: a scaler belongs to one thread at a time.
 */
#ifndef SHARDRT_SCALER_H
#define SHARDRT_SCALER_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/context.h>
#include <shardrt/device.h>
#include <shardrt/dtype.h>
#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A gradient scaler. Opaque. */
typedef struct srt_scaler srt_scaler_t;

/** How the scale of a loss follows what was found. */
typedef enum srt_scaler_rule {
	/* torch.amp.GradScaler: shrinks if found_inf is not 0; stays finite; the products of
	 * scale and factors are rounded from double. */
	SRT_SCALER_PLAIN,
	/* torch's ShardedGradScaler: shrinks if found_inf >= 1, so not for NaN; may grow to
	 * infinity; the factors are rounded to float. */
	SRT_SCALER_SHARDED,
} srt_scaler_rule_t;

/** Options of srt_scaler_create(): SRT_SCALER_OPTIONS_INIT, then what differs. */
typedef struct srt_scaler_options {
	size_t size;            /* set by SRT_SCALER_OPTIONS_INIT */
	srt_scaler_rule_t rule; /* SRT_SCALER_PLAIN: GradScaler; _SHARDED: ShardedGradScaler */
	int disabled;           /* 1: nothing is scaled, checked or refused; steps are as without */
	float init_scale;       /* positive and finite */
	double growth_factor;   /* above 1 */
	double backoff_factor;  /* above 0, below 1 */
	int growth_interval;    /* clean steps before the scale grows; at least 1 */
	int allow_f16;          /* 1: SRT_SCALER_PLAIN takes fp16 gradients, as _SHARDED does */
	srt_comm_t *comm; /* ranks that share the findings of srt_scaler_unscale_grads(); NULL = the
			   * context's world; must outlive the scaler */
} srt_scaler_options_t;

/** The defaults of torch.amp.GradScaler. */
#define SRT_SCALER_OPTIONS_INIT                                                                    \
	{                                                                                          \
		.size = sizeof(srt_scaler_options_t), .init_scale = 65536.0f,                      \
		.growth_factor = 2.0, .backoff_factor = 0.5, .growth_interval = 2000,              \
	}

/**
 * Creates a scaler. Collective over the options' communicator, blocking; on all its ranks with the
 * same options.
 * @param options NULL for the defaults; copied.
 * @param[out] scaler owned by the caller, freed by srt_scaler_destroy(); set on success only. Must
 *             be destroyed before the context.
 * @return SRT_ERR_INVALID_ARGUMENT for an option outside its range; SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_scaler_create(srt_context_t *context, const srt_scaler_options_t *options,
				       srt_scaler_t **scaler);

/** Frees a scaler. Waits for the streams of its last calls, as srt_engine_destroy() does. NULL is
 * allowed. */
SRT_API void srt_scaler_destroy(srt_scaler_t *scaler);

/* ---- the loss -------------------------------------------------------------------------- */

/** A tensor to be scaled. */
typedef struct srt_scaler_output {
	size_t size;  /* set by SRT_SCALER_OUTPUT_INIT */
	srt_view_t x; /* (nelem), SRT_F32, SRT_F16 or SRT_BF16 */
	srt_view_t y; /* (nelem): x * scale, of dtype srt_scaler_dtype(); may be x if that is x's */
	int64_t nelem; /* 1 if ndim is 0 */
	int ndim;      /* 0: a single value (torch's 0-d tensor); else its number of dimensions */
} srt_scaler_output_t;

/** Sets srt_scaler_output_t.size; the other defaults are zero. */
#define SRT_SCALER_OUTPUT_INIT                                                                     \
	{                                                                                          \
		.size = sizeof(srt_scaler_output_t)                                                \
	}

/** The dtype of a scaled tensor: SRT_F32 for a single 16-bit value by SRT_SCALER_PLAIN, as torch
 * promotes it; otherwise, and if the scaler is disabled, the tensor's own. SRT_DTYPE_NONE for
 * NULL. */
SRT_API srt_dtype_t srt_scaler_dtype(const srt_scaler_t *scaler, srt_dtype_t dtype, int ndim);

/**
 * Multiplies losses, or any outputs, by the scale: rounded once to y's dtype. Disabled: y = x.
 * Local, asynchronous.
 * @param outputs noutputs tensors.
 * @return SRT_ERR_INVALID_ARGUMENT for a y of another dtype; the errors of <shardrt/ops.h>.
 */
SRT_API srt_status_t srt_scaler_scale(srt_scaler_t *scaler, const srt_scaler_output_t *outputs,
				      size_t noutputs, srt_stream_t *stream);

/**
 * The scale on the device, for losses that are scaled where they are computed. Counts as
 * srt_scaler_scale(). Local.
 * @param[out] view (2), SRT_F32: scale and 1 / scale; read only; the same in every step. Absent if
 *        the scaler is disabled: the scale is 1.
 * @return SRT_ERR_INVALID_ARGUMENT for NULL.
 */
SRT_API srt_status_t srt_scaler_view(srt_scaler_t *scaler, srt_view_t *view);

/* ---- the step of an engine ------------------------------------------------------------- */

/**
 * Checks and unscales the gradient shards of an engine, after srt_engine_finish_backward(), which
 * it calls unless the program did. Collective over the engine's ranks, asynchronous.
 * @return SRT_ERR_STATE by the table above, if the engine has no parameter with a gradient, or as
 *         srt_engine_finish_backward(); SRT_ERR_INVALID_ARGUMENT for a parameter of dtype SRT_F16
 *         by SRT_SCALER_PLAIN: the sentence names it. (Gradient shards of fp32 parameters are fp32,
 *         also if they are computed with in fp16.)
 */
SRT_API srt_status_t srt_scaler_unscale(srt_scaler_t *scaler, srt_engine_t *engine,
					srt_stream_t *stream);

/**
 * srt_scaler_unscale() unless it was called, then srt_engine_step(). If any rank found an infinity
 * or NaN, values, optimizer state and step counts stay as they are on all ranks, and
 * srt_step_info_t.skipped counts. Disabled: srt_engine_step(). Collective over the engine's ranks,
 * asynchronous.
 * @return the errors of the two calls.
 */
SRT_API srt_status_t srt_scaler_step(srt_scaler_t *scaler, srt_engine_t *engine,
				     srt_stream_t *stream);

/**
 * The scale of the next step, from what all unscale and step calls since the last update found; all
 * engines are READY again. Local, asynchronous.
 * @return SRT_ERR_STATE if there was none.
 */
SRT_API srt_status_t srt_scaler_update(srt_scaler_t *scaler, srt_stream_t *stream);

/* ---- the step of a program's own optimizer --------------------------------------------- */

/** Most dimensions of the indices of a sparse gradient. */
#define SRT_COO_MAX_DIMS 4

/**
 * A sparse gradient in coordinate form, as torch.sparse_coo_tensor has it: entry i is at
 * (indices[0][i], indices[1][i], ...) of a tensor of this shape and has `block` values. indices
 * (ndim,nnz), SRT_I32 or SRT_I64, each within the shape (checked by the caller); values
 * (nnz,block). A value, which does not grow.
 */
typedef struct srt_coo {
	int64_t nnz;
	int64_t block; /* 1 for single values; the width of a row of an embedding's gradient */
	int ndim;      /* 1..SRT_COO_MAX_DIMS */
	int64_t shape[SRT_COO_MAX_DIMS];
	int round_each; /* 16-bit values: 0 = sums in float, rounded once; 1 = after each addition,
			 * as torch.amp.GradScaler does it */
} srt_coo_t;

/** Bytes of scratch that a sparse gradient of SRT_F16 needs on the device. Local. Thread-safe.
 * @param[out] nbytes set on success only. @return SRT_ERR_INVALID_ARGUMENT for a bad shape. */
SRT_API srt_status_t srt_coo_scratch(const srt_coo_t *coo, size_t *nbytes);

/** A gradient in coordinate form. Values of SRT_F16 are coalesced before the check, others not. */
typedef struct srt_scaler_sparse {
	size_t size;   /* set by SRT_SCALER_SPARSE_INIT */
	srt_coo_t coo; /* round_each is not used: sums of fp16 are rounded once, or by
			* SRT_SCALER_PLAIN after each addition, as torch's classes do it */
	srt_view_t indices;
	/* Absent unless the values are SRT_F16. Then entries with the same indices are added into
	 * one, by rising position, and the gradient is there afterwards, sorted row-major: count
	 * (1), SRT_I32 = number k of entries that are left; columns k.. of out_indices (ndim,nnz)
	 * and rows k.. of out_values (nnz,block) become 0. scratch, SRT_U8: srt_coo_scratch()
	 * bytes, contents undefined. */
	srt_view_t out_indices, out_values, count, scratch;
} srt_scaler_sparse_t;

/** Sets srt_scaler_sparse_t.size; the other defaults are zero. */
#define SRT_SCALER_SPARSE_INIT                                                                     \
	{                                                                                          \
		.size = sizeof(srt_scaler_sparse_t)                                                \
	}

/** A gradient of a program's own parameter. */
typedef struct srt_scaler_grad {
	size_t size;      /* set by SRT_SCALER_GRAD_INIT */
	const char *name; /* for messages; NULL: its number is used */
	/* (nelem), unscaled in place; of a sparse gradient its values (nnz, block). */
	srt_view_t grad;
	int64_t nelem;                     /* of a dense gradient; 0: an empty shard */
	const srt_scaler_sparse_t *sparse; /* NULL: a dense gradient */
} srt_scaler_grad_t;

/** Sets srt_scaler_grad_t.size; the other defaults are zero. */
#define SRT_SCALER_GRAD_INIT                                                                       \
	{                                                                                          \
		.size = sizeof(srt_scaler_grad_t)                                                  \
	}

/**
 * srt_scaler_unscale() for gradients that no engine has. Collective over the scaler's communicator,
 * also for ranks without gradients; asynchronous.
 * @param found_inf (1), SRT_F32, which identifies the program's optimizer: srt_optim_found_inf(),
 *        or memory of the program. 1 is stored there if a gradient of any rank is infinite or NaN,
 *        else 0.
 * @param grads ngrads gradients of this rank; borrowed for the call.
 * @return as srt_scaler_unscale(), and the errors of <shardrt/ops.h>.
 */
SRT_API srt_status_t srt_scaler_unscale_grads(srt_scaler_t *scaler, srt_view_t found_inf,
					      const srt_scaler_grad_t *grads, size_t ngrads,
					      srt_stream_t *stream);

/**
 * Announces the step of the program's optimizer, after srt_scaler_unscale_grads(). Local; queues
 * nothing.
 * @param found_inf as in srt_scaler_unscale_grads().
 * @return SRT_ERR_STATE by the table above, or before srt_scaler_unscale_grads().
 */
SRT_API srt_status_t srt_scaler_step_grads(srt_scaler_t *scaler, srt_view_t found_inf);

/* ---- state ----------------------------------------------------------------------------- */

/** What a checkpoint has of a scaler. All zero: saved by a disabled one. Does not grow. */
typedef struct srt_scaler_state {
	float scale;
	int32_t growth_tracker; /* clean steps since the scale last changed */
	int32_t growth_interval;
	double growth_factor, backoff_factor;
} srt_scaler_state_t;

/**
 * Sets the scale instead of srt_scaler_update(): what was found is forgotten, all engines are
 * READY. The growth tracker stays. No effect if disabled. Local, asynchronous; on all ranks with
 * the same scale.
 * @param scale positive.
 * @return SRT_ERR_INVALID_ARGUMENT for another one.
 */
SRT_API srt_status_t srt_scaler_set_scale(srt_scaler_t *scaler, float scale, srt_stream_t *stream);

/** Reads the state; all zero if disabled. Local; waits. @param[out] state set on success only. */
SRT_API srt_status_t srt_scaler_get_state(srt_scaler_t *scaler, srt_scaler_state_t *state,
					  srt_stream_t *stream);

/**
 * Restores the state of srt_scaler_get_state(). No effect if disabled. Local, asynchronous; on all
 * ranks with the same state.
 * @return SRT_ERR_INVALID_ARGUMENT for the state of a disabled scaler, which is empty, or for a
 *         value outside its range.
 */
SRT_API srt_status_t srt_scaler_set_state(srt_scaler_t *scaler, const srt_scaler_state_t *state,
					  srt_stream_t *stream);

/**
 * Whether an infinity or NaN was found since the last update. Local; waits.
 * @param[out] found_inf 0, or the number of engines for which it was; 0 if disabled.
 */
SRT_API srt_status_t srt_scaler_get_found_inf(srt_scaler_t *scaler, float *found_inf,
					      srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
