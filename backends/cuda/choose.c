/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which device a rank takes. The driver's devices (CUDA_VISIBLE_DEVICES has been at them) are
 * listed and numbered; SHARDRT_DEVICE narrows the list:
 *
 *   ""            all that can be used
 *   "2"           number 2 of the driver's
 *   "GPU-8932..." the one of this UUID, or of the only UUID that begins so; or MIG-
 *   "0000:3b:00.0"  the one on this PCI bus
 *   other text    the devices with this in their name, upper or lower case
 *
 * The ranks of the node are spread over what is left. Called by device.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/cuda/cuda.h"

#define LIST_NBYTES 640

/* ---- can it be used? --------------------------------------------------------------------- */

/* One target, "sm_90" (that major version, this minor or a later one), "sm_90a" (this one alone)
 * or "compute_90" (this one and all later ones; with a letter this one alone). */
static bool target_covers(const char *target, size_t len, int major, int minor)
{
	const char *number = memchr(target, '_', len);
	bool virtual_one = strncmp(target, "compute_", 8) == 0;
	int have = major * 10 + minor, want;
	char *end;

	if (!number)
		return false;
	want = (int)strtol(number + 1, &end, 10);
	if (end < target + len && *end == 'a')
		return have == want;
	if (virtual_one && end == target + len)
		return have >= want;
	return have >= want && major == want / 10;
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

static const char *why_unusable(const srt_cuda_candidate_t *c, int compute_mode, int unified)
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

/* What decides whether the device can be used. */
static CUresult look_at(const srt_cuda_driver_t *drv, srt_cuda_candidate_t *c)
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
		CUresult code = drv->cuDeviceGetAttribute(wanted[i].value, wanted[i].which, c->id);

		if (code != CUDA_SUCCESS)
			return code;
	}
	c->unusable = why_unusable(c, compute_mode, unified);
	return CUDA_SUCCESS;
}

/* ---- listing ----------------------------------------------------------------------------- */

/* "8932f937-d72c-4106-c12f-20bd9faed9f6", as nvidia-smi -L writes it behind GPU- or MIG-. */
static void write_uuid(const unsigned char b[16], char *text, size_t text_nbytes)
{
	snprintf(text, text_nbytes,
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
		 b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
		 b[15]);
}

static CUresult describe(const srt_cuda_driver_t *drv, int number, srt_cuda_candidate_t *c)
{
	CUuuid uuid;
	CUresult code;

	*c = (srt_cuda_candidate_t){ .number = number };
	code = drv->cuDeviceGet(&c->id, number);
	if (code != CUDA_SUCCESS)
		return code;
	code = drv->cuDeviceGetName(c->name, sizeof(c->name), c->id);
	if (code != CUDA_SUCCESS)
		return code;
	/* Without these it can be meant by its number alone. */
	if (drv->cuDeviceGetUuid(&uuid, c->id) == CUDA_SUCCESS)
		memcpy(c->uuid, uuid.bytes, sizeof(c->uuid));
	if (drv->cuDeviceGetPCIBusId(c->bus, sizeof(c->bus), c->id) != CUDA_SUCCESS)
		c->bus[0] = '\0';
	return look_at(drv, c);
}

srt_status_t srt_cuda_list(const srt_host_services_t *host, srt_cuda_candidate_t **all, int *n)
{
	const srt_cuda_driver_t *drv;
	srt_status_t status;
	int ndevices = 0;
	CUresult code;

	*n = 0;
	*all = NULL;
	if (srt_cuda_driver(host, &drv) != SRT_OK)
		return SRT_OK; /* the last error says why there is none */
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
	if (!*all)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int i = 0; i < ndevices; i++) {
		code = describe(drv, i, &(*all)[i]);
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

/* "0 \"name\" (0000:3b:00.0, sm_90), ..." for messages. */
static void list_text(const srt_cuda_candidate_t *all, int n, char *text, size_t text_nbytes)
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < n && used < text_nbytes; i++)
		used += (size_t)snprintf(text + used, text_nbytes - used,
					 "%s%d \"%.60s\" (%s, sm_%d%d%s%s)", i ? ", " : "",
					 all[i].number, all[i].name, all[i].bus, all[i].major,
					 all[i].minor, all[i].unusable ? ": " : "",
					 all[i].unusable ? all[i].unusable : "");
}

/* ---- choosing ---------------------------------------------------------------------------- */

static bool contains(const char *text, const char *part)
{
	size_t n = strlen(part);

	for (; *text; text++)
		if (strncasecmp(text, part, n) == 0)
			return true;
	return false;
}

/* Of a GPU, or of a slice of one (MIG), which the driver gives a UUID of its own. */
static bool is_uuid(const char *selector)
{
	return strncasecmp(selector, "GPU-", 4) == 0 || strncasecmp(selector, "MIG-", 4) == 0;
}

static bool is_meant(const srt_cuda_candidate_t *c, const char *selector)
{
	int number, end = 0;
	char uuid[40];

	if (!selector[0])
		return !c->unusable;
	if (sscanf(selector, "%d%n", &number, &end) == 1 && selector[end] == '\0')
		return c->number == number;
	if (is_uuid(selector)) {
		write_uuid(c->uuid, uuid, sizeof(uuid));
		return strncasecmp(uuid, selector + 4, strlen(selector + 4)) == 0;
	}
	return strcasecmp(c->bus, selector) == 0 || contains(c->name, selector);
}

/* Moves what is meant to the front, in order; returns how many. */
static int narrow(srt_cuda_candidate_t *all, int n, const char *selector)
{
	int m = 0;

	for (int i = 0; i < n; i++)
		if (is_meant(&all[i], selector))
			all[m++] = all[i];
	return m;
}

/* What is meant by part of a name or a UUID must be of one name: else it is a guess. */
static bool is_ambiguous(const srt_cuda_candidate_t *all, int m, const char *selector)
{
	if (is_uuid(selector))
		return m > 1;
	for (int i = 1; selector[0] && i < m; i++)
		if (strcmp(all[0].name, all[i].name) != 0)
			return true;
	return false;
}

static srt_status_t choose_from(const srt_host_services_t *host,
				const srt_device_request_t *request, srt_cuda_candidate_t *all,
				int n, srt_cuda_candidate_t *chosen)
{
	const char *selector = request->selector ? request->selector : "";
	char text[LIST_NBYTES];
	int m;

	list_text(all, n, text, sizeof(text));
	m = narrow(all, n, selector);
	if (m == 0 && !selector[0])
		return host->fail(SRT_ERR_UNSUPPORTED, "no CUDA device can be used; there are: %s",
				  text);
	if (m == 0)
		return host->fail(
			SRT_ERR_NOT_FOUND,
			"no CUDA device is meant by SHARDRT_DEVICE=%.60s; it takes a "
			"number, a UUID (GPU-..., MIG-...), a PCI bus or part of a name; there "
			"are: %s",
			selector, text);
	if (is_ambiguous(all, m, selector))
		return host->fail(SRT_ERR_INVALID_ARGUMENT,
				  "SHARDRT_DEVICE=%.60s may mean several CUDA devices; there are: "
				  "%s",
				  selector, text);
	*chosen = all[request->local_rank % m];
	if (chosen->unusable)
		return host->fail(SRT_ERR_UNSUPPORTED,
				  "CUDA device \"%s\" cannot be used (%s); there are: %s",
				  chosen->name, chosen->unusable, text);
	return SRT_OK;
}

srt_status_t srt_cuda_choose(const srt_host_services_t *host, const srt_device_request_t *request,
			     srt_cuda_candidate_t *chosen)
{
	srt_cuda_candidate_t *all;
	srt_status_t status;
	int n;

	status = srt_cuda_list(host, &all, &n);
	if (status != SRT_OK)
		return status;
	if (n == 0)
		return SRT_ERR_NOT_FOUND;
	status = choose_from(host, request, all, n, chosen);
	host->free(all);
	return status;
}
