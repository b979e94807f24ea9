/* SPDX-License-Identifier: BSD-3-Clause */
/* shardrt-info --flight: the files that are named, or that are in folders (tools/info/flight.h). */
#include "tools/info/flight.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/common.h"
#include "tools/info/info.h"

/* The longest file. 512 ranks and 100 communicators need 4 MB. */
#define MAX_NBYTES ((size_t)64 << 20)
#define FAILURE 1

typedef struct files {
	flight_file_t *files;
	size_t n, room;
} files_t;

/* The bytes of a file, which the caller frees; NULL after an error message. */
static char *read_bytes(const char *path, size_t *nbytes)
{
	FILE *in = fopen(path, "rb");
	char *bytes = NULL;
	struct stat info;

	*nbytes = 0;
	if (in == NULL || fstat(fileno(in), &info) != 0) {
		tool_error("%s: %s", path, strerror(errno));
	} else if (!S_ISREG(info.st_mode) || (size_t)info.st_size > MAX_NBYTES) {
		tool_error("%s: is not a regular file of at most 64 MiB", path);
	} else {
		bytes = malloc((size_t)info.st_size + 1);
		if (bytes != NULL)
			*nbytes = fread(bytes, 1, (size_t)info.st_size, in);
		if (bytes == NULL || ferror(in)) {
			tool_error("%s: %s", path, strerror(bytes == NULL ? ENOMEM : errno));
			free(bytes);
			bytes = NULL;
		}
	}
	if (in != NULL)
		fclose(in);
	return bytes;
}

/* @return 0, or FAILURE after an error message. */
static int add_file(files_t *all, const char *path)
{
	char why[256], *bytes;
	flight_file_t file = { .rank = 0 };
	size_t nbytes;
	int status = FAILURE;

	if (all->n == all->room) {
		const size_t room = all->room > 0 ? 2 * all->room : 16;
		flight_file_t *more = realloc(all->files, room * sizeof(*more));

		if (more == NULL) {
			tool_error("out of memory");
			return FAILURE;
		}
		all->files = more;
		all->room = room;
	}
	bytes = read_bytes(path, &nbytes);
	if (bytes == NULL)
		return FAILURE;
	snprintf(file.path, sizeof(file.path), "%s", path);
	if (flight_parse(bytes, nbytes, &file, why) == 0) {
		all->files[all->n++] = file;
		status = 0;
	} else {
		tool_error("%s: %s", path, why);
	}
	free(bytes);
	return status;
}

static bool is_rank_file(const char *name)
{
	const size_t n = strlen(name);

	return n > 10 && strncmp(name, "rank-", 5) == 0 && strcmp(name + n - 5, ".json") == 0;
}

/* @return 0, or FAILURE after an error message. */
static int add_folder(files_t *all, const char *path, DIR *folder)
{
	const size_t before = all->n;
	int status = 0;

	for (struct dirent *e; status == 0 && (e = readdir(folder)) != NULL;) {
		char name[4096];

		if (!is_rank_file(e->d_name))
			continue;
		if (snprintf(name, sizeof(name), "%s/%s", path, e->d_name) >= (int)sizeof(name)) {
			tool_error("%s: the name is too long", path);
			return FAILURE;
		}
		status = add_file(all, name);
	}
	if (status == 0 && all->n == before) {
		tool_error("%s: has no files rank-N.json: no rank has written one", path);
		status = FAILURE;
	}
	return status;
}

int info_flight(char *const *paths, int npaths)
{
	files_t all = { .files = NULL };
	int status = 0;
	char why[256];

	for (int i = 0; i < npaths && status == 0; i++) {
		DIR *folder = opendir(paths[i]);

		status = folder != NULL ? add_folder(&all, paths[i], folder) :
					  add_file(&all, paths[i]);
		if (folder != NULL)
			closedir(folder);
	}
	if (status == 0 && flight_report(all.files, all.n, stdout, why) != 0) {
		tool_error("%s", why);
		status = FAILURE;
	}
	for (size_t i = 0; i < all.n; i++)
		flight_clear(&all.files[i]);
	free(all.files);
	return status;
}
