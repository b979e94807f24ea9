/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tape of operations at fixed shapes: recorded once, run many times. Of libshardrt-models, whose
 * interface may change in every version.
 *
 *     record:   tape, input tensors, layers (layers.h) between unit_begin and unit_end
 *     finish:   every byte that forward and backward passes need is placed in one arena
 *     run:      forward in the order of recording, backward in reverse; nothing is allocated
 *
 * A tensor has a dtype, its gradient has the same. A layer computes in the dtype of its inputs,
 * which that of its parameters must be: the compute dtype of their unit. Losses are fp32. What
 * enters a unit is cast if the unit says so (srt_tape_unit_begin()); docs/numerics.md, "Cast
 * points", lists where values are rounded.
 *
 * The contributions to the gradient of a tensor that is used several times are added in the
 * order in which the backward pass makes them (the last use of the tape first): the first is
 * stored, each further one is one separate addition in the dtype of the tensor. srt_param_grad()
 * has the memory of the gradients of parameters.
 *
 * A tape belongs to one thread at a time. It remembers the first failure of recording, so that
 * only srt_tape_finish() needs to be checked; layers given NULL for a tensor return NULL. The tape,
 * and the tensor of a srt_tensor_...() function that returns no status, must not be
 * NULL. All calls are local unless their description says something else.
 */
#ifndef SHARDRT_MODELS_TAPE_H
#define SHARDRT_MODELS_TAPE_H

#include <stdint.h>
#include <stdio.h>

#include <shardrt/shardrt.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A recorded sequence of operations. Opaque. */
typedef struct srt_tape srt_tape_t;
/** A matrix (rows,n) on a tape; owned by it. Opaque. */
typedef struct srt_tensor srt_tensor_t;

/** What a tape is recorded for. */
typedef enum srt_tape_mode {
	SRT_TAPE_FORWARD, /* values only: activations live until their last use */
	SRT_TAPE_TRAINING /* forward and backward */
} srt_tape_mode_t;

/**
 * Makes an empty tape.
 * @param device must outlive the tape.
 * @param[out] tape owned by the caller, freed by srt_tape_destroy(); set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for NULL, SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_tape_create(srt_device_t *device, srt_tape_mode_t mode, srt_tape_t **tape);

/** Frees the tape and its tensors, not an arena of srt_tape_bind(); before its device. NULL is
 * allowed. */
SRT_API void srt_tape_destroy(srt_tape_t *tape);

/**
 * Sets the ranks that layers may be cut over (tensor parallelism): those of one dimension of a
 * mesh. Each records the same layers on the same inputs. Before the first layer.
 * @param mesh must outlive the tape. NULL, or a mesh without `dim`: this rank alone. A tape of a
 *        mesh to plan with cannot be bound.
 */
SRT_API void srt_tape_set_mesh(srt_tape_t *tape, const srt_mesh_t *mesh, const char *dim);

/** Most tensor parts. */
#define SRT_TAPE_MOST_PARTS 8

/**
 * Cuts the sums of layers that tensor-parallel ranks can cut into `nparts` parts, whatever the
 * number of ranks is: the parts, in fp32, are added by the pairwise tree of docs/numerics.md
 * ("Tensor parts"), and the sum is rounded once. So each number of ranks that divides nparts has
 * the same bits; they are others than without parts. The layers are those with _colwise or
 * _rowwise in their name; their parameters are cut with srt_placement_t.nparts. After
 * srt_tape_set_mesh(), before the first layer.
 * @param nparts a power of two up to SRT_TAPE_MOST_PARTS, a multiple of the ranks; 1: none.
 */
SRT_API void srt_tape_set_tensor_parts(srt_tape_t *tape, int nparts);

/**
 * Cuts rows over the tensor-parallel ranks where columns are not cut (sequence parallelism, as
 * Megatron-LM's): outputs of _rowwise layers, and norms and sums of them, are rows rank * rows /
 * ranks on of the whole. Layers with _colwise in their name gather the rows of all ranks. So a rank
 * keeps 1 / ranks of these activations; reduce-scatters and all-gathers replace all-reduces.
 * Gradients of norms' parameters are sums over a rank's rows first, then over the ranks: the bits
 * are those without it if a rank has 128 * 2^j rows. Needs tensor parts if there are several ranks;
 * nothing changes with one. The rows of a tape are a multiple of the ranks. After
 * srt_tape_set_tensor_parts(), before the first layer.
 */
SRT_API void srt_tape_set_sequence_parallel(srt_tape_t *tape);

/** Finds the value of a parameter, whole and in the compute dtype of its unit; buffer NULL: it has
 * none. */
typedef srt_view_t (*srt_find_value_t)(const srt_param_t *param, const void *arg);

/**
 * Makes a tape for the forward pass read the values of parameters that `find` returns, at each
 * pass: its units run no pass of their engine, so a pass is local, with every strategy. Before the
 * first layer.
 * @param arg passed on; must outlive the tape.
 */
SRT_API void srt_tape_set_values(srt_tape_t *tape, srt_find_value_t find, const void *arg);

/** Finds the scales of a weight in 8 bits, (rows,ceil(n / SRT_QUANT_BLOCK)) floats as bytes in a
 * parameter of SRT_U8 that is used in the same unit; NULL: it has none. */
typedef srt_param_t *(*srt_find_scales_t)(const srt_param_t *codes, const void *arg);

/**
 * Makes layers take weights in 8 bits: a frozen matrix of SRT_U8, the codes of srt_quantize(), is
 * widened to the dtype of the layer for each use (srt_op_dequantize()). Before the first layer.
 * @param arg passed on; must outlive the tape.
 */
SRT_API void srt_tape_set_scales(srt_tape_t *tape, srt_find_scales_t find, const void *arg);

/**
 * Records an input of shape (rows,n), which the caller fills before each forward pass by
 * srt_tensor_put() or through srt_tensor_view(). Its memory and value stay until it is written
 * again.
 * @param dtype SRT_F32, SRT_F16, SRT_BF16, SRT_I32 or SRT_U8.
 * @return a tensor owned by the tape, NULL after a failure.
 */
SRT_API srt_tensor_t *srt_tape_input(srt_tape_t *tape, srt_dtype_t dtype, int64_t rows, int64_t n);

/** Keeps the tensor's value readable until the next forward pass (losses, logits). */
SRT_API void srt_tape_keep(srt_tape_t *tape, srt_tensor_t *tensor);

/**
 * From here to srt_tape_unit_end() the layers use this unit's parameters; units nest. If the unit
 * casts its inputs, a float tensor of another dtype that was made before this call, or is an input
 * of the tape, is cast to the unit's compute dtype at its first use by a layer, once for each
 * tensor; its gradient is cast back. Losses take their inputs as they are.
 */
SRT_API void srt_tape_unit_begin(srt_tape_t *tape, srt_unit_t *unit);
/** Ends the innermost open unit. */
SRT_API void srt_tape_unit_end(srt_tape_t *tape);

/** x in the output dtype of the innermost open unit; x itself if the unit does not cast outputs. */
SRT_API srt_tensor_t *srt_tape_unit_output(srt_tape_t *tape, srt_tensor_t *x);
/** The dtype that srt_tape_unit_output() gives x. */
SRT_API srt_dtype_t srt_tape_output_dtype(const srt_tape_t *tape, const srt_tensor_t *x);

/**
 * From here to srt_tape_recompute_end() the values of tensors are not kept for the backward pass,
 * which runs the layers forward again before it reaches them (activation checkpointing): what comes
 * from outside of the section is kept instead. No bit of a result changes. Units may lie inside of
 * the section, and are gathered again, or the section inside of a unit; sections do not nest, and
 * losses are outside.
 */
SRT_API void srt_tape_recompute_begin(srt_tape_t *tape);
/** Ends the section. */
SRT_API void srt_tape_recompute_end(srt_tape_t *tape);

/**
 * Makes a loss one of SRT_F16 or SRT_BF16, as a program has it whose loss is a scalar of this
 * dtype: scale (rounded), then scale * grad_scale (rounded) is what its gradients are multiplied
 * by, so a scale of 65536 is infinite in SRT_F16. The loss values stay SRT_F32. srt_layer_sum() has
 * the dtype of its input. Before srt_tape_finish().
 * @param loss the tensor of a loss layer.
 */
SRT_API void srt_tape_loss_dtype(srt_tape_t *tape, srt_tensor_t *loss, srt_dtype_t dtype);

/**
 * Ends recording and plans the arena.
 * @return the first failure of recording, with its sentence.
 */
SRT_API srt_status_t srt_tape_finish(srt_tape_t *tape);

/** Bytes of the arena, exact; 0 before srt_tape_finish(). */
SRT_API size_t srt_tape_nbytes(const srt_tape_t *tape);

/** Bytes of device memory of the stream on which the tape runs, in addition to the arena: scratch
 * of matrix products and attention. A pass reserves them. Tapes that run on one stream share them,
 * so the maximum is best reserved before (srt_stream_reserve()). 0 before srt_tape_finish(). */
SRT_API size_t srt_tape_scratch_nbytes(const srt_tape_t *tape);

/** The kind of memory of the arena: SRT_MEM_PEER if other ranks read sums from it, else
 * SRT_MEM_DEVICE. */
SRT_API srt_mem_kind_t srt_tape_mem_kind(const srt_tape_t *tape);

/**
 * Gives the tape its arena: memory of srt_tape_mem_kind() of at least srt_tape_nbytes() bytes,
 * borrowed. Tapes that never run at the same time may share one (their inputs and kept values do
 * not survive then). With several tensor-parallel ranks collective over them.
 * @return SRT_ERR_MISMATCH on all of them if their tapes sum different tensors; SRT_ERR_STATE
 *         before srt_tape_finish(); SRT_ERR_INVALID_ARGUMENT for an arena that is NULL or too
 *         small. After srt_tape_finish() the failure of one of these ranks is one of all, and names
 *         it; the tape keeps it.
 */
SRT_API srt_status_t srt_tape_bind(srt_tape_t *tape, srt_buffer_t *arena);
/**
 * srt_tape_bind() with memory that is allocated for this tape alone, owned by it and freed with it;
 * a second call binds the same. Collective as srt_tape_bind().
 * @return as srt_tape_bind(), or SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_tape_allocate(srt_tape_t *tape);

/** Rows of a tensor. */
SRT_API int64_t srt_tensor_rows(const srt_tensor_t *tensor);
/** Columns of a tensor. */
SRT_API int64_t srt_tensor_cols(const srt_tensor_t *tensor);
/** Element type of a tensor and of its gradient. */
SRT_API srt_dtype_t srt_tensor_dtype(const srt_tensor_t *tensor);
/** Where the values are: inputs always, others from their forward to their last use. Needs
 * srt_tape_bind(). */
SRT_API srt_view_t srt_tensor_view(const srt_tensor_t *tensor);
/**
 * Copies all values of a tensor, in its dtype, from host memory, as srt_buffer_copy_from_host():
 * into an input, before a forward pass. Local; in the thread of the tape.
 * @param values (rows,n), borrowed as srt_buffer_copy_from_host() does.
 * @return SRT_ERR_INVALID_ARGUMENT for NULL and for a tape that is not bound; else what the stream
 *         reports.
 */
SRT_API srt_status_t srt_tensor_put(const srt_tensor_t *tensor, const void *values,
				    srt_stream_t *stream);
/**
 * Copies all values of a tensor to host memory and waits, as srt_buffer_copy_to_host(): of an
 * input, or of a tensor that srt_tape_keep() keeps. Local; in the thread of the tape.
 * @param[out] values (rows,n) in the dtype of the tensor, memory of the caller.
 * @return as srt_tensor_put().
 */
SRT_API srt_status_t srt_tensor_get(const srt_tensor_t *tensor, void *values, srt_stream_t *stream);
/** Where the gradient was left; buffer NULL if the tensor gets none. The memory is reused in the
 * backward pass unless the tensor is kept. */
SRT_API srt_view_t srt_tensor_grad(const srt_tensor_t *tensor);
/** Makes an input take a gradient (it is then also kept); before its first use. */
SRT_API void srt_tensor_require_grad(srt_tensor_t *tensor);

/**
 * Runs the forward pass; gathers and releases the units on its way. Asynchronous. On a training
 * tape a loss that is fused with its product (srt_layer_head_loss) gets its values in the backward
 * pass only.
 * @return SRT_ERR_STATE for a tape that is not bound; else what the units and the stream report.
 */
SRT_API srt_status_t srt_tape_forward(srt_tape_t *tape, srt_stream_t *stream);

/**
 * Runs the backward pass from the losses. Asynchronous.
 * @param grad_scale gradient of the objective with respect to each element that a loss layer sums
 *        (1/tokens for a mean over tokens).
 * @param scale (1), SRT_F32, in device memory, or absent (buffer NULL): the scale of a loss scaler,
 *        read on the device. The losses' gradients are multiplied by it before they are rounded.
 * @return SRT_ERR_STATE for a tape that is not bound or was recorded for the forward pass only;
 *         else what the units and the stream report.
 */
SRT_API srt_status_t srt_tape_backward(srt_tape_t *tape, float grad_scale, srt_view_t scale,
				       srt_stream_t *stream);

/** Prints operations, shapes and the arena for people. */
SRT_API void srt_tape_print(const srt_tape_t *tape, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
