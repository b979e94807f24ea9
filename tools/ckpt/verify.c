/* SPDX-License-Identifier: BSD-3-Clause */
/* shardrt-ckpt verify: all bytes of files, checkpoints and folders of checkpoints; see ckpt.h. */
#include "tools/ckpt/ckpt.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/checkpoint_path.h"
#include "tools/common.h"

static void print_defect(const char *sentence, void *arg)
{
	(void)arg;
	puts(sentence);
}

/* The worst of two exit statuses. */
static int worst(int a, int b)
{
	return a > b ? a : b;
}

/* A file that is malformed has a defect, one that cannot be opened is another trouble. */
static int fail(srt_status_t status)
{
	if (status != SRT_ERR_FORMAT)
		return ckpt_fail();
	print_defect(srt_error_last(), NULL);
	return CKPT_DIFFERS;
}

static int verify_checkpoint(const char *path)
{
	srt_checkpoint_verified_t v = SRT_CHECKPOINT_VERIFIED_INIT;
	srt_status_t status = srt_checkpoint_verify(path, print_defect, NULL, &v);

	if (status != SRT_OK && status != SRT_ERR_FORMAT)
		return ckpt_fail();
	printf("%s: %zu files, %zu tensors in %zu boxes, %" PRIu64 " bytes: %zu defects\n", path,
	       v.nfiles, v.ntensors, v.nboxes, v.nbytes, v.ndefects);
	return v.ndefects > 0 ? CKPT_DIFFERS : 0;
}

static int read_tensor(const srt_file_t *file, const srt_file_tensor_t *t, char *piece)
{
	for (size_t at = 0, n; at < t->nbytes; at += n) {
		n = t->nbytes - at < CKPT_PIECE_NBYTES ? t->nbytes - at : CKPT_PIECE_NBYTES;
		if (srt_file_read(file, t->name, at, n, piece) != SRT_OK) {
			printf("tensor '%s': %s\n", ckpt_name(t->name).text, srt_error_last());
			return CKPT_DIFFERS;
		}
	}
	return 0;
}

/* The header was checked completely when the file was opened. */
static int verify_file(const char *path)
{
	char *piece = malloc(CKPT_PIECE_NBYTES);
	size_t nbytes = 0, ndefects = 0;
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	srt_file_t *file;
	srt_status_t status;

	if (piece == NULL) {
		tool_error("no memory to read a file");
		return CKPT_TROUBLE;
	}
	status = srt_file_open(path, &file);
	for (size_t i = 0; status == SRT_OK && srt_file_at(file, i, &t) == SRT_OK; i++) {
		ndefects += read_tensor(file, &t, piece) != 0;
		nbytes += t.nbytes;
	}
	free(piece);
	if (status != SRT_OK)
		return fail(status);
	printf("%s: %zu tensors, %zu bytes: %zu defects; only a checkpoint has hashes\n", path,
	       srt_file_count(file), nbytes, ndefects);
	srt_file_close(file);
	return ndefects > 0 ? CKPT_DIFFERS : 0;
}

/* Not the temporary folders of saves that go on or were killed. */
static int is_name(const struct dirent *entry)
{
	return entry->d_name[0] != '.' && strstr(entry->d_name, ".tmp-") == NULL;
}

/* The checkpoints in a folder, in the order of names, and the file `latest`. */
static int verify_all(const char *dir)
{
	struct dirent **entries;
	const int n = scandir(dir, &entries, is_name, alphasort);
	int code = 0, nfound = 0;
	srt_status_t status;
	char path[4096];

	for (int i = 0; i < n; i++) {
		if (snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name) <
			    (int)sizeof(path) &&
		    tool_has_manifest(path)) {
			code = worst(code, verify_checkpoint(path));
			nfound++;
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	if (snprintf(path, sizeof(path), "%s/latest", dir) < (int)sizeof(path) &&
	    access(path, F_OK) == 0) {
		status = srt_checkpoint_latest(dir, path, sizeof(path));
		if (status != SRT_OK)
			return worst(code, fail(status));
	}
	if (nfound > 0)
		return code;
	tool_error("%s has no manifest.json of a checkpoint, nor a folder that has one", dir);
	return CKPT_TROUBLE;
}

int ckpt_verify(const ckpt_request_t *r)
{
	int code = 0;

	for (int i = 0; i < r->npaths; i++) {
		struct stat st;

		if (stat(r->path[i], &st) != 0 || !S_ISDIR(st.st_mode) ||
		    (tool_has_model(r->path[i]) && !tool_has_manifest(r->path[i])))
			code = worst(code, verify_file(r->path[i]));
		else if (tool_has_manifest(r->path[i]))
			code = worst(code, verify_checkpoint(r->path[i]));
		else
			code = worst(code, verify_all(r->path[i]));
	}
	return code;
}
