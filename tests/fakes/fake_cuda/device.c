/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver, its devices and their primary contexts. When the last reference of a context is given
 * up, what it still has is a leak: the driver would free it silently.
 */
#include <stdio.h>
#include <string.h>

#include "tests/fakes/fake_cuda/fake.h"

CUresult cuInit(unsigned flags)
{
	fake_entry_t call = { .name = "cuInit" };
	CUresult status = fake_enter(&call, FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS && flags)
		status = CUDA_ERROR_INVALID_VALUE;
	if (status == CUDA_SUCCESS && !fake.ndevices)
		status = CUDA_ERROR_NO_DEVICE;
	if (status == CUDA_SUCCESS)
		fake.initialised = true;
	return fake_leave(&call, status);
}

CUresult cuDriverGetVersion(int *version)
{
	fake_entry_t call = { .name = "cuDriverGetVersion" };
	CUresult status = fake_enter(&call, FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS)
		*version = fake.driver_version;
	return fake_leave(&call, status);
}

typedef struct error {
	CUresult code;
	const char *name, *text;
} error_t;

#define ERROR(code, text)                                                                          \
	{                                                                                          \
		code, #code, text                                                                  \
	}
static const error_t errors[] = {
	ERROR(CUDA_SUCCESS, "no error"),
	ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
	ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
	ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
	ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
	ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
	ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
	ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
	ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU,
	      "no kernel image is available for execution on the device"),
	ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
	ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
	ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
	ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
	ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
	ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
	      "part or all of the requested memory range is already mapped"),
	ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
	ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
	ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
	ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

/* Any thread may ask, in a host function too. */
static CUresult error_of(CUresult code, const error_t **error)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == code) {
			*error = &errors[i];
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult code, const char **name)
{
	const error_t *error;
	CUresult status = error_of(code, &error);

	*name = status == CUDA_SUCCESS ? error->name : NULL;
	return status;
}

CUresult cuGetErrorString(CUresult code, const char **text)
{
	const error_t *error;
	CUresult status = error_of(code, &error);

	*text = status == CUDA_SUCCESS ? error->text : NULL;
	return status;
}

/* ---- devices ------------------------------------------------------------------------------- */
/* Enters a call about a device. */
static CUresult enter_device(fake_entry_t *call, CUdevice device)
{
	CUresult status = fake_enter(call, FAKE_INIT | FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS && (device < 0 || device >= fake.ndevices))
		status = CUDA_ERROR_INVALID_DEVICE;
	return status;
}

CUresult cuDeviceGetCount(int *n)
{
	fake_entry_t call = { .name = "cuDeviceGetCount" };
	CUresult status = fake_enter(&call, FAKE_INIT | FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS)
		*n = fake.ndevices;
	return fake_leave(&call, status);
}

CUresult cuDeviceGet(CUdevice *out, int number)
{
	fake_entry_t call = { .name = "cuDeviceGet" };
	CUresult status = enter_device(&call, number);

	if (status == CUDA_SUCCESS)
		*out = number;
	return fake_leave(&call, status);
}

CUresult cuDeviceGetName(char *name, int nbytes, CUdevice device)
{
	fake_entry_t call = { .name = "cuDeviceGetName" };
	CUresult status = enter_device(&call, device);

	if (status == CUDA_SUCCESS)
		snprintf(name, (size_t)nbytes, "fake CUDA device%s", fake.mig ? " MIG 1g.2gb" : "");
	return fake_leave(&call, status);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	fake_entry_t call = { .name = "cuDeviceGetUuid_v2" };
	CUresult status = enter_device(&call, device);

	if (status == CUDA_SUCCESS) {
		memset(uuid, 0xfa, sizeof(*uuid));
		uuid->bytes[15] = (char)device;
	}
	return fake_leave(&call, status);
}

CUresult cuDeviceGetPCIBusId(char *id, int nbytes, CUdevice device)
{
	fake_entry_t call = { .name = "cuDeviceGetPCIBusId" };
	CUresult status = enter_device(&call, device);

	if (status == CUDA_SUCCESS)
		snprintf(id, (size_t)nbytes, "0000:%02X:00.0",
			 fake.mig ? 1u : (unsigned)device + 1);
	return fake_leave(&call, status);
}

/* The attributes of an H100, as far as anything here goes by them. */
static int attribute_of(CUdevice_attribute attribute)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return fake.capability / 10;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		return fake.capability % 10;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
		return 1024;
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
		return 64;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
		return 0x7fffffff;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
		return 65535;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
		return 48 * 1024;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		return FAKE_MAX_SHARED;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		return 32;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return fake.nunits;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		return 2048;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
		return 50 << 20;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
		return 1980000;
	case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
		return 2619000;
	case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
		return 5120;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
		return CU_COMPUTEMODE_DEFAULT;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
		return 1;
	default:
		return 0;
	}
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	fake_entry_t call = { .name = "cuDeviceGetAttribute" };
	CUresult status = enter_device(&call, device);

	if (status == CUDA_SUCCESS)
		*value = attribute_of(attribute);
	return fake_leave(&call, status);
}

CUresult cuDeviceTotalMem(size_t *nbytes, CUdevice device)
{
	fake_entry_t call = { .name = "cuDeviceTotalMem" };
	CUresult status = enter_device(&call, device);

	if (status == CUDA_SUCCESS)
		*nbytes = fake.mem_nbytes;
	return fake_leave(&call, status);
}

/* ---- contexts ------------------------------------------------------------------------------ */
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	fake_entry_t call = { .name = "cuDevicePrimaryCtxRetain" };
	CUresult status = enter_device(&call, device);

	if (status == CUDA_SUCCESS) {
		*out = &fake.ctx[device];
		(*out)->device = device;
		(*out)->refs++;
	}
	return fake_leave(&call, status);
}

/* Frees an object that its owner has not. */
static void end_object(fake_object_t *o)
{
	void *p = o;

	switch (o->type) {
	case FAKE_STREAM:
		fake_stream_end(p);
		break;
	case FAKE_EVENT:
		fake_event_free(p);
		break;
	case FAKE_MODULE:
		fake_module_free(p);
		break;
	}
}

/* Frees all of a context, as the driver does, and says what that was. */
static void context_end(CUcontext ctx)
{
	static const char *const names[] = { "streams", "events", "modules" };
	long n[3] = { 0 }, all = 0, memory;
	char text[256] = "";
	fake_object_t *o;

	fake_wait_context(ctx);
	fake_check_guards();
	while ((o = fake_object_any(ctx)) != NULL) {
		n[o->type]++;
		end_object(o);
	}
	memory = all = fake_memory_drop(ctx);
	for (int i = 0; i < 3; i++) {
		size_t used = strlen(text);

		all += n[i];
		if (n[i])
			snprintf(text + used, sizeof(text) - used, ", %ld %s", n[i], names[i]);
	}
	ctx->sticky = CUDA_SUCCESS;
	fake.leaks += all;
	if (all)
		fake_complain("leak: when the context of device %d ended it still had %ld "
			      "allocations%s",
			      ctx->device, memory, text);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	fake_entry_t call = { .name = "cuDevicePrimaryCtxRelease" };
	CUresult status = fake_enter(&call, FAKE_INIT);

	if (status == CUDA_SUCCESS && (device < 0 || device >= fake.ndevices))
		status = CUDA_ERROR_INVALID_DEVICE;
	if (status == CUDA_SUCCESS && !fake.ctx[device].refs) {
		fake_complain("cuDevicePrimaryCtxRelease: the context of device %d is not retained",
			      device);
		status = CUDA_ERROR_INVALID_CONTEXT;
	}
	if (status == CUDA_SUCCESS && fake.ctx[device].refs == 1)
		context_end(&fake.ctx[device]);
	if (status == CUDA_SUCCESS)
		fake.ctx[device].refs--;
	return fake_leave(&call, status);
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	fake_entry_t call = { .name = "cuCtxPushCurrent" };
	CUresult status = fake_enter(&call, FAKE_INIT | FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS && (ctx < fake.ctx || ctx >= fake.ctx + FAKE_MAX_DEVICES)) {
		fake_complain("cuCtxPushCurrent: %p is no context", (void *)ctx);
		status = CUDA_ERROR_INVALID_CONTEXT;
	}
	if (status == CUDA_SUCCESS && !ctx->refs)
		status = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (status == CUDA_SUCCESS && fake_thread.depth == FAKE_MAX_STACK) {
		fake_complain("cuCtxPushCurrent: %d contexts were pushed and not popped",
			      FAKE_MAX_STACK);
		status = CUDA_ERROR_INVALID_CONTEXT;
	}
	if (status == CUDA_SUCCESS)
		fake_thread.stack[fake_thread.depth++] = ctx;
	return fake_leave(&call, status);
}

CUresult cuCtxPopCurrent(CUcontext *out)
{
	fake_entry_t call = { .name = "cuCtxPopCurrent" };
	CUresult status = fake_enter(&call, FAKE_INIT);

	if (status == CUDA_SUCCESS && !fake_thread.depth)
		status = CUDA_ERROR_INVALID_CONTEXT;
	if (status == CUDA_SUCCESS) {
		fake_thread.depth--;
		if (out != NULL)
			*out = fake_thread.stack[fake_thread.depth];
	}
	return fake_leave(&call, status);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	fake_entry_t call = { .name = "cuCtxGetDevice" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS)
		*device = fake_current()->device;
	return fake_leave(&call, status);
}

/* Lower numbers come first, as in CUDA. */
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	fake_entry_t call = { .name = "cuCtxGetStreamPriorityRange" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS) {
		*least = 0;
		*greatest = -5;
	}
	return fake_leave(&call, status);
}
