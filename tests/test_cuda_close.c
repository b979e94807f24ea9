/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Closing a peer's memory while another library of the process captures a stream: the capture goes
 * on, and what reads the memory has read it. Run on several ranks by test_cuda_ipc.sh.
 */
#include "tests/fake_cuda.h"
#include "tests/job.h"

#define NBYTES ((size_t)1 << 20)
#define NCOPIES 20

typedef struct loan {
	uint64_t nbytes, offset;
	unsigned char opaque[64];
} loan_t;

/* The next rank's memory. */
static srt_buffer_t *borrow(job_t *job, srt_buffer_t *mine)
{
	loan_t loan = { 0 }, all[16];
	srt_mem_handle_t handle = { .fd = -1 };
	const loan_t *theirs = &all[(job->rank + 1) % job->size];
	srt_buffer_t *buffer = NULL;

	CHECK_OR_DIE(job->size > 1 && job->size <= 16);
	CHECK_OK_OR_DIE(srt_buffer_export(mine, &handle));
	loan.nbytes = handle.nbytes;
	loan.offset = handle.offset;
	memcpy(loan.opaque, handle.opaque, sizeof(loan.opaque));
	CHECK_OK_OR_DIE(srt_comm_exchange(job->world, &loan, sizeof(loan), all));
	handle = (srt_mem_handle_t){ .fd = -1, .nbytes = theirs->nbytes, .offset = theirs->offset };
	memcpy(handle.opaque, theirs->opaque, sizeof(handle.opaque));
	CHECK_OK_OR_DIE(srt_buffer_import(job->device, &handle, "borrowed", &buffer));
	return buffer;
}

int main(void)
{
	srt_buffer_t *mine, *theirs, *copy;
	CUgraph graph = NULL;
	CUcontext context;
	CUstream stream;
	job_t job;

	job_open(&job);
	fake_cuda_load();
	CHECK_OK_OR_DIE(srt_buffer_create(job.device, SRT_MEM_PEER, NBYTES, "mine", &mine));
	CHECK_OK_OR_DIE(srt_buffer_create(job.device, SRT_MEM_DEVICE, NBYTES, "copy", &copy));
	theirs = borrow(&job, mine);
	CHECK_CUDA_OK(d.cuDevicePrimaryCtxRetain(&context, 0));
	CHECK_CUDA_OK(d.cuCtxPushCurrent(context));
	CHECK_CUDA_OK(d.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));

	for (int i = 0; i < NCOPIES; i++)
		CHECK_OK(srt_copy(job.stream, copy, 0, theirs, 0, NBYTES));
	CHECK_CUDA_OK(d.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	srt_buffer_destroy(theirs);
	CHECK_CUDA_OK(d.cuStreamEndCapture(stream, &graph));
	CHECK_OK(srt_stream_sync(job.stream));

	if (graph)
		d.cuGraphDestroy(graph);
	d.cuStreamDestroy(stream);
	d.cuCtxPopCurrent(&context);
	d.cuDevicePrimaryCtxRelease(0);
	srt_buffer_destroy(copy);
	CHECK_OK(srt_comm_exchange(job.world, NULL, 0, NULL)); /* all have closed */
	srt_buffer_destroy(mine);
	job_close(&job);
	return check_done();
}
