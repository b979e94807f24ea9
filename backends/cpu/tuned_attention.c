/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tuned attention as commands, structured like the product (tuned.c). The parts are heads
 * (attention.h). The portable kernels compute attention with both a mask and first keys.
 */
#include "backends/cpu/attention.h"
#include "backends/cpu/tuned.h"
#include "base/base.h"

typedef struct attention_job {
	const srt_cpu_gemm_t *gemm;
	srt_cpu_attention_t at;
	void (*run)(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int part, int nparts,
		    void *scratch);
	int nparts;
	char *scratch;
	size_t scratch_nbytes; /* of one thread */
} attention_job_t;

static void attention_part(void *arg, int64_t first, int64_t end, int thread)
{
	const attention_job_t *job = arg;

	for (int64_t part = first; part < end; part++)
		job->run(job->gemm, &job->at, (int)part, job->nparts,
			 job->scratch + (size_t)thread * job->scratch_nbytes);
}

static attention_job_t attention_job(const srt_cpu_device_t *device, const srt_command_t *command)
{
	const srt_k_attention_t *shape = &command->attention;
	double size = (double)shape->batch * (double)shape->heads * (double)shape->queries *
		      (double)shape->keys * (double)shape->head_dim;

	return (attention_job_t){
		.gemm = device->gemm,
		.at = { .shape = *shape, .dtype = (srt_dtype_t)command->dtype },
		.nparts = srt_cpu_tuned_parts(device, size),
	};
}

static attention_job_t make_forward_job(const srt_cpu_device_t *device,
					const srt_command_t *command)
{
	const srt_binding_t *places = command->bindings;
	attention_job_t job = attention_job(device, command);
	srt_cpu_attention_t *at = &job.at;

	at->out = srt_cpu_tensor(&places[0]);
	at->stats = srt_cpu_tensor(&places[1]);
	at->q = srt_cpu_tensor(&places[2]);
	at->k = srt_cpu_tensor(&places[3]);
	at->v = srt_cpu_tensor(&places[4]);
	at->lengths = srt_cpu_tensor(&places[5]);
	at->mask = srt_cpu_tensor(&places[6]);
	at->first = srt_cpu_tensor(&places[7]);
	job.run = srt_cpu_attention;
	job.scratch_nbytes = srt_cpu_attention_scratch(job.gemm, at);
	return job;
}

/* Only the portable kernels use the command's scratch (binding 9); this uses the stream's. */
static attention_job_t make_backward_job(const srt_cpu_device_t *device,
					 const srt_command_t *command)
{
	const srt_binding_t *places = command->bindings;
	attention_job_t job = attention_job(device, command);
	srt_cpu_attention_t *at = &job.at;

	at->dq = srt_cpu_tensor(&places[0]);
	at->dk = srt_cpu_tensor(&places[1]);
	at->dv = srt_cpu_tensor(&places[2]);
	at->dout = srt_cpu_tensor(&places[3]);
	at->out = srt_cpu_tensor(&places[4]);
	at->q = srt_cpu_tensor(&places[5]);
	at->k = srt_cpu_tensor(&places[6]);
	at->v = srt_cpu_tensor(&places[7]);
	at->stats = srt_cpu_tensor(&places[8]);
	at->lengths = srt_cpu_tensor(&places[10]);
	at->mask = srt_cpu_tensor(&places[11]);
	at->first = srt_cpu_tensor(&places[12]);
	job.run = srt_cpu_attention_backward;
	job.scratch_nbytes = srt_cpu_attention_backward_scratch(job.gemm, at);
	return job;
}

/* ---- memory ---------------------------------------------------------------------------- */

size_t srt_cpu_attention_memory(const srt_cpu_device_t *device, const srt_command_t *command)
{
	/* Any non-NULL value: a mask and gradients of 16 bits need the most scratch. */
	static const unsigned char some;
	static const int32_t some_first;
	const bool backward = command->kind == SRT_COMMAND_ATTENTION_BACKWARD;
	const srt_binding_t *masks = &command->bindings[command->nbindings - 2];
	uint16_t gradient = 0;
	attention_job_t job = attention_job(device, command);
	size_t each;

	job.at.mask = masks[0].mem != NULL ? &some : NULL;
	job.at.first = masks[1].mem != NULL ? &some_first : NULL;
	job.at.dq = job.at.dk = job.at.dv = &gradient;
	each = backward ? srt_cpu_attention_backward_scratch(job.gemm, &job.at) :
			  srt_cpu_attention_scratch(job.gemm, &job.at);
	return each * (size_t)job.nparts;
}

/* ---- commands -------------------------------------------------------------------------- */

bool srt_cpu_can_attention(srt_cpu_stream_t *stream, const srt_command_t *command)
{
	const srt_binding_t *masks = &command->bindings[command->nbindings - 2];

	return (masks[0].mem == NULL || masks[1].mem == NULL) && command->attention.queries > 0 &&
	       command->attention.keys > 0 &&
	       srt_cpu_has_tuned(stream, (srt_dtype_t)command->dtype);
}

srt_status_t srt_cpu_run_attention(srt_cpu_stream_t *stream, const srt_command_t *command)
{
	const srt_cpu_device_t *device = stream->device;
	attention_job_t job = command->kind == SRT_COMMAND_ATTENTION ?
				      make_forward_job(device, command) :
				      make_backward_job(device, command);

	job.scratch = srt_cpu_stream_scratch(stream, job.scratch_nbytes * (size_t)job.nparts);
	if (job.scratch == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	srt_cpu_pool_run(device->pool, attention_part, &job, job.nparts, 1);
	return SRT_OK;
}
