/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numbers that models compute on the host do not depend on the caller's rounding mode.
 *
 * Reliability: a rounding mode of the caller, in models | other scales of attention and other
 * initial values | the same bits
 */
#include <fenv.h>

#include <shardrt/models/families.h>
#include <shardrt/models/generate.h>
#include <shardrt/models/layers.h>
#include "models/presets.h"
#include "models/tape_impl.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

enum { HEAD_DIMS = 64, WIDTH = 8, LAYERS = 4, CONTEXT = 25, N = 24 };

static const int modes[] = { FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };
#define MODES (sizeof(modes) / sizeof(modes[0]))

static srt_context_t *context;
static srt_device_t *device;
static srt_stream_t *stream;

/* The call returns with the rounding mode that it was made in. */
#define IN_MODE(mode, call)                                                                        \
	do {                                                                                       \
		fesetround(mode);                                                                  \
		CHECK_OK(call);                                                                    \
		CHECK_INT(fegetround(), mode);                                                     \
		fesetround(FE_TONEAREST);                                                          \
	} while (0)

static float attention_scale(int mode, int64_t head_dim)
{
	srt_tensor_t *y;
	srt_tape_t *tape;
	float scale;

	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &tape));
	y = srt_tape_input(tape, SRT_F32, 2, 3 * head_dim);
	fesetround(mode);
	y = srt_layer_attention(tape, y, 2, 1, 1);
	fesetround(FE_TONEAREST);
	CHECK_OR_DIE(y != NULL);
	scale = tape->nodes[y->producer].args.attention.scale;
	srt_tape_destroy(tape);
	return scale;
}

static void test_attention(void)
{
	for (int64_t head_dim = 1; head_dim <= HEAD_DIMS; head_dim++) {
		const float expected = attention_scale(FE_TONEAREST, head_dim);

		for (size_t m = 1; m < MODES; m++) {
			const float scale = attention_scale(modes[m], head_dim);

			CHECK_MSG(memcmp(&scale, &expected, sizeof(scale)) == 0,
				  "width of a head %d", (int)head_dim);
		}
	}
}

/* Initial values of a residual projection, and tokens drawn from the model. */
static void run_gpt(int mode, int64_t layers, float values[WIDTH * WIDTH], int32_t tokens[N])
{
	const srt_decoder_config_t config = { SRT_DECODER_GPT,    .layers = layers,   .heads = 2,
					      .width = WIDTH,     .context = CONTEXT, .vocab = 16,
					      .ffn_width = WIDTH, .tied = 1 };
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0);
	const srt_sampling_t sampling = { .temperature = 1.0f, .seed = 3 };
	const srt_generator_options_t sizes = { .sequences = 1, .length = CONTEXT };
	const int32_t prompt = 1;
	srt_sequence_t sequence = {
		.prompt = &prompt, .nprompt = 1, .max_tokens = N, .tokens = tokens
	};
	srt_generator_t *generator;
	srt_engine_t *engine;
	srt_buffer_t *arena;
	srt_decoder_t *decoder;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_decoder_declare(engine, &config, NULL, &decoder));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	CHECK_OK_OR_DIE(srt_generator_create(decoder, device, &sizes, &generator));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE,
					  srt_generator_arena_nbytes(generator), "arena", &arena));
	CHECK_OK_OR_DIE(srt_generator_bind(generator, arena));
	IN_MODE(mode, srt_decoder_init(decoder, 5, stream));
	CHECK_OK(srt_param_get(srt_engine_param_find(engine, "blocks.0.out.weight"),
			       SRT_PARAM_VALUE, values, stream));
	IN_MODE(mode, srt_decoder_generate(generator, &sampling, &sequence, 1, NULL, NULL, stream));
	CHECK_INT(sequence.ntokens, N);
	srt_generator_destroy(generator);
	srt_buffer_destroy(arena);
	srt_engine_destroy(engine);
	srt_decoder_destroy(decoder);
}

static void test_gpt(void)
{
	for (int64_t layers = 1; layers <= LAYERS; layers++) {
		float expected[WIDTH * WIDTH], values[WIDTH * WIDTH];
		int32_t expected_tokens[N], tokens[N];

		run_gpt(FE_TONEAREST, layers, expected, expected_tokens);
		for (size_t m = 1; m < MODES; m++) {
			run_gpt(modes[m], layers, values, tokens);
			CHECK_MSG(memcmp(values, expected, sizeof(values)) == 0,
				  "initial values of %d layers", (int)layers);
			CHECK_MSG(memcmp(tokens, expected_tokens, sizeof(tokens)) == 0,
				  "tokens of %d layers", (int)layers);
		}
	}
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	test_attention();
	test_gpt();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
