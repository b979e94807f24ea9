/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of a manifest (manifest.h). */
#include "runtime/checkpoint/formats/manifest.h"

#include <stdlib.h>

#include "base/base.h"
#include "base/file_calls.h"
#include "base/hash128.h"
#include "base/replacement.h"

srt_status_t srt_manifest_read(const char *folder, srt_manifest_t *m)
{
	char *path, *text = NULL;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	size_t nbytes = 0;

	SRT_TRY(srt_hash_require("reading a sharded checkpoint"));
	path = srt_asprintf("%s/%s", folder, SRT_MANIFEST_NAME);
	if (path != NULL)
		status = srt_read_text(path, SRT_MANIFEST_MAX_NBYTES, &text, &nbytes);
	if (status == SRT_OK) {
		status = srt_manifest_parse(text, nbytes, m);
		if (status != SRT_OK)
			srt_fail_prefix(status, "%s: ", path);
	}
	free(text);
	free(path);
	return status;
}

srt_status_t srt_manifest_save(const srt_manifest_t *m, const char *folder)
{
	char *path = srt_asprintf("%s/%s", folder, SRT_MANIFEST_NAME), *text = NULL;
	srt_replacement_t r = { .fd = -1 };
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	size_t nbytes = 0;

	if (path != NULL)
		status = srt_manifest_write(m, &text, &nbytes);
	if (status == SRT_OK)
		status = srt_replacement_open(&r, path, false);
	if (status == SRT_OK)
		status = srt_replacement_write(&r, text, nbytes);
	if (status == SRT_OK)
		status = srt_replacement_commit(&r);
	srt_replacement_close(&r);
	free(text);
	free(path);
	return status;
}
