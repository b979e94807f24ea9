/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files and checkpoints on file systems that do not have all calls. The linker passes these calls
 * to this program.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base.h"
#include "runtime/checkpoint/formats/folder.h"
#include "runtime/checkpoint/formats/safetensors.h"
#include "tests/harness/check.h"

/* ---- calls ------------------------------------------------------------------------------ */

typedef enum call { FCHMOD, FSYNC_FILE, FSYNC_FOLDER, FALLOCATE, FLOCK, EXCHANGE, NCALLS } call_t;
static const char *const names[NCALLS] = {
	"fchmod()",    "fsync() of a file", "fsync() of a folder",
	"fallocate()", "flock()",           "renameat2()"
};
static int errors[NCALLS]; /* 0: the call is made */
static long nfailed;
static bool is_silent; /* fstatvfs() does not tell the size of the file system */

static bool fails(call_t call)
{
	nfailed += errors[call] != 0;
	if (errors[call] != 0)
		errno = errors[call];
	return errors[call] != 0;
}

#define WRAP(name, call, parameters, arguments)                                                    \
	int __real_##name parameters;                                                              \
	int __wrap_##name parameters;                                                              \
	int __wrap_##name parameters                                                               \
	{                                                                                          \
		return fails(call) ? -1 : __real_##name arguments;                                 \
	}

static bool is_folder(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

WRAP(fchmod, FCHMOD, (int fd, mode_t mode), (fd, mode))
WRAP(fsync, is_folder(fd) ? FSYNC_FOLDER : FSYNC_FILE, (int fd), (fd))
WRAP(fallocate, FALLOCATE, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
WRAP(flock, FLOCK, (int fd, int operation), (fd, operation))
WRAP(renameat2, EXCHANGE, (int a, const char *from, int b, const char *to, unsigned flags),
     (a, from, b, to, flags))

int __real_fstatvfs(int fd, struct statvfs *fs);
int __wrap_fstatvfs(int fd, struct statvfs *fs);
int __wrap_fstatvfs(int fd, struct statvfs *fs)
{
	if (!is_silent)
		return __real_fstatvfs(fd, fs);
	*fs = (struct statvfs){ .f_bsize = 512, .f_namemax = 255 }; /* as FUSE does by default */
	return 0;
}

/* ---- what is saved ---------------------------------------------------------------------- */

static char parent[] = "tests/engine/file_calls.XXXXXX";
static char file[64], folder[64];

static srt_status_t save_file(float value)
{
	const srt_safetensors_entry_t entry = { .name = "x", .dtype = SRT_F32 };
	srt_safetensors_writer_t *writer = NULL;
	srt_status_t status = srt_safetensors_writer_create(file, &entry, 1, NULL, 0, &writer);

	if (status == SRT_OK)
		status = srt_safetensors_writer_put(writer, 0, &value);
	if (status == SRT_OK)
		status = srt_safetensors_writer_commit(writer);
	srt_safetensors_writer_destroy(writer);
	return status;
}

static float load_file(void)
{
	srt_safetensors_t *opened;
	float value = 0.0f;

	CHECK_OK_OR_DIE(srt_safetensors_open(file, &opened));
	CHECK_OK(srt_safetensors_read(opened, srt_safetensors_find(opened, "x"), 0, sizeof(value),
				      &value));
	srt_safetensors_close(opened);
	return value;
}

/* A checkpoint without tensors of this many ranks. */
static srt_status_t save_folder(int world)
{
	char optimizer[] = "none";
	srt_manifest_t m = { .world = world, .optimizer = optimizer };
	srt_folder_t f;
	srt_status_t status = srt_folder_create(&f, folder);

	if (status == SRT_OK) {
		memcpy(m.id, f.id, sizeof(m.id));
		status = srt_manifest_save(&m, f.temporary);
	}
	if (status == SRT_OK)
		status = srt_folder_commit(&f, true);
	srt_folder_close(&f);
	return status;
}

static int load_folder(void)
{
	srt_manifest_t m = { .world = 0 };
	int world;

	CHECK_OK(srt_manifest_read(folder, &m));
	world = m.world;
	srt_manifest_clear(&m);
	return world;
}

/* Nothing but the file, the folder and `latest` is left. */
static void check_clean(void)
{
	char command[256];

	snprintf(command, sizeof(command), "[ \"$(ls -A %s | wc -l)\" = 3 ]", parent);
	CHECK_MSG(system(command) == 0, "temporary files are left in %s", parent);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	CHECK_OR_DIE(stat(path, &st) == 0);
	return st.st_mode & 0777;
}

/*
 * Reliability: a file system that refuses fchmod(), fsync() of a folder, fallocate() or flock() |
 * --save ends in another folder, checkpoints are lost | saved; an error of the disk stays one
 */
static void test_refused(void)
{
	static const int refusals[] = { EINVAL, ENOTSUP, EPERM, ENOSYS };
	int turn = 10;

	for (int call = 0; call < NCALLS; call++) {
		for (size_t i = 0; i < SRT_ARRAY_LEN(refusals); i++, turn++) {
			is_silent = i % 2 > 0;
			errors[call] = refusals[i];
			nfailed = 0;
			CHECK_MSG(save_file((float)turn) == SRT_OK, "a file, %s: %s", names[call],
				  srt_error_last());
			CHECK_MSG(save_folder(turn) == SRT_OK, "a checkpoint, %s: %s", names[call],
				  srt_error_last());
			CHECK_MSG(nfailed > 0, "%s is not called", names[call]);
			errors[call] = 0;
			CHECK_INT((int)load_file(), turn);
			CHECK_INT(load_folder(), turn);
			CHECK_INT(mode_of(file), 0600); /* never more than it was */
			CHECK_INT(mode_of(folder), 0700);
			check_clean();
		}
	}
	is_silent = false;
}

static void test_failures(void)
{
	static const struct {
		call_t call;
		int error;
	} failures[] = { { FSYNC_FILE, EIO },   { FSYNC_FILE, ENOSPC }, { FSYNC_FILE, EDQUOT },
			 { FALLOCATE, ENOSPC }, { FALLOCATE, EIO },     { FCHMOD, EIO },
			 { FCHMOD, EROFS } };

	CHECK_OK_OR_DIE(save_file(1.0f));
	CHECK_OK_OR_DIE(save_folder(1));
	for (size_t i = 0; i < SRT_ARRAY_LEN(failures); i++) {
		const char *word = strerror(failures[i].error);

		errors[failures[i].call] = failures[i].error;
		CHECK_STATUS(save_file(2.0f), SRT_ERR_IO);
		CHECK_ERROR_HAS(word);
		if (failures[i].call != FALLOCATE) { /* a manifest is not allocated */
			CHECK_STATUS(save_folder(2), SRT_ERR_IO);
			CHECK_ERROR_HAS(word);
		}
		errors[failures[i].call] = 0;
		CHECK_INT((int)load_file(), 1);
		CHECK_INT(load_folder(), 1);
		check_clean();
	}
	/* The disk fails to sync a folder: the new file is in place, and the sentence says so. */
	errors[FSYNC_FOLDER] = EIO;
	CHECK_STATUS(save_file(3.0f), SRT_ERR_IO);
	CHECK_ERROR_HAS("is complete and in place");
	errors[FSYNC_FOLDER] = 0;
	CHECK_INT((int)load_file(), 3);
	check_clean();
}

int main(void)
{
	char path[80];

	CHECK_OR_DIE(mkdtemp(parent) != NULL);
	snprintf(file, sizeof(file), "%s/file", parent);
	snprintf(folder, sizeof(folder), "%s/folder", parent);
	CHECK_OK_OR_DIE(save_file(1.0f));
	CHECK_OK_OR_DIE(save_folder(1));
	CHECK_OR_DIE(chmod(file, 0600) == 0 && chmod(folder, 0700) == 0);
	test_refused();
	test_failures();
	CHECK_OK(srt_checkpoint_remove(folder));
	snprintf(path, sizeof(path), "%s/latest", parent);
	CHECK(unlink(path) == 0 && unlink(file) == 0 && rmdir(parent) == 0);
	return check_done();
}
