/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention of numerics mode fast on tensor cores (fast_attention.h): of 16-bit tensors, without
 * lengths and mask. All other attention is computed by the exact kernels.
 */
#include <limits.h>

#include "backends/cuda/fast.h"
#include "base/base.h"

#define OWN(head_dim) (8192 / (head_dim)) /* rows of a block: fast_attention.h */
#define ALIGN 16
#define MAX_ROWS ((int64_t)1 << 30)

static int64_t count_blocks(const srt_k_attention_t *a, int64_t positions)
{
	return a->batch * a->heads * ((positions + OWN(a->head_dim) - 1) / OWN(a->head_dim));
}

/* Whether the rows of a tensor, ld apart, begin at multiples of 16 bytes; or it is absent. */
static bool is_aligned(const srt_cuda_stream_t *stream, const srt_binding_t *binding, int64_t ld)
{
	const CUdeviceptr start = srt_cuda_address(stream, binding) + binding->offset;

	return binding->mem == NULL || (start % ALIGN == 0 && ld % (ALIGN / 2) == 0);
}

static bool can(const srt_cuda_stream_t *stream, const srt_command_t *command)
{
	const srt_k_attention_t *a = &command->attention;
	const srt_binding_t *at = command->bindings;
	const int64_t width = a->heads * a->head_dim;
	/* Row lengths of the bindings in this order; 0: stats. */
	const int64_t forward[] = { width, 0, a->ldq, a->ldk, a->ldv };
	const int64_t backward[] = {
		a->lddq, a->lddk, a->lddv, width, width, a->ldq, a->ldk, a->ldv
	};
	const bool is_forward = command->kind == SRT_COMMAND_ATTENTION;
	const int64_t *lds = is_forward ? forward : backward;

	if (stream->device->fast == NULL || stream->device->major < 8 ||
	    !stream->device->tuning.wanted || !srt_command_is_plain_attention(command) ||
	    command->exact || stream->is_selftest ||
	    (command->dtype != SRT_F16 && command->dtype != SRT_BF16) ||
	    (a->head_dim != 64 && a->head_dim != 128) || !(a->scale > 0.0f))
		return false;
	if (a->queries < 1 || a->keys < 1 || a->queries > MAX_ROWS || a->keys > MAX_ROWS ||
	    a->heads > SHRT_MAX || a->batch > SHRT_MAX || count_blocks(a, a->queries) > INT_MAX ||
	    count_blocks(a, a->keys) > INT_MAX)
		return false;
	/* Lengths and mask. */
	if (at[command->nbindings - 3].mem != NULL || at[command->nbindings - 2].mem != NULL)
		return false;
	for (int i = 0; i < (is_forward ? 5 : 8); i++)
		if (lds[i] && !is_aligned(stream, &at[i], lds[i]))
			return false;
	return true;
}

/* pass: its kernel for head_dim 64. */
static srt_status_t launch(srt_cuda_stream_t *stream, const srt_command_t *command, int pass)
{
	const srt_k_attention_t *a = &command->attention;
	srt_command_t kernel = *command;

	kernel.kind = SRT_COMMAND_TUNED;
	kernel.kernel = (uint16_t)(pass + (a->head_dim == 128));
	kernel.nbindings -= 3;
	kernel.ngroups = count_blocks(a, pass == SRT_CUDA_ATTENTION_KV_64 ? a->keys : a->queries);
	return srt_cuda_launch(stream, &kernel);
}

srt_status_t srt_cuda_fast_attention(srt_cuda_stream_t *stream, const srt_command_t *command)
{
	const srt_binding_t *at = command->bindings;

	if (!can(stream, command) ||
	    !srt_selftest_has_tuned(&stream->device->selftest, (srt_dtype_t)command->dtype))
		return SRT_ERR_UNSUPPORTED;
	if (command->kind == SRT_COMMAND_ATTENTION)
		return launch(stream, command, SRT_CUDA_ATTENTION_64);
	SRT_TRY(launch(stream, command, SRT_CUDA_ATTENTION_Q_64));
	return at[1].mem != NULL || at[2].mem != NULL ?
		       launch(stream, command, SRT_CUDA_ATTENTION_KV_64) :
		       SRT_OK;
}
