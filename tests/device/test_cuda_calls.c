/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cuda backend over the fake driver: each driver function failing in turn while a device is
 * opened, memory, streams and events are made, commands are submitted, and all is destroyed: every
 * failure is a status with a sentence, nothing leaks, nothing hangs. The same holds for commands
 * that fail on the device. Calls and edges of a small job. What the fake complains of ends the
 * test.
 *
 * SRT_TEST_LONG=1: every single call fails in turn, not the first of each function.
 */
#include "tests/fakes/load.h"
#include "tests/harness/device.h"

#define N 1000 /* floats */

typedef struct job {
	srt_device_t *device;
	srt_buffer_t *x, *y, *pinned;
	srt_stream_t *streams[2];
	srt_event_t *event;
} job_t;

static srt_status_t put(srt_stream_t *stream, srt_kernel_id_t kernel, srt_buffer_t *y,
			srt_buffer_t *x, float value)
{
	srt_k_elem_t args = { .nelem = N, .value = value };
	srt_view_t views[2] = { srt_view(y, 0, SRT_F32), srt_view(x, 0, SRT_F32) };

	return srt_launch(stream, kernel, SRT_F32, srt_kernel_grid(kernel, &args), &args,
			  sizeof(args), views, srt_kernel_info(kernel)->nplaces);
}

static srt_status_t make(job_t *j)
{
	srt_device_request_t request = { .selector = "", .local_size = 1, .exact = 1 };

	SRT_TRY(srt_device_open("cuda", &request, SRT_NUMERICS_EXACT, &j->device));
	SRT_TRY(srt_buffer_create(j->device, SRT_MEM_DEVICE, N * sizeof(float), "x", &j->x));
	SRT_TRY(srt_buffer_create(j->device, SRT_MEM_DEVICE, N * sizeof(float), "y", &j->y));
	SRT_TRY(srt_buffer_create(j->device, SRT_MEM_PINNED, N * sizeof(float), "p", &j->pinned));
	for (int i = 0; i < 2; i++)
		SRT_TRY(srt_stream_create(j->device, i, i ? "second" : "first", &j->streams[i]));
	return srt_event_create(j->device, &j->event);
}

/* x = 0..N on the first stream; y = 2 x, twice x added, on the second. */
static srt_status_t work(job_t *j, float *out)
{
	srt_stream_t *a = j->streams[0], *b = j->streams[1];
	float in[N];

	for (int i = 0; i < N; i++)
		in[i] = (float)i;
	SRT_TRY(srt_buffer_copy_from_host(j->x, 0, in, sizeof(in), a));
	SRT_TRY(srt_buffer_zero(j->y, 0, sizeof(in), a));
	SRT_TRY(srt_event_record(j->event, a));
	SRT_TRY(srt_stream_wait_event(b, j->event));
	SRT_TRY(put(b, SRT_K_SCALE, j->y, j->x, 2.0f));
	for (int i = 0; i < 2; i++)
		SRT_TRY(put(b, SRT_K_AXPY, j->y, j->x, 1.0f));
	SRT_TRY(srt_buffer_copy(j->pinned, 0, j->y, 0, sizeof(in), b));
	SRT_TRY(srt_event_record(j->event, b));
	SRT_TRY(srt_event_sync(j->event));
	return srt_buffer_copy_to_host(out, j->y, 0, sizeof(in), b);
}

static srt_status_t run(float *out)
{
	job_t j = { 0 };
	srt_status_t status = make(&j);

	if (status == SRT_OK)
		status = work(&j, out);
	srt_event_destroy(j.event);
	for (int i = 0; i < 2; i++)
		srt_stream_destroy(j.streams[i]);
	srt_buffer_destroy(j.x);
	srt_buffer_destroy(j.y);
	srt_buffer_destroy(j.pinned);
	srt_device_close(j.device);
	return status;
}

static bool is_right(const float *out)
{
	for (int i = 0; i < N; i++)
		if (out[i] != 4.0f * (float)i)
			return false;
	return true;
}

/* One run with a fault set; whether the fault came. */
static bool fails(const char *what, long k)
{
	float out[N] = { 0 };
	srt_status_t status = run(out);
	bool came = f->failed()[0] != 0;

	CHECK_MSG(f->live() == 0, "%s, %ld: %ld objects of the driver are left", what, k,
		  f->live());
	if (status == SRT_OK) /* did without */
		CHECK_MSG(is_right(out), "%s, %ld: wrong results and no failure", what, k);
	else
		CHECK_MSG(strstr(srt_error_last(), "CUDA_ERROR_") != NULL && came,
			  "%s, %ld: %s: %s", what, k, srt_status_string(status), srt_error_last());
	/* The module keeps the driver once it has it. */
	return came;
}

static bool is_long;

static void test_calls(void)
{
	static const char *const names[] = {
#define NAME(name) #name,
		SRT_CUDA_FUNCTIONS(NAME)
#undef NAME
	};
	bool called[SRT_ARRAY_LEN(names)];
	int nfunctions = 0;
	float out[N];

	/* The self-test of tuned kernels takes most of the time and calls no other function. */
	if (!is_long)
		setenv("SHARDRT_CUDA_TUNED", "portable", 1);
	f->reset();
	CHECK_OK(run(out));
	for (size_t i = 0; i < SRT_ARRAY_LEN(names); i++)
		called[i] = f->count(names[i]) > 0;
	for (size_t i = 0; i < SRT_ARRAY_LEN(names); i++) {
		bool came = called[i];

		for (long k = 1; k <= (is_long ? 3 : 1) && came; k++) {
			f->fail_call(names[i], k, CUDA_ERROR_LAUNCH_FAILED);
			came = fails(names[i], k);
			nfunctions += came && k == 1;
		}
	}
	CHECK_MSG(nfunctions >= 20, "only %d functions have failed", nfunctions);
	if (!is_long)
		unsetenv("SHARDRT_CUDA_TUNED");
}

static void test_every_call(void)
{
	bool came = true;

	for (long k = 1; came; k++) {
		f->fail_at(k, CUDA_ERROR_LAUNCH_FAILED);
		came = fails("call", k);
	}
}

/* Calls of the operations: of the self-test, when the device is opened, and the last ones. */
static void test_operations(void)
{
	bool came = true;

	for (long k = 1; came; k += is_long ? 3 : k) {
		f->fail_later(k, CUDA_ERROR_ILLEGAL_ADDRESS);
		came = fails("operation", k);
	}
}

/* The last call of the name before `before`, or -1. */
static long last_call(const char *name, long before)
{
	while (--before >= 0 && strcmp(f->call(before)->name, name) != 0)
		;
	return before;
}

/* The kernel of the second stream waits for an event of the first; the host does not wait. */
static void test_edge(void)
{
	long launch, wait, record, syncs;
	float out[N];
	job_t j = { 0 };

	CHECK_OK_OR_DIE(make(&j));
	f->reset();
	CHECK_OK(srt_buffer_zero(j.x, 0, N * sizeof(float), j.streams[0]));
	CHECK_OK(srt_event_record(j.event, j.streams[0]));
	CHECK_OK(srt_stream_wait_event(j.streams[1], j.event));
	CHECK_OK(put(j.streams[1], SRT_K_SCALE, j.y, j.x, 2.0f));
	syncs = f->host_syncs();
	CHECK_INT(syncs, 0);
	CHECK_OK(srt_buffer_copy_to_host(out, j.y, 0, sizeof(out), j.streams[1]));
	CHECK(f->host_syncs() > 0);
	launch = last_call("cuLaunchKernel", f->count(NULL));
	CHECK_OR_DIE(launch >= 0);
	CHECK_STR(f->call(launch)->kernel, "k_scale_f32");
	wait = last_call("cuStreamWaitEvent", launch);
	CHECK_OR_DIE(wait >= 0);
	CHECK_INT(f->call(wait)->stream, f->call(launch)->stream);
	record = last_call("cuEventRecord", wait);
	CHECK_OR_DIE(record >= 0);
	CHECK_INT(f->call(record)->event, f->call(wait)->event);
	CHECK(f->call(record)->stream != f->call(wait)->stream);
	CHECK(last_call("cuMemsetD8Async", record) >= 0);
	srt_event_destroy(j.event);
	for (int i = 0; i < 2; i++)
		srt_stream_destroy(j.streams[i]);
	srt_buffer_destroy(j.x);
	srt_buffer_destroy(j.y);
	srt_buffer_destroy(j.pinned);
	srt_device_close(j.device);
	CHECK_INT(f->live(), 0);
}

/* An edge left out is found: by the fake, and so by every test of the backend over it. */
static void test_missing_edge(void)
{
	job_t j = { 0 };

	CHECK_OK_OR_DIE(make(&j));
	f->reset();
	f->collect(1);
	CHECK_OK(srt_buffer_zero(j.x, 0, N * sizeof(float), j.streams[0]));
	CHECK_OK(put(j.streams[1], SRT_K_SCALE, j.y, j.x, 2.0f));
	for (int i = 0; i < 2; i++)
		CHECK_OK(srt_stream_sync(j.streams[i]));
	CHECK_MSG(strstr(f->complaint(), "no event orders them"), "%s", f->complaint());
	f->collect(0);
	f->reset();
	srt_event_destroy(j.event);
	for (int i = 0; i < 2; i++)
		srt_stream_destroy(j.streams[i]);
	srt_buffer_destroy(j.x);
	srt_buffer_destroy(j.y);
	srt_buffer_destroy(j.pinned);
	srt_device_close(j.device);
}

/* Devices that the kernels were not made for, and too little memory. */
static void test_refusals(void)
{
	float out[N];

	f->reset();
	f->set("capability", 70);
	CHECK_STATUS(run(out), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("this build has no kernels for it");
	CHECK_INT(f->live(), 0);
	f->set("capability", 90);
	f->set("mem_bytes", 1000);
	CHECK_STATUS(run(out), SRT_ERR_OUT_OF_MEMORY);
	CHECK_INT(f->live(), 0);
	f->set("mem_bytes", 1L << 34);
}

int main(void)
{
	float out[N];

	is_long = check_is_long();
	setenv("SHARDRT_CUDA_DRIVER", FAKE_CUDA_PATH, 1);
	fake_cuda_load();
	f->set("delay_us", 0);
	CHECK_OK_OR_DIE(run(out));
	CHECK(is_right(out));
	test_edge();
	test_missing_edge();
	f->set("kernels", 1);
	test_calls();
	test_operations();
	if (is_long)
		test_every_call();
	test_refusals();
	return check_done();
}
