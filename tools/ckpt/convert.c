/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shardrt-ckpt convert: a GPT between the names and layout of this library and those of Hugging
 * Face (models/gpt_hf.h); a checkpoint of a model of Hugging Face (models/families.c) to a folder.
 * Tensors are copied in pieces, transposed ones in blocks of rows.
 */
#include "tools/ckpt/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shardrt/models/families.h>
#include "models/gpt_hf.h"
#include "tools/common.h"
#include "tools/model_folder.h"
#include "tools/model_sizes.h"

/* A tensor of the new file. */
typedef struct target {
	char name[256];
	const char *source; /* in the old file; NULL: zeros */
	int transposed;
	int64_t interleaved_heads; /* as of srt_file_source_t */
} target_t;

typedef struct conversion {
	const ckpt_request_t *request;
	int to_hf;
	const char *prefix;         /* of the names of Hugging Face */
	const char *config_text;    /* config.json of a model of Hugging Face; NULL: a GPT */
	const srt_family_t *family; /* of that model */
	srt_file_t *file;
	srt_decoder_config_t config;
	size_t n;
	target_t *targets;
	srt_file_entry_t *entries;
	srt_file_writer_t *writer;
} conversion_t;

static int fail_memory(void)
{
	tool_error("no memory to convert a file");
	return CKPT_TROUBLE;
}

/* ---- what the old file has -------------------------------------------------------------- */

static int read_our_sizes(conversion_t *c)
{
	const char *sizes;

	c->prefix = SRT_GPT_HF_PREFIX;
	if (srt_file_find_metadata(c->file, TOOL_SIZES_KEY, &sizes) == SRT_OK &&
	    tool_parse_sizes(sizes, &c->config) == 0)
		return srt_decoder_check(&c->config, 1) == SRT_OK ? 0 : ckpt_fail();
	tool_error("%s has no model sizes in its metadata (%s): it is not a file of shardrt-train "
		   "--save or --checkpoint",
		   c->request->path[0], TOOL_SIZES_KEY);
	return CKPT_TROUBLE;
}

static int read_their_sizes(conversion_t *c)
{
	const char *path = c->request->path[0];

	if (!srt_gpt_hf_recognise(c->file, &c->prefix)) {
		tool_error("%s has no tensor ln_f.weight: it is not a GPT-2 of Hugging Face", path);
		return CKPT_TROUBLE;
	}
	if (srt_gpt_hf_sizes(c->file, path, c->prefix, c->request->heads, &c->config) != SRT_OK)
		return ckpt_fail();
	return srt_decoder_check(&c->config, 1) == SRT_OK ? 0 : ckpt_fail();
}

/* The model of a checkpoint that has a config.json. */
static int read_family(conversion_t *c)
{
	return srt_family_parse_config(c->config_text, strlen(c->config_text), c->request->path[0],
				       &c->family, &c->config) == SRT_OK ?
		       0 :
		       ckpt_fail();
}

/* ---- what the new file gets ------------------------------------------------------------- */

/* The name and layout of a parameter in a folder of the family. @return whether it has one. */
static int find_in_family(const conversion_t *c, const char *name, target_t *target)
{
	const srt_family_file_t file = { .family = c->family, .config = &c->config };
	const srt_file_names_t names = srt_family_names(&file);
	srt_file_source_t source = { .size = sizeof(source) };

	if (!names.find(name, &source, names.arg) || strlen(source.name) >= sizeof(target->name))
		return 0;
	snprintf(target->name, sizeof(target->name), "%s", source.name);
	target->transposed = source.transposed;
	target->interleaved_heads = source.interleaved_heads;
	return 1;
}

static int find_target(const conversion_t *c, const char *name, target_t *target)
{
	if (c->family != NULL)
		return find_in_family(c, name, target);
	return (c->to_hf ? srt_gpt_to_hf : srt_gpt_from_hf)(name, c->prefix, target->name,
							    sizeof(target->name),
							    &target->transposed);
}

static int add_target(conversion_t *c, const srt_file_tensor_t *t)
{
	target_t *target = &c->targets[c->n];
	srt_file_entry_t *entry = &c->entries[c->n];
	const int known = find_target(c, t->name, target);

	if (!known && !c->to_hf && srt_gpt_hf_is_constant(t->name))
		return 0;
	if (!known) {
		tool_error("tensor '%s' of %s is not one of a GPT", ckpt_name(t->name).text,
			   c->request->path[0]);
		return CKPT_TROUBLE;
	}
	if (t->dtype == SRT_DTYPE_NONE || t->ndim < 1 || t->ndim > 2 ||
	    (target->transposed && t->ndim != 2) ||
	    (target->interleaved_heads > 0 && t->shape[0] % (3 * target->interleaved_heads) != 0)) {
		tool_error("tensor '%s' of %s has dtype %s and %d dimensions, or a size, which the "
			   "model does not have",
			   t->name, c->request->path[0], t->dtype_name, t->ndim);
		return CKPT_TROUBLE;
	}
	target->source = t->name;
	*entry = (srt_file_entry_t){ .name = target->name, .dtype = t->dtype, .ndim = t->ndim };
	for (int i = 0; i < t->ndim; i++)
		entry->shape[i] = t->shape[target->transposed ? 1 - i : i];
	c->n++;
	return 0;
}

/* A GPT-2 of Hugging Face has a bias of c_attn: zeros for a model that has none. */
static int add_zero_biases(conversion_t *c)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;

	for (int64_t i = 0; i < c->config.layers; i++) {
		char name[64];
		target_t *target = &c->targets[c->n];

		snprintf(name, sizeof(name), "blocks.%" PRId64 ".attn.qkv.weight", i);
		if (srt_file_find(c->file, name, &t) != SRT_OK || t.ndim != 2)
			return ckpt_fail();
		snprintf(name, sizeof(name), "blocks.%" PRId64 ".attn.qkv.bias", i);
		srt_gpt_to_hf(name, c->prefix, target->name, sizeof(target->name),
			      &target->transposed);
		c->entries[c->n] = (srt_file_entry_t){
			.name = target->name, .dtype = t.dtype, .ndim = 1, .shape = { t.shape[0] }
		};
		c->n++;
	}
	return 0;
}

static int list_targets(conversion_t *c)
{
	const size_t count = srt_file_count(c->file);
	const int64_t needed = srt_decoder_ntensors(&c->config);
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	size_t room;

	if ((uint64_t)needed > count) { /* metadata may claim any number of layers */
		tool_error("%s has %zu tensors, but a model of %" PRId64 " layers has %" PRId64,
			   c->request->path[0], count, c->config.layers, needed);
		return CKPT_TROUBLE;
	}
	room = count + (size_t)c->config.layers;
	c->targets = calloc(room, sizeof(*c->targets));
	c->entries = calloc(room, sizeof(*c->entries));
	if (c->targets == NULL || c->entries == NULL)
		return fail_memory();
	for (size_t i = 0; i < count; i++)
		if (srt_file_at(c->file, i, &t) != SRT_OK || add_target(c, &t) != 0)
			return CKPT_TROUBLE;
	if (c->n != (size_t)needed) {
		tool_error("%s has %zu tensors of a GPT, but a model of %" PRId64
			   " layers has %" PRId64,
			   c->request->path[0], c->n, c->config.layers, needed);
		return CKPT_TROUBLE;
	}
	return c->to_hf && c->family == NULL && !c->config.qkv_bias ? add_zero_biases(c) : 0;
}

/* ---- copying ---------------------------------------------------------------------------- */

/* Bytes of the new file, from `from` on in the old one. */
static srt_status_t copy_bytes(const conversion_t *c, size_t i, size_t from, size_t to,
			       size_t nbytes, char *piece)
{
	for (size_t at = 0, n; at < nbytes; at += n) {
		srt_status_t status = SRT_OK;

		n = nbytes - at < CKPT_PIECE_NBYTES ? nbytes - at : CKPT_PIECE_NBYTES;
		if (c->targets[i].source != NULL)
			status = srt_file_read(c->file, c->targets[i].source, from + at, n, piece);
		else
			memset(piece, 0, n);
		if (status == SRT_OK)
			status = srt_file_writer_put(c->writer, i, to + at, piece, n);
		if (status != SRT_OK)
			return status;
	}
	return SRT_OK;
}

/* Rows of all queries, all keys and all values become those of each head together. */
static srt_status_t copy_interleaved(const conversion_t *c, size_t i, size_t nbytes, char *piece)
{
	const size_t heads = (size_t)c->targets[i].interleaved_heads, block = nbytes / (3 * heads);
	srt_status_t status = SRT_OK;

	for (size_t to = 0; to < 3 * heads && status == SRT_OK; to++)
		status = copy_bytes(c, i, (to % 3 * heads + to / 3) * block, to * block, block,
				    piece);
	return status;
}

/* Rows row .. row + n - 1 of the (rows,columns) of the new file, from its columns in the old one:
 * `old` has room for them as (columns,n), `new` as (n,columns). */
static srt_status_t copy_rows(const conversion_t *c, size_t i, size_t row, size_t n, char *old,
			      char *new)
{
	const size_t rows = (size_t)c->entries[i].shape[0],
		     columns = (size_t)c->entries[i].shape[1];
	const size_t item = srt_dtype_bits(c->entries[i].dtype) / 8;
	srt_status_t status = SRT_OK;

	if (n == rows)
		status =
			srt_file_read(c->file, c->targets[i].source, 0, rows * columns * item, old);
	for (size_t k = 0; k < columns && n < rows && status == SRT_OK; k++)
		status = srt_file_read(c->file, c->targets[i].source, (k * rows + row) * item,
				       n * item, old + k * n * item);
	if (status != SRT_OK)
		return status;
	for (size_t r = 0; r < n; r++)
		for (size_t k = 0; k < columns; k++)
			memcpy(new + (r * columns + k) * item, old + (k * n + r) * item, item);
	return srt_file_writer_put(c->writer, i, row * columns * item, new, n * columns * item);
}

static srt_status_t copy_transposed(const conversion_t *c, size_t i)
{
	const size_t rows = (size_t)c->entries[i].shape[0],
		     columns = (size_t)c->entries[i].shape[1];
	const size_t row_nbytes = columns * srt_dtype_bits(c->entries[i].dtype) / 8;
	size_t most = row_nbytes > 0 && row_nbytes < CKPT_PIECE_NBYTES ?
			      CKPT_PIECE_NBYTES / row_nbytes :
			      1;
	srt_status_t status = SRT_OK;
	char *old, *new;

	most = most < rows ? most : rows;
	old = malloc(most * row_nbytes + 1);
	new = malloc(most * row_nbytes + 1);
	if (old == NULL || new == NULL)
		status = srt_error_set(SRT_ERR_OUT_OF_MEMORY, "no memory to convert a file");
	for (size_t row = 0, n; row < rows && status == SRT_OK; row += n) {
		n = rows - row < most ? rows - row : most;
		status = copy_rows(c, i, row, n, old, new);
	}
	free(old);
	free(new);
	return status;
}

static srt_status_t copy_tensor(const conversion_t *c, size_t i, char *piece)
{
	const srt_file_entry_t *e = &c->entries[i];
	const size_t nelem = (size_t)(e->shape[0] * (e->ndim == 2 ? e->shape[1] : 1));
	const size_t nbytes = nelem * srt_dtype_bits(e->dtype) / 8;

	if (c->targets[i].transposed)
		return copy_transposed(c, i);
	return c->targets[i].interleaved_heads > 0 ? copy_interleaved(c, i, nbytes, piece) :
						     copy_bytes(c, i, 0, 0, nbytes, piece);
}

/* A file, or the folder of a family. */
static srt_status_t create_writer(conversion_t *c)
{
	char sizes[TOOL_SIZES_NBYTES];
	const srt_file_metadata_t metadata[] = { { "format", "pt" }, { TOOL_SIZES_KEY, sizes } };

	if (c->family != NULL)
		return srt_file_writer_create_folder(c->request->path[1], c->entries, c->n, NULL, 0,
						     0, &c->writer);
	tool_print_sizes(&c->config, sizes, sizeof(sizes));
	return srt_file_writer_create(c->request->path[1], c->entries, c->n, metadata,
				      c->to_hf ? 1 : 2, &c->writer);
}

static int write_file(conversion_t *c)
{
	char *piece = malloc(CKPT_PIECE_NBYTES);
	srt_status_t status;

	if (piece == NULL)
		return fail_memory();
	status = create_writer(c);
	for (size_t i = 0; i < c->n && status == SRT_OK; i++)
		status = copy_tensor(c, i, piece);
	free(piece);
	if (status == SRT_OK)
		status = srt_file_writer_commit(c->writer);
	srt_file_writer_destroy(c->writer);
	return status == SRT_OK ? 0 : ckpt_fail();
}

/* config.json of the model, with the dtype of its weights. */
static int write_family_config(const conversion_t *c)
{
	return tool_write_config(c->request->path[1], c->config_text, c->entries[0].dtype) ==
			       SRT_OK ?
		       0 :
		       ckpt_fail();
}

/* config.json in the folder of the new file, unless one is there. */
static int write_config(const conversion_t *c)
{
	const char *path = c->request->path[1], *slash = strrchr(path, '/');
	const srt_decoder_config_t *g = &c->config;
	char name[4096];
	FILE *f;
	int fd;

	snprintf(name, sizeof(name), "%.*sconfig.json", slash != NULL ? (int)(slash + 1 - path) : 0,
		 path);
	fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0 && errno == EEXIST) {
		printf("%s was there and is unchanged\n", name);
		return 0;
	}
	f = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (f == NULL) {
		tool_error("cannot write %s: %s", name, strerror(errno));
		return CKPT_TROUBLE;
	}
	fprintf(f,
		"{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
		"  \"activation_function\": \"gelu_new\",\n  \"layer_norm_epsilon\": 1e-05,\n"
		"  \"n_layer\": %" PRId64 ",\n  \"n_head\": %" PRId64 ",\n  \"n_embd\": %" PRId64
		",\n  \"n_inner\": %" PRId64 ",\n  \"n_positions\": %" PRId64
		",\n  \"vocab_size\": %" PRId64 ",\n  \"tie_word_embeddings\": %s",
		g->layers, g->heads, g->width, g->ffn_width, g->context, g->vocab,
		g->tied ? "true" : "false");
	if (g->vocab <= 50256) /* the defaults are 50256 */
		fprintf(f, ",\n  \"bos_token_id\": null,\n  \"eos_token_id\": null");
	fprintf(f, "\n}\n");
	if (fclose(f) == 0)
		return 0;
	tool_error("cannot write %s: %s", name, strerror(errno));
	return CKPT_TROUBLE;
}

int ckpt_convert(const ckpt_request_t *r)
{
	conversion_t c = { .request = r, .to_hf = strcmp(r->to, "hf") == 0 };
	int code;

	if (strcmp(r->to, "gguf") == 0)
		return ckpt_convert_gguf(r);
	if (ckpt_open(r->path[0], 0, &c.file) != 0)
		return CKPT_TROUBLE;
	if (c.to_hf && srt_file_find_metadata(c.file, TOOL_CONFIG_KEY, &c.config_text) == SRT_OK)
		code = read_family(&c);
	else
		code = c.to_hf ? read_our_sizes(&c) : read_their_sizes(&c);
	if (code == 0 && c.to_hf && c.family == NULL &&
	    srt_gpt_hf_check_config(r->path[1], &c.config) != SRT_OK)
		code = ckpt_fail();
	if (code == 0)
		code = list_targets(&c);
	if (code == 0)
		code = write_file(&c);
	if (code == 0 && c.to_hf)
		code = c.family != NULL ? write_family_config(&c) : write_config(&c);
	if (code == 0)
		printf("wrote %s: %zu tensors\n", r->path[1], c.n);
	free(c.targets);
	free(c.entries);
	srt_file_close(c.file);
	return code;
}
