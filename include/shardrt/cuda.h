/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * <shardrt/native.h> with the types of the CUDA driver. It includes cuda.h of the toolkit. A
 * program that includes it calls the driver (-lcuda); libshardrt does not link to it. A CUstream is
 * a cudaStream_t of the CUDA runtime, and a CUdeviceptr is a pointer of it.
 */
#ifndef SHARDRT_CUDA_H
#define SHARDRT_CUDA_H

#include <cuda.h>
#include <stdint.h>

#include <shardrt/native.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The program's own context, for srt_context_options_t.native. */
static inline srt_native_device_t srt_cuda_native_device(CUcontext context)
{
	srt_native_device_t native = { sizeof(native), "cuda", context, NULL };

	return native;
}

/** The context and the device that a device of the library uses; the errors of
 * srt_device_native(). */
static inline srt_status_t srt_cuda_get_device(srt_device_t *device, CUcontext *context,
					       CUdevice *id)
{
	srt_native_device_t native = { sizeof(native), NULL, NULL, NULL };
	srt_status_t status = srt_device_native(device, "cuda", &native);

	if (status == SRT_OK) {
		*context = (CUcontext)native.context;
		*id = (CUdevice)(intptr_t)native.device;
	}
	return status;
}

/** The driver's stream of a stream; rules and errors of srt_stream_native(). */
static inline srt_status_t srt_cuda_get_stream(srt_stream_t *stream, CUstream *queue)
{
	void *native;
	srt_status_t status = srt_stream_native(stream, "cuda", &native);

	if (status == SRT_OK)
		*queue = (CUstream)native;
	return status;
}

/** The device address of a buffer, to which the offset of a view is added; rules and errors of
 * srt_buffer_native(). */
static inline srt_status_t srt_cuda_get_address(srt_buffer_t *buffer, CUdeviceptr *address)
{
	void *native;
	srt_status_t status = srt_buffer_native(buffer, "cuda", &native);

	if (status == SRT_OK)
		*address = (CUdeviceptr)(uintptr_t)native;
	return status;
}

/** Device memory of the program as a buffer; rules and errors of srt_buffer_wrap_native(). */
static inline srt_status_t srt_cuda_wrap(srt_device_t *device, CUdeviceptr address, size_t nbytes,
					 const char *name, srt_buffer_t **buffer)
{
	return srt_buffer_wrap_native(device, "cuda", (void *)(uintptr_t)address, nbytes, name,
				      buffer);
}

#ifdef __cplusplus
}
#endif
#endif
