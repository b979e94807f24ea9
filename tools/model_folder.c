/* SPDX-License-Identifier: BSD-3-Clause */
/* See model_folder.h. */
#include "tools/model_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <shardrt/shardrt.h>

#include <shardrt/models/families.h>
#include "models/model.h"

/* Tokens of a sequence of a model that has more positions. */
#define MOST_TOKENS 1024

void tool_find_config(const char *path, char *config)
{
	struct stat st;
	const int is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);

	snprintf(config, TOOL_CONFIG_NBYTES, "%s%s", path, is_folder ? "/config.json" : "");
}

int64_t tool_find_length(int64_t wanted, int64_t positions)
{
	return wanted ? wanted : positions < MOST_TOKENS ? positions : MOST_TOKENS;
}

/* Writes a file and syncs it. @return 0, or errno. */
static int write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	int error;

	if (f == NULL)
		return errno;
	error = fputs(text, f) < 0 || fflush(f) != 0 || fsync(fileno(f)) != 0 ? errno : 0;
	if (fclose(f) != 0 && !error)
		error = errno;
	return error;
}

srt_status_t tool_write_config(const char *folder, const char *text, srt_dtype_t dtype)
{
	char path[TOOL_CONFIG_NBYTES], temporary[TOOL_CONFIG_NBYTES];
	srt_status_t status;
	char *changed;
	int error;

	snprintf(path, sizeof(path), "%s/config.json", folder);
	snprintf(temporary, sizeof(temporary), "%s/.config.json.tmp", folder);
	status = srt_family_set_dtype(text, dtype, &changed);
	if (status != SRT_OK)
		return status;
	error = write_text(temporary, changed);
	free(changed);
	if (!error && rename(temporary, path) != 0)
		error = errno;
	if (!error)
		return SRT_OK;
	unlink(temporary);
	return srt_model_fail(SRT_ERR_IO, "cannot write %s: %s", path, strerror(error));
}

srt_status_t tool_copy_model_files(const char *from, const char *to)
{
	static const char *const names[] = {
		"generation_config.json",
		"tokenizer.json",
		"tokenizer_config.json",
		"special_tokens_map.json",
		"added_tokens.json",
		"vocab.json",
		"merges.txt",
		"tokenizer.model",
		"chat_template.jinja",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char source[TOOL_CONFIG_NBYTES], target[TOOL_CONFIG_NBYTES];
		srt_status_t status;

		snprintf(source, sizeof(source), "%s/%s", from, names[i]);
		snprintf(target, sizeof(target), "%s/%s", to, names[i]);
		status = srt_file_copy(source, target);
		if (status != SRT_OK && status != SRT_ERR_NOT_FOUND)
			return status;
	}
	return SRT_OK;
}
