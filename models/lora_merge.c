/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adapters added to the weights of their base, from file to file: W + s B A in fp32, each element a
 * sum over r in order, rounded once. The rows of W are as the file has them, and those of B with
 * them; of GPT-2's matrices, which are transposed in files, rows and columns change places.
 */
#include "models/decoder_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/families_impl.h"
#include "models/floats.h"
#include "models/string.h"
#include "models/try.h"

#define PREFIX "base_model.model."
#define PIECE_NBYTES ((size_t)4 << 20)

typedef struct merging {
	const char *base_path, *adapter_path; /* the latter of the file */
	srt_family_file_t match;
	srt_lora_t *lora;
	unsigned char *adapted;
	srt_file_t *base, *adapter;
	srt_file_entry_t *entries; /* (n) */
	size_t n;
	srt_file_writer_t *writer;
	size_t nused; /* tensors of the adapter */
	char *piece;
} merging_t;

/* ---- which weights have an adapter ------------------------------------------------------- */

/* The part of a block that a tensor of the base is the weight of; -1: of none. */
static int find_part(const merging_t *m, const char *name, int64_t *layer)
{
	const srt_decoder_config_t *c = m->match.config;
	const char *blocks = c->names->blocks, *rest = name;
	size_t n;
	char *end;

	if (m->match.bare)
		blocks = strchr(blocks, '.') != NULL ? strchr(blocks, '.') + 1 : blocks;
	n = strlen(blocks);
	if (strncmp(name, blocks, n) != 0 || name[n] != '.')
		return -1;
	*layer = strtoll(name + n + 1, &end, 10);
	if (*end != '.' || *layer < 0 || *layer >= c->layers)
		return -1;
	rest = end + 1;
	for (int k = 0; k < SRT_DECODER_PARTS; k++) {
		const size_t nname = srt_decoder_has_part(c, k) ? strlen(c->names->part[k]) : 0;

		if (nname > 0 && strncmp(rest, c->names->part[k], nname) == 0 &&
		    strcmp(rest + nname, ".weight") == 0)
			return k;
	}
	return -1;
}

/* An adapter of one weight, in fp32. */
typedef struct pair {
	float *a, *b; /* (r,in), (out,r) */
	size_t r, in, out;
} pair_t;

static srt_status_t read_matrix(merging_t *m, const char *name, size_t rows, size_t n, float **out)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	srt_status_t status;
	char *data;

	if (srt_file_find(m->adapter, name, &t) != SRT_OK)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "%s has no tensor '%s', which its adapter_config.json names",
				      m->adapter_path, name);
	if ((t.dtype != SRT_F32 && t.dtype != SRT_F16 && t.dtype != SRT_BF16) || t.ndim != 2 ||
	    t.shape[0] != (int64_t)rows || t.shape[1] != (int64_t)n)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"tensor '%s' of %s has %d dimensions, %lld by %lld, of %s, but the model in "
			"%s and r need %zu by %zu of floats",
			name, m->adapter_path, t.ndim, t.ndim > 0 ? (long long)t.shape[0] : 1,
			t.ndim > 1 ? (long long)t.shape[1] : 1, t.dtype_name, m->base_path, rows,
			n);
	data = malloc(t.nbytes + 1);
	*out = malloc(rows * n * sizeof(**out) + 1);
	status = data != NULL && *out != NULL ?
			 srt_file_read(m->adapter, name, 0, t.nbytes, data) :
			 srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for an adapter");
	for (size_t i = 0; i < rows * n && status == SRT_OK; i++)
		(*out)[i] = srt_floats_get(data, t.dtype, i);
	free(data);
	m->nused += status == SRT_OK;
	return status;
}

/* The adapter of layer and part; the weight is entry e of the base. */
static srt_status_t read_pair(merging_t *m, const srt_file_entry_t *e, int64_t layer, int part,
			      pair_t *p)
{
	const srt_decoder_names_t *names = m->match.config->names;
	const int transposed = m->match.family->transposed;
	char name[256];

	if (e->ndim != 2 || (e->dtype != SRT_F32 && e->dtype != SRT_F16 && e->dtype != SRT_BF16))
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "tensor '%s' of %s is no matrix of f32, f16 or bf16: an "
				      "adapter cannot be added to it",
				      srt_string_show(e->name).text, m->base_path);
	p->r = (size_t)m->lora->r;
	p->out = (size_t)e->shape[transposed];
	p->in = (size_t)e->shape[!transposed];
	snprintf(name, sizeof(name), PREFIX "%s.%lld.%s.lora_A.weight", names->blocks,
		 (long long)layer, names->part[part]);
	SRT_TRY(read_matrix(m, name, p->r, p->in, &p->a));
	*(strrchr(name, '.') - 1) = 'B';
	return read_matrix(m, name, p->out, p->r, &p->b);
}

/* ---- writing ---------------------------------------------------------------------------- */

/* Adds s B A to n elements of the weight from element `first` of the file on. */
static void add_product(const merging_t *m, const pair_t *p, srt_dtype_t dtype, size_t first,
			size_t n)
{
	const int transposed = m->match.family->transposed;
	const size_t columns = transposed ? p->out : p->in;
	const float s = (float)srt_lora_scaling(m->lora);

	for (size_t i = 0; i < n; i++) {
		const size_t row = (first + i) / columns, column = (first + i) % columns;
		const float *b = p->b + (transposed ? column : row) * p->r;
		const float *a = p->a + (transposed ? row : column);
		float sum = 0.0f;

		for (size_t k = 0; k < p->r; k++)
			sum += b[k] * a[k * p->in];
		srt_floats_put(m->piece, dtype, i, srt_floats_get(m->piece, dtype, i) + s * sum);
	}
}

/* Writes entry i; p: with this adapter, if it has one. */
static srt_status_t write_entry(const merging_t *m, size_t i, const pair_t *p)
{
	const srt_file_entry_t *e = &m->entries[i];
	const size_t item = srt_dtype_bits(e->dtype) / 8;
	size_t nelem = 1;

	for (int d = 0; d < e->ndim; d++)
		nelem *= (size_t)e->shape[d];
	for (size_t at = 0, n; at < nelem; at += n) {
		n = nelem - at < PIECE_NBYTES / item ? nelem - at : PIECE_NBYTES / item;
		SRT_TRY(srt_file_read(m->base, e->name, at * item, n * item, m->piece));
		if (p != NULL)
			add_product(m, p, e->dtype, at, n);
		SRT_TRY(srt_file_writer_put(m->writer, i, at * item, m->piece, n * item));
	}
	return SRT_OK;
}

static srt_status_t merge_entry(merging_t *m, size_t i)
{
	int64_t layer = 0;
	const int part = find_part(m, m->entries[i].name, &layer);
	pair_t p = { 0 };
	srt_status_t status;

	if (part < 0 || !m->adapted[layer * SRT_DECODER_PARTS + part])
		return write_entry(m, i, NULL);
	status = read_pair(m, &m->entries[i], layer, part, &p);
	if (status == SRT_OK)
		status = write_entry(m, i, &p);
	free(p.a);
	free(p.b);
	return status;
}

/* ---- what there is ------------------------------------------------------------------------ */

static srt_status_t list_entries(merging_t *m)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;

	m->n = srt_file_count(m->base);
	m->entries = calloc(m->n + 1, sizeof(*m->entries));
	m->piece = malloc(PIECE_NBYTES);
	if (m->entries == NULL || m->piece == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory to merge files");
	for (size_t i = 0; i < m->n; i++) {
		srt_file_entry_t *e = &m->entries[i];

		SRT_TRY(srt_file_at(m->base, i, &t));
		if (t.dtype == SRT_DTYPE_NONE || t.ndim > SRT_MAX_DIMS)
			return srt_model_fail(SRT_ERR_UNSUPPORTED,
					      "tensor '%s' of %s has dtype %s and %d dimensions, "
					      "which cannot be written",
					      srt_string_show(t.name).text, m->base_path,
					      t.dtype_name, t.ndim);
		*e = (srt_file_entry_t){ .name = t.name, .dtype = t.dtype, .ndim = t.ndim };
		memcpy(e->shape, t.shape, (size_t)t.ndim * sizeof(*t.shape));
	}
	return SRT_OK;
}

static srt_status_t match_modules(merging_t *m)
{
	const srt_decoder_config_t *c = m->match.config;
	size_t needed = 0;

	/* config.json may claim any number of layers, but the file has tensors of each */
	if ((uint64_t)srt_decoder_ntensors(c) > m->n)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "%s has %zu tensors, but a model of %lld layers has %lld",
				      m->base_path, m->n, (long long)c->layers,
				      (long long)srt_decoder_ntensors(c));
	m->adapted = calloc((size_t)c->layers, SRT_DECODER_PARTS);
	if (m->adapted == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory to merge files");
	SRT_TRY(srt_lora_match(m->lora, c, m->adapted));
	for (int64_t i = 0; i < c->layers * SRT_DECODER_PARTS; i++)
		needed += 2 * m->adapted[i];
	if (srt_file_count(m->adapter) == needed)
		return SRT_OK;
	return srt_model_fail(
		SRT_ERR_INVALID_ARGUMENT,
		"%s has %zu tensors, but its adapter_config.json means %zu of the model "
		"in %s",
		m->adapter_path, srt_file_count(m->adapter), needed, m->base_path);
}

static srt_status_t merge(merging_t *m, const char *folder, size_t max_nbytes)
{
	SRT_TRY(srt_file_open(m->base_path, &m->base));
	SRT_TRY(srt_file_open(m->adapter_path, &m->adapter));
	SRT_TRY(srt_family_match(m->match.family, m->match.config, m->base, m->base_path,
				 &m->match));
	SRT_TRY(list_entries(m));
	SRT_TRY(match_modules(m));
	SRT_TRY(srt_file_writer_create_folder(folder, m->entries, m->n, NULL, 0, max_nbytes,
					      &m->writer));
	for (size_t i = 0; i < m->n; i++)
		SRT_TRY(merge_entry(m, i));
	if (m->nused != srt_file_count(m->adapter))
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "%s does not have all weights that %s has adapters of",
				      m->base_path, m->adapter_path);
	return srt_file_writer_commit(m->writer);
}

srt_status_t srt_lora_merge(const char *base, const srt_family_t *family,
			    const srt_decoder_config_t *config, const char *adapter,
			    const char *folder, size_t max_nbytes)
{
	char path[4096];
	merging_t m = { .base_path = base,
			.adapter_path = path,
			.match = { .family = family, .config = config } };
	srt_status_t status;

	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", adapter);
	SRT_TRY(srt_lora_read(adapter, &m.lora));
	status = merge(&m, folder, max_nbytes);
	srt_file_writer_destroy(m.writer);
	srt_file_close(m.base);
	srt_file_close(m.adapter);
	srt_lora_destroy(m.lora);
	free(m.adapted);
	free(m.entries);
	free(m.piece);
	return status;
}
