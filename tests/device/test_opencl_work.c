/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work on OpenCL devices where it differs from other devices': kernels ordered by events between
 * queues and after host functions, uploads on their way, all pairs of memories, memory that peers
 * see, streams of several threads. Run in both forms of the lanes, and under TSan.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/device/opencl.h"

#define NELEM 5000
#define NBYTES (NELEM * sizeof(float))

static srt_view_t whole(srt_buffer_t *b)
{
	return srt_view(b, 0, SRT_F32);
}

static void expect_all(srt_stream_t *stream, srt_buffer_t *b, float value)
{
	float x[NELEM];
	int wrong = 0;

	test_get(stream, x, b, 0, NBYTES);
	for (int i = 0; i < NELEM; i++)
		wrong += x[i] != value;
	CHECK_MSG(!wrong, "%d of %d are not %g, the first is %g", wrong, NELEM, (double)value,
		  (double)x[0]);
}

/* y += 1 on two queues in turn; only events keep them apart. */
static void test_queues(srt_device_t *device)
{
	srt_stream_t *s[2] = { test_stream(device, "a"), test_stream(device, "b") };
	srt_buffer_t *y = test_buffer(device, NBYTES, "y"), *one = test_buffer(device, NBYTES, "1");
	srt_event_t *done[2];

	for (int i = 0; i < 2; i++)
		CHECK_OK_OR_DIE(srt_event_create(device, &done[i]));
	CHECK_OK(srt_op_fill(whole(one), 1.0f, NELEM, s[0]));
	CHECK_OK(srt_event_record(done[0], s[0]));
	for (int i = 1; i <= 400; i++) {
		/* producer: the other queue's sum i-1; consumer: sum i */
		CHECK_OK(srt_stream_wait_event(s[i % 2], done[(i + 1) % 2]));
		CHECK_OK(srt_op_add(whole(y), whole(y), whole(one), NELEM, s[i % 2]));
		CHECK_OK(srt_event_record(done[i % 2], s[i % 2]));
	}
	CHECK_OK(srt_event_sync(done[0]));
	expect_all(s[0], y, 400.0f);
	for (int i = 0; i < 2; i++) {
		srt_stream_destroy(s[i]);
		srt_event_destroy(done[i]);
	}
	srt_buffer_destroy(y);
	srt_buffer_destroy(one);
}

/* Destroyed events leave no points, whether they were recorded or not. */
static void test_event_generations(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "event generations");
	int before = device->ngens, ngens_held = device->ngens_held;

	for (int i = 0; i < 100; i++) {
		srt_event_t *event;

		CHECK_OK_OR_DIE(srt_event_create(device, &event));
		CHECK_OK(srt_event_record(event, s));
		CHECK_OK(srt_event_record(event, s));
		CHECK_OK(srt_event_sync(event));
		srt_event_destroy(event);
	}
	CHECK_MSG(device->ngens <= before + 2, "%d event generations have become %d", before,
		  device->ngens);
	CHECK_INT(device->ngens_held, ngens_held);
	srt_stream_destroy(s);
}

/* ---- host functions between kernels ------------------------------------------------------ */

typedef struct step {
	float *pinned;
	float add;
	int *order, at;
} step_t;

static srt_status_t on_host(void *arg)
{
	step_t *step = arg;

	if (*step->order != step->at)
		return srt_fail(SRT_ERR_STATE, "host function %d came after %d", step->at,
				*step->order);
	++*step->order;
	for (int i = 0; i < NELEM; i++)
		step->pinned[i] = step->pinned[i] + step->add;
	return SRT_OK;
}

/* Device -> host -> device again and again: each sees what the one before it made. */
static void test_host_functions(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "host");
	srt_buffer_t *y = test_buffer(device, NBYTES, "y"), *pinned;
	static step_t steps[300];
	int order = 0;

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_PINNED, NBYTES, "pinned", &pinned));
	for (int i = 0; i < 300; i++) {
		steps[i] = (step_t){ srt_buffer_host(pinned), 1.0f, &order, i };
		CHECK_OK(srt_op_scale(whole(y), whole(y), 1.0f, NELEM, s));
		CHECK_OK(srt_buffer_copy(pinned, 0, y, 0, NBYTES, s));
		CHECK_OK(srt_stream_host_fn(s, on_host, &steps[i]));
		CHECK_OK(srt_buffer_copy(y, 0, pinned, 0, NBYTES, s));
	}
	expect_all(s, y, 300.0f);
	CHECK_INT(order, 300);
	srt_stream_destroy(s);
	srt_buffer_destroy(y);
	srt_buffer_destroy(pinned);
}

static srt_status_t fail_fn(void *arg)
{
	return srt_fail(SRT_ERR_IO, "the %s is out of paper", (const char *)arg);
}

/* Commands after the failure do not run, on this stream and on those that wait for it. */
static void test_failure(srt_device_t *device)
{
	srt_stream_t *bad = test_stream(device, "bad"), *next = test_stream(device, "next");
	srt_stream_t *good = test_stream(device, "good");
	srt_buffer_t *y = test_buffer(device, NBYTES, "y");
	srt_event_t *event;

	CHECK_OK_OR_DIE(srt_event_create(device, &event));
	CHECK_OK(srt_op_fill(whole(y), 1.0f, NELEM, bad));
	CHECK_OK(srt_stream_host_fn(bad, fail_fn, (void *)"printer"));
	CHECK_OK(srt_op_fill(whole(y), 2.0f, NELEM, bad));
	CHECK_OK(srt_event_record(event, bad));
	CHECK_OK(srt_stream_wait_event(next, event));
	CHECK_OK(srt_op_fill(whole(y), 3.0f, NELEM, next));
	CHECK_STATUS(srt_event_sync(event), SRT_ERR_IO);
	CHECK_STATUS(srt_stream_sync(next), SRT_ERR_IO);
	CHECK_STR(srt_error_last(), "the printer is out of paper");
	CHECK_STATUS(srt_stream_sync(bad), SRT_ERR_IO);
	CHECK_OK(srt_buffer_zero(y, 0, NBYTES, bad)); /* skipped too, now without the worker */
	CHECK_STATUS(srt_stream_sync(bad), SRT_ERR_IO);
	expect_all(good, y, 1.0f);
	srt_event_destroy(event);
	srt_stream_destroy(bad);
	srt_stream_destroy(next);
	srt_stream_destroy(good);
	srt_buffer_destroy(y);
}

/* ---- memory ----------------------------------------------------------------------------- */

/* More bytes than a stream has room for on their way, then one upload that is larger. */
static void test_uploads(srt_device_t *device)
{
	enum { PIECE = 30000, NPIECES = 40, LARGE = 1 << 20 };
	srt_stream_t *s = test_stream(device, "uploads");
	srt_buffer_t *b = test_buffer(device, PIECE * NPIECES, "b");
	unsigned char *bytes = malloc(LARGE);
	size_t wrong = 0;

	CHECK_OR_DIE(bytes != NULL);
	for (int i = 0; i < NPIECES; i++) {
		memset(bytes, i + 1, PIECE);
		CHECK_OK(srt_buffer_copy_from_host(b, (size_t)i * PIECE, bytes, PIECE, s));
	}
	for (int i = 0; i < NPIECES; i++) {
		test_get(s, bytes, b, (size_t)i * PIECE, PIECE);
		for (int j = 0; j < PIECE; j++)
			wrong += bytes[j] != i + 1;
	}
	CHECK_INT(wrong, 0);
	memset(bytes, 77, LARGE);
	CHECK_OK(srt_buffer_copy_from_host(b, 3, bytes, LARGE, s));
	memset(bytes, 0, LARGE);
	test_get(s, bytes, b, 3, LARGE);
	for (int j = 0; j < LARGE; j++)
		wrong += bytes[j] != 77;
	CHECK_INT(wrong, 0);
	free(bytes);
	srt_stream_destroy(s);
	srt_buffer_destroy(b);
}

/* device -> pinned -> pinned -> wrapped -> device, zeroing between, all without a wait. */
static void test_pairs(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "pairs");
	srt_buffer_t *from = test_buffer(device, NBYTES, "from"), *to, *p[2], *wrapped;
	float *own = aligned_alloc(4096, 20480);

	CHECK_OR_DIE(own != NULL);
	to = test_buffer(device, NBYTES + 4, "to");
	for (int i = 0; i < 2; i++)
		CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_PINNED, NBYTES, "pinned", &p[i]));
	CHECK_OK_OR_DIE(srt_buffer_wrap_host(device, own, 20480, true, "wrapped", &wrapped));
	CHECK_OK(srt_op_fill(whole(from), 5.0f, NELEM, s));
	CHECK_OK(srt_buffer_copy(p[0], 0, from, 0, NBYTES, s));
	CHECK_OK(srt_buffer_zero(from, 0, NBYTES, s));
	CHECK_OK(srt_buffer_copy(p[1], 0, p[0], 0, NBYTES, s));
	CHECK_OK(srt_buffer_zero(p[0], 0, NBYTES, s));
	CHECK_OK(srt_buffer_copy(wrapped, 0, p[1], 0, NBYTES, s));
	CHECK_OK(srt_buffer_copy(to, 4, wrapped, 0, NBYTES, s));
	CHECK_OK(srt_buffer_copy(from, 0, to, 4, NBYTES, s));
	CHECK_OK(srt_buffer_zero(to, 1, 7, s)); /* not a multiple of anything */
	expect_all(s, from, 5.0f);
	expect_all(s, p[0], 0.0f);
	expect_all(s, p[1], 5.0f);
	CHECK(own[0] == 5.0f && own[NELEM - 1] == 5.0f);
	/* Kernels see no pinned memory. */
	CHECK_STATUS(srt_op_fill(whole(p[0]), 1.0f, NELEM, s), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("pinned host memory");
	CHECK_OK(srt_stream_sync(s));
	srt_buffer_destroy(wrapped);
	free(own);
	for (int i = 0; i < 2; i++)
		srt_buffer_destroy(p[i]);
	srt_buffer_destroy(from);
	srt_buffer_destroy(to);
	srt_stream_destroy(s);
}

/* What a kernel writes is in the peer's mapping; what the peer writes is in the imported buffer. */
static void test_peer(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "peer");
	srt_buffer_t *own, *theirs, *copy;
	srt_mem_handle_t handle;
	const float *seen;

	if (!device->caps.peer_memory) {
		printf("the device has no peer memory\n");
		srt_stream_destroy(s);
		return;
	}
	copy = test_buffer(device, NBYTES, "copy");
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_PEER, NBYTES, "own", &own));
	CHECK_OK_OR_DIE(srt_buffer_export(own, &handle));
	seen = mmap(NULL, NBYTES, PROT_READ, MAP_SHARED, handle.fd, 0);
	CHECK_OR_DIE(seen != MAP_FAILED);
	handle.fd = dup(handle.fd);
	CHECK_OK_OR_DIE(srt_buffer_import(device, &handle, "theirs", &theirs));
	for (int i = 1; i <= 20; i++) {
		int wrong = 0;

		CHECK_OK(srt_op_fill(whole(own), (float)i, NELEM, s));
		CHECK_OK(srt_buffer_peer_begin(own, 40, NBYTES - 40, s));
		CHECK_OK(srt_stream_sync(s));
		for (int j = 10; j < NELEM; j++)
			wrong += seen[j] != (float)i;
		CHECK_INT(wrong, 0);
		CHECK_OK(srt_buffer_peer_begin(theirs, 0, NBYTES, s));
		CHECK_OK(srt_op_scale(whole(copy), whole(theirs), 2.0f, NELEM, s));
		expect_all(s, copy, 2.0f * (float)i);
	}
	munmap((void *)(uintptr_t)seen, NBYTES);
	srt_buffer_destroy(theirs);
	srt_buffer_destroy(own);
	srt_buffer_destroy(copy);
	srt_stream_destroy(s);
}

/* ---- threads ---------------------------------------------------------------------------- */

typedef struct worker {
	srt_stream_t *stream;
	srt_buffer_t *x, *y;
	srt_status_t status; /* the first failure: checks are for one thread */
} worker_t;

static void *work(void *arg)
{
	worker_t *w = arg;

	for (int i = 0; i < 200 && w->status == SRT_OK; i++)
		w->status = srt_op_add(whole(w->y), whole(w->y), whole(w->x), NELEM, w->stream);
	if (w->status == SRT_OK)
		w->status = srt_stream_sync(w->stream);
	return NULL;
}

/* Equal kernels with other arguments at a time. */
static void test_threads(srt_device_t *device)
{
	worker_t workers[3] = { { .status = SRT_OK } };
	pthread_t threads[3];

	for (int i = 0; i < 3; i++) {
		workers[i].stream = test_stream(device, "thread");
		workers[i].x = test_buffer(device, NBYTES, "x");
		workers[i].y = test_buffer(device, NBYTES, "y");
		CHECK_OK(
			srt_op_fill(whole(workers[i].x), (float)(i + 1), NELEM, workers[i].stream));
	}
	for (int i = 0; i < 3; i++)
		CHECK_OR_DIE(!pthread_create(&threads[i], NULL, work, &workers[i]));
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		CHECK_INT(workers[i].status, SRT_OK);
		expect_all(workers[i].stream, workers[i].y, 200.0f * (float)(i + 1));
		srt_buffer_destroy(workers[i].x);
		srt_buffer_destroy(workers[i].y);
		srt_stream_destroy(workers[i].stream);
	}
}

int main(void)
{
	static const char *const forms[] = { "loop", "items" };

	opencl_add();
	for (size_t i = 0; i < SRT_ARRAY_LEN(forms); i++) {
		srt_device_t *device;

		setenv("SHARDRT_OPENCL_LANES", forms[i], 1);
		CHECK_OK_OR_DIE(test_open_device("opencl", "", 0, &device));
		test_queues(device);
		test_event_generations(device);
		test_host_functions(device);
		test_failure(device);
		test_uploads(device);
		test_pairs(device);
		test_peer(device);
		test_threads(device);
		CHECK_INT(srt_device_allocated(device), 0);
		srt_device_close(device);
	}
	return check_done();
}
