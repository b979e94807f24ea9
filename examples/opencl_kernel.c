/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trains a model on an OpenCL device, with its ReLU and the gradient as kernels of this program
 * (relu_model.h has the model); then with the library's operation. Both end with the same bits.
 *
 *     cc -std=c11 opencl_kernel.c $(pkg-config --cflags --libs shardrt) -lOpenCL -o opencl_kernel
 *     shardrun -n 2 ./opencl_kernel
 */
#include <shardrt/opencl.h>

#include "relu_model.h"

static const char source[] =
	"kernel void relu(global float *y, global const float *x)\n"
	"{ size_t i = get_global_id(0); y[i] = fmax(x[i], 0.0f); }\n"
	"kernel void relu_backward(global float *dx, global const float *dy, global const float *y)\n"
	"{ size_t i = get_global_id(0); dx[i] = y[i] > 0.0f ? dy[i] : 0.0f; }\n";

static cl_kernel relu, relu_backward;

/* The views of this program begin at offset 0; others add offset / sizeof(float) in the kernel. */
static srt_status_t set_tensor(cl_kernel kernel, cl_uint i, srt_view_t view)
{
	cl_mem mem;
	srt_status_t status = srt_opencl_get_mem(view.buffer, &mem);

	if (status == SRT_OK)
		clSetKernelArg(kernel, i, sizeof(mem), &mem);
	return status;
}

/* Called in stream order, when the queue has all earlier work of the stream. */
static srt_status_t enqueue_relu(void *queue, const void *arg)
{
	const relu_call_t *call = arg;
	cl_kernel kernel = call->is_backward ? relu_backward : relu;
	const size_t nitems = call->nelem;
	srt_status_t status = set_tensor(kernel, 0, call->is_backward ? call->dx : call->y);

	if (status == SRT_OK)
		status = set_tensor(kernel, 1, call->is_backward ? call->dy : call->x);
	if (status == SRT_OK && call->is_backward)
		status = set_tensor(kernel, 2, call->y);
	if (status != SRT_OK)
		return status;
	if (clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &nitems, NULL, 0, NULL, NULL) !=
	    CL_SUCCESS)
		return srt_error_set(SRT_ERR_DEVICE, "the ReLU was not launched");
	return SRT_OK;
}

static void build_kernels(srt_device_t *device)
{
	const char *text = source;
	cl_context context = NULL;
	cl_device_id id = NULL;
	cl_program program;

	check(srt_opencl_get_device(device, &context, &id));
	program = clCreateProgramWithSource(context, 1, &text, NULL, NULL);
	if (clBuildProgram(program, 1, &id, "-cl-std=CL1.2", NULL, NULL) != CL_SUCCESS)
		check(srt_error_set(SRT_ERR_DEVICE, "the kernels do not compile"));
	relu = clCreateKernel(program, "relu", NULL);
	relu_backward = clCreateKernel(program, "relu_backward", NULL);
	clReleaseProgram(program);
}

int main(void)
{
	const srt_context_options_t options = { .size = sizeof(options), .backend = "opencl" };
	srt_context_t *context;
	int failed;

	check(srt_context_create(&options, &context));
	build_kernels(srt_context_device(context));
	failed = compare_models(context, enqueue_relu);
	clReleaseKernel(relu);
	clReleaseKernel(relu_backward);
	srt_context_destroy(context);
	return failed;
}
