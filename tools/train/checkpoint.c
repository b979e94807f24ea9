/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves sharded checkpoints of a run: --checkpoint, --save-every and --keep. */
#include "tools/train/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/try.h"
#include "tools/common.h"

int trainer_open_checkpoints(trainer_t *t)
{
	const char *dir = t->opt.checkpoint;
	char latest[1024];
	srt_status_t status;

	if (!dir)
		return 0;
	if (mkdir(dir, 0777) != 0 && errno != EEXIST)
		return trainer_set_system_error(t, errno, "cannot create --checkpoint %s", dir);
	t->checkpoint_lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->checkpoint_lock < 0)
		return trainer_set_system_error(t, errno, "cannot open --checkpoint %s", dir);
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
	return status == SRT_ERR_NOT_FOUND ? 0 : trainer_set_failure(t, "%s", srt_last_error());
}

srt_status_t trainer_end_checkpoint(trainer_t *t)
{
	srt_checkpoint_write_t *write = t->writing;
	srt_status_t status;

	if (!write)
		return SRT_OK;
	t->writing = NULL;
	status = trainer_check_save(t, srt_checkpoint_save_end(write));
	if (status == SRT_OK && t->rank == 0 && t->opt.keep > 0)
		train_remove_old(t, t->checkpointed);
	return status;
}

srt_status_t trainer_begin_checkpoint(trainer_t *t, int64_t step)
{
	train_checkpoint_t name = { .step = step };
	train_position_t position;
	srt_checkpoint_entry_t entries[TRAIN_NENTRIES];
	const srt_checkpoint_options_t options = { .scaler = t->scaler,
						   .entries = entries,
						   .nentries = TRAIN_NENTRIES };
	char path[TRAIN_PATH_NBYTES];
	srt_status_t status;

	if (t->rank == 0)
		name = train_choose_name(t, t->opt.checkpoint, step);
	SRT_TRY(trainer_ask_rank0(t, &name.number));
	train_print_checkpoint(t->opt.checkpoint, &name, path);
	train_get_position(t, step, &position);
	train_list_entries(&position, entries);
	status = trainer_check_save(t, srt_checkpoint_save_begin(t->engine, path, &options,
								 t->stream, &t->writing));
	if (status == SRT_OK)
		t->checkpointed = step;
	return status;
}
