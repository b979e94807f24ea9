/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory that ranks of the node map: CUDA IPC. The owner makes a handle of an allocation; in
 * another process the driver makes an address of it, on the same device or on one that reaches it
 * (NVLink, PCIe). The driver may refuse either (a container, MIG, devices that do not reach each
 * other), so the collectives try it when a communicator is made (collectives/peer_trial.c). Called
 * by memory.c and through its table.
 *
 * A handle stands for all of a block of the driver's. Small allocations would share one, and with
 * it what others have in it; so those that peers see are rounded up to whole blocks.
 */
#include <string.h>

#include "backends/cuda/cuda.h"

#define BLOCK_NBYTES ((size_t)2 << 20)

_Static_assert(sizeof(CUipcMemHandle) <= sizeof(((srt_mem_handle_t *)0)->opaque),
	       "a handle of the driver fits into ours");

size_t srt_cuda_peer_nbytes(size_t nbytes)
{
	if (nbytes > SIZE_MAX - BLOCK_NBYTES)
		return nbytes;
	return (nbytes + BLOCK_NBYTES - 1) / BLOCK_NBYTES * BLOCK_NBYTES;
}

srt_status_t srt_cuda_export(void *dev, void *memory, srt_mem_handle_t *handle)
{
	srt_cuda_device_t *device = dev;
	const srt_cuda_mem_t *mem = memory;
	srt_cuda_scope_t scope = srt_cuda_enter(device);
	srt_status_t status = SRT_OK;
	CUipcMemHandle ipc;
	CUdeviceptr base = 0;
	size_t nbytes = 0;
	CUresult code;

	memset(&ipc, 0, sizeof(ipc));
	code = device->drv->cuMemGetAddressRange(&base, &nbytes, mem->address);
	if (code == CUDA_SUCCESS)
		code = device->drv->cuIpcGetMemHandle(&ipc, base);
	if (code != CUDA_SUCCESS) {
		status = srt_cuda_fail(device->host, device->drv, code,
				       "CUDA device \"%s\" makes no IPC handle of its memory",
				       device->name);
	} else {
		*handle = (srt_mem_handle_t){ .fd = -1,
					      .nbytes = mem->nbytes,
					      .offset = mem->address - base };
		memcpy(handle->opaque, &ipc, sizeof(ipc));
	}
	srt_cuda_leave(scope);
	return status;
}

srt_status_t srt_cuda_import(void *dev, const srt_mem_handle_t *handle, void **out)
{
	srt_cuda_device_t *device = dev;
	srt_cuda_mem_t *mem = device->host->alloc(sizeof(*mem));
	srt_cuda_scope_t scope;
	srt_status_t status = SRT_OK;
	CUipcMemHandle ipc;
	CUdeviceptr base = 0;
	CUresult code;

	if (!mem)
		return SRT_ERR_OUT_OF_MEMORY;
	memcpy(&ipc, handle->opaque, sizeof(ipc));
	scope = srt_cuda_enter(device);
	/* Opened twice, it has one address, and the driver counts. */
	code = device->drv->cuIpcOpenMemHandle(&base, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	if (code != CUDA_SUCCESS)
		status = srt_cuda_fail(device->host, device->drv, code,
				       "CUDA device \"%s\" does not map the %llu bytes of an IPC "
				       "handle",
				       device->name, (unsigned long long)handle->nbytes);
	srt_cuda_leave(scope);
	if (status != SRT_OK) {
		device->host->free(mem);
		return status;
	}
	*mem = (srt_cuda_mem_t){ .address = base + handle->offset,
				 .nbytes = (size_t)handle->nbytes,
				 .imported = base };
	*out = mem;
	return SRT_OK;
}

/* What still reads it, after a failure, must be over; of a killed owner the driver may say anything
 * here. */
void srt_cuda_import_close(srt_cuda_device_t *device, const srt_cuda_mem_t *mem)
{
	srt_cuda_streams_finish(device);
	device->drv->cuIpcCloseMemHandle(mem->imported);
}
