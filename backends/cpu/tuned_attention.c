/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tuned attention as commands, structured like the product (tuned.c). The parts are heads
 * (attention.h); attention_half.h handles 16-bit tensors.
 */
#include "backends/cpu/attention_half.h"
#include "backends/cpu/tuned.h"
#include "base/base.h"

typedef struct attention_job attention_job_t;
struct attention_job {
	const srt_cpu_gemm_t *gemm;
	srt_cpu_attention_half_t half; /* for float tensors only half.at */
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

static attention_job_t attention_job(const srt_cpu_device_t *device, const srt_command_t *command)
{
	const srt_k_attention_t *shape = &command->attention;
	double size = (double)shape->batch * (double)shape->heads * (double)shape->queries *
		      (double)shape->keys * (double)shape->head_dim;

	return (attention_job_t){
		.gemm = device->gemm,
		.half.casts = srt_cpu_half((srt_dtype_t)command->dtype, device->isa),
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

/* ---- forward --------------------------------------------------------------------------- */

static void forward_part(const attention_job_t *job, int part, void *scratch)
{
	srt_cpu_attention(job->gemm, &job->half.at, part, job->nparts, scratch);
}

static void forward_half_part(const attention_job_t *job, int part, void *scratch)
{
	srt_cpu_attention_half(job->gemm, &job->half, part, job->nparts, scratch);
}

static attention_job_t make_forward_job(const srt_cpu_device_t *device,
					const srt_command_t *command)
{
	const srt_binding_t *places = command->bindings;
	attention_job_t job = attention_job(device, command);
	srt_cpu_attention_half_t *half = &job.half;
	srt_cpu_attention_t *at = &half->at;

	at->stats = srt_cpu_tensor(&places[1]);
	at->lengths = srt_cpu_tensor(&places[5]);
	at->mask = srt_cpu_tensor(&places[6]);
	if (command->dtype == SRT_F32) {
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
	return job;
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

/* Only the portable kernels use the command's scratch (binding 9); this uses the stream's. */
static attention_job_t make_backward_job(const srt_cpu_device_t *device,
					 const srt_command_t *command)
{
	const srt_binding_t *places = command->bindings;
	attention_job_t job = attention_job(device, command);
	srt_cpu_attention_half_t *half = &job.half;
	srt_cpu_attention_t *at = &half->at;

	at->stats = srt_cpu_tensor(&places[8]);
	at->lengths = srt_cpu_tensor(&places[10]);
	at->mask = srt_cpu_tensor(&places[11]);
	if (command->dtype == SRT_F32) {
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
	return job;
}

/* ---- memory ---------------------------------------------------------------------------- */

size_t srt_cpu_attention_memory(const srt_cpu_device_t *device, const srt_command_t *command)
{
	/* Any non-NULL value: a mask and gradients of 16 bits need the most scratch. */
	static const unsigned char some;
	const bool backward = command->kind == SRT_COMMAND_ATTENTION_BACKWARD;
	uint16_t gradient = 0;
	attention_job_t job = attention_job(device, command);
	size_t each;

	job.half.at.mask = command->bindings[backward ? 11 : 6].mem ? &some : NULL;
	job.half.dq = job.half.dk = job.half.dv = &gradient;
	if (command->dtype == SRT_F32)
		each = backward ? srt_cpu_attention_backward_scratch(job.gemm, &job.half.at) :
				  srt_cpu_attention_scratch(job.gemm, &job.half.at);
	else
		each = backward ? srt_cpu_attention_half_backward_scratch(job.gemm, &job.half) :
				  srt_cpu_attention_half_scratch(job.gemm, &job.half);
	return each * (size_t)job.nparts;
}

/* ---- commands -------------------------------------------------------------------------- */

bool srt_cpu_can_attention(srt_cpu_stream_t *stream, const srt_command_t *command)
{
	return command->attention.queries > 0 && command->attention.keys > 0 &&
	       srt_cpu_has_tuned(stream, (srt_dtype_t)command->dtype);
}

srt_status_t srt_cpu_run_attention(srt_cpu_stream_t *stream, const srt_command_t *command)
{
	const srt_cpu_device_t *device = stream->device;
	attention_job_t job = command->kind == SRT_COMMAND_ATTENTION ?
				      make_forward_job(device, command) :
				      make_backward_job(device, command);

	job.scratch = srt_cpu_stream_scratch(stream, job.scratch_nbytes * (size_t)job.nparts);
	if (!job.scratch)
		return SRT_ERR_OUT_OF_MEMORY;
	srt_cpu_pool_run(device->pool, attention_part, &job, job.nparts, 1);
	return SRT_OK;
}
