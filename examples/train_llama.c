/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A Llama of the program's own from layers of libshardrt-models: RMSNorm, rotary positions, grouped
 * heads of keys and values, SwiGLU. It learns to say which token it saw two places ago.
 *
 *     cc -std=c11 train_llama.c $(pkg-config --cflags --libs shardrt-models) -o train_llama
 *     shardrun -n 2 ./train_llama
 */
#include <shardrt/models/layers.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 16, CONTEXT = 8, WIDTH = 32, HEADS = 4, KV_HEADS = 2, HEAD = WIDTH / HEADS };
enum { FFN = 64, BLOCKS = 2, BATCH = 16, ROWS = BATCH * CONTEXT, STEPS = 300 };

static srt_stream_t *stream;
static srt_engine_t *engine;
static srt_tape_t *tape;
static srt_tensor_t *ids, *targets, *positions;
static srt_unit_t *unit; /* that is being declared and recorded */

static void check(srt_status_t status)
{
	if (status != SRT_OK) {
		fprintf(stderr, "%s\n", srt_error_last());
		exit(1);
	}
}

/* A parameter (rows,cols) of the unit, or (rows) if cols is 0. */
static srt_param_t *add(const char *name, int block, int64_t rows, int64_t cols)
{
	const int64_t shape[] = { rows, cols };
	srt_param_t *param;
	char text[32];

	snprintf(text, sizeof(text), "layers.%d.%s", block, name);
	check(srt_param_create(unit, text, SRT_F32, cols ? 2 : 1, shape, NULL, &param));
	return param;
}

static srt_tensor_t *linear(srt_tensor_t *x, const char *name, int block, int64_t rows,
			    int64_t cols)
{
	return srt_layer_linear(tape, x, add(name, block, rows, cols), NULL);
}

/* Declares and records the model. A block is a unit: it is gathered when it runs. Returns the loss
 * of each row; the logits use the embedding's weight. */
static srt_tensor_t *record(const srt_rotary_in_t *rotary)
{
	srt_attention_in_t in = {
		.batch = BATCH, .heads = HEADS, .kv_heads = KV_HEADS, .causal = 1
	};
	srt_param_t *embedding, *norm;
	srt_tensor_t *x, *y, *gate;
	srt_unit_t *root;

	check(srt_unit_create(engine, NULL, "model", NULL, &root));
	unit = root;
	embedding = add("embedding", BLOCKS, VOCAB, WIDTH);
	norm = add("norm", BLOCKS, WIDTH, 0);
	srt_tape_unit_begin(tape, root);
	x = srt_layer_embedding(tape, ids, embedding, NULL, CONTEXT);
	for (int i = 0; i < BLOCKS; i++) {
		check(srt_unit_create(engine, root, i ? "block1" : "block0", NULL, &unit));
		srt_tape_unit_begin(tape, unit);
		y = srt_layer_rmsnorm(tape, x, add("norm1", i, WIDTH, 0), 1e-5f);
		in.q = srt_layer_rotary(tape, linear(y, "q", i, HEADS * HEAD, WIDTH), rotary);
		in.k = srt_layer_rotary(tape, linear(y, "k", i, KV_HEADS * HEAD, WIDTH), rotary);
		in.v = linear(y, "v", i, KV_HEADS * HEAD, WIDTH);
		y = linear(srt_layer_attention_of(tape, &in), "o", i, WIDTH, HEADS * HEAD);
		x = srt_layer_add(tape, x, y);
		y = srt_layer_rmsnorm(tape, x, add("norm2", i, WIDTH, 0), 1e-5f);
		gate = linear(y, "gate", i, FFN, WIDTH);
		y = srt_layer_glu(tape, gate, linear(y, "up", i, FFN, WIDTH), SRT_GLU_SILU);
		x = srt_layer_add(tape, x, linear(y, "down", i, WIDTH, FFN));
		srt_tape_unit_end(tape);
	}
	x = srt_layer_rmsnorm(tape, x, norm, 1e-5f);
	x = srt_layer_head_loss(tape, x, embedding, targets, 0);
	srt_tape_unit_end(tape);
	srt_tape_keep(tape, x);
	return x;
}

/* The next batch: random tokens, for each the one two places before it, and their positions. */
static void put_batch(uint32_t *seed)
{
	int32_t id[ROWS], target[ROWS], position[ROWS];

	for (int i = 0; i < ROWS; i++) {
		position[i] = i % CONTEXT;
		id[i] = (int32_t)((*seed = *seed * 1664525u + 1013904223u) >> 28);
		target[i] = i % CONTEXT < 2 ? -1 : id[i - 2]; /* -1: no loss */
	}
	check(srt_tensor_put(ids, id, stream));
	check(srt_tensor_put(targets, target, stream));
	check(srt_tensor_put(positions, position, stream));
}

int main(void)
{
	const srt_rope_t rope = { .size = sizeof(rope), .base = 1e4f, .dim = HEAD, .factor = 1 };
	srt_rotary_in_t rotary = { .npositions = CONTEXT, .head_dim = HEAD };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT; /* zero3, AdamW */
	float losses[ROWS], mean = 0;
	int64_t shape[SRT_MAX_DIMS];
	srt_buffer_t *angles;
	srt_context_t *context;
	srt_tensor_t *loss;
	srt_param_t *p;
	uint32_t seed;

	check(srt_context_create(NULL, &context));
	seed = (uint32_t)srt_context_rank(context) + 1;
	check(srt_stream_create(srt_context_device(context), 0, "compute", &stream));
	check(srt_engine_create(context, &options, &engine));
	check(srt_rotary_create(srt_context_device(context), &rope, &rotary, &angles));
	check(srt_tape_create(srt_context_device(context), SRT_TAPE_TRAINING, &tape));
	ids = srt_tape_input(tape, SRT_I32, ROWS, 1);
	targets = srt_tape_input(tape, SRT_I32, ROWS, 1);
	rotary.positions = positions = srt_tape_input(tape, SRT_I32, ROWS, 1);
	loss = record(&rotary);
	check(srt_tape_finish(tape)); /* reports the failure of any layer */
	check(srt_engine_build(engine));
	for (size_t i = 0; (p = srt_engine_param_at(engine, i)) != NULL; i++)
		check(srt_param_shape(p, shape) == 1 ?
			      srt_param_init_constant(p, 1.0f, stream) :
			      srt_param_init_normal(p, 1, 0.0f, 0.15f, stream));
	check(srt_tape_allocate(tape));
	for (int step = 1; step <= STEPS; step++) {
		put_batch(&seed);
		check(srt_tape_forward(tape, stream));
		check(srt_tape_backward(tape, 4.0f / (3 * ROWS), (srt_view_t){ 0 }, stream));
		check(srt_engine_step(engine, stream)); /* gradients averaged over the ranks */
	}
	check(srt_tensor_get(loss, losses, stream));
	for (int i = 0; i < ROWS; i++)
		mean += losses[i] * 4 / (3 * ROWS);
	if (srt_context_rank(context) == 0)
		printf("loss of the last batch: %.4f\n", (double)mean);
	srt_tape_destroy(tape);
	srt_buffer_destroy(angles);
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return mean < 0.1f ? 0 : 1;
}
