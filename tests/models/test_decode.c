/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decoding has the bits of training: tokens and log-probabilities of a Llama, a Qwen3 and a Mistral
 * with a window, in fp32 and bf16, whatever the batch and the chunks of prompts, with ddp, zero3,
 * flat units and offload, and with weights that are gathered once, at every world size, with tensor
 * parts also at every number of tensor-parallel ranks;
 * log-probabilities are minus the losses of a pass over whole rows, alone or packed. Digests hold
 * that on all devices and instruction sets (test_decode.sh). Also: what ends a sequence, and what
 * is refused.
 */
#include <stdlib.h>
#include <string.h>

#include <shardrt/shardrt.h>

#include <shardrt/models/generate.h>
#include "tests/harness/bits.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

enum { LENGTH = 48, NPROMPTS = 9, NEW = 12, VOCAB = 61 };

static srt_context_t *context;
static srt_device_t *device;
static srt_stream_t *stream;

/* ---- models ------------------------------------------------------------------------------- */

#define NAMES                                                                                      \
	.root = "Decoder", .block = "Block", .blocks = "blocks", .embedding = "embedding",         \
	.norm = "norm", .head = "head",                                                            \
	.part = { [SRT_DECODER_NORM1] = "norm1",   [SRT_DECODER_Q] = "q",                          \
		  [SRT_DECODER_K] = "k",           [SRT_DECODER_V] = "v",                          \
		  [SRT_DECODER_Q_NORM] = "q_norm", [SRT_DECODER_K_NORM] = "k_norm",                \
		  [SRT_DECODER_O] = "o",           [SRT_DECODER_NORM2] = "norm2",                  \
		  [SRT_DECODER_GATE] = "gate",     [SRT_DECODER_UP] = "up",                        \
		  [SRT_DECODER_DOWN] = "down" }

static const srt_decoder_names_t names = { NAMES };

/* Large initial values, so that every key counts. */
#define SIZES                                                                                      \
	.names = &names, .layers = 2, .width = 32, .heads = 4, .kv_heads = 2, .ffn_width = 40,     \
	.vocab = VOCAB, .context = 64, .norm_eps = 1e-5f, .gated = 1, .rotary = 1,                 \
	.init_std = 0.4f

static const struct model {
	const char *name;
	srt_decoder_config_t config;
	uint64_t digests[2][2]; /* without tensor parts, with: fp32, bf16 */
} models[] = {
	{ "llama",
	  { SIZES, .rope = { .size = sizeof(srt_rope_t), .dim = 8, .base = 10000.0f } },
	  { { 0x57f2b6a3b8e057aau, 0xe1bc05ae4e93cc0bu },
	    { 0x6f37932373b3602eu, 0xa7ba5b73e72b226bu } } },
	{ "qwen3",
	  { SIZES, .head_dim = 16, .qk_norm = SRT_DECODER_QK_HEAD, .tied = 1,
	    .rope = { .size = sizeof(srt_rope_t), .dim = 16, .base = 1000000.0f } },
	  { { 0xe6a4f525f789a015u, 0xd4879a30c64691f5u },
	    { 0x9fdf01f2036661eau, 0xb9535ce9b19a62efu } } },
	{ "mistral",
	  { SIZES, .window = 5,
	    .rope = { .size = sizeof(srt_rope_t), .dim = 8, .base = 10000.0f } },
	  { { 0x65ac165c31248cd6u, 0x8787b7da168d5507u },
	    { 0x177e8a8e27f96ba1u, 0xa46f0bda88c04badu } } },
};

typedef struct opened {
	srt_mesh_t *mesh; /* NULL: without tensor parts */
	int is_cut;       /* over several ranks, which generate one sequence at a time */
	srt_engine_t *engine;
	srt_decoder_t *decoder;
	srt_decoder_weights_t *weights; /* NULL: the passes gather */
	srt_generator_t *generator;
	srt_buffer_t *arena;
} opened_t;

/* How the ranks share the parameters. */
static const struct layout {
	const char *name;
	srt_strategy_t strategy;
	srt_flat_t flat;
	srt_offload_t offload;
	int parts; /* and all ranks are tensor-parallel ones; 0: none */
} layouts[] = {
	{ .name = "zero3", .strategy = SRT_STRATEGY_ZERO3 },
	{ .name = "ddp", .strategy = SRT_STRATEGY_DDP },
	{ .name = "flat, offload",
	  .strategy = SRT_STRATEGY_ZERO3,
	  .flat = SRT_FLAT_VIEWS,
	  .offload = { .params = 1, .grads = 1, .state = 1 } },
	{ .name = "tensor parts", .strategy = SRT_STRATEGY_ZERO3, .parts = 4 },
};

static void open_model(opened_t *m, const srt_decoder_config_t *config, const struct layout *layout,
		       int is_bf16)
{
	const srt_precision_t precision = { .size = sizeof(precision),
					    .param = is_bf16 ? SRT_BF16 : SRT_F32,
					    .reduce = SRT_F32 };
	const char *const dims[] = { "dp", SRT_MODEL_TENSOR_DIM };
	const int size[] = { 1, srt_context_world_size(context) };
	srt_decoder_config_t sizes = *config;
	srt_model_options_t model = { .flat = layout->flat };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;

	*m = (opened_t){ 0 };
	if (layout->parts > 0) {
		CHECK_OK_OR_DIE(
			srt_mesh_create(srt_context_world(context), 2, size, dims, &m->mesh));
		sizes.tensor_parts = sizes.kv_heads = layout->parts;
		model.mesh = m->mesh;
		m->is_cut = size[1] > 1;
	}
	options.mesh = m->mesh;
	options.strategy = layout->strategy;
	options.offload = layout->offload;
	options.precision = &precision;
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_decoder_declare(m->engine, &sizes, &model, &m->decoder));
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	CHECK_OK_OR_DIE(srt_decoder_init(m->decoder, 5, stream));
}

static void open_generator(opened_t *m, int64_t sequences, int64_t chunk)
{
	const srt_generator_options_t options = {
		.sequences = sequences, .length = LENGTH, .chunk = chunk, .weights = m->weights
	};

	CHECK_OK_OR_DIE(srt_generator_create(m->decoder, device, &options, &m->generator));
	CHECK_OK_OR_DIE(srt_buffer_create(device, srt_decoder_mem_kind(m->decoder),
					  srt_generator_arena_nbytes(m->generator), "arena",
					  &m->arena));
	CHECK_OK_OR_DIE(srt_generator_bind(m->generator, m->arena));
}

static void close_generator(opened_t *m)
{
	CHECK_OK(srt_stream_sync(stream));
	srt_generator_destroy(m->generator);
	srt_buffer_destroy(m->arena);
}

static void close_model(opened_t *m)
{
	CHECK_OK(srt_stream_sync(stream));
	srt_decoder_destroy(m->decoder);
	srt_engine_destroy(m->engine);
	srt_mesh_destroy(m->mesh);
}

/* ---- texts -------------------------------------------------------------------------------- */

/* Prompts, and what was generated after them; different lengths, so that places become free. */
typedef struct texts {
	int32_t prompts[NPROMPTS][LENGTH], tokens[NPROMPTS][NEW];
	float logprobs[NPROMPTS][NEW];
	srt_sequence_t sequences[NPROMPTS];
} texts_t;

static void generate(opened_t *m, const srt_sampling_t *sampling, texts_t *t)
{
	static const int lengths[NPROMPTS] = { 1, 5, 2, 17, 9, 30, 3, 12, 7 };
	static const int new_tokens[NPROMPTS] = { 12, 3, 7, 12, 1, 9, 12, 5, 12 };

	memset(t, 0, sizeof(*t));
	for (int i = 0; i < NPROMPTS; i++) {
		for (int k = 0; k < lengths[i]; k++)
			t->prompts[i][k] = (7 * i + 11 * k + k * k) % VOCAB;
		t->sequences[i] = (srt_sequence_t){ .prompt = t->prompts[i],
						    .nprompt = lengths[i],
						    .max_tokens = new_tokens[i],
						    .key = (uint64_t)i,
						    .tokens = t->tokens[i],
						    .logprobs = t->logprobs[i] };
	}
	CHECK_OK(srt_decoder_generate(m->generator, sampling, t->sequences, NPROMPTS, NULL, NULL,
				      stream));
	for (int i = 0; i < NPROMPTS; i++)
		CHECK(t->sequences[i].ntokens == new_tokens[i] &&
		      t->sequences[i].finish == SRT_FINISH_LENGTH);
}

/* How many tokens and log-probabilities have other bits. */
static int count_differing(const texts_t *a, const texts_t *b)
{
	int n = 0;

	for (int i = 0; i < NPROMPTS; i++)
		for (int t = 0; t < NEW; t++)
			n += a->tokens[i][t] != b->tokens[i][t] ||
			     memcmp(&a->logprobs[i][t], &b->logprobs[i][t], sizeof(float)) != 0;
	return n;
}

static uint64_t add_digest(uint64_t h, const texts_t *t)
{
	for (int i = 0; i < NPROMPTS; i++) {
		float tokens[NEW];

		for (int k = 0; k < NEW; k++)
			tokens[k] = (float)t->tokens[i][k];
		h = digest_floats(h, tokens, NEW);
		h = digest_floats(h, t->logprobs[i], NEW);
	}
	return h;
}

/* ---- losses of whole rows ----------------------------------------------------------------- */

/* A row of the texts first .. last - 1, one after the other. */
typedef struct row {
	int32_t ids[64], targets[64], positions[64];
	float want[64]; /* log-probabilities; 1: none */
	int64_t n;
} row_t;

static void append_text(row_t *row, const texts_t *t, int i)
{
	const srt_sequence_t *s = &t->sequences[i];

	for (int64_t k = 0; k < s->nprompt + s->ntokens - 1; k++, row->n++) {
		const int is_new = k >= s->nprompt - 1;

		row->ids[row->n] = k < s->nprompt ? s->prompt[k] : s->tokens[k - s->nprompt];
		row->positions[row->n] = (int32_t)k;
		row->targets[row->n] = is_new ? s->tokens[k - s->nprompt + 1] : -1;
		row->want[row->n] = is_new ? s->logprobs[k - s->nprompt + 1] : 1.0f;
	}
}

/* The log-probabilities of texts first .. last - 1 in one row are minus its losses. */
static void check_losses(opened_t *m, const texts_t *t, int first, int last, const char *label)
{
	srt_decoder_pass_t pass = { .batch = 1, .documents = 1, .loss = 1 };
	row_t row = { .n = 0 };
	float losses[64];
	srt_decoder_io_t io;
	srt_buffer_t *arena;
	srt_tape_t *tape;
	srt_view_t view;
	int differing = 0;

	for (int i = first; i < last; i++)
		append_text(&row, t, i);
	pass.context = row.n;
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
	CHECK_OK_OR_DIE(srt_decoder_record(m->decoder, tape, &pass, &io));
	CHECK_OK_OR_DIE(srt_buffer_create(device, srt_tape_mem_kind(tape), srt_tape_nbytes(tape),
					  "arena", &arena));
	CHECK_OK_OR_DIE(srt_tape_bind(tape, arena));
	CHECK_OK(srt_decoder_put_tokens(&io, row.ids, row.targets, stream));
	CHECK_OK(srt_decoder_put_positions(&io, row.positions, stream));
	CHECK_OK(srt_tape_forward(tape, stream));
	view = srt_tensor_view(io.loss);
	CHECK_OK(srt_buffer_copy_to_host(losses, view.buffer, view.offset,
					 (size_t)row.n * sizeof(float), stream));
	for (int64_t k = 0; k < row.n; k++)
		differing +=
			row.want[k] <= 0.0f && memcmp(&(float){ -losses[k] }, &row.want[k], 4) != 0;
	CHECK_MSG(differing == 0, "%s: %d log-probabilities of texts %d to %d are not the losses",
		  label, differing, first, last - 1);
	srt_tape_destroy(tape);
	srt_buffer_destroy(arena);
}

/* ---- the tests ---------------------------------------------------------------------------- */

/* Each batch with each size of chunks and each layout in check-long; in make check each once, on
 * devices other than the cpu, which differ in the operations alone, two with zero3; in parts 1. */
static int is_cpu(void)
{
	const char *backend = getenv("SHARDRT_BACKEND");

	return backend == NULL || strcmp(backend, "cpu") == 0;
}

static int has_run(const opened_t *m, int batch, int chunk)
{
	const int step = m->mesh != NULL ? 4 : is_cpu() ? 1 : 2;

	return check_is_long() || (batch == chunk && batch % step == 0);
}

/* With gathered weights each rank generates for itself, here rank r r + 1 times. */
static void test_weights(opened_t *m, const srt_sampling_t *sampling, const texts_t *want,
			 const char *label)
{
	static texts_t got;

	CHECK_OK_OR_DIE(srt_decoder_weights_create(m->decoder, device, &m->weights));
	CHECK_OK_OR_DIE(srt_decoder_weights_gather(m->weights, stream));
	open_generator(m, 4, 8);
	for (int i = 0; i <= srt_context_rank(context); i++) {
		generate(m, sampling, &got);
		CHECK_MSG(count_differing(&got, want) == 0, "%s: weights: %d tokens differ", label,
			  count_differing(&got, want));
	}
	close_generator(m);
	srt_decoder_weights_destroy(m->weights);
	m->weights = NULL;
}

static void test_model(const struct model *model, const struct layout *layout, int is_bf16)
{
	static const int batches[] = { 64, 1, 2, 7 }, chunks[] = { LENGTH, 1, 5, 64 };
	const srt_sampling_t sampled = {
		.temperature = 0.9f, .top_k = 20, .top_p = 0.9f, .seed = 3
	};
	const srt_sampling_t *const samplings[] = { &(srt_sampling_t){ 0 }, &sampled };
	static texts_t first[2], other;
	uint64_t h = DIGEST_START;
	char label[64];
	opened_t m;

	snprintf(label, sizeof(label), "%s, %s, %s", model->name, is_bf16 ? "bf16" : "fp32",
		 layout->name);
	open_model(&m, &model->config, layout, is_bf16);
	for (int b = 0; b < 4; b++) {
		for (int c = 0; c < 4; c++) {
			if (!has_run(&m, b, c))
				continue;
			open_generator(&m, m.is_cut ? 1 : batches[b], chunks[c]);
			for (int s = 0; s < 2; s++) {
				texts_t *to = b + c > 0 ? &other : &first[s];

				generate(&m, samplings[s], to);
				CHECK_MSG(count_differing(to, &first[s]) == 0,
					  "%s: batch %d, chunks of %d: %d tokens differ", label,
					  batches[b], chunks[c], count_differing(to, &first[s]));
			}
			close_generator(&m);
		}
	}
	if (!m.is_cut)
		test_weights(&m, &sampled, &first[1], label);
	for (int s = 0; s < 2; s++) {
		h = add_digest(h, &first[s]);
		for (int i = 0; i < NPROMPTS; i++)
			check_losses(&m, &first[s], i, i + 1, label);
		check_losses(&m, &first[s], 0, 3, label);
		check_losses(&m, &first[s], 6, 9, label);
	}
	CHECK_MSG(h == model->digests[m.mesh != NULL][is_bf16],
		  "%s: tokens and log-probabilities have the digest 0x%016llxu", label,
		  (unsigned long long)h);
	close_model(&m);
}

/* A caller's function that ends a sequence after its third token. */
static int stop_third(void *arg, srt_sequence_t *sequence)
{
	(*(int *)arg)++;
	return sequence->ntokens == 3;
}

static void test_ends(void)
{
	int32_t prompt[LENGTH + 1] = { 3, 1, 4 }, tokens[LENGTH], all[LENGTH];
	srt_sequence_t s = { .prompt = prompt, .nprompt = 3, .max_tokens = LENGTH, .tokens = all };
	srt_sampling_t greedy = { 0 };
	int ncalls = 0;
	opened_t m;

	open_model(&m, &models[0].config, &layouts[0], 0);
	open_generator(&m, 2, 0);
	/* up to the generator's length, the prompt included */
	CHECK_OK(srt_decoder_generate(m.generator, &greedy, &s, 1, NULL, NULL, stream));
	CHECK(s.ntokens == LENGTH - 3 && s.finish == SRT_FINISH_LENGTH);
	s.tokens = tokens;
	CHECK_OK(srt_decoder_generate(m.generator, &greedy, &s, 1, stop_third, &ncalls, stream));
	CHECK(s.ntokens == 3 && s.finish == SRT_FINISH_STOPPED && ncalls == 3);
	CHECK(memcmp(tokens, all, 3 * sizeof(*all)) == 0);
	/* an end token is the last one */
	greedy.eos = &all[5];
	greedy.neos = 1;
	CHECK_OK(srt_decoder_generate(m.generator, &greedy, &s, 1, NULL, NULL, stream));
	CHECK(s.finish == SRT_FINISH_EOS && s.ntokens >= 1 && s.ntokens <= 6 &&
	      tokens[s.ntokens - 1] == all[5]);
	/* nothing to generate */
	s.max_tokens = 0;
	CHECK_OK(srt_decoder_generate(m.generator, &greedy, &s, 1, NULL, NULL, stream));
	CHECK(s.ntokens == 0 && s.finish == SRT_FINISH_LENGTH);
	s.max_tokens = 1;
	s.nprompt = LENGTH;
	CHECK_OK(srt_decoder_generate(m.generator, &greedy, &s, 1, NULL, NULL, stream));
	CHECK(s.ntokens == 0 && s.finish == SRT_FINISH_LENGTH);
	close_generator(&m);
	close_model(&m);
}

static void check_refused(opened_t *m, const srt_sampling_t *sampling, const int32_t *prompt,
			  int64_t n, const char *message)
{
	int32_t token;
	srt_sequence_t s = { .prompt = prompt, .nprompt = n, .max_tokens = 1, .tokens = &token };

	CHECK_STATUS(srt_decoder_generate(m->generator, sampling, &s, 1, NULL, NULL, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(message);
}

/* Inputs that do not fit the pass or its cache, and passes that cannot be. */
static void test_inputs(void)
{
	static const int32_t ids[8], before[2] = { 3, LENGTH };
	const srt_decoder_pass_t wrong[] = { { .batch = 2, .context = 4 },
					     { .batch = 1, .context = 4, .documents = 1 },
					     { .batch = 2, .context = 2, .step = 1 } };
	srt_decoder_pass_t pass = { .batch = 1, .context = 4 };
	srt_decoder_cache_t *cache;
	srt_decoder_io_t io;
	srt_tape_t *tape;
	opened_t m;

	open_model(&m, &models[0].config, &layouts[0], 0);
	CHECK_OK_OR_DIE(srt_decoder_cache_create(m.decoder, device, 2, LENGTH, &cache));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		pass = wrong[i];
		pass.cache = cache;
		CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
		CHECK_STATUS(srt_decoder_record(m.decoder, tape, &pass, &io),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("a pass with a cache has one row");
		srt_tape_destroy(tape);
	}
	for (int step = 0; step < 2; step++) {
		pass = (srt_decoder_pass_t){
			.batch = step ? 2 : 1, .context = step ? 1 : 4, .cache = cache, .step = step
		};
		CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
		CHECK_OK_OR_DIE(srt_decoder_record(m.decoder, tape, &pass, &io));
		CHECK_STATUS(step ? srt_decoder_put_chunk(&io, 0, 0, ids, 1, stream) :
				    srt_decoder_put_step(&io, before, ids, 1, stream),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("the pass was recorded for");
		CHECK_STATUS(step ? srt_decoder_put_step(&io, before, ids, 2, stream) :
				    srt_decoder_put_chunk(&io, 1, LENGTH - 3, ids, 4, stream),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("the cache has 2 sequences of 48 tokens");
		srt_tape_destroy(tape);
	}
	CHECK_STATUS(srt_decoder_cache_move(cache, 1, 1, 3, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_decoder_cache_move(cache, 1, 2, 3, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("3 tokens of sequence 1 cannot be copied to sequence 2");
	srt_decoder_cache_destroy(cache);
	close_model(&m);
}

static void test_refused(void)
{
	const srt_generator_options_t wrong[] = { { .sequences = 0, .length = 8 },
						  { .sequences = 1, .length = 0 },
						  { .sequences = 1, .length = 65 },
						  { .sequences = 1, .length = 8, .chunk = -1 } };
	const int32_t prompt[LENGTH + 1] = { 0 }, outside[] = { 2, VOCAB }, below[] = { -1 };
	const srt_sampling_t greedy = { 0 };
	srt_generator_t *generator = NULL;
	opened_t m;

	open_model(&m, &models[0].config, &layouts[1], 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK_STATUS(srt_generator_create(m.decoder, device, &wrong[i], &generator),
			     SRT_ERR_INVALID_ARGUMENT);
	CHECK(generator == NULL);
	open_generator(&m, 2, 0);
	check_refused(&m, &greedy, prompt, 0, "prompt 0 is empty");
	check_refused(&m, &greedy, prompt, LENGTH + 1,
		      "has 49 tokens, but a sequence has at most 48");
	check_refused(&m, &greedy, outside, 2, "token 1 of prompt 0 is 61, but the vocabulary has");
	check_refused(&m, &greedy, below, 1, "token 0 of prompt 0 is -1");
	check_refused(&m, &(srt_sampling_t){ .temperature = -1.0f }, prompt, 1, "temperature -1");
	check_refused(&m, &(srt_sampling_t){ .top_p = 1.5f }, prompt, 1, "a sum of 1.5");
	check_refused(&m, &(srt_sampling_t){ .vocab = VOCAB + 1 }, prompt, 1, "62 tokens");
	close_generator(&m);
	close_model(&m);
}

/* With an argument a model with tensor parts alone: on more ranks. */
int main(int argc, char **argv)
{
	(void)argv;
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "test", &stream));
	if (argc > 1)
		test_model(&models[1], &layouts[sizeof(layouts) / sizeof(layouts[0]) - 1], 1);
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]) && argc == 1; i++)
		for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
			for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++)
				if (k == 0 || check_is_long() || is_cpu())
					test_model(&models[i], &layouts[k], is_bf16);
	test_ends();
	test_inputs();
	test_refused();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
