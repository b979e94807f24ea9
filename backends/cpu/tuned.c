/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product and attention as slots: packs the call for the stream; when it runs,
 * cuts it into parts for the thread pool, each thread with its own piece of the stream's scratch.
 * How many parts there are never changes a bit (matmul.h, attention.h). In numerics mode fast
 * products are oneDNN's where it is there (onednn.h).
 */
#include "backends/cpu/cpu.h"
#include "backends/cpu/tuned.h"
#include "base/base.h"

/* Work below this many multiplications runs on one thread: waking others takes as long. */
#define ALONE_FLOPS 500e3

static float *at(const srt_place_t *place)
{
	const srt_cpu_mem_t *mem = place->mem;

	return mem ? (float *)(void *)(mem->host + place->offset) : NULL;
}

static int choose_parts(const srt_cpu_stream_t *stream, double multiplications)
{
	int threads = srt_cpu_pool_threads(stream->device->pool);

	return multiplications < ALONE_FLOPS ? 1 : threads;
}

/* ---- matrix product ------------------------------------------------------------------- */

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

static srt_status_t run_fast(srt_cpu_stream_t *stream, const srt_cpu_matmul_t *mm)
{
	void *scratch = srt_cpu_stream_scratch(stream, srt_cpu_onednn_scratch(mm));

	if (!scratch)
		return SRT_ERR_OUT_OF_MEMORY;
	return srt_cpu_onednn_matmul(stream->device->fast, stream->device->pool, mm, scratch);
}

static srt_status_t run_matmul(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	const srt_matmul_t *mm = &op->u.matmul.mm;
	const srt_place_t *places = op->u.matmul.places;
	matmul_job_t job = {
		.gemm = stream->device->gemm,
		.mm = {
			.m = mm->m,
			.n = mm->n,
			.k = mm->k,
			.batch = mm->batch,
			.trans_a = mm->trans_a,
			.trans_b = mm->trans_b,
			.a = at(&places[1]),
			.b = at(&places[2]),
			.c = at(&places[0]),
			.lda = mm->lda,
			.ldb = mm->ldb,
			.ldc = mm->ldc,
			.stride_a = mm->stride_a,
			.stride_b = mm->stride_b,
			.stride_c = mm->stride_c,
			.alpha = mm->alpha,
			.bias = at(&places[3]),
			.accumulate = mm->accumulate,
		},
	};
	double size = (double)mm->m * (double)mm->n * (double)mm->k * (double)mm->batch;

	if (stream->device->fast && !op->u.matmul.exact && srt_cpu_onednn_takes(&job.mm))
		return run_fast(stream, &job.mm);
	job.nparts = choose_parts(stream, size);
	job.scratch_nbytes = srt_cpu_matmul_scratch(job.gemm, &job.mm, job.nparts);
	job.scratch = srt_cpu_stream_scratch(stream, job.scratch_nbytes * (size_t)job.nparts);
	if (!job.scratch)
		return SRT_ERR_OUT_OF_MEMORY;
	srt_cpu_pool_run(stream->device->pool, matmul_part, &job, job.nparts, 1);
	return SRT_OK;
}

srt_status_t srt_cpu_put_matmul(void *s, const srt_matmul_t *mm, srt_dtype_t dtype,
				const srt_place_t places[4], int exact)
{
	srt_cpu_stream_t *stream = s;
	srt_cpu_op_t op = { .run = run_matmul };

	if (dtype != SRT_F32 || !stream->device->gemm)
		return SRT_ERR_UNSUPPORTED;
	op.u.matmul.mm = *mm;
	op.u.matmul.exact = exact;
	for (int i = 0; i < 4; i++)
		op.u.matmul.places[i] = places[i];
	return srt_cpu_stream_put(stream, &op);
}

/* ---- attention ------------------------------------------------------------------------ */

typedef struct attention_job {
	const srt_cpu_gemm_t *gemm;
	srt_cpu_attention_t at;
	void (*part)(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int part,
		     int nparts, void *scratch);
	int nparts;
	char *scratch;
	size_t scratch_nbytes; /* of one thread */
} attention_job_t;

static void attention_part(void *arg, int64_t first, int64_t end, int thread)
{
	const attention_job_t *job = arg;

	for (int64_t part = first; part < end; part++)
		job->part(job->gemm, &job->at, (int)part, job->nparts,
			  job->scratch + (size_t)thread * job->scratch_nbytes);
}

static attention_job_t attention_job(const srt_cpu_stream_t *stream, const srt_attention_t *shape)
{
	double size = (double)shape->batch * (double)shape->heads * (double)shape->queries *
		      (double)shape->keys * (double)shape->head_dim;

	return (attention_job_t){
		.gemm = stream->device->gemm,
		.at = {
			.batch = shape->batch,
			.queries = shape->queries,
			.keys = shape->keys,
			.heads = shape->heads,
			.head_dim = shape->head_dim,
			.scale = shape->scale,
			.causal = shape->causal,
			.ldq = shape->ldq,
			.ldk = shape->ldk,
			.ldv = shape->ldv,
			.lddq = shape->lddq,
			.lddk = shape->lddk,
			.lddv = shape->lddv,
		},
		.nparts = choose_parts(stream, size),
	};
}

static srt_status_t run_attention_job(srt_cpu_stream_t *stream, attention_job_t *job)
{
	job->scratch = srt_cpu_stream_scratch(stream, job->scratch_nbytes * (size_t)job->nparts);
	if (!job->scratch)
		return SRT_ERR_OUT_OF_MEMORY;
	srt_cpu_pool_run(stream->device->pool, attention_part, job, job->nparts, 1);
	return SRT_OK;
}

static srt_status_t run_attention(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	const srt_place_t *places = op->u.attention.places;
	attention_job_t job = attention_job(stream, &op->u.attention.shape);

	job.at.out = at(&places[0]);
	job.at.stats = at(&places[1]);
	job.at.q = at(&places[2]);
	job.at.k = at(&places[3]);
	job.at.v = at(&places[4]);
	job.at.lengths = (const int32_t *)(const void *)at(&places[5]);
	job.part = srt_cpu_attention;
	job.scratch_nbytes = srt_cpu_attention_scratch(job.gemm, &job.at);
	return run_attention_job(stream, &job);
}

/* The caller's scratch (places[9]) is for the portable kernels; this one is the stream's. */
static srt_status_t run_attention_backward(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	const srt_place_t *places = op->u.attention.places;
	attention_job_t job = attention_job(stream, &op->u.attention.shape);

	job.at.dq = at(&places[0]);
	job.at.dk = at(&places[1]);
	job.at.dv = at(&places[2]);
	job.at.dout = at(&places[3]);
	job.at.out = at(&places[4]);
	job.at.q = at(&places[5]);
	job.at.k = at(&places[6]);
	job.at.v = at(&places[7]);
	job.at.stats = at(&places[8]);
	job.at.lengths = (const int32_t *)(const void *)at(&places[10]);
	job.part = srt_cpu_attention_backward;
	job.scratch_nbytes = srt_cpu_attention_backward_scratch(job.gemm, &job.at);
	return run_attention_job(stream, &job);
}

/* With a mask of bytes (the last place) only the portable kernels work. */
static srt_status_t put_attention(srt_cpu_stream_t *stream, srt_cpu_op_fn *run,
				  const srt_attention_t *shape, srt_dtype_t dtype,
				  const srt_place_t *places, int nplaces)
{
	srt_cpu_op_t op = { .run = run };

	if (dtype != SRT_F32 || !stream->device->gemm || places[nplaces - 1].mem)
		return SRT_ERR_UNSUPPORTED;
	op.u.attention.shape = *shape;
	for (int i = 0; i < nplaces; i++)
		op.u.attention.places[i] = places[i];
	return srt_cpu_stream_put(stream, &op);
}

srt_status_t srt_cpu_put_attention(void *stream, const srt_attention_t *shape, srt_dtype_t dtype,
				   const srt_place_t places[7], int exact)
{
	(void)exact;
	return put_attention(stream, run_attention, shape, dtype, places, 7);
}

srt_status_t srt_cpu_put_attention_backward(void *stream, const srt_attention_t *shape,
					    srt_dtype_t dtype, const srt_place_t places[12],
					    int exact)
{
	(void)exact;
	return put_attention(stream, run_attention_backward, shape, dtype, places, 12);
}
