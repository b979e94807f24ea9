/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The folder of --checkpoint. Shared by checkpoint.c, which saves, resume.c, which loads, and
 * folder.c, which knows the names in the folder.
 *
 * The checkpoint of step 12 is step-0000000012. If that name is taken by something that is no
 * checkpoint of the run, the checkpoint is step-0000000012-2, or has the next number that is free.
 */
#ifndef SRT_TOOLS_TRAIN_CHECKPOINT_H
#define SRT_TOOLS_TRAIN_CHECKPOINT_H

#include <stdbool.h>

#include "tools/train/train.h"

/** Room for the path of a checkpoint, and the longest --checkpoint. */
#define TRAIN_PATH_NBYTES 1200
#define TRAIN_FOLDER_LENGTH 1023

/** What a checkpoint has of the run, apart from the engine. */
typedef struct train_position {
	int64_t step, seed, batch;
	uint64_t text;
	char sizes[TOOL_SIZES_NBYTES]; /* of the model: no tensor has the number of heads */
	uint64_t run; /* random, the same in all checkpoints of a run; 0: an early version */
	int64_t tensor_parts;
} train_position_t;

/** Entries of a checkpoint that are a train_position_t; those that a load needs: all but the last
 * two, which early versions do not have. */
#define TRAIN_NENTRIES 7
#define TRAIN_NLOADED 5

/** The position of this run after a step. */
void train_get_position(const trainer_t *t, int64_t step, train_position_t *p);
/** The position as entries of a checkpoint, the step first. */
void train_list_entries(train_position_t *p, srt_checkpoint_entry_t entries[TRAIN_NENTRIES]);

/** What is in the folder under the name of a checkpoint. */
typedef enum train_kind {
	TRAIN_KIND_NONE,
	TRAIN_KIND_OF_RUN,  /* a checkpoint with this run's number, seed, batch, text and sizes */
	TRAIN_KIND_RENAMED, /* one that the run has not saved here: a link, or of another step */
	TRAIN_KIND_DAMAGED, /* a checkpoint whose manifest cannot be read */
	TRAIN_KIND_OTHER    /* anything else */
} train_kind_t;

/** A name in the folder. */
typedef struct train_checkpoint {
	int64_t step;
	int number; /* 1: step-STEP; else step-STEP-NUMBER */
	train_kind_t kind;
} train_checkpoint_t;

/** The path of a checkpoint. @param path TRAIN_PATH_NBYTES. */
void train_print_checkpoint(const char *folder, const train_checkpoint_t *c, char *path);
/** Parses the last component of a path. @return 0, or -1 if it is not the name of a checkpoint. */
int train_parse_checkpoint(const char *path, train_checkpoint_t *c);
/** Orders checkpoints: below 0 if the first one is newer. */
int train_compare_checkpoints(const void *a, const void *b);
/** The number of a checkpoint's run; 0 if it has none. Local. @return whether it has one. */
bool train_read_run(const char *path, uint64_t *run);
/** What is there. Local. @return OTHER and DAMAGED: with srt_error_last(). */
train_kind_t train_find_kind(const trainer_t *t, const train_checkpoint_t *c);
/** The checkpoints of the run, also renamed and damaged ones, by their names, the newest first; to
 * be freed. Local. */
train_checkpoint_t *train_list_checkpoints(const trainer_t *t, size_t *n);
/** Removes the oldest checkpoints of the run up to this step, so that --keep are left. Local. */
void train_remove_old(const trainer_t *t, int64_t last);
/** The first name for the checkpoint of a step that nothing else has. Local. */
train_checkpoint_t train_choose_name(const trainer_t *t, const char *folder, int64_t step);
/**
 * Renames a damaged checkpoint, so that --keep does not count it and no save replaces it. Local.
 * @param[out] to the new path, TRAIN_PATH_NBYTES. @return 0, or -1 with errno.
 */
int train_set_aside(const char *path, char *to);

#endif
