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
			     "stream \"%s\": %s failed", stream->name, what);
}

/* Other threads may allocate meanwhile, and so may this one's self-test: hence RELAXED. */
srt_status_t srt_cuda_record_begin(void *s)
{
	srt_cuda_stream_t *stream = s;
	const srt_host_services_t *host = stream->device->host;
	srt_cuda_scope_t scope;
	srt_status_t status = SRT_OK;
	CUresult code;

	if (stream->recording)
		return host->fail(SRT_ERR_STATE, "stream \"%s\" is already being recorded",
				  stream->name);
	srt_cuda_stream_drain(stream);
	pthread_mutex_lock(&stream->lock);
	scope = srt_cuda_enter(stream->device);
	if (stream->failure.status != SRT_OK) {
		status = host->fail(stream->failure.status, "%s", stream->failure.message);
	} else {
		code = stream->device->drv->cuStreamBeginCapture(stream->queue,
								 CU_STREAM_CAPTURE_MODE_RELAXED);
		if (code != CUDA_SUCCESS)
			status = record_failed(stream, code, "starting a recording");
	}
	stream->recording = status == SRT_OK;
	srt_cuda_leave(scope);
	pthread_mutex_unlock(&stream->lock);
	return status;
}

/* The captured graph, made ready to run. */
static srt_status_t end_capture(srt_cuda_stream_t *stream, CUgraphExec *exec)
{
	const srt_cuda_driver_t *drv = stream->device->drv;
	const srt_host_services_t *host = stream->device->host;
	CUgraph graph = NULL;
	CUresult code = drv->cuStreamEndCapture(stream->queue, &graph);

	if (code != CUDA_SUCCESS)
		return record_failed(stream, code, "ending a recording");
	if (stream->failure.status != SRT_OK) {
		drv->cuGraphDestroy(graph);
		return host->fail(stream->failure.status, "%s", stream->failure.message);
	}
	code = drv->cuGraphInstantiateWithFlags(exec, graph, 0);
	drv->cuGraphDestroy(graph);
	return code == CUDA_SUCCESS ? SRT_OK :
				      record_failed(stream, code, "making a recording ready");
}

srt_status_t srt_cuda_record_end(void *s, void **out)
{
	srt_cuda_stream_t *stream = s;
	const srt_host_services_t *host = stream->device->host;
	srt_cuda_recording_t *recording;
	srt_cuda_scope_t scope;
	srt_status_t status;

	if (!stream->recording)
		return host->fail(SRT_ERR_STATE, "stream \"%s\" is not being recorded",
				  stream->name);
	recording = host->alloc(sizeof(*recording));
	if (!recording)
		return SRT_ERR_OUT_OF_MEMORY;
	*recording = (srt_cuda_recording_t){ .device = stream->device, .refs = 1 };
	pthread_mutex_lock(&stream->lock);
	scope = srt_cuda_enter(stream->device);
	status = end_capture(stream, &recording->exec);
	stream->recording = false;
	if (status == SRT_OK)
		recording->scratch = stream->recorded_scratch;
	else
		srt_cuda_scratch_free(stream->device, stream->recorded_scratch);
	stream->recorded_scratch = NULL;
	srt_cuda_leave(scope);
	pthread_mutex_unlock(&stream->lock);
	if (status != SRT_OK) {
		host->free(recording);
		return status;
	}
	*out = recording;
	return SRT_OK;
}

/* The driver keeps what it still runs, but not the memory that this uses. */
static void recording_drop(srt_cuda_recording_t *recording)
{
	srt_cuda_device_t *device = recording->device;
	srt_cuda_scope_t scope;
	int refs;

	pthread_mutex_lock(&device->points_lock);
	refs = --recording->refs;
	pthread_mutex_unlock(&device->points_lock);
	if (refs)
		return;
	scope = srt_cuda_enter(device);
	device->drv->cuGraphExecDestroy(recording->exec);
	if (recording->scratch)
		device->drv->cuCtxSynchronize();
	srt_cuda_scratch_free(device, recording->scratch);
	srt_cuda_leave(scope);
	device->host->free(recording);
}

static srt_status_t run_replay(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	srt_cuda_recording_t *recording = op->u.recording;
	srt_status_t status = SRT_OK;
	CUresult code;

	if (stream->failure.status == SRT_OK) {
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

	pthread_mutex_lock(&device->points_lock);
	recording->refs++;
	pthread_mutex_unlock(&device->points_lock);
	status = srt_cuda_stream_put(stream, &(srt_cuda_op_t){
						     .run = run_replay,
						     .even_if_failed = true,
						     .unrecorded = true,
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
						  stream->name, stream->device->name);
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
