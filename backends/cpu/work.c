/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commands of the CPU: copies, zeroing and portable kernels. The tuned matrix product is in
 * tuned.c, tuned attention in tuned_attention.c.
 */
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "backends/cpu/cpu.h"
#include "backends/cpu/tuned.h"
#include "base/base.h"

/* A shorter launch runs on the caller's thread: waking threads costs more. */
#define ALONE_S 20e-6
/* Chunks per thread, so that a slow thread does not delay the others. */
#define CHUNKS_PER_THREAD 4
/* Copies of at least this size bypass the caches: gathered weights, which are used only after more
 * weights have been gathered. */
#define PAST_CACHES_NBYTES ((size_t)1 << 20)
#define LINE ((size_t)64)
#define AHEAD ((size_t)2048) /* prefetch distance in the source, bytes */

#ifdef __SSE2__
/*
 * memcpy with streaming stores, for bytes that leave the caches before they are read: the lines of
 * the destination are not fetched, and other lines stay cached. 256 bytes at a time; the source is
 * prefetched half a page ahead.
 */
static void copy_past_caches(unsigned char *dst, const unsigned char *src, size_t nbytes)
{
	const size_t head = (size_t)(-(uintptr_t)dst & (LINE - 1));
	size_t i;

	memcpy(dst, src, head);
	for (i = head; i + 4 * LINE <= nbytes; i += 4 * LINE) {
		for (size_t line = 0; line < 4; line++)
			__builtin_prefetch(src + i + AHEAD + line * LINE, 0, 0);
		for (size_t at16 = 0; at16 < 4 * LINE; at16 += 16)
			_mm_stream_si128((__m128i *)(void *)(dst + i + at16),
					 _mm_loadu_si128((const void *)(src + i + at16)));
	}
	_mm_sfence(); /* before the completion of the copy is published */
	memcpy(dst + i, src + i, nbytes - i);
}
#endif

static void copy_bytes(void *dst, const void *src, size_t nbytes)
{
#ifdef __SSE2__
	if (nbytes >= PAST_CACHES_NBYTES) {
		copy_past_caches(dst, src, nbytes);
		return;
	}
#endif
	memcpy(dst, src, nbytes);
}

static void run_copy(const srt_command_t *command)
{
	const srt_copy_args_t *rows = &command->copy;
	unsigned char *dst = srt_cpu_tensor(&command->bindings[0]);
	const unsigned char *src = srt_cpu_tensor(&command->bindings[1]);

	for (size_t i = 0; i < rows->nrows; i++)
		copy_bytes(dst + i * rows->dst_pitch, src + i * rows->src_pitch, rows->width);
}

/* ---- portable kernels ------------------------------------------------------------------ */

typedef struct launch_job {
	srt_kernel_cpu_fn *fn;
	unsigned char *places[SRT_COMMAND_MAX_BINDINGS];
	const void *args;
	int64_t first; /* the group of part 0 */
} launch_job_t;

static void launch_part(void *arg, int64_t first, int64_t end, int thread)
{
	const launch_job_t *job = arg;

	(void)thread;
	job->fn(job->places, job->args, job->first + first, job->first + end);
}

/* Runs the first group on this thread, and the others if they are few or short; returns the number
 * of groups left for the pool. */
static int64_t run_first_groups(srt_cpu_pool_t *pool, launch_job_t *job, int64_t ngroups)
{
	double start, took;

	if (srt_cpu_pool_threads(pool) == 1 || ngroups == 1) {
		job->fn(job->places, job->args, 0, ngroups);
		return 0;
	}
	start = srt_now_s();
	job->fn(job->places, job->args, 0, 1);
	took = srt_now_s() - start;
	job->first = 1;
	if (took * (double)(ngroups - 1) >= ALONE_S)
		return ngroups - 1;
	job->fn(job->places, job->args, 1, ngroups);
	return 0;
}

static srt_status_t run_kernel(srt_cpu_stream_t *stream, const srt_command_t *command)
{
	srt_cpu_pool_t *pool = stream->device->pool;
	const int64_t chunks = (int64_t)srt_cpu_pool_threads(pool) * CHUNKS_PER_THREAD;
	launch_job_t job = {
		.fn = srt_kernel_cpu(command->kernel, command->dtype, stream->device->isa),
		.args = command->args,
	};
	int64_t left;

	if (!stream->is_selftest)
		SRT_TRY(srt_selftest_kernel(&stream->device->selftest, command->kernel,
					    command->dtype));
	for (int i = 0; i < command->nbindings; i++)
		job.places[i] = srt_cpu_tensor(&command->bindings[i]);
	left = run_first_groups(pool, &job, command->ngroups);
	srt_cpu_pool_run(pool, launch_part, &job, left, left > chunks ? left / chunks : 1);
	return SRT_OK;
}

srt_status_t srt_cpu_submit(void *stream, const srt_command_t *command)
{
	srt_command_t kernels[SRT_COMMAND_MAX_KERNELS];

	switch ((srt_command_kind_t)command->kind) {
	case SRT_COMMAND_KERNEL:
		return run_kernel(stream, command);
	case SRT_COMMAND_MATMUL:
		return srt_cpu_can_matmul(stream, command) ? srt_cpu_run_matmul(stream, command) :
							     run_kernel(stream, command);
	case SRT_COMMAND_ATTENTION:
	case SRT_COMMAND_ATTENTION_BACKWARD:
		if (srt_cpu_can_attention(stream, command))
			return srt_cpu_run_attention(stream, command);
		for (int i = 0, n = srt_command_expand(command, kernels); i < n; i++)
			SRT_TRY(run_kernel(stream, &kernels[i]));
		return SRT_OK;
	case SRT_COMMAND_COPY:
		run_copy(command);
		return SRT_OK;
	case SRT_COMMAND_ZERO:
		memset(srt_cpu_tensor(&command->bindings[0]), 0, command->bytes.nbytes);
		return SRT_OK;
	case SRT_COMMAND_UPLOAD:
		copy_bytes(srt_cpu_tensor(&command->bindings[0]), command->bytes.host,
			   command->bytes.nbytes);
		return SRT_OK;
	case SRT_COMMAND_NATIVE:
		return command->native.fn(NULL, command->native.arg);
	default:
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "the CPU has no command %d",
				command->kind);
	}
}
