/* SPDX-License-Identifier: BSD-3-Clause */
/* The folder of a case of Hugging Face: files and their tensors. See replay_hf.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/golden/replay_hf.h"

void hf_die(const hf_case_t *c, const char *message)
{
	printf("%s: %s: %s\n", c->folder, message, srt_error_last());
	exit(HF_FAIL);
}

char *hf_path(const hf_case_t *c, const char *file)
{
	const char *name =
		json_string_value(json_object_get(json_object_get(c->json, "files"), file));
	const size_t nbytes = strlen(c->folder) + (name != NULL ? strlen(name) : 0) + 2;
	char *path = malloc(nbytes);

	if (name == NULL || path == NULL)
		hf_die(c, "case.json does not name a file that it needs");
	snprintf(path, nbytes, "%s/%s", c->folder, name);
	return path;
}

srt_file_t *hf_open(const hf_case_t *c, const char *file)
{
	char *path = hf_path(c, file);
	srt_file_t *opened;

	if (srt_file_open(path, &opened) != SRT_OK)
		hf_die(c, path);
	free(path);
	return opened;
}

void *hf_read(const srt_file_t *file, const char *name, srt_dtype_t dtype, size_t *nelem)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	void *values;

	if (srt_file_find(file, name, &t) != SRT_OK || t.dtype != dtype) {
		printf("%s: missing, or of another dtype: %s\n", name, srt_error_last());
		exit(HF_FAIL);
	}
	values = calloc(t.nelem + 1, srt_dtype_size(dtype));
	if (values == NULL || srt_file_read(file, name, 0, t.nbytes, values) != SRT_OK) {
		printf("%s: cannot be read: %s\n", name, srt_error_last());
		exit(HF_FAIL);
	}
	*nelem = t.nelem;
	return values;
}
