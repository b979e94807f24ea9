/* SPDX-License-Identifier: BSD-3-Clause */
/* See checkpoint_path.h. */
#include "tools/checkpoint_path.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <shardrt/checkpoint.h>

#include "tools/common.h"

__attribute__((format(printf, 2, 3))) static int fail(tool_found_t *found, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(found->why, sizeof(found->why), format, ap);
	va_end(ap);
	tool_make_printable(found->why); /* it may have bytes of a file */
	return -1;
}

static int has_file(const char *folder, const char *name)
{
	char path[4096];

	return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

int tool_has_manifest(const char *folder)
{
	return has_file(folder, "manifest.json");
}

int tool_has_model(const char *folder)
{
	return has_file(folder, "model.safetensors") ||
	       has_file(folder, "model.safetensors.index.json");
}

/* What a folder has instead of checkpoints, or how to name what is meant. */
static void advise(const char *folder, char *text, size_t ntext)
{
	static const struct {
		const char *name, *advice;
	} files[] = {
		{ "pytorch_model.bin", "save its tensors as a safetensors file" },
		{ "pytorch_model.bin.index.json", "save its tensors as safetensors files" },
		{ "config.json", "without weights it is for shardrt-train --init-random" },
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (has_file(folder, files[i].name)) {
			snprintf(text, ntext, "it has %s: %s", files[i].name, files[i].advice);
			return;
		}
	snprintf(text, ntext,
		 "name a file of parameters, a checkpoint or a folder in which one "
		 "was saved");
}

static int find_latest(const char *folder, tool_found_t *found)
{
	char advice[160];
	const char *name;
	char shown[256];
	srt_status_t status = srt_checkpoint_latest(folder, found->path, sizeof(found->path));

	if (status == SRT_ERR_NOT_FOUND || status == SRT_ERR_UNSUPPORTED) {
		advise(folder, advice, sizeof(advice));
		return fail(found, "%s is no checkpoint (it has no manifest.json)%s: %s; %s",
			    folder,
			    status == SRT_ERR_NOT_FOUND ? ", and no complete checkpoint is in it" :
							  "",
			    srt_error_last(), advice);
	}
	if (status == SRT_ERR_FORMAT)
		return fail(found, "%s; name one of the checkpoints in %s", srt_error_last(),
			    folder);
	if (status != SRT_OK)
		return fail(found, "%s", srt_error_last());
	name = strrchr(found->path, '/') + 1;
	snprintf(shown, sizeof(shown), "%s", name);
	tool_make_printable(shown);
	if (strcmp(shown, name) != 0)
		return fail(found, "the name of the latest checkpoint in %s has control characters",
			    folder);
	found->is_latest = 1;
	return 0;
}

int tool_find_checkpoint(const char *path, tool_found_t *found)
{
	struct stat st;
	size_t n = strlen(path);
	char *folder;
	int status;

	memset(found, 0, sizeof(*found));
	if (n >= sizeof(found->path))
		return fail(found, "the path of a file or checkpoint has more than %zu bytes",
			    sizeof(found->path) - 1);
	memcpy(found->path, path, n + 1);
	if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode) || tool_has_manifest(path) ||
	    tool_has_model(path))
		return 0;
	while (n > 1 && path[n - 1] == '/')
		n--;
	folder = strndup(path, n);
	if (folder == NULL)
		return fail(found, "no memory for the path of a folder");
	status = find_latest(folder, found);
	free(folder);
	return status;
}

void tool_report_found(const char *path, const tool_found_t *found)
{
	if (found->is_latest)
		tool_error("the latest checkpoint in %s is %s", path, found->path);
}
