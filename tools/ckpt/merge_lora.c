/* SPDX-License-Identifier: BSD-3-Clause */
/* shardrt-ckpt merge-lora: the folder of a model with adapters added to its weights. */
#include "tools/ckpt/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <shardrt/models/families.h>
#include <shardrt/models/lora.h>
#include "tools/common.h"
#include "tools/model_folder.h"

static int is_same(const char *a, const char *b)
{
	struct stat x, y;

	return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int ckpt_merge_lora(const ckpt_request_t *r)
{
	const char *base = r->path[0], *adapter = r->path[1], *out = r->path[2];
	char from[TOOL_CONFIG_NBYTES], to[TOOL_CONFIG_NBYTES];
	const srt_family_t *family;
	srt_decoder_config_t config;

	if (is_same(base, out)) {
		tool_error("merge-lora: %s and %s are one folder: the model would have the "
			   "adapters twice after another call",
			   base, out);
		return CKPT_TROUBLE;
	}
	snprintf(from, sizeof(from), "%s/config.json", base);
	snprintf(to, sizeof(to), "%s/config.json", out);
	if (srt_family_read_config(from, &family, &config) != SRT_OK ||
	    srt_decoder_check(&config, 1) != SRT_OK ||
	    srt_lora_merge(base, family, &config, adapter, out, 0) != SRT_OK ||
	    srt_file_copy(from, to) != SRT_OK || tool_copy_model_files(base, out) != SRT_OK)
		return ckpt_fail();
	printf("wrote %s: %s with the adapters of %s\n", out, base, adapter);
	return 0;
}
