/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The values of a decoder: initial ones, and the values of a file of its base. Weights in 8 bits
 * are made from floats on the host: each rank reads, or draws, its own rows in pieces.
 */
#include "models/decoder_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/floats.h"
#include "models/string.h"
#include "models/try.h"

#define PIECE_NBYTES ((size_t)4 << 20)

/* What a rank rounds to 8 bits: rows and columns of a weight, and where the floats come from. */
typedef struct source {
	char name[192]; /* of the weight */
	int64_t out, in;
	int64_t row, nrows, column, ncolumns; /* this rank's */
	/* a file: */
	const srt_file_t *file;
	srt_file_source_t in_file;
	srt_dtype_t dtype;
	char *bytes; /* PIECE_NBYTES, or a row */
	/* initial values: */
	const srt_init_t *init;
	uint64_t seed;
	srt_buffer_t *drawn;
	srt_stream_t *stream;
} source_t;

/* ---- floats of a file ------------------------------------------------------------------- */

static srt_status_t check_tensor(source_t *s, const char *path)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	const int transposed = s->in_file.transposed;

	if (srt_file_find(s->file, s->in_file.name, &t) != SRT_OK)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "%s has no tensor '%s', which the model needs", path,
				      s->in_file.name);
	if ((t.dtype != SRT_F32 && t.dtype != SRT_F16 && t.dtype != SRT_BF16) || t.ndim != 2 ||
	    t.shape[transposed] != s->out || t.shape[!transposed] != s->in)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "tensor '%s' of %s has %d dimensions, %lld by %lld, of %s, "
				      "but a weight to be rounded to 8 bits is %lld by %lld of "
				      "floats",
				      s->in_file.name, path, t.ndim,
				      t.ndim > 0 ? (long long)t.shape[0] : 1,
				      t.ndim > 1 ? (long long)t.shape[1] : 1, t.dtype_name,
				      (long long)(transposed ? s->in : s->out),
				      (long long)(transposed ? s->out : s->in));
	s->dtype = t.dtype;
	return SRT_OK;
}

/* The row of the file that has this row of a projection to queries, keys and values; *run: how many
 * rows follow it in both. */
static int64_t find_row(const source_t *s, int64_t row, int64_t *run)
{
	const int64_t heads = s->in_file.interleaved_heads;
	int64_t d, which, head;

	*run = s->out - row;
	if (heads == 0)
		return row;
	d = s->out / (3 * heads);
	which = row / (heads * d);
	head = row / d % heads;
	*run = d - row % d;
	return (head * 3 + which) * d + row % d;
}

/* Rows as the file has them, of which this rank may have some columns. */
static srt_status_t read_rows(const source_t *s, int64_t row, int64_t nrows, float *x)
{
	const size_t item = srt_dtype_bits(s->dtype) / 8, pitch = (size_t)s->in * item;
	const int64_t most = pitch < PIECE_NBYTES ? (int64_t)(PIECE_NBYTES / pitch) : 1;

	for (int64_t i = 0, n; i < nrows; i += n) {
		const int64_t from = find_row(s, row + i, &n);

		n = n < nrows - i ? n : nrows - i;
		n = n < most ? n : most;
		SRT_TRY(srt_file_read(s->file, s->in_file.name, (size_t)from * pitch,
				      (size_t)n * pitch, s->bytes));
		for (int64_t k = 0; k < n * s->ncolumns; k++)
			x[i * s->ncolumns + k] =
				srt_floats_get(s->bytes, s->dtype,
					       (size_t)(k / s->ncolumns * s->in + s->column +
							k % s->ncolumns));
	}
	return SRT_OK;
}

/* Rows of the weight are columns of the file. */
static srt_status_t read_columns(const source_t *s, int64_t row, int64_t nrows, float *x)
{
	const size_t item = srt_dtype_bits(s->dtype) / 8;

	for (int64_t c = 0; c < s->ncolumns; c++) {
		SRT_TRY(srt_file_read(s->file, s->in_file.name,
				      (size_t)((s->column + c) * s->out + row) * item,
				      (size_t)nrows * item, s->bytes));
		for (int64_t i = 0; i < nrows; i++)
			x[i * s->ncolumns + c] = srt_floats_get(s->bytes, s->dtype, (size_t)i);
	}
	return SRT_OK;
}

/* ---- initial floats --------------------------------------------------------------------- */

/* The values that a weight of floats gets. */
static srt_status_t draw_rows(const source_t *s, int64_t row, int64_t nrows, float *x)
{
	srt_normal_t normal = SRT_NORMAL_INIT;

	normal.y = srt_view(s->drawn, 0, SRT_F32);
	normal.seed = s->seed;
	normal.name = s->name;
	normal.std = (float)s->init->std;
	for (int64_t i = 0, n; i < nrows; i += n) {
		n = s->ncolumns == s->in ? nrows : 1;
		normal.first = (row + i) * s->in + s->column;
		normal.nelem = n * s->ncolumns;
		SRT_TRY(srt_op_normal(&normal, s->stream));
		normal.y.offset += (size_t)normal.nelem * sizeof(*x);
	}
	return srt_buffer_copy_to_host(x, s->drawn, 0, (size_t)(nrows * s->ncolumns) * sizeof(*x),
				       s->stream);
}

/* ---- 8 bits ----------------------------------------------------------------------------- */

static srt_status_t round_rows(const source_t *s, int64_t most, float *x, int8_t *codes,
			       float *scales)
{
	const int64_t nscales = srt_decoder_count_scales(s->ncolumns);

	for (int64_t i = 0, n; i < s->nrows; i += n) {
		n = s->nrows - i < most ? s->nrows - i : most;
		SRT_TRY(s->file == NULL            ? draw_rows(s, s->row + i, n, x) :
			s->in_file.transposed != 0 ? read_columns(s, s->row + i, n, x) :
						     read_rows(s, s->row + i, n, x));
		if (srt_quantize(x, n, s->ncolumns, codes + i * s->ncolumns,
				 scales + i * nscales) != SRT_OK)
			return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
					      "weight '%s' has a value that is not finite in rows "
					      "%lld to %lld: it has no form in 8 bits",
					      s->name, (long long)(s->row + i),
					      (long long)(s->row + i + n - 1));
	}
	return SRT_OK;
}

/* Rows of which a piece has at most PIECE_NBYTES of floats. */
static int64_t count_piece(const source_t *s)
{
	const size_t nbytes = (size_t)s->ncolumns * sizeof(float);
	const int64_t most = nbytes < PIECE_NBYTES ? (int64_t)(PIECE_NBYTES / (nbytes + 1)) : 1;

	return most > 0 ? most : 1;
}

/* Makes this rank's codes and scales of a weight. Local. */
static srt_status_t set_weight(source_t *s, srt_param_t *codes_param, srt_param_t *scales_param)
{
	const int64_t nscales = srt_decoder_count_scales(s->ncolumns);
	const int64_t most = count_piece(s);
	const size_t npiece = (size_t)(most * s->ncolumns) * sizeof(float);
	const size_t nrow = (size_t)s->in * sizeof(float);
	float *x = malloc(npiece + 1), *scales = malloc((size_t)(s->nrows * nscales) * 4 + 1);
	int8_t *codes = malloc((size_t)(s->nrows * s->ncolumns) + 1);
	srt_status_t status = SRT_OK;

	s->bytes = malloc((nrow > PIECE_NBYTES ? nrow : PIECE_NBYTES) + (size_t)most * 4);
	if (x == NULL || scales == NULL || codes == NULL || s->bytes == NULL)
		status = srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
					"no host memory to round weight '%s' to 8 bits", s->name);
	if (status == SRT_OK && s->file == NULL && s->nrows > 0)
		status = srt_buffer_create(srt_stream_device(s->stream), SRT_MEM_DEVICE, npiece,
					   "initial values", &s->drawn);
	if (status == SRT_OK)
		status = round_rows(s, most, x, codes, scales);
	if (status == SRT_OK)
		status = srt_param_set_local(codes_param, SRT_PARAM_VALUE, codes, s->stream);
	if (status == SRT_OK)
		status = srt_param_set_local(scales_param, SRT_PARAM_VALUE, scales, s->stream);
	srt_buffer_destroy(s->drawn);
	s->drawn = NULL;
	free(s->bytes);
	free(x);
	free(codes);
	free(scales);
	return status;
}

/* ---- all of them ------------------------------------------------------------------------ */

/* "blocks.0.mlp.up.int8.codes" is made from "blocks.0.mlp.up.weight". */
static void name_weight(const srt_param_t *codes, char name[192])
{
	snprintf(name, 192, "%s", srt_param_name(codes));
	strcpy(strstr(name, ".int8."), ".weight");
}

/* What `given` says of this rank's part of a weight. */
static srt_status_t find_part(const srt_decoder_t *d, const srt_param_t *codes, source_t *s)
{
	int64_t shape[SRT_MAX_DIMS];
	srt_part_t part;

	SRT_TRY(srt_param_part(codes, srt_comm_rank(srt_engine_comm(d->engine)), &part));
	srt_param_shape(codes, shape);
	s->out = shape[0];
	s->in = shape[1];
	s->row = part.offset[0];
	s->nrows = part.size[0];
	s->column = part.offset[1];
	s->ncolumns = part.size[1];
	name_weight(codes, s->name);
	return SRT_OK;
}

/* Calls set_weight() for each weight in 8 bits, with what `common` says of all. */
static srt_status_t set_weights(const srt_decoder_t *d, const source_t *common,
				const srt_file_names_t *names, const char *path)
{
	for (int64_t i = 0; i < d->config.layers; i++) {
		for (int k = 0; k < SRT_DECODER_PARTS; k++) {
			const srt_init_t init = srt_decoder_init_of(d, k);
			source_t s = *common;

			if (d->blocks[i].scales[k] == NULL)
				continue;
			s.init = &init;
			SRT_TRY(find_part(d, d->blocks[i].part[k].weight, &s));
			s.in_file =
				(srt_file_source_t){ .size = sizeof(s.in_file), .name = s.name };
			if (names != NULL)
				names->find(s.name, &s.in_file, names->arg);
			if (s.file != NULL)
				SRT_TRY(check_tensor(&s, path));
			SRT_TRY(set_weight(&s, d->blocks[i].part[k].weight,
					   d->blocks[i].scales[k]));
		}
	}
	return SRT_OK;
}

/* A rank's failure, for the others. */
typedef struct outcome {
	int32_t status;
	char sentence[252];
} outcome_t;

srt_status_t srt_decoder_share_status(const srt_decoder_t *d, srt_status_t status)
{
	srt_comm_t *comm = srt_engine_comm(d->engine);
	const int nranks = srt_comm_size(comm);
	outcome_t mine = { .status = (int32_t)status };
	outcome_t *all = calloc((size_t)nranks, sizeof(*all));
	srt_status_t shared;

	if (all == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for %d ranks", nranks);
	snprintf(mine.sentence, sizeof(mine.sentence), "%s",
		 status != SRT_OK ? srt_error_last() : "");
	shared = srt_comm_oob_allgather(comm, &mine, sizeof(mine), all);
	for (int r = 0; r < nranks && shared == SRT_OK; r++)
		if (all[r].status != SRT_OK)
			shared = srt_model_fail((srt_status_t)all[r].status, "rank %d: %s", r,
						all[r].sentence);
	free(all);
	return shared;
}

/* ---- files and initial values ------------------------------------------------------------- */

/* The names of a file of the base, and those that srt_engine_load_named() is to leave alone. */
typedef struct base_names {
	const srt_decoder_t *decoder;
	const srt_file_names_t *given;
} base_names_t;

static int find_base(const char *name, srt_file_source_t *source, void *arg)
{
	const base_names_t *b = arg;

	return b->given->find(name, source, b->given->arg);
}

static int keeps_values(const char *name, void *arg)
{
	(void)arg;
	return srt_lora_is_adapter(name) || srt_decoder_is_int8_name(name);
}

/* Whether a tensor of the file is a weight that is in 8 bits here. */
static int is_weight(const base_names_t *b, const char *file_name)
{
	const srt_decoder_t *d = b->decoder;

	for (int64_t i = 0; d->is_int8 && i < d->config.layers; i++) {
		for (int k = 0; k < SRT_DECODER_PARTS; k++) {
			srt_file_source_t source = { .size = sizeof(source) };
			char name[192];

			if (d->blocks[i].scales[k] == NULL)
				continue;
			name_weight(d->blocks[i].part[k].weight, name);
			if (find_base(name, &source, (void *)(uintptr_t)b) &&
			    strcmp(source.name, file_name) == 0)
				return 1;
		}
	}
	return 0;
}

static int ignores_tensor(const char *file_name, void *arg)
{
	const base_names_t *b = arg;

	return (b->given->ignores != NULL && b->given->ignores(file_name, b->given->arg)) ||
	       is_weight(b, file_name);
}

srt_status_t srt_decoder_load_base(srt_decoder_t *d, const char *path,
				   const srt_file_names_t *names, srt_stream_t *stream)
{
	base_names_t base = { .decoder = d, .given = names };
	const srt_file_names_t others = { .size = sizeof(others),
					  .find = find_base,
					  .ignores = ignores_tensor,
					  .arg = &base,
					  .cast = names->cast,
					  .keeps = keeps_values };
	source_t common = { .stream = stream };
	srt_status_t status;
	srt_file_t *file;

	SRT_TRY(srt_engine_load_named(d->engine, path, &others, stream));
	if (!d->is_int8)
		return SRT_OK;
	status = srt_file_open(path, &file);
	if (status == SRT_OK) {
		common.file = file;
		status = set_weights(d, &common, names, path);
		srt_file_close(file);
	}
	return srt_decoder_share_status(d, status);
}

typedef struct init_args {
	uint64_t seed;
	srt_stream_t *stream;
	int adapters_only;
} init_args_t;

static srt_status_t init_module(srt_module_t *module, void *arg)
{
	const init_args_t *args = arg;
	const char *path = srt_module_path(module), *last = strrchr(path, '.');
	const int is_adapter =
		last != NULL && (strcmp(last, ".lora_A") == 0 || strcmp(last, ".lora_B") == 0);

	if ((args->adapters_only && !is_adapter) || srt_decoder_is_int8_name(path))
		return SRT_OK;
	return srt_module_reset(module, args->seed, args->stream);
}

srt_status_t srt_decoder_init(srt_decoder_t *d, uint64_t seed, srt_stream_t *stream)
{
	init_args_t args = { .seed = seed, .stream = stream };
	const source_t common = { .seed = seed, .stream = stream };

	SRT_TRY(srt_module_apply(d->module, init_module, &args));
	return d->is_int8 ? srt_decoder_share_status(d, set_weights(d, &common, NULL, NULL)) :
			    SRT_OK;
}

srt_status_t srt_decoder_init_lora(srt_decoder_t *d, uint64_t seed, srt_stream_t *stream)
{
	init_args_t args = { .seed = seed, .stream = stream, .adapters_only = 1 };

	return srt_module_apply(d->module, init_module, &args);
}
