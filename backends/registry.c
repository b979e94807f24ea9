/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backends that this process knows: the built-in ones and those added at run time.
 * A name is looked up here and nowhere else; a name that cannot be served is an error that says
 * why, never a silent fallback. Called by srt_device_open() and by tests that add a backend.
 */
#include <pthread.h>
#include <string.h>

#include "backends/core.h"

#define MAX_ADDED 8

/* Names of the families, so that "not in this build" and "no such backend" are told apart. */
static const struct {
	const char *name;
	const char *aliases;
} families[] = {
	{ "cpu", "" },
	{ "opencl", "xpu" },
	{ "cuda", "" },
};

/* Backends added at run time; the library's one piece of changing global state beside the log. */
static struct {
	pthread_mutex_t lock;
	size_t nadded;
	const srt_backend_t *added[MAX_ADDED];
} registry = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool backend_is(const char *name, const char *aliases, const char *wanted)
{
	if (strcmp(name, wanted) == 0)
		return true;
	return aliases[0] && strcmp(aliases, wanted) == 0;
}

static const srt_backend_t *registry_find(const char *name)
{
	const srt_backend_t *found = NULL;

	if (backend_is(srt_backend_cpu()->name, srt_backend_cpu()->aliases, name))
		return srt_backend_cpu();
	pthread_mutex_lock(&registry.lock);
	for (size_t i = 0; i < registry.nadded && !found; i++)
		if (backend_is(registry.added[i]->name, registry.added[i]->aliases, name))
			found = registry.added[i];
	pthread_mutex_unlock(&registry.lock);
	return found;
}

srt_status_t srt_backend_lookup(const char *name, const srt_backend_t **backend)
{
	const srt_backend_t *found;

	/* The only built-in family needs no search of devices. */
	if (!name || !name[0] || strcmp(name, "auto") == 0)
		name = "cpu";
	found = registry_find(name);
	if (found) {
		*backend = found;
		return SRT_OK;
	}
	for (size_t i = 0; i < SRT_ARRAY_LEN(families); i++)
		if (backend_is(families[i].name, families[i].aliases, name))
			return srt_fail(SRT_ERR_UNSUPPORTED,
					"backend \"%s\" is not part of this build of libshardrt, "
					"which has: cpu; set SHARDRT_BACKEND=cpu, or install a "
					"build with %s",
					name, families[i].name);
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"there is no backend \"%s\"; SHARDRT_BACKEND is one of auto, cpu, opencl, "
			"xpu (another name of opencl), cuda",
			name);
}

srt_status_t srt_backend_add(const srt_backend_t *backend)
{
	srt_status_t status = SRT_OK;

	if (backend->abi != SRT_BACKEND_ABI)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"backend \"%s\" was built for version %u of the backend contract, "
				"this library has version %u; rebuild the backend",
				backend->name, backend->abi, SRT_BACKEND_ABI);
	if (registry_find(backend->name))
		return srt_fail(SRT_ERR_STATE, "backend \"%s\" is already there", backend->name);
	pthread_mutex_lock(&registry.lock);
	if (registry.nadded < MAX_ADDED)
		registry.added[registry.nadded++] = backend;
	else
		status = srt_fail(SRT_ERR_STATE, "no room for backend \"%s\": %d were added",
				  backend->name, MAX_ADDED);
	pthread_mutex_unlock(&registry.lock);
	return status;
}
