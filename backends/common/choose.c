/* SPDX-License-Identifier: BSD-3-Clause */
/* See choose.h. */
#include "backends/common/choose.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fpenv.h"

#define LIST_NBYTES 640

static const char *const type_names[] = {
	[SRT_CANDIDATE_GPU] = "gpu",
	[SRT_CANDIDATE_ACCELERATOR] = "accelerator",
	[SRT_CANDIDATE_CPU] = "cpu",
	[SRT_CANDIDATE_OTHER] = "other",
};

/* ---- listing ----------------------------------------------------------------------------- */

static srt_status_t list_devices(const srt_candidates_t *candidates,
				 const srt_host_services_t *host, srt_candidate_t **all, int *n)
{
	/* A driver's threads inherit the environment of the thread that first calls it. */
	srt_fpenv_t env = srt_fpenv_enter();
	srt_status_t status = candidates->list(host, all, n);

	srt_fpenv_leave(env);
	return status;
}

srt_status_t srt_candidates_probe(const srt_candidates_t *candidates,
				  const srt_host_services_t *host, int *ndevices)
{
	srt_candidate_t *all;
	srt_status_t status;
	int n;

	*ndevices = 0;
	status = list_devices(candidates, host, &all, &n);
	if (status != SRT_OK)
		return status;
	for (int i = 0; i < n; i++)
		*ndevices += all[i].unusable == NULL;
	if (n > 0 && *ndevices == 0)
		host->fail(SRT_ERR_NOT_FOUND, "%s device \"%s\" (%s) cannot be used: %s",
			   candidates->what, all[0].name, all[0].detail, all[0].unusable);
	host->free(all);
	return SRT_OK;
}

static bool is_accelerator(const srt_candidate_t *c)
{
	return c->type == SRT_CANDIDATE_GPU || c->type == SRT_CANDIDATE_ACCELERATOR;
}

srt_status_t srt_candidates_describe(const srt_candidates_t *candidates,
				     const srt_host_services_t *host, int number,
				     srt_device_description_t *description)
{
	srt_candidate_t *all;
	srt_status_t status;
	int n;

	status = list_devices(candidates, host, &all, &n);
	if (status != SRT_OK)
		return status;
	for (int i = 0; i < n; i++) {
		if (all[i].unusable != NULL || number-- != 0)
			continue;
		snprintf(description->name, sizeof(description->name), "%s", all[i].name);
		description->accelerator = is_accelerator(&all[i]);
	}
	host->free(all);
	return SRT_OK;
}

/* For messages: "0 \"name\" (0000:3b:00.0, gpu, sm_90), ..." */
static void write_list(const srt_candidate_t *all, int n, char *text, size_t text_nbytes)
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < n && used < text_nbytes; i++) {
		const srt_candidate_t *c = &all[i];
		char number[16] = "-";

		if (c->number >= 0)
			snprintf(number, sizeof(number), "%d", c->number);
		used += (size_t)snprintf(text + used, text_nbytes - used,
					 "%s%s \"%.60s\" (%s, %s, %.40s%s%s)", i ? ", " : "",
					 number, c->name, c->bus, type_names[c->type], c->detail,
					 c->unusable != NULL ? ": " : "",
					 c->unusable != NULL ? c->unusable : "");
	}
}

/* ---- choosing ---------------------------------------------------------------------------- */

/* SRT_CANDIDATE_OTHER if the word is not a type. */
static srt_candidate_type_t type_of_word(const char *word)
{
	int t = 0;

	while (t < SRT_CANDIDATE_OTHER && strcasecmp(word, type_names[t]) != 0)
		t++;
	return (srt_candidate_type_t)t;
}

static srt_candidate_type_t best_type(const srt_candidate_t *all, int n)
{
	srt_candidate_type_t best = SRT_CANDIDATE_OTHER;

	for (int i = 0; i < n; i++)
		if (all[i].unusable == NULL && all[i].type < best)
			best = all[i].type;
	return best;
}

static bool is_number(const char *selector)
{
	return selector[0] && selector[strspn(selector, "0123456789")] == '\0';
}

/* The UUID of a GPU, or of a slice of a GPU (MIG). */
static bool is_uuid(const char *selector)
{
	return strncasecmp(selector, "GPU-", 4) == 0 || strncasecmp(selector, "MIG-", 4) == 0;
}

/* A UUID as in nvidia-smi -L after GPU- or MIG-: "8932f937-d72c-4106-c12f-20bd9faed9f6". */
static bool has_uuid(const srt_candidate_t *c, const char *begin)
{
	char text[40];
	size_t used = 0;

	for (int i = 0; i < 16; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%02x",
					 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
					 c->uuid[i]);
	return strncasecmp(text, begin, strlen(begin)) == 0;
}

/* nvidia-smi writes a PCI domain with 8 digits, the driver with 4. */
static bool has_bus(const srt_candidate_t *c, const char *bus)
{
	return c->bus[0] && strcasecmp(c->bus + strspn(c->bus, "0"), bus + strspn(bus, "0")) == 0;
}

static bool contains_text(const char *text, const char *part)
{
	size_t n = strlen(part);

	for (; *text; text++)
		if (strncasecmp(text, part, n) == 0)
			return true;
	return false;
}

/* `type` is the type that the selector names, or SRT_CANDIDATE_OTHER. */
static bool is_meant(const srt_candidate_t *c, const char *selector, srt_candidate_type_t type)
{
	if (type != SRT_CANDIDATE_OTHER)
		return c->type == type && c->unusable == NULL;
	if (is_number(selector))
		return c->number >= 0 && c->number == strtol(selector, NULL, 10);
	if (is_uuid(selector))
		return has_uuid(c, selector + 4);
	return selector[0] && (has_bus(c, selector) || contains_text(c->name, selector) ||
			       contains_text(c->detail, selector));
}

static bool is_ambiguous(const srt_candidate_t *all, int m, const char *selector)
{
	if (is_uuid(selector))
		return m > 1;
	for (int i = 1; i < m; i++)
		if (strcmp(all[0].name, all[i].name) != 0)
			return true;
	return false;
}

static srt_status_t choose_candidate(const srt_candidates_t *candidates,
				     const srt_host_services_t *host,
				     const srt_device_request_t *request, srt_candidate_t *all,
				     int n, srt_candidate_t *chosen)
{
	const char *selector = request->selector != NULL ? request->selector : "";
	srt_candidate_type_t type = selector[0] ? type_of_word(selector) : best_type(all, n);
	char text[LIST_NBYTES];
	int m = 0;

	write_list(all, n, text, sizeof(text));
	/* Moves the matching devices to the front, in order. */
	for (int i = 0; i < n; i++)
		if (is_meant(&all[i], selector, type) &&
		    (!request->accelerator || is_accelerator(&all[i])))
			all[m++] = all[i];
	if (m == 0 && !selector[0])
		return host->fail(SRT_ERR_UNSUPPORTED, "no %s device can be used; there are: %s",
				  candidates->what, text);
	if (m == 0)
		return host->fail(SRT_ERR_NOT_FOUND,
				  "SHARDRT_DEVICE=%.60s matches no %s device; it takes %s; there "
				  "are: %s",
				  selector, candidates->what, candidates->selectors, text);
	if (type == SRT_CANDIDATE_OTHER && is_ambiguous(all, m, selector))
		return host->fail(SRT_ERR_INVALID_ARGUMENT,
				  "SHARDRT_DEVICE=%.60s may mean several %s devices; there are: "
				  "%s",
				  selector, candidates->what, text);
	*chosen = all[request->local_rank % m];
	if (chosen->unusable != NULL)
		return host->fail(SRT_ERR_UNSUPPORTED,
				  "%s device \"%s\" cannot be used (%s); there are: %s",
				  candidates->what, chosen->name, chosen->unusable, text);
	return SRT_OK;
}

srt_status_t srt_candidates_choose(const srt_candidates_t *candidates,
				   const srt_host_services_t *host,
				   const srt_device_request_t *request, srt_candidate_t *chosen)
{
	srt_candidate_t *all;
	srt_status_t status;
	int n;

	status = list_devices(candidates, host, &all, &n);
	if (status != SRT_OK)
		return status;
	if (n == 0)
		return SRT_ERR_NOT_FOUND;
	status = choose_candidate(candidates, host, request, all, n, chosen);
	host->free(all);
	return status;
}
