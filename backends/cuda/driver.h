/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA driver, libcuda.so.1, loaded at run time: a table with a pointer to each function that
 * the backend uses. cuda.h is included for types only, and the module does not link to a library of
 * NVIDIA, so it loads without a driver and reports the missing driver.
 *
 * SRT_CUDA_FUNCTIONS is the list. Macros of cuda.h map names to versions (cuMemAlloc is
 * cuMemAlloc_v2). They apply to the members of the table and to the library's symbols.
 */
#ifndef SRT_BACKENDS_CUDA_DRIVER_H
#define SRT_BACKENDS_CUDA_DRIVER_H

#include <cuda.h>

#include "device/backend.h"

#define SRT_CUDA_FUNCTIONS(F)                                                                      \
	F(cuInit)                                                                                  \
	F(cuDriverGetVersion)                                                                      \
	F(cuGetErrorName)                                                                          \
	F(cuGetErrorString)                                                                        \
	/* devices */                                                                              \
	F(cuDeviceGetCount)                                                                        \
	F(cuDeviceGet)                                                                             \
	F(cuDeviceGetName)                                                                         \
	F(cuDeviceGetUuid_v2) /* in toolkit 12 the plain name is the first version */              \
	F(cuDeviceGetPCIBusId)                                                                     \
	F(cuDeviceGetAttribute)                                                                    \
	F(cuDeviceTotalMem)                                                                        \
	/* contexts */                                                                             \
	F(cuDevicePrimaryCtxRetain)                                                                \
	F(cuDevicePrimaryCtxRelease)                                                               \
	F(cuCtxPushCurrent)                                                                        \
	F(cuCtxPopCurrent)                                                                         \
	F(cuCtxGetDevice)                                                                          \
	F(cuCtxGetStreamPriorityRange)                                                             \
	/* memory */                                                                               \
	F(cuMemGetInfo)                                                                            \
	F(cuMemAlloc)                                                                              \
	F(cuMemFree)                                                                               \
	F(cuMemHostAlloc)                                                                          \
	F(cuMemFreeHost)                                                                           \
	F(cuMemHostRegister)                                                                       \
	F(cuMemHostUnregister)                                                                     \
	F(cuMemHostGetDevicePointer)                                                               \
	/* copies */                                                                               \
	F(cuMemcpyAsync)                                                                           \
	F(cuMemcpy2DAsync)                                                                         \
	F(cuMemcpyHtoDAsync)                                                                       \
	F(cuMemcpyDtoHAsync)                                                                       \
	F(cuMemsetD8Async)                                                                         \
	/* streams and events */                                                                   \
	F(cuStreamCreateWithPriority)                                                              \
	F(cuStreamDestroy)                                                                         \
	F(cuStreamSynchronize)                                                                     \
	F(cuStreamWaitEvent)                                                                       \
	F(cuEventCreate)                                                                           \
	F(cuEventDestroy)                                                                          \
	F(cuEventRecord)                                                                           \
	F(cuEventSynchronize)                                                                      \
	F(cuEventQuery)                                                                            \
	/* kernels */                                                                              \
	F(cuModuleLoadData)                                                                        \
	F(cuModuleUnload)                                                                          \
	F(cuModuleGetFunction)                                                                     \
	F(cuFuncGetAttribute)                                                                      \
	F(cuLaunchKernel)

/* The functions, as drv->cuMemAlloc(...). */
typedef struct srt_cuda_driver {
#define SRT_CUDA_MEMBER(name) __typeof__(name) *name;
	SRT_CUDA_FUNCTIONS(SRT_CUDA_MEMBER)
#undef SRT_CUDA_MEMBER
} srt_cuda_driver_t;

/* Loads and initialises the driver once; it is never unloaded. Fails if the library is missing or
 * too old, or if its initialisation fails. Thread-safe. */
srt_status_t srt_cuda_driver(const srt_host_services_t *host, const srt_cuda_driver_t **drv);

/* Fails with "<sentence>: CUDA_ERROR_LAUNCH_FAILED (719), unspecified launch failure"; out of
 * memory or device by the code. */
srt_status_t srt_cuda_fail(const srt_host_services_t *host, const srt_cuda_driver_t *drv,
			   CUresult code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* "CUDA_ERROR_NO_DEVICE" and the driver's description of it; never NULL. */
const char *srt_cuda_code_name(const srt_cuda_driver_t *drv, CUresult code);

#endif
