/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves sharded checkpoints of a run: --checkpoint, --save-every and --keep. */
#include "tools/train/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/try.h"
#include "tools/common.h"

/* About the bytes of a checkpoint. */
static int64_t estimate_nbytes(const trainer_t *t)
{
	const int64_t item = train_options_precision(&t->opt).stored == SRT_F32 ? 4 : 2;
	const int64_t nadapters =
		t->lora.lora != NULL ? t->lora.lora->r * t->lora.nmodules * 8 * t->config.width : 0;
	const int64_t values = t->opt.optimizer != TRAIN_SGD ? 3 : t->opt.momentum > 0 ? 2 : 1;

	if (nadapters > 0) /* the base is saved without states, in at most these bytes */
		return srt_decoder_nparams(&t->config, 0) *
			       (t->opt.base_dtype >= 0 ? 4 >> t->opt.base_dtype : item) +
		       values * nadapters * item + 1024 * srt_decoder_ntensors(&t->config);
	return values *
	       (srt_decoder_nparams(&t->config, 0) * item + 512 * srt_decoder_ntensors(&t->config));
}

/* Makes a folder in the folder of --checkpoint, with a file of this size, renames and removes it.
 * @param[out] what was tried. @return 0, or errno. */
static int try_folder(const char *dir, int64_t nbytes, const char **what)
{
	char path[TRAIN_PATH_NBYTES], renamed[TRAIN_PATH_NBYTES + 8];
	char file[TRAIN_PATH_NBYTES + 16];
	int fd, error;

	*what = "create a folder in it";
	snprintf(path, sizeof(path), "%s/.try-XXXXXX", dir);
	if (mkdtemp(path) == NULL)
		return errno;
	*what = "rename a folder in it";
	snprintf(renamed, sizeof(renamed), "%s.done", path);
	error = rename(path, renamed) == 0 ? 0 : errno;
	if (error) {
		rmdir(path);
		return error;
	}
	*what = "allocate the space of a checkpoint";
	snprintf(file, sizeof(file), "%s/file", renamed);
	fd = open(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	error = fd < 0 ? errno : 0;
	unlink(file); /* before it has its size: it is gone if this process is killed */
	if (fd >= 0) {
		error = trainer_try_space(fd, nbytes);
		close(fd);
	}
	rmdir(renamed);
	return error == EFBIG ? 0 : error; /* a checkpoint has several files */
}

static bool is_full(int error)
{
	return error == ENOSPC || error == EDQUOT;
}

int trainer_try_checkpoint(trainer_t *t, int *error)
{
	const int64_t nbytes = estimate_nbytes(t);
	const char *what;

	*error = try_folder(t->opt.checkpoint, nbytes, &what);
	if (*error == 0)
		return 0;
	return tool_why_system(&t->why, *error,
			       "cannot save to --checkpoint %s: cannot %s (about %" PRId64
			       " bytes)",
			       t->opt.checkpoint, what, nbytes);
}

/* After a save that has failed: if there is no space, removes the oldest checkpoint, unless it is
 * the only complete one or the latest. @return whether it was removed. */
static int make_room(const trainer_t *t)
{
	train_checkpoint_t *all;
	size_t n, nof_run = 0, oldest = 0;
	char path[TRAIN_PATH_NBYTES] = "", latest[TRAIN_PATH_NBYTES] = "";
	const char *what;

	if (t->opt.keep == 0 || !is_full(try_folder(t->opt.checkpoint, estimate_nbytes(t), &what)))
		return 0;
	all = train_list_checkpoints(t, &n);
	for (size_t i = 0; i < n; i++) {
		if (all[i].kind != TRAIN_KIND_OF_RUN)
			continue;
		nof_run++;
		oldest = i;
	}
	if (nof_run > 1)
		train_print_checkpoint(t->opt.checkpoint, &all[oldest], path);
	free(all);
	if (nof_run < 2 ||
	    srt_checkpoint_latest(t->opt.checkpoint, latest, sizeof(latest)) != SRT_OK ||
	    strcmp(path, latest) == 0)
		return 0;
	tool_error("warning: there is no space for another checkpoint: removing %s, the oldest of "
		   "%zu",
		   path, nof_run);
	if (srt_checkpoint_remove(path) == SRT_OK)
		return 1;
	tool_error("warning: %s", srt_error_last());
	return 0;
}

/* Numbers a new run; --resume will change it if it finds a checkpoint. */
static void begin_run(trainer_t *t)
{
	if (getrandom(&t->run, sizeof(t->run), 0) != (ssize_t)sizeof(t->run))
		t->run = (uint64_t)getpid();
	t->knows_run = !t->opt.resume;
}

/* Before the first step: what a save needs must be there. Space may come from old checkpoints. */
static int try_at_start(trainer_t *t)
{
	size_t n;
	int error;

	if (trainer_try_checkpoint(t, &error) == 0)
		return 0;
	free(train_list_checkpoints(t, &n));
	if (!is_full(error) || n == 0)
		return -1;
	tool_error("warning: %s", t->why.text);
	t->why.text[0] = '\0';
	return 0;
}

int trainer_open_checkpoints(trainer_t *t)
{
	const char *dir = t->opt.checkpoint;
	char latest[TRAIN_PATH_NBYTES];
	srt_status_t status;

	if (dir == NULL)
		return 0;
	if (strlen(dir) > TRAIN_FOLDER_LENGTH)
		return tool_why_usage(&t->why, "--checkpoint has a path of more than %d characters",
				      TRAIN_FOLDER_LENGTH);
	if (mkdir(dir, 0777) != 0 && errno != EEXIST)
		return tool_why_system(&t->why, errno, "cannot create --checkpoint %s", dir);
	t->checkpoint_lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->checkpoint_lock < 0)
		return tool_why_system(&t->why, errno, "cannot open --checkpoint %s", dir);
	/* A file system may have no locks. */
	if (flock(t->checkpoint_lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
		return tool_why_usage(&t->why, "another job writes checkpoints to --checkpoint %s",
				      dir);
	status = srt_checkpoint_latest(dir, latest, sizeof(latest));
	if (status == SRT_ERR_UNSUPPORTED) /* by this build */
		return tool_why_usage(&t->why, "--checkpoint: %s", srt_error_last());
	begin_run(t);
	if (t->opt.resume || status == SRT_ERR_NOT_FOUND)
		return try_at_start(t);
	if (status == SRT_OK || status == SRT_ERR_FORMAT)
		return tool_why_usage(&t->why,
				      "--checkpoint %s has checkpoints of an earlier run: go on "
				      "from the latest one with --resume, or name another folder",
				      dir);
	return tool_why_failure(&t->why, "%s", srt_error_last());
}

srt_status_t trainer_end_checkpoint(trainer_t *t)
{
	srt_checkpoint_write_t *write = t->writing;
	srt_status_t status;

	if (write == NULL)
		return SRT_OK;
	t->writing = NULL;
	status = trainer_check_save(t, srt_checkpoint_save_end(write));
	if (status == SRT_OK && t->rank == 0 && t->opt.keep > 0)
		train_remove_old(t, t->checkpointed);
	t->made_room = status == SRT_ERR_IO && t->rank == 0 && make_room(t);
	return status;
}

static srt_status_t begin(trainer_t *t, const char *folder, int64_t step)
{
	train_checkpoint_t name = { .step = step };
	train_position_t position;
	srt_checkpoint_entry_t entries[TRAIN_NENTRIES + 1];
	srt_checkpoint_options_t options = { .size = sizeof(srt_checkpoint_options_t),
					     .scaler = t->scaler,
					     .entries = entries,
					     .nentries = TRAIN_NENTRIES };
	char path[TRAIN_PATH_NBYTES];
	srt_status_t status;

	if (t->rank == 0)
		name = train_choose_name(t, folder, step);
	SRT_TRY(trainer_ask_rank0(t, &name.number));
	train_print_checkpoint(folder, &name, path);
	train_get_position(t, step, &position);
	train_list_entries(&position, entries);
	if (t->model.config_text != NULL)
		entries[options.nentries++] =
			(srt_checkpoint_entry_t){ sizeof(srt_checkpoint_entry_t), TOOL_CONFIG_KEY,
						  t->model.config_text,
						  strlen(t->model.config_text) };
	status = trainer_check_save(t, srt_checkpoint_save_begin(t->engine, path, &options,
								 &t->writing, t->stream));
	if (status == SRT_OK)
		t->checkpointed = step;
	return status;
}

srt_status_t trainer_begin_checkpoint(trainer_t *t, int64_t step)
{
	return begin(t, t->opt.checkpoint, step);
}

srt_status_t trainer_save_checkpoint(trainer_t *t, const char *folder)
{
	SRT_TRY(begin(t, folder, t->done));
	return trainer_end_checkpoint(t);
}
