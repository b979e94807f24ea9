/* SPDX-License-Identifier: BSD-3-Clause */
/* See gpt_hf.h. */
#include "models/gpt_hf.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "models/presets.h"
#include "models/try.h"

/* The longest config.json that is read. */
#define CONFIG_NBYTES 65536

/* Names in a block, after "blocks.0." and "h.0."; and in the root. */
static const struct {
	const char *ours, *theirs;
	int transposed;
} block_names[] = {
	{ "ln1.weight", "ln_1.weight", 0 },
	{ "ln1.bias", "ln_1.bias", 0 },
	{ "attn.qkv.weight", "attn.c_attn.weight", 1 },
	{ "attn.qkv.bias", "attn.c_attn.bias", 0 },
	{ "attn.proj.weight", "attn.c_proj.weight", 1 },
	{ "attn.proj.bias", "attn.c_proj.bias", 0 },
	{ "ln2.weight", "ln_2.weight", 0 },
	{ "ln2.bias", "ln_2.bias", 0 },
	{ "fc.weight", "mlp.c_fc.weight", 1 },
	{ "fc.bias", "mlp.c_fc.bias", 0 },
	{ "out.weight", "mlp.c_proj.weight", 1 },
	{ "out.bias", "mlp.c_proj.bias", 0 },
}, root_names[] = {
	{ "wte.weight", "wte.weight", 0 },
	{ "wpe.weight", "wpe.weight", 0 },
	{ "lnf.weight", "ln_f.weight", 0 },
	{ "lnf.bias", "ln_f.bias", 0 },
};

#define OUR_HEAD "head.weight"
#define THEIR_HEAD "lm_head.weight"
#define NBLOCK (sizeof(block_names) / sizeof(block_names[0]))
#define NROOT (sizeof(root_names) / sizeof(root_names[0]))

/* The rest of a name after "blocks.12." (prefix "blocks."), NULL for another name. */
static const char *skip_block(const char *name, const char *prefix, long *block)
{
	const size_t n = strlen(prefix);
	char *end;

	if (strncmp(name, prefix, n) != 0 || !isdigit((unsigned char)name[n]) ||
	    (name[n] == '0' && isdigit((unsigned char)name[n + 1])))
		return NULL;
	*block = strtol(name + n, &end, 10);
	return *end == '.' && end - name < (long)n + 10 ? end + 1 : NULL;
}

int srt_gpt_to_hf(const char *ours, const char *prefix, char *name, size_t nname, int *transposed)
{
	long block;
	const char *rest = skip_block(ours, "blocks.", &block);

	*transposed = 0;
	for (size_t i = 0; rest != NULL && i < NBLOCK; i++) {
		if (strcmp(rest, block_names[i].ours) != 0)
			continue;
		*transposed = block_names[i].transposed;
		snprintf(name, nname, "%sh.%ld.%s", prefix, block, block_names[i].theirs);
		return 1;
	}
	for (size_t i = 0; i < NROOT; i++) {
		if (strcmp(ours, root_names[i].ours) != 0)
			continue;
		snprintf(name, nname, "%s%s", prefix, root_names[i].theirs);
		return 1;
	}
	if (strcmp(ours, OUR_HEAD) != 0)
		return 0;
	snprintf(name, nname, "%s", THEIR_HEAD);
	return 1;
}

int srt_gpt_from_hf(const char *theirs, const char *prefix, char *name, size_t nname,
		    int *transposed)
{
	const char *rest;
	long block;

	*transposed = 0;
	if (strcmp(theirs, THEIR_HEAD) == 0) {
		snprintf(name, nname, "%s", OUR_HEAD);
		return 1;
	}
	if (strncmp(theirs, prefix, strlen(prefix)) != 0)
		return 0;
	theirs += strlen(prefix);
	rest = skip_block(theirs, "h.", &block);
	for (size_t i = 0; rest != NULL && i < NBLOCK; i++) {
		if (strcmp(rest, block_names[i].theirs) != 0)
			continue;
		*transposed = block_names[i].transposed;
		snprintf(name, nname, "blocks.%ld.%s", block, block_names[i].ours);
		return 1;
	}
	for (size_t i = 0; i < NROOT; i++) {
		if (strcmp(theirs, root_names[i].theirs) != 0)
			continue;
		snprintf(name, nname, "%s", root_names[i].ours);
		return 1;
	}
	return 0;
}

int srt_gpt_hf_is_constant(const char *name)
{
	const char *rest;
	long block;

	if (strncmp(name, SRT_GPT_HF_PREFIX, strlen(SRT_GPT_HF_PREFIX)) == 0)
		name += strlen(SRT_GPT_HF_PREFIX);
	rest = skip_block(name, "h.", &block);
	return rest != NULL &&
	       (strcmp(rest, "attn.bias") == 0 || strcmp(rest, "attn.masked_bias") == 0);
}

int srt_gpt_hf_recognise(const srt_file_t *file, const char **prefix)
{
	static const char *const prefixes[] = { "", SRT_GPT_HF_PREFIX };
	char name[64];

	for (size_t i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%sln_f.weight", prefixes[i]);
		if (srt_file_find(file, name, NULL) != SRT_OK)
			continue;
		*prefix = prefixes[i];
		return 1;
	}
	return 0;
}

/* ---- names for the engine --------------------------------------------------------------- */

static int find_name(const char *name, srt_file_source_t *source, void *prefix)
{
	static _Thread_local char text[256];

	source->name = text;
	return srt_gpt_to_hf(name, prefix, text, sizeof(text), &source->transposed);
}

static int ignore_name(const char *file_name, void *prefix)
{
	(void)prefix;
	return srt_gpt_hf_is_constant(file_name);
}

srt_file_names_t srt_gpt_hf_names(const char *prefix)
{
	return (srt_file_names_t){ .size = sizeof(srt_file_names_t),
				   .find = find_name,
				   .ignores = ignore_name,
				   .arg = (void *)(uintptr_t)prefix,
				   .cast = 1 };
}

/* ---- sizes ------------------------------------------------------------------------------ */

/* A matrix that the file must have. */
static srt_status_t find_matrix(const srt_file_t *file, const char *path, const char *prefix,
				const char *name, srt_file_tensor_t *tensor)
{
	char full[64];

	snprintf(full, sizeof(full), "%s%s", prefix, name);
	if (srt_file_find(file, full, tensor) != SRT_OK)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "%s has no tensor '%s', which a GPT-2 of Hugging Face has",
				      path, full);
	if (tensor->ndim != 2)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "tensor '%s' of %s has %d dimensions, but a GPT-2 of Hugging "
				      "Face has a matrix",
				      full, path, tensor->ndim);
	return SRT_OK;
}

/* config.json in a folder, or in the folder of a file, or "" if there is none. */
static srt_status_t read_config(const char *path, char text[CONFIG_NBYTES])
{
	const char *slash = strrchr(path, '/');
	srt_status_t status = SRT_OK;
	char name[4096];
	struct stat st;
	size_t n;
	FILE *f;

	text[0] = '\0';
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		snprintf(name, sizeof(name), "%s/config.json", path);
	else
		snprintf(name, sizeof(name), "%.*sconfig.json",
			 slash != NULL ? (int)(slash + 1 - path) : 0, path);
	f = fopen(name, "r");
	if (f == NULL && errno == ENOENT)
		return SRT_OK;
	if (f == NULL)
		return srt_model_fail(SRT_ERR_IO, "cannot open %s: %s", name, strerror(errno));
	n = fread(text, 1, CONFIG_NBYTES, f);
	if (ferror(f))
		status = srt_model_fail(SRT_ERR_IO, "cannot read %s: %s", name, strerror(errno));
	else if (n == CONFIG_NBYTES)
		status = srt_model_fail(SRT_ERR_FORMAT, "%s has %d bytes or more", name,
					CONFIG_NBYTES);
	else
		text[n] = '\0';
	fclose(f);
	return status;
}

/* The end of the string that begins before `at`: its closing quote, or that of the text. */
static const char *find_quote(const char *at)
{
	for (; *at && *at != '"'; at++)
		at += *at == '\\' && at[1];
	return at;
}

/* The value of a key of the object that the text is, not of objects in it; NULL: it has none. */
static const char *find_value(const char *text, const char *key)
{
	const size_t n = strlen(key);
	int depth = 0;

	for (const char *at = text; *at; at++) {
		const char *string = at + 1;

		depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
		if (*at != '"')
			continue;
		at = find_quote(string);
		if (!*at)
			return NULL;
		if (depth != 1 || (size_t)(at - string) != n || strncmp(string, key, n) != 0)
			continue;
		string = at + 1 + strspn(at + 1, " \t\r\n");
		if (*string == ':')
			return string + 1 + strspn(string + 1, " \t\r\n");
	}
	return NULL;
}

static int is_set_to(const char *text, const char *key, const char *value)
{
	const char *at = find_value(text, key);

	return at != NULL && strncmp(at, value, strlen(value)) == 0;
}

/* The sizes that both config.json and the tensors have. */
static srt_status_t compare_sizes(const char *path, const char *text, const srt_decoder_config_t *c)
{
	const struct {
		const char *key;
		int64_t value;
	} sizes[] = {
		{ "n_layer", c->layers },      { "n_embd", c->width },
		{ "n_positions", c->context }, { "vocab_size", c->vocab },
		{ "n_inner", c->ffn_width },
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const char *value = find_value(text, sizes[i].key);

		if (value != NULL && isdigit((unsigned char)*value) &&
		    strtoll(value, NULL, 10) != sizes[i].value)
			return srt_model_fail(
				SRT_ERR_INVALID_ARGUMENT,
				"config.json in the folder of %s has %s %lld, but the "
				"tensors have %lld: it is of another model, or tensors "
				"are missing; put the right one there, or none",
				path, sizes[i].key, strtoll(value, NULL, 10),
				(long long)sizes[i].value);
	}
	return SRT_OK;
}

/* No layer is missing before another one. */
static srt_status_t check_layers(const srt_file_t *file, const char *path, const char *prefix,
				 int64_t layers)
{
	const size_t n = strlen(prefix);
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	long block;

	for (size_t i = 0; srt_file_at(file, i, &t) == SRT_OK; i++)
		if (strncmp(t.name, prefix, n) == 0 &&
		    skip_block(t.name + n, "h.", &block) != NULL && block >= layers)
			return srt_model_fail(
				SRT_ERR_INVALID_ARGUMENT,
				"%s has tensors of layer %ld (h.%ld), but no "
				"h.%lld.ln_1.weight: tensors are missing, or it is a part "
				"of a model",
				path, block, block, (long long)layers);
	return SRT_OK;
}

/* The values of config.json that no tensor has, and whether the head is tied, where a file may have
 * both. */
static srt_status_t apply_config(const char *path, const char *text, srt_decoder_config_t *c)
{
	const char *heads = find_value(text, "n_head");
	const char *activation = find_value(text, "activation_function");
	const char *epsilon = find_value(text, "layer_norm_epsilon");

	if (activation != NULL && strncmp(activation, "\"gelu_new\"", 10) != 0 &&
	    strncmp(activation, "\"gelu_pytorch_tanh\"", 19) != 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "config.json in the folder of %s has another "
				      "activation_function than gelu_new, the tanh form of GELU",
				      path);
	if ((epsilon != NULL && strtod(epsilon, NULL) != 1e-5) ||
	    is_set_to(text, "scale_attn_by_inverse_layer_idx", "true") ||
	    is_set_to(text, "scale_attn_weights", "false"))
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"config.json in the folder of %s has a layer_norm_epsilon that is not "
			"1e-05, scale_attn_by_inverse_layer_idx, or scale_attn_weights that is "
			"false: a GPT does not have these",
			path);
	if (c->tied && is_set_to(text, "tie_word_embeddings", "false"))
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "config.json in the folder of %s has a head that is not tied "
				      "(tie_word_embeddings), but the file has no tensor "
				      "'" THEIR_HEAD "'",
				      path);
	if (text[0] && !is_set_to(text, "tie_word_embeddings", "false"))
		c->tied = 1; /* the default, which older versions do not write */
	if (heads != NULL)
		c->heads = strtoll(heads, NULL, 10);
	return SRT_OK;
}

/* c->heads: of config.json, 0 = not known. */
static srt_status_t choose_heads(const char *path, int64_t heads, srt_decoder_config_t *c)
{
	if (heads && c->heads && heads != c->heads)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "config.json in the folder of %s has %lld heads, not %lld",
				      path, (long long)c->heads, (long long)heads);
	if (heads)
		c->heads = heads;
	else if (c->heads == 0 && c->width % 64 == 0)
		c->heads = c->width / 64;
	if (c->heads > 0)
		return SRT_OK;
	return srt_model_fail(
		SRT_ERR_INVALID_ARGUMENT,
		"the number of heads is in no tensor of %s, and there is no config.json "
		"in its folder that has it: give --heads",
		path);
}

srt_status_t srt_gpt_hf_sizes(const srt_file_t *file, const char *path, const char *prefix,
			      int64_t heads, srt_decoder_config_t *config)
{
	srt_decoder_config_t c = { SRT_DECODER_GPT };
	srt_file_tensor_t wte = SRT_FILE_TENSOR_INIT, wpe = SRT_FILE_TENSOR_INIT,
			  fc = SRT_FILE_TENSOR_INIT;
	srt_status_t status;
	char name[64], *text;

	SRT_TRY(find_matrix(file, path, prefix, "wte.weight", &wte));
	SRT_TRY(find_matrix(file, path, prefix, "wpe.weight", &wpe));
	SRT_TRY(find_matrix(file, path, prefix, "h.0.mlp.c_fc.weight", &fc));
	c.vocab = wte.shape[0];
	c.width = wte.shape[1];
	c.context = wpe.shape[0];
	if (c.width < 1 || fc.shape[1] % c.width != 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "tensor '%s' of %s is [%lld,%lld]: its second size must be a "
				      "multiple of the width, %lld",
				      fc.name, path, (long long)fc.shape[0], (long long)fc.shape[1],
				      (long long)c.width);
	c.ffn_width = fc.shape[1];
	do {
		snprintf(name, sizeof(name), "%sh.%lld.ln_1.weight", prefix, (long long)++c.layers);
	} while (srt_file_find(file, name, NULL) == SRT_OK);
	snprintf(name, sizeof(name), "%sh.0.attn.c_attn.bias", prefix);
	c.qkv_bias = srt_file_find(file, name, NULL) == SRT_OK;
	c.tied = srt_file_find(file, THEIR_HEAD, NULL) != SRT_OK;
	SRT_TRY(check_layers(file, path, prefix, c.layers));
	text = malloc(CONFIG_NBYTES);
	if (text == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for config.json");
	status = read_config(path, text);
	if (status == SRT_OK)
		status = compare_sizes(path, text, &c);
	if (status == SRT_OK)
		status = apply_config(path, text, &c);
	free(text);
	if (status == SRT_OK)
		status = choose_heads(path, heads, &c);
	if (status == SRT_OK)
		*config = c;
	return status;
}

srt_status_t srt_gpt_hf_check_config(const char *path, const srt_decoder_config_t *config)
{
	char *text = malloc(CONFIG_NBYTES);
	srt_decoder_config_t theirs = *config;
	srt_status_t status;

	if (text == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for config.json");
	status = read_config(path, text);
	if (status == SRT_OK)
		status = compare_sizes(path, text, config);
	if (status == SRT_OK)
		status = apply_config(path, text, &theirs);
	free(text);
	if (status == SRT_OK)
		status = choose_heads(path, config->heads, &theirs);
	return status;
}
