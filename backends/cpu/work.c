/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What CPU streams run: copies, zeroing and portable kernels. Each slot packs one operation and
 * puts it on the stream; its run_ function does the work in stream order. The tuned matrix
 * product and attention are in tuned.c.
 */
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/tuned.h"
#include "base/base.h"

/* A launch shorter than this is not worth waking threads for. */
#define ALONE_S 20e-6
/* Chunks that each thread should find, so that a slow one does not hold up the others. */
#define CHUNKS_PER_THREAD 4
/* Uploads up to this size are copied into the queue; larger ones wait for the stream. */
#define UPLOAD_NBYTES SRT_LAUNCH_MAX_ARGS

static unsigned char *at(const void *mem, size_t offset)
{
	return ((const srt_cpu_mem_t *)mem)->host + offset;
}

static srt_status_t run_copy(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	(void)stream;
	memcpy(op->u.copy.dst, op->u.copy.src, op->u.copy.nbytes);
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

/* Not by the pool, which a stream's thread may be using. */
srt_status_t srt_cpu_selftest_run(void *dev, const srt_launch_t *launch, unsigned char *const *host,
				  const size_t *nbytes)
{
	const srt_cpu_device_t *device = dev;

	(void)nbytes;
	srt_kernel_cpu(launch->kernel, launch->dtype, device->isa)(host, launch->args, 0,
								   launch->ngroups);
	return SRT_OK;
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
	SRT_TRY(srt_cpu_try_kernel(stream->device, launch->kernel, launch->dtype,
				   srt_cpu_selftest_run));
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
};
