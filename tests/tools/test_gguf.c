/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What `shardrt-ckpt convert --to gguf` has written: the format, and each value of a folder of
 * Hugging Face, in the order that readers expect. Of a tokenizer, the tokens; of one with byte
 * fallback that joining by scores gives its ids. Run by test_gguf.sh:
 *
 *     test_gguf FILE [FOLDER]       prints keys and tensors; with FOLDER compares them
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include <shardrt/models/families.h>
#include <shardrt/models/tokenizer.h>
#include <shardrt/shardrt.h>

#include "tests/harness/check.h"
#include "tests/tools/gguf_file.h"

typedef struct folder {
	const char *path, *type; /* model_type */
	srt_file_t *file;
	srt_decoder_config_t config;
} folder_t;

/* Names in a GGUF file, and in those of Llama, Gemma 3 and OLMo 2, GPT-NeoX, GPT-2. */
static const struct names {
	const char *gguf, *llama, *post, *neox, *gpt2;
} names[] = {
	{ "token_embd", "model.embed_tokens", NULL, "gpt_neox.embed_in", "transformer.wte" },
	{ "position_embd", NULL, NULL, NULL, "transformer.wpe" },
	{ "output_norm", "model.norm", NULL, "gpt_neox.final_layer_norm", "transformer.ln_f" },
	{ "output", "lm_head", NULL, "embed_out", "lm_head" },
	{ "attn_norm", "input_layernorm", NULL, "input_layernorm", "ln_1" },
	{ "attn_qkv", NULL, NULL, "attention.query_key_value", "attn.c_attn" },
	{ "attn_q", "self_attn.q_proj", NULL, NULL, NULL },
	{ "attn_k", "self_attn.k_proj", NULL, NULL, NULL },
	{ "attn_v", "self_attn.v_proj", NULL, NULL, NULL },
	{ "attn_q_norm", "self_attn.q_norm", NULL, NULL, NULL },
	{ "attn_k_norm", "self_attn.k_norm", NULL, NULL, NULL },
	{ "attn_output", "self_attn.o_proj", NULL, "attention.dense", "attn.c_proj" },
	{ "post_attention_norm", NULL, "post_attention_layernorm", NULL, NULL },
	{ "ffn_norm", "post_attention_layernorm", "pre_feedforward_layernorm",
	  "post_attention_layernorm", "ln_2" },
	{ "ffn_gate", "mlp.gate_proj", NULL, NULL, NULL },
	{ "ffn_up", "mlp.up_proj", NULL, "mlp.dense_h_to_4h", "mlp.c_fc" },
	{ "ffn_down", "mlp.down_proj", NULL, "mlp.dense_4h_to_h", "mlp.c_proj" },
	{ "post_ffw_norm", NULL, "post_feedforward_layernorm", NULL, NULL },
};

static int is_type(const folder_t *f, const char *type)
{
	return strcmp(f->type, type) == 0;
}

/* The name in the folder of a tensor: blocks, its module, and the kind. */
static void find_name(const folder_t *f, const char *gguf, char *name, size_t room)
{
	const int is_post = is_type(f, "gemma3_text") || is_type(f, "olmo2");
	const char *dot = strrchr(gguf, '.'), *part = gguf, *found = NULL;
	char block[64] = "";

	CHECK_OR_DIE(dot != NULL);
	if (strncmp(gguf, "blk.", 4) == 0) {
		part = strchr(gguf + 4, '.') + 1;
		snprintf(block, sizeof(block), "%s.%.*s",
			 is_type(f, "gpt_neox") ? "gpt_neox.layers" :
			 is_type(f, "gpt2")     ? "transformer.h" :
						  "model.layers",
			 (int)(part - gguf - 4), gguf + 4);
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct names *n = &names[i];

		if (strlen(n->gguf) != (size_t)(dot - part) ||
		    strncmp(n->gguf, part, (size_t)(dot - part)) != 0)
			continue;
		found = is_type(f, "gpt_neox")     ? n->neox :
			is_type(f, "gpt2")         ? n->gpt2 :
			is_post && n->post != NULL ? n->post :
						     n->llama;
	}
	CHECK_OR_DIE(found != NULL);
	if (strcmp(part, gguf) == 0 && f->config.tied && strncmp(part, "output.", 7) == 0)
		found = is_type(f, "gpt_neox") ? "gpt_neox.embed_in" : "model.embed_tokens";
	snprintf(name, room, "%s%s%s", block, found, dot);
}

/* All values of a tensor of the folder; freed by the caller. */
static float *read_values(const folder_t *f, const char *name, srt_file_tensor_t *t)
{
	unsigned char *bytes;
	float *values;

	CHECK_OK_OR_DIE(srt_file_find(f->file, name, t));
	bytes = malloc(t->nbytes);
	values = malloc(t->nelem * sizeof(*values));
	CHECK_OR_DIE(bytes != NULL && values != NULL);
	CHECK_OK_OR_DIE(srt_file_read(f->file, name, 0, t->nbytes, bytes));
	for (size_t i = 0; i < t->nelem; i++) {
		uint16_t half;

		memcpy(&half, bytes + i * (t->nbytes / t->nelem), sizeof(half));
		if (t->dtype == SRT_F32)
			memcpy(&values[i], bytes + 4 * i, sizeof(float));
		else
			values[i] = (float)gguf_decode(half, t->dtype == SRT_F16 ? 10 : 7);
	}
	free(bytes);
	return values;
}

/* Where the folder has the value of row r and column c. */
static size_t find_place(const folder_t *f, const char *name, size_t rows, size_t columns, size_t r,
			 size_t c)
{
	const srt_decoder_config_t *g = &f->config;
	const size_t heads = (size_t)g->heads;
	const size_t size = g->head_dim ? (size_t)g->head_dim : (size_t)g->width / heads;

	if (is_type(f, "gpt2") && columns > 1 && strncmp(name, "blk.", 4) == 0)
		return c * rows + r;
	if ((is_type(f, "llama") || is_type(f, "mistral")) &&
	    (strstr(name, "attn_q.") != NULL || strstr(name, "attn_k.") != NULL)) {
		const size_t head = r / size, pair = r % size / 2, second = r % 2;

		r = head * size + second * (size / 2) + pair;
	}
	if (is_type(f, "gpt_neox") && strstr(name, "attn_qkv.") != NULL) {
		const size_t what = r / (heads * size), head = r / size % heads;

		r = (head * 3 + what) * size + r % size;
	}
	return r * columns + c;
}

/* A block of Q8_0: the scale is the largest magnitude / 127, values are rounded half away. */
static int is_q8(const unsigned char *bytes, const float *x)
{
	float most = 0;
	uint16_t half;

	for (int i = 0; i < 32; i++)
		most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
	memcpy(&half, bytes, sizeof(half));
	if (gguf_decode(half, 10) != gguf_round((double)(most / 127.0f), 10))
		return 0;
	for (int i = 0; i < 32; i++) {
		const float q = most > 0 ? x[i] * (1.0f / (most / 127.0f)) : 0;
		const double want = copysign(floor(fabs((double)q) + 0.5), (double)q);

		if ((double)(signed char)bytes[2 + i] != want)
			return 0;
	}
	return 1;
}

static void compare_values(const gguf_tensor_t *t, const float *want, size_t n)
{
	size_t wrong = 0;

	for (size_t i = 0; i < n; i++) {
		uint16_t half;
		float value;

		memcpy(&half, t->data + 2 * i, t->type == 0 || t->type == 8 ? 0 : sizeof(half));
		if (t->type == 0) {
			memcpy(&value, t->data + 4 * i, sizeof(value));
			wrong += memcmp(&value, &want[i], sizeof(value)) != 0;
		} else if (t->type == 8) {
			wrong += i % 32 == 0 && !is_q8(t->data + i / 32 * 34, want + i);
		} else {
			const int fraction = t->type == 1 ? 10 : 7;

			wrong += gguf_decode(half, fraction) !=
				 gguf_round((double)want[i], fraction);
		}
	}
	CHECK_MSG(wrong == 0, "%zu values or blocks of %s", wrong, t->name);
}

/* Factors of frequencies: divided by them, the plain ones are those of rope_type llama3. */
static void check_factors(const folder_t *f, const gguf_tensor_t *t)
{
	float plain[256], scaled[256], factor;
	srt_rope_t rope = f->config.rope;

	CHECK_OR_DIE(rope.kind == SRT_ROPE_LLAMA3 && t->type == 0 &&
		     t->ne[0] == (uint64_t)rope.dim / 2 && t->ne[0] <= 256);
	CHECK_OK(srt_rope_inv_freq(&rope, scaled));
	rope.kind = SRT_ROPE_NONE;
	CHECK_OK(srt_rope_inv_freq(&rope, plain));
	for (size_t i = 0; i < t->ne[0]; i++) {
		memcpy(&factor, t->data + 4 * i, sizeof(factor));
		CHECK_MSG(fabsf(plain[i] / factor - scaled[i]) <= 1e-6f * scaled[i], "factor %zu",
			  i);
	}
}

static void check_tensor(const folder_t *f, const gguf_tensor_t *t, char *used)
{
	srt_file_tensor_t source = SRT_FILE_TENSOR_INIT, other = SRT_FILE_TENSOR_INIT;
	const size_t columns = t->ndim == 2 ? t->ne[0] : 1;
	const size_t rows = t->ndim == 2 ? t->ne[1] : t->ne[0];
	const int is_norm = strstr(t->name, "norm.weight") != NULL;
	float *from, *want;
	char name[256];

	if (strcmp(t->name, "rope_freqs.weight") == 0) {
		check_factors(f, t);
		return;
	}
	find_name(f, t->name, name, sizeof(name));
	want = calloc(rows * columns, sizeof(*want));
	CHECK_OR_DIE(want != NULL);
	if (is_type(f, "gpt_neox") && !f->config.qkv_bias && strstr(t->name, "attn_") != NULL &&
	    strstr(t->name, ".bias") != NULL && !is_norm && strstr(t->name, "norm") == NULL) {
		CHECK(srt_file_find(f->file, name, NULL) != SRT_OK); /* zeros */
		compare_values(t, want, rows * columns);
		free(want);
		return;
	}
	from = read_values(f, name, &source);
	CHECK_OR_DIE(source.nelem == rows * columns);
	for (size_t r = 0; r < rows; r++)
		for (size_t c = 0; c < columns; c++)
			want[r * columns + c] = from[find_place(f, t->name, rows, columns, r, c)] +
						(is_norm && is_type(f, "gemma3_text") ? 1.0f : 0);
	compare_values(t, want, rows * columns);
	for (size_t i = 0; srt_file_at(f->file, i, &other) == SRT_OK; i++)
		used[i] |= strcmp(other.name, name) == 0;
	free(from);
	free(want);
}

static void check_tensors(const folder_t *f, const gguf_file_t *g)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	char *used = calloc(srt_file_count(f->file) + 1, 1);

	CHECK_OR_DIE(used != NULL);
	for (size_t i = 0; i < g->ntensors; i++)
		check_tensor(f, &g->tensors[i], used);
	for (size_t i = 0; srt_file_at(f->file, i, &t) == SRT_OK; i++)
		CHECK_MSG(used[i], "%s is not in the file", t.name);
	free(used);
}

/* ---- the tokenizer ---------------------------------------------------------------------- */

static void check_tokens(const srt_tokenizer_t *t, const gguf_file_t *g)
{
	const gguf_key_t *tokens = gguf_find(g, "tokenizer.ggml.tokens");
	const gguf_key_t *types = gguf_find(g, "tokenizer.ggml.token_type");

	CHECK_OR_DIE(tokens != NULL && types != NULL && tokens->n == types->n);
	CHECK((int64_t)tokens->n >= srt_tokenizer_vocab_size(t));
	for (size_t i = 0; i < tokens->n; i++) {
		char text[512];

		snprintf(text, sizeof(text), "%.*s", (int)tokens->texts[i].n,
			 tokens->texts[i].data);
		if (tokens->texts[i].n < sizeof(text) && types->numbers[i] != 5)
			CHECK_INT(srt_tokenizer_find(t, text), (int32_t)i);
	}
}

/* The token of a text; -1 for none. */
static int find_token(const gguf_key_t *tokens, const char *text, size_t n)
{
	for (size_t i = 0; i < tokens->n; i++)
		if (tokens->texts[i].n == n && memcmp(tokens->texts[i].data, text, n) == 0)
			return (int)i;
	return -1;
}

/* Readers begin with characters and join the pair with the largest score, the first of equal ones,
 * until there is none. A blank is put before the text, whose characters are tokens. */
static void check_scores(const srt_tokenizer_t *t, const gguf_file_t *g)
{
	static const char text[] = " ROMEO: But, soft! what light through yonder window breaks? "
				   "It is the east, and Juliet is the sun.";
	const gguf_key_t *tokens = gguf_find(g, "tokenizer.ggml.tokens");
	const gguf_key_t *scores = gguf_find(g, "tokenizer.ggml.scores");
	char spaced[3 * sizeof(text) + 3] = "";
	size_t start[sizeof(spaced)], n = 0, nids = 0;
	int32_t *ids;

	CHECK_OR_DIE(tokens != NULL && scores != NULL && scores->n == tokens->n);
	for (size_t i = 0, end = 0; i < sizeof(text) - 1; i++) {
		const int is_blank = text[i] == ' ';

		start[n++] = end;
		end += (size_t)snprintf(spaced + end, sizeof(spaced) - end, "%s%.*s",
					is_blank ? "\xe2\x96\x81" : "", !is_blank, text + i);
	}
	start[n] = strlen(spaced);
	for (;;) {
		size_t best = n;
		double most = -HUGE_VAL;

		for (size_t i = 0; i + 1 < n; i++) {
			const int id =
				find_token(tokens, spaced + start[i], start[i + 2] - start[i]);

			if (id >= 0 && scores->numbers[id] > most) {
				most = scores->numbers[id];
				best = i;
			}
		}
		if (best == n)
			break;
		memmove(&start[best + 1], &start[best + 2], (n - best - 1) * sizeof(start[0]));
		n--;
	}
	CHECK_OK(srt_tokenizer_encode(t, text + 1, sizeof(text) - 2, 0, &ids, &nids));
	CHECK_INT(n, nids);
	for (size_t i = 0; i < n && i < nids; i++)
		CHECK_INT(find_token(tokens, spaced + start[i], start[i + 1] - start[i]), ids[i]);
	free(ids);
}

static void check_tokenizer(const folder_t *f, const gguf_file_t *g)
{
	srt_tokenizer_t *t;
	char path[1024];

	snprintf(path, sizeof(path), "%s/tokenizer.json", f->path);
	if (access(path, F_OK) != 0)
		return;
	CHECK_OK_OR_DIE(srt_tokenizer_open(f->path, &t));
	check_tokens(t, g);
	if (gguf_find(g, "tokenizer.ggml.scores") != NULL)
		check_scores(t, g);
	srt_tokenizer_close(t);
}

int main(int argc, char **argv)
{
	folder_t folder = { .path = argc > 2 ? argv[2] : NULL };
	const srt_family_t *family;
	gguf_file_t file;
	char path[1024];

	CHECK_OR_DIE(argc == 2 || argc == 3);
	gguf_read(argv[1], &file);
	gguf_print(&file);
	if (argc == 3) {
		snprintf(path, sizeof(path), "%s/config.json", argv[2]);
		CHECK_OK_OR_DIE(srt_family_read_config(path, &family, &folder.config));
		folder.type = srt_family_name(family);
		CHECK_OK_OR_DIE(srt_file_open(argv[2], &folder.file));
		check_tensors(&folder, &file);
		check_tokenizer(&folder, &file);
		srt_file_close(folder.file);
	}
	gguf_free(&file);
	return check_done();
}
