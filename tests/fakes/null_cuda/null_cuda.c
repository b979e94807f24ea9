/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libnull_cuda.so: a libcuda that does nothing and counts its calls. A test sees what a training
 * step asks of the driver, in sizes that no processor could compute. Device memory is addresses
 * without memory; a copy to the host writes zeros. The self-test of the kernels therefore fails,
 * which numerics mode fast only warns of and mode exact refuses.
 *
 *   NULL_CUDA_COUNTS=FILE  at the end of the process, FILE gets a line "NUMBER NAME" for each
 *                          function of the driver and for each kernel that was called
 *
 * fake_cublaslt/ puts its products into a stream by cuLaunchHostFunc(), which the backend does not
 * call. They are counted as cublasLtMatmul and not computed.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

/* Addresses of device memory begin here, where no process has memory. */
#define DEVICE_BASE ((CUdeviceptr)1 << 56)
#define DEVICE_NBYTES ((size_t)80 << 30)
#define PAGE_NBYTES ((size_t)4096)

/* The calls of a function, or the launches of a kernel. */
typedef struct counter {
	const char *name;
	struct counter *next;
	long n;
	bool is_listed;
} counter_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static counter_t *counters;
static CUdeviceptr next_address = DEVICE_BASE;
static char handle; /* streams, events, modules and the context are its address */

static CUresult add(counter_t *counter, long n)
{
	pthread_mutex_lock(&lock);
	if (!counter->is_listed) {
		counter->is_listed = true;
		counter->next = counters;
		counters = counter;
	}
	counter->n += n;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

__attribute__((destructor)) static void write_counts(void)
{
	const char *path = getenv("NULL_CUDA_COUNTS");
	FILE *out = path != NULL ? fopen(path, "w") : NULL;

	if (out == NULL)
		return;
	for (const counter_t *c = counters; c != NULL; c = c->next)
		if (c->n)
			fprintf(out, "%ld %s\n", c->n, c->name);
	fclose(out);
}

/* Defines a function that sets `result` and is counted by its plain name, #name: cuda.h makes
 * some names name_v2. */
#define FUNCTION(text, name, params, result)                                                       \
	CUresult name params                                                                       \
	{                                                                                          \
		static counter_t counter = { text, NULL, 0, false };                               \
                                                                                                   \
		result;                                                                            \
		return add(&counter, 1);                                                           \
	}
#define CALL(name, params, result) FUNCTION(#name, name, params, result)
#define NOTHING(name, params) FUNCTION(#name, name, params, (void)0)

/* ---- the driver and its device, like an H100 --------------------------------------------- */

NOTHING(cuInit, (unsigned flags))
CALL(cuDriverGetVersion, (int *version), *version = CUDA_VERSION)
CALL(cuGetErrorName, (CUresult code, const char **name), *name = "CUDA_ERROR_OF_NULL_CUDA")
CALL(cuGetErrorString, (CUresult code, const char **text), *text = "an error")
CALL(cuDeviceGetCount, (int *n), *n = 1)
CALL(cuDeviceGet, (CUdevice * device, int number), *device = number)
CALL(cuDeviceGetName, (char *name, int nbytes, CUdevice device),
     snprintf(name, (size_t)nbytes, "null CUDA device"))
CALL(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device), memset(uuid, 1, sizeof(*uuid)))
CALL(cuDeviceGetPCIBusId, (char *id, int nbytes, CUdevice device),
     snprintf(id, (size_t)nbytes, "0000:01:00.0"))
CALL(cuDeviceTotalMem, (size_t * nbytes, CUdevice device), *nbytes = DEVICE_NBYTES)

static int attribute_of(CUdevice_attribute attribute)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return 9;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return 132;
	case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
		return 0x7fffffff;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
		return 1;
	default:
		return 0;
	}
}

CALL(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device),
     *value = attribute_of(attribute))

CALL(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), *context = (void *)&handle)
NOTHING(cuDevicePrimaryCtxRelease, (CUdevice device))
NOTHING(cuCtxPushCurrent, (CUcontext context))
CALL(cuCtxPopCurrent, (CUcontext * context), *context = (void *)&handle)
CALL(cuCtxGetDevice, (CUdevice * device), *device = 0)
CALL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), (*least = 0, *greatest = -5))

/* ---- memory ------------------------------------------------------------------------------ */

static CUdeviceptr allocate(size_t nbytes)
{
	CUdeviceptr address;

	pthread_mutex_lock(&lock);
	address = next_address;
	next_address += (nbytes + PAGE_NBYTES) / PAGE_NBYTES * PAGE_NBYTES;
	pthread_mutex_unlock(&lock);
	return address;
}

static void copy(CUdeviceptr dst, size_t nbytes)
{
	if (dst < DEVICE_BASE)
		memset((void *)(uintptr_t)dst, 0, nbytes);
}

CALL(cuMemGetInfo, (size_t * available, size_t *total), *available = *total = DEVICE_NBYTES)
CALL(cuMemAlloc, (CUdeviceptr * address, size_t nbytes), *address = allocate(nbytes))
NOTHING(cuMemFree, (CUdeviceptr address))
CALL(cuMemHostAlloc, (void **p, size_t nbytes, unsigned flags), *p = malloc(nbytes))
CALL(cuMemFreeHost, (void *p), free(p))
NOTHING(cuMemHostRegister, (void *p, size_t nbytes, unsigned flags))
NOTHING(cuMemHostUnregister, (void *p))
CALL(cuMemHostGetDevicePointer, (CUdeviceptr * address, void *p, unsigned flags),
     *address = (CUdeviceptr)(uintptr_t)p)
CALL(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t nbytes, CUstream stream),
     copy(dst, nbytes))
NOTHING(cuMemcpy2DAsync, (const CUDA_MEMCPY2D *rows, CUstream stream))
NOTHING(cuMemcpyHtoDAsync, (CUdeviceptr dst, const void *src, size_t nbytes, CUstream stream))
CALL(cuMemcpyDtoHAsync, (void *dst, CUdeviceptr src, size_t nbytes, CUstream stream),
     memset(dst, 0, nbytes))
NOTHING(cuMemsetD8Async, (CUdeviceptr dst, unsigned char value, size_t nbytes, CUstream stream))

/* ---- streams and events ------------------------------------------------------------------ */

CALL(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority),
     *stream = (void *)&handle)
NOTHING(cuStreamDestroy, (CUstream stream))
NOTHING(cuStreamSynchronize, (CUstream stream))
NOTHING(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))
CALL(cuEventCreate, (CUevent * event, unsigned flags), *event = (void *)&handle)
NOTHING(cuEventDestroy, (CUevent event))
NOTHING(cuEventRecord, (CUevent event, CUstream stream))
NOTHING(cuEventSynchronize, (CUevent event))
NOTHING(cuEventQuery, (CUevent event))

/* ---- kernels ----------------------------------------------------------------------------- */

/* A kernel's counter is its handle; it is not freed, because the end of the process reads it. */
static CUfunction function_new(const char *name)
{
	counter_t *kernel = calloc(1, sizeof(*kernel));

	if (kernel == NULL || (kernel->name = strdup(name)) == NULL)
		abort();
	add(kernel, 0);
	return (void *)kernel;
}

CALL(cuModuleLoadData, (CUmodule * module, const void *image), *module = (void *)&handle)
NOTHING(cuModuleUnload, (CUmodule module))
CALL(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name),
     *function = function_new(name))
CALL(cuFuncGetAttribute, (int *value, CUfunction_attribute attribute, CUfunction function),
     *value = 1024)
CALL(cuLaunchKernel,
     (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
      unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **params,
      void **extra),
     add((void *)function, 1))

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *arg)
{
	static counter_t counter = { "cublasLtMatmul", NULL, 0, false };

	return add(&counter, 1);
}
