/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See native_work.h. What adds, by device:
 *
 *   cpu     the function itself, at the host address of the tensor
 *   opencl  a kernel that is compiled for the library's context
 *   others  a host function on pinned memory, between two copies of the library: in the driver's
 *           order by cuLaunchHostFunc() or by the late device's queue; on the toy device the
 *           function itself
 */
#include "config.h"

#include <dlfcn.h>

#ifdef HAVE_OPENCL
#include <shardrt/opencl.h>
#endif
#ifdef HAVE_CUDA
#include <shardrt/cuda.h>
#endif

#include "tests/device/native_work.h"
#include "tests/fakes/backend_late/late.h"

struct native_work {
	srt_device_t *device;
	srt_buffer_t *pinned; /* NULL: not needed */
#ifdef HAVE_OPENCL
	cl_kernel kernel;
#endif
#ifdef HAVE_CUDA
	__typeof__(cuLaunchHostFunc) *launch_host_func;
#endif
};

/* The argument of an enqueued function, which is copied. */
typedef struct add {
	native_work_t *work;
	srt_view_t x;
	size_t nelem;
	float value;
} add_t;

/* Functions run on threads of streams, so they report by their status and count no checks. A host
 * function has a copy on the heap, which it frees. */
static void add_on_host(void *arg)
{
	add_t *add = arg;
	float *x = srt_view_host(add->x);

	for (size_t i = 0; i < add->nelem; i++)
		x[i] += add->value;
	free(add);
}

static add_t *copy_add(const void *arg)
{
	add_t *copy = malloc(sizeof(*copy));

	if (copy == NULL)
		abort();
	memcpy(copy, arg, sizeof(*copy));
	return copy;
}

static srt_status_t enqueue_host(void *queue, const void *arg)
{
	if (queue != NULL)
		return srt_error_set(SRT_ERR_IO, "the host has a queue");
	add_on_host(copy_add(arg));
	return SRT_OK;
}

static srt_status_t enqueue_late(void *queue, const void *arg)
{
	((late_queue_t *)queue)->put(queue, add_on_host, copy_add(arg));
	return SRT_OK;
}

#ifdef HAVE_CUDA
static srt_status_t enqueue_cuda(void *queue, const void *arg)
{
	const add_t *add = arg;

	if (add->work->launch_host_func(queue, add_on_host, copy_add(arg)) != CUDA_SUCCESS)
		return srt_error_set(SRT_ERR_DEVICE, "the host function was not launched");
	return SRT_OK;
}
#endif

#ifdef HAVE_OPENCL
static const char source[] = "__kernel void add(__global float *x, ulong first, float value)\n"
			     "{\n"
			     "	x[first + get_global_id(0)] += value;\n"
			     "}\n";

static void build_kernel(native_work_t *work)
{
	const char *text = source;
	cl_context context = NULL;
	cl_device_id id = NULL;
	cl_program program;
	cl_int code;

	CHECK_OK_OR_DIE(srt_opencl_get_device(work->device, &context, &id));
	program = clCreateProgramWithSource(context, 1, &text, NULL, &code);
	CHECK_INT(code, CL_SUCCESS);
	CHECK_INT(clBuildProgram(program, 1, &id, "", NULL, NULL), CL_SUCCESS);
	work->kernel = clCreateKernel(program, "add", &code);
	CHECK_OR_DIE(code == CL_SUCCESS);
	clReleaseProgram(program);
}

static srt_status_t enqueue_opencl(void *queue, const void *arg)
{
	const add_t *add = arg;
	const cl_ulong first = add->x.offset / sizeof(float);
	cl_kernel kernel = add->work->kernel;
	cl_mem mem;

	SRT_TRY(srt_opencl_get_mem(add->x.buffer, &mem));
	clSetKernelArg(kernel, 0, sizeof(mem), &mem);
	clSetKernelArg(kernel, 1, sizeof(first), &first);
	clSetKernelArg(kernel, 2, sizeof(add->value), &add->value);
	if (clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &add->nelem, NULL, 0, NULL, NULL) !=
	    CL_SUCCESS)
		return srt_error_set(SRT_ERR_DEVICE, "the kernel \"add\" was not launched");
	return SRT_OK;
}
#endif

static bool is_backend(const native_work_t *work, const char *name)
{
	return strcmp(work->device->backend->name, name) == 0;
}

native_work_t *native_work_create(srt_device_t *device, size_t nelem)
{
	native_work_t *work = calloc(1, sizeof(*work));

	CHECK_OR_DIE(work != NULL);
	work->device = device;
	if (is_backend(work, "opencl")) {
#ifdef HAVE_OPENCL
		build_kernel(work);
#endif
		return work;
	}
	if (device->caps.host_memory)
		return work;
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_PINNED, nelem * sizeof(float), "pinned",
					  &work->pinned));
#ifdef HAVE_CUDA
	if (is_backend(work, "cuda")) {
		const char *path = srt_config_string("SHARDRT_CUDA_DRIVER");
		void *library = dlopen(path[0] ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

		CHECK_OR_DIE(library != NULL);
		*(void **)&work->launch_host_func = dlsym(library, "cuLaunchHostFunc");
		CHECK_OR_DIE(work->launch_host_func != NULL);
	}
#endif
	return work;
}

void native_work_destroy(native_work_t *work)
{
#ifdef HAVE_OPENCL
	if (work->kernel != NULL)
		clReleaseKernel(work->kernel);
#endif
	srt_buffer_destroy(work->pinned);
	free(work);
}

static srt_enqueue_fn *find_function(const native_work_t *work)
{
#ifdef HAVE_OPENCL
	if (is_backend(work, "opencl"))
		return enqueue_opencl;
#endif
#ifdef HAVE_CUDA
	if (is_backend(work, "cuda"))
		return enqueue_cuda;
#endif
	return is_backend(work, "late") ? enqueue_late : enqueue_host;
}

void native_work_add(native_work_t *work, srt_stream_t *stream, srt_buffer_t *x, size_t offset,
		     size_t nelem, float value)
{
	const size_t nbytes = nelem * sizeof(float);
	add_t add = { .work = work, .nelem = nelem, .value = value };

	add.x = srt_view(x, offset, SRT_F32);
	if (work->pinned != NULL) {
		add.x = srt_view(work->pinned, 0, SRT_F32);
		CHECK_OK(srt_buffer_copy(work->pinned, 0, x, offset, nbytes, stream));
	}
	CHECK_OK(srt_stream_enqueue(stream, find_function(work), &add, sizeof(add), NULL));
	memset(&add, 0xff, sizeof(add)); /* the call copied it */
	if (work->pinned != NULL)
		CHECK_OK(srt_buffer_copy(x, offset, work->pinned, 0, nbytes, stream));
}
