/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backends that are loaded on demand: "shardrt_backend_NAME.so", looked for in the folders of
 * SHARDRT_MODULE_PATH, then in the library's own folder. So the library itself is linked to no
 * vendor's library, and a build for all devices runs where there is none.
 *
 * A name -> the file -> the backend's table, its ABI checked. Called by backend_registry.c only,
 * which keeps what was loaded; a module is never unloaded.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "device/device.h"

/* Folders separated by ':'. A program that runs with more rights than its user must not load what
 * its user names. */
static const char *user_folders(void)
{
	const char *folders = srt_config_string("SHARDRT_MODULE_PATH");

	if (!folders[0] || !getauxval(AT_SECURE))
		return folders;
	srt_log(SRT_LOG_WARN, "SHARDRT_MODULE_PATH is ignored in a program with raised rights");
	return "";
}

/* *path = FOLDER/shardrt_backend_NAME.so if there is such a file, else NULL. */
static srt_status_t find_in(const char *folder, size_t folder_len, const char *name, char **path)
{
	char *file = srt_asprintf("%.*s/shardrt_backend_%s.so", (int)folder_len, folder, name);

	*path = NULL;
	if (!file)
		return SRT_ERR_OUT_OF_MEMORY;
	/* Whatever else is wrong with it is an error when it is loaded, not a reason to look in the
	 * next folder. */
	if (access(file, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
		*path = file;
	else
		free(file);
	return SRT_OK;
}

srt_status_t srt_module_find(const char *name, char **path)
{
	const char *folders = user_folders();

	*path = NULL;
	for (const char *f = folders; *f && !*path;) {
		size_t len = strcspn(f, ":");

		if (len)
			SRT_TRY(find_in(f, len, name, path));
		f += len;
		f += *f == ':';
	}
	if (!*path)
		SRT_TRY(find_in(SRT_PKGLIBDIR, strlen(SRT_PKGLIBDIR), name, path));
	if (!*path)
		srt_fail(SRT_ERR_NOT_FOUND, "there is no file shardrt_backend_%s.so in %s%s%s",
			 name, folders, folders[0] ? " or " : "", SRT_PKGLIBDIR);
	return SRT_OK;
}

static srt_status_t check_table(const char *name, const char *path, const srt_backend_t *backend)
{
	if (backend->abi != SRT_BACKEND_ABI)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s was built for version %u of the backend contract, this library "
				"has version %u; install the module that came with this library",
				path, backend->abi, SRT_BACKEND_ABI);
	if (!backend->kernels || strcmp(backend->kernels, srt_kernels_digest) != 0)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s was built with other kernels (%s) than this library (%s); "
				"install the module that came with this library",
				path, backend->kernels ? backend->kernels : "none",
				srt_kernels_digest);
	if (!backend->name || strcmp(backend->name, name) != 0)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s holds the backend \"%s\", not \"%s\": the file was renamed",
				path, backend->name ? backend->name : "", name);
	if (!backend->aliases || !backend->device || !backend->mem || !backend->stream)
		return srt_fail(SRT_ERR_UNSUPPORTED, "%s lacks a table of the backend contract",
				path);
	return SRT_OK;
}

srt_status_t srt_module_load(const char *name, const char *path, const srt_backend_t **backend)
{
	srt_backend_module_fn *entry;
	const srt_backend_t *table;
	/* NOW: a missing name is an error here; later it would end the process. */
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	void *symbol;

	if (!handle)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s does not load: %s; install the library that is missing, or set "
				"SHARDRT_BACKEND=cpu",
				path, dlerror());
	symbol = dlsym(handle, SRT_BACKEND_MODULE_SYMBOL);
	if (!symbol)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s is no backend of libshardrt: it has no function %s", path,
				SRT_BACKEND_MODULE_SYMBOL);
	/* ISO C has no cast from an object to a function; POSIX says they are of one size. */
	memcpy(&entry, &symbol, sizeof(entry));
	srt_fail(SRT_ERR_UNSUPPORTED, "it does not say why");
	table = entry(srt_host_services(), SRT_BACKEND_ABI);
	if (!table)
		return srt_fail_prefix(SRT_ERR_UNSUPPORTED, "%s refuses this library: ", path);
	SRT_TRY(check_table(name, path, table));
	srt_log(SRT_LOG_DEBUG, "backend \"%s\" was loaded from %s", name, path);
	*backend = table;
	return SRT_OK;
}
