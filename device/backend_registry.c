/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backends of the process: the built-in one, those loaded from modules, and those that tests
 * add. Only this file looks up a name. A name without a usable backend is an error with the reason,
 * never a silent fallback. Called by srt_device_open(), srt_context_create() and enumerate.c.
 */
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

#define MAX_ADDED 8
#define MAX_NAME 32

/* The device files of GPUs and accelerators under Linux: of Mesa, AMD and Intel, of NVIDIA, AMD's
 * compute driver, GPUs in WSL, Arm's Mali, Qualcomm's Adreno, compute accelerators. Without any, a
 * driver of OpenCL would only be loaded to learn that its devices are CPUs. */
static const char *const accelerator_files[] = {
	"/dev/dri/renderD*", "/dev/nvidiactl", "/dev/kfd",          "/dev/dxg",
	"/dev/mali*",        "/dev/kgsl-3d0",  "/dev/accel/accel*",
};

/* Names of the families, to distinguish "not installed" from "no such backend". `auto` tries them
 * in this order (the last one always works). */
static const struct {
	const char *name;
	const char *aliases;
	bool needs_file; /* auto tries it only if there is one of accelerator_files */
} families[] = {
	{ "cuda", "", false },
	{ "opencl", "xpu", true },
	{ "cpu", "", false },
};

/* Backends added at run time. This and the log are the library's only mutable global state. */
static struct {
	pthread_mutex_t lock;
	pthread_mutex_t loading; /* locked before `lock`: a module is loaded once */
	pthread_mutex_t driver;  /* held by calls that look for devices or open one */
	size_t nadded;
	struct {
		const srt_backend_t *backend;
		const char *path; /* of its module, "" = none; never freed */
	} added[MAX_ADDED];
} registry = { .lock = PTHREAD_MUTEX_INITIALIZER,
	       .loading = PTHREAD_MUTEX_INITIALIZER,
	       .driver = PTHREAD_MUTEX_INITIALIZER };

static bool matches_backend(const char *name, const char *aliases, const char *wanted)
{
	if (strcmp(name, wanted) == 0)
		return true;
	return aliases[0] && strcmp(aliases, wanted) == 0;
}

static const srt_backend_t *find_backend(const char *name)
{
	const srt_backend_t *found = NULL;

	if (matches_backend(srt_backend_cpu()->name, srt_backend_cpu()->aliases, name))
		return srt_backend_cpu();
	pthread_mutex_lock(&registry.lock);
	for (size_t i = 0; i < registry.nadded && found == NULL; i++) {
		const srt_backend_t *b = registry.added[i].backend;

		if (matches_backend(b->name, b->aliases, name))
			found = b;
	}
	pthread_mutex_unlock(&registry.lock);
	return found;
}

bool srt_backend_is_loaded(const char *name)
{
	return find_backend(name) != NULL;
}

static srt_status_t add_backend(const srt_backend_t *backend, const char *path)
{
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&registry.lock);
	if (registry.nadded < MAX_ADDED) {
		registry.added[registry.nadded].backend = backend;
		registry.added[registry.nadded++].path = path;
	} else {
		status = srt_fail(SRT_ERR_STATE, "no room for backend \"%s\": %d were added",
				  backend->name, MAX_ADDED);
	}
	pthread_mutex_unlock(&registry.lock);
	return status;
}

srt_status_t srt_backend_add(const srt_backend_t *backend)
{
	if (backend->abi != SRT_BACKEND_ABI)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"backend \"%s\" was built for version %u of the backend contract, "
				"this library has version %u; rebuild the backend",
				backend->name, backend->abi, SRT_BACKEND_ABI);
	if (find_backend(backend->name) != NULL)
		return srt_fail(SRT_ERR_STATE, "backend \"%s\" is already there", backend->name);
	return add_backend(backend, "");
}

/* The family of a name or an alias, or the name itself; "" if the name is not valid for a backend:
 * the name becomes part of a file name. */
static const char *module_name(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

	for (size_t i = 0; i < SRT_ARRAY_LEN(families); i++)
		if (matches_backend(families[i].name, families[i].aliases, name))
			return families[i].name;
	return strlen(name) < MAX_NAME && name[strspn(name, letters)] == '\0' ? name : "";
}

static bool is_family(const char *name)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(families); i++)
		if (strcmp(families[i].name, name) == 0)
			return true;
	return false;
}

/* *backend: the backend of a name, NULL if it is not installed (the last error lists the folders).
 * A module that exists but cannot be used is an error. */
static srt_status_t load_backend(const char *name, const srt_backend_t **backend)
{
	const char *module = module_name(name);
	char *path = NULL;
	srt_status_t status = SRT_OK;

	*backend = find_backend(name);
	if (*backend != NULL || !module[0])
		return SRT_OK;
	pthread_mutex_lock(&registry.loading);
	*backend = find_backend(name);
	if (*backend != NULL)
		goto unlock;
	status = srt_backend_module_find(module, &path);
	if (status == SRT_OK && path != NULL)
		status = srt_backend_module_load(module, path, backend);
	if (status == SRT_OK && path != NULL)
		status = add_backend(*backend, path);
	if (status != SRT_OK) {
		*backend = NULL;
		free(path);
	}
unlock:
	pthread_mutex_unlock(&registry.loading);
	return status;
}

bool srt_backend_is_auto(const char *name)
{
	return name == NULL || !name[0] || strcmp(name, "auto") == 0;
}

srt_status_t srt_backend_probe(const srt_backend_t *backend, int *ndevices)
{
	srt_error_text_t before;
	srt_status_t status;

	*ndevices = 0;
	srt_error_save(&before);
	srt_fail(SRT_OK, "it reports no reason"); /* for a module without one */
	pthread_mutex_lock(&registry.driver);
	status = backend->device->probe(srt_host_services(), ndevices);
	pthread_mutex_unlock(&registry.driver);
	if (status == SRT_OK && *ndevices > 0)
		srt_error_restore(&before);
	return status;
}

srt_status_t srt_backend_describe(const srt_backend_t *backend, int number,
				  srt_device_description_t *description)
{
	srt_status_t status = SRT_OK;

	*description = (srt_device_description_t)SRT_DEVICE_DESCRIPTION_INIT;
	if (backend->device->describe == NULL)
		return SRT_OK;
	pthread_mutex_lock(&registry.driver);
	status = backend->device->describe(srt_host_services(), number, description);
	pthread_mutex_unlock(&registry.driver);
	return status;
}

srt_status_t srt_backend_open(const srt_backend_t *backend, const srt_device_request_t *request,
			      void **device, srt_backend_caps_t *caps)
{
	srt_status_t status;

	pthread_mutex_lock(&registry.driver);
	status = backend->device->open(srt_host_services(), request, device, caps);
	pthread_mutex_unlock(&registry.driver);
	return status;
}

static bool has_accelerator(const srt_backend_t *backend)
{
	srt_device_description_t description;
	int ndevices;

	if (srt_backend_probe(backend, &ndevices) != SRT_OK)
		return false;
	for (int i = 0; i < ndevices; i++) {
		if (srt_backend_describe(backend, i, &description) == SRT_OK &&
		    description.accelerator)
			return true;
	}
	return false;
}

/* Whether the backend may have an accelerator, and its driver can be loaded into this process. */
static bool is_worth_loading(const char *name)
{
	const srt_probe_t *probe;

	srt_backend_probe_apart(name, &probe);
	if (probe == NULL)
		return true;
	if (probe->failed)
		srt_log(SRT_LOG_WARN, "SHARDRT_BACKEND=auto goes on without %s: %s", name,
			probe->why_none);
	for (int i = 0; i < probe->ndevices; i++)
		if (probe->devices[i].accelerator)
			return true;
	return false;
}

static bool has_accelerator_file(void)
{
	glob_t found;

	for (size_t i = 0; i < SRT_ARRAY_LEN(accelerator_files); i++) {
		if (glob(accelerator_files[i], GLOB_NOSORT, NULL, &found) == 0) {
			globfree(&found);
			return true;
		}
	}
	return false;
}

static const srt_backend_t *choose_backend(void)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(families); i++) {
		const srt_backend_t *backend;

		if (families[i].needs_file && !has_accelerator_file())
			continue;
		if (!is_worth_loading(families[i].name))
			continue;
		if (load_backend(families[i].name, &backend) != SRT_OK)
			srt_log(SRT_LOG_WARN, "SHARDRT_BACKEND=auto goes on without %s: %s",
				families[i].name, srt_error_last());
		else if (backend == srt_backend_cpu() ||
			 (backend != NULL && has_accelerator(backend)))
			return backend;
	}
	return srt_backend_cpu();
}

srt_status_t srt_backend_lookup(const char *name, const srt_backend_t **backend)
{
	const srt_backend_t *found = NULL;

	if (srt_backend_is_auto(name)) {
		srt_error_text_t before;

		srt_error_save(&before);
		*backend = choose_backend();
		srt_error_restore(&before);
		return SRT_OK;
	}
	SRT_TRY(load_backend(name, &found));
	if (found != NULL) {
		*backend = found;
		return SRT_OK;
	}
	if (is_family(module_name(name)))
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"backend \"%s\" is not installed, or not part of this build of "
				"libshardrt: %s; install it, set SHARDRT_MODULE_PATH to its "
				"folder, or set SHARDRT_BACKEND=cpu",
				name, srt_error_last());
	if (module_name(name)[0])
		return srt_fail_prefix(SRT_ERR_INVALID_ARGUMENT,
				       "there is no backend \"%s\"; SHARDRT_BACKEND is one of "
				       "auto, cpu, opencl, xpu (another name of opencl), cuda, or "
				       "a module's name, but ",
				       name);
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"\"%.100s\" cannot be the name of a backend; SHARDRT_BACKEND is one of "
			"auto, cpu, opencl, xpu (another name of opencl), cuda, or a module's name",
			name);
}

/* The i-th added backend that does not belong to a family; NULL past the last. */
static const srt_backend_t *find_added_backend(size_t i)
{
	const srt_backend_t *found = NULL;

	pthread_mutex_lock(&registry.lock);
	for (size_t k = 0; k < registry.nadded && found == NULL; k++)
		if (!is_family(registry.added[k].backend->name) && i-- == 0)
			found = registry.added[k].backend;
	pthread_mutex_unlock(&registry.lock);
	return found;
}

const char *srt_backend_name(size_t i)
{
	const size_t n = SRT_ARRAY_LEN(families);
	const srt_backend_t *added;

	if (i < n)
		return families[n - 1 - i].name;
	added = find_added_backend(i - n);
	return added != NULL ? added->name : NULL;
}

const char *srt_backend_module_path(const srt_backend_t *backend)
{
	const char *path = "";

	pthread_mutex_lock(&registry.lock);
	for (size_t i = 0; i < registry.nadded; i++)
		if (registry.added[i].backend == backend)
			path = registry.added[i].path;
	pthread_mutex_unlock(&registry.lock);
	return path;
}
