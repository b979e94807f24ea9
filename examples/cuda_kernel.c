/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trains a model on a CUDA device, with its ReLU and the gradient as kernels of this program
 * (relu_model.h has the model, cuda_relu.cu the kernels); then with the library's operation. Both
 * end with the same bits.
 *
 *     nvcc -fatbin -arch=sm_90 cuda_relu.cu -o cuda_relu.fatbin
 *     cc -std=c11 cuda_kernel.c $(pkg-config --cflags --libs shardrt) -I/usr/local/cuda/include \
 *         -lcuda -o cuda_kernel
 *     shardrun -n 2 ./cuda_kernel cuda_relu.fatbin
 */
#include <shardrt/cuda.h>

#include "relu_model.h"

static CUfunction relu, relu_backward;

static CUdeviceptr address(srt_view_t view)
{
	CUdeviceptr first = 0;

	check(srt_cuda_get_address(view.buffer, &first));
	return first + view.offset;
}

/* Called in stream order, when the stream has all earlier work. The device's context is current. */
static srt_status_t enqueue_relu(void *queue, const void *arg)
{
	const relu_call_t *call = arg;
	CUdeviceptr y = address(call->y), x = address(call->x);
	CUdeviceptr dx = address(call->dx), dy = address(call->dy);
	unsigned n = call->nelem;
	void *forward[] = { &y, &x, &n }, *backward[] = { &dx, &dy, &y, &n };

	if (cuLaunchKernel(call->is_backward ? relu_backward : relu, (n + 127) / 128, 1, 1, 128, 1,
			   1, 0, (CUstream)queue, call->is_backward ? backward : forward,
			   NULL) != CUDA_SUCCESS)
		return srt_error_set(SRT_ERR_DEVICE, "the ReLU was not launched");
	return SRT_OK;
}

static void check_cuda(CUresult code, const char *sentence)
{
	if (code != CUDA_SUCCESS)
		check(srt_error_set(SRT_ERR_DEVICE, sentence));
}

static CUmodule load_kernels(const char *file)
{
	static char image[1 << 20];
	FILE *f = fopen(file, "rb");
	CUmodule module;

	if (f == NULL || !fread(image, 1, sizeof(image), f))
		check(srt_error_set(SRT_ERR_IO, "the file of the kernels cannot be read"));
	fclose(f);
	check_cuda(cuModuleLoadData(&module, image), "the kernels were not loaded");
	check_cuda(cuModuleGetFunction(&relu, module, "relu"), "there is no kernel relu");
	check_cuda(cuModuleGetFunction(&relu_backward, module, "relu_backward"),
		   "there is no kernel relu_backward");
	return module;
}

int main(int argc, char **argv)
{
	const srt_context_options_t options = { .size = sizeof(options), .backend = "cuda" };
	CUcontext cuda = NULL, popped;
	srt_context_t *context;
	CUmodule module;
	CUdevice id;
	int failed;

	check(srt_context_create(&options, &context));
	check(srt_cuda_get_device(srt_context_device(context), &cuda, &id));
	check_cuda(cuCtxPushCurrent(cuda), "the context was not made current");
	module = load_kernels(argc > 1 ? argv[1] : "cuda_relu.fatbin");
	failed = compare_models(context, enqueue_relu);
	check_cuda(cuModuleUnload(module), "the kernels were not unloaded");
	check_cuda(cuCtxPopCurrent(&popped), "the context is not current");
	srt_context_destroy(context);
	return failed;
}
