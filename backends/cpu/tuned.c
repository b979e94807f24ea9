/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product as a command: splits it into parts for the thread pool; each thread has
 * a part of the stream's scratch. The number of parts does not change a bit (matmul.h). In numerics
 * mode fast oneDNN computes the products if it is available (onednn.h).
 */
#include "backends/cpu/half.h"
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

	if (!device->gemm || dtype >= SRT_KERNEL_NDTYPES)
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
	double size = (double)mm->m * (double)mm->n * (double)mm->k * (double)mm->batch;
	matmul_job_t job = { .gemm = device->gemm, .mm = *mm };

	job.nparts = srt_cpu_tuned_parts(device, size);
	job.scratch_nbytes = srt_cpu_matmul_scratch(job.gemm, &job.mm, job.nparts);
	return job;
}

static size_t job_nbytes(const matmul_job_t *job)
{
	return srt_align_up(job->scratch_nbytes * (size_t)job->nparts, SRT_CPU_ALIGN);
}

/* The job's scratch, followed by `more` bytes for the caller; NULL: the error is set. */
static char *matmul_scratch(srt_cpu_stream_t *stream, matmul_job_t *job, size_t more)
{
	size_t own = job_nbytes(job);

	job->scratch = srt_cpu_stream_scratch(stream, own + more);
	return job->scratch ? job->scratch + own : NULL;
}

/* The product as described, without its tensors. */
static srt_cpu_matmul_t matmul_shape(const srt_k_matmul_t *mm)
{
	return (srt_cpu_matmul_t){
		.m = mm->m,
		.n = mm->n,
		.k = mm->k,
		.batch = mm->batch,
		.trans_a = mm->trans_a,
		.trans_b = mm->trans_b,
		.lda = mm->lda,
		.ldb = mm->ldb,
		.ldc = mm->ldc,
		.stride_a = mm->stride_a,
		.stride_b = mm->stride_b,
		.stride_c = mm->stride_c,
		.alpha = mm->alpha,
		.accumulate = mm->accumulate,
	};
}

srt_status_t srt_cpu_run_matmul(srt_cpu_stream_t *stream, const srt_command_t *command)
{
	const srt_cpu_device_t *device = stream->device;
	srt_cpu_matmul_t mm = matmul_shape(&command->matmul);
	matmul_job_t job;
	void *scratch;

	mm.c = srt_cpu_tensor(&command->bindings[0]);
	mm.a = srt_cpu_tensor(&command->bindings[1]);
	mm.b = srt_cpu_tensor(&command->bindings[2]);
	mm.bias = srt_cpu_tensor(&command->bindings[3]);
	if (device->fast && !command->exact && srt_cpu_onednn_takes(&mm)) {
		scratch = srt_cpu_stream_scratch(stream, srt_cpu_onednn_scratch(&mm));
		if (!scratch)
			return SRT_ERR_OUT_OF_MEMORY;
		return srt_cpu_onednn_matmul(device->fast, device->pool, &mm, scratch);
	}
	job = matmul_job(device, &mm);
	if (!matmul_scratch(stream, &job, 0))
		return SRT_ERR_OUT_OF_MEMORY;
	srt_cpu_pool_run(device->pool, matmul_part, &job, job.nparts, 1);
	return SRT_OK;
}

/* ---- the same in 16 bits: widened to floats in scratch, and the result rounded ---------- */

#define MAX_WIDENED ((int64_t)1 << 28) /* floats of scratch; larger products are portable */

/* Elements from a tensor's first to its last, including the gaps between rows. */
static int64_t count_elements(int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
	return rows && cols ? (batch - 1) * stride + (rows - 1) * ld + cols : 0;
}

/* The same for c, a, b and bias; returns their floats in scratch. */
static size_t count_operands(const srt_k_matmul_t *mm, bool has_bias, int64_t nelem[4])
{
	size_t total = 0;

	nelem[0] = count_elements(mm->m, mm->n, mm->ldc, mm->batch, mm->stride_c);
	nelem[1] = count_elements(mm->trans_a ? mm->k : mm->m, mm->trans_a ? mm->m : mm->k, mm->lda,
				  mm->batch, mm->stride_a);
	nelem[2] = count_elements(mm->trans_b ? mm->n : mm->k, mm->trans_b ? mm->k : mm->n, mm->ldb,
				  mm->batch, mm->stride_b);
	nelem[3] = has_bias ? mm->n : 0;
	for (int i = 0; i < 4; i++)
		total += srt_align_up((size_t)nelem[i], 16);
	return total;
}

srt_status_t srt_cpu_run_matmul_half(srt_cpu_stream_t *stream, const srt_command_t *command)
{
	const srt_k_matmul_t *mm = &command->matmul;
	const srt_binding_t *places = command->bindings;
	srt_cpu_pool_t *pool = stream->device->pool;
	const srt_cpu_half_t half = srt_cpu_half((srt_dtype_t)command->dtype, stream->device->isa);
	matmul_job_t job;
	srt_cpu_matmul_t shape = matmul_shape(mm);
	uint16_t *c = srt_cpu_tensor(&places[0]);
	float *wide[4], *next;
	int64_t nelem[4];
	size_t total = count_operands(mm, places[3].mem != NULL, nelem);

	job = matmul_job(stream->device, &shape);
	next = (float *)(void *)matmul_scratch(stream, &job, total * sizeof(float));
	if (!next)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int i = 0; i < 4; i++) {
		wide[i] = next;
		next += srt_align_up((size_t)nelem[i], 16);
		if (nelem[i] && (i > 0 || mm->accumulate))
			srt_cpu_widen(&half, pool, 1, nelem[i], wide[i], nelem[i],
				      srt_cpu_tensor(&places[i]), nelem[i]);
	}
	job.mm.c = wide[0];
	job.mm.a = wide[1];
	job.mm.b = wide[2];
	job.mm.bias = nelem[3] ? wide[3] : NULL;
	srt_cpu_pool_run(pool, matmul_part, &job, job.nparts, 1);
	/* Only the rows of C: the product must not write between them. */
	for (int64_t b = 0; b < mm->batch; b++)
		srt_cpu_round(&half, pool, mm->m, mm->n, c + b * mm->stride_c, mm->ldc,
			      wide[0] + b * mm->stride_c, mm->ldc);
	return SRT_OK;
}

static bool can_widen(const srt_k_matmul_t *mm)
{
	int64_t nelem[4], total = 0;

	count_operands(mm, true, nelem);
	for (int i = 0; i < 4; i++)
		total += nelem[i];
	return total <= MAX_WIDENED;
}

bool srt_cpu_can_matmul(srt_cpu_stream_t *stream, const srt_command_t *command)
{
	const srt_dtype_t dtype = (srt_dtype_t)command->dtype;

	return srt_cpu_has_tuned(stream, dtype) &&
	       (dtype == SRT_F32 || can_widen(&command->matmul));
}

static size_t matmul_memory(const srt_cpu_device_t *device, const srt_command_t *command)
{
	const srt_cpu_matmul_t shape = matmul_shape(&command->matmul);
	matmul_job_t job;
	int64_t nelem[4];

	if (command->dtype != SRT_F32 && !can_widen(&command->matmul))
		return 0;
	if (command->dtype == SRT_F32 && device->fast && !command->exact &&
	    srt_cpu_onednn_takes(&shape))
		return srt_cpu_onednn_scratch(&shape);
	job = matmul_job(device, &shape);
	if (command->dtype == SRT_F32)
		return job_nbytes(&job);
	return job_nbytes(&job) + count_operands(&command->matmul, true, nelem) * sizeof(float);
}

size_t srt_cpu_scratch(void *dev, const srt_command_t *command)
{
	const srt_cpu_device_t *device = dev;

	if (!device->gemm)
		return 0;
	return command->kind == SRT_COMMAND_MATMUL ? matmul_memory(device, command) :
						     srt_cpu_attention_memory(device, command);
}
