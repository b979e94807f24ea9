/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model of the program's own from layers of libshardrt-models, which have the backward pass: a
 * causal transformer of two blocks learns to say which token it saw two places ago.
 *
 *     cc -std=c11 train_tape.c $(pkg-config --cflags --libs shardrt-models) -o train_tape
 *     shardrun -n 2 ./train_tape
 */
#include <shardrt/models/layers.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 16, CONTEXT = 8, WIDTH = 32, HEADS = 4, BLOCKS = 2, ROWS = 128, STEPS = 400 };

static srt_stream_t *stream;
static srt_unit_t *root, *block[BLOCKS];
static srt_param_t *tokens, *positions, *last_norm;
static srt_param_t *norm[BLOCKS], *qkv[BLOCKS], *out[BLOCKS];

static void check(srt_status_t status)
{
	if (status != SRT_OK) {
		fprintf(stderr, "%s\n", srt_error_last());
		exit(1);
	}
}

/* (rows,cols), or (rows) if cols is 0. */
static srt_param_t *add_param(srt_unit_t *unit, const char *name, int i, int64_t rows, int64_t cols)
{
	const int64_t shape[] = { rows, cols };
	srt_param_t *param;
	char text[32];

	snprintf(text, sizeof(text), "%s%d", name, i);
	check(srt_param_create(unit, text, SRT_F32, cols ? 2 : 1, shape, NULL, &param));
	return param;
}

static void declare(srt_engine_t *engine)
{
	check(srt_unit_create(engine, NULL, "model", NULL, &root));
	tokens = add_param(root, "tokens", 0, VOCAB, WIDTH);
	positions = add_param(root, "positions", 0, CONTEXT, WIDTH);
	last_norm = add_param(root, "norm", BLOCKS, WIDTH, 0);
	for (int i = 0; i < BLOCKS; i++) { /* a unit is gathered when its block runs */
		check(srt_unit_create(engine, root, i ? "block1" : "block0", NULL, &block[i]));
		norm[i] = add_param(block[i], "norm", i, WIDTH, 0);
		qkv[i] = add_param(block[i], "qkv", i, 3 * WIDTH, WIDTH);
		out[i] = add_param(block[i], "out", i, WIDTH, WIDTH);
	}
	check(srt_engine_build(engine));
	check(srt_param_init_normal(tokens, 1, 0.0f, 0.3f, stream));
	check(srt_param_init_normal(positions, 1, 0.0f, 0.3f, stream));
	check(srt_param_init_constant(last_norm, 1.0f, stream));
	for (int i = 0; i < BLOCKS; i++) {
		check(srt_param_init_constant(norm[i], 1.0f, stream));
		check(srt_param_init_normal(qkv[i], 1, 0.0f, 0.1f, stream));
		check(srt_param_init_normal(out[i], 1, 0.0f, 0.1f, stream));
	}
}

/* Records the forward pass. Returns the loss of each row; the logits use the embedding's weight. */
static srt_tensor_t *record(srt_tape_t *tape, srt_tensor_t *ids, srt_tensor_t *targets)
{
	srt_tensor_t *x, *y;

	srt_tape_unit_begin(tape, root);
	x = srt_layer_embedding(tape, ids, tokens, positions, CONTEXT);
	for (int i = 0; i < BLOCKS; i++) {
		srt_tape_unit_begin(tape, block[i]);
		y = srt_layer_rmsnorm(tape, x, norm[i], 1e-5f);
		y = srt_layer_linear(tape, y, qkv[i], NULL);
		y = srt_layer_attention(tape, y, CONTEXT, HEADS, 1);
		y = srt_layer_linear(tape, y, out[i], NULL);
		x = srt_layer_add(tape, x, y);
		srt_tape_unit_end(tape);
	}
	x = srt_layer_rmsnorm(tape, x, last_norm, 1e-5f);
	x = srt_layer_head_loss(tape, x, tokens, targets, 0);
	srt_tape_unit_end(tape);
	srt_tape_keep(tape, x);
	return x;
}

/* A batch: random tokens, and for each the one two places before it. */
static void make_batch(const srt_tensor_t *ids, const srt_tensor_t *targets, uint32_t seed)
{
	int32_t id[ROWS], target[ROWS];

	for (int i = 0; i < ROWS; i++) {
		seed = seed * 1664525u + 1013904223u;
		id[i] = (int32_t)(seed >> 28); /* below VOCAB */
		target[i] = i % CONTEXT < 2 ? id[i] : id[i - 2];
	}
	check(srt_tensor_put(ids, id, stream));
	check(srt_tensor_put(targets, target, stream));
}

static float get_mean(const srt_tensor_t *loss)
{
	float rows[ROWS], sum = 0.0f;

	check(srt_tensor_get(loss, rows, stream));
	for (int i = 0; i < ROWS; i++)
		sum += rows[i];
	return sum / ROWS;
}

int main(void)
{
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT; /* zero3, AdamW */
	srt_context_t *context;
	srt_engine_t *engine;
	srt_tape_t *tape;
	srt_tensor_t *ids, *targets, *loss;
	float mean = 0.0f;

	check(srt_context_create(NULL, &context));
	check(srt_stream_create(srt_context_device(context), 0, "compute", &stream));
	check(srt_engine_create(context, &options, &engine));
	declare(engine);
	check(srt_tape_create(srt_context_device(context), SRT_TAPE_TRAINING, &tape));
	ids = srt_tape_input(tape, SRT_I32, ROWS, 1);
	targets = srt_tape_input(tape, SRT_I32, ROWS, 1);
	loss = record(tape, ids, targets);
	check(srt_tape_finish(tape)); /* reports the failure of any layer */
	check(srt_tape_allocate(tape));
	for (int step = 1; step <= STEPS; step++) {
		const int rank = srt_context_rank(context);

		make_batch(ids, targets,
			   (uint32_t)(step * srt_context_world_size(context) + rank) * 2654435761u);
		check(srt_tape_forward(tape, stream));
		check(srt_tape_backward(tape, 1.0f / ROWS, (srt_view_t){ 0 }, stream));
		check(srt_engine_step(engine, stream)); /* gradients averaged over the ranks */
		if (step % 80 == 0 && ((mean = get_mean(loss)), rank == 0))
			printf("step %3d  loss %.4f\n", step, (double)mean);
	}
	srt_tape_destroy(tape);
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return mean < 0.05f ? 0 : 1;
}
