/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * <shardrt/native.h> with the types of OpenCL. It includes CL/cl.h; define CL_TARGET_OPENCL_VERSION
 * before, if at all. A program that includes it links to the OpenCL loader; libshardrt does not.
 */
#ifndef SHARDRT_OPENCL_H
#define SHARDRT_OPENCL_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include <shardrt/native.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The program's own context and a device of it, for srt_context_options_t.native. */
static inline srt_native_device_t srt_opencl_native_device(cl_context context, cl_device_id device)
{
	srt_native_device_t native = { sizeof(native), "opencl", context, device };

	return native;
}

/** The context and the device that a device of the library uses; the errors of
 * srt_device_native(). */
static inline srt_status_t srt_opencl_get_device(srt_device_t *device, cl_context *context,
						 cl_device_id *id)
{
	srt_native_device_t native = { sizeof(native), NULL, NULL, NULL };
	srt_status_t status = srt_device_native(device, "opencl", &native);

	if (status == SRT_OK) {
		*context = (cl_context)native.context;
		*id = (cl_device_id)native.device;
	}
	return status;
}

/** The in-order queue of a stream; rules and errors of srt_stream_native(). */
static inline srt_status_t srt_opencl_get_queue(srt_stream_t *stream, cl_command_queue *queue)
{
	void *native;
	srt_status_t status = srt_stream_native(stream, "opencl", &native);

	if (status == SRT_OK)
		*queue = (cl_command_queue)native;
	return status;
}

/** The cl_mem of a buffer, to which the offset of a view applies; rules and errors of
 * srt_buffer_native(). */
static inline srt_status_t srt_opencl_get_mem(srt_buffer_t *buffer, cl_mem *mem)
{
	void *native;
	srt_status_t status = srt_buffer_native(buffer, "opencl", &native);

	if (status == SRT_OK)
		*mem = (cl_mem)native;
	return status;
}

/** A cl_mem of the program as a buffer; rules and errors of srt_buffer_wrap_native(). */
static inline srt_status_t srt_opencl_wrap(srt_device_t *device, cl_mem mem, size_t nbytes,
					   const char *name, srt_buffer_t **buffer)
{
	return srt_buffer_wrap_native(device, "opencl", mem, nbytes, name, buffer);
}

#ifdef __cplusplus
}
#endif
#endif
