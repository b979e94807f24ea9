/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes the parameters: while training, at its end, and elsewhere if that fails. */
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

	return srt_gpt_nparams(&t->config, 0) * item + 256 * srt_gpt_ntensors(&t->config) + 1024;
}

int trainer_try_save(trainer_t *t, int *error)
{
	const int64_t nbytes = bound_save_nbytes(t);
	struct stat st;
	struct statvfs fs;
	char temporary[4096];
	int fd;

	*error = 0;
	if (stat(t->opt.save, &st) == 0 && !S_ISREG(st.st_mode))
		return trainer_set_error(
			t, "cannot write --save %s: it exists and is not a regular file",
			t->opt.save);
	if (!*t->opt.save || (size_t)snprintf(temporary, sizeof(temporary), "%s.tmp.XXXXXX",
					      t->opt.save) >= sizeof(temporary))
		return trainer_set_error(t,
					 "cannot write --save '%s': this is not the name of a file",
					 t->opt.save);
	fd = mkstemp(temporary);
	if (fd < 0) {
		*error = errno;
		return trainer_set_system_error(
			t, errno, "cannot write --save %s: cannot create a file in its folder",
			t->opt.save);
	}
	*error = fallocate(fd, 0, 0, (off_t)nbytes) == 0 ? 0 : errno;
	if (*error == EOPNOTSUPP || *error == ENOSYS || *error == EINVAL || *error == EPERM) {
		*error = 0; /* the file system cannot allocate; without blocks it does not tell */
		if (fstatvfs(fd, &fs) == 0 && fs.f_blocks > 0 && fs.f_frsize > 0 &&
		    (uint64_t)nbytes / fs.f_frsize >= fs.f_bavail)
			*error = ENOSPC;
	}
	close(fd);
	unlink(temporary);
	if (*error && *error != EINTR)
		return trainer_set_system_error(t, *error,
						"cannot write --save %s: cannot allocate %" PRId64
						" bytes",
						t->opt.save, nbytes);
	return 0;
}

srt_status_t trainer_check_save(trainer_t *t, srt_status_t status)
{
	if (status != SRT_ERR_IO && status != SRT_ERR_INVALID_ARGUMENT)
		return status;
	trainer_set_failure(t, "%s", srt_last_error());
	return SRT_ERR_IO;
}

srt_status_t trainer_save(trainer_t *t, const char *path)
{
	char sizes[TRAIN_SIZES_NBYTES], version[16];
	srt_file_metadata_t metadata[] = { { "format", "pt" },
					   { TRAIN_SIZES_KEY, sizes },
					   { "shardrt.numerics_version", version },
					   { "shardrt.numerics", train_numerics(t->context) } };
	srt_status_t status;

	train_print_sizes(&t->config, sizes, sizeof(sizes));
	snprintf(version, sizeof(version), "%d", srt_numerics_version());
	status = srt_engine_save(t->engine, path, metadata, 4, t->stream);
	return trainer_check_save(t, status);
}

srt_status_t trainer_ask_rank0(trainer_t *t, int *value)
{
	int *all = calloc((size_t)t->world, sizeof(*all));
	srt_status_t status;

	if (!all)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather(t->comm, value, sizeof(*value), all);
	*value = all[0];
	free(all);
	return status;
}

/* Whether to try again: rank 0 finds that there is space now, or that it may come. Collective. */
static srt_status_t may_retry(trainer_t *t, int *retry)
{
	int error;

	*retry = t->rank == 0 && (trainer_try_save(t, &error) == 0 || error == ENOSPC ||
				  error == EDQUOT || error == EIO);
	return trainer_ask_rank0(t, retry);
}

/* The failure of --save is in t->why: adds the place where the parameters are. */
static srt_status_t save_elsewhere(trainer_t *t)
{
	const char *tmp = getenv("TMPDIR"), *slash = strrchr(t->opt.save, '/');
	char folder[1024] = "", path[2048], why[sizeof(t->why)];
	srt_status_t status;
	int made;

	memcpy(why, t->why, sizeof(why));
	snprintf(folder, sizeof(folder), "%s/shardrt-train.XXXXXX", tmp && *tmp ? tmp : "/tmp");
	made = t->rank == 0 && mkdtemp(folder) != NULL;
	if (t->rank == 0 && !made)
		snprintf(folder, sizeof(folder), "%s", tmp && *tmp ? tmp : "/tmp");
	snprintf(path, sizeof(path), "%s/%s", folder, slash ? slash + 1 : t->opt.save);
	status = trainer_save(t, path);
	if (status == SRT_OK)
		trainer_set_failure(t, "the parameters are in %s, not in --save: %s", path, why);
	else
		trainer_set_failure(t, "the parameters are lost, %s cannot be written either: %s",
				    path, why);
	if (status != SRT_OK && made)
		rmdir(folder);
	return SRT_ERR_IO;
}

srt_status_t trainer_save_at_end(trainer_t *t, int hurry)
{
	srt_status_t status = trainer_save(t, t->opt.save);
	char why[sizeof(t->why)];
	int retry;

	for (unsigned s = 1; status == SRT_ERR_IO && !hurry && s <= LONGEST_PAUSE_S; s *= 2) {
		memcpy(why, t->why, sizeof(why));
		SRT_TRY(may_retry(t, &retry));
		memcpy(t->why, why, sizeof(why));
		if (!retry)
			break;
		if (t->rank == 0)
			tool_error("%s; trying again in %u s", t->why, s);
		sleep(s);
		t->why[0] = '\0';
		status = trainer_save(t, t->opt.save);
	}
	return status == SRT_ERR_IO ? save_elsewhere(t) : status;
}
