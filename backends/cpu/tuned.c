/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product as a command: splits it into parts for the thread pool; each thread has
 * a part of the stream's scratch. The number of parts does not change a bit (matmul.h). In numerics
 * mode fast oneDNN computes the products if it is available (onednn.h).
 */
#include "backends/cpu/tuned.h"
#include "base/base.h"

/* Work with fewer multiplications runs on one thread: waking others takes as long. */
#define ALONE_FLOPS 500e3

int srt_cpu_tuned_parts(const srt_cpu_device_t *device, double multiplications)
{
	int threads = srt_cpu_pool_threads(device->pool);

	return multiplications < ALONE_FLOPS ? 1 : threads;
}

bool srt_cpu_has_tuned(srt_cpu_stream_t *stream, srt_dtype_t dtype)
{
	srt_cpu_device_t *device = stream->device;

	if (device->gemm == NULL || dtype >= SRT_KERNEL_NDTYPES)
		return false;
	return stream->is_selftest || srt_selftest_has_tuned(&device->selftest, dtype);
}

typedef struct matmul_job {
	const srt_cpu_gemm_t *gemm;
	srt_cpu_matmul_t mm;
	int nparts;
	char *scratch;
	size_t scratch_nbytes; /* of one thread */
} matmul_job_t;

static void matmul_part(void *arg, int64_t first, int64_t end, int thread)
{
	const matmul_job_t *job = arg;

	for (int64_t part = first; part < end; part++)
		srt_cpu_matmul(job->gemm, &job->mm, (int)part, job->nparts,
			       job->scratch + (size_t)thread * job->scratch_nbytes);
}

static matmul_job_t matmul_job(const srt_cpu_device_t *device, const srt_cpu_matmul_t *mm)
{
	const srt_k_matmul_t *s = &mm->shape;
	double size = (double)s->m * (double)s->n * (double)s->k * (double)s->batch;
	matmul_job_t job = { .gemm = device->gemm, .mm = *mm };

	job.nparts = srt_cpu_tuned_parts(device, size);
	job.scratch_nbytes = srt_cpu_matmul_scratch(job.gemm, &job.mm, job.nparts);
	return job;
}

static size_t job_nbytes(const matmul_job_t *job)
{
	return srt_align_up(job->scratch_nbytes * (size_t)job->nparts, SRT_CPU_ALIGN);
}

/* The product as described, without its tensors. */
static srt_cpu_matmul_t matmul_of(const srt_command_t *command)
{
	return (srt_cpu_matmul_t){ .shape = command->matmul, .dtype = (srt_dtype_t)command->dtype };
}

srt_status_t srt_cpu_run_matmul(srt_cpu_stream_t *stream, const srt_command_t *command)
{
	const srt_cpu_device_t *device = stream->device;
	srt_cpu_matmul_t mm = matmul_of(command);
	matmul_job_t job;
	void *scratch;
	size_t nbytes;

	mm.c = srt_cpu_tensor(&command->bindings[0]);
	mm.a = srt_cpu_tensor(&command->bindings[1]);
	mm.b = srt_cpu_tensor(&command->bindings[2]);
	mm.bias = srt_cpu_tensor(&command->bindings[3]);
	if (device->fast != NULL && !command->exact && srt_cpu_onednn_takes(&mm)) {
		nbytes = srt_cpu_onednn_scratch(&mm);
		scratch = nbytes ? srt_cpu_stream_scratch(stream, nbytes) : NULL;
		if (nbytes && scratch == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		return srt_cpu_onednn_matmul(device->fast, device->pool, &mm, scratch);
	}
	job = matmul_job(device, &mm);
	job.scratch = srt_cpu_stream_scratch(stream, job_nbytes(&job));
	if (job.scratch == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	srt_cpu_pool_run(device->pool, matmul_part, &job, job.nparts, 1);
	return SRT_OK;
}

bool srt_cpu_can_matmul(srt_cpu_stream_t *stream, const srt_command_t *command)
{
	return srt_cpu_has_tuned(stream, (srt_dtype_t)command->dtype);
}

static size_t matmul_memory(const srt_cpu_device_t *device, const srt_command_t *command)
{
	const srt_cpu_matmul_t mm = matmul_of(command);
	matmul_job_t job;

	if (device->fast != NULL && !command->exact && srt_cpu_onednn_takes(&mm))
		return srt_cpu_onednn_scratch(&mm);
	job = matmul_job(device, &mm);
	return job_nbytes(&job);
}

size_t srt_cpu_scratch(void *dev, const srt_command_t *command)
{
	const srt_cpu_device_t *device = dev;

	if (device->gemm == NULL)
		return 0;
	return command->kind == SRT_COMMAND_MATMUL ? matmul_memory(device, command) :
						     srt_cpu_attention_memory(device, command);
}
