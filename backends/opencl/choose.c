/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which device a rank takes. All devices of all platforms are listed and numbered; SHARDRT_DEVICE
 * narrows the list:
 *
 *   ""          the GPUs; if there is none the accelerators; else the CPUs
 *   "2"         number 2 of the usable ones
 *   "1:0"       platform 1, device 0 of it
 *   "gpu" "accelerator" "cpu"   the devices of this type
 *   other text  the devices with this in their name or their platform's, upper or lower case
 *
 * What is left must be of one name or come from a choice by type; the ranks of the node are
 * spread over it.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backends/opencl/opencl.h"

#define MAX_PLATFORMS 32
#define MAX_DEVICES 64 /* of a platform */
#define LIST_NBYTES 640

static const struct {
	cl_device_type type;
	const char *name;
} types[] = {
	{ CL_DEVICE_TYPE_GPU, "gpu" },
	{ CL_DEVICE_TYPE_ACCELERATOR, "accelerator" },
	{ CL_DEVICE_TYPE_CPU, "cpu" },
};
#define NTYPES (sizeof(types) / sizeof(types[0]))

static const char *type_name(cl_device_type type)
{
	for (size_t i = 0; i < NTYPES; i++)
		if (type & types[i].type)
			return types[i].name;
	return "other";
}

/* ---- listing --------------------------------------------------------------------------- */

static const char *why_unusable(cl_device_id id)
{
	cl_bool available = CL_FALSE, compiler = CL_FALSE, little = CL_FALSE;
	char version[SRT_OCL_NAME_NBYTES] = "";
	int major = 0, minor = 0;

	clGetDeviceInfo(id, CL_DEVICE_AVAILABLE, sizeof(available), &available, NULL);
	clGetDeviceInfo(id, CL_DEVICE_COMPILER_AVAILABLE, sizeof(compiler), &compiler, NULL);
	clGetDeviceInfo(id, CL_DEVICE_ENDIAN_LITTLE, sizeof(little), &little, NULL);
	clGetDeviceInfo(id, CL_DEVICE_VERSION, sizeof(version) - 1, version, NULL);
	if (!available)
		return "not available";
	if (!compiler)
		return "it has no compiler";
	if (!little)
		return "it is big-endian";
	/* "OpenCL 1.2 vendor's words" */
	if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2 || major * 10 + minor < 12)
		return "older than OpenCL 1.2";
	return NULL;
}

static void describe(srt_ocl_candidate_t *c, cl_platform_id platform, int p, cl_device_id id, int d)
{
	*c = (srt_ocl_candidate_t){
		.platform = platform, .id = id, .platform_number = p, .device_number = d
	};
	clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof(c->type), &c->type, NULL);
	clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof(c->name) - 1, c->name, NULL);
	clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(c->platform_name) - 1,
			  c->platform_name, NULL);
	c->unusable = why_unusable(id);
}

static srt_status_t no_platform(const srt_host_services_t *host, cl_int code)
{
	return host->fail(SRT_ERR_NOT_FOUND,
			  "the OpenCL loader finds no driver (%s): install the one of the device, "
			  "and see that its .icd file is in /etc/OpenCL/vendors or in the folder "
			  "that OCL_ICD_VENDORS names",
			  srt_ocl_code_name(code));
}

srt_status_t srt_ocl_list(const srt_host_services_t *host, srt_ocl_candidate_t **all, int *n)
{
	cl_platform_id platforms[MAX_PLATFORMS];
	cl_device_id ids[MAX_DEVICES];
	cl_uint nplatforms = 0, ndevices;
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
	if (!*all)
		return SRT_ERR_OUT_OF_MEMORY;
	for (cl_uint p = 0; p < nplatforms; p++) {
		ndevices = 0;
		code = clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MAX_DEVICES, ids,
				      &ndevices);
		if (code != CL_SUCCESS)
			continue;
		for (cl_uint d = 0; d < ndevices && d < MAX_DEVICES; d++)
			describe(&(*all)[(*n)++], platforms[p], (int)p, ids[d], (int)d);
	}
	if (*n == 0) {
		host->free(*all);
		*all = NULL;
		host->fail(SRT_ERR_NOT_FOUND, "%u OpenCL platforms are there, without any device",
			   (unsigned)nplatforms);
	}
	return SRT_OK;
}

/* "0:0 \"name\" (gpu of platform); ..." for messages. */
static void list_text(const srt_ocl_candidate_t *all, int n, char *text, size_t text_nbytes)
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < n && used < text_nbytes; i++) {
		const srt_ocl_candidate_t *c = &all[i];

		used += (size_t)snprintf(text + used, text_nbytes - used,
					 "%s%d:%d \"%.60s\" (%s, %.40s%s%s)", i ? ", " : "",
					 c->platform_number, c->device_number, c->name,
					 type_name(c->type), c->platform_name,
					 c->unusable ? ": " : "", c->unusable ? c->unusable : "");
	}
}

bool srt_ocl_is_accelerator(const srt_ocl_candidate_t *c)
{
	return (c->type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR)) != 0;
}

/* ---- choosing -------------------------------------------------------------------------- */

static bool contains(const char *text, const char *part)
{
	size_t n = strlen(part);

	for (; *text; text++)
		if (strncasecmp(text, part, n) == 0)
			return true;
	return false;
}

/* What a selector says. */
typedef struct wish {
	enum { BY_TYPE, BY_NUMBER, BY_PLACE, BY_NAME } by;
	cl_device_type type;
	int number, platform;
	const char *name;
} wish_t;

static cl_device_type type_of_word(const char *word)
{
	for (size_t i = 0; i < NTYPES; i++)
		if (strcasecmp(word, types[i].name) == 0)
			return types[i].type;
	return 0;
}

static cl_device_type best_type(const srt_ocl_candidate_t *all, int n)
{
	for (size_t t = 0; t < NTYPES; t++)
		for (int i = 0; i < n; i++)
			if (!all[i].unusable && (all[i].type & types[t].type))
				return types[t].type;
	return 0;
}

static wish_t parse(const srt_ocl_candidate_t *all, int n, const char *selector)
{
	wish_t wish = { .name = selector };
	int end = 0;

	wish.type = selector[0] ? type_of_word(selector) : best_type(all, n);
	if (wish.type || !selector[0])
		wish.by = BY_TYPE;
	else if (sscanf(selector, "%d:%d%n", &wish.platform, &wish.number, &end) == 2 &&
		 selector[end] == '\0')
		wish.by = BY_PLACE;
	else if (sscanf(selector, "%d%n", &wish.number, &end) == 1 && selector[end] == '\0')
		wish.by = BY_NUMBER;
	else
		wish.by = BY_NAME;
	return wish;
}

/* `number`: of c among the usable ones. */
static bool is_meant(const wish_t *wish, const srt_ocl_candidate_t *c, int number)
{
	switch (wish->by) {
	case BY_TYPE:
		return (c->type & wish->type) && !c->unusable;
	case BY_NUMBER:
		return number == wish->number && !c->unusable;
	case BY_PLACE:
		return c->platform_number == wish->platform && c->device_number == wish->number;
	case BY_NAME:
		return contains(c->name, wish->name) || contains(c->platform_name, wish->name);
	}
	return false;
}

/* Moves what is meant to the front, in order; returns how many. */
static int narrow(srt_ocl_candidate_t *all, int n, const wish_t *wish, bool accelerator)
{
	int m = 0, number = 0;

	for (int i = 0; i < n; i++) {
		const srt_ocl_candidate_t c = all[i];
		bool meant =
			is_meant(wish, &c, number) && (!accelerator || srt_ocl_is_accelerator(&c));

		number += !c.unusable;
		if (!meant)
			continue;
		all[i] = all[m];
		all[m++] = c;
	}
	return m;
}

static srt_status_t choose_from(const srt_host_services_t *host,
				const srt_device_request_t *request, srt_ocl_candidate_t *all,
				int n, srt_ocl_candidate_t *chosen)
{
	const char *selector = request->selector ? request->selector : "";
	wish_t wish = parse(all, n, selector);
	char text[LIST_NBYTES];
	int m;

	list_text(all, n, text, sizeof(text));
	m = narrow(all, n, &wish, request->accelerator);
	if (m == 0)
		return host->fail(SRT_ERR_NOT_FOUND,
				  "no OpenCL device is meant by SHARDRT_DEVICE=%.60s; it takes "
				  "PLATFORM:DEVICE, a number, part of a name, or one of gpu, "
				  "accelerator, cpu; there are: %s",
				  selector, text);
	for (int i = 1; wish.by == BY_NAME && i < m; i++)
		if (strcmp(all[0].name, all[i].name) != 0)
			return host->fail(SRT_ERR_INVALID_ARGUMENT,
					  "SHARDRT_DEVICE=%.60s may mean several OpenCL devices; "
					  "there are: %s",
					  selector, text);
	*chosen = all[request->local_rank % m];
	if (chosen->unusable)
		return host->fail(SRT_ERR_UNSUPPORTED,
				  "OpenCL device \"%s\" cannot be used (%s); there are: %s",
				  chosen->name, chosen->unusable, text);
	return SRT_OK;
}

srt_status_t srt_ocl_choose(const srt_host_services_t *host, const srt_device_request_t *request,
			    srt_ocl_candidate_t *chosen)
{
	srt_ocl_candidate_t *all;
	srt_status_t status;
	int n;

	status = srt_ocl_list(host, &all, &n);
	if (status != SRT_OK)
		return status;
	if (n == 0)
		return SRT_ERR_NOT_FOUND;
	status = choose_from(host, request, all, n, chosen);
	host->free(all);
	return status;
}
