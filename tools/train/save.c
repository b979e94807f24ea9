/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes the parameters, while training and at its end; the last save, elsewhere if it fails. */
#include "tools/train/train.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "models/try.h"
#include "tools/common.h"

/* The longest pause before --save is tried again; the pauses double from one second. */
#define LONGEST_PAUSE_S 32

/* An upper bound of the size of --save. */
static int64_t bound_save_nbytes(const trainer_t *t)
{
	const int64_t item = train_options_precision(&t->opt).stored == SRT_F32 ? 4 : 2;

	return srt_decoder_nparams(&t->config, 0) * item + 256 * srt_decoder_ntensors(&t->config) +
	       1024;
}

int trainer_try_space(int fd, int64_t nbytes)
{
	struct statvfs fs;
	int error = fallocate(fd, 0, 0, (off_t)nbytes) == 0 ? 0 : errno;

	if (error == EOPNOTSUPP || error == ENOSYS || error == EINVAL || error == EPERM) {
		error = 0; /* the file system cannot allocate; without blocks it does not tell */
		if (fstatvfs(fd, &fs) == 0 && fs.f_blocks > 0 && fs.f_frsize > 0 &&
		    (uint64_t)nbytes / fs.f_frsize >= fs.f_bavail)
			error = ENOSPC;
	}
	return error == EINTR ? 0 : error;
}

int trainer_try_save(trainer_t *t, int *error)
{
	const int64_t nbytes = bound_save_nbytes(t);
	struct stat st;
	char temporary[2048], renamed[2048 + 8];
	int fd;

	if (t->model.family != NULL || t->lora.lora != NULL)
		return trainer_try_save_folder(t, error);
	*error = 0;
	if (stat(t->opt.save, &st) == 0 && !S_ISREG(st.st_mode))
		return tool_why_usage(&t->why,
				      "cannot write --save %s: it exists and is not a regular file",
				      t->opt.save);
	if (!*t->opt.save || (size_t)snprintf(temporary, sizeof(temporary), "%s.tmp.XXXXXX",
					      t->opt.save) >= sizeof(temporary))
		return tool_why_usage(&t->why,
				      "cannot write --save '%s': this is not the name of a file",
				      t->opt.save);
	fd = mkstemp(temporary);
	if (fd < 0) {
		*error = errno;
		return tool_why_system(&t->why, errno,
				       "cannot write --save %s: cannot create a file in its folder",
				       t->opt.save);
	}
	*error = trainer_try_space(fd, nbytes);
	close(fd);
	snprintf(renamed, sizeof(renamed), "%s.done", temporary);
	if (rename(temporary, renamed) != 0) {
		*error = errno;
		unlink(temporary);
		return tool_why_system(&t->why, *error,
				       "cannot write --save %s: cannot rename a file in its folder",
				       t->opt.save);
	}
	unlink(renamed);
	if (*error)
		return tool_why_system(&t->why, *error,
				       "cannot write --save %s: cannot allocate %" PRId64 " bytes",
				       t->opt.save, nbytes);
	return 0;
}

srt_status_t trainer_check_save(trainer_t *t, srt_status_t status)
{
	if (status != SRT_ERR_IO && status != SRT_ERR_INVALID_ARGUMENT)
		return status;
	tool_why_failure(&t->why, "%s", srt_error_last());
	return SRT_ERR_IO;
}

srt_status_t trainer_save(trainer_t *t, const char *path)
{
	char sizes[TOOL_SIZES_NBYTES], version[16];
	srt_file_metadata_t metadata[] = { { "format", "pt" },
					   { TOOL_SIZES_KEY, sizes },
					   { "shardrt.numerics_version", version },
					   { "shardrt.numerics", train_numerics(t->context) } };
	srt_status_t status;

	if (t->lora.lora != NULL)
		return trainer_save_adapter(t, path);
	if (t->model.family != NULL)
		return trainer_save_folder(t, path);
	tool_print_sizes(&t->config, sizes, sizeof(sizes));
	snprintf(version, sizeof(version), "%d", srt_numerics_version());
	status = srt_engine_save(t->engine, path, metadata, 4, t->stream);
	return trainer_check_save(t, status);
}

srt_status_t trainer_ask_rank0(trainer_t *t, int *value)
{
	int *all = calloc((size_t)t->world, sizeof(*all));
	srt_status_t status;

	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather(t->comm, value, sizeof(*value), all);
	*value = all[0];
	free(all);
	return status;
}

/* ---- the last save ------------------------------------------------------------------------ */

/* What is saved after the last step. */
typedef struct last_save {
	const char *option, *path; /* --save or --checkpoint */
	const char *what;
	srt_status_t (*write)(trainer_t *t, const char *path);
	int (*try)(trainer_t *t, int *error); /* as trainer_try_save() */
	const char *name; /* in another folder; NULL: `write` takes the folder */
	const char *remedy;
} last_save_t;

/* 0: do not try again; 1: after a pause; 2: at once. Rank 0 finds that there is space now, or that
 * it may come. Collective. */
static srt_status_t may_retry(trainer_t *t, const last_save_t *last, int *retry)
{
	int error;

	*retry = 0;
	if (t->rank == 0)
		*retry = t->made_room ? 2 :
					last->try(t, &error) == 0 || error == ENOSPC ||
						error == EDQUOT || error == EIO;
	t->made_room = 0;
	return trainer_ask_rank0(t, retry);
}

/* Makes a folder in TMPDIR; on a failure it is TMPDIR itself. @return whether it was made. */
static int make_folder(char *folder, size_t nfolder)
{
	const char *tmp = getenv("TMPDIR");

	tmp = tmp != NULL && *tmp ? tmp : "/tmp";
	snprintf(folder, nfolder, "%s/shardrt-train.XXXXXX", tmp);
	if (mkdtemp(folder) != NULL)
		return 1;
	snprintf(folder, nfolder, "%s", tmp);
	return 0;
}

/* The failure of the save is in t->why: adds the place where the data are. */
static srt_status_t save_elsewhere(trainer_t *t, const last_save_t *last)
{
	typedef struct place {
		char folder[1024];
	} place_t;
	place_t *all = calloc((size_t)t->world, sizeof(*all)), mine = { "" };
	char path[2048], why[sizeof(t->why.text)];
	srt_status_t status;
	int made = 0;

	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memcpy(why, t->why.text, sizeof(why));
	if (t->rank == 0)
		made = make_folder(mine.folder, sizeof(mine.folder));
	status = srt_comm_oob_allgather(t->comm, &mine, sizeof(mine), all);
	snprintf(path, sizeof(path), "%s%s%s", all[0].folder, last->name != NULL ? "/" : "",
		 last->name != NULL ? last->name : "");
	free(all);
	SRT_TRY(status);
	status = last->write(t, path);
	if (status == SRT_OK)
		tool_why_failure(&t->why, "%s in %s, not in %s%s: %s", last->what, path,
				 last->option, last->remedy, why);
	else
		tool_why_failure(&t->why, "%s lost, %s cannot be written either: %s", last->what,
				 path, why);
	if (status != SRT_OK && made) {
		rmdir(path); /* what is to be saved may be a folder too */
		rmdir(mine.folder);
	}
	return SRT_ERR_IO;
}

/* Saves; on a full disk tries again for a minute, then saves to a new temporary folder.
 * Collective. @param hurry does not wait for space. */
static srt_status_t save_at_end(trainer_t *t, const last_save_t *last, int hurry)
{
	srt_status_t status = last->write(t, last->path);
	char why[sizeof(t->why.text)];
	int retry;

	for (unsigned s = 1; status == SRT_ERR_IO && s <= LONGEST_PAUSE_S;) {
		memcpy(why, t->why.text, sizeof(why));
		SRT_TRY(may_retry(t, last, &retry));
		memcpy(t->why.text, why, sizeof(why));
		if (retry == 0 || (retry == 1 && hurry))
			break;
		if (retry == 1) {
			if (t->rank == 0)
				tool_error("%s; trying again in %u s", t->why.text, s);
			sleep(s);
			s *= 2;
		}
		t->why.text[0] = '\0';
		status = last->write(t, last->path);
	}
	return status == SRT_ERR_IO ? save_elsewhere(t, last) : status;
}

srt_status_t trainer_save_at_end(trainer_t *t, int hurry)
{
	const char *slash = strrchr(t->opt.save, '/');
	const last_save_t last = { .option = "--save",
				   .path = t->opt.save,
				   .what = "the parameters are",
				   .write = trainer_save,
				   .try = trainer_try_save,
				   .name = slash != NULL ? slash + 1 : t->opt.save,
				   .remedy = "" };

	return save_at_end(t, &last, hurry);
}

srt_status_t trainer_checkpoint_at_end(trainer_t *t, int hurry)
{
	const last_save_t last = { .option = "--checkpoint",
				   .path = t->opt.checkpoint,
				   .what = "the last checkpoint is",
				   .write = trainer_save_checkpoint,
				   .try = trainer_try_checkpoint,
				   .remedy = " (name that folder there to go on with --resume)" };

	return save_at_end(t, &last, hurry);
}
