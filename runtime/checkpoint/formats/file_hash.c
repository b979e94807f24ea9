/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hashes of a file or sharded checkpoint (<shardrt/file.h>): of all tensors, and of the values of
 * the parameters, as srt_engine_hash() makes it. Both are made in one pass over the file, in
 * pieces: memory does not depend on the sizes of tensors.
 */
#include <shardrt/checkpoint_file.h>
#include <shardrt/file.h>

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash128.h"
#include "runtime/checkpoint/formats/sharded_file.h"

/* A file is hashed in pieces of this size. */
#define PIECE_NBYTES ((size_t)1 << 20)

/* The hashes that are being made of a file; either state may be NULL. */
typedef struct hashing {
	const srt_file_t *file;
	const char *kinds; /* a letter for each tensor; NULL: no metadata entry has them */
	srt_hash128_t *all, *params;
	void *piece;
} hashing_t;

/* Whether tensor i has the values of a parameter. */
static bool is_param(const hashing_t *h, size_t i, const srt_file_tensor_t *t)
{
	srt_file_saved_t saved = SRT_FILE_SAVED_INIT;

	if (h->file->sharded == NULL)
		return h->kinds == NULL || h->kinds[i] == 'p';
	return srt_file_get_saved(h->file, t->name, &saved) == SRT_OK &&
	       saved.kind == SRT_FILE_PARAM;
}

/* Sets h->kinds. SRT_ERR_INVALID_ARGUMENT: the file does not tell which tensors are parameters. */
static srt_status_t find_kinds(hashing_t *h)
{
	const size_t n = srt_file_count(h->file);
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;

	if (h->file->sharded == NULL)
		h->kinds = srt_safetensors_metadata(h->file->plain, SRT_FILE_KINDS_KEY);
	if (h->kinds != NULL && (strlen(h->kinds) != n || strspn(h->kinds, "pbs") != n))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"it is not known which tensors are parameters: the metadata entry "
				"'%s' does not have a letter p, b or s for each of %zu tensors",
				SRT_FILE_KINDS_KEY, n);
	for (size_t i = 0; i < n; i++) {
		SRT_TRY(srt_file_at(h->file, i, &t));
		if (is_param(h, i, &t) && !srt_dtype_is_float(t.dtype) &&
		    (t.dtype != SRT_U8 || (h->kinds == NULL && h->file->sharded == NULL)))
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"it is not known which tensors are parameters: '%s' has "
					"dtype %s, which no parameter has, and the metadata entry "
					"'%s' does not tell what it is",
					srt_printable(t.name).text,
					srt_printable(t.dtype_name).text, SRT_FILE_KINDS_KEY);
	}
	return SRT_OK;
}

/* What comes before the bytes of a tensor: name and dtype with their terminating zeros, the number
 * of dimensions and the sizes as 64 bits. */
static void hash_description(srt_hash128_t *hash, const srt_file_tensor_t *t)
{
	const uint64_t ndim = (uint64_t)t->ndim;

	srt_hash128_add(hash, t->name, strlen(t->name) + 1);
	srt_hash128_add(hash, t->dtype_name, strlen(t->dtype_name) + 1);
	srt_hash128_add(hash, &ndim, sizeof(ndim));
	srt_hash128_add(hash, t->shape, (size_t)t->ndim * sizeof(*t->shape));
}

static srt_status_t hash_tensor(const hashing_t *h, size_t i)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	srt_hash128_t *params;

	SRT_TRY(srt_file_at(h->file, i, &t));
	params = h->params != NULL && is_param(h, i, &t) ? h->params : NULL;
	if (h->all != NULL)
		hash_description(h->all, &t);
	else if (params == NULL)
		return SRT_OK;
	for (size_t at = 0, n; at < t.nbytes; at += n) {
		n = t.nbytes - at < PIECE_NBYTES ? t.nbytes - at : PIECE_NBYTES;
		SRT_TRY(srt_file_read(h->file, t.name, at, n, h->piece));
		if (h->all != NULL)
			srt_hash128_add(h->all, h->piece, n);
		if (params != NULL) /* changes the piece */
			srt_hash128_add_values(params, t.dtype, h->piece,
					       n / srt_dtype_size(t.dtype));
	}
	return SRT_OK;
}

/* all or params: NULL: is not computed. */
static srt_status_t hash_file(const char *call, const srt_file_t *file, unsigned char *all,
			      unsigned char *params)
{
	hashing_t h = { .file = file };
	srt_status_t status = SRT_OK;

	if (all != NULL)
		status = srt_hash128_create(call, &h.all);
	if (params != NULL && status == SRT_OK)
		status = srt_hash128_create(call, &h.params);
	if (params != NULL && status == SRT_OK)
		status = find_kinds(&h);
	if (status == SRT_OK) {
		h.piece = srt_calloc(PIECE_NBYTES, 1, "a piece of a file");
		status = h.piece != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	}
	for (size_t i = 0; status == SRT_OK && i < srt_file_count(file); i++)
		status = hash_tensor(&h, i);
	if (status == SRT_OK && file->plain != NULL)
		status = srt_safetensors_check_unchanged(file->plain);
	if (status == SRT_OK && all != NULL)
		srt_hash128_get(h.all, all);
	if (status == SRT_OK && params != NULL)
		srt_hash128_get(h.params, params);
	srt_hash128_destroy(h.all);
	srt_hash128_destroy(h.params);
	free(h.piece);
	return status;
}

srt_status_t srt_file_hash(const srt_file_t *file, unsigned char hash[16])
{
	SRT_NOT_NULL(file);
	SRT_NOT_NULL(hash);
	return hash_file(__func__, file, hash, NULL);
}

srt_status_t srt_file_hash_params(const srt_file_t *file, unsigned char params[16],
				  unsigned char *all)
{
	SRT_NOT_NULL(file);
	SRT_NOT_NULL(params);
	return hash_file(__func__, file, all, params);
}
