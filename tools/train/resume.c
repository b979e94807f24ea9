/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --resume: goes on from the latest checkpoint. If that is damaged, from the next older one that is
 * complete, with a warning; the damaged ones get other names, so that they stay.
 *
 * Rank 0 looks for a checkpoint, and all ranks load it. A load has the same status on all ranks, so
 * all ranks go on to the next one together.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "models/try.h"
#include "tools/common.h"
#include "tools/train/checkpoint.h"

/* A checkpoint that could not be loaded. */
typedef struct refused {
	char path[TRAIN_PATH_NBYTES];
	bool is_damaged; /* false: its files could not be read, perhaps only now */
} refused_t;

/* The search of rank 0. */
typedef struct search {
	srt_status_t status; /* of the file `latest` */
	char latest[TRAIN_PATH_NBYTES], why[512];
	train_checkpoint_t *all; /* the newest first */
	size_t n, next;          /* those up to `next` were tried */
	bool began;
	size_t nrefused;
	refused_t *refused; /* the first nlisted of them */
	size_t nlisted;
} search_t;

/* The checkpoint that all ranks try to load next. */
typedef struct found {
	int32_t status; /* SRT_ERR_NOT_FOUND: none is left */
	char path[TRAIN_PATH_NBYTES];
} found_t;

static void begin_search(trainer_t *t, search_t *s)
{
	s->status = srt_checkpoint_latest(t->opt.checkpoint, s->latest, sizeof(s->latest));
	if (s->status != SRT_OK)
		snprintf(s->why, sizeof(s->why), "%s", srt_error_last());
	/* If its manifest is damaged, checkpoints of any run that is like this one will do. */
	if (s->status == SRT_OK && train_read_run(s->latest, &t->run))
		t->knows_run = 1;
	if (s->status == SRT_OK || s->status == SRT_ERR_FORMAT || s->status == SRT_ERR_NOT_FOUND)
		s->all = train_list_checkpoints(t, &s->n);
}

/* Prints why a checkpoint is not used, and adds it to the list. */
static void refuse(search_t *s, const char *path, srt_status_t status, const char *why)
{
	const bool is_damaged = status != SRT_ERR_IO;
	refused_t *grown = realloc(s->refused, (s->nlisted + 1) * sizeof(*s->refused));

	tool_error("warning: checkpoint %s %s and is not used: %s", path,
		   is_damaged ? "is damaged" : "cannot be read", why);
	s->nrefused++;
	if (grown == NULL)
		return;
	s->refused = grown;
	grown[s->nlisted].is_damaged = is_damaged;
	snprintf(grown[s->nlisted++].path, sizeof(grown->path), "%s", path);
}

/* Whether a checkpoint is newer than the one that the file `latest` names. */
static bool is_newer(const search_t *s, const train_checkpoint_t *c)
{
	train_checkpoint_t latest;

	return s->status == SRT_OK && train_parse_checkpoint(s->latest, &latest) == 0 &&
	       train_compare_checkpoints(c, &latest) < 0;
}

/* The latest checkpoint, then older ones, then newer ones: perhaps a user has written the name of
 * an older one to the file `latest`. */
static void find_next(const trainer_t *t, search_t *s, found_t *found)
{
	if (!s->began) {
		s->began = true;
		snprintf(found->path, sizeof(found->path), "%s", s->latest);
		if (s->status == SRT_OK)
			return;
	}
	for (; s->next < 2 * s->n; s->next++) {
		const train_checkpoint_t *c = &s->all[s->next % s->n];

		train_print_checkpoint(t->opt.checkpoint, c, found->path);
		if (is_newer(s, c) != (s->next >= s->n) || strcmp(found->path, s->latest) == 0)
			continue;
		if (c->kind == TRAIN_KIND_DAMAGED) {
			train_find_kind(t, c); /* again, for its sentence */
			refuse(s, found->path, SRT_ERR_FORMAT, srt_error_last());
			continue;
		}
		s->next++;
		return;
	}
	found->status = SRT_ERR_NOT_FOUND;
}

static srt_status_t share_next(trainer_t *t, search_t *s, found_t *found)
{
	found_t mine = { 0 }, *all = calloc((size_t)t->world, sizeof(*all));
	srt_status_t status;

	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (t->rank == 0)
		find_next(t, s, &mine);
	status = srt_comm_oob_allgather(t->comm, &mine, sizeof(mine), all);
	*found = all[0];
	free(all);
	return status;
}

static int check_position(trainer_t *t, const char *path, const train_position_t *p)
{
	train_position_t mine;

	train_get_position(t, p->step, &mine);
	if (p->step < 0)
		return tool_why_failure(&t->why,
					"--resume: %s is damaged: it claims the step %" PRId64,
					path, p->step);
	if (memcmp(p->sizes, mine.sizes, sizeof(mine.sizes)) != 0)
		return tool_why_usage(&t->why,
				      "--resume: the run in %s has a model of %.*s, but the "
				      "options give %s: give the same options",
				      path, (int)sizeof(p->sizes), p->sizes, mine.sizes);
	if (p->seed != mine.seed || p->batch != mine.batch)
		return tool_why_usage(&t->why,
				      "--resume: the run in %s has --seed %" PRId64
				      " and --batch %" PRId64 ": give the same options",
				      path, p->seed, p->batch);
	if (p->text != mine.text)
		return tool_why_failure(
			&t->why,
			"--resume: the run in %s trains on another text than %s: if that file was "
			"changed, restore it",
			path, t->data_path);
	return 0;
}

/* On rank 0. */
static void warn_of_parts(const trainer_t *t, const char *path)
{
	int64_t parts = 1;

	srt_checkpoint_get_entry(path, "tensor_parts", &parts, sizeof(parts), NULL);
	if (parts != t->opt.tensor_parts)
		tool_error("warning: --resume: the run in %s has --tensor-parts %" PRId64
			   ", this one %" PRId64 ": from here on its results have other bits",
			   path, parts, t->opt.tensor_parts);
}

/* The schedules of this run's options, which may have more steps, with the states' progress. */
static srt_status_t restore_schedules(trainer_t *t)
{
	srt_optim_t *optim = srt_engine_optim(t->engine);

	for (size_t g = 0; g < srt_optim_group_count(optim); g++) {
		srt_optim_options_t options = SRT_OPTIM_OPTIONS_INIT;
		srt_step_info_t state = SRT_STEP_INFO_INIT;

		SRT_TRY(srt_optim_group_options(optim, g, &options));
		SRT_TRY(srt_optim_get_step_info(optim, g, &state, t->stream));
		t->skipped = g == 0 ? state.skipped : t->skipped;
		state.base_lr = options.lr;
		state.min_lr = options.min_lr;
		state.warmup = options.warmup;
		state.lr_steps = options.lr_steps;
		state.schedule = options.schedule;
		state.decay_steps = options.decay_steps;
		SRT_TRY(srt_optim_set_step_info(optim, g, &state, t->stream));
	}
	return SRT_OK;
}

/* On rank 0, if another checkpoint than the latest one was loaded. */
static void report_loss(const search_t *s, const char *path, int64_t step)
{
	char aside[TRAIN_PATH_NBYTES];

	if (s->status == SRT_ERR_FORMAT)
		tool_error("warning: %s; going on from %s, the newest one of this run", s->why,
			   path);
	for (size_t i = 0; i < s->nlisted; i++) {
		const refused_t *r = &s->refused[i];
		train_checkpoint_t lost;
		char steps[96] = "";

		if (train_parse_checkpoint(r->path, &lost) == 0 && lost.step > step)
			snprintf(steps, sizeof(steps),
				 ": steps %" PRId64 " to %" PRId64 " are trained again", step + 1,
				 lost.step);
		if (!r->is_damaged)
			tool_error("warning: going on from %s%s; %s stays as it is", path, steps,
				   r->path);
		else if (train_set_aside(r->path, aside) == 0)
			tool_error("warning: going on from %s%s; the damaged checkpoint is kept as "
				   "%s",
				   path, steps, aside);
		else
			tool_error("warning: going on from %s%s; the damaged checkpoint %s cannot "
				   "be renamed: %s",
				   path, steps, r->path, strerror(errno));
	}
}

/* Without a checkpoint that can be loaded, on rank 0. @return 0: there was none; or -1. */
static int end_search(trainer_t *t, const search_t *s)
{
	char names[256] = "";

	if (s->status != SRT_OK && s->status != SRT_ERR_NOT_FOUND && s->nrefused == 0)
		return tool_why_failure(
			&t->why,
			"--resume: %s%s: restore the files from a copy, or start a new run "
			"with another --checkpoint",
			s->why,
			s->status == SRT_ERR_FORMAT ?
				", and no checkpoint of this run is in its place" :
				"");
	if (s->nrefused == 0) {
		printf("no checkpoint in %s: a new run\n", t->opt.checkpoint);
		t->knows_run = 1;
		return 0;
	}
	for (size_t i = 0; i < s->nlisted; i++) {
		const size_t length = strlen(names);

		snprintf(names + length, sizeof(names) - length, "%s%s", i == 0 ? "" : ", ",
			 strrchr(s->refused[i].path, '/') + 1);
	}
	return tool_why_failure(
		&t->why,
		"--resume: no complete checkpoint of this run is left in %s; damaged: %s (see "
		"above): restore the files from a copy, or start a new run with another "
		"--checkpoint",
		t->opt.checkpoint, names);
}

static bool is_damage(srt_status_t status)
{
	return status == SRT_ERR_FORMAT || status == SRT_ERR_NOT_FOUND || status == SRT_ERR_IO;
}

static srt_status_t load(trainer_t *t, search_t *s)
{
	train_position_t position;
	srt_checkpoint_entry_t entries[TRAIN_NENTRIES];
	const srt_checkpoint_options_t options = { .size = sizeof(srt_checkpoint_options_t),
						   .scaler = t->scaler,
						   .entries = entries,
						   .nentries = TRAIN_NLOADED };
	srt_status_t status;
	found_t found;

	train_list_entries(&position, entries);
	do {
		SRT_TRY(share_next(t, s, &found));
		if (found.status != SRT_OK)
			return t->rank == 0 && end_search(t, s) != 0 ? SRT_ERR_FORMAT : SRT_OK;
		status = srt_checkpoint_load(t->engine, found.path, &options, t->stream);
		if (status == SRT_ERR_IO) /* perhaps of a file server, and over */
			status = srt_checkpoint_load(t->engine, found.path, &options, t->stream);
		if (is_damage(status) && t->rank == 0)
			refuse(s, found.path, status, srt_error_last());
	} while (is_damage(status));
	if (status == SRT_ERR_INVALID_ARGUMENT || status == SRT_ERR_UNSUPPORTED)
		tool_why_usage(&t->why, "--resume: %s", srt_error_last());
	SRT_TRY(status);
	if (check_position(t, found.path, &position) != 0)
		return SRT_ERR_INVALID_ARGUMENT;
	t->done = t->watched = t->checkpointed = position.step;
	if (t->rank == 0) {
		train_read_run(found.path, &t->run);
		t->knows_run = 1;
		report_loss(s, found.path, position.step);
		warn_of_parts(t, found.path);
		printf("resumed from %s\n", found.path);
	}
	return restore_schedules(t);
}

srt_status_t trainer_resume(trainer_t *t)
{
	search_t search = { 0 };
	srt_status_t status;

	if (t->rank == 0)
		begin_search(t, &search);
	status = load(t, &search);
	free(search.all);
	free(search.refused);
	return status;
}
