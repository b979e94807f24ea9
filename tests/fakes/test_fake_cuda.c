/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake CUDA driver itself: it does what the driver does;
 * it reports each kind of injected fault, and reports nothing without the fault.
 */
#include <unistd.h>

#include "kernels/args.h"
#include "tests/fakes/load.h"

#define N 256

static CUcontext ctx;
static CUmodule module;
static CUstream s[2];
static CUevent e;
static CUdeviceptr x, y;

static void begin(void)
{
	static const uint32_t image[4] = { 0xba55ed50u };

	CHECK_CUDA_OK(d.cuDevicePrimaryCtxRetain(&ctx, 0));
	CHECK_CUDA_OK(d.cuCtxPushCurrent(ctx));
	CHECK_CUDA_OK(d.cuModuleLoadData(&module, image));
	for (int i = 0; i < 2; i++)
		CHECK_CUDA_OK(d.cuStreamCreateWithPriority(&s[i], CU_STREAM_NON_BLOCKING, 0));
	CHECK_CUDA_OK(d.cuEventCreate(&e, CU_EVENT_DEFAULT));
	CHECK_CUDA_OK(d.cuMemAlloc(&x, N * sizeof(float)));
	CHECK_CUDA_OK(d.cuMemAlloc(&y, N * sizeof(float)));
	f->reset();
}

static void end(void)
{
	CHECK_CUDA_OK(d.cuMemFree(x));
	CHECK_CUDA_OK(d.cuMemFree(y));
	CHECK_CUDA_OK(d.cuEventDestroy(e));
	for (int i = 0; i < 2; i++)
		CHECK_CUDA_OK(d.cuStreamDestroy(s[i]));
	CHECK_CUDA_OK(d.cuModuleUnload(module));
	CHECK_CUDA_OK(d.cuCtxPopCurrent(NULL));
	CHECK_CUDA_OK(d.cuDevicePrimaryCtxRelease(0));
}

static void sync_both(void)
{
	CHECK_CUDA_OK(d.cuStreamSynchronize(s[0]));
	CHECK_CUDA_OK(d.cuStreamSynchronize(s[1]));
}

/* A kernel of faults.c on a stream, on y and x. */
static CUresult launch(const char *name, int nplaces, unsigned nblocks, int64_t nelem, float value,
		       CUstream stream)
{
	srt_k_elem_t args = { .nelem = nelem, .value = value };
	unsigned long long zero = 0;
	void *params[5] = { &y, &zero, &x, &zero, &args };
	CUfunction function;
	char entry[64];

	params[2 * nplaces] = &args;
	snprintf(entry, sizeof(entry), "k_%s_f32", name);
	CHECK_CUDA_OK(d.cuModuleGetFunction(&function, module, entry));
	return d.cuLaunchKernel(function, nblocks, 1, 1, SRT_K_LANES, 1, 1, 0, stream, params,
				NULL);
}

/* What has been done since f->reset() was complained of with these words; NULL: of nothing. */
#define CHECK_COMPLAINT(words)                                                                     \
	do {                                                                                       \
		const char *words_ = (words);                                                      \
                                                                                                   \
		check_count++;                                                                     \
		if (words_ ? !strstr(f->complaint(), words_) : f->complaints() != 0)               \
			CHECK_REPORT("complaint should have \"%s\": \"%s\"",                       \
				     words_ ? words_ : "nothing", f->complaint());                 \
		f->reset();                                                                        \
	} while (0)

/* ---- what the driver does ------------------------------------------------------------------ */
static void test_no_device(void)
{
	int n = -1;

	f->set("devices", 0);
	CHECK_CUDA(d.cuInit(0), CUDA_ERROR_NO_DEVICE);
	CHECK_CUDA(d.cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	f->set("devices", 2);
	f->reset();
}

static void test_states(void)
{
	CUdeviceptr p;
	CUcontext c;
	int n = -1;

	CHECK_CUDA_OK(d.cuDeviceGetCount(&n));
	CHECK_INT(n, 2);
	CHECK_CUDA(d.cuDeviceGet(&n, 2), CUDA_ERROR_INVALID_DEVICE);
	CHECK_CUDA(d.cuMemAlloc(&p, 1), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_CUDA(d.cuCtxPopCurrent(&c), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_CUDA_OK(d.cuDevicePrimaryCtxRetain(&c, 1));
	CHECK_CUDA_OK(d.cuDevicePrimaryCtxRelease(1));
	CHECK_CUDA(d.cuCtxPushCurrent(c), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	f->set("mem_bytes", 4096);
	begin();
	CHECK_CUDA_OK(d.cuMemAlloc(&p, 1024));
	CHECK_CUDA(d.cuMemAlloc(&p, 4096 - 1024), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA_OK(d.cuMemFree(p));
	end();
	f->set("mem_bytes", 1L << 34);
	CHECK_COMPLAINT(NULL);
}

static void test_work(void)
{
	float in[N], out[N];

	begin();
	for (int i = 0; i < N; i++)
		in[i] = (float)i;
	CHECK_CUDA_OK(d.cuMemcpyHtoDAsync(x, in, sizeof(in), s[0]));
	memset(in, 0, sizeof(in)); /* the caller's again */
	CHECK_CUDA_OK(d.cuEventRecord(e, s[0]));
	CHECK_CUDA_OK(d.cuStreamWaitEvent(s[1], e, 0));
	CHECK_CUDA_OK(d.cuMemcpyAsync(y, x, sizeof(in), s[1]));
	CHECK_CUDA_OK(d.cuMemcpyDtoHAsync(out, y, sizeof(out), s[1]));
	for (int i = 0; i < N; i++)
		CHECK_INT(out[i], i);
	CHECK_INT(f->pageable_copies(), 2);
	CHECK_INT(f->host_syncs(), 1);
	CHECK_INT(f->count("cuMemcpyAsync"), 1);
	CHECK_STR(f->call(1)->name, "cuEventRecord");
	CHECK_INT(f->call(1)->event, f->call(2)->event);
	CHECK_INT(f->call(2)->stream, f->call(1)->stream + 1);
	CHECK_CUDA_OK(launch("plain_fill", 1, N / 64, N, 3.0f, s[1]));
	CHECK_CUDA_OK(d.cuMemcpyDtoHAsync(out, y, sizeof(out), s[1]));
	for (int i = 0; i < N; i++)
		CHECK_INT(out[i], 3);
	CHECK_CUDA_OK(launch("plain_shift", 2, 1, 64, 0, s[1]));
	CHECK_CUDA_OK(d.cuMemcpyDtoHAsync(out, y, sizeof(out), s[1]));
	for (int i = 0; i < 63; i++)
		CHECK_INT(out[i], i + 1);
	end();
	CHECK_COMPLAINT(NULL);
}

static CUresult from_host_fn;

static void ask(void *arg)
{
	from_host_fn = d.cuStreamSynchronize(arg);
}

static void test_host_fn(void)
{
	begin();
	CHECK_CUDA_OK(launch_host_func(s[0], ask, s[0]));
	CHECK_CUDA_OK(d.cuEventRecord(e, s[0]));
	CHECK_CUDA_OK(d.cuEventSynchronize(e));
	CHECK_CUDA_OK(d.cuEventQuery(e));
	CHECK_INT(from_host_fn, CUDA_ERROR_NOT_PERMITTED);
	end();
	CHECK_COMPLAINT(NULL);
}

/* ---- what it finds ------------------------------------------------------------------------- */
static void test_races(void)
{
	begin();
	/* Two streams, no event; whichever comes first. */
	CHECK_CUDA_OK(d.cuMemsetD8Async(y, 0, N * sizeof(float), s[0]));
	CHECK_CUDA_OK(launch("plain_fill", 1, 1, 64, 1, s[1]));
	sync_both();
	CHECK(f->compared() > 0);
	CHECK(strstr(f->complaint(), "k_plain_fill_f32") != NULL);
	CHECK_COMPLAINT("no event orders them");
	/* Other bytes of the same memory are no race, nor are two readers. */
	CHECK_CUDA_OK(d.cuMemsetD8Async(y + 256, 0, 64, s[0]));
	CHECK_CUDA_OK(launch("plain_fill", 1, 1, 64, 1, s[1]));
	sync_both();
	CHECK_CUDA_OK(d.cuMemcpyAsync(y, x, 64, s[0]));
	CHECK_CUDA_OK(d.cuMemcpyAsync(y + 64, x, 64, s[1]));
	sync_both();
	CHECK_COMPLAINT(NULL);
	/* The host's waiting is an edge; an event on the wrong side is none. */
	CHECK_CUDA_OK(d.cuMemsetD8Async(y, 0, 64, s[0]));
	CHECK_CUDA_OK(d.cuStreamSynchronize(s[0]));
	CHECK_CUDA_OK(d.cuMemsetD8Async(y, 1, 64, s[1]));
	sync_both();
	CHECK_COMPLAINT(NULL);
	CHECK_CUDA_OK(d.cuEventRecord(e, s[0]));
	CHECK_CUDA_OK(d.cuMemsetD8Async(y, 0, 64, s[0]));
	CHECK_CUDA_OK(d.cuStreamWaitEvent(s[1], e, 0));
	CHECK_CUDA_OK(d.cuMemcpyAsync(x, y, 64, s[1]));
	sync_both();
	CHECK_COMPLAINT("race: ");
	end();
	CHECK_COMPLAINT(NULL);
}

/* Faults within a kernel are found by the calls that the compiler adds, which a build with a
 * sanitizer for threads has not. */
static void test_kernel_faults(void)
{
	static const struct {
		const char *name;
		int nplaces;
		unsigned nblocks;
		const char *words;
	} faults[] = {
		{ "fault_overflow", 1, 1, "0 bytes after allocation" },
		{ "fault_shift_race", 2, 1, "shared memory" },
		{ "fault_blocks_race", 1, 2, "at the same time: byte 0 of" },
		{ "fault_shared_unset", 1, 1, "nobody has written" },
		{ "fault_misaligned", 1, 1, "writes 4 bytes at an address that is no multiple" },
		{ "fault_misaligned_vector", 2, 1,
		  "reads 16 bytes at an address that is no multiple" },
	};

	begin();
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		CHECK_CUDA_OK(d.cuMemsetD8Async(x, 0, N * sizeof(float), s[0]));
		CHECK_CUDA_OK(
			launch(faults[i].name, faults[i].nplaces, faults[i].nblocks, N, 0, s[0]));
		sync_both();
		CHECK(strstr(f->complaint(), faults[i].name) != NULL);
		CHECK_COMPLAINT(faults[i].words);
	}
	end();
	f->reset(); /* the overflow has spoilt a guard zone */
}

static void test_faults(void)
{
	CUdeviceptr p;
	CUevent gone;
	char host[64];

	begin();
	CHECK_CUDA_OK(launch("fault_divergent", 1, 1, N, 0, s[0]));
	sync_both();
	CHECK_COMPLAINT("a barrier that only some threads reach");
	CHECK_CUDA(d.cuMemsetD8Async(y + 1, 0, N * sizeof(float), s[0]), CUDA_ERROR_INVALID_VALUE);
	CHECK_COMPLAINT("0 bytes after allocation");
	CHECK_CUDA(d.cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)host, host, 4, s[0]),
		   CUDA_ERROR_INVALID_VALUE);
	CHECK_COMPLAINT("no memory of the device");
	CHECK_CUDA_OK(d.cuMemAlloc(&p, 64));
	*(volatile char *)(uintptr_t)(p - 1) = 1;
	CHECK_CUDA_OK(d.cuMemFree(p));
	CHECK_COMPLAINT("1 bytes before allocation");
	CHECK_CUDA(d.cuMemsetD8Async(p, 0, 1, s[0]), CUDA_ERROR_INVALID_VALUE);
	CHECK_COMPLAINT("freed");
	CHECK_CUDA_OK(d.cuEventCreate(&gone, 0));
	CHECK_CUDA_OK(d.cuEventDestroy(gone));
	CHECK_CUDA(d.cuEventRecord(gone, s[0]), CUDA_ERROR_INVALID_HANDLE);
	CHECK_COMPLAINT("no live event");
	CHECK_CUDA(d.cuEventRecord(e, NULL), CUDA_ERROR_INVALID_HANDLE);
	CHECK_COMPLAINT("no live stream");
	f->set("pageable", 1);
	CHECK_CUDA_OK(d.cuMemcpyHtoDAsync(x, host, 4, s[0]));
	CHECK_COMPLAINT("not pinned");
	f->set("pageable", 0);
	CHECK_CUDA_OK(d.cuMemHostRegister(host, sizeof(host), 0));
	CHECK_CUDA_OK(d.cuMemcpyAsync(x, (CUdeviceptr)(uintptr_t)host, 64, s[0]));
	CHECK_INT(f->pageable_copies(), 0);
	CHECK_CUDA(d.cuMemHostRegister(host + 8, 8, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CHECK_CUDA_OK(d.cuMemHostUnregister(host));
	CHECK_CUDA_OK(d.cuEventCreate(&gone, 0));
	CHECK_CUDA_OK(d.cuMemAlloc(&p, 64));
	CHECK_INT(f->leaks(), 0);
	end();
	CHECK_INT(f->leaks(), 2);
	CHECK_INT(f->live(), 0);
	CHECK_COMPLAINT("1 allocations, 1 events");
}

/* ---- faults on purpose --------------------------------------------------------------------- */
static void test_on_purpose(void)
{
	begin();
	f->fail_at(2, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA_OK(d.cuEventQuery(e));
	CHECK_STR(f->failed(), "");
	CHECK_CUDA(d.cuEventRecord(e, s[0]), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_STR(f->failed(), "cuEventRecord");
	CHECK_CUDA_OK(d.cuEventRecord(e, s[0]));
	f->fail_later(2, CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_CUDA_OK(d.cuMemsetD8Async(x, 0, 4, s[0]));
	CHECK_CUDA_OK(launch("plain_fill", 1, 1, 64, 1, s[0]));
	CHECK_CUDA(d.cuStreamSynchronize(s[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_STR(f->failed(), "k_plain_fill_f32");
	CHECK_CUDA(d.cuStreamSynchronize(s[1]), CUDA_ERROR_ILLEGAL_ADDRESS);
	/* What is freed is freed, with the error. */
	CHECK_CUDA(d.cuMemFree(x), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_CUDA(d.cuMemFree(y), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_CUDA(d.cuEventDestroy(e), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_CUDA(d.cuStreamDestroy(s[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_CUDA(d.cuStreamDestroy(s[1]), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_CUDA(d.cuModuleUnload(module), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_CUDA_OK(d.cuCtxPopCurrent(NULL));
	CHECK_CUDA_OK(d.cuDevicePrimaryCtxRelease(0));
	CHECK_INT(f->leaks(), 0);
	CHECK_COMPLAINT(NULL);
}

int main(void)
{
	fake_cuda_load();
	f->collect(1);
	test_no_device();
	CHECK_CUDA_OK(d.cuInit(0));
	for (int seed = 1; seed <= 5; seed++) {
		f->set("seed", seed);
		if (seed == 1)
			test_states();
		test_work();
		test_host_fn();
		test_races();
#if defined(__SANITIZE_THREAD__)
		(void)test_kernel_faults;
#else
		test_kernel_faults();
#endif
		test_faults();
		test_on_purpose();
	}
	return check_done();
}
