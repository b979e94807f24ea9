/* SPDX-License-Identifier: BSD-3-Clause */
/* Step states and srt_step_info_t (step_info.h). */
#include "kernels/step_info.h"

#include <string.h>

#include "base/base.h"

srt_status_t srt_step_info_write(srt_step_info_t *info, const srt_k_step_state_t *state)
{
	const srt_step_info_t full = {
		.size = sizeof(full),
		.step = state->step,
		.skipped = state->skipped,
		.lr = state->lr,
		.grad_norm = state->grad_norm,
		.clip_coef = state->clip_coef,
		.clipped_by = state->clipped_by,
		.base_lr = state->base_lr,
		.min_lr = state->min_lr,
		.warmup = state->warmup,
		.lr_steps = state->lr_steps,
		.schedule = (srt_schedule_t)state->schedule,
		.decay_steps = state->decay_steps,
	};

	return srt_struct_write(info, &full, sizeof(full), "srt_step_info_t");
}

srt_status_t srt_step_info_read(srt_k_step_state_t *state, const srt_step_info_t *info)
{
	srt_step_info_t full = SRT_STEP_INFO_INIT;

	SRT_TRY(srt_struct_read(&full, sizeof(full), info, "srt_step_info_t"));
	*state = (srt_k_step_state_t){
		.step = full.step,
		.lr = full.lr,
		.scale = 1.0f,
		.inv_scale = 1.0f,
		.clip_coef = full.clip_coef,
		.grad_norm = full.grad_norm,
		.base_lr = full.base_lr,
		.min_lr = full.min_lr,
		.warmup = full.warmup,
		.lr_steps = full.lr_steps,
		.schedule = (int32_t)full.schedule,
		.decay_steps = full.decay_steps,
		.skipped = full.skipped,
		.clipped_by = full.clipped_by,
	};
	return SRT_OK;
}

srt_status_t srt_step_info_decode(const void *copy, srt_step_info_t *info)
{
	srt_k_step_state_t state;

	SRT_NOT_NULL(copy);
	SRT_NOT_NULL(info);
	memcpy(&state, copy, sizeof(state));
	return srt_step_info_write(info, &state);
}
