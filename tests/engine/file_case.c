/* SPDX-License-Identifier: BSD-3-Clause */
/* See file_case.h. */
#include "tests/engine/file_case.h"

#include "base/base.h"
#include "tests/harness/half.h"
#include "tests/harness/options.h"

/* Uneven rows, fewer rows than ranks, one row, none; one that takes several blocks, and one whose
 * rows in the file are longer than a block. */
const file_tensor_t file_tensors[FILE_NTENSORS] = {
	{ "a.weight", "theirs/A", 2, { 7, 5 }, 1, 0 },
	{ "a.bias", "theirs/b", 1, { 5 }, 0, 0 },
	{ "few", "theirs/few", 2, { 2, 9 }, 1, 0 },
	{ "one", "theirs/one", 2, { 1, 6 }, 1, 0 },
	{ "none", "theirs/none", 2, { 0, 3 }, 1, 0 },
	{ "plain", "plain", 2, { 5, 3 }, 0, 0 },
	{ "large", "theirs/large", 2, { 1500, 1103 }, 1, 0 },
	{ "long", "theirs/long", 2, { 1100000, 2 }, 1, 0 },
	{ "qkv.weight", "theirs/qkv", 2, { 36, 5 }, 0, 4 },
	{ "qkv.bias", "theirs/qkv.bias", 1, { 36 }, 0, 4 },
};

int64_t file_count(int k)
{
	return file_tensors[k].shape[0] *
	       (file_tensors[k].ndim == 2 ? file_tensors[k].shape[1] : 1);
}

float file_value(int k, int64_t i)
{
	return (float)((1000003 * (int64_t)k + 65599 * i) % (1 << 24));
}

/* Where element i of tensor k is in the file. */
static int64_t place_of(int k, int64_t i)
{
	const int64_t rows = file_tensors[k].shape[0], heads = file_tensors[k].heads;
	const int64_t n = file_tensors[k].ndim == 2 ? file_tensors[k].shape[1] : 1;

	if (file_tensors[k].transposed)
		return i % n * rows + i / n;
	if (heads > 0) { /* row (p, h, e) of (3, heads, d) is row (h, p, e) of (heads, 3, d) */
		const int64_t d = rows / (3 * heads), row = i / n;
		const int64_t p = row / (heads * d), h = row / d % heads, e = row % d;

		return ((h * 3 + p) * d + e) * n + i % n;
	}
	return i;
}

float *file_make_values(int k)
{
	float *values = calloc((size_t)file_count(k) + 1, sizeof(*values));

	CHECK_OR_DIE(values != NULL);
	for (int64_t i = 0; i < file_count(k); i++)
		values[place_of(k, i)] = file_value(k, i);
	return values;
}

void file_write(const char *path, int missing, int wrong)
{
	const srt_file_metadata_t metadata = { "format", "pt" };
	srt_file_entry_t entries[FILE_NTENSORS + 2] = { 0 };
	int which[FILE_NTENSORS + 2];
	size_t n = 0;
	srt_file_writer_t *writer;

	for (int k = 0; k < FILE_NTENSORS; k++) {
		srt_file_entry_t *e = &entries[n];

		if (k == missing)
			continue;
		which[n++] = k;
		*e = (srt_file_entry_t){ .name = file_tensors[k].in_file,
					 .dtype = SRT_F32,
					 .ndim = file_tensors[k].ndim };
		memcpy(e->shape, file_tensors[k].shape, sizeof(file_tensors[k].shape));
		if (file_tensors[k].transposed && k != wrong) {
			e->shape[0] = file_tensors[k].shape[1];
			e->shape[1] = file_tensors[k].shape[0];
		}
	}
	entries[n] = (srt_file_entry_t){ .name = "theirs/constant", .dtype = SRT_U8 };
	CHECK_OK_OR_DIE(srt_file_writer_create(path, entries, n + 1, &metadata, 1, &writer));
	for (size_t i = 0; i < n; i++) {
		float *values = file_make_values(which[i]);
		const size_t nbytes = (size_t)file_count(which[i]) * sizeof(float),
			     half = nbytes / 2;

		CHECK_OK(srt_file_writer_put(writer, i, 0, values, half));
		CHECK_OK(
			srt_file_writer_put(writer, i, half, (char *)values + half, nbytes - half));
		free(values);
	}
	CHECK_STATUS(srt_file_writer_put(writer, 0, file_count(0) * 4, "x", 1),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_file_writer_commit(writer), SRT_ERR_STATE); /* the constant */
	CHECK_OK(srt_file_writer_put(writer, n, 0, "x", 1));
	CHECK_OK(srt_file_writer_commit(writer));
	srt_file_writer_destroy(writer);
}

int file_find(const char *name, srt_file_source_t *source, void *arg)
{
	(void)arg;
	for (int k = 0; k < FILE_NTENSORS; k++) {
		if (strcmp(name, file_tensors[k].name) != 0)
			continue;
		source->name = file_tensors[k].in_file;
		source->transposed = file_tensors[k].transposed;
		source->interleaved_heads = file_tensors[k].heads;
		return 1;
	}
	return 0;
}

int file_find_heads(const char *name, srt_file_source_t *source, void *arg)
{
	const int found = file_find(name, source, arg);

	if (strcmp(name, "plain") == 0)
		source->interleaved_heads = 2;
	return found;
}

int file_find_none(const char *name, srt_file_source_t *source, void *arg)
{
	(void)name;
	(void)source;
	(void)arg;
	return 0;
}

srt_engine_t *file_create_engine(srt_context_t *context, srt_strategy_t strategy, srt_flat_t flat)
{
	const srt_engine_options_t options = ENGINE_SGD(strategy, 0);
	const srt_unit_options_t how = { .size = sizeof(how), .flat = flat };
	srt_unit_t *root, *unit;
	srt_engine_t *engine;
	srt_param_t *p;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &root));
	CHECK_OK_OR_DIE(srt_unit_create(engine, root, "unit", &how, &unit));
	for (int k = 0; k < FILE_NTENSORS; k++)
		CHECK_OK_OR_DIE(srt_param_create(k == 0 ? root : unit, file_tensors[k].name,
						 SRT_F32, file_tensors[k].ndim,
						 file_tensors[k].shape, NULL, &p));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	return engine;
}

void file_check_values(srt_engine_t *engine, srt_dtype_t dtype, srt_stream_t *stream)
{
	for (int k = 0; k < FILE_NTENSORS; k++) {
		float *got = calloc((size_t)file_count(k) + 1, sizeof(*got));
		int64_t wrong = 0;

		CHECK_OR_DIE(got != NULL);
		CHECK_OK(srt_param_get(srt_engine_param_find(engine, file_tensors[k].name),
				       SRT_PARAM_VALUE, got, stream));
		for (int64_t i = 0; i < file_count(k); i++)
			wrong += got[i] != half_round(dtype, file_value(k, i));
		CHECK_MSG(wrong == 0, "%s: %lld elements are wrong", file_tensors[k].name,
			  (long long)wrong);
		free(got);
	}
}
