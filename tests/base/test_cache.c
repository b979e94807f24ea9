/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The folder of caches: created private; refused if it is a link, if others may write to it or own
 * it, and in a program with raised rights, where the environment belongs to another user.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/harness/check.h"

#define OTHER_ID 54321

static char root[64];

static void count_log(srt_log_level_t level, const char *message, void *arg)
{
	CHECK_INT(level, SRT_LOG_DEBUG);
	CHECK(strstr(message, "nothing is cached") != NULL);
	++*(int *)arg;
}

static bool has_folder(const char *name)
{
	char path[256], expected[256];
	int nlogs = 0;
	bool ok;

	srt_log_set(count_log, SRT_LOG_DEBUG, &nlogs);
	ok = srt_cache_folder(name, path, sizeof(path));
	srt_log_set(NULL, SRT_LOG_DEBUG, NULL);
	CHECK_INT(nlogs, !ok);
	snprintf(expected, sizeof(expected), "%s/%s", root, name);
	if (ok)
		CHECK_STR(path, expected);
	return ok;
}

/* Reliability: a cache that other users can write to | its code was loaded | not used */
static void test_folders(void)
{
	char path[128], link[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/a/b", root);
	CHECK(has_folder("a/b"));
	CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0700);
	CHECK(has_folder("a/b"));
	CHECK(chmod(path, 0755) == 0 && has_folder("a/b"));
	CHECK(chmod(path, 0770) == 0 && !has_folder("a/b"));
	CHECK(chmod(path, 0707) == 0 && !has_folder("a/b"));
	CHECK(chmod(path, 0700) == 0 && has_folder("a/b"));
	snprintf(link, sizeof(link), "%s/link", root);
	CHECK(symlink("a/b", link) == 0 && !has_folder("link"));
	if (geteuid() != 0) {
		printf("not root: no folder of another user is tried\n");
		return;
	}
	CHECK(chown(path, OTHER_ID, (gid_t)-1) == 0 && !has_folder("a/b"));
	CHECK(chown(path, 0, (gid_t)-1) == 0 && has_folder("a/b"));
}

/* A copy of this program with another group runs with raised rights. */
static void test_raised_rights(void)
{
	const char *emulator = getenv("SRT_EMULATOR");
	char copy[128], command[640];
	int status;

	if (emulator != NULL && *emulator) {
		printf("an emulated program cannot start another one: raised rights are not tried\n");
		return;
	}
	if (geteuid() != 0) {
		printf("not root: no program with raised rights is tried\n");
		return;
	}
	snprintf(copy, sizeof(copy), "%s/raised", root);
	snprintf(command, sizeof(command),
		 "cp /proc/%d/exe %s && chgrp %d %s && chmod 2755 %s && %s raised", (int)getpid(),
		 copy, OTHER_ID, copy, copy, copy);
	status = system(command);
	CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status %d", status);
}

int main(int argc, char **argv)
{
	char command[80];

	if (argc > 1 && strcmp(argv[1], "raised") == 0) {
		snprintf(root, sizeof(root), "%s", getenv("SHARDRT_CACHE_DIR"));
		if (getegid() != OTHER_ID)
			printf("the file system gives no rights to programs: not tried\n");
		else
			CHECK(!has_folder("raised-folder"));
		return check_done();
	}
	snprintf(root, sizeof(root), "./test_cache-XXXXXX");
	CHECK_OR_DIE(mkdtemp(root));
	setenv("SHARDRT_CACHE_DIR", root, 1);
	test_folders();
	test_raised_rights();
	snprintf(command, sizeof(command), "rm -rf %s", root);
	CHECK_INT(system(command), 0);
	return check_done();
}
