/* SPDX-License-Identifier: BSD-3-Clause */
/* shardrt-ckpt ls and hash; see ckpt.h. */
#include "tools/ckpt/ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/common.h"

/** Sizes or offsets, as text. */
typedef struct sizes {
	char text[192];
} sizes_t;

static sizes_t format_sizes(const int64_t *sizes, int ndim)
{
	sizes_t s = { "[" };
	size_t n = 1;

	for (int i = 0; i < ndim; i++)
		n += (size_t)snprintf(s.text + n, sizeof(s.text) - n, "%s%" PRId64, i ? "," : "",
				      sizes[i]);
	snprintf(s.text + n, sizeof(s.text) - n, "]");
	return s;
}

/* For a checkpoint: what it is, and its boxes. */
static void print_kind(const srt_file_saved_t *saved)
{
	static const char *const kinds[] = { "parameter", "buffer" };

	if (saved->kind == SRT_FILE_STATE)
		printf("state %-5d", saved->state);
	else
		printf("%-11s", kinds[saved->kind == SRT_FILE_BUFFER]);
	printf("%4zu ", saved->nboxes);
}

static void print_tensor(const ckpt_request_t *r, const srt_file_t *file,
			 const srt_file_tensor_t *t)
{
	srt_file_saved_t saved = SRT_FILE_SAVED_INIT;
	srt_file_box_t box;

	printf("%-7s %-16s %12zu  ", t->dtype_name, format_sizes(t->shape, t->ndim).text,
	       t->nbytes);
	if (srt_file_get_saved(file, t->name, &saved) == SRT_OK)
		print_kind(&saved);
	puts(ckpt_name(t->name).text);
	for (size_t i = 0; r->boxes && srt_file_get_box(file, t->name, i, &box) == SRT_OK; i++)
		printf("        %s at %s in %s\n", format_sizes(box.size, t->ndim).text,
		       format_sizes(box.offset, t->ndim).text, ckpt_name(box.file).text);
}

/* What a checkpoint has apart from tensors. */
static void print_checkpoint(const srt_file_t *file, const srt_file_checkpoint_t *c)
{
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	const char *key, *text;
	const void *data;
	int64_t integer;
	size_t nbytes;

	printf("checkpoint %s of %d ranks in %zu files, numerics version %d%s\n", c->id, c->world,
	       c->nfiles, c->numerics_version,
	       c->fast < 0 ? "" :
	       c->fast     ? " fast" :
			     " exact");
	for (size_t i = 0; srt_file_get_group(file, i, &state) == SRT_OK; i++)
		printf("optimizer %s, group %zu: %" PRId32 " steps, learning rate %.9g\n",
		       ckpt_name(c->optimizer).text, i, state.step, (double)state.lr);
	if (c->has_scaler)
		printf("scaler: scale %.9g, growth tracker %" PRId32 "\n", (double)c->scaler.scale,
		       c->scaler.growth_tracker);
	for (size_t i = 0; srt_file_get_entry(file, i, &key, &data, &nbytes) == SRT_OK; i++) {
		printf("entry %s: %zu bytes", ckpt_name(key).text, nbytes);
		if (nbytes == sizeof(integer)) {
			memcpy(&integer, data, sizeof(integer));
			printf(", as an integer %" PRId64, integer);
		} else if (srt_file_find_metadata(file, key, &text) == SRT_OK) {
			printf(", '%s'", ckpt_name(text).text);
		}
		putchar('\n');
	}
}

int ckpt_ls(const ckpt_request_t *r)
{
	size_t nelem = 0, nbytes = 0;
	srt_file_checkpoint_t checkpoint = SRT_FILE_CHECKPOINT_INIT;
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	srt_file_t *file;

	if (ckpt_open(r->path[0], 1, &file) != 0)
		return CKPT_TROUBLE;
	if (srt_file_get_checkpoint(file, &checkpoint) == SRT_OK)
		print_checkpoint(file, &checkpoint);
	for (size_t i = 0; srt_file_at(file, i, &t) == SRT_OK; i++) {
		print_tensor(r, file, &t);
		nelem += t.nelem;
		nbytes += t.nbytes;
	}
	printf("%zu tensors, %zu elements, %zu bytes\n", srt_file_count(file), nelem, nbytes);
	srt_file_close(file);
	return 0;
}

static void print_hash(const unsigned char hash[16])
{
	for (int i = 0; i < 16; i++)
		printf("%02x", hash[i]);
}

int ckpt_hash(const ckpt_request_t *r)
{
	unsigned char all[16], params[16];
	int has_params;
	srt_status_t status;
	srt_file_t *file;

	if (ckpt_open(r->path[0], r->all, &file) != 0)
		return CKPT_TROUBLE;
	status = srt_file_hash_params(file, params, all);
	has_params = status == SRT_OK;
	if (status == SRT_ERR_INVALID_ARGUMENT) {
		tool_error("%s: no hash of the parameters: %s", r->path[0], srt_error_last());
		status = srt_file_hash(file, all);
	}
	srt_file_close(file);
	if (status != SRT_OK)
		return ckpt_fail();
	print_hash(all);
	printf("  %s\n", r->path[0]);
	if (has_params) {
		printf("parameters: xxh3-128 ");
		print_hash(params);
		putchar('\n');
	}
	return 0;
}
