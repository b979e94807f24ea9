/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The devices of all platforms, for backends/common/choose.c. Called by device.c.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backends/opencl/opencl.h"

#define MAX_PLATFORMS 32
#define MAX_DEVICES 64 /* of a platform */

static srt_candidate_type_t type_of(cl_device_id id)
{
	cl_device_type type = 0;

	clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof(type), &type, NULL);
	if (type & CL_DEVICE_TYPE_GPU)
		return SRT_CANDIDATE_GPU;
	if (type & CL_DEVICE_TYPE_ACCELERATOR)
		return SRT_CANDIDATE_ACCELERATOR;
	return type & CL_DEVICE_TYPE_CPU ? SRT_CANDIDATE_CPU : SRT_CANDIDATE_OTHER;
}

/* Whether the extension is in the device's list, in which blanks separate names. */
static bool has_extension(cl_device_id id, const char *name)
{
	char list[7168] = "";
	const size_t n = strlen(name);

	clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, sizeof(list) - 1, list, NULL);
	for (const char *at = list; (at = strstr(at, name)) != NULL; at += n) {
		if ((at == list || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' '))
			return true;
	}
	return false;
}

const char *srt_ocl_why_unusable(cl_device_id id)
{
	cl_bool available = CL_FALSE, compiler = CL_FALSE, little = CL_FALSE;
	cl_device_fp_config fp64 = 0;
	char version[SRT_OCL_NAME_NBYTES] = "";
	int major = 0, minor = 0;

	clGetDeviceInfo(id, CL_DEVICE_AVAILABLE, sizeof(available), &available, NULL);
	clGetDeviceInfo(id, CL_DEVICE_COMPILER_AVAILABLE, sizeof(compiler), &compiler, NULL);
	clGetDeviceInfo(id, CL_DEVICE_ENDIAN_LITTLE, sizeof(little), &little, NULL);
	clGetDeviceInfo(id, CL_DEVICE_VERSION, sizeof(version) - 1, version, NULL);
	clGetDeviceInfo(id, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof(fp64), &fp64, NULL);
	if (!available)
		return "not available";
	if (!compiler)
		return "it has no compiler";
	if (!little)
		return "it is big-endian";
	/* "OpenCL 1.2 TEXT" */
	if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2 || major * 10 + minor < 12)
		return "older than OpenCL 1.2";
	if (fp64 == 0)
		return "it has no double precision, which sums over all ranks need";
	if (!has_extension(id, "cl_khr_int64_base_atomics"))
		return "it has no 64-bit atomics, which sums over all ranks need";
	return NULL;
}

/* Device d of platform p. */
static void describe_device(srt_candidate_t *c, cl_platform_id platform, int p, cl_device_id id,
			    int d)
{
	*c = (srt_candidate_t){ .platform = platform, .id = id, .type = type_of(id) };
	snprintf(c->bus, sizeof(c->bus), "%d:%d", p, d);
	clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof(c->name) - 1, c->name, NULL);
	clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(c->detail) - 1, c->detail, NULL);
	c->unusable = srt_ocl_why_unusable(id);
}

static srt_status_t no_platform(const srt_host_services_t *host, cl_int code)
{
	return host->fail(SRT_ERR_NOT_FOUND,
			  "the OpenCL loader finds no driver (%s): install the one of the device, "
			  "and see that its .icd file is in /etc/OpenCL/vendors or in the folder "
			  "that OCL_ICD_VENDORS names",
			  srt_ocl_code_name(code));
}

static srt_status_t list_devices(const srt_host_services_t *host, srt_candidate_t **all, int *n)
{
	cl_platform_id platforms[MAX_PLATFORMS];
	cl_device_id ids[MAX_DEVICES];
	cl_uint nplatforms = 0, ndevices;
	int nusable = 0;
	cl_int code;

	srt_ocl_environment(host);
	*n = 0;
	*all = NULL;
	code = clGetPlatformIDs(MAX_PLATFORMS, platforms, &nplatforms);
	if (code != CL_SUCCESS || nplatforms == 0) {
		no_platform(host, code);
		return SRT_OK;
	}
	nplatforms = nplatforms < MAX_PLATFORMS ? nplatforms : MAX_PLATFORMS;
	*all = host->alloc(nplatforms * MAX_DEVICES * sizeof(**all));
	if (*all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (cl_uint p = 0; p < nplatforms; p++) {
		ndevices = 0;
		code = clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MAX_DEVICES, ids,
				      &ndevices);
		if (code != CL_SUCCESS)
			continue;
		for (cl_uint d = 0; d < ndevices && d < MAX_DEVICES; d++)
			describe_device(&(*all)[(*n)++], platforms[p], (int)p, ids[d], (int)d);
	}
	for (int i = 0; i < *n; i++) /* as shardrt-info lists them */
		(*all)[i].number = (*all)[i].unusable != NULL ? -1 : nusable++;
	if (*n == 0) {
		host->free(*all);
		*all = NULL;
		host->fail(SRT_ERR_NOT_FOUND, "%u OpenCL platforms are there, without any device",
			   (unsigned)nplatforms);
	}
	return SRT_OK;
}

const srt_candidates_t srt_ocl_candidates = {
	.what = "OpenCL",
	.selectors = "PLATFORM:DEVICE, a number, part of a name, or one of gpu, accelerator, cpu",
	.list = list_devices,
};
