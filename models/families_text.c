/* SPDX-License-Identifier: BSD-3-Clause */
/* config.json of Hugging Face as text: read, and written again with another dtype. */
#include <shardrt/models/families.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "models/try.h"

/* The longest config.json that is read. */
#define CONFIG_NBYTES (1 << 20)

/* ---- reading ---------------------------------------------------------------------------- */

srt_status_t srt_family_read_text(const char *path, char **text, size_t *nbytes)
{
	FILE *f = fopen(path, "rb");
	srt_status_t status = SRT_OK;
	char *t;
	size_t n;

	if (f == NULL)
		return srt_model_fail(errno == ENOENT ? SRT_ERR_NOT_FOUND : SRT_ERR_IO,
				      "cannot open %s: %s", path, strerror(errno));
	t = calloc(1, CONFIG_NBYTES);
	if (t == NULL) {
		fclose(f);
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for %s", path);
	}
	n = fread(t, 1, CONFIG_NBYTES, f);
	if (ferror(f))
		status = srt_model_fail(SRT_ERR_IO, "cannot read %s: %s", path, strerror(errno));
	else if (n == CONFIG_NBYTES)
		status = srt_model_fail(SRT_ERR_FORMAT, "%s has %d bytes or more", path,
					CONFIG_NBYTES);
	fclose(f);
	if (status != SRT_OK) {
		free(t);
		return status;
	}
	*text = t;
	*nbytes = n;
	return SRT_OK;
}

srt_status_t srt_family_read_config(const char *path, const srt_family_t **family,
				    srt_decoder_config_t *config)
{
	srt_status_t status;
	char *text;
	size_t n;

	SRT_TRY(srt_family_read_text(path, &text, &n));
	status = srt_family_parse_config(text, n, path, family, config);
	free(text);
	return status;
}

/* ---- writing ---------------------------------------------------------------------------- */

/* The end of a string that begins at p. */
static const char *skip_string(const char *p)
{
	for (p++; *p && *p != '"'; p++)
		p += *p == '\\' && p[1];
	return *p ? p + 1 : p;
}

/* The end of a value, without blanks. */
static const char *skip_value(const char *value)
{
	const char *p = value;
	int depth = 0;

	while (*p && (depth > 0 || (*p != ',' && *p != '}'))) {
		depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
		p = *p == '"' ? skip_string(p) : p + 1;
	}
	while (p > value && isspace((unsigned char)p[-1]))
		p--;
	return p;
}

static int is_dtype_key(const char *key, size_t n)
{
	return (n == 7 && memcmp(key, "\"dtype\"", n) == 0) ||
	       (n == 13 && memcmp(key, "\"torch_dtype\"", n) == 0);
}

static const char *find_dtype_name(srt_dtype_t dtype)
{
	return dtype == SRT_F16 ? "float16" : dtype == SRT_BF16 ? "bfloat16" : "float32";
}

/* The text with the dtype; the key torch_dtype is that of all versions. */
static void print_changed(const char *text, srt_dtype_t dtype, FILE *out)
{
	const char *name = find_dtype_name(dtype), *begin = strchr(text, '{') + 1;
	const char *done = text, *key = begin;
	int found = 0;

	while ((key += strspn(key, ", \t\r\n")), *key == '"') {
		const char *key_end = skip_string(key);
		const char *value = key_end + strspn(key_end, ": \t\r\n");
		const char *end = skip_value(value);

		if (is_dtype_key(key, (size_t)(key_end - key))) {
			fprintf(out, "%.*s\"%s\"", (int)(value - done), done, name);
			done = end;
			found = 1;
		}
		key = end;
	}
	if (!found) {
		fprintf(out, "%.*s\n  \"torch_dtype\": \"%s\",", (int)(begin - done), done, name);
		done = begin;
	}
	fputs(done, out);
}

srt_status_t srt_family_set_dtype(const char *text, srt_dtype_t dtype, char **changed)
{
	char *copy = NULL;
	size_t n;
	FILE *out = open_memstream(&copy, &n);
	int failed = out == NULL;

	if (!failed)
		print_changed(text, dtype, out);
	if (failed || fclose(out) != 0) {
		free(copy);
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for a config.json");
	}
	*changed = copy;
	return SRT_OK;
}
