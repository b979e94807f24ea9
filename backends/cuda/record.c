/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recordings, which are graphs captured from a stream, and values that streams write and wait for.
 * What is put between record_begin and record_end is not done but kept; what would need the host in
 * between is refused by srt_cuda_stream_put().
 */
#include "backends/cuda/cuda.h"

static srt_status_t record_failed(const srt_cuda_stream_t *stream, CUresult code, const char *what)
{
	return srt_cuda_fail(stream->device->host, stream->device->drv, code,
			     "stream \"%s\": %s failed", stream->ring.name, what);
}

/* Other threads may allocate meanwhile, and so may this one's self-test: hence RELAXED. */
srt_status_t srt_cuda_record_begin(void *s)
{
	srt_cuda_stream_t *stream = s;
	const srt_host_services_t *host = stream->device->host;
	srt_cuda_scope_t scope;
	srt_status_t status = SRT_OK;
	CUresult code;

	if (stream->ring.recording)
		return host->fail(SRT_ERR_STATE, "stream \"%s\" is already being recorded",
				  stream->ring.name);
	srt_ring_drain(&stream->ring);
	pthread_mutex_lock(&stream->ring.lock);
	scope = srt_cuda_enter(stream->device);
	if (stream->ring.failure.status != SRT_OK) {
		status =
			host->fail(stream->ring.failure.status, "%s", stream->ring.failure.message);
	} else {
		code = stream->device->drv->cuStreamBeginCapture(stream->queue,
								 CU_STREAM_CAPTURE_MODE_RELAXED);
		if (code != CUDA_SUCCESS)
			status = record_failed(stream, code, "starting a recording");
	}
	stream->ring.recording = status == SRT_OK;
	stream->has_recorded = stream->has_recorded || stream->ring.recording;
	stream->ring.unrecorded.status = SRT_OK;
	srt_cuda_leave(scope);
	pthread_mutex_unlock(&stream->ring.lock);
	return status;
}

/* The captured graph, made ready to run. */
static srt_status_t end_capture(srt_cuda_stream_t *stream, CUgraphExec *exec)
{
	const srt_cuda_driver_t *drv = stream->device->drv;
	const srt_host_services_t *host = stream->device->host;
	CUgraph graph = NULL;
	CUresult code = drv->cuStreamEndCapture(stream->queue, &graph);

	/* What failed first is why the capture could not be ended. */
	if (stream->ring.unrecorded.status != SRT_OK) {
		if (code == CUDA_SUCCESS)
			drv->cuGraphDestroy(graph);
		return host->fail(stream->ring.unrecorded.status, "%s",
				  stream->ring.unrecorded.message);
	}
	if (code != CUDA_SUCCESS)
		return record_failed(stream, code, "ending a recording");
	code = drv->cuGraphInstantiateWithFlags(exec, graph, 0);
	drv->cuGraphDestroy(graph);
	return code == CUDA_SUCCESS ? SRT_OK :
				      record_failed(stream, code, "making a recording ready");
}

/* The stream records no more, whatever fails. */
srt_status_t srt_cuda_record_end(void *s, void **out)
{
	srt_cuda_stream_t *stream = s;
	const srt_cuda_driver_t *drv = stream->device->drv;
	const srt_host_services_t *host = stream->device->host;
	srt_cuda_recording_t *recording;
	CUgraphExec exec = NULL;
	srt_cuda_scope_t scope;
	srt_status_t status;

	if (!stream->ring.recording)
		return host->fail(SRT_ERR_STATE, "stream \"%s\" is not being recorded",
				  stream->ring.name);
	pthread_mutex_lock(&stream->ring.lock);
	scope = srt_cuda_enter(stream->device);
	status = end_capture(stream, &exec);
	stream->ring.recording = false;
	recording = status == SRT_OK ? host->alloc(sizeof(*recording)) : NULL;
	if (status == SRT_OK && !recording) {
		drv->cuGraphExecDestroy(exec);
		status = SRT_ERR_OUT_OF_MEMORY;
	}
	srt_cuda_leave(scope);
	pthread_mutex_unlock(&stream->ring.lock);
	if (status != SRT_OK)
		return status;
	*recording = (srt_cuda_recording_t){ .device = stream->device, .exec = exec, .refs = 1 };
	*out = recording;
	return SRT_OK;
}

/* The driver keeps what it still runs. */
static void recording_drop(srt_cuda_recording_t *recording)
{
	srt_cuda_device_t *device = recording->device;
	srt_cuda_scope_t scope;
	int refs;

	pthread_mutex_lock(&device->rings.lock);
	refs = --recording->refs;
	pthread_mutex_unlock(&device->rings.lock);
	if (refs)
		return;
	scope = srt_cuda_enter(device);
	device->drv->cuGraphExecDestroy(recording->exec);
	srt_cuda_leave(scope);
	device->host->free(recording);
}

static srt_status_t run_replay(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	srt_cuda_recording_t *recording = op->u.recording;
	srt_status_t status = SRT_OK;
	CUresult code;

	if (stream->ring.failure.status == SRT_OK) {
		code = stream->device->drv->cuGraphLaunch(recording->exec, stream->queue);
		if (code != CUDA_SUCCESS)
			status = record_failed(stream, code, "replaying a recording");
	}
	recording_drop(recording);
	return status;
}

srt_status_t srt_cuda_replay(void *stream, void *r)
{
	srt_cuda_recording_t *recording = r;
	srt_cuda_device_t *device = recording->device;
	srt_status_t status;

	pthread_mutex_lock(&device->rings.lock);
	recording->refs++;
	pthread_mutex_unlock(&device->rings.lock);
	status = srt_cuda_stream_put(stream, &(srt_cuda_op_t){
						     .run = run_replay,
						     .ring.even_if_failed = true,
						     .ring.unrecorded = true,
						     .u.recording = recording,
					     });
	if (status != SRT_OK)
		recording_drop(recording);
	return status;
}

void srt_cuda_recording_free(void *recording)
{
	if (recording)
		recording_drop(recording);
}

/* ---- values ------------------------------------------------------------------------------ */

static srt_status_t run_write_value(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	CUresult code =
		stream->device->drv->cuStreamWriteValue32(stream->queue, op->u.value.address,
							  op->u.value.value,
							  CU_STREAM_WRITE_VALUE_DEFAULT);

	return code == CUDA_SUCCESS ? SRT_OK : record_failed(stream, code, "writing a value");
}

static srt_status_t run_wait_value(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	CUresult code = stream->device->drv->cuStreamWaitValue32(stream->queue, op->u.value.address,
								 op->u.value.value,
								 CU_STREAM_WAIT_VALUE_GEQ);

	return code == CUDA_SUCCESS ? SRT_OK : record_failed(stream, code, "waiting for a value");
}

static srt_status_t put_value(void *s, srt_cuda_op_fn *run, const srt_cuda_mem_t *mem,
			      size_t offset, uint32_t value)
{
	srt_cuda_stream_t *stream = s;

	if (!mem->address)
		return stream->device->host->fail(SRT_ERR_UNSUPPORTED,
						  "stream \"%s\": CUDA device \"%s\" does not see "
						  "the memory of a value",
						  stream->ring.name, stream->device->name);
	return srt_cuda_stream_put(stream, &(srt_cuda_op_t){
						   .run = run,
						   .u.value = { mem->address + offset, value },
					   });
}

srt_status_t srt_cuda_write_value(void *stream, void *mem, size_t offset, uint32_t value)
{
	return put_value(stream, run_write_value, mem, offset, value);
}

srt_status_t srt_cuda_wait_value(void *stream, void *mem, size_t offset, uint32_t at_least)
{
	return put_value(stream, run_wait_value, mem, offset, at_least);
}
