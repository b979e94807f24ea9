/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asking a driver for its devices in another process: its answer is that of this process, and a
 * driver that aborts, exits or hangs neither ends nor hangs the program. The driver is
 * module_test.c under the name of opencl. Each case is a separate process: an answer is kept.
 */
#include <glob.h>
#include <signal.h>
#include <unistd.h>

#include "device/device.h"
#include "tests/harness/check.h"

/* What the library logged. */
static struct {
	char text[4096];
	bool entered; /* this process has loaded the module */
} logged;

static void keep_log(srt_log_level_t level, const char *message, void *arg)
{
	const size_t used = strlen(logged.text);

	(void)level;
	(void)arg;
	snprintf(logged.text + used, sizeof(logged.text) - used, "%s\n", message);
	logged.entered = logged.entered || strcmp(message, "module_test: entered") == 0;
}

/* Instead of glob(): this machine has the device file of a GPU. */
int __wrap_glob(const char *pattern, int flags, int (*report)(const char *, int), glob_t *found);
int __wrap_glob(const char *pattern, int flags, int (*report)(const char *, int), glob_t *found)
{
	(void)flags;
	(void)report;
	*found = (glob_t){ .gl_pathc = 0 };
	return strcmp(pattern, "/dev/kfd") == 0 ? 0 : GLOB_NOMATCH;
}

/* The number of a backend on the list. */
static size_t find_number(const char *name)
{
	srt_backend_info_t info = SRT_BACKEND_INFO_INIT;
	size_t i = 0;

	while (i < srt_backend_count() && srt_backend_get_info(i, &info) == SRT_OK &&
	       strcmp(info.name, name) != 0)
		i++;
	CHECK_STR(info.name, name);
	return i;
}

static void check_listed(void)
{
	const size_t i = find_number("opencl");
	srt_device_description_t description = SRT_DEVICE_DESCRIPTION_INIT;
	srt_backend_info_t info = SRT_BACKEND_INFO_INIT;

	CHECK_OK(srt_backend_get_info(i, &info));
	CHECK(strstr(info.module, "/shardrt_backend_opencl.so"));
	CHECK_INT(info.ndevices, 2);
	CHECK_STR(info.why_none, "");
	CHECK_OK(srt_backend_get_device(i, 0, &description));
	CHECK_STR(description.name, "first");
	CHECK_INT(description.accelerator, 0);
	CHECK_OK(srt_backend_get_device(i, 1, &description));
	CHECK_STR(description.name, "second");
	CHECK_INT(description.accelerator, 1);
	CHECK_STATUS(srt_backend_get_device(i, 2, &description), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_backend_get_device(i, -1, &description), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_backend_get_device(i, 0, NULL), SRT_ERR_INVALID_ARGUMENT);
}

static void test_list(void)
{
	setenv("TEST_MODULE", "gpu", 1);
	check_listed();
	CHECK(!logged.entered); /* another process has loaded it */
	setenv("SHARDRT_PROBE_TIMEOUT", "0", 1);
	check_listed();
	CHECK(logged.entered);
}

static void why_none(const char *words)
{
	const size_t i = find_number("opencl");
	srt_device_description_t description = SRT_DEVICE_DESCRIPTION_INIT;
	srt_backend_info_t info = SRT_BACKEND_INFO_INIT;

	CHECK_OK(srt_backend_get_info(i, &info));
	CHECK_INT(info.ndevices, 0);
	CHECK(strstr(info.module, "/shardrt_backend_opencl.so"));
	CHECK_MSG(strstr(info.why_none, words), "%s", info.why_none);
	CHECK_STATUS(srt_backend_get_device(i, 0, &description), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(words);
}

static void test_list_none(void)
{
	setenv("TEST_MODULE", "none", 1);
	why_none("the list of drivers is empty");
	setenv("SHARDRT_PROBE_TIMEOUT", "0", 1);
	why_none("the list of drivers is empty");
}

/* auto goes on with the next backend, and the list says why. */
static void bad_driver(const char *kind, const char *words)
{
	const srt_backend_t *backend = NULL;

	setenv("TEST_MODULE", kind, 1);
	CHECK_OK_OR_DIE(srt_backend_lookup("auto", &backend));
	CHECK_STR(backend->name, "cpu");
	CHECK_MSG(strstr(logged.text, "SHARDRT_BACKEND=auto goes on without opencl: its driver "),
		  "%s", logged.text);
	CHECK_MSG(strstr(logged.text, words), "%s", logged.text);
	why_none(words);
	CHECK(!logged.entered);
}

/*
 * Reliability: a driver that aborts, exits or hangs when it is asked for its devices, as PoCL's
 * does without /sys or with little memory | ended or hung the program, though
 * `SHARDRT_BACKEND=auto` and `shardrt-info` only ask | asked in another process: the sentence says
 * how it ended, `auto` goes on without
 */
static void test_driver_aborts(void)
{
	bad_driver("aborts", "ended the process that asked for devices, by signal 6 (Aborted)");
}

static void test_driver_exits(void)
{
	bad_driver("exits", "ended the process that asked for devices, by exit status 3");
}

static void test_driver_hangs(void)
{
	setenv("SHARDRT_PROBE_TIMEOUT", "0.2", 1);
	bad_driver("hangs", "has not listed its devices for 0.2 s (SHARDRT_PROBE_TIMEOUT)");
}

/* How a child has ended is not known. */
static void test_driver_unknown_end(void)
{
	signal(SIGCHLD, SIG_IGN);
	bad_driver("aborts", "ended the process that asked for devices, by an unknown cause");
}

/* Reliability: `SHARDRT_BACKEND=cpu`, and a driver that crashes | `shardrt-info` loaded it all the
 * same, and crashed | no driver is loaded or asked */
static void test_cpu_asks_no_driver(void)
{
	srt_backend_info_t info = SRT_BACKEND_INFO_INIT;

	setenv("TEST_MODULE", "aborts", 1);
	setenv("SHARDRT_BACKEND", "cpu", 1);
	setenv("SHARDRT_PROBE_TIMEOUT", "0", 1);
	CHECK_OK(srt_backend_get_info(find_number("opencl"), &info));
	CHECK_STR(info.why_none, "its driver is not asked with SHARDRT_BACKEND=cpu");
	CHECK_INT(info.ndevices, 0);
	CHECK(!logged.entered);
}

/* auto loads the module once it is known to have an accelerator. */
static void test_auto(void)
{
	const srt_backend_t *backend = NULL;

	setenv("TEST_MODULE", "gpu", 1);
	CHECK_OK_OR_DIE(srt_backend_lookup("auto", &backend));
	CHECK_STR(backend->name, "opencl");
	CHECK(logged.entered);
}

/* A program without standard error, as some daemons: what asks must not take that for the driver's
 * end. */
static void test_auto_closed(void)
{
	close(STDERR_FILENO);
	test_auto();
	CHECK_STR(logged.text, "module_test: entered\n");
}

static void test_auto_cpus(void)
{
	const srt_backend_t *backend = NULL;

	setenv("TEST_MODULE", "cpus", 1);
	CHECK_OK_OR_DIE(srt_backend_lookup("auto", &backend));
	CHECK_STR(backend->name, "cpu");
	CHECK_STR(logged.text, "");
}

static void test_auto_broken(void)
{
	const srt_backend_t *backend = NULL;

	setenv("TEST_MODULE", "old", 1);
	CHECK_OK_OR_DIE(srt_backend_lookup("auto", &backend));
	CHECK_STR(backend->name, "cpu");
	CHECK(strstr(logged.text, "goes on without opencl"));
	CHECK(strstr(logged.text, "was built for version"));
	CHECK(!logged.entered);
}

int main(void)
{
	char folder[] = "/tmp/srt-probe-XXXXXX", module[64], here[2048], file[4096];

	CHECK_OR_DIE(getcwd(here, sizeof(here)) != NULL);
	snprintf(file, sizeof(file), "%s/tests/fakes/.libs/module_test.so", here);
	if (access(file, R_OK) || access(".libs/shardrt-probe", X_OK))
		CHECK_SKIP("no shared objects were built");
	CHECK_OR_DIE(mkdtemp(folder) != NULL);
	snprintf(module, sizeof(module), "%s/shardrt_backend_opencl.so", folder);
	CHECK_OR_DIE(symlink(file, module) == 0);
	unsetenv("SHARDRT_BACKEND");
	setenv("SHARDRT_MODULE_PATH", folder, 1);
	srt_log_set(keep_log, SRT_LOG_WARN, NULL);
	CHECK_IN_CHILD(test_list);
	CHECK_IN_CHILD(test_list_none);
	CHECK_IN_CHILD(test_auto);
	CHECK_IN_CHILD(test_auto_closed);
	CHECK_IN_CHILD(test_auto_cpus);
	CHECK_IN_CHILD(test_auto_broken);
	CHECK_IN_CHILD(test_driver_aborts);
	CHECK_IN_CHILD(test_driver_exits);
	CHECK_IN_CHILD(test_driver_hangs);
	CHECK_IN_CHILD(test_driver_unknown_end);
	CHECK_IN_CHILD(test_cpu_asks_no_driver);
	CHECK_INT(unlink(module), 0);
	CHECK_INT(rmdir(folder), 0);
	return check_done();
}
