/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What CPU streams run: copies, zeroing and portable kernels. Each slot packs one operation and
 * puts it on the stream; its run_ function does the work in stream order. The tuned matrix
 * product and attention are in tuned.c.
 */
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "backends/cpu/cpu.h"
#include "backends/cpu/tuned.h"
#include "base/base.h"

/* A launch shorter than this is not worth waking threads for. */
#define ALONE_S 20e-6
/* Chunks that each thread should find, so that a slow one does not hold up the others. */
#define CHUNKS_PER_THREAD 4
/* Uploads up to this size are copied into the queue; larger ones wait for the stream. */
#define UPLOAD_NBYTES SRT_LAUNCH_MAX_ARGS
/* Copies of this size and more go past the caches: gathered weights, which are used after more of
 * them have been gathered. */
#define PAST_CACHES_NBYTES ((size_t)1 << 20)
#define LINE ((size_t)64)
#define AHEAD ((size_t)2048) /* bytes of the source between what is copied and what is fetched */

static unsigned char *at(const void *mem, size_t offset)
{
	return ((const srt_cpu_mem_t *)mem)->host + offset;
}

#ifdef __SSE2__
/*
 * memcpy of what will not be in a cache when it is read: lines of the destination are not fetched
 * before they are written, and the others stay where they are. 256 bytes at a time, the source
 * fetched half a page ahead.
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
	_mm_sfence(); /* before anything that says the copy is done */
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

static srt_status_t run_copy(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	(void)stream;
	copy_bytes(op->u.copy.dst, op->u.copy.src, op->u.copy.nbytes);
	return SRT_OK;
}

static srt_status_t put_copy(void *stream, void *dst, const void *src, size_t nbytes)
{
	return srt_cpu_stream_put(stream,
				  &(srt_cpu_op_t){
					  .run = run_copy,
					  .u.copy = { .dst = dst, .src = src, .nbytes = nbytes },
				  });
}

static srt_status_t work_copy(void *stream, void *dst, size_t dst_offset, void *src,
			      size_t src_offset, size_t nbytes)
{
	return put_copy(stream, at(dst, dst_offset), at(src, src_offset), nbytes);
}

static srt_status_t run_copy_rows(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	const srt_copy_rows_t *rows = &op->u.rows.rows;

	(void)stream;
	for (size_t i = 0; i < rows->nrows; i++)
		memcpy(op->u.rows.dst + i * rows->dst_pitch, op->u.rows.src + i * rows->src_pitch,
		       rows->width);
	return SRT_OK;
}

static srt_status_t work_copy_rows(void *stream, void *dst, void *src,
				   const srt_copy_rows_t *copies, size_t ncopies)
{
	for (size_t i = 0; i < ncopies; i++)
		SRT_TRY(srt_cpu_stream_put(stream,
					   &(srt_cpu_op_t){
						   .run = run_copy_rows,
						   .u.rows = { .dst = at(dst, copies[i].dst_offset),
							       .src = at(src, copies[i].src_offset),
							       .rows = copies[i] },
					   }));
	return SRT_OK;
}

static srt_status_t run_store(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	(void)stream;
	memcpy(op->u.store.dst, op->u.store.bytes, op->u.store.nbytes);
	return SRT_OK;
}

static srt_status_t work_from_host(void *stream, void *dst, size_t offset, const void *src,
				   size_t nbytes)
{
	srt_cpu_op_t op = { .run = run_store };

	if (nbytes > UPLOAD_NBYTES) {
		SRT_TRY(put_copy(stream, at(dst, offset), src, nbytes));
		/* The source is the caller's again on return. A failure is the stream's: sync
		 * says it. */
		srt_cpu_stream_drain(stream);
		return SRT_OK;
	}
	op.u.store.dst = at(dst, offset);
	op.u.store.nbytes = nbytes;
	memcpy(op.u.store.bytes, src, nbytes);
	return srt_cpu_stream_put(stream, &op);
}

static srt_status_t work_to_host(void *stream, void *dst, void *src, size_t offset, size_t nbytes)
{
	SRT_TRY(srt_cpu_stream_sync(stream));
	memcpy(dst, at(src, offset), nbytes);
	return SRT_OK;
}

static srt_status_t run_zero(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	(void)stream;
	memset(op->u.copy.dst, 0, op->u.copy.nbytes);
	return SRT_OK;
}

static srt_status_t work_zero(void *stream, void *dst, size_t offset, size_t nbytes)
{
	return srt_cpu_stream_put(stream,
				  &(srt_cpu_op_t){
					  .run = run_zero,
					  .u.copy = { .dst = at(dst, offset), .nbytes = nbytes },
				  });
}

/* ---- portable kernels ------------------------------------------------------------------ */

typedef struct launch_job {
	srt_kernel_cpu_fn *fn;
	unsigned char *places[SRT_LAUNCH_MAX_PLACES];
	const void *args;
	int64_t first; /* group that part 0 stands for */
} launch_job_t;

static void launch_part(void *arg, int64_t first, int64_t end, int thread)
{
	const launch_job_t *job = arg;

	(void)thread;
	job->fn(job->places, job->args, job->first + first, job->first + end);
}

/* Times the first group on this thread: only a launch that would take long is split. */
static void run_groups(srt_cpu_pool_t *pool, launch_job_t *job, int64_t ngroups)
{
	int64_t chunks = (int64_t)srt_cpu_pool_threads(pool) * CHUNKS_PER_THREAD;
	int64_t left = ngroups - 1, chunk;
	double start, took;

	if (srt_cpu_pool_threads(pool) == 1 || ngroups == 1) {
		job->fn(job->places, job->args, 0, ngroups);
		return;
	}
	start = srt_now_s();
	job->fn(job->places, job->args, 0, 1);
	took = srt_now_s() - start;
	if (took * (double)left < ALONE_S) {
		job->fn(job->places, job->args, 1, ngroups);
		return;
	}
	chunk = left > chunks ? left / chunks : 1;
	job->first = 1;
	srt_cpu_pool_run(pool, launch_part, job, left, chunk);
}

static srt_status_t run_launch(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	const srt_launch_t *launch = &op->u.launch.launch;
	launch_job_t job = {
		.fn = srt_kernel_cpu(launch->kernel, launch->dtype, stream->device->isa),
		.args = op->u.launch.args,
	};

	for (int i = 0; i < launch->nplaces; i++)
		if (launch->places[i].mem)
			job.places[i] = at(launch->places[i].mem, launch->places[i].offset);
	run_groups(stream->device->pool, &job, launch->ngroups);
	return SRT_OK;
}

static srt_status_t work_launch(void *s, const srt_launch_t *launch)
{
	srt_cpu_stream_t *stream = s;
	srt_cpu_op_t op = { .run = run_launch };

	if (!srt_kernel_cpu(launch->kernel, launch->dtype, stream->device->isa))
		return SRT_ERR_UNSUPPORTED;
	if (!stream->is_selftest)
		SRT_TRY(srt_selftest_kernel(&stream->device->selftest, launch->kernel,
					    launch->dtype));
	op.u.launch.launch = *launch;
	memcpy(op.u.launch.args, launch->args, launch->args_nbytes);
	return srt_cpu_stream_put(stream, &op);
}

const srt_backend_work_ops_t srt_cpu_work_ops = {
	.copy = work_copy,
	.copy_rows = work_copy_rows,
	.from_host = work_from_host,
	.to_host = work_to_host,
	.zero = work_zero,
	.launch = work_launch,
	.matmul = srt_cpu_put_matmul,
	.attention = srt_cpu_put_attention,
	.attention_backward = srt_cpu_put_attention_backward,
	.matmul_memory = srt_cpu_matmul_memory,
	.attention_memory = srt_cpu_attention_memory,
};
