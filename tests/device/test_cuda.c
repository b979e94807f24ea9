/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA backend over the fake driver (tests/fakes/fake_cuda/): which device is taken, memory
 * that is not there or cannot be locked, uploads that wait for nothing, values, times, and each
 * call of the driver failing in its turn. What holds on any device is in the tests of devices.
 */
#include <unistd.h>

#include <shardrt/ops.h>

#include "backends/cuda/cuda.h"
#include "tests/fakes/load.h"
#include "tests/harness/device.h"

enum { N = 1000, NBYTES = 4 * N };

static srt_device_t *cuda_device(void)
{
	srt_device_t *device;

	CHECK_OK_OR_DIE(test_open_device("cuda", "", 0, &device));
	return device;
}

static void cuda_add(void)
{
	setenv("SHARDRT_CUDA_DRIVER", FAKE_CUDA_PATH, 1);
	fake_cuda_load();
	f->set("kernels", 1);
	CHECK_OK_OR_DIE(srt_backend_add(srt_backend_module(srt_host_services(), SRT_BACKEND_ABI)));
}

static srt_status_t cuda_do_nothing(void *arg)
{
	(void)arg;
	return SRT_OK;
}

static srt_cuda_device_t *impl(const srt_device_t *device)
{
	return device->impl;
}

/* ---- which device ------------------------------------------------------------------------ */

static void test_targets(void)
{
	static const struct {
		const char *targets;
		int capability, covered;
	} cases[] = {
		{ "sm_90", 90, 1 },
		{ "sm_90", 91, 1 },
		{ "sm_90", 89, 0 },
		{ "sm_90", 100, 0 },
		{ "sm_90,compute_90", 100, 1 },
		{ "compute_90", 89, 0 },
		{ "sm_80,sm_90a", 90, 1 },
		{ "sm_90a", 91, 0 },
		{ "compute_90a", 100, 0 },
		{ "sm_80,sm_90", 86, 1 },
		{ "sm_100f", 103, 1 },
		{ "sm_100f", 120, 0 },
		{ "sm_120,compute_120", 90, 0 },
		{ "", 90, 0 },
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(cases); i++)
		CHECK_INT(srt_cuda_targets_cover(cases[i].targets, cases[i].capability / 10,
						 cases[i].capability % 10),
			  cases[i].covered);
}

static void check_taken(const char *selector, int local_rank, CUdevice id)
{
	srt_device_t *device = NULL;

	CHECK_OK(test_open_device("cuda", selector, local_rank, &device));
	CHECK(device != NULL && impl(device)->id == id);
	srt_device_close(device);
}

static void test_choice(void)
{
	srt_candidate_t *all;
	srt_device_t *device;
	char place[24];
	int n;

	f->set("devices", 3);
	CHECK_OK_OR_DIE(srt_cuda_candidates.list(srt_host_services(), &all, &n));
	CHECK_INT(n, 3);
	check_taken("", 0, 0);
	check_taken("", 4, 1);
	check_taken("2", 0, 2);
	check_taken("2", 1, 2);
	check_taken("GPU-fafafafa-fafa-fafa-fafa-fafafafafa01", 0, 1);
	check_taken("mig-FAFAFAFA-fafa-fafa-fafa-fafafafafa02", 0, 2);
	check_taken("gpu", 1, 1);
	check_taken(all[2].bus, 0, 2);
	snprintf(place, sizeof(place), "0000%s", all[2].bus); /* as nvidia-smi writes it */
	check_taken(place, 0, 2);
	check_taken(all[0].name, 1, 1);
	CHECK_STATUS(test_open_device("cuda", "3", 0, &device), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("it takes a number, a UUID");
	CHECK_ERROR_HAS("2 \"fake CUDA device\" (0000:03:00.0, gpu, sm_90)");
	CHECK_STATUS(test_open_device("cuda", "00000001:03:00.0", 0, &device), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(test_open_device("cuda", "Voodoo", 0, &device), SRT_ERR_NOT_FOUND);
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(test_open_device("cuda", i ? "MIG-fafa" : "GPU-fafa", 0, &device),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("may mean several");
	}
	CHECK_STATUS(test_open_device("cuda", "MIG-fb", 0, &device), SRT_ERR_NOT_FOUND);
	srt_host_services()->free(all);
	f->set("devices", 1);
}

/* What the plan leaves to the driver; whose memory it is. */
static void test_memory_caps(srt_device_t *device)
{
	CHECK_INT(device->caps.driver_overhead,
		  ((size_t)128 << 20) + device->caps.mem_nbytes / 128);
	CHECK_INT(device->caps.memory_id[0], 0xfa);
	CHECK_INT(device->caps.memory_id[15], impl(device)->id);
}

static void test_unusable(void)
{
	srt_device_t *device;

	f->set("capability", 70);
	CHECK_STATUS(test_open_device("cuda", "", 0, &device), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("(sm_70) cannot be used: this build has no kernels for it, only ");
	f->set("capability", 90);
	f->fail_call("cuModuleLoadData", 1, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
	CHECK_STATUS(test_open_device("cuda", "", 0, &device), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("which is newer than the driver: install a newer driver");
	f->reset();
}

/* Registers for 192 threads: what opening the device compares has the bits of 128. */
static void test_few_threads(void)
{
	setenv("SHARDRT_CUDA_TUNED", "portable", 1); /* the others have no fewer */
	f->set("kernels", 0);
	f->set("block_threads", 192);
	srt_device_close(cuda_device());
	f->set("block_threads", 0);
	f->set("kernels", 1);
	unsetenv("SHARDRT_CUDA_TUNED");
}

/* Waits as a kernel of a collective that waits for a peer: until `released`, or it gives up. */
static atomic_int released, gave_up;
static void wait_for_peer(void *arg)
{
	(void)arg;
	for (int i = 0; i < 5000 && !released; i++)
		usleep(1000);
	gave_up = !released;
}

/* The first use of 16-bit kernels waits for no other stream, once the type was prepared: memory is
 * freed and modules are loaded before, also without a self-test. */
static void test_prepared(srt_device_t *device, srt_dtype_t dtype, bool is_off)
{
	srt_matmul_t mm = { .size = sizeof(srt_matmul_t),
			    .batch = 1,
			    .alpha = 1.0f,
			    .m = 8,
			    .n = 8,
			    .k = 8,
			    .lda = 8,
			    .ldb = 8,
			    .ldc = 8 };
	srt_cuda_scope_t scope = srt_cuda_enter(impl(device));
	srt_buffer_t *b = test_buffer(device, NBYTES, "b");
	srt_stream_t *stream = test_stream(device, "compute");
	CUstream other;

	CHECK_CUDA_OK(d.cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
	impl(device)->selftest.is_off = is_off;
	srt_device_prepare(device, dtype);
	released = gave_up = 0;
	CHECK_CUDA_OK(launch_host_func(other, wait_for_peer, NULL));
	mm.a = mm.b = srt_view(b, 0, dtype);
	mm.c = srt_view(b, 1024, dtype);
	f->reset();
	CHECK_OK(srt_op_fill(srt_view(b, 0, dtype), 1.0f, 512, stream));
	CHECK_OK(srt_op_matmul(&mm, stream));
	CHECK_INT(f->count("cuModuleLoadData"), 0);
	CHECK_INT(f->count("cuMemFree"), 0);
	CHECK_OK(srt_stream_sync(stream));
	released = 1;
	CHECK_CUDA_OK(d.cuStreamSynchronize(other));
	CHECK_INT(gave_up, 0);
	CHECK_CUDA_OK(d.cuStreamDestroy(other));
	srt_buffer_destroy(b);
	srt_stream_destroy(stream);
	srt_cuda_leave(scope);
}

/* ---- memory ------------------------------------------------------------------------------ */

static void test_full(srt_device_t *device)
{
	srt_buffer_t *b = NULL;

	CHECK_STATUS(srt_buffer_create(device, SRT_MEM_DEVICE, (size_t)1 << 50, "whale", &b),
		     SRT_ERR_OUT_OF_MEMORY);
	CHECK_ERROR_HAS("\"whale\"");
	CHECK_ERROR_HAS("CUDA_ERROR_OUT_OF_MEMORY");
	CHECK_STATUS(srt_buffer_create(device, SRT_MEM_PEER, (size_t)1 << 50, "whale", &b),
		     SRT_ERR_OUT_OF_MEMORY);
}

static srt_status_t add_one(void *arg)
{
	unsigned char *bytes = arg;

	for (size_t i = 0; i < NBYTES; i++)
		bytes[i]++;
	return SRT_OK;
}

/* Through wrapped memory, which the driver locks or does not; a host function changes it. */
static void wrap_and_copy(srt_device_t *device, bool locked)
{
	static unsigned char host[NBYTES] __attribute__((aligned(4096)));
	srt_stream_t *s = test_stream(device, "wrap");
	srt_buffer_t *b = test_buffer(device, NBYTES, "b");
	unsigned char bytes[NBYTES];
	const srt_cuda_mem_t *mem;
	srt_buffer_t *wrapped;
	int wrong = 0;

	f->fail_at(locked ? 0 : 2, CUDA_ERROR_NOT_SUPPORTED); /* the first one makes it current */
	CHECK_OK_OR_DIE(srt_buffer_wrap_host(device, host, NBYTES, false, "wrapped", &wrapped));
	CHECK_STR(f->failed(), locked ? "" : "cuMemHostRegister");
	f->fail_at(0, CUDA_SUCCESS);
	mem = wrapped->impl;
	CHECK_INT(mem->address != 0, locked);
	memset(bytes, 7, sizeof(bytes));
	CHECK_OK(srt_buffer_copy_from_host(b, 0, bytes, NBYTES, s));
	for (int i = 0; i < 3; i++) {
		CHECK_OK(srt_buffer_copy(wrapped, 0, b, 0, NBYTES, s));
		CHECK_OK(srt_stream_host_fn(s, add_one, host));
		CHECK_OK(srt_buffer_copy(b, 0, wrapped, 0, NBYTES, s));
		CHECK_OK(srt_stream_host_fn(s, add_one, host)); /* of a copy that is done */
	}
	test_get(s, bytes, b, 0, NBYTES);
	for (size_t i = 0; i < NBYTES; i++)
		wrong += bytes[i] != 10 || host[i] != 11;
	CHECK_INT(wrong, 0);
	srt_buffer_destroy(wrapped);
	srt_buffer_destroy(b);
	srt_stream_destroy(s);
}

/* What fits waits for nothing, what is larger comes right. */
static void test_uploads(srt_device_t *device)
{
	const size_t large = 3000001;
	srt_stream_t *s = test_stream(device, "uploads");
	srt_buffer_t *b = test_buffer(device, large, "b");
	unsigned char *bytes = malloc(large), *back = malloc(large);
	int wrong = 0;

	CHECK_OR_DIE(bytes != NULL && back != NULL);
	f->reset();
	for (int i = 0; i < 200; i++) {
		memset(bytes, i, 1000);
		CHECK_OK(srt_buffer_copy_from_host(b, (size_t)i * 1000, bytes, 1000, s));
	}
	CHECK_INT(f->host_syncs(), 0);
	test_get(s, back, b, 0, 200000);
	for (int i = 0; i < 200000; i++)
		wrong += back[i] != (unsigned char)(i / 1000);
	for (size_t i = 0; i < large; i++)
		bytes[i] = (unsigned char)(i * 2654435761u >> 13);
	CHECK_OK(srt_buffer_copy_from_host(b, 0, bytes, large, s));
	memcpy(back, bytes, large);
	memset(bytes, 0, large);
	test_get(s, bytes, b, 0, large);
	wrong += memcmp(bytes, back, large) != 0;
	CHECK_INT(wrong, 0);
	free(bytes);
	free(back);
	srt_buffer_destroy(b);
	srt_stream_destroy(s);
}

/* ---- failure ----------------------------------------------------------------------------- */

/* A kernel that faults: told by who waits, and by the device from then on. */
static void test_fault(void)
{
	srt_device_t *device = cuda_device();
	srt_stream_t *s = test_stream(device, "faults"), *t = test_stream(device, "other");
	srt_buffer_t *b = test_buffer(device, NBYTES, "b");
	srt_event_t *event;
	int done;

	CHECK_OK_OR_DIE(srt_event_create(device, &event));
	CHECK_OK(srt_device_check(device));
	f->fail_later(1, CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_OK(srt_op_fill(srt_view(b, 0, SRT_F32), 1.0f, N, s));
	CHECK_STATUS(srt_stream_sync(s), SRT_ERR_DEVICE);
	CHECK_ERROR_HAS("stream \"faults\": work on device");
	CHECK_ERROR_HAS("CUDA_ERROR_ILLEGAL_ADDRESS (700)");
	CHECK_STATUS(srt_stream_sync(s), SRT_ERR_DEVICE);
	CHECK_OK(srt_event_record(event, s));
	CHECK_STATUS(srt_event_sync(event), SRT_ERR_DEVICE);
	CHECK_STATUS(srt_event_query(event, &done), SRT_ERR_DEVICE);
	CHECK_OK(srt_stream_wait_event(t, event));
	CHECK_STATUS(srt_stream_sync(t), SRT_ERR_DEVICE);
	CHECK_STATUS(srt_device_check(device), SRT_ERR_DEVICE);
	CHECK_ERROR_HAS("CUDA_ERROR_ILLEGAL_ADDRESS (700)");
	srt_event_destroy(event);
	srt_buffer_destroy(b);
	srt_stream_destroy(s);
	srt_stream_destroy(t);
	srt_device_close(device);
	f->reset();
}

/* What an engine does to a device, in small. Returns the first failure. */
static srt_status_t work_through(srt_device_t *device, srt_stream_t *s, srt_stream_t *t,
				 srt_event_t *event, srt_buffer_t *x, srt_buffer_t *y)
{
	float ones[N], out[N];
	srt_buffer_t *more = NULL;
	srt_status_t status;

	for (int i = 0; i < N; i++)
		ones[i] = 1;
	status = srt_buffer_copy_from_host(x, 0, ones, NBYTES, s);
	if (status == SRT_OK)
		status = srt_buffer_create(device, SRT_MEM_DEVICE, NBYTES, "more", &more);
	if (status == SRT_OK)
		status = srt_stream_host_fn(s, cuda_do_nothing, NULL);
	if (status == SRT_OK)
		status = srt_op_axpy(srt_view(y, 0, SRT_F32), srt_view(x, 0, SRT_F32), 2.0f, N, s);
	if (status == SRT_OK)
		status = srt_event_record(event, s);
	if (status == SRT_OK)
		status = srt_stream_wait_event(t, event); /* the axpy before the copy */
	if (status == SRT_OK)
		status = srt_buffer_copy(more, 0, y, 0, NBYTES, t);
	if (status == SRT_OK)
		status = srt_buffer_zero(y, 0, NBYTES, t);
	if (status == SRT_OK)
		status = srt_buffer_copy_to_host(out, more, 0, NBYTES, t);
	if (status == SRT_OK)
		status = srt_stream_sync(s);
	for (int i = 0; i < N && status == SRT_OK; i++)
		CHECK_OR_DIE(out[i] == 2.0f);
	srt_stream_sync(s);
	srt_stream_sync(t);
	srt_buffer_destroy(more);
	return status;
}

static srt_status_t make_and_work(srt_device_t *device)
{
	srt_stream_t *s = NULL, *t = NULL;
	srt_buffer_t *x = NULL, *y = NULL;
	srt_event_t *event = NULL;
	srt_status_t status;

	status = srt_stream_create(device, 0, "s", &s);
	if (status == SRT_OK)
		status = srt_stream_create(device, -1, "t", &t);
	if (status == SRT_OK)
		status = srt_event_create(device, &event);
	if (status == SRT_OK)
		status = srt_buffer_create(device, SRT_MEM_DEVICE, NBYTES, "x", &x);
	if (status == SRT_OK)
		status = srt_buffer_create(device, SRT_MEM_DEVICE, NBYTES, "y", &y);
	if (status == SRT_OK)
		status = work_through(device, s, t, event, x, y);
	srt_stream_destroy(s);
	srt_stream_destroy(t);
	srt_event_destroy(event);
	srt_buffer_destroy(x);
	srt_buffer_destroy(y);
	return status;
}

/* Whether objects are left when this call has failed and done nothing. */
static bool frees(const char *call)
{
	static const char *const words[] = { "Free",       "Destroy", "Unload",
					     "Unregister", "Release", "CtxPush" };

	for (size_t i = 0; i < SRT_ARRAY_LEN(words); i++)
		if (strstr(call, words[i]) != NULL)
			return true;
	return false;
}

/* Each call in its turn: a status with a sentence or no harm at all, and no object is left. */
static void test_each_call_fails(void)
{
	srt_device_t *device = cuda_device();
	long k, live;

	CHECK_OK(make_and_work(device)); /* what the device keeps is there */
	live = f->live();
	f->collect(1);
	for (k = 1; k < 10000; k++) {
		srt_status_t status;
		char failed[64];

		f->fail_at(k, CUDA_ERROR_INVALID_VALUE);
		status = make_and_work(device);
		snprintf(failed, sizeof(failed), "%s", f->failed());
		f->fail_at(0, CUDA_SUCCESS);
		if (!failed[0])
			break;
		check_count++;
		if (status == SRT_ERR_DEVICE ? strstr(srt_error_last(), "CUDA_ERROR_") == NULL :
					       status != SRT_OK)
			CHECK_REPORT("call %ld, %s, fails: %s, \"%s\"", k, failed,
				     srt_status_string(status), srt_error_last());
		if (!frees(failed) && f->live() > live)
			CHECK_REPORT("call %ld, %s, fails: %ld objects are left", k, failed,
				     f->live() - live);
		live = f->live() > live ? f->live() : live;
	}
	CHECK(k > 40);
	CHECK_STR(f->complaint(), "");
	srt_device_close(device);
}

int main(void)
{
	srt_device_t *device;

	cuda_add();
	test_targets();
	test_choice();
	test_unusable();
	test_few_threads();
	device = cuda_device();
	test_memory_caps(device);
	test_full(device);
	wrap_and_copy(device, true);
	wrap_and_copy(device, false);
	test_uploads(device);
	test_prepared(device, SRT_BF16, false);
	test_prepared(device, SRT_F16, true);
	srt_device_close(device);
	CHECK_INT(f->live(), 0);
	test_fault();
	test_each_call_fails();
	return check_done();
}
