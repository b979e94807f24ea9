/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Entries of each rank in a sharded checkpoint, and the states of a program's optimizer, which are
 * frozen parameters of a unit that never runs. Run by test_checkpoint_sharded.sh:
 *
 *     test_checkpoint_entries save FOLDER
 *     test_checkpoint_entries load FOLDER RANKS    that have saved it
 */
#include <shardrt/ops.h>
#include <shardrt/shardrt.h>

#include "tests/harness/check.h"
#include "tests/harness/options.h"

#define NELEM 15
#define LARGE 100000 /* bytes of an entry: more than ranks exchange at a time */

static srt_context_t *context;
static srt_stream_t *stream;
static int rank, world;

static void check(srt_status_t status)
{
	CHECK_OK_OR_DIE(status);
}

/* ---- an optimizer of the program --------------------------------------------------------- */

typedef struct training {
	srt_engine_t *engine;
	srt_unit_t *model;
	srt_param_t *weight, *momentum;
} training_t;

static void declare(training_t *t)
{
	const int64_t shape[] = { 5, 3 };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
	srt_param_options_t frozen = SRT_PARAM_OPTIONS_INIT;
	srt_unit_t *model, *states;

	options.optim = OPTIM(.kind = SRT_OPTIM_NONE);
	check(srt_engine_create(context, &options, &t->engine));
	check(srt_unit_create(t->engine, NULL, "model", NULL, &model));
	check(srt_param_create(model, "weight", SRT_F32, 2, shape, NULL, &t->weight));
	check(srt_unit_create(t->engine, model, "states", NULL, &states)); /* never runs */
	frozen.frozen = 1;
	check(srt_param_create(states, "momentum.weight", SRT_F32, 2, shape, &frozen,
			       &t->momentum));
	check(srt_engine_build(t->engine));
	t->model = model;
	check(srt_param_init_constant(t->weight, 1.0f, stream));
}

/* momentum = 0.9 momentum + gradient, weight = weight - 0.1 momentum */
static void step(training_t *t, int i)
{
	srt_view_t value, grad, momentum;
	float written[NELEM];
	srt_part_t part;
	int accumulate;

	check(srt_unit_forward_begin(t->model, stream));
	check(srt_unit_forward_end(t->model, stream));
	check(srt_unit_backward_begin(t->model, stream));
	check(srt_param_grad(t->weight, &grad, &accumulate));
	for (int j = 0; j < NELEM; j++) /* their average over ranks is exact */
		written[j] = (float)(j * (i + 1) - 7);
	check(srt_buffer_copy_from_host(grad.buffer, grad.offset, written, sizeof(written),
					stream));
	check(srt_param_grad_ready(t->weight));
	check(srt_unit_backward_end(t->model, stream));

	check(srt_engine_finish_backward(t->engine, stream));
	check(srt_engine_write_begin(t->engine, stream));
	check(srt_param_part(t->weight, rank, &part)); /* and of its state, which has its shape */
	check(srt_param_local(t->weight, SRT_PARAM_VALUE, &value));
	check(srt_param_local(t->weight, SRT_PARAM_GRAD, &grad));
	check(srt_param_local(t->momentum, SRT_PARAM_VALUE, &momentum));
	check(srt_op_scale(momentum, momentum, 0.9f, part.nelem, stream));
	check(srt_op_axpy(momentum, grad, 1.0f, part.nelem, stream));
	check(srt_op_axpy(value, momentum, -0.1f, part.nelem, stream));
	check(srt_engine_write_end(t->engine, stream));
	check(srt_engine_step(t->engine, stream));
}

/* A training that goes on from the checkpoint has the values of one that did not stop. */
static void check_resumed(training_t *t)
{
	float expected[2][NELEM], values[2][NELEM];
	training_t whole;

	step(t, 2);
	step(t, 3);
	check(srt_param_get(t->weight, SRT_PARAM_VALUE, values[0], stream));
	check(srt_param_get(t->momentum, SRT_PARAM_VALUE, values[1], stream));
	declare(&whole);
	for (int i = 0; i < 4; i++)
		step(&whole, i);
	check(srt_param_get(whole.weight, SRT_PARAM_VALUE, expected[0], stream));
	check(srt_param_get(whole.momentum, SRT_PARAM_VALUE, expected[1], stream));
	CHECK_BITS(values[0], expected[0], NELEM);
	CHECK_BITS(values[1], expected[1], NELEM);
	srt_engine_destroy(whole.engine);
}

/* ---- entries of each rank ----------------------------------------------------------------- */

/* What a rank has saved; data[0] has a size that depends on it, data[1] is empty on some ranks. */
typedef struct saved {
	unsigned char loader[64], generator[LARGE];
	srt_checkpoint_entry_t entries[2];
} saved_t;

static void list_entries(saved_t *s, int of_rank)
{
	s->entries[0] = (srt_checkpoint_entry_t){ sizeof(srt_checkpoint_entry_t), "loader",
						  s->loader, (size_t)(3 * of_rank + 1) };
	s->entries[1] = (srt_checkpoint_entry_t){ sizeof(srt_checkpoint_entry_t), "generator",
						  s->generator, of_rank % 2 == 0 ? LARGE : 0 };
}

static void fill(saved_t *s, int of_rank)
{
	list_entries(s, of_rank);
	for (size_t i = 0; i < sizeof(s->loader); i++)
		s->loader[i] = (unsigned char)((size_t)of_rank * 7 + i);
	for (size_t i = 0; i < LARGE; i++)
		s->generator[i] = (unsigned char)((size_t)of_rank * 11 + i * i / 5);
}

static void check_entries(const saved_t *a, const saved_t *b)
{
	for (int i = 0; i < 2; i++)
		CHECK(memcmp(a->entries[i].data, b->entries[i].data, a->entries[i].nbytes) == 0);
}

static void test_refused(training_t *t, const char *folder)
{
	char data = 0;
	srt_checkpoint_options_t options = SRT_CHECKPOINT_OPTIONS_INIT;
	srt_checkpoint_entry_t twice[2] = { { sizeof(twice[0]), "x", &data, 1 },
					    { sizeof(twice[0]), "x", &data, 1 } };
	const srt_checkpoint_entry_t reserved = { sizeof(reserved), "rank-0-of-1/x", &data, 1 };

	options.rank_entries = twice;
	options.nrank_entries = 2;
	CHECK_STATUS(srt_checkpoint_save(t->engine, folder, &options, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("the entry 'x' occurs twice");
	options.nrank_entries = 0;
	options.entries = &reserved;
	options.nentries = 1;
	CHECK_STATUS(srt_checkpoint_save(t->engine, folder, &options, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("begins with rank-");
}

static void test_save(const char *folder)
{
	static saved_t mine;
	srt_checkpoint_options_t options = SRT_CHECKPOINT_OPTIONS_INIT;
	srt_checkpoint_write_t *write;
	training_t t;

	declare(&t);
	test_refused(&t, folder);
	step(&t, 0);
	step(&t, 1);
	fill(&mine, rank);
	options.rank_entries = mine.entries;
	options.nrank_entries = 2;
	check(srt_checkpoint_save_begin(t.engine, folder, &options, &write, stream));
	memset(&mine, 0, sizeof(mine)); /* it was copied */
	check(srt_checkpoint_save_end(write));
	check_resumed(&t);
	srt_engine_destroy(t.engine);
}

/* On other ranks than those that saved: the entries of all of them can be read. */
static void test_other_ranks(training_t *t, const char *folder, int saved_by,
			     const srt_checkpoint_options_t *options)
{
	static saved_t expected, found;
	char text[64];

	CHECK_STATUS(srt_checkpoint_load(t->engine, folder, options, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	snprintf(text, sizeof(text), "its rank_entries were saved by %d ranks", saved_by);
	CHECK_ERROR_HAS(text);
	for (int r = 0; r < saved_by; r++) {
		size_t nbytes;

		fill(&expected, r);
		list_entries(&found, r);
		for (int i = 0; i < 2; i++) {
			snprintf(text, sizeof(text), "rank-%d-of-%d/%s", r, saved_by,
				 expected.entries[i].key);
			check(srt_checkpoint_get_entry(folder, text, found.entries[i].data,
						       found.entries[i].nbytes, &nbytes));
			CHECK_INT(nbytes, expected.entries[i].nbytes);
		}
		check_entries(&found, &expected);
	}
	check(srt_checkpoint_load(t->engine, folder, NULL, stream));
}

static void test_load(const char *folder, int saved_by)
{
	static saved_t expected, found;
	srt_checkpoint_options_t options = SRT_CHECKPOINT_OPTIONS_INIT;
	training_t t;

	declare(&t);
	fill(&expected, rank);
	list_entries(&found, rank);
	options.rank_entries = found.entries;
	options.nrank_entries = 2;
	if (world == saved_by) {
		check(srt_checkpoint_load(t.engine, folder, &options, stream));
		check_entries(&found, &expected);
	} else {
		test_other_ranks(&t, folder, saved_by, &options);
	}
	check_resumed(&t);
	srt_engine_destroy(t.engine);
}

int main(int argc, char **argv)
{
	CHECK_OR_DIE(argc == 3 || argc == 4);
	check(srt_context_create(NULL, &context));
	check(srt_stream_create(srt_context_device(context), 0, "compute", &stream));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	if (strcmp(argv[1], "save") == 0)
		test_save(argv[2]);
	else
		test_load(argv[2], atoi(argv[3]));
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
