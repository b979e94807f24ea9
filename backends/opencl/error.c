/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of OpenCL's status codes, and errors with them: the failed operation, then the code. */
#include <stdarg.h>
#include <stdio.h>

#include "backends/opencl/opencl.h"

#define SENTENCE_NBYTES 768

static const struct {
	cl_int code;
	const char *name;
} codes[] = {
#define CODE(name)                                                                                 \
	{                                                                                          \
		name, #name                                                                        \
	}
	CODE(CL_SUCCESS),
	CODE(CL_DEVICE_NOT_FOUND),
	CODE(CL_DEVICE_NOT_AVAILABLE),
	CODE(CL_COMPILER_NOT_AVAILABLE),
	CODE(CL_MEM_OBJECT_ALLOCATION_FAILURE),
	CODE(CL_OUT_OF_RESOURCES),
	CODE(CL_OUT_OF_HOST_MEMORY),
	CODE(CL_PROFILING_INFO_NOT_AVAILABLE),
	CODE(CL_MEM_COPY_OVERLAP),
	CODE(CL_IMAGE_FORMAT_MISMATCH),
	CODE(CL_IMAGE_FORMAT_NOT_SUPPORTED),
	CODE(CL_BUILD_PROGRAM_FAILURE),
	CODE(CL_MAP_FAILURE),
	CODE(CL_MISALIGNED_SUB_BUFFER_OFFSET),
	CODE(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
	CODE(CL_COMPILE_PROGRAM_FAILURE),
	CODE(CL_LINKER_NOT_AVAILABLE),
	CODE(CL_LINK_PROGRAM_FAILURE),
	CODE(CL_DEVICE_PARTITION_FAILED),
	CODE(CL_KERNEL_ARG_INFO_NOT_AVAILABLE),
	CODE(CL_INVALID_VALUE),
	CODE(CL_INVALID_DEVICE_TYPE),
	CODE(CL_INVALID_PLATFORM),
	CODE(CL_INVALID_DEVICE),
	CODE(CL_INVALID_CONTEXT),
	CODE(CL_INVALID_QUEUE_PROPERTIES),
	CODE(CL_INVALID_COMMAND_QUEUE),
	CODE(CL_INVALID_HOST_PTR),
	CODE(CL_INVALID_MEM_OBJECT),
	CODE(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR),
	CODE(CL_INVALID_IMAGE_SIZE),
	CODE(CL_INVALID_SAMPLER),
	CODE(CL_INVALID_BINARY),
	CODE(CL_INVALID_BUILD_OPTIONS),
	CODE(CL_INVALID_PROGRAM),
	CODE(CL_INVALID_PROGRAM_EXECUTABLE),
	CODE(CL_INVALID_KERNEL_NAME),
	CODE(CL_INVALID_KERNEL_DEFINITION),
	CODE(CL_INVALID_KERNEL),
	CODE(CL_INVALID_ARG_INDEX),
	CODE(CL_INVALID_ARG_VALUE),
	CODE(CL_INVALID_ARG_SIZE),
	CODE(CL_INVALID_KERNEL_ARGS),
	CODE(CL_INVALID_WORK_DIMENSION),
	CODE(CL_INVALID_WORK_GROUP_SIZE),
	CODE(CL_INVALID_WORK_ITEM_SIZE),
	CODE(CL_INVALID_GLOBAL_OFFSET),
	CODE(CL_INVALID_EVENT_WAIT_LIST),
	CODE(CL_INVALID_EVENT),
	CODE(CL_INVALID_OPERATION),
	CODE(CL_INVALID_GL_OBJECT),
	CODE(CL_INVALID_BUFFER_SIZE),
	CODE(CL_INVALID_MIP_LEVEL),
	CODE(CL_INVALID_GLOBAL_WORK_SIZE),
	CODE(CL_INVALID_PROPERTY),
	CODE(CL_INVALID_IMAGE_DESCRIPTOR),
	CODE(CL_INVALID_COMPILER_OPTIONS),
	CODE(CL_INVALID_LINKER_OPTIONS),
	CODE(CL_INVALID_DEVICE_PARTITION_COUNT),
#undef CODE
	{ -1001, "CL_PLATFORM_NOT_FOUND_KHR" },
	{ -9999, "an illegal access of a kernel (NVIDIA)" },
};

const char *srt_ocl_code_name(cl_int code)
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (codes[i].code == code)
			return codes[i].name;
	return "an unknown code";
}

static srt_status_t status_of(cl_int code)
{
	switch (code) {
	case CL_MEM_OBJECT_ALLOCATION_FAILURE:
	case CL_OUT_OF_HOST_MEMORY:
	case CL_INVALID_BUFFER_SIZE:
		return SRT_ERR_OUT_OF_MEMORY;
	default:
		return SRT_ERR_DEVICE;
	}
}

srt_status_t srt_ocl_fail(const srt_host_services_t *host, cl_int code, const char *format, ...)
{
	char sentence[SENTENCE_NBYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	return host->fail(status_of(code), "%s: %s (%d)", sentence, srt_ocl_code_name(code), code);
}
