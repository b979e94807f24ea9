/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Native handles on any device: getters, and their errors for another backend; the program's
 * memory as a buffer, with copies, operations and an engine's step; the program's own context as
 * the device of a rank.
 */
#include "config.h"

#include <dlfcn.h>

#include <shardrt/shardrt.h>
#ifdef HAVE_OPENCL
#include <shardrt/opencl.h>
#endif
#ifdef HAVE_CUDA
#include <shardrt/cuda.h>
#endif

#include "tests/device/native_work.h"
#include "tests/harness/options.h"

#define N 1000
#define NBYTES (N * sizeof(float))

static bool is_on(const char *backend)
{
	return strcmp(test_backend(), backend) == 0;
}

/* ---- getters ----------------------------------------------------------------------------- */

static void check_wrong_backend(const char *call, const char *asked, srt_status_t status)
{
	char words[160];

	snprintf(words, sizeof(words), "%s: a handle of \"%s\" is requested", call, asked);
	CHECK_STATUS(status, SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(words);
	snprintf(words, sizeof(words), "belongs to backend \"%s\"", test_backend());
	CHECK_ERROR_HAS(words);
}

static void test_wrong_backend(srt_device_t *device, srt_stream_t *stream, srt_buffer_t *buffer)
{
	const char *other = is_on("opencl") ? "cuda" : "opencl";
	srt_native_device_t native = { .size = sizeof(native), .backend = "unset" };
	void *handle = &native;
	srt_buffer_t *made = NULL;

	check_wrong_backend("srt_device_native", other, srt_device_native(device, other, &native));
	check_wrong_backend("srt_stream_native", other, srt_stream_native(stream, other, &handle));
	check_wrong_backend("srt_buffer_native", other, srt_buffer_native(buffer, other, &handle));
	check_wrong_backend("srt_buffer_wrap_native", other,
			    srt_buffer_wrap_native(device, other, handle, 4, "made", &made));
	CHECK_STR(native.backend, "unset");
	CHECK(handle == &native && made == NULL);
}

/* The right backend, which has no handles. */
static void test_no_handles(srt_device_t *device, srt_stream_t *stream, srt_buffer_t *buffer)
{
	srt_native_device_t native = SRT_NATIVE_DEVICE_INIT;
	srt_buffer_t *made;
	void *handle;

	CHECK_STATUS(srt_device_native(device, test_backend(), &native), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("has no native handles");
	CHECK_STATUS(srt_stream_native(stream, test_backend(), &handle), SRT_ERR_UNSUPPORTED);
	CHECK_STATUS(srt_buffer_native(buffer, test_backend(), &handle), SRT_ERR_UNSUPPORTED);
	CHECK_STATUS(srt_buffer_wrap_native(device, test_backend(), device, 4, NULL, &made),
		     SRT_ERR_UNSUPPORTED);
}

static void test_handles(srt_device_t *device, srt_stream_t *stream, srt_buffer_t *buffer)
{
	const char *backend = device->backend->name;
	srt_native_device_t native = SRT_NATIVE_DEVICE_INIT;
	srt_buffer_t *empty = test_buffer(device, 0, "empty");
	void *queue, *memory = buffer;

	CHECK_OK(srt_device_native(device, backend, &native));
	CHECK_STR(native.backend, backend);
	CHECK(native.context != NULL);
	CHECK_OK(srt_stream_native(stream, backend, &queue));
	CHECK_OK(srt_buffer_native(empty, backend, &memory));
	CHECK(memory == NULL);
	CHECK_OK(srt_buffer_native(buffer, backend, &memory));
	CHECK(memory != NULL && queue != NULL);
	srt_buffer_destroy(empty);
}

static void test_getters(srt_device_t *device)
{
	srt_stream_t *stream = test_stream(device, "s");
	srt_buffer_t *buffer = test_buffer(device, 64, "b");

	test_wrong_backend(device, stream, buffer);
	if (is_on("opencl") || is_on("cuda"))
		test_handles(device, stream, buffer);
	else
		test_no_handles(device, stream, buffer);
	srt_buffer_destroy(buffer);
	srt_stream_destroy(stream);
}

/* A kernel of the program on memory that peers map, and on a part of it. */
static void test_peer_memory(srt_device_t *device)
{
	static float values[N];
	srt_stream_t *stream = test_stream(device, "s");
	native_work_t *work = native_work_create(device, N);
	srt_buffer_t *x;

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_PEER, NBYTES, "x", &x));
	CHECK_OK(srt_op_fill(srt_view(x, 0, SRT_F32), 1, N, stream));
	native_work_add(work, stream, x, 0, N, 2);
	native_work_add(work, stream, x, 100 * sizeof(float), N - 100, 4);
	CHECK_OK(srt_op_scale(srt_view(x, 0, SRT_F32), srt_view(x, 0, SRT_F32), 2, N, stream));
	test_get(stream, values, x, 0, NBYTES);
	CHECK(values[0] == 6 && values[99] == 6 && values[100] == 14 && values[N - 1] == 14);
	srt_buffer_destroy(x);
	native_work_destroy(work);
	srt_stream_destroy(stream);
}

/* ---- host memory of the program ----------------------------------------------------------- */

static void test_wrap_host(srt_device_t *device)
{
	static _Alignas(16) float host[N + 4];
	srt_stream_t *stream = test_stream(device, "s");
	srt_buffer_t *x = test_buffer(device, NBYTES, "x"), *mine = NULL;
	const size_t allocated = srt_device_allocated(device);
	int wrong = 0;

	for (int i = 0; i < N; i++)
		host[i] = 3;
	host[N] = 7;
	CHECK_STATUS(srt_buffer_wrap(device, host, 0, "mine", &mine), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("\"mine\"");
	CHECK_STATUS(srt_buffer_wrap(device, (char *)host + 4, 4, NULL, &mine),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("not a multiple of 16");
	CHECK_OK_OR_DIE(srt_buffer_wrap(device, host, NBYTES, "mine", &mine));
	CHECK_INT(srt_device_allocated(device), allocated);
	CHECK(srt_buffer_host(mine) == host);
	CHECK_OK(srt_buffer_copy(x, 0, mine, 0, NBYTES, stream));
	CHECK_OK(srt_op_scale(srt_view(x, 0, SRT_F32), srt_view(x, 0, SRT_F32), 2, N, stream));
	CHECK_OK(srt_buffer_copy(mine, 0, x, 0, NBYTES, stream));
	if (device->caps.host_memory)
		CHECK_OK(srt_op_scale(srt_view(mine, 0, SRT_F32), srt_view(mine, 0, SRT_F32), 2, N,
				      stream));
	CHECK_STATUS(srt_buffer_zero(mine, 4, NBYTES, stream), SRT_ERR_INVALID_ARGUMENT);
	srt_buffer_destroy(mine); /* waits for the stream */
	for (int i = 0; i < N; i++)
		wrong += host[i] != (device->caps.host_memory ? 12.0f : 6.0f);
	CHECK_INT(wrong, 0);
	CHECK(host[N] == 7);
	srt_buffer_destroy(x);
	srt_stream_destroy(stream);
}

/* ---- device memory of the program ---------------------------------------------------------- */

#ifdef HAVE_CUDA
static struct {
	__typeof__(cuCtxPushCurrent) *cuCtxPushCurrent;
	__typeof__(cuCtxPopCurrent) *cuCtxPopCurrent;
	__typeof__(cuDevicePrimaryCtxRetain) *cuDevicePrimaryCtxRetain;
	__typeof__(cuDevicePrimaryCtxRelease) *cuDevicePrimaryCtxRelease;
	__typeof__(cuInit) *cuInit;
	__typeof__(cuMemAlloc) *cuMemAlloc;
	__typeof__(cuMemFree) *cuMemFree;
} cuda;

#define NAME_OF_(name) #name
#define NAME_OF(name) NAME_OF_(name)
#define LOAD(name) CHECK_OR_DIE((*(void **)&cuda.name = dlsym(library, NAME_OF(name))) != NULL)

static void load_cuda(void)
{
	const char *path = srt_config_string("SHARDRT_CUDA_DRIVER");
	void *library = dlopen(path[0] ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	CHECK_OR_DIE(library != NULL);
	LOAD(cuCtxPushCurrent);
	LOAD(cuCtxPopCurrent);
	LOAD(cuDevicePrimaryCtxRetain);
	LOAD(cuDevicePrimaryCtxRelease);
	LOAD(cuInit);
	LOAD(cuMemAlloc);
	LOAD(cuMemFree);
}
#endif

/* Device memory of the program in the context of a device; with memory NULL: allocates it. */
static void *program_memory(const srt_native_device_t *native, void *memory)
{
#ifdef HAVE_OPENCL
	if (is_on("opencl")) {
		cl_int code = CL_SUCCESS;

		if (memory != NULL)
			code = clReleaseMemObject(memory);
		else
			memory = clCreateBuffer(native->context, CL_MEM_READ_WRITE, NBYTES, NULL,
						&code);
		CHECK_INT(code, CL_SUCCESS);
	}
#endif
#ifdef HAVE_CUDA
	if (is_on("cuda")) {
		CUdeviceptr address = (CUdeviceptr)(uintptr_t)memory;
		CUcontext popped;

		CHECK_INT(cuda.cuCtxPushCurrent(native->context), CUDA_SUCCESS);
		if (memory)
			CHECK_INT(cuda.cuMemFree(address), CUDA_SUCCESS);
		else
			CHECK_INT(cuda.cuMemAlloc(&address, NBYTES), CUDA_SUCCESS);
		CHECK_INT(cuda.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
		memory = (void *)(uintptr_t)address;
	}
#endif
	(void)native;
	return memory;
}

#ifdef HAVE_OPENCL
static void check_refused(srt_device_t *device, cl_context context, cl_mem_flags flags,
			  size_t nbytes, const char *words)
{
	srt_buffer_t *made = NULL;
	cl_mem mem = clCreateBuffer(context, flags, NBYTES, NULL, NULL);

	CHECK_STATUS(srt_opencl_wrap(device, mem, nbytes, "mine", &made), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(words);
	CHECK_ERROR_HAS("\"mine\"");
	clReleaseMemObject(mem);
}

static void test_refused_mem(srt_device_t *device, const srt_native_device_t *native)
{
	cl_device_id id = native->device;
	cl_context own = clCreateContext(NULL, 1, &id, NULL, NULL, NULL);
	srt_buffer_t *pinned;
	cl_mem mem;

	check_refused(device, own, CL_MEM_READ_WRITE, NBYTES, "another context");
	check_refused(device, native->context, CL_MEM_READ_ONLY, NBYTES, "read and write");
	check_refused(device, native->context, CL_MEM_READ_WRITE, NBYTES + 1, "smaller");
	clReleaseContext(own);
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_PINNED, 64, "pinned", &pinned));
	CHECK_STATUS(srt_opencl_get_mem(pinned, &mem), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("buffer \"pinned\": it is host memory without a cl_mem");
	srt_buffer_destroy(pinned);
}
#endif

/* A step of one parameter from gradients in `source`; the value goes to `result`, through it. */
static void train(srt_context_t *context, srt_buffer_t *source, float *result)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0.5f);
	srt_stream_t *stream = test_stream(srt_context_device(context), "s");
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *param;
	srt_view_t view, mine = srt_view(source, 0, SRT_F32);
	srt_normal_t random = SRT_NORMAL_INIT;
	int accumulate;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "model", NULL, &unit));
	CHECK_OK_OR_DIE(srt_param_create(unit, "w", SRT_F32, 1, &(int64_t){ N }, NULL, &param));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	CHECK_OK(srt_param_init_normal(param, 1, 0.0f, 1.0f, stream));
	random.y = mine, random.seed = 2, random.name = "grad", random.nelem = N;
	CHECK_OK(srt_op_normal(&random, stream));
	CHECK_OK(srt_unit_forward_begin(unit, stream));
	CHECK_OK(srt_param_data(param, &view));
	CHECK_OK(srt_op_add(mine, mine, view, N, stream));
	CHECK_OK(srt_unit_forward_end(unit, stream));
	CHECK_OK(srt_unit_backward_begin(unit, stream));
	CHECK_OK(srt_param_grad(param, &view, &accumulate));
	CHECK_OK(srt_buffer_copy(view.buffer, view.offset, source, 0, NBYTES, stream));
	CHECK_OK(srt_param_grad_ready(param));
	CHECK_OK(srt_unit_backward_end(unit, stream));
	CHECK_OK(srt_engine_step(engine, stream));
	CHECK_OK(srt_unit_forward_begin(unit, stream));
	CHECK_OK(srt_param_data(param, &view));
	CHECK_OK(srt_buffer_copy(source, 0, view.buffer, view.offset, NBYTES, stream));
	CHECK_OK(srt_unit_forward_end(unit, stream));
	test_get(stream, result, source, 0, NBYTES);
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
}

/* Equal bits in memory of the library, and of the program where there is a way to wrap it. */
static void test_engine(srt_context_t *context)
{
	srt_device_t *device = srt_context_device(context);
	const char *backend = device->backend->name;
	static _Alignas(64) float host[N], expected[N], result[N];
	const bool has_handles = is_on("opencl") || is_on("cuda");
	srt_buffer_t *own = test_buffer(device, NBYTES, "own"), *mine;
	srt_native_device_t native = SRT_NATIVE_DEVICE_INIT;
	void *memory = NULL;

	train(context, own, expected);
	CHECK(expected[0] != expected[1]);
	if (has_handles) {
		const size_t allocated = srt_device_allocated(device);

		CHECK_OK_OR_DIE(srt_device_native(device, backend, &native));
		memory = program_memory(&native, NULL);
		CHECK_OK_OR_DIE(
			srt_buffer_wrap_native(device, backend, memory, NBYTES, "mine", &mine));
		CHECK_INT(srt_device_allocated(device), allocated);
		train(context, mine, result);
	} else if (device->caps.host_memory) {
		CHECK_OK_OR_DIE(srt_buffer_wrap(device, host, NBYTES, "mine", &mine));
		train(context, mine, result);
		CHECK(memcmp(expected, host, NBYTES) == 0);
	} else {
		srt_buffer_destroy(own);
		return;
	}
	CHECK(memcmp(expected, result, NBYTES) == 0);
	srt_buffer_destroy(mine);
	if (has_handles)
		program_memory(&native, memory); /* not freed with the buffer */
	srt_buffer_destroy(own);
}

static void test_wrap_native(srt_device_t *device)
{
#ifdef HAVE_OPENCL
	if (is_on("opencl")) {
		srt_native_device_t native = SRT_NATIVE_DEVICE_INIT;

		CHECK_OK_OR_DIE(srt_device_native(device, "opencl", &native));
		test_refused_mem(device, &native);
	}
#endif
#ifdef HAVE_CUDA
	if (is_on("cuda")) {
		srt_buffer_t *made;

		CHECK_STATUS(srt_cuda_wrap(device, 4096 + 8, 64, "mine", &made),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("of \"mine\" is not a multiple of 16");
	}
#endif
	(void)device;
}

/* ---- the program's own context ------------------------------------------------------------ */

static void check_refused_native(const srt_context_options_t *options, srt_status_t expected,
				 const char *words)
{
	srt_context_t *context = NULL;

	CHECK_STATUS(srt_context_create(options, &context), expected);
	CHECK_ERROR_HAS(words);
	CHECK(context == NULL);
}

static void test_refused_native(void)
{
	int unused;
	srt_native_device_t native = { .size = sizeof(native),
				       .backend = "cpu",
				       .context = &unused };
	srt_context_options_t options = { .size = sizeof(options), .native = &native };

	check_refused_native(&options, SRT_ERR_UNSUPPORTED,
			     "backend \"cpu\" cannot use a context of the program");
	options.backend = "opencl";
	check_refused_native(&options, SRT_ERR_INVALID_ARGUMENT, "leave the option backend NULL");
	options.backend = NULL;
	options.device = "0";
	check_refused_native(&options, SRT_ERR_INVALID_ARGUMENT, "leave the option device NULL");
	options.device = NULL;
	native.backend = NULL;
	check_refused_native(&options, SRT_ERR_INVALID_ARGUMENT, "native.backend is NULL");
	native.backend = "opencl";
	native.context = NULL;
	check_refused_native(&options, SRT_ERR_INVALID_ARGUMENT, "native.context is NULL");
	native.backend = "rainbow";
	native.context = &unused;
	check_refused_native(&options, SRT_ERR_INVALID_ARGUMENT, "there is no backend \"rainbow\"");
}

#if defined(HAVE_OPENCL) || defined(HAVE_CUDA)
/* Trains on the context, with the program's own kernel too. */
static void use_context(const srt_native_device_t *native)
{
	const srt_context_options_t options = { .size = sizeof(options), .native = native };
	static float values[N];
	srt_native_device_t found = SRT_NATIVE_DEVICE_INIT;
	srt_context_t *context;
	srt_stream_t *stream;
	srt_buffer_t *x;
	native_work_t *work;

	CHECK_OK_OR_DIE(srt_context_create(&options, &context));
	CHECK_OK(srt_device_native(srt_context_device(context), native->backend, &found));
	CHECK(found.context == native->context);
	test_engine(context);
	stream = test_stream(srt_context_device(context), "s");
	x = test_buffer(srt_context_device(context), NBYTES, "x");
	work = native_work_create(srt_context_device(context), N);
	native_work_add(work, stream, x, 0, N, 2);
	test_get(stream, values, x, 0, NBYTES);
	CHECK(values[0] == 2 && values[N - 1] == 2);
	native_work_destroy(work);
	srt_buffer_destroy(x);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
}
#endif

#ifdef HAVE_OPENCL
static cl_uint references(cl_context context)
{
	cl_uint n = 0;

	clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(n), &n, NULL);
	return n;
}

static void test_own_opencl(void)
{
	srt_context_t *context;
	srt_native_device_t native;
	srt_context_options_t options = { .size = sizeof(options), .native = &native };
	cl_context own, unused = NULL;
	cl_device_id id = NULL;
	cl_uint before;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK(srt_opencl_get_device(srt_context_device(context), &unused, &id));
	own = clCreateContext(NULL, 1, &id, NULL, NULL, NULL);
	before = references(own);
	native = srt_opencl_native_device(own, id);
	use_context(&native);
	CHECK_INT(references(own), before);
	native.device = NULL;
	check_refused_native(&options, SRT_ERR_INVALID_ARGUMENT, "has no such device");
	srt_context_destroy(context);
	CHECK_INT(references(own), before);
	clReleaseContext(own);
}
#endif

#ifdef HAVE_CUDA
static void test_own_cuda(void)
{
	srt_native_device_t native;
	CUcontext own;

	CHECK_INT(cuda.cuInit(0), CUDA_SUCCESS);
	CHECK_INT(cuda.cuDevicePrimaryCtxRetain(&own, 0), CUDA_SUCCESS);
	native = srt_cuda_native_device(own);
	use_context(&native);
	CHECK_INT(cuda.cuCtxPushCurrent(own), CUDA_SUCCESS); /* it is still there */
	CHECK_INT(cuda.cuCtxPopCurrent(&own), CUDA_SUCCESS);
	CHECK_INT(cuda.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
}
#endif

int main(void)
{
	srt_context_t *context;
	srt_device_t *device;

#ifdef HAVE_CUDA
	if (is_on("cuda"))
		load_cuda();
#endif
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	test_getters(device);
	test_peer_memory(device);
	test_wrap_host(device);
	test_wrap_native(device);
	test_engine(context);
	srt_context_destroy(context);
	test_refused_native();
#ifdef HAVE_OPENCL
	if (is_on("opencl"))
		test_own_opencl();
#endif
#ifdef HAVE_CUDA
	if (is_on("cuda"))
		test_own_cuda();
#endif
	return check_done();
}
