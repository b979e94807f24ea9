/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of a training step on gradients and parameters: reproducible sums, sparse gradients,
 * the loss scaler, optimizers. The rules of all operations are in <shardrt/ops.h>. Tables in device
 * memory have the structs of kernels/args.h.
 */
#ifndef SRT_RUNTIME_OPS_STEP_H
#define SRT_RUNTIME_OPS_STEP_H

#include <shardrt/scaler.h>

#include "device/device.h"

/* ---- reproducible sums (ReproBLAS; Demmel and Nguyen 2015) ------------------------------ */

/* max (1, SRT_F32) = largest |x[i]|; NaN sticks; `accumulate` keeps the larger of it and max. */
srt_status_t srt_op_absmax(srt_view_t max, srt_view_t x, int64_t nelem, int accumulate,
			   srt_stream_t *stream);

/* The partial sums of a part of the terms. */
typedef struct srt_bin_sum {
	srt_view_t bins; /* (2), SRT_F64 */
	srt_view_t max;  /* (1), SRT_F32: largest |x| over all ranks */
	srt_view_t x;    /* (nelem) */
	int64_t nelem;
	int64_t total_nelem; /* over all ranks; zeros, such as padding, need not be counted */
	int power;           /* 1, 2 or 3 */
	int is_signed;       /* power 1: of x itself, not of |x| */
	int accumulate;
} srt_bin_sum_t;

/* bins = exact partial sums of |x[i]|^power, relative to max and total_nelem. Bins of different
 * parts add in any order without rounding. */
srt_status_t srt_op_bin_sum(const srt_bin_sum_t *args, srt_stream_t *stream);

/* What partial sums amount to. */
typedef struct srt_bin_total {
	srt_view_t out;  /* (1), SRT_F32 */
	srt_view_t bins; /* (nbins,2), SRT_F64 */
	srt_view_t max;  /* (1), SRT_F32 */
	int64_t nbins;
	int power;
	int root; /* 1: the power-th root of the sum */
} srt_bin_total_t;

/* out = the sum that nbins pairs of bins hold, or its root. A non-finite max decides the result. */
srt_status_t srt_op_bin_total(const srt_bin_total_t *args, srt_stream_t *stream);

/* ---- sparse gradients ------------------------------------------------------------------ */

/*
 * Adds entries of `values` (nnz,block) with the same indices into one, as srt_scaler_sparse_t
 * describes it; coo.round_each is used. Without knowing the number of entries that are left, those
 * past them add nothing. Nothing returns to the host.
 */
srt_status_t srt_op_coo_coalesce(const srt_scaler_sparse_t *sparse, srt_view_t values,
				 srt_stream_t *stream);

/* ---- optimizer steps ------------------------------------------------------------------- */

/* The scalars of a step. */
typedef struct srt_step_advance {
	srt_view_t state;  /* srt_k_step_state_t, SRT_U8 */
	srt_view_t params; /* srt_k_param_state_t [nparams], SRT_U8 */
	int64_t nparams;
	srt_view_t norm; /* (1), SRT_F32, or absent */
	float max_norm;  /* <= 0: nothing is clipped */
	double beta1, beta2;
} srt_step_advance_t;

/*
 * If state.found_inf is 0: state.step += 1, state.lr from the schedule (linear warm-up to base_lr,
 * then srt_schedule_t, and min_lr from lr_steps on), and for each of the nparams entries of
 * `params` with used != 0: step += 1, bias corrections from the powers of beta, by squaring.
 * Otherwise state.skipped += 1.
 * clip_coef = min(1, max_norm / (norm + 1e-6)), and the norm is stored in grad_norm; norm absent:
 * clip_coef = 1; max_norm <= 0: clip_coef = 1 and the norm is stored.
 */
srt_status_t srt_op_step_advance(const srt_step_advance_t *args, srt_stream_t *stream);

/*
 * Clips gradients in place: g[i] *= min(1, max_norm / (norm + 1e-6)), the coefficient of
 * srt_op_step_advance(); 1 if max_norm <= 0. norm (1, SRT_F32) is that of all gradients, of which g
 * (nelem) is a part: one call for each part. Stores norm and coefficient in state.grad_norm and
 * state.clipped_by (SRT_U8), also if nelem is 0. clip_coef stays: the step that follows calls
 * srt_op_step_advance() without a norm, which makes it 1, so that nothing is clipped twice. Then
 * gradients of the parameters' dtype are stepped to the same bits as by clip_coef.
 */
srt_status_t srt_op_clip(srt_view_t g, srt_view_t state, srt_view_t norm, float max_norm,
			 int64_t nelem, srt_stream_t *stream);

/*
 * The check of the loss scaler: found_inf = 1 if any g[i] is infinite or NaN, else it stays, so
 * that calls on several tensors share one float, zeroed before; then g[i] *= inv_scale, found or
 * not. What the multiplication makes infinite is not looked for. With `state` (srt_k_step_state_t,
 * SRT_U8), inv_scale is state.inv_scale and the argument is ignored; `found_inf` (1, SRT_F32)
 * absent: state.found_inf, on which the optimizers' steps depend. One of the two must be there.
 * Nothing returns to the host. For a sparse gradient g are its values, coalesced before.
 */
srt_status_t srt_op_unscale(srt_view_t g, srt_view_t found_inf, srt_view_t state, float inv_scale,
			    int64_t nelem, srt_stream_t *stream);

/*
 * y[i] = x[i] * scale: the scaling of a loss, or of any output, before the backward pass. y of x's
 * dtype (in place allowed), rounded once, as torch's ShardedGradScaler keeps it; or SRT_F32, as its
 * GradScaler makes of a loss of one element. With `state` (SRT_U8), scale is state.scale and the
 * argument is ignored.
 */
srt_status_t srt_op_scale_loss(srt_view_t y, srt_view_t x, srt_view_t state, float scale,
			       int64_t nelem, srt_stream_t *stream);

/*
 * The loss scale after a step, on the device: if state.found_inf says so by the rule, scale *=
 * backoff and growth_tracker = 0; else growth_tracker += 1, and when that is `interval`, scale *=
 * growth and growth_tracker = 0. Then inv_scale = 1 / scale and found_inf = 0. state has dtype
 * SRT_U8.
 */
srt_status_t srt_op_scaler_update(srt_view_t state, srt_scaler_rule_t rule, double growth,
				  double backoff, int interval, srt_stream_t *stream);

/*
 * The flat buffers of a step and their tables; param, grad, m, v, vmax, copy share their layout.
 *
 * Without `copy` all of them have one dtype; with 16 bits everything that torch's loop stores in a
 * tensor of that dtype is rounded to it, as there (Adam's eps of 1e-8 is then 0 in SRT_F16). With
 * `copy`, param and moments are SRT_F32 (masters), gradients SRT_F32 or the copy's dtype, and the
 * stepped parameters are written to the copy too, rounded once.
 */
typedef struct srt_optim_args {
	srt_view_t state;    /* srt_k_step_state_t, SRT_U8 */
	srt_view_t params;   /* srt_k_param_state_t [], SRT_U8 */
	srt_view_t segments; /* srt_k_segment_t [nsegments], device memory, SRT_U8; by rising
			      * offset, disjoint; gaps between them are left alone */
	srt_view_t groups;   /* srt_k_group_t [], device memory, SRT_U8 */
	int64_t nsegments;
	int64_t nblocks; /* states in 8 bits: of all segments */
	int64_t nelem;   /* span of the flat buffers: where the last segment ends */
	srt_view_t param, grad;
	srt_view_t m;      /* momentum_buffer (SGD, absent without momentum) or exp_avg */
	srt_view_t v;      /* exp_avg_sq; absent for SGD */
	srt_view_t vmax;   /* max_exp_avg_sq; absent but for Adam with amsgrad */
	srt_view_t copy;   /* of the parameters, in 16 bits; absent: see above */
	srt_view_t update; /* Muon: SRT_BF16; else absent */
} srt_optim_args_t;

/* Hyper-parameters of SGD, as torch.optim.SGD has them. */
typedef struct srt_sgd {
	float momentum, dampening;
	int nesterov;
	int maximize; /* 1: steps up the gradient */
} srt_sgd_t;

/* Hyper-parameters of Adam and AdamW, as torch.optim has them. No field has a default: 0 is 0. */
typedef struct srt_adam {
	double beta1, beta2; /* in double: 1 - 0.999f is off by 1e-5 */
	float eps;
	int decoupled; /* 0: Adam (decay added to the gradient), 1: AdamW */
	int amsgrad;   /* 1: divides by the root of the largest exp_avg_sq so far */
	int maximize;  /* 1: steps up the gradient */
	int in_8_bits; /* 1: as srt_op_adam() says */
} srt_adam_t;

/* SGD on all segments: grad * clip_coef, decay, momentum (a parameter's first step: buffer =
 * gradient). Does nothing if state.found_inf, nor to parameters that are not used. */
srt_status_t srt_op_sgd(const srt_optim_args_t *args, const srt_sgd_t *sgd, srt_stream_t *stream);

/* Adam or AdamW on all segments, as srt_op_sgd(). Moments below 2^-120 are stored as 0. in_8_bits:
 * `segments` has srt_k_segment8_t, m and v are codes (SRT_U8) of any length, and vmax is absmax
 * (SRT_F32) or absent, by pairs; these three have no layout in common with the others. */
srt_status_t srt_op_adam(const srt_optim_args_t *args, const srt_adam_t *adam,
			 srt_stream_t *stream);

/* ---- Muon: runtime/optimizer/muon.c has the products between these */

/* What is elementwise in Muon. */
typedef struct srt_muon {
	double momentum; /* 1 - 0.95f is off by 2e-7, which flips bits of bf16 */
	int nesterov;
	float ratio; /* factor of the learning rate */
} srt_muon_t;

/* m and `update`, of any float dtype, from grad * clip_coef; the others SRT_F32. Does nothing where
 * srt_op_sgd() does nothing. */
srt_status_t srt_op_muon_update(const srt_optim_args_t *args, const srt_muon_t *muon,
				srt_stream_t *stream);
/* param by `update`; as srt_op_muon_update(), and the copy is not written. */
srt_status_t srt_op_muon_step(const srt_optim_args_t *args, const srt_muon_t *muon,
			      srt_stream_t *stream);
/* y (nelem, SRT_F32) = x (nelem) / max(norm, eps), norm (1, SRT_F32); both are rounded to x's
 * dtype. */
srt_status_t srt_op_muon_scale(srt_view_t y, srt_view_t x, srt_view_t norm, float eps,
			       int64_t nelem, srt_stream_t *stream);
/* y = value * y + s, rounded to bf16; both (nelem), SRT_F32. */
srt_status_t srt_op_muon_combine(srt_view_t y, srt_view_t s, float value, int64_t nelem,
				 srt_stream_t *stream);

#endif
