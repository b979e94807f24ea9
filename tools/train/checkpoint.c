/* SPDX-License-Identifier: BSD-3-Clause */
/* Sharded checkpoints of a run: --checkpoint, --save-every, --keep and --resume. */
#include "tools/train/train.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/try.h"
#include "tools/common.h"

#define PREFIX "step-"
#define NAME PREFIX "%010" PRId64

int trainer_open_checkpoints(trainer_t *t)
{
	const char *dir = t->opt.checkpoint;
	char latest[1024];
	srt_status_t status;

	if (!dir)
		return 0;
	if (mkdir(dir, 0777) != 0 && errno != EEXIST)
		return trainer_set_error(t, "cannot create --checkpoint %s: %s", dir,
					 strerror(errno));
	t->checkpoint_lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->checkpoint_lock < 0)
		return trainer_set_error(t, "cannot open --checkpoint %s: %s", dir,
					 strerror(errno));
	/* A file system may have no locks. */
	if (flock(t->checkpoint_lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
		return trainer_set_error(t, "another job writes checkpoints to --checkpoint %s",
					 dir);
	if (t->opt.resume)
		return 0;
	status = srt_checkpoint_latest(dir, latest, sizeof(latest));
	if (status == SRT_OK || status == SRT_ERR_FORMAT)
		return trainer_set_error(
			t,
			"--checkpoint %s has checkpoints of an earlier run: go on "
			"from the latest one with --resume, or name another folder",
			dir);
	return status == SRT_ERR_NOT_FOUND ? 0 : trainer_set_error(t, "%s", srt_last_error());
}

/* What a checkpoint has of the run, apart from the engine. */
typedef struct position {
	int64_t step, seed, batch;
	uint64_t text;
	char sizes[TRAIN_SIZES_NBYTES]; /* of the model: no tensor has the number of heads */
} position_t;

#define NENTRIES 5

static void get_position(const trainer_t *t, int64_t step, position_t *p)
{
	*p = (position_t){ .step = step,
			   .seed = t->opt.seed,
			   .batch = t->opt.batch,
			   .text = srt_text_hash(t->text) };
	train_print_sizes(&t->config, p->sizes, sizeof(p->sizes));
}

static void list_entries(position_t *p, srt_checkpoint_entry_t entries[NENTRIES])
{
	memset(entries, 0, NENTRIES * sizeof(*entries));
	entries[0] = (srt_checkpoint_entry_t){ "step", &p->step, sizeof(p->step), { 0 } };
	entries[1] = (srt_checkpoint_entry_t){ "seed", &p->seed, sizeof(p->seed), { 0 } };
	entries[2] = (srt_checkpoint_entry_t){ "batch", &p->batch, sizeof(p->batch), { 0 } };
	entries[3] = (srt_checkpoint_entry_t){ "text", &p->text, sizeof(p->text), { 0 } };
	entries[4] = (srt_checkpoint_entry_t){ TRAIN_SIZES_KEY, p->sizes, sizeof(p->sizes), { 0 } };
}

/* ---- saving ----------------------------------------------------------------------------- */

static int compare_steps(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x < y) - (x > y);
}

static void print_path(const trainer_t *t, int64_t step, char *path, size_t npath)
{
	snprintf(path, npath, "%s/" NAME, t->opt.checkpoint, step);
}

/* Whether the folder is a checkpoint with this run's seed, batch, text and sizes: saved by it, or
 * by what it goes on from. */
static bool is_of_run(const trainer_t *t, const char *path)
{
	position_t mine, saved = { 0 };
	srt_checkpoint_entry_t wanted[NENTRIES], found[NENTRIES];

	get_position(t, 0, &mine);
	list_entries(&mine, wanted);
	list_entries(&saved, found);
	for (int i = 1; i < NENTRIES; i++) /* the first is the step */
		if (srt_checkpoint_get_entry(path, found[i].key, found[i].data, found[i].nbytes,
					     NULL) != SRT_OK ||
		    memcmp(found[i].data, wanted[i].data, found[i].nbytes) != 0)
			return false;
	return true;
}

/* Steps of the run's checkpoints up to `last`, the newest first; to be freed. */
static int64_t *list_steps(const trainer_t *t, int64_t last, size_t *n)
{
	DIR *dir = opendir(t->opt.checkpoint);
	int64_t *steps = NULL;
	const struct dirent *entry;

	*n = 0;
	while (dir && (entry = readdir(dir)) != NULL) {
		char again[64], path[4096];
		int64_t step, *grown;

		if (sscanf(entry->d_name, PREFIX "%10" SCNd64, &step) != 1 || step > last)
			continue;
		snprintf(again, sizeof(again), NAME, step);
		print_path(t, step, path, sizeof(path));
		if (strcmp(entry->d_name, again) != 0 || !is_of_run(t, path))
			continue;
		grown = realloc(steps, (*n + 1) * sizeof(*steps));
		if (!grown)
			break;
		steps = grown;
		steps[(*n)++] = step;
	}
	if (dir)
		closedir(dir);
	if (*n > 0)
		qsort(steps, *n, sizeof(*steps), compare_steps);
	return steps;
}

/* Removes the oldest checkpoints of the run up to this step, so that --keep of them are left. */
static void remove_old(const trainer_t *t, int64_t last)
{
	size_t n;
	int64_t *steps = list_steps(t, last, &n);

	for (size_t i = (size_t)t->opt.keep; i < n; i++) {
		char path[4096];

		print_path(t, steps[i], path, sizeof(path));
		if (srt_checkpoint_remove(path) != SRT_OK)
			tool_error("warning: %s", srt_last_error());
	}
	free(steps);
}

/* The same on all ranks. */
static srt_status_t check_save(trainer_t *t, srt_status_t status)
{
	if (status == SRT_ERR_IO || status == SRT_ERR_INVALID_ARGUMENT)
		trainer_set_error(t, "%s", srt_last_error());
	return status;
}

srt_status_t trainer_end_checkpoint(trainer_t *t)
{
	srt_checkpoint_write_t *write = t->writing;
	srt_status_t status;

	if (!write)
		return SRT_OK;
	t->writing = NULL;
	status = check_save(t, srt_checkpoint_save_end(write));
	if (status == SRT_OK && t->rank == 0 && t->opt.keep > 0)
		remove_old(t, t->checkpointed);
	return status;
}

srt_status_t trainer_begin_checkpoint(trainer_t *t, int64_t step)
{
	position_t position;
	srt_checkpoint_entry_t entries[NENTRIES];
	const srt_checkpoint_options_t options = { .scaler = t->scaler,
						   .entries = entries,
						   .nentries = NENTRIES };
	char path[4096];
	srt_status_t status;

	get_position(t, step, &position);
	list_entries(&position, entries);
	print_path(t, step, path, sizeof(path));
	status = check_save(t, srt_checkpoint_save_begin(t->engine, path, &options, t->stream,
							 &t->writing));
	if (status == SRT_OK)
		t->checkpointed = step;
	return status;
}

/* ---- resuming --------------------------------------------------------------------------- */

/* The checkpoint that rank 0 finds; all ranks load the same one. */
typedef struct found {
	int32_t status;
	char path[1024], why[512];
} found_t;

/* The latest checkpoint; if the file `latest` is lost or damaged, with a warning the newest one of
 * the run. */
static void find_mine(const trainer_t *t, found_t *mine)
{
	int64_t *steps;
	size_t n;

	mine->status =
		(int32_t)srt_checkpoint_latest(t->opt.checkpoint, mine->path, sizeof(mine->path));
	if (mine->status == SRT_OK)
		return;
	snprintf(mine->why, sizeof(mine->why), "%s", srt_last_error());
	if (mine->status != SRT_ERR_FORMAT)
		return;
	steps = list_steps(t, INT64_MAX, &n);
	if (n > 0) {
		print_path(t, steps[0], mine->path, sizeof(mine->path));
		tool_error("warning: %s; going on from %s, the newest one of this run", mine->why,
			   mine->path);
		mine->status = SRT_OK;
	}
	free(steps);
}

static srt_status_t find_latest(trainer_t *t, found_t *found)
{
	found_t mine = { 0 }, *all = calloc((size_t)t->world, sizeof(*all));
	srt_status_t status;

	if (!all)
		return SRT_ERR_OUT_OF_MEMORY;
	if (t->rank == 0)
		find_mine(t, &mine);
	status = srt_comm_oob_allgather(t->comm, &mine, sizeof(mine), all);
	*found = all[0];
	free(all);
	return status;
}

static int check_position(trainer_t *t, const char *path, const position_t *p)
{
	position_t mine;

	get_position(t, p->step, &mine);
	if (memcmp(p->sizes, mine.sizes, sizeof(mine.sizes)) != 0)
		return trainer_set_error(t,
					 "--resume: the run in %s has a model of %.*s, but the "
					 "options give %s: give the same options",
					 path, (int)sizeof(p->sizes), p->sizes, mine.sizes);
	if (p->seed != mine.seed || p->batch != mine.batch)
		return trainer_set_error(t,
					 "--resume: the run in %s has --seed %" PRId64
					 " and --batch %" PRId64 ": give the same options",
					 path, p->seed, p->batch);
	if (p->text != mine.text)
		return trainer_set_error(t,
					 "--resume: the run in %s trains on another text than %s",
					 path, t->opt.tokens ? t->opt.tokens : t->opt.text);
	return 0;
}

/* The schedule of this run's options, which may have more steps, with the progress of the state. */
static srt_status_t restore_schedule(trainer_t *t, const srt_step_state_t *fresh)
{
	srt_step_state_t state;

	SRT_TRY(srt_engine_state(t->engine, t->stream, &state));
	t->skipped = state.skipped;
	state.base_lr = fresh->base_lr;
	state.min_lr = fresh->min_lr;
	state.warmup = fresh->warmup;
	state.lr_steps = fresh->lr_steps;
	state.schedule = fresh->schedule;
	state.decay_steps = fresh->decay_steps;
	return srt_engine_set_group_state(t->engine, 0, &state, t->stream);
}

srt_status_t trainer_resume(trainer_t *t)
{
	position_t position;
	srt_checkpoint_entry_t entries[NENTRIES];
	const srt_checkpoint_options_t options = { .scaler = t->scaler,
						   .entries = entries,
						   .nentries = NENTRIES };
	srt_step_state_t fresh;
	srt_status_t status;
	found_t found;

	list_entries(&position, entries);
	SRT_TRY(find_latest(t, &found));
	if (found.status == SRT_ERR_NOT_FOUND) {
		if (t->rank == 0)
			printf("no checkpoint in %s: a new run\n", t->opt.checkpoint);
		return SRT_OK;
	}
	if (found.status != SRT_OK) {
		trainer_set_error(t, "--resume: %s", found.why);
		return (srt_status_t)found.status;
	}
	SRT_TRY(srt_engine_state(t->engine, t->stream, &fresh));
	status = srt_checkpoint_load(t->engine, found.path, &options, t->stream);
	if (status == SRT_ERR_FORMAT || status == SRT_ERR_INVALID_ARGUMENT ||
	    status == SRT_ERR_NOT_FOUND || status == SRT_ERR_UNSUPPORTED)
		trainer_set_error(t, "--resume: %s", srt_last_error());
	SRT_TRY(status);
	if (check_position(t, found.path, &position) != 0)
		return SRT_ERR_INVALID_ARGUMENT;
	t->done = t->watched = t->checkpointed = position.step;
	if (t->rank == 0)
		printf("resumed from %s\n", found.path);
	return restore_schedule(t, &fresh);
}
