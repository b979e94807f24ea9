/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A Llama of the program's own from layers of libshardrt-models: RMSNorm, rotary positions, grouped
 * heads of keys and values, SwiGLU. It learns to say which token it saw two places ago.
 *
 *     cc -std=c11 train_llama.c $(pkg-config --cflags --libs shardrt-models) -o train_llama
 *     shardrun -n 2 ./train_llama
 */
#include <shardrt/models/layers.h>
#include <shardrt/models/rotary.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 16, CONTEXT = 8, WIDTH = 32, HEADS = 4, KV_HEADS = 2, HEAD = WIDTH / HEADS };
enum { FFN = 64, BLOCKS = 2, BATCH = 16, ROWS = BATCH * CONTEXT, STEPS = 300 };
enum { IDS, TARGETS, POSITIONS, INPUTS };

static srt_stream_t *stream;
static srt_engine_t *engine;
static srt_tape_t *tape;
static srt_unit_t *root, *unit; /* unit: the block that is being declared and recorded, or root */

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

static srt_tensor_t *norm(srt_tensor_t *x, const char *name, int block)
{
	return srt_layer_rmsnorm(tape, x, add(name, block, WIDTH, 0), 1e-5f);
}

static srt_tensor_t *linear(srt_tensor_t *x, const char *name, int block, int64_t rows,
			    int64_t cols)
{
	return srt_layer_linear(tape, x, add(name, block, rows, cols), NULL);
}

/* Declares and records a block, a unit: it is gathered when it runs. */
static srt_tensor_t *record_block(srt_tensor_t *x, int i, const srt_rotary_in_t *rotary)
{
	srt_attention_in_t in = {
		.batch = BATCH, .heads = HEADS, .kv_heads = KV_HEADS, .causal = 1
	};
	srt_tensor_t *y, *gate;

	check(srt_unit_create(engine, root, i ? "block1" : "block0", NULL, &unit));
	srt_tape_unit_begin(tape, unit);
	y = norm(x, "norm1", i);
	in.q = srt_layer_rotary(tape, linear(y, "q", i, HEADS * HEAD, WIDTH), rotary);
	in.k = srt_layer_rotary(tape, linear(y, "k", i, KV_HEADS * HEAD, WIDTH), rotary);
	in.v = linear(y, "v", i, KV_HEADS * HEAD, WIDTH);
	y = linear(srt_layer_attention_of(tape, &in), "o", i, WIDTH, HEADS * HEAD);
	x = srt_layer_add(tape, x, y);
	y = norm(x, "norm2", i);
	gate = linear(y, "gate", i, FFN, WIDTH);
	y = srt_layer_glu(tape, gate, linear(y, "up", i, FFN, WIDTH), SRT_GLU_SILU);
	x = srt_layer_add(tape, x, linear(y, "down", i, WIDTH, FFN));
	srt_tape_unit_end(tape);
	return x;
}

/* The whole. Returns the loss of each row; the logits use the embedding's weight. */
static srt_tensor_t *record(srt_tensor_t *const inputs[INPUTS], const srt_rotary_in_t *rotary)
{
	srt_param_t *embedding;
	srt_tensor_t *x;

	check(srt_unit_create(engine, NULL, "model", NULL, &root));
	unit = root;
	embedding = add("embedding", BLOCKS, VOCAB, WIDTH);
	srt_tape_unit_begin(tape, root);
	x = srt_layer_embedding(tape, inputs[IDS], embedding, NULL, CONTEXT);
	for (int i = 0; i < BLOCKS; i++)
		x = record_block(x, i, rotary);
	unit = root;
	x = srt_layer_head_loss(tape, norm(x, "norm", BLOCKS), embedding, inputs[TARGETS], 0);
	srt_tape_unit_end(tape);
	srt_tape_keep(tape, x);
	return x;
}

/* The next batch: random tokens, for each the one two places before it, and their positions. */
static void make_batch(int32_t rows[INPUTS][ROWS], uint32_t *seed)
{
	for (int i = 0; i < ROWS; i++) {
		rows[IDS][i] = (int32_t)((*seed = *seed * 1664525u + 1013904223u) >> 28);
		rows[POSITIONS][i] = i % CONTEXT;
		rows[TARGETS][i] = i % CONTEXT < 2 ? -1 : rows[IDS][i - 2]; /* -1: no loss */
	}
}

int main(void)
{
	const srt_rope_t rope = { .size = sizeof(rope), .base = 1e4f, .dim = HEAD, .factor = 1 };
	srt_rotary_in_t rotary = { .npositions = CONTEXT, .head_dim = HEAD, .dim = HEAD };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT; /* zero3, AdamW */
	float table[2][CONTEXT * HEAD / 2], losses[ROWS], mean = 0;
	srt_tensor_t *inputs[INPUTS], *x;
	int32_t rows[INPUTS][ROWS];
	int64_t shape[SRT_MAX_DIMS];
	srt_buffer_t *angles, *memory;
	srt_context_t *context;
	srt_device_t *device;
	srt_param_t *p;
	uint32_t seed;

	check(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	seed = (uint32_t)srt_context_rank(context) + 1;
	check(srt_stream_create(device, 0, "compute", &stream));
	check(srt_engine_create(context, &options, &engine));
	check(srt_rope_tables(&rope, CONTEXT, table[0], table[1]));
	check(srt_buffer_create(device, SRT_MEM_DEVICE, sizeof(table), "angles", &angles));
	check(srt_buffer_copy_from_host(angles, 0, table, sizeof(table), stream));
	check(srt_tape_create(device, SRT_TAPE_TRAINING, &tape));
	for (int k = 0; k < INPUTS; k++)
		inputs[k] = srt_tape_input(tape, SRT_I32, ROWS, 1);
	rotary.positions = inputs[POSITIONS];
	rotary.cos = srt_view(angles, 0, SRT_F32);
	rotary.sin = srt_view(angles, sizeof(table[0]), SRT_F32);
	x = record(inputs, &rotary);
	check(srt_tape_finish(tape)); /* reports the failure of any layer */
	check(srt_engine_build(engine));
	for (size_t i = 0; (p = srt_engine_param_at(engine, i)) != NULL; i++)
		check(srt_param_shape(p, shape) == 1 ?
			      srt_param_init_constant(p, 1.0f, stream) :
			      srt_param_init_normal(p, 1, 0.0f, 0.15f, stream));
	check(srt_buffer_create(device, srt_tape_mem_kind(tape), srt_tape_nbytes(tape), "tape",
				&memory));
	check(srt_tape_bind(tape, memory));
	for (int step = 1; step <= STEPS; step++) {
		make_batch(rows, &seed);
		for (int k = 0; k < INPUTS; k++) {
			const srt_view_t to = srt_tensor_view(inputs[k]);

			check(srt_buffer_copy_from_host(to.buffer, to.offset, rows[k],
							sizeof(rows[k]), stream));
		}
		check(srt_tape_forward(tape, stream));
		check(srt_tape_backward(tape, 4.0f / (3 * ROWS), (srt_view_t){ 0 }, stream));
		check(srt_engine_step(engine, stream)); /* gradients averaged over the ranks */
	}
	check(srt_buffer_copy_to_host(losses, srt_tensor_view(x).buffer, srt_tensor_view(x).offset,
				      sizeof(losses), stream));
	for (int i = 0; i < ROWS; i++)
		mean += losses[i] * 4 / (3 * ROWS);
	if (srt_context_rank(context) == 0)
		printf("loss of the last batch: %.4f\n", (double)mean);
	srt_tape_destroy(tape);
	srt_buffer_destroy(memory);
	srt_buffer_destroy(angles);
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return mean < 0.1f ? 0 : 1;
}
