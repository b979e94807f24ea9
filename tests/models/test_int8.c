/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A base in 8 bits, of a Llama with grouped heads and of a decoder with a joint projection: codes
 * and scales are those of srt_quantize() of the floats that a file has, with matrices as they are,
 * transposed and in rows by head, at every world size and over tensor-parallel ranks; and a step of
 * adapters has the bits of one over the widened weights as floats, with zero3, ddp, flat units,
 * offload and recomputation. Run by test_int8.sh.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shardrt/shardrt.h>

#include <shardrt/models/lora.h>
#include "tests/harness/bits.h"
#include "tests/harness/check.h"
#include "tests/harness/job.h"

enum { VOCAB = 61, BATCH = 2, CONTEXT = 24, TOKENS = BATCH * CONTEXT };

static srt_context_t *context;
static srt_stream_t *stream;
static int rank, world;

/* ---- models ------------------------------------------------------------------------------- */

#define COMMON                                                                                     \
	.root = "Decoder", .block = "Block", .blocks = "blocks", .embedding = "embedding",         \
	.norm = "norm", .head = "head"

static const srt_decoder_names_t llama_names = {
	COMMON,
	.part = { [SRT_DECODER_NORM1] = "norm1",
		  [SRT_DECODER_Q] = "q",
		  [SRT_DECODER_K] = "k",
		  [SRT_DECODER_V] = "v",
		  [SRT_DECODER_O] = "o",
		  [SRT_DECODER_NORM2] = "norm2",
		  [SRT_DECODER_GATE] = "gate",
		  [SRT_DECODER_UP] = "up",
		  [SRT_DECODER_DOWN] = "down" },
};
static const srt_decoder_names_t joint_names = {
	COMMON,
	.positions = "positions",
	.part = { [SRT_DECODER_NORM1] = "norm1",
		  [SRT_DECODER_QKV] = "attn.qkv",
		  [SRT_DECODER_O] = "attn.o",
		  [SRT_DECODER_NORM2] = "norm2",
		  [SRT_DECODER_UP] = "up",
		  [SRT_DECODER_DOWN] = "down" },
};

/* Rows of more than one block, the last one shorter; of the Llama o and down can be cut in two. */
static const struct model {
	const char *name;
	srt_decoder_config_t config;
	int can_be_cut;
} models[] = {
	{ "llama",
	  { .names = &llama_names,
	    .layers = 2,
	    .width = 72,
	    .heads = 8,
	    .kv_heads = 2,
	    .head_dim = 16,
	    .ffn_width = 128,
	    .vocab = VOCAB,
	    .context = 32,
	    .norm_eps = 1e-5f,
	    .gated = 1,
	    .rotary = 1,
	    .qkv_bias = 1,
	    .init_std = 0.2f,
	    .rope = { .size = sizeof(srt_rope_t), .dim = 16, .base = 10000.0f } },
	  1 },
	{ "joint",
	  { .names = &joint_names,
	    .layers = 1,
	    .width = 72,
	    .heads = 3,
	    .ffn_width = 200,
	    .vocab = VOCAB,
	    .context = 32,
	    .norm = SRT_DECODER_LAYERNORM,
	    .norm_eps = 1e-5f,
	    .qkv_bias = 1,
	    .o_bias = 1,
	    .ffn_bias = 1,
	    .tied = 1,
	    .init_std = 0.2f },
	  0 },
};

/* How a job has the parameters. */
typedef struct layout {
	srt_strategy_t strategy;
	srt_flat_t flat;
	int offload, recompute, tensor_parallel;
} layout_t;

static const layout_t layouts[] = {
	{ SRT_STRATEGY_ZERO3, SRT_FLAT_NO, 0, 0, 0 },
	{ SRT_STRATEGY_DDP, SRT_FLAT_NO, 0, 1, 0 },
	{ SRT_STRATEGY_ZERO3, SRT_FLAT_PADDED, 1, 0, 0 },
};

typedef struct opened {
	srt_mesh_t *mesh;
	srt_engine_t *engine;
	srt_decoder_t *decoder;
} opened_t;

static void open_model(opened_t *m, const struct model *model, const layout_t *layout,
		       srt_dtype_t base)
{
	static const char *const dims[] = { "dp", "tp" };
	const int sizes[] = { world / 2, 2 };
	const srt_lora_t lora = { .r = 4, .alpha = 8 };
	srt_model_options_t how = { .flat = layout->flat,
				    .recompute = layout->recompute,
				    .lora = &lora,
				    .base_dtype = base };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;

	*m = (opened_t){ 0 };
	options.strategy = layout->strategy;
	options.offload.params = options.offload.grads = options.offload.state = layout->offload;
	if (layout->tensor_parallel)
		CHECK_OK_OR_DIE(
			srt_mesh_create(srt_context_world(context), 2, sizes, dims, &m->mesh));
	options.mesh = m->mesh;
	how.mesh = m->mesh;
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_decoder_declare(m->engine, &model->config, &how, &m->decoder));
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
}

static void close_model(opened_t *m)
{
	CHECK_OK(srt_stream_sync(stream));
	srt_decoder_destroy(m->decoder);
	srt_engine_destroy(m->engine);
	srt_mesh_destroy(m->mesh);
}

/* ---- the floats, and the 8 bits that they should become ------------------------------------ */

static int is_linear(const srt_param_t *param)
{
	const char *name = srt_param_name(param);
	int64_t shape[SRT_MAX_DIMS];

	return strncmp(name, "blocks.", 7) == 0 && strstr(name, ".lora_") == NULL &&
	       srt_param_shape(param, shape) == 2;
}

static void *get_values(srt_param_t *param)
{
	void *values = malloc((size_t)srt_param_nelem(param) * sizeof(float) + 1);

	CHECK_OR_DIE(values != NULL);
	CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, values, stream));
	return values;
}

/* The weight's name, with this end for "weight". */
static srt_param_t *find_int8(const opened_t *m, const srt_param_t *weight, const char *end)
{
	const char *name = srt_param_name(weight);
	srt_param_t *found;
	char text[128];

	snprintf(text, sizeof(text), "%.*s.int8.%s", (int)(strlen(name) - strlen(".weight")), name,
		 end);
	found = srt_engine_param_find(m->engine, text);
	CHECK_OR_DIE(found != NULL);
	return found;
}

/* Compares a weight's codes and scales with srt_quantize()'s; then the weight becomes what they
 * stand for. */
static void check_weight(const opened_t *m, srt_param_t *weight)
{
	int64_t shape[SRT_MAX_DIMS];
	srt_param_t *codes = find_int8(m, weight, "codes"),
		    *scales = find_int8(m, weight, "scales");
	float *x = get_values(weight), *got_scales = get_values(scales), *want_scales;
	int8_t *got = get_values(codes), *want;
	int64_t nblocks;

	srt_param_shape(weight, shape);
	nblocks = (shape[1] + SRT_QUANT_BLOCK - 1) / SRT_QUANT_BLOCK;
	CHECK_INT(srt_param_nelem(scales), shape[0] * nblocks * 4);
	want = malloc((size_t)(shape[0] * shape[1]));
	want_scales = malloc((size_t)(shape[0] * nblocks) * sizeof(*want_scales));
	CHECK_OR_DIE(want != NULL && want_scales != NULL);
	CHECK_OK(srt_quantize(x, shape[0], shape[1], want, want_scales));
	CHECK_MSG(memcmp(got, want, (size_t)(shape[0] * shape[1])) == 0 &&
			  memcmp(got_scales, want_scales, (size_t)(shape[0] * nblocks) * 4) == 0,
		  "other 8 bits of %s", srt_param_name(weight));
	for (int64_t i = 0; i < shape[0] * shape[1]; i++)
		x[i] = (float)want[i] *
		       want_scales[i / shape[1] * nblocks + i % shape[1] / SRT_QUANT_BLOCK];
	CHECK_OK(srt_param_set(weight, SRT_PARAM_VALUE, x, stream));
	free(x);
	free(got);
	free(got_scales);
	free(want);
	free(want_scales);
}

/* All values of `floats` that are not in 8 bits are those of `int8` too. */
static void check_values(const opened_t *floats, const opened_t *int8)
{
	for (size_t i = 0; i < srt_engine_param_count(floats->engine); i++) {
		srt_param_t *param = srt_engine_param_at(floats->engine, i), *other;
		void *x, *y;

		if (is_linear(param)) {
			check_weight(int8, param);
			continue;
		}
		other = srt_engine_param_find(int8->engine, srt_param_name(param));
		CHECK_OR_DIE(other != NULL);
		x = get_values(param);
		y = get_values(other);
		CHECK_MSG(memcmp(x, y, (size_t)srt_param_nelem(param) * sizeof(float)) == 0,
			  "other values of %s", srt_param_name(param));
		free(x);
		free(y);
	}
}

/* ---- a step -------------------------------------------------------------------------------- */

/* Two steps of the adapters; the losses of the last one. */
static void train(opened_t *m, float losses[TOKENS])
{
	int32_t ids[TOKENS], targets[TOKENS];
	srt_decoder_io_t io;
	srt_buffer_t *arena;
	srt_tape_t *tape;

	for (int i = 0; i < TOKENS; i++)
		ids[i] = (i * 17 + (m->mesh ? 0 : rank)) % VOCAB, targets[i] = (i * 5 + 3) % VOCAB;
	CHECK_OK_OR_DIE(srt_tape_create(srt_context_device(context), SRT_TAPE_TRAINING, &tape));
	CHECK_OK_OR_DIE(srt_decoder_record_loss(m->decoder, tape, BATCH, CONTEXT, &io));
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), srt_tape_mem_kind(tape),
					  srt_tape_nbytes(tape), "arena", &arena));
	CHECK_OK_OR_DIE(srt_tape_bind(tape, arena));
	for (int step = 0; step < 2; step++) {
		CHECK_OK(srt_decoder_put_positions(&io, NULL, stream));
		CHECK_OK(srt_decoder_put_tokens(&io, ids, targets, stream));
		CHECK_OK_OR_DIE(srt_tape_forward(tape, stream));
		CHECK_OK_OR_DIE(
			srt_tape_backward(tape, 1.0f / TOKENS, srt_view(NULL, 0, SRT_F32), stream));
		CHECK_OK_OR_DIE(srt_engine_step(m->engine, stream));
	}
	CHECK_OK(srt_buffer_copy_to_host(losses, srt_tensor_view(io.loss).buffer,
					 srt_tensor_view(io.loss).offset, TOKENS * sizeof(*losses),
					 stream));
	CHECK_OK(srt_stream_sync(stream));
	srt_tape_destroy(tape);
	srt_buffer_destroy(arena);
}

static void check_adapters(const opened_t *a, const opened_t *b)
{
	size_t n = 0;

	for (size_t i = 0; i < srt_engine_param_count(a->engine); i++) {
		srt_param_t *param = srt_engine_param_at(a->engine, i);
		float *x, *y;

		if (strstr(srt_param_name(param), ".lora_") == NULL)
			continue;
		x = get_values(param);
		y = get_values(srt_engine_param_find(b->engine, srt_param_name(param)));
		CHECK_BITS(x, y, (size_t)srt_param_nelem(param));
		free(x);
		free(y);
		n++;
	}
	CHECK(n >= 8);
}

static void check_steps(opened_t *floats, opened_t *int8)
{
	float x[TOKENS], y[TOKENS];

	train(floats, x);
	train(int8, y);
	CHECK_BITS(x, y, TOKENS);
	check_adapters(floats, int8);
}

/* ---- files --------------------------------------------------------------------------------- */

/* Layouts of a file: as it is, matrices of blocks transposed, joint projections in rows by head. */
enum { PLAIN, TRANSPOSED, BY_HEAD, NFILES };

typedef struct file_layout {
	int kind;
	const srt_decoder_config_t *config;
} file_layout_t;

static int find_name(const char *name, srt_file_source_t *source, void *arg)
{
	const file_layout_t *f = arg;
	const char *end = strrchr(name, '.');

	source->name = name;
	if (strncmp(name, "blocks.", 7) != 0 || strstr(name, "norm") != NULL ||
	    strstr(name, ".lora_") != NULL)
		return 1;
	source->transposed = f->kind == TRANSPOSED && strcmp(end, ".weight") == 0;
	if (f->kind == BY_HEAD && strstr(name, ".qkv.") != NULL)
		source->interleaved_heads = f->config->heads;
	return 1;
}

/* The file has the adapters, too. */
static int is_adapter(const char *name, void *arg)
{
	(void)arg;
	return strstr(name, ".lora_") != NULL;
}

static void remove_folder(const char *folder)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/model.safetensors", folder);
	CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

/* A model of floats, saved, and loaded in 8 bits. */
static void test_file(const struct model *model, const layout_t *layout, int kind)
{
	file_layout_t file = { kind, &model->config };
	const srt_file_names_t names = {
		.size = sizeof(names), .find = find_name, .ignores = is_adapter, .arg = &file
	};
	srt_folder_options_t save = SRT_FOLDER_OPTIONS_INIT;
	opened_t floats, int8;
	char folder[64];

	save.names = &names;
	snprintf(folder, sizeof(folder), "tests/models/test_int8.w%d.tmp", world);
	open_model(&floats, model, layout, SRT_F32);
	open_model(&int8, model, layout, SRT_U8);
	CHECK_OK_OR_DIE(srt_decoder_init(floats.decoder, 9, stream));
	CHECK_OK_OR_DIE(srt_decoder_init(int8.decoder, 4, stream));
	CHECK_OK_OR_DIE(
		srt_engine_save_folder(floats.engine, rank == 0 ? folder : NULL, &save, stream));
	CHECK_OK_OR_DIE(srt_decoder_load_base(int8.decoder, folder, &names, stream));
	CHECK_OK(srt_decoder_init_lora(int8.decoder, 9, stream));
	check_values(&floats, &int8);
	if (kind == PLAIN)
		check_steps(&floats, &int8);
	close_model(&floats);
	close_model(&int8);
	if (rank == 0)
		remove_folder(folder);
}

/* Initial values are those of floats, rounded. */
static void test_initial(const struct model *model, const layout_t *layout)
{
	opened_t floats, int8;

	open_model(&floats, model, layout, SRT_F32);
	open_model(&int8, model, layout, SRT_U8);
	CHECK_OK_OR_DIE(srt_decoder_init(floats.decoder, 9, stream));
	CHECK_OK_OR_DIE(srt_decoder_init(int8.decoder, 9, stream));
	check_values(&floats, &int8);
	close_model(&floats);
	close_model(&int8);
}

int main(void)
{
	const layout_t cut = { .strategy = SRT_STRATEGY_ZERO3, .tensor_parallel = 1 };

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		for (size_t l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++)
			test_file(&models[i], &layouts[l], PLAIN);
		test_file(&models[i], &layouts[0], TRANSPOSED);
		test_initial(&models[i], &layouts[0]);
		if (world % 2 == 0 && models[i].can_be_cut) {
			test_file(&models[i], &cut, PLAIN);
			test_file(&models[i], &cut, TRANSPOSED);
			test_initial(&models[i], &cut);
		}
	}
	test_file(&models[1], &layouts[0], BY_HEAD);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
