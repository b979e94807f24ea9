/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The excerpt of docs/guide.md on checkpoints: a training that goes on from the latest one has the
 * bits of one that did not stop. Run by test_guide.sh.
 */
#include <inttypes.h>

#include "tests/engine/engine_case.h"

#define SAVE_EVERY 2

static srt_context_t *context;

static void check(srt_status_t status)
{
	CHECK_OK_OR_DIE(status);
}

static uint64_t nmade; /* steps */

static srt_status_t train_step(engine_case_t *c, uint64_t step)
{
	nmade++;
	return case_step(c, (int)step, 1);
}

/* Trains to the given step: from the latest checkpoint of the folder, if there is one. */
static void train(srt_strategy_t strategy, const char *parent, uint64_t nsteps, uint64_t begins_at,
		  float **values)
{
	srt_engine_options_t of_engine = case_adamw(strategy);
	engine_case_t c;
	srt_engine_t *engine;
	srt_stream_t *stream;
	srt_scaler_t *scaler;

	case_declare(&c, context, &of_engine, 5);
	case_build(&c);
	check(srt_scaler_create(context, NULL, &scaler));
	engine = c.engine;
	stream = c.stream;

	uint64_t step = 0; /* the position in the data; perhaps a seed, too */
	const srt_checkpoint_entry_t entries[] = { { .size = sizeof(srt_checkpoint_entry_t),
						     .key = "step",
						     .data = &step,
						     .nbytes = sizeof(step) } };
	const srt_checkpoint_options_t options = { .size = sizeof(srt_checkpoint_options_t),
						   .scaler = scaler,
						   .entries = entries,
						   .nentries = 1 };
	char folder[256];
	srt_status_t status;

	status = srt_checkpoint_latest(parent, folder, sizeof(folder));
	if (status == SRT_OK)
		check(srt_checkpoint_load(engine, folder, &options, stream));
	else if (status != SRT_ERR_NOT_FOUND) /* then this is a new training */
		check(status);
	while (step < nsteps) {
		check(train_step(&c, step));
		step++;
		if (step % SAVE_EVERY == 0) {
			snprintf(folder, sizeof(folder), "%s/step-%" PRIu64, parent, step);
			check(srt_checkpoint_save(engine, folder, &options, stream));
		}
	}

	CHECK_INT(nmade, nsteps - begins_at);
	nmade = 0;
	*values = case_collect(&c, SRT_PARAM_VALUE);
	srt_scaler_destroy(scaler);
	case_destroy(&c);
}

int main(int argc, char **argv)
{
	char whole[256], parts[256];
	float *a, *b;

	CHECK_OR_DIE(argc == 3);
	snprintf(whole, sizeof(whole), "%s", argv[1]);
	snprintf(parts, sizeof(parts), "%s", argv[2]);
	check(srt_context_create(NULL, &context));
	train(SRT_STRATEGY_ZERO3, whole, 7, 0, &a);
	train(SRT_STRATEGY_ZERO3, parts, 5, 0, &b);
	free(b);
	train(SRT_STRATEGY_DDP, parts, 7, 4, &b);
	CHECK_BITS(a, b, case_total_nelem(context, 5));
	free(a);
	free(b);
	srt_context_destroy(context);
	return check_done();
}
