/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading a case's folder: case.json, init, inputs, expectations (replay.h).
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay.h"
#include "tests/harness/half.h"

const char *golden_text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

double golden_number(const json_t *object, const char *key, double otherwise)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? json_number_value(value) : otherwise;
}

bool golden_is_set(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return value != NULL && !json_is_null(value) && !json_is_false(value);
}

bool golden_has(const json_t *array, const char *text)
{
	const json_t *item;
	size_t i;

	json_array_foreach(array, i, item)
	{
		const char *s = json_string_value(item);

		if (s != NULL && !strcmp(s, text))
			return true;
	}
	return false;
}

bool golden_has_int(const json_t *array, int value)
{
	const json_t *item;
	size_t i;

	json_array_foreach(array, i, item)
	{
		if (json_is_integer(item) && json_integer_value(item) == value)
			return true;
	}
	return false;
}

bool golden_is_one_of(const char *words, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = words; n > 0 && (at = strstr(at, word)) != NULL; at += n)
		if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
			return true;
	return false;
}

bool golden_is_named(const golden_t *g, const char *table)
{
	const size_t n = strlen(table);

	return !strncmp(g->name, table, n) && (g->name[n] == '\0' || g->name[n] == '_');
}

bool golden_dtype(const char *text, srt_dtype_t *dtype)
{
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };

	for (size_t i = 0; i < SRT_ARRAY_LEN(dtypes) && text != NULL; i++) {
		if (strcmp(text, srt_dtype_name(dtypes[i])))
			continue;
		*dtype = dtypes[i];
		return true;
	}
	return false;
}

const json_t *golden_param(const golden_t *g, const char *name)
{
	const json_t *p;
	size_t i;

	json_array_foreach(json_object_get(g->json, "params"), i, p)
	{
		const char *n = golden_text(p, "name");

		if (n != NULL && !strcmp(n, name))
			return p;
	}
	return NULL;
}

double golden_scalar(const json_t *scalar)
{
	const char *hex = golden_text(scalar, "hex");

	return hex != NULL ? strtod(hex, NULL) : (double)NAN;
}

srt_status_t golden_floats(const srt_safetensors_t *file, const char *name, size_t nelem,
			   float **values)
{
	const srt_safetensors_tensor_t *t = file != NULL ? srt_safetensors_find(file, name) : NULL;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	void *stored;

	*values = NULL;
	if (t == NULL || t->nelem != nelem ||
	    (t->dtype != SRT_F32 && t->dtype != SRT_F16 && t->dtype != SRT_BF16))
		return srt_fail(SRT_ERR_FORMAT, "'%s' is not there as floats with %zu elements",
				name, nelem);
	*values = srt_calloc(nelem + 1, sizeof(**values), name);
	stored = srt_calloc(nelem + 1, sizeof(**values), name);
	if (*values != NULL && stored != NULL)
		status = srt_safetensors_read(file, t, 0, t->nbytes, stored);
	for (size_t i = 0; i < nelem && status == SRT_OK; i++)
		(*values)[i] = half_get(t->dtype, stored, i);
	free(stored);
	if (status != SRT_OK) {
		free(*values);
		*values = NULL;
	}
	return status;
}

/* Opens DIR/name, where name is a text of the case; a NULL name is a file that is not there. */
static srt_status_t open_file(const golden_t *g, const char *name, srt_safetensors_t **file)
{
	srt_status_t status;
	char *path;

	if (name == NULL)
		return SRT_OK;
	path = srt_asprintf("%s/%s", g->dir, name);
	if (path == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_safetensors_open(path, file);
	free(path);
	return status;
}

static srt_status_t open_train(golden_t *g, int rank)
{
	const json_t *files = json_object_get(g->json, "files");
	const json_t *inputs = json_object_get(files, "inputs");
	const json_t *ranks = json_object_get(files, "expect_ranks");
	int data;

	g->world_size = (int)golden_number(g->json, "world_size", 0);
	g->dp_size = (int)golden_number(g->json, "dp_size", 0);
	g->accum = (int)golden_number(g->json, "accum", 0);
	g->nsteps = (int)golden_number(g->json, "num_steps", -1);
	if (g->world_size < 1 || g->dp_size < 1 || g->accum < 1 || g->nsteps < 0 ||
	    json_array_size(json_object_get(g->json, "steps")) != (size_t)g->nsteps ||
	    json_array_size(inputs) != (size_t)g->dp_size || golden_text(files, "init") == NULL)
		return srt_fail(SRT_ERR_FORMAT, "%s/case.json lacks sizes, steps or files", g->dir);
	SRT_TRY(open_file(g, golden_text(files, "init"), &g->init));
	data = golden_data_index(g, rank);
	if (data < g->dp_size)
		SRT_TRY(open_file(g, json_string_value(json_array_get(inputs, (size_t)data)),
				  &g->input));
	return open_file(g, json_string_value(json_array_get(ranks, (size_t)rank)),
			 &g->expect_rank);
}

bool golden_is_hf(const golden_t *g)
{
	const char *format = golden_text(g->json, "format");

	return format != NULL && !strcmp(format, "shardrt-golden-hf/1");
}

/* A recording of transformers, of one rank. */
static srt_status_t open_hf(golden_t *g, const json_t *files)
{
	g->world_size = (int)golden_number(g->json, "world_size", 1);
	g->nsteps = (int)golden_number(g->json, "num_steps", 0);
	SRT_TRY(open_file(g, golden_text(files, "input"), &g->input));
	return open_file(g, golden_text(files, "expect"), &g->expect);
}

static bool *new_marks(const srt_safetensors_t *file)
{
	return srt_calloc((file != NULL ? srt_safetensors_count(file) : 0) + 1, sizeof(bool),
			  "marks");
}

srt_status_t golden_open(const char *dir, int rank, golden_t *g)
{
	const json_t *files;
	const char *format;
	srt_status_t status;
	json_error_t error;
	char *path;

	*g = (golden_t){ .dir = dir };
	path = srt_asprintf("%s/case.json", dir);
	if (path == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	g->json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
	free(path);
	if (g->json == NULL)
		return srt_fail(SRT_ERR_FORMAT, "%s/case.json: %s (line %d)", dir, error.text,
				error.line);
	g->name = golden_text(g->json, "name");
	g->kind = golden_text(g->json, "kind");
	g->scenario = golden_text(g->json, "scenario");
	g->reference = golden_text(g->json, "reference");
	format = golden_text(g->json, "format");
	if (g->name == NULL || g->kind == NULL ||
	    (!golden_is_hf(g) && (g->scenario == NULL || g->reference == NULL)) ||
	    (!golden_is_hf(g) && (format == NULL || strcmp(format, "shardrt-golden/1"))))
		return srt_fail(SRT_ERR_FORMAT,
				"%s/case.json is not of format shardrt-golden/1 or "
				"shardrt-golden-hf/1",
				dir);
	files = json_object_get(g->json, "files");
	if (!strcmp(g->kind, "train")) {
		SRT_TRY(open_train(g, rank));
		SRT_TRY(open_file(g, golden_text(files, "expect"), &g->expect));
	} else if (golden_is_hf(g)) {
		SRT_TRY(open_hf(g, files));
	} else {
		g->world_size = (int)golden_number(g->json, "world_size", 1);
		status = open_file(g, "expect.safetensors", &g->expect);
		if (status != SRT_OK && status != SRT_ERR_NOT_FOUND)
			return status;
	}
	g->seen = new_marks(g->expect);
	g->seen_rank = new_marks(g->expect_rank);
	return g->seen != NULL && g->seen_rank != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

void golden_close(golden_t *g)
{
	free(g->seen);
	free(g->seen_rank);
	srt_safetensors_close(g->expect_rank);
	srt_safetensors_close(g->input);
	srt_safetensors_close(g->init);
	srt_safetensors_close(g->expect);
	json_decref(g->json);
	*g = (golden_t){ 0 };
}
