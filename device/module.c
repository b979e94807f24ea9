/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backends that are loaded on demand: "shardrt_backend_NAME.so", and the program that asks a
 * driver (probe.c), from the first of these folders that has the file:
 *
 *     1. the folders of SHARDRT_MODULE_PATH
 *     2. folders near the library's file: where `make install` installs modules, also if the tree
 *        was installed with another prefix or moved, and where a build tree has them
 *     3. $(pkglibdir), as configured
 *
 * So the library does not link to a driver's library, and a build for all devices runs without any
 * driver.
 *
 * Finds the file of a name, loads it and checks its table's ABI. Called by backend_registry.c only,
 * which stores loaded modules; a module is never unloaded.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/device.h"

/* Relative to the folder of the library, or of a program that is linked to it statically. */
static const char *const near_folders[] = {
	"libshardrt",                        /* installed: $(libdir) */
	"../" SRT_LIBDIR_NAME "/libshardrt", /* a program in $(bindir) */
	".libs",
	"../.libs",
	"../../.libs", /* a build tree: its library, its programs */
};

typedef struct module_search {
	const char *name; /* of the file */
	char *path;       /* the file, NULL until it is found */
	char *folders;    /* those without the file, for the error message */
} module_search_t;

/* Sets s->path if the folder has the file. */
static srt_status_t search_folder(module_search_t *s, const char *folder, size_t folder_len)
{
	char *file = srt_asprintf("%.*s/%s", (int)folder_len, folder, s->name);
	char *folders;

	if (file == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	/* Any other error of the file is an error when it is loaded, not a reason to search the
	 * next folder. */
	if (access(file, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR)) {
		s->path = file;
		return SRT_OK;
	}
	free(file);
	folders = srt_asprintf("%s%s%.*s", s->folders != NULL ? s->folders : "",
			       s->folders != NULL ? ", " : "", (int)folder_len, folder);
	if (folders == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	free(s->folders);
	s->folders = folders;
	return SRT_OK;
}

/* Folders separated by ':'. */
static srt_status_t search_user_folders(module_search_t *s)
{
	const char *folders = srt_config_string("SHARDRT_MODULE_PATH");

	while (*folders && s->path == NULL) {
		size_t len = strcspn(folders, ":");

		if (len)
			SRT_TRY(search_folder(s, folders, len));
		folders += len;
		folders += *folders == ':';
	}
	return SRT_OK;
}

/* The file that has this function: the shared library, or a program linked to it statically; to be
 * freed. NULL: not known. */
static char *find_own_file(void)
{
	static const char here;
	void *headers = (void *)getauxval(AT_PHDR); /* of the program */
	Dl_info own, program;

	if (!dladdr(&here, &own))
		return NULL;
	/* A program's name may be relative to a folder that is no longer the current one. */
	if (dladdr(headers, &program) && program.dli_fbase == own.dli_fbase)
		return realpath("/proc/self/exe", NULL);
	return realpath(own.dli_fname, NULL);
}

/* Whether only root and the users that can write to `file` can write to the folder. A program in
 * /tmp must not load a module that another user has put there. */
static bool is_trusted(const char *folder, const struct stat *file)
{
	struct stat st;

	if (stat(folder, &st) || !S_ISDIR(st.st_mode))
		return false;
	return (st.st_uid == file->st_uid || st.st_uid == 0) && !(st.st_mode & S_IWOTH);
}

/* `own`: the file that has this function. */
static srt_status_t search_near_folder(module_search_t *s, const char *folder,
				       const struct stat *own, bool is_first)
{
	char *real = realpath(folder, NULL);
	srt_status_t status = SRT_OK;

	if (real == NULL) {
		if (is_first) /* for the error message */
			status = search_folder(s, folder, strlen(folder));
	} else if (!is_trusted(real, own)) {
		srt_log(SRT_LOG_WARN,
			"no module is loaded from %s: its owner is another user, or all users can "
			"write to it",
			real);
	} else if (strcmp(real, SRT_PKGLIBDIR) != 0) {
		status = search_folder(s, real, strlen(real));
	}
	free(real);
	return status;
}

static srt_status_t search_near_folders(module_search_t *s)
{
	char *file = find_own_file(), *folder;
	srt_status_t status = SRT_OK;
	struct stat own;

	if (file == NULL || stat(file, &own))
		goto free_file;
	*strrchr(file, '/') = '\0';
	for (size_t i = 0; i < SRT_ARRAY_LEN(near_folders) && s->path == NULL && status == SRT_OK;
	     i++) {
		folder = srt_asprintf("%s/%s", file, near_folders[i]);
		status = folder != NULL ? search_near_folder(s, folder, &own, i == 0) :
					  SRT_ERR_OUT_OF_MEMORY;
		free(folder);
	}
free_file:
	free(file);
	return status;
}

static srt_status_t search_folders(module_search_t *s)
{
	/* A set-user-ID program must not load a file that its user names or has put near a link to
	 * the program. */
	const bool raised = getauxval(AT_SECURE) != 0;

	if (raised && srt_config_string("SHARDRT_MODULE_PATH")[0])
		srt_log(SRT_LOG_WARN,
			"SHARDRT_MODULE_PATH is ignored in a program with raised rights");
	if (!raised)
		SRT_TRY(search_user_folders(s));
	if (!raised && s->path == NULL)
		SRT_TRY(search_near_folders(s));
	if (s->path == NULL)
		SRT_TRY(search_folder(s, SRT_PKGLIBDIR, strlen(SRT_PKGLIBDIR)));
	return SRT_OK;
}

srt_status_t srt_module_file_find(const char *name, char **path)
{
	module_search_t s = { .name = name };
	srt_status_t status = search_folders(&s);

	if (status == SRT_OK && s.path == NULL)
		srt_fail(SRT_ERR_NOT_FOUND, "there is no file %s in %s", name, s.folders);
	free(s.folders);
	*path = s.path;
	return status;
}

srt_status_t srt_backend_module_find(const char *name, char **path)
{
	char file[64];

	snprintf(file, sizeof(file), "shardrt_backend_%s.so", name);
	return srt_module_file_find(file, path);
}

static srt_status_t check_table(const char *name, const char *path, const srt_backend_t *backend)
{
	if (backend->abi != SRT_BACKEND_ABI)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s was built for version %u of the backend contract, this library "
				"has version %u; install the module that came with this library",
				path, backend->abi, SRT_BACKEND_ABI);
	if (backend->kernels == NULL || strcmp(backend->kernels, srt_kernels_digest) != 0)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s was built with other kernels (%s) than this library (%s); "
				"install the module that came with this library",
				path, backend->kernels != NULL ? backend->kernels : "none",
				srt_kernels_digest);
	if (backend->name == NULL || strcmp(backend->name, name) != 0)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s holds the backend \"%s\", not \"%s\": the file was renamed",
				path, backend->name != NULL ? backend->name : "", name);
	if (backend->aliases == NULL || backend->device == NULL || backend->mem == NULL ||
	    backend->stream == NULL)
		return srt_fail(SRT_ERR_UNSUPPORTED, "%s lacks a table of the backend contract",
				path);
	return SRT_OK;
}

srt_status_t srt_backend_module_load(const char *name, const char *path,
				     const srt_backend_t **backend)
{
	srt_backend_module_fn *entry;
	const srt_backend_t *table;
	/* NOW: a missing symbol is an error here; with LAZY it would end the process later. */
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	void *symbol;

	if (handle == NULL)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s does not load: %s; install the library that is missing, or set "
				"SHARDRT_BACKEND=cpu",
				path, dlerror());
	symbol = dlsym(handle, SRT_BACKEND_MODULE_SYMBOL);
	if (symbol == NULL)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s is not a backend of libshardrt: it has no function %s", path,
				SRT_BACKEND_MODULE_SYMBOL);
	/* ISO C has no cast from an object pointer to a function pointer; POSIX allows it. */
	memcpy(&entry, &symbol, sizeof(entry));
	srt_fail(SRT_ERR_UNSUPPORTED, "it reports no reason");
	table = entry(srt_host_services(), SRT_BACKEND_ABI);
	if (table == NULL)
		return srt_fail_prefix(SRT_ERR_UNSUPPORTED, "%s refuses this library: ", path);
	SRT_TRY(check_table(name, path, table));
	srt_log(SRT_LOG_DEBUG, "backend \"%s\" was loaded from %s", name, path);
	*backend = table;
	return SRT_OK;
}
