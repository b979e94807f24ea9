/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Optimizers over a list of tensors, by the rules of torch.optim: SGD, Adam, AdamW, Muon.
 *
 * The list has a name, values and gradients of each parameter, in any buffers of one device. The
 * object has the optimizer state, the step counts and the schedule of the learning rate, all in
 * device memory, so that no step waits.
 *
 * There are three ways to an object, and these functions work on all of them. The engine
 * (<shardrt/engine.h>) has one over its shards, srt_engine_optim(). srt_sharded_optim_create()
 * makes one over sharded tensors (<shardrt/sharded_optim.h>). srt_optim_create() makes one over
 * views, for tensors that no engine owns, or for an engine with SRT_OPTIM_NONE:
 *
 *     srt_engine_finish_backward(engine, stream);
 *     srt_engine_write_begin(engine, stream);
 *     srt_optim_step(optim, stream);      values and gradients: srt_param_local()
 *     srt_engine_write_end(engine, stream);
 *     srt_engine_step(engine, stream);    ends the engine's step
 *
 * Launches: one for each group and each run of parameters that have values, gradients, copies and
 * states in the same buffers, at equal distances and in rising order, as those of an engine have.
 *
 * Ranks: all calls are local. Where ranks have shards of one tensor, the program makes the same
 * calls on all of them, with the same values.
 *
 * Streams. Calls with a stream queue their work on it and return; functions with "get" wait for it.
 * The program orders the streams of different calls; an engine orders those on its own optimizer.
 *
 * Thread safety: an object belongs to one thread at a time.
 */
#ifndef SHARDRT_OPTIMIZER_H
#define SHARDRT_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/device.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the learning rate does after the warm-up. */
typedef enum srt_schedule {
	SRT_SCHEDULE_COSINE,   /* half a cosine from the peak, lr, down to min_lr at lr_steps */
	SRT_SCHEDULE_LINEAR,   /* a line from the peak down to min_lr at lr_steps */
	SRT_SCHEDULE_STABLE,   /* warmup-stable-decay: the peak, a line in the last decay_steps */
	SRT_SCHEDULE_CONSTANT, /* the peak; the others too if lr_steps is 0 */
} srt_schedule_t;

/** Which optimizer, by the rules of torch.optim. */
typedef enum srt_optim_kind {
	SRT_OPTIM_SGD,
	SRT_OPTIM_ADAM,
	SRT_OPTIM_ADAMW,
	SRT_OPTIM_NONE, /* of an engine: the program changes the values
			     * (srt_engine_write_begin()), the engine counts steps */
	SRT_OPTIM_MUON, /* of matrices: srt_optim_param_t.rows; groups of SRT_OPTIM_ADAMW may be
			 * with it, for the other parameters */
} srt_optim_kind_t;

/** What a matrix' shape does to the learning rate of Muon: the factor, of (rows,cols). */
typedef enum srt_muon_adjust {
	SRT_MUON_ORIGINAL,        /* sqrt(max(1, rows / cols)) */
	SRT_MUON_MATCH_RMS_ADAMW, /* 0.2 sqrt(max(rows, cols)): the size of AdamW's updates, so that
				   * its learning rate and weight decay can be kept */
	SRT_MUON_SPECTRAL,        /* sqrt(rows / cols), torch's "spectral_unclamped" */
} srt_muon_adjust_t;

/** Most optimizer states of a parameter: exp_avg, exp_avg_sq, max_exp_avg_sq. */
#define SRT_OPTIM_MAX_STATES 3

/**
 * An optimizer with its hyper-parameters: what a param_group of torch.optim has. All numbers are
 * finite. A field that is not 0 and that the kind does not have is refused; SRT_OPTIM_NONE
 * ignores those of the others. Where parameters are in several groups, each group has such options,
 * all of one kind, or of Muon and AdamW.
 *
 * Each kind has an initialiser with the defaults of torch.optim: SRT_OPTIM_OPTIONS_INIT is AdamW,
 * SRT_OPTIM_ADAM_INIT Adam, SRT_OPTIM_SGD_INIT SGD, SRT_OPTIM_MUON_INIT Muon.
 */
typedef struct srt_optim_options {
	size_t size; /* sizeof(srt_optim_options_t) */
	srt_optim_kind_t kind;
	float lr;           /* at least 0: peak of the schedule, or constant; 0: none, so that steps
			     * are refused until a call sets one (which may be 0) */
	float weight_decay; /* at least 0; of parameters without their own */
	double momentum; /* SGD, Muon; at least 0; in double, as 1 - momentum is a weight of Muon */
	float dampening; /* SGD */
	int nesterov;    /* SGD, Muon; 1: Nesterov momentum */
	double beta1;    /* Adam, AdamW; in [0, 1) */
	double beta2;    /* Adam, AdamW; in [0, 1) */
	float eps;       /* Adam, AdamW, Muon (least norm of an update); at least 0 */
	int amsgrad;     /* Adam, AdamW; 1: one more state, max_exp_avg_sq */
	int maximize;    /* not Muon; 1: steps up the gradient */
	/* The schedule of the learning rate */
	float min_lr;     /* at its end */
	int32_t warmup;   /* steps of linear warm-up, at most lr_steps unless that is 0 */
	int32_t lr_steps; /* steps of the whole schedule; 0 = constant lr after warm-up */
	srt_schedule_t schedule;
	int32_t decay_steps; /* SRT_SCHEDULE_STABLE: the last of lr_steps, in which lr decays */
	/* Muon */
	int ns_steps;             /* iterations, 0 to 99 */
	float ns_coefficients[3]; /* of the iteration: a, b, c; finite */
	srt_muon_adjust_t adjust;
	/* Adam, AdamW; 8: exp_avg and exp_avg_sq in 8 bits, a quarter of their memory; 0: in the
	 * dtype of the values. The same in all groups, without amsgrad and groups of Muon */
	int state_bits;
} srt_optim_options_t;

/**
 * With state_bits 8 the states are codes of one byte, as in bitsandbytes' AdamW8bit: each block of
 * up to SRT_OPTIM_BLOCK elements has two fp32 absmax besides, one of each state. Blocks are cut
 * from where each row (srt_optim_param_t.row_nelem) begins, so sharding by rows moves none. States
 * stay fp32 in tensors of fewer than SRT_OPTIM_LEAST_NELEM elements, or with rows of fewer than
 * SRT_OPTIM_LEAST_ROW. docs/numerics.md, "Moments in 8 bits", has the arithmetic.
 */
#define SRT_OPTIM_BLOCK 256
#define SRT_OPTIM_LEAST_NELEM 4096
#define SRT_OPTIM_LEAST_ROW 4

/** The defaults of torch.optim.AdamW. */
#define SRT_OPTIM_OPTIONS_INIT                                                                     \
	{                                                                                          \
		.size = sizeof(srt_optim_options_t), .kind = SRT_OPTIM_ADAMW, .lr = 0.001f,        \
		.weight_decay = 0.01f, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f                  \
	}
/** The defaults of torch.optim.Adam. */
#define SRT_OPTIM_ADAM_INIT                                                                        \
	{                                                                                          \
		.size = sizeof(srt_optim_options_t), .kind = SRT_OPTIM_ADAM, .lr = 0.001f,         \
		.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f                                         \
	}
/** The defaults of torch.optim.SGD. */
#define SRT_OPTIM_SGD_INIT                                                                         \
	{                                                                                          \
		.size = sizeof(srt_optim_options_t), .kind = SRT_OPTIM_SGD, .lr = 0.001f           \
	}
/** The defaults of torch.optim.Muon. */
#define SRT_OPTIM_MUON_INIT                                                                        \
	{                                                                                          \
		.size = sizeof(srt_optim_options_t), .kind = SRT_OPTIM_MUON, .lr = 0.001f,         \
		.weight_decay = 0.1f, .momentum = 0.95, .nesterov = 1, .eps = 1e-7f,               \
		.ns_steps = 5, .ns_coefficients = {                                                \
			3.4445f,                                                                   \
			-4.775f,                                                                   \
			2.0315f                                                                    \
		}                                                                                  \
	}

/** Weight decay of a parameter: that of its group. */
#define SRT_OPTIM_GROUP_WEIGHT_DECAY (-1)

/** A parameter: an element of the list. */
typedef struct srt_optim_param {
	size_t size;      /* sizeof(srt_optim_param_t) */
	const char *name; /* unique in the list; copied */
	int64_t nelem;    /* of all its views; 0 is allowed, the views are then absent */
	srt_view_t value; /* (nelem), SRT_F32, SRT_F16 or SRT_BF16 */
	srt_view_t grad;  /* (nelem), of the value's dtype; SRT_F32 or the copy's with a copy */
	srt_view_t copy;  /* (nelem), SRT_F16 or SRT_BF16; absent: none. Written by each step: the
			   * values, which must be SRT_F32, rounded once */
	/* (nelem) each, of the value's dtype, zero before the first step; absent: allocated by the
	 * object, as they must be with state_bits 8. srt_optim_state_count() of them. */
	srt_view_t state[SRT_OPTIM_MAX_STATES];
	size_t group;       /* index of its group */
	float weight_decay; /* at least 0, or SRT_OPTIM_GROUP_WEIGHT_DECAY */
	float lr_scale;     /* factor of the group's learning rate, at least 0 */
	/* Muon: a matrix, whose value and gradient are SRT_F32 */
	int64_t rows, cols; /* rows * cols = nelem */
	srt_view_t update;  /* (rows,cols), SRT_BF16; absent: allocated by the object. A step
			     * leaves the orthogonalised update there. */
	/* For state_bits 8: elements of a row, of which nelem is a multiple, 0: nelem; elements of
	 * the tensor that this is a shard of, 0: nelem. */
	int64_t row_nelem, whole_nelem;
} srt_optim_param_t;

/** A parameter without views, of group 0. */
#define SRT_OPTIM_PARAM_INIT                                                                       \
	{                                                                                          \
		.size = sizeof(srt_optim_param_t), .weight_decay = SRT_OPTIM_GROUP_WEIGHT_DECAY,   \
		.lr_scale = 1.0f                                                                   \
	}

/**
 * What the steps of a group of parameters have done: counts, scalars of the last step, and the
 * schedule of the learning rate. As srt_optim_set_step_info() takes it, it continues an
 * earlier run.
 */
typedef struct srt_step_info {
	size_t size;      /* set by SRT_STEP_INFO_INIT */
	int32_t step;     /* steps done, skipped ones not counted; at least 0 */
	int32_t skipped;  /* steps that were skipped because of an infinity or NaN; at least 0 */
	float lr;         /* learning rate of the last step */
	float grad_norm;  /* of the last step, before clipping; not finite if a gradient is not, or
			  * by overflow */
	float clip_coef;  /* what the last step multiplied gradients by while it read them */
	float clipped_by; /* what srt_engine_clip() last multiplied gradients by, in place; 0: it
			   * was not called */
	float base_lr;    /* schedule: peak; at least 0 */
	float min_lr;     /* schedule: at the end */
	int32_t warmup;   /* schedule: steps of linear warm-up; 0: none */
	int32_t lr_steps; /* schedule: steps of the whole; 0: constant base_lr */
	srt_schedule_t schedule;
	int32_t decay_steps; /* SRT_SCHEDULE_STABLE: the last of lr_steps, in which lr decays */
} srt_step_info_t;

/** Sets srt_step_info_t.size; the other defaults are zero. */
#define SRT_STEP_INFO_INIT                                                                         \
	{                                                                                          \
		.size = sizeof(srt_step_info_t)                                                    \
	}

/** Bytes that srt_engine_copy_step_info() copies, in the library's own form. */
#define SRT_STEP_INFO_NBYTES 64

/**
 * Reads a copy by srt_engine_copy_step_info(). Local. Thread-safe.
 * @param copy SRT_STEP_INFO_NBYTES bytes, in host memory.
 * @param[out] info its size is set by SRT_STEP_INFO_INIT; filled on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for NULL or a size of 0.
 */
SRT_API srt_status_t srt_step_info_decode(const void *copy, srt_step_info_t *info);

/** An optimizer. Opaque. */
typedef struct srt_optim srt_optim_t;

/**
 * Creates an optimizer. Local; its tables are uploaded on `stream`.
 * @param device where all views of the list are. The object keeps the memory of their buffers.
 * @param groups hyper-parameters of ngroups groups, of one kind or of Muon and AdamW; copied.
 * @param ngroups at least 1.
 * @param params nparams parameters; copied.
 * @param[out] optim owned by the caller, freed by srt_optim_destroy(); set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for an option outside its range, by the rules of torch.optim (a
 *         negative lr, betas outside [0, 1), nesterov without momentum), or that the optimizer does
 *         not have (momentum of Adam, amsgrad of SGD), groups of other kinds or of
 *         SRT_OPTIM_NONE, a name that is not unique, a view that is absent, outside its
 *         buffer or of another dtype, or a parameter of Muon that is no matrix;
 *         SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_optim_create(srt_device_t *device, const srt_optim_options_t *groups,
				      size_t ngroups, const srt_optim_param_t *params,
				      size_t nparams, srt_optim_t **optim, srt_stream_t *stream);

/** Frees the object and the states that it allocated. Waits for the streams of its last calls. NULL
 * is allowed. Nothing for the optimizer of an engine, which frees it. */
SRT_API void srt_optim_destroy(srt_optim_t *optim);

/**
 * Steps all parameters that are used: step counts, learning rate, values, states. If
 * srt_optim_found_inf() is not 0, nothing changes but srt_step_info_t.skipped. Gradients stay; they
 * are not clipped. Local, asynchronous.
 * @return SRT_ERR_STATE if a group with parameters has no learning rate: its option lr is 0, and
 *         neither srt_optim_set_lr() nor srt_optim_set_step_info() set one; and for the optimizer
 *         of an engine: srt_engine_step() steps it.
 */
SRT_API srt_status_t srt_optim_step(srt_optim_t *optim, srt_stream_t *stream);

/**
 * Whether the next steps have a gradient for a parameter; without one its values, states and step
 * count stay. All parameters of a new object are used. Local, asynchronous.
 * @param i index in the list.
 * @param used 0 or 1.
 * @return SRT_ERR_INVALID_ARGUMENT for an index outside the list; SRT_ERR_STATE for the optimizer
 *         of an engine, which finds out itself.
 */
SRT_API srt_status_t srt_optim_set_used(srt_optim_t *optim, size_t i, int used,
					srt_stream_t *stream);

/* ---- groups ----------------------------------------------------------------------------- */

/** Value of an argument `group`: all groups. */
#define SRT_OPTIM_ALL_GROUPS SIZE_MAX

/** Number of groups; 0 for NULL. Local. */
SRT_API size_t srt_optim_group_count(const srt_optim_t *optim);

/**
 * The hyper-parameters of a group, as they were given: to read them, or to change a copy for
 * another group. Local.
 * @param group index of a group.
 * @param[out] options its size by SRT_OPTIM_OPTIONS_INIT; set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for an index outside the range.
 */
SRT_API srt_status_t srt_optim_group_options(const srt_optim_t *optim, size_t group,
					     srt_optim_options_t *options);

/**
 * Sets the learning rate of a group for the next steps; its schedule ends. Local, asynchronous.
 * @param group index of a group, or SRT_OPTIM_ALL_GROUPS.
 * @param lr finite, at least 0.
 * @return SRT_ERR_INVALID_ARGUMENT for a value outside its range; SRT_ERR_STATE before
 *         srt_engine_build().
 */
SRT_API srt_status_t srt_optim_set_lr(srt_optim_t *optim, size_t group, float lr,
				      srt_stream_t *stream);

/**
 * Whether the next step is skipped, in device memory: not 0 if an infinity or NaN was found.
 * srt_scaler_unscale_grads() writes it, or the program does; a step leaves it alone. For an engine
 * it is read only. Local.
 * @param[out] view (1), SRT_F32, zero in a new object; set on success only.
 * @return SRT_ERR_STATE before srt_engine_build(); SRT_ERR_UNSUPPORTED for sharded tensors on two
 *         devices of a rank.
 */
SRT_API srt_status_t srt_optim_found_inf(const srt_optim_t *optim, srt_view_t *view);

/**
 * Copies what a group has of its steps: their number, skipped ones, learning rate, schedule. Waits
 * for the stream. Local. srt_engine_get_step_info() has group 0 of an engine, and warns.
 * @param[out] info its size is set by SRT_STEP_INFO_INIT; filled on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for an index outside the range; SRT_ERR_STATE before
 *         srt_engine_build().
 */
SRT_API srt_status_t srt_optim_get_step_info(const srt_optim_t *optim, size_t group,
					     srt_step_info_t *info, srt_stream_t *stream);

/**
 * Sets what a group has of its steps, e.g. to what srt_optim_get_step_info() copied in an earlier
 * run; srt_optim_found_inf() becomes 0. Local, asynchronous.
 * @param info copied.
 * @return SRT_ERR_INVALID_ARGUMENT for a value outside its range; SRT_ERR_STATE before
 *         srt_engine_build().
 */
SRT_API srt_status_t srt_optim_set_step_info(srt_optim_t *optim, size_t group,
					     const srt_step_info_t *info, srt_stream_t *stream);

/* ---- parameters -------------------------------------------------------------------------- */

/** Number of parameters; 0 for NULL. An engine has none before srt_engine_build(), then all that
 * are trainable. Local. */
SRT_API size_t srt_optim_count(const srt_optim_t *optim);
/** Name of the i-th parameter, owned by the optimizer; "" past the last and for NULL. Local. */
SRT_API const char *srt_optim_name(const srt_optim_t *optim, size_t i);
/** The index of a parameter; srt_optim_count() if there is none of this name, or it is NULL. Local.
 */
SRT_API size_t srt_optim_find(const srt_optim_t *optim, const char *name);

/**
 * Copies the number of steps that a parameter has made; steps without its gradient and skipped ones
 * are not counted. Waits for the stream. Local.
 * @param i index of a parameter.
 * @param[out] steps set on success.
 * @return SRT_ERR_INVALID_ARGUMENT for an index outside the range; SRT_ERR_STATE before
 *         srt_engine_build().
 */
SRT_API srt_status_t srt_optim_get_steps(const srt_optim_t *optim, size_t i, int32_t *steps,
					 srt_stream_t *stream);
/**
 * Sets the number of steps that a parameter has made. Local, asynchronous.
 * @param i index of a parameter.
 * @param steps at least 0.
 * @return SRT_ERR_INVALID_ARGUMENT for a value outside its range; SRT_ERR_STATE before
 *         srt_engine_build().
 */
SRT_API srt_status_t srt_optim_set_steps(srt_optim_t *optim, size_t i, int32_t steps,
					 srt_stream_t *stream);

/** Number of states of each parameter: the largest number that any group needs; 0 for NULL. Local.
 */
SRT_API size_t srt_optim_state_count(const srt_optim_t *optim);
/** PyTorch's name of the k-th state: "momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq";
 * "" for an index outside the range and for NULL. With groups of AdamW, Muon's momentum has the
 * name of theirs. Local. */
SRT_API const char *srt_optim_state_name(const srt_optim_t *optim, size_t k);

/**
 * A state of a parameter, to be read and written between steps. Local. Of an engine it is this
 * rank's shard, srt_param_local().
 * @param i index of a parameter.
 * @param k 0: momentum_buffer or exp_avg; 1: exp_avg_sq; 2: max_exp_avg_sq.
 * @param[out] view (nelem) of the value's dtype, with state_bits 8 SRT_F32; absent if the parameter
 *        has no elements, for a sharded tensor (srt_sharded_optim_state()), and for a state that a
 *        matrix of Muon next to groups of AdamW has no use of and no memory for. Set on success
 *        only.
 * @return SRT_ERR_INVALID_ARGUMENT for an index outside the list; SRT_ERR_NOT_FOUND for a state
 *         that the optimizer does not have; SRT_ERR_UNSUPPORTED for a state in 8 bits, which
 *         srt_optim_get_state() and srt_optim_set_state() convert.
 */
SRT_API srt_status_t srt_optim_state(const srt_optim_t *optim, size_t i, size_t k,
				     srt_view_t *view);

/**
 * Copies a state of a parameter in fp32 to host memory, also one in 8 bits. Waits for the stream.
 * Local.
 * @param i, k as srt_optim_state().
 * @param[out] elements nelem of them; of a sharded tensor none.
 * @return SRT_ERR_INVALID_ARGUMENT for an index outside the list; SRT_ERR_NOT_FOUND for a state
 *         that the optimizer does not have; SRT_ERR_UNSUPPORTED for a state in 16 bits;
 *         SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_optim_get_state(const srt_optim_t *optim, size_t i, size_t k,
					 float *elements, srt_stream_t *stream);

/**
 * Sets a state of a parameter from fp32 values in host memory; in 8 bits each becomes the nearest
 * code. Waits for the stream. Local.
 * @param i, k, elements as srt_optim_get_state().
 * @return as srt_optim_get_state().
 */
SRT_API srt_status_t srt_optim_set_state(srt_optim_t *optim, size_t i, size_t k,
					 const float *elements, srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
