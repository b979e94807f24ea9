/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recordings of the CUDA backend over the fake driver (tests/fake_cuda/), by its own slots: what
 * may not be put on a stream that is being recorded, what is replayed how often, and the scratch
 * that recorded products use. Sequences, which make recordings, are in test_sequence.c.
 */
#include "tests/cuda.h"

static void test_recording(srt_device_t *device)
{
	const srt_backend_work_ops_t *work = &srt_cuda_work_ops;
	srt_stream_t *s = test_stream(device, "recorded"), *t = test_stream(device, "other");
	srt_buffer_t *x = test_buffer(device, NBYTES, "x"), *y = test_buffer(device, NBYTES, "y");
	srt_view_t vx = srt_view(x, 0, SRT_F32), vy = srt_view(y, 0, SRT_F32);
	void *recording = NULL;
	srt_event_t *event;

	CHECK_OK_OR_DIE(srt_event_create(device, &event));
	CHECK_OK(srt_op_fill(s, vx, 1.0f, N));
	CHECK_OK(srt_event_record(event, t));
	CHECK_STATUS(work->record_end(s->impl, &recording), SRT_ERR_STATE);
	CHECK_OK(work->record_begin(s->impl));
	CHECK_STATUS(work->record_begin(s->impl), SRT_ERR_STATE);
	CHECK_OK(srt_op_axpy(s, vy, vx, 2.0f, N));
	CHECK_OK(srt_op_axpy(s, vy, vx, 1.0f, N));
	CHECK_STATUS(srt_stream_host_fn(s, cuda_do_nothing, NULL), SRT_ERR_STATE);
	CHECK_ERROR_HAS("is being recorded");
	CHECK_STATUS(srt_stream_sync(s), SRT_ERR_STATE);
	CHECK_STATUS(srt_event_record(event, s), SRT_ERR_STATE);
	CHECK_STATUS(srt_stream_wait_event(s, event), SRT_ERR_STATE);
	CHECK_STATUS(srt_copy_from_host(s, y, 0, "abcd", 4), SRT_ERR_STATE);
	CHECK_OK_OR_DIE(work->record_end(s->impl, &recording));
	cuda_check_all(s, y, 0.0f); /* nothing was done */
	for (int i = 0; i < 3; i++)
		CHECK_OK(work->replay(s->impl, recording));
	cuda_check_all(s, y, 9.0f);
	/* The holder's end, with a replay behind a host function. */
	CHECK_OK(srt_stream_host_fn(s, cuda_do_nothing, NULL));
	CHECK_OK(work->replay(s->impl, recording));
	work->recording_free(recording);
	work->recording_free(NULL);
	cuda_check_all(s, y, 12.0f);
	srt_event_destroy(event);
	srt_buffer_destroy(x);
	srt_buffer_destroy(y);
	srt_stream_destroy(s);
	srt_stream_destroy(t);
}

#define K 2100 /* cut into blocks, whose sums lie in scratch: there is one tile */

/* c (1,1) = the sum of b (K,1), at element `at`. */
static srt_matmul_t product_of(srt_buffer_t *c, size_t at, srt_buffer_t *ones, srt_buffer_t *b,
			       int64_t k)
{
	return (srt_matmul_t){ .m = 1,
			       .n = 1,
			       .k = k,
			       .a = srt_view(ones, 0, SRT_F32),
			       .b = srt_view(b, 0, SRT_F32),
			       .c = srt_view(c, at * sizeof(float), SRT_F32),
			       .lda = k,
			       .ldb = 1,
			       .ldc = 1 };
}

/* A recording uses its stream's scratch, also when that has become larger since. Were it freed, or
 * used by two at a time, the fake would say so. */
static void test_scratch(srt_device_t *device)
{
	const srt_backend_work_ops_t *work = &srt_cuda_work_ops;
	srt_stream_t *s = test_stream(device, "recorded");
	srt_buffer_t *ones = test_buffer(device, 2 * K * sizeof(float), "ones");
	srt_buffer_t *b = test_buffer(device, 2 * K * sizeof(float), "b");
	srt_buffer_t *c = test_buffer(device, 2 * sizeof(float), "c");
	const srt_matmul_t plain = product_of(c, 0, ones, b, K);
	const srt_matmul_t recorded = product_of(c, 1, ones, b, K);
	const srt_matmul_t longer = product_of(c, 0, ones, b, 2 * K);
	void *recording = NULL;
	float y[2];
	long allocs;

	CHECK_OK(srt_op_fill(s, srt_view(ones, 0, SRT_F32), 1.0f, 2 * K));
	CHECK_OK(srt_op_fill(s, srt_view(b, 0, SRT_F32), 1.0f, 2 * K));
	CHECK_OK(srt_op_matmul(s, &plain));
	allocs = f->count("cuMemAlloc");
	CHECK_OK(work->record_begin(s->impl));
	CHECK_OK(srt_op_matmul(s, &recorded));
	CHECK_OK_OR_DIE(work->record_end(s->impl, &recording));
	CHECK_INT(f->count("cuMemAlloc"), allocs);
	CHECK_OK(srt_stream_sync(s));
	test_get(s, y, c, 0, sizeof(y));
	CHECK(y[0] == (float)K && y[1] == 0.0f);
	for (int i = 0; i < 3; i++) {
		CHECK_OK(work->replay(s->impl, recording));
		CHECK_OK(srt_op_matmul(s, i == 1 ? &longer : &plain));
	}
	work->recording_free(recording);
	test_get(s, y, c, 0, sizeof(y));
	CHECK(y[0] == (float)K && y[1] == (float)K);
	srt_stream_destroy(s);
	srt_buffer_destroy(ones);
	srt_buffer_destroy(b);
	srt_buffer_destroy(c);
}

int main(void)
{
	srt_device_t *device;

	cuda_add();
	device = cuda_device();
	test_recording(device);
	test_scratch(device);
	srt_device_close(device);
	CHECK_INT(f->live(), 0);
	return check_done();
}
