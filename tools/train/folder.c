/* SPDX-License-Identifier: BSD-3-Clause */
/* The names in the folder of --checkpoint: see checkpoint.h. Local. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/common.h"
#include "tools/train/checkpoint.h"

#define PREFIX "step-"
#define NAME PREFIX "%010" PRId64
#define DAMAGED ".damaged"
/* More names of a step are not tried. */
#define MOST_NUMBERS 1000

void train_get_position(const trainer_t *t, int64_t step, train_position_t *p)
{
	srt_decoder_config_t config = t->config;
	char lora[TOOL_LORA_NBYTES];

	*p = (train_position_t){ .step = step,
				 .seed = t->opt.seed,
				 .batch = t->opt.batch,
				 .text = t->data_id.hash,
				 .run = t->run,
				 .tensor_parts = t->opt.tensor_parts };
	config.context = t->length;
	tool_print_sizes(&config, p->sizes, sizeof(p->sizes));
	tool_lora_print(&t->lora, lora);
	if (lora[0])
		snprintf(p->sizes + strlen(p->sizes), sizeof(p->sizes) - strlen(p->sizes), " %s",
			 lora);
}

void train_list_entries(train_position_t *p, srt_checkpoint_entry_t entries[TRAIN_NENTRIES])
{
	memset(entries, 0, TRAIN_NENTRIES * sizeof(*entries));
	entries[0] = (srt_checkpoint_entry_t){ sizeof(srt_checkpoint_entry_t), "step", &p->step,
					       sizeof(p->step) };
	entries[1] = (srt_checkpoint_entry_t){ sizeof(srt_checkpoint_entry_t), "seed", &p->seed,
					       sizeof(p->seed) };
	entries[2] = (srt_checkpoint_entry_t){ sizeof(srt_checkpoint_entry_t), "batch", &p->batch,
					       sizeof(p->batch) };
	entries[3] = (srt_checkpoint_entry_t){ sizeof(srt_checkpoint_entry_t), "text", &p->text,
					       sizeof(p->text) };
	entries[4] = (srt_checkpoint_entry_t){ sizeof(srt_checkpoint_entry_t), TOOL_SIZES_KEY,
					       p->sizes, sizeof(p->sizes) };
	entries[5] = (srt_checkpoint_entry_t){ sizeof(srt_checkpoint_entry_t), "run", &p->run,
					       sizeof(p->run) };
	entries[6] = (srt_checkpoint_entry_t){ sizeof(srt_checkpoint_entry_t), "tensor_parts",
					       &p->tensor_parts, sizeof(p->tensor_parts) };
}

/* ---- names ------------------------------------------------------------------------------ */

static void print_name(const train_checkpoint_t *c, char *name, size_t nname)
{
	if (c->number == 1)
		snprintf(name, nname, NAME, c->step);
	else
		snprintf(name, nname, NAME "-%d", c->step, c->number);
}

void train_print_checkpoint(const char *folder, const train_checkpoint_t *c, char *path)
{
	char name[64];

	print_name(c, name, sizeof(name));
	snprintf(path, TRAIN_PATH_NBYTES, "%s/%s", folder, name);
}

int train_parse_checkpoint(const char *path, train_checkpoint_t *c)
{
	const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
	char again[64];

	*c = (train_checkpoint_t){ .number = 1 };
	if (sscanf(name, PREFIX "%10" SCNd64 "-%6d", &c->step, &c->number) < 1)
		return -1;
	print_name(c, again, sizeof(again));
	return strcmp(name, again) == 0 ? 0 : -1;
}

int train_compare_checkpoints(const void *a, const void *b)
{
	const train_checkpoint_t *x = a, *y = b;

	return x->step != y->step ? (x->step < y->step) - (x->step > y->step) :
				    (x->number < y->number) - (x->number > y->number);
}

/* Whether a folder has files of ranks, as a save names them. */
static bool has_files_of_ranks(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	bool has = false;

	while (dir != NULL && !has && (entry = readdir(dir)) != NULL) {
		int rank, nranks, length = 0;

		has = sscanf(entry->d_name, "rank-%5d-of-%5d%n", &rank, &nranks, &length) == 2 &&
		      length == (int)strlen("rank-00000-of-00001");
	}
	if (dir != NULL)
		closedir(dir);
	return has;
}

bool train_read_run(const char *path, uint64_t *run)
{
	*run = 0;
	return srt_checkpoint_get_entry(path, "run", run, sizeof(*run), NULL) == SRT_OK;
}

/* Whether a checkpoint can be read and is of the run, and of this step. */
static train_kind_t compare_position(const trainer_t *t, const char *path, int64_t step)
{
	train_position_t mine, saved = { 0 };
	srt_checkpoint_entry_t wanted[TRAIN_NENTRIES], found[TRAIN_NENTRIES];
	uint64_t run;

	train_get_position(t, step, &mine);
	train_list_entries(&mine, wanted);
	train_list_entries(&saved, found);
	for (int i = 0; i < TRAIN_NLOADED; i++) {
		switch (srt_checkpoint_get_entry(path, found[i].key, found[i].data, found[i].nbytes,
						 NULL)) {
		case SRT_OK:
			break;
		case SRT_ERR_FORMAT:
			return has_files_of_ranks(path) ? TRAIN_KIND_DAMAGED : TRAIN_KIND_OTHER;
		default:
			return TRAIN_KIND_OTHER;
		}
		if (i > 0 && memcmp(found[i].data, wanted[i].data, found[i].nbytes) != 0)
			return TRAIN_KIND_OTHER;
	}
	train_read_run(path, &run);
	if (t->knows_run && run != t->run)
		return TRAIN_KIND_OTHER;
	return saved.step == step ? TRAIN_KIND_OF_RUN : TRAIN_KIND_RENAMED;
}

/* The kind of what is at this path. */
static train_kind_t find_kind(const trainer_t *t, const char *path, int64_t step)
{
	char manifest[TRAIN_PATH_NBYTES + 16];
	train_kind_t kind;
	struct stat st;
	bool is_link;

	if (lstat(path, &st) != 0)
		return errno == ENOENT ? TRAIN_KIND_NONE : TRAIN_KIND_OTHER;
	is_link = S_ISLNK(st.st_mode);
	if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
		return TRAIN_KIND_OTHER;
	snprintf(manifest, sizeof(manifest), "%s/manifest.json", path);
	if (access(manifest, F_OK) != 0) {
		if (!has_files_of_ranks(path))
			return TRAIN_KIND_OTHER;
		srt_checkpoint_get_entry(path, "step", NULL, 0, NULL); /* sets the sentence */
		return TRAIN_KIND_DAMAGED;
	}
	kind = compare_position(t, path, step);
	return is_link && kind == TRAIN_KIND_OF_RUN ? TRAIN_KIND_RENAMED : kind;
}

train_kind_t train_find_kind(const trainer_t *t, const train_checkpoint_t *c)
{
	char path[TRAIN_PATH_NBYTES];

	train_print_checkpoint(t->opt.checkpoint, c, path);
	return find_kind(t, path, c->step);
}

/* ---- the folder ------------------------------------------------------------------------- */

train_checkpoint_t *train_list_checkpoints(const trainer_t *t, size_t *n)
{
	DIR *dir = opendir(t->opt.checkpoint);
	train_checkpoint_t *all = NULL, c;
	const struct dirent *entry;

	*n = 0;
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		train_checkpoint_t *grown;

		if (train_parse_checkpoint(entry->d_name, &c) != 0)
			continue;
		c.kind = train_find_kind(t, &c);
		if (c.kind == TRAIN_KIND_NONE || c.kind == TRAIN_KIND_OTHER)
			continue;
		grown = realloc(all, (*n + 1) * sizeof(*all));
		if (grown == NULL)
			break;
		all = grown;
		all[(*n)++] = c;
	}
	if (dir != NULL)
		closedir(dir);
	if (*n > 0)
		qsort(all, *n, sizeof(*all), train_compare_checkpoints);
	return all;
}

void train_remove_old(const trainer_t *t, int64_t last)
{
	size_t n, kept = 0;
	train_checkpoint_t *all = train_list_checkpoints(t, &n);

	for (size_t i = 0; i < n; i++) {
		char path[TRAIN_PATH_NBYTES];

		if (all[i].kind != TRAIN_KIND_OF_RUN || all[i].step > last ||
		    kept++ < (size_t)t->opt.keep)
			continue;
		train_print_checkpoint(t->opt.checkpoint, &all[i], path);
		if (srt_checkpoint_remove(path) != SRT_OK)
			tool_error("warning: %s", srt_error_last());
	}
	free(all);
}

train_checkpoint_t train_choose_name(const trainer_t *t, const char *folder, int64_t step)
{
	train_checkpoint_t c = { .step = step, .number = 0 };
	char wanted[TRAIN_PATH_NBYTES] = "", path[TRAIN_PATH_NBYTES];
	train_kind_t kind;

	do {
		c.number++;
		train_print_checkpoint(folder, &c, path);
		kind = find_kind(t, path, step);
		if (c.number == 1)
			memcpy(wanted, path, sizeof(wanted));
	} while (kind != TRAIN_KIND_NONE && kind != TRAIN_KIND_OF_RUN && c.number < MOST_NUMBERS);
	if (c.number > 1)
		tool_error("warning: %s is there and is no checkpoint of this run: saving %s "
			   "instead",
			   wanted, path);
	return c;
}

int train_set_aside(const char *path, char *to)
{
	struct stat st;
	int number = 1;

	snprintf(to, TRAIN_PATH_NBYTES, "%s" DAMAGED, path);
	while (lstat(to, &st) == 0 && number < MOST_NUMBERS)
		snprintf(to, TRAIN_PATH_NBYTES, "%s" DAMAGED "-%d", path, ++number);
	return rename(path, to);
}
