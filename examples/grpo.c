/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small decoder learns to add two digits by GRPO (Shao et al. 2024, DeepSeekMath): a step draws a
 * group of answers to each sum, and the policy gradient weighs an answer by its advantage in its
 * group. Answers are drawn with the bits of training: the log-probability of a token is minus its
 * loss, so the KL divergence of the drawing policy from the trained one is 0; each step checks it.
 * A sequence is a micro-batch, and they are added as a tree: the same bits on 1, 2, 4 ... ranks.
 *
 *     cc -std=c11 grpo.c $(pkg-config --cflags --libs shardrt-models) -lm -o grpo
 *     shardrun -n 2 ./grpo [STEPS [SUPERVISED_STEPS [ddp|zero1|zero2|zero3]]]
 */
#include <shardrt/models/families.h>
#include <shardrt/models/generate.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 12, PLUS = 10, EQUALS = 11, PROMPT = 4, ANSWER = 2, ROW = PROMPT + ANSWER - 1 };
enum { GROUP = 8, GROUPS = 32, SEQUENCES = GROUP * GROUPS };

static srt_context_t *context;
static srt_stream_t *stream;
static srt_engine_t *engine;
static srt_decoder_t *decoder;
static srt_tape_t *tape;
static srt_decoder_io_t io;
static int nmine, first; /* this rank's sequences of a step */

/* A sum and an answer to it; a digit is its own token. */
typedef struct sample {
	int32_t prompt[PROMPT], answer[ANSWER];
	float logprobs[ANSWER], advantage;
} sample_t;

static void check(srt_status_t status)
{
	if (status != SRT_OK) {
		fprintf(stderr, "%s\n", srt_error_last());
		exit(1);
	}
}

/* The sum of a group, the same whichever rank has it. */
static void make_prompt(sample_t *s, int step, int group)
{
	uint32_t seed = (uint32_t)(step * GROUPS + group) * 2654435761u;

	seed = (seed ^ seed >> 15) * 2246822519u;
	s->prompt[0] = (int32_t)(seed >> 8) % 10;
	s->prompt[1] = PLUS;
	s->prompt[2] = (int32_t)(seed >> 20) % 10;
	s->prompt[3] = EQUALS;
}

static int correct_digit(const sample_t *s, int i)
{
	const int sum = s->prompt[0] + s->prompt[2];

	return i == 0 ? sum / 10 : sum % 10;
}

/* Draws this rank's answers, with weights that are gathered once a step. */
static void draw(srt_generator_t *generator, sample_t *samples, int step)
{
	const srt_sampling_t sampling = { .temperature = 1.0f, .seed = 1 };
	static srt_sequence_t sequences[SEQUENCES];

	for (int i = 0; i < nmine; i++) {
		sample_t *s = &samples[i];

		make_prompt(s, step, (first + i) / GROUP);
		sequences[i] =
			(srt_sequence_t){ .prompt = s->prompt,
					  .nprompt = PROMPT,
					  .max_tokens = ANSWER,
					  .key = (uint64_t)step * SEQUENCES + (uint64_t)(first + i),
					  .tokens = s->answer,
					  .logprobs = s->logprobs };
	}
	check(srt_decoder_generate(generator, &sampling, sequences, (size_t)nmine, NULL, NULL,
				   stream));
}

/* The reward is 1 for the right sum; the advantage is its distance from the group's mean in
 * standard deviations. @return the mean reward of all ranks; memory: SEQUENCES + 1 floats. */
static double judge(sample_t *samples, srt_buffer_t *memory)
{
	const srt_view_t total = srt_view(memory, SEQUENCES * sizeof(float), SRT_F32);
	float rewards[SEQUENCES] = { 0 }, means[GROUPS] = { 0 }, sum;

	for (int i = 0; i < nmine; i++) {
		const sample_t *s = &samples[i];

		rewards[i] =
			s->answer[0] == correct_digit(s, 0) && s->answer[1] == correct_digit(s, 1);
		means[i / GROUP] += rewards[i] / GROUP;
	}
	for (int i = 0; i < nmine; i++) {
		const float mean = means[i / GROUP], variance = mean * (1 - mean);

		samples[i].advantage = variance > 0 ? (rewards[i] - mean) / sqrtf(variance) : 0;
	}
	check(srt_buffer_copy_from_host(memory, 0, rewards, sizeof(rewards), stream));
	check(srt_engine_sum(engine, srt_view(memory, 0, SRT_F32), nmine, SEQUENCES, total,
			     stream));
	check(srt_buffer_copy_to_host(&sum, memory, total.offset, sizeof(sum), stream));
	return (double)sum / SEQUENCES;
}

/* Right answers, for the supervised steps at the beginning. */
static void answer_rightly(sample_t *samples, int step)
{
	for (int i = 0; i < nmine; i++) {
		sample_t *s = &samples[i];

		make_prompt(s, -step - 1 - (first + i) * 1000, 0);
		s->answer[0] = correct_digit(s, 0);
		s->answer[1] = correct_digit(s, 1);
		s->advantage = 1;
	}
}

/* The gradient of one sequence. @return how many log-probabilities are not minus the losses. */
static int train_one(const sample_t *s, int i)
{
	int32_t ids[ROW], targets[ROW];
	float losses[ROW];
	int ndifferent = 0;

	for (int t = 0; t < ROW; t++) {
		ids[t] = t < PROMPT ? s->prompt[t] : s->answer[t - PROMPT];
		targets[t] = t < PROMPT - 1 ? -1 : s->answer[t - PROMPT + 1]; /* -1: no loss */
	}
	check(srt_decoder_put_tokens(&io, ids, targets, stream));
	check(srt_decoder_put_positions(&io, NULL, stream));
	check(srt_engine_microbatch(engine, i, nmine));
	check(srt_tape_forward(tape, stream));
	check(srt_tape_backward(tape, s->advantage / (SEQUENCES * ANSWER), (srt_view_t){ 0 },
				stream));
	check(srt_buffer_copy_to_host(losses, srt_tensor_view(io.loss).buffer,
				      srt_tensor_view(io.loss).offset, sizeof(losses), stream));
	for (int t = 0; t < ANSWER; t++)
		ndifferent += s->logprobs[t] != -losses[PROMPT - 1 + t];
	return ndifferent;
}

static void open_engine(const char *strategy)
{
	static const char *const names[] = { "ddp", "zero1", "zero2", "zero3" };
	static const srt_strategy_t strategies[] = { SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO1,
						     SRT_STRATEGY_ZERO2, SRT_STRATEGY_ZERO3 };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT; /* zero3 */
	srt_optim_options_t optim = SRT_OPTIM_ADAM_INIT;
	srt_decoder_config_t config;

	for (int i = 0; i < 4; i++)
		if (strategy != NULL && !strcmp(strategy, names[i]))
			options.strategy = strategies[i];
	optim.lr = 2e-3f; /* of the supervised steps */
	options.optim = &optim;
	options.average = SRT_AVERAGE_SUM;
	options.norm_p = 2;
	options.max_norm = 1;
	options.accumulation = SRT_ACCUMULATE_TREE;
	options.microbatches = nmine;
	check(srt_decoder_preset("nano", &config));
	config.layers = 2;
	config.width = 64;
	config.heads = 4;
	config.vocab = VOCAB;
	config.context = PROMPT + ANSWER;
	check(srt_engine_create(context, &options, &engine));
	check(srt_decoder_declare(engine, &config, NULL, &decoder));
	check(srt_engine_build(engine));
	check(srt_decoder_init(decoder, 1, stream));
}

int main(int argc, char **argv)
{
	const int nsteps = argc > 1 ? atoi(argv[1]) : 600, warm_up = argc > 2 ? atoi(argv[2]) : 150;
	srt_generator_options_t sizes = { .sequences = GROUP, .length = PROMPT + ANSWER };
	srt_decoder_weights_t *weights;
	srt_generator_t *generator;
	static sample_t samples[SEQUENCES];
	srt_buffer_t *memory, *scores;
	unsigned char hash[16];
	char text[33] = "none: built without libxxhash";
	srt_device_t *device;
	double reward = 0;
	int ndifferent = 0;

	check(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	nmine = SEQUENCES / srt_context_world_size(context);
	first = nmine * srt_context_rank(context);
	if (GROUPS % srt_context_world_size(context) != 0) {
		fprintf(stderr, "grpo: needs 1, 2, 4, 8, 16 or 32 ranks\n");
		return 2;
	}
	check(srt_stream_create(device, 0, "compute", &stream));
	open_engine(argc > 3 ? argv[3] : NULL);
	check(srt_decoder_weights_create(decoder, device, &weights));
	sizes.weights = weights;
	check(srt_generator_create(decoder, device, &sizes, &generator));
	check(srt_tape_create(device, SRT_TAPE_TRAINING, &tape));
	check(srt_decoder_record_loss(decoder, tape, 1, ROW, &io));
	/* one arena for both, enough for the larger one */
	check(srt_buffer_create(device, srt_tape_mem_kind(tape),
				srt_tape_nbytes(tape) + srt_generator_arena_nbytes(generator),
				"arena", &memory));
	check(srt_buffer_create(device, SRT_MEM_DEVICE, (SEQUENCES + 1) * sizeof(float), "rewards",
				&scores));
	check(srt_tape_bind(tape, memory));
	check(srt_generator_bind(generator, memory));
	for (int step = -warm_up; step < nsteps; step++) {
		if (step < 0) {
			answer_rightly(samples, step);
		} else {
			if (step == 0)
				check(srt_optim_set_lr(srt_engine_optim(engine), 0, 5e-4f, stream));
			check(srt_decoder_weights_gather(weights, stream));
			draw(generator, samples, step);
			reward += (judge(samples, scores) - reward) / 20; /* a running mean */
		}
		for (int i = 0; i < nmine; i++)
			ndifferent += train_one(&samples[i], i);
		if (step < 0)
			ndifferent = 0; /* right answers were not drawn */
		check(srt_engine_step(engine, stream));
		if (step % 50 == 49 && srt_context_rank(context) == 0)
			printf("step %d: reward %.3f\n", step + 1, reward);
	}
	if (srt_engine_hash(engine, hash, stream) == SRT_OK)
		for (int i = 0; i < 16; i++)
			snprintf(text + 2 * i, 3, "%02x", hash[i]);
	if (srt_context_rank(context) == 0)
		printf("KL of the drawing policy: %s\nhash: %s\n",
		       ndifferent == 0 ? "0 in every step" : "NOT 0", text);
	srt_generator_destroy(generator);
	srt_decoder_weights_destroy(weights);
	srt_tape_destroy(tape);
	srt_buffer_destroy(memory);
	srt_buffer_destroy(scores);
	srt_decoder_destroy(decoder);
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return ndifferent == 0 ? 0 : 1;
}
