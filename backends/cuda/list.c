/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The devices of the driver, after CUDA_VISIBLE_DEVICES, for backends/common/choose.c. Called by
 * device.c.
 */
#include <stdio.h>
#include <string.h>

#include "backends/cuda/cuda.h"

/* ---- can it be used? --------------------------------------------------------------------- */

/* Whether a device runs code for one target: "sm_90" (the same major version, this minor or a later
 * one), "sm_90a" (only this one) or "compute_90" (this one and all later; with a letter only this
 * one). */
static bool target_covers(const char *target, size_t len, int major, int minor)
{
	const char *number = memchr(target, '_', len);
	bool virtual_one = strncmp(target, "compute_", 8) == 0;
	int have = major * 10 + minor, required;
	char *end;

	if (number == NULL)
		return false;
	required = (int)strtol(number + 1, &end, 10);
	if (end < target + len && *end == 'a')
		return have == required;
	if (virtual_one && end == target + len)
		return have >= required;
	return have >= required && major == required / 10;
}

bool srt_cuda_targets_cover(const char *targets, int major, int minor)
{
	while (*targets) {
		size_t len = strcspn(targets, ",");

		if (target_covers(targets, len, major, minor))
			return true;
		targets += len;
		targets += *targets == ',';
	}
	return false;
}

static const char *why_unusable(const srt_candidate_t *c, int compute_mode, int unified)
{
	if (compute_mode == CU_COMPUTEMODE_PROHIBITED)
		return "its compute mode is \"prohibited\"";
	if (!unified)
		return "it has no unified addresses";
	if (!srt_cuda_targets_cover(SRT_CUDA_ARCH, c->major, c->minor))
		return "this build has no kernels for it, only " SRT_CUDA_ARCH
		       " (configure --with-cuda-arch)";
	return NULL;
}

/* Reads the attributes that decide whether the device can be used. */
static CUresult read_attributes(const srt_cuda_driver_t *drv, CUdevice id, srt_candidate_t *c)
{
	int compute_mode, unified;
	const struct {
		CUdevice_attribute which;
		int *value;
	} wanted[] = {
		{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &c->major },
		{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &c->minor },
		{ CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, &compute_mode },
		{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, &unified },
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		CUresult code = drv->cuDeviceGetAttribute(wanted[i].value, wanted[i].which, id);

		if (code != CUDA_SUCCESS)
			return code;
	}
	snprintf(c->detail, sizeof(c->detail), "sm_%d%d", c->major, c->minor);
	c->unusable = why_unusable(c, compute_mode, unified);
	return CUDA_SUCCESS;
}

/* ---- listing ----------------------------------------------------------------------------- */

static CUresult describe_device(const srt_cuda_driver_t *drv, int number, srt_candidate_t *c)
{
	CUdevice id;
	CUuuid uuid;
	CUresult code;

	*c = (srt_candidate_t){ .number = number, .type = SRT_CANDIDATE_GPU };
	code = drv->cuDeviceGet(&id, number);
	if (code != CUDA_SUCCESS)
		return code;
	c->id = (void *)(intptr_t)id;
	code = drv->cuDeviceGetName(c->name, sizeof(c->name), id);
	if (code != CUDA_SUCCESS)
		return code;
	/* Without these attributes the device can be chosen by number and name only. */
	if (drv->cuDeviceGetUuid_v2(&uuid, id) == CUDA_SUCCESS)
		memcpy(c->uuid, uuid.bytes, sizeof(c->uuid));
	if (drv->cuDeviceGetPCIBusId(c->bus, sizeof(c->bus), id) != CUDA_SUCCESS)
		c->bus[0] = '\0';
	return read_attributes(drv, id, c);
}

static srt_status_t list_devices(const srt_host_services_t *host, srt_candidate_t **all, int *n)
{
	const srt_cuda_driver_t *drv;
	srt_status_t status;
	int ndevices = 0;
	CUresult code;

	*n = 0;
	*all = NULL;
	if (srt_cuda_driver(host, &drv) != SRT_OK)
		return SRT_OK; /* the last error has the reason */
	code = drv->cuDeviceGetCount(&ndevices);
	if (code != CUDA_SUCCESS)
		return srt_cuda_fail(host, drv, code, "counting the CUDA devices failed");
	if (ndevices == 0) {
		host->fail(SRT_ERR_NOT_FOUND,
			   "the CUDA driver shows no device: see that nvidia-smi "
			   "lists one, and that CUDA_VISIBLE_DEVICES does not "
			   "hide it");
		return SRT_OK;
	}
	*all = host->alloc((size_t)ndevices * sizeof(**all));
	if (*all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int i = 0; i < ndevices; i++) {
		code = describe_device(drv, i, &(*all)[i]);
		if (code != CUDA_SUCCESS) {
			status = srt_cuda_fail(host, drv, code, "looking at CUDA device %d failed",
					       i);
			host->free(*all);
			*all = NULL;
			return status;
		}
	}
	*n = ndevices;
	return SRT_OK;
}

const srt_candidates_t srt_cuda_candidates = {
	.what = "CUDA",
	.selectors = "a number, a UUID (GPU-..., MIG-...), a PCI bus or part of a name",
	.list = list_devices,
};
