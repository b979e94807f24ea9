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

static matmul_job_t matmul_job(const srt_cpu_stream_t *stream, const srt_cpu_matmul_t *mm)
{
	double size = (double)mm->m * (double)mm->n * (double)mm->k * (double)mm->batch;
	matmul_job_t job = { .gemm = stream->device->gemm, .mm = *mm };

	job.nparts = choose_parts(stream, size);
	job.scratch_nbytes = srt_cpu_matmul_scratch(job.gemm, &job.mm, job.nparts);
	return job;
}

/* The job's scratch, and `more` bytes behind it that are the caller's; NULL: the error is set. */
static char *matmul_scratch(srt_cpu_stream_t *stream, matmul_job_t *job, size_t more)
{
	size_t own = srt_align_up(job->scratch_nbytes * (size_t)job->nparts, SRT_CPU_ALIGN);

	job->scratch = srt_cpu_stream_scratch(stream, own + more);
	return job->scratch ? job->scratch + own : NULL;
}

/* The product as described, without its tensors. */
static srt_cpu_matmul_t matmul_shape(const srt_matmul_t *mm)
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

static srt_status_t run_matmul(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	const srt_place_t *places = op->u.matmul.places;
	srt_cpu_matmul_t mm = matmul_shape(&op->u.matmul.mm);
	matmul_job_t job;

	mm.c = at(&places[0]);
	mm.a = at(&places[1]);
	mm.b = at(&places[2]);
	mm.bias = at(&places[3]);
	if (stream->device->fast && !op->u.matmul.exact && srt_cpu_onednn_takes(&mm))
		return run_fast(stream, &mm);
	job = matmul_job(stream, &mm);
	if (!matmul_scratch(stream, &job, 0))
		return SRT_ERR_OUT_OF_MEMORY;
	srt_cpu_pool_run(stream->device->pool, matmul_part, &job, job.nparts, 1);
	return SRT_OK;
}

/* ---- the same in 16 bits: widened to floats in scratch, and the result rounded ---------- */

#define MAX_WIDENED ((int64_t)1 << 28) /* floats of scratch; larger products are portable */
#define ALONE_GROUPS 16                /* fewer are not worth waking threads for */

typedef struct cast_job {
	srt_kernel_cpu_fn *fn;
	unsigned char *places[2];
	srt_k_elem_t args;
} cast_job_t;

static void cast_part(void *arg, int64_t first, int64_t end, int thread)
{
	const cast_job_t *job = arg;

	(void)thread;
	job->fn(job->places, &job->args, first, end);
}

/* y (of dtype `to`) = x by a cast kernel. */
static void cast(const srt_cpu_stream_t *stream, srt_kernel_id_t kernel, srt_dtype_t to, void *y,
		 void *x, int64_t nelem)
{
	cast_job_t job = { .fn = srt_kernel_cpu(kernel, to, stream->device->isa),
			   .places = { y, x },
			   .args = { .nelem = nelem } };
	int64_t ngroups = srt_kernel_grid(kernel, &job.args);

	if (ngroups < ALONE_GROUPS)
		cast_part(&job, 0, ngroups, 0);
	else
		srt_cpu_pool_run(stream->device->pool, cast_part, &job, ngroups, ALONE_GROUPS);
}

/* Elements from a tensor's first to its last: the gaps between rows are widened with it. */
static int64_t extent(int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
	return rows && cols ? (batch - 1) * stride + (rows - 1) * ld + cols : 0;
}

/* Of c, a, b, bias. */
static void extents(const srt_matmul_t *mm, bool has_bias, int64_t nelem[4])
{
	nelem[0] = extent(mm->m, mm->n, mm->ldc, mm->batch, mm->stride_c);
	nelem[1] = extent(mm->trans_a ? mm->k : mm->m, mm->trans_a ? mm->m : mm->k, mm->lda,
			  mm->batch, mm->stride_a);
	nelem[2] = extent(mm->trans_b ? mm->n : mm->k, mm->trans_b ? mm->k : mm->n, mm->ldb,
			  mm->batch, mm->stride_b);
	nelem[3] = has_bias ? mm->n : 0;
}

/* The rows of C alone: what lies between them is not the product's. */
static void round_rows(const srt_cpu_stream_t *stream, const srt_matmul_t *mm, srt_dtype_t dtype,
		       uint16_t *c, float *wide)
{
	for (int64_t b = 0; b < mm->batch; b++) {
		int64_t at_item = b * mm->stride_c;

		if (mm->ldc == mm->n) {
			cast(stream, SRT_K_CAST_FROM_F32, dtype, c + at_item, wide + at_item,
			     mm->m * mm->n);
			continue;
		}
		for (int64_t i = at_item; i < at_item + mm->m * mm->ldc; i += mm->ldc)
			cast(stream, SRT_K_CAST_FROM_F32, dtype, c + i, wide + i, mm->n);
	}
}

static srt_status_t run_matmul_16bit(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	const srt_matmul_t *mm = &op->u.matmul.mm;
	const srt_place_t *places = op->u.matmul.places;
	const srt_dtype_t dtype = op->u.matmul.dtype;
	const srt_kernel_id_t widen = dtype == SRT_F16 ? SRT_K_CAST_FROM_F16 : SRT_K_CAST_FROM_BF16;
	matmul_job_t job;
	srt_cpu_matmul_t shape = matmul_shape(mm);
	int64_t nelem[4], total = 0;
	float *wide[4], *next;

	extents(mm, places[3].mem != NULL, nelem);
	for (int i = 0; i < 4; i++)
		total += (int64_t)srt_align_up((size_t)nelem[i], 16);
	job = matmul_job(stream, &shape);
	next = (float *)(void *)matmul_scratch(stream, &job, (size_t)total * sizeof(float));
	if (!next)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int i = 0; i < 4; i++) {
		wide[i] = next;
		next += srt_align_up((size_t)nelem[i], 16);
		if (nelem[i] && (i > 0 || mm->accumulate))
			cast(stream, widen, SRT_F32, wide[i], at(&places[i]), nelem[i]);
	}
	job.mm.c = wide[0];
	job.mm.a = wide[1];
	job.mm.b = wide[2];
	job.mm.bias = nelem[3] ? wide[3] : NULL;
	srt_cpu_pool_run(stream->device->pool, matmul_part, &job, job.nparts, 1);
	round_rows(stream, mm, dtype, (uint16_t *)(void *)at(&places[0]), wide[0]);
	return SRT_OK;
}

/* Whether a product can have a form of this dtype here. */
static bool can_widen(const srt_matmul_t *mm, srt_dtype_t dtype)
{
	int64_t nelem[4], total = 0;

	if (dtype != SRT_F16 && dtype != SRT_BF16)
		return false;
	extents(mm, true, nelem);
	for (int i = 0; i < 4; i++)
		total += nelem[i];
	return total <= MAX_WIDENED;
}

srt_status_t srt_cpu_put_matmul(void *s, const srt_matmul_t *mm, srt_dtype_t dtype,
				const srt_place_t places[4], int exact)
{
	srt_cpu_stream_t *stream = s;
	srt_cpu_op_t op = { .run = run_matmul };

	if (!stream->device->gemm || (dtype != SRT_F32 && !can_widen(mm, dtype)))
		return SRT_ERR_UNSUPPORTED;
	if (dtype != SRT_F32) {
		SRT_TRY(srt_cpu_try_kernel(stream->device, SRT_K_CAST_FROM_F32, dtype,
					   srt_cpu_selftest_run));
		op.run = run_matmul_16bit;
	}
	op.u.matmul.dtype = dtype;
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
