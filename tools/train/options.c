/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses the command line and prints --help, by the table of options; see options.h. */
#include <string.h>

#include "tools/train/options_internal.h"

int train_options_parse(int argc, char **argv, train_options_t *o, char *why, size_t nwhy)
{
	memset(o, 0, sizeof(*o));
	if (tool_options_parse(&train_option_table, argc, argv, o, why, nwhy) != 0)
		return -1;
	if (o->eval) {
		o->steps = 0;
		o->eval_every = 1;
		o->eval_batches = 0;
	}
	if (o->min_lr < 0)
		o->min_lr = o->lr / 10;
	if (o->momentum < 0)
		o->momentum = o->optimizer == TRAIN_MUON ? 0.95 : 0;
	if (o->muon_lr < 0)
		o->muon_lr = o->muon_adjust == SRT_MUON_MATCH_RMS_ADAMW ? o->lr : 0.02;
	if (o->eval_batches < 0)
		o->eval_batches = o->eval_every < o->steps ? o->eval_every : o->steps;
	if (o->warmup < 0)
		o->warmup = o->steps / 10 < 100 ? o->steps / 10 : 100;
	if (o->decay_steps < 0 && o->schedule == SRT_SCHEDULE_STABLE)
		o->decay_steps =
			o->steps / 10 < o->steps - o->warmup ? o->steps / 10 : o->steps - o->warmup;
	return train_options_check(o, why, nwhy);
}

void train_options_help(FILE *out)
{
	fprintf(out,
		"usage: shardrt-train --text FILE [options]\n"
		"       shardrt-train --tokens FILE [options]\n"
		"       shardrt-train --init FOLDER --sft FILE.jsonl [options]\n"
		"       shardrt-train --init FILE --text FILE --eval [options]\n"
		"       shardrt-train --init FILE --generate N [options]\n"
		"       shardrun -n RANKS shardrt-train ...\n"
		"\n"
		"Trains a GPT on the bytes of a text, or on tokens, on one or several ranks.\n");
	tool_options_print(&train_option_table, out);
	fprintf(out,
		"\n"
		"Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 end training after the current step, or\n"
		"end a validation; --save, --hash and the log are completed. If --save or the last\n"
		"checkpoint cannot be written at the end, it is tried again for a minute, unless a\n"
		"signal has ended training; then it goes to a new folder in TMPDIR (/tmp), and the\n"
		"status is 1. Exit status: 0 success, 1 failure, 2 wrong options or text, 128 + the number of\n"
		"the signal that ended training (130: Ctrl-C, 143: SIGTERM).\n"
		"With SHARDRT_FLIGHT, SIGUSR1 writes the flight recorder's files instead.\n"
		"shardrt-info -c lists the environment variables (SHARDRT_*).\n");
}
