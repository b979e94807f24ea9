/* SPDX-License-Identifier: BSD-3-Clause */
/* shardrt-ckpt ls and hash; see ckpt.h. */
#include "tools/ckpt/ckpt.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/common.h"

static void print_tensor(const srt_file_tensor_t *t)
{
	char shape[192] = "[";
	size_t n = 1;

	for (int i = 0; i < t->ndim; i++)
		n += (size_t)snprintf(shape + n, sizeof(shape) - n, "%s%" PRId64, i ? "," : "",
				      t->shape[i]);
	snprintf(shape + n, sizeof(shape) - n, "]");
	printf("%-7s %-16s %12zu  %s\n", t->dtype_name, shape, t->nbytes, ckpt_name(t->name).text);
}

int ckpt_ls(const ckpt_request_t *r)
{
	size_t nelem = 0, nbytes = 0;
	srt_file_tensor_t t;
	srt_file_t *file;

	if (ckpt_open(r->path[0], &file) != 0)
		return CKPT_TROUBLE;
	for (size_t i = 0; srt_file_get(file, i, &t) == SRT_OK; i++) {
		print_tensor(&t);
		nelem += t.nelem;
		nbytes += t.nbytes;
	}
	printf("%zu tensors, %zu elements, %zu bytes\n", srt_file_count(file), nelem, nbytes);
	srt_file_close(file);
	return 0;
}

int ckpt_hash(const ckpt_request_t *r)
{
	unsigned char hash[16];
	srt_file_t *file;
	int code = 0;

	if (ckpt_open(r->path[0], &file) != 0)
		return CKPT_TROUBLE;
	if (srt_file_hash(file, hash) == SRT_OK) {
		for (int i = 0; i < 16; i++)
			printf("%02x", hash[i]);
		printf("  %s\n", r->path[0]);
	} else {
		code = ckpt_fail();
	}
	srt_file_close(file);
	return code;
}
