/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tuned attention as slots; the same anatomy as the product's (tuned.c). The parts are heads
 * (attention.h); 16-bit tensors go by way of attention_half.h.
 */
#include "backends/cpu/attention_half.h"
#include "backends/cpu/tuned.h"
#include "base/base.h"

typedef struct attention_job attention_job_t;
struct attention_job {
	const srt_cpu_gemm_t *gemm;
	srt_cpu_attention_half_t half; /* of tensors of floats only half.at */
	void (*part)(const attention_job_t *job, int part, void *scratch);
	int nparts;
	char *scratch;
	size_t scratch_nbytes; /* of one thread */
};

static void attention_part(void *arg, int64_t first, int64_t end, int thread)
{
	const attention_job_t *job = arg;

	for (int64_t part = first; part < end; part++)
		job->part(job, (int)part, job->scratch + (size_t)thread * job->scratch_nbytes);
}

static attention_job_t attention_job(const srt_cpu_device_t *device, const srt_attention_t *shape,
				     srt_dtype_t dtype)
{
	double size = (double)shape->batch * (double)shape->heads * (double)shape->queries *
		      (double)shape->keys * (double)shape->head_dim;

	return (attention_job_t){
		.gemm = device->gemm,
		.half.casts = srt_cpu_half(dtype, device->isa),
		.half.at = {
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
		.nparts = srt_cpu_tuned_parts(device, size),
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

/* ---- forward --------------------------------------------------------------------------- */

static void forward_part(const attention_job_t *job, int part, void *scratch)
{
	srt_cpu_attention(job->gemm, &job->half.at, part, job->nparts, scratch);
}

static void forward_half_part(const attention_job_t *job, int part, void *scratch)
{
	srt_cpu_attention_half(job->gemm, &job->half, part, job->nparts, scratch);
}

static srt_status_t run_attention(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	const srt_place_t *places = op->u.attention.places;
	attention_job_t job =
		attention_job(stream->device, &op->u.attention.shape, op->u.attention.dtype);
	srt_cpu_attention_half_t *half = &job.half;
	srt_cpu_attention_t *at = &half->at;

	at->stats = srt_cpu_tensor(&places[1]);
	at->lengths = srt_cpu_tensor(&places[5]);
	at->mask = srt_cpu_tensor(&places[6]);
	if (op->u.attention.dtype == SRT_F32) {
		at->out = srt_cpu_tensor(&places[0]);
		at->q = srt_cpu_tensor(&places[2]);
		at->k = srt_cpu_tensor(&places[3]);
		at->v = srt_cpu_tensor(&places[4]);
		job.part = forward_part;
		job.scratch_nbytes = srt_cpu_attention_scratch(job.gemm, at);
	} else {
		half->out = srt_cpu_tensor(&places[0]);
		half->q = srt_cpu_tensor(&places[2]);
		half->k = srt_cpu_tensor(&places[3]);
		half->v = srt_cpu_tensor(&places[4]);
		job.part = forward_half_part;
		job.scratch_nbytes = srt_cpu_attention_half_scratch(job.gemm, half);
	}
	return run_attention_job(stream, &job);
}

/* ---- backward -------------------------------------------------------------------------- */

static void backward_part(const attention_job_t *job, int part, void *scratch)
{
	srt_cpu_attention_backward(job->gemm, &job->half.at, part, job->nparts, scratch);
}

static void backward_half_part(const attention_job_t *job, int part, void *scratch)
{
	srt_cpu_attention_half_backward(job->gemm, &job->half, part, job->nparts, scratch);
}

/* The caller's scratch (places[9]) is for the portable kernels; this one is the stream's. */
static srt_status_t run_attention_backward(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	const srt_place_t *places = op->u.attention.places;
	attention_job_t job =
		attention_job(stream->device, &op->u.attention.shape, op->u.attention.dtype);
	srt_cpu_attention_half_t *half = &job.half;
	srt_cpu_attention_t *at = &half->at;

	at->stats = srt_cpu_tensor(&places[8]);
	at->lengths = srt_cpu_tensor(&places[10]);
	at->mask = srt_cpu_tensor(&places[11]);
	if (op->u.attention.dtype == SRT_F32) {
		at->dq = srt_cpu_tensor(&places[0]);
		at->dk = srt_cpu_tensor(&places[1]);
		at->dv = srt_cpu_tensor(&places[2]);
		at->dout = srt_cpu_tensor(&places[3]);
		at->out = srt_cpu_tensor(&places[4]);
		at->q = srt_cpu_tensor(&places[5]);
		at->k = srt_cpu_tensor(&places[6]);
		at->v = srt_cpu_tensor(&places[7]);
		job.part = backward_part;
		job.scratch_nbytes = srt_cpu_attention_backward_scratch(job.gemm, at);
	} else {
		half->dq = srt_cpu_tensor(&places[0]);
		half->dk = srt_cpu_tensor(&places[1]);
		half->dv = srt_cpu_tensor(&places[2]);
		half->dout = srt_cpu_tensor(&places[3]);
		half->out = srt_cpu_tensor(&places[4]);
		half->q = srt_cpu_tensor(&places[5]);
		half->k = srt_cpu_tensor(&places[6]);
		half->v = srt_cpu_tensor(&places[7]);
		job.part = backward_half_part;
		job.scratch_nbytes = srt_cpu_attention_half_backward_scratch(job.gemm, half);
	}
	return run_attention_job(stream, &job);
}

/* ---- memory ---------------------------------------------------------------------------- */

size_t srt_cpu_attention_memory(void *dev, const srt_attention_t *shape, srt_dtype_t dtype,
				int backward, int masked, int exact)
{
	/* Stand for a mask and the gradients of 16 bits, which take the most. */
	static const unsigned char some;
	uint16_t gradient = 0;
	const srt_cpu_device_t *device = dev;
	attention_job_t job;
	size_t each;

	(void)exact;
	if (!device->gemm)
		return 0;
	job = attention_job(device, shape, dtype);
	job.half.at.mask = masked ? &some : NULL;
	job.half.dq = job.half.dk = job.half.dv = &gradient;
	if (dtype == SRT_F32)
		each = backward ? srt_cpu_attention_backward_scratch(job.gemm, &job.half.at) :
				  srt_cpu_attention_scratch(job.gemm, &job.half.at);
	else
		each = backward ? srt_cpu_attention_half_backward_scratch(job.gemm, &job.half) :
				  srt_cpu_attention_half_scratch(job.gemm, &job.half);
	return each * (size_t)job.nparts;
}

/* ---- slots ----------------------------------------------------------------------------- */

static srt_status_t put_attention(srt_cpu_stream_t *stream, srt_cpu_op_fn *run,
				  const srt_attention_t *shape, srt_dtype_t dtype,
				  const srt_place_t *places, int nplaces)
{
	srt_cpu_op_t op = { .run = run };

	if (!srt_cpu_has_tuned(stream, dtype))
		return SRT_ERR_UNSUPPORTED;
	op.u.attention.shape = *shape;
	op.u.attention.dtype = dtype;
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
