/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver's and cuBLASLt's functions as bench_cuda.c calls them, CU(cuInit(0)) or
 * LT(cublasLtCreate(&handle)): a failure ends the program with the call and the code. Loaded at run
 * time, as the backend does.
 */
#ifndef SRT_BENCH_CUDA_CALLS_H
#define SRT_BENCH_CUDA_CALLS_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backends/cuda/cublaslt.h"
#include "backends/cuda/driver.h"

#define DRIVER(F)                                                                                  \
	F(cuInit, cuInit)                                                                          \
	F(cuDeviceGet, cuDeviceGet)                                                                \
	F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                      \
	F(cuCtxSetCurrent, cuCtxSetCurrent)                                                        \
	F(cuModuleLoadData, cuModuleLoadData)                                                      \
	F(cuModuleUnload, cuModuleUnload)                                                          \
	F(cuModuleGetFunction, cuModuleGetFunction)                                                \
	F(cuLaunchKernel, cuLaunchKernel)                                                          \
	F(cuMemAlloc, cuMemAlloc_v2)                                                               \
	F(cuMemFree, cuMemFree_v2)                                                                 \
	F(cuMemHostRegister, cuMemHostRegister_v2)                                                 \
	F(cuMemHostUnregister, cuMemHostUnregister)                                                \
	F(cuMemcpyHtoD, cuMemcpyHtoD_v2)                                                           \
	F(cuMemcpyAsync, cuMemcpyAsync)                                                            \
	F(cuStreamCreate, cuStreamCreate)                                                          \
	F(cuStreamSynchronize, cuStreamSynchronize)                                                \
	F(cuEventCreate, cuEventCreate)                                                            \
	F(cuEventRecord, cuEventRecord)                                                            \
	F(cuEventElapsedTime, cuEventElapsedTime)                                                  \
	F(cuGetErrorName, cuGetErrorName)

#define MEMBER(name, symbol) __typeof__(symbol) *name;
static struct {
	DRIVER(MEMBER)
} cu;
static srt_cublaslt_t lt;

static CUstream stream;
static double context_us; /* making the context, after cuInit() */
static CUevent before, after;

static void fail_bench(const char *what, const char *why)
{
	fprintf(stderr, "bench_cuda: %s: %s\n", what, why != NULL ? why : "unknown");
	exit(1);
}

static void check_cuda(CUresult code, const char *what)
{
	const char *name = "CUDA_ERROR";

	if (code == CUDA_SUCCESS)
		return;
	cu.cuGetErrorName(code, &name);
	fail_bench(what, name);
}

static void check_lt(cublasStatus_t code, const char *what)
{
	if (code != CUBLAS_STATUS_SUCCESS)
		fail_bench(what, lt.cublasLtGetStatusName(code));
}

#define CU(call) check_cuda(cu.call, #call)
#define LT(call) check_lt(lt.call, #call)

static void *load_library(const char *variable, const char *name)
{
	const char *path = getenv(variable);
	void *handle = dlopen(path != NULL && *path ? path : name, RTLD_NOW);

	if (handle == NULL)
		fail_bench(name, dlerror());
	return handle;
}

static void *find_function(void *handle, const char *name)
{
	void *function = dlsym(handle, name);

	if (function == NULL)
		fail_bench(name, "the library does not have this function");
	return function;
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void open_device(void)
{
	void *handle = load_library("SHARDRT_CUDA_DRIVER", "libcuda.so.1");
	CUcontext context;
	CUdevice device;

#define FIND(name, symbol) cu.name = (__typeof__(symbol) *)find_function(handle, #symbol);
	DRIVER(FIND)
	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	context_us = now_us();
	CU(cuDevicePrimaryCtxRetain(&context, device));
	context_us = now_us() - context_us;
	CU(cuCtxSetCurrent(context));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&before, CU_EVENT_DEFAULT));
	CU(cuEventCreate(&after, CU_EVENT_DEFAULT));
}

static void load_cublaslt(void)
{
	void *library = load_library("SHARDRT_CUBLASLT_LIBRARY", "libcublasLt.so.13");

#define FIND_LT(name) lt.name = (__typeof__(name) *)find_function(library, #name);
	SRT_CUBLASLT_FUNCTIONS(FIND_LT)
}

#endif
