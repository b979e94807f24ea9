/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loading backends: a module that is missing, broken, of another version or without a device is
 * told with its reason; where modules are looked for, in which order; which backend `auto` takes.
 * The modules are module_test.c and module_empty.c under names of our choice. Each case is a
 * separate process: a module stays loaded. They are cases of a copy of this program in a temporary
 * folder: the original finds the modules of the build tree.
 */
#include <fnmatch.h>
#include <glob.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/device.h"
#include "tests/harness/check.h"

static char folder[32] = "/tmp/srt-modules-XXXXXX"; /* a, b and bin are folders in it */
static char modules[4096];                          /* where the build has put them */

/* FOLDER/{a,b}/shardrt_backend_NAME.so becomes the file, or a text that is no shared object. */
static void place(const char *where, const char *name, const char *file)
{
	char path[256], target[4200];

	snprintf(path, sizeof(path), "%s/%s/shardrt_backend_%s.so", folder, where, name);
	if (file != NULL) {
		snprintf(target, sizeof(target), "%s/%s", modules, file);
		CHECK_OR_DIE(access(target, R_OK) == 0 && symlink(target, path) == 0);
	} else {
		FILE *f = fopen(path, "w");

		CHECK_OR_DIE(f != NULL && fputs("not a module\n", f) >= 0 && fclose(f) == 0);
	}
}

/* What the library logged. */
static struct {
	pthread_mutex_t lock;
	char text[8192];
	int nentered;
} logged = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void keep_log(srt_log_level_t level, const char *message, void *arg)
{
	size_t used;

	(void)level;
	(void)arg;
	pthread_mutex_lock(&logged.lock);
	used = strlen(logged.text);
	snprintf(logged.text + used, sizeof(logged.text) - used, "%s\n", message);
	logged.nentered += strcmp(message, "module_test: entered") == 0;
	pthread_mutex_unlock(&logged.lock);
}

static void use_folders(const char *format)
{
	char path[256];

	snprintf(path, sizeof(path), format, folder, folder);
	setenv("SHARDRT_MODULE_PATH", path, 1);
}

static srt_status_t open_device(const char *name)
{
	srt_device_request_t request = { .selector = "", .local_size = 1, .exact = 1 };
	srt_device_t *device = NULL;
	srt_status_t status = srt_device_open(name, &request, SRT_NUMERICS_DEFAULT, &device);

	srt_device_close(device);
	return status;
}

static void test_missing(void)
{
	const srt_backend_t *backend = NULL;

	use_folders("/nowhere:%s/a");
	CHECK_STATUS(srt_backend_lookup("nosuch", &backend), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("there is no backend \"nosuch\"");
	CHECK_ERROR_HAS("no file shardrt_backend_nosuch.so in /nowhere, /tmp/srt-modules-");
	CHECK_STATUS(open_device("nosuch"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_backend_lookup("cuda", &backend), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("\"cuda\" is not installed, or not part of this build");
	CHECK_ERROR_HAS("no file shardrt_backend_cuda.so");
	CHECK(backend == NULL);
}

static void broken(const char *name, const char *words)
{
	const srt_backend_t *backend = NULL;

	/* It fails as often as it is asked for. */
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(srt_backend_lookup(name, &backend), SRT_ERR_UNSUPPORTED);
		CHECK_ERROR_HAS(words);
		CHECK_ERROR_HAS(name);
	}
	CHECK(backend == NULL);
}

static void test_broken(void)
{
	use_folders("%s/a");
	broken("text", "does not load");
	broken("text", "shardrt_backend_text.so");
	broken("folder", "does not load");
	broken("empty", "has no function srt_backend_module");
	setenv("TEST_MODULE", "old", 1);
	broken("opencl", "was built for version");
	setenv("TEST_MODULE", "stale", 1);
	broken("opencl", "was built with other kernels (1-1)");
	setenv("TEST_MODULE", "refuses", 1);
	broken("opencl", "refuses this library: there is no moon today");
	setenv("TEST_MODULE", "silent", 1);
	broken("opencl", "refuses this library: it reports no reason");
	setenv("TEST_MODULE", "incomplete", 1);
	broken("opencl", "lacks a table");
	setenv("TEST_MODULE", "gpu", 1);
	broken("renamed", "holds the backend \"opencl\", not \"renamed\"");
	/* After all this the right module loads. */
	CHECK_STATUS(open_device("opencl"), SRT_ERR_DEVICE);
	CHECK_ERROR_HAS("accelerator=0");
	CHECK_STATUS(open_device("xpu"), SRT_ERR_DEVICE);
	CHECK_INT(logged.nentered,
		  9); /* twice each of old, stale, incomplete, renamed; one that loads */
}

/* The one device file of this machine, in place of glob()'s answers; NULL: none. */
static const char *accelerator_file;

int __wrap_glob(const char *pattern, int flags, int (*report)(const char *, int), glob_t *found);
int __wrap_glob(const char *pattern, int flags, int (*report)(const char *, int), glob_t *found)
{
	(void)flags;
	(void)report;
	*found = (glob_t){ .gl_pathc = 0 };
	return accelerator_file != NULL && fnmatch(pattern, accelerator_file, 0) == 0 ?
		       0 :
		       GLOB_NOMATCH;
}

static void test_no_device(void)
{
	accelerator_file = "/dev/mali0";
	setenv("TEST_MODULE", "none", 1);
	use_folders("%s/a");
	CHECK_STATUS(open_device("opencl"), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("\"opencl\" has no usable device: the list of drivers is empty");
	CHECK_OK(open_device("auto"));
}

static void chosen(const char *expected)
{
	const srt_backend_t *backend = NULL;

	CHECK_OK_OR_DIE(srt_backend_lookup("auto", &backend));
	CHECK_STR(backend->name, expected);
	CHECK_OK_OR_DIE(srt_backend_lookup(NULL, &backend));
	CHECK_STR(backend->name, expected);
}

/* Nothing is there: no word is lost about it. */
static void test_auto_alone(void)
{
	accelerator_file = "/dev/kfd";
	use_folders("%s/b");
	unlink("b/shardrt_backend_opencl.so");
	chosen("cpu");
	CHECK_OK(open_device("auto"));
	CHECK(strstr(logged.text, "opencl") == NULL);
}

static void test_auto_broken(void)
{
	accelerator_file = "/dev/dri/renderD128";
	use_folders("%s/a");
	setenv("TEST_MODULE", "old", 1);
	chosen("cpu");
	CHECK(strstr(logged.text, "goes on without opencl"));
	CHECK(strstr(logged.text, "was built for version"));
	CHECK_OK(open_device(""));
}

/* A device that is a CPU is never taken unasked. */
static void test_auto_cpus(void)
{
	accelerator_file = "/dev/nvidiactl";
	use_folders("%s/a");
	setenv("TEST_MODULE", "cpus", 1);
	chosen("cpu");
	CHECK_OK(open_device("auto"));
	CHECK_STATUS(open_device("opencl"), SRT_ERR_DEVICE);
}

static void test_auto_gpu(void)
{
	accelerator_file = "/dev/dri/card0"; /* a display alone */
	use_folders("%s/a");
	setenv("TEST_MODULE", "gpu", 1);
	chosen("cpu");
	CHECK_INT(logged.nentered, 0); /* no driver was loaded to be asked */
	accelerator_file = "/dev/dri/renderD128";
	chosen("opencl");
	CHECK_STATUS(open_device("auto"), SRT_ERR_DEVICE);
	CHECK_ERROR_HAS("SHARDRT_BACKEND=auto took opencl");
	CHECK_ERROR_HAS("accelerator=1");
	CHECK_STATUS(open_device("opencl"), SRT_ERR_DEVICE);
	CHECK_ERROR_HAS("accelerator=0");
	CHECK_OK(open_device("cpu"));
}

/* cuda before opencl. */
static void test_auto_order(void)
{
	use_folders("%s/a:%s/b");
	setenv("TEST_MODULE", "gpu", 1);
	setenv("TEST_MODULE_NAME", "cuda", 1);
	chosen("cuda");
}

/* The first folder that has a file of the name; what is wrong with it is not a reason to go on. */
static void test_folders(void)
{
	setenv("TEST_MODULE", "gpu", 1);
	use_folders("::%s/b:%s/a");
	broken("opencl", "/b/shardrt_backend_opencl.so does not load");
	use_folders(":%s/a::%s/b:");
	CHECK_STATUS(open_device("opencl"), SRT_ERR_DEVICE);
}

/* A folder near the program, which has the module of opencl. */
static const char *near_folder;

static void test_near(void)
{
	const srt_backend_t *backend = NULL;
	char path[256];

	unsetenv("SHARDRT_MODULE_PATH");
	setenv("TEST_MODULE", "gpu", 1);
	CHECK_OK_OR_DIE(srt_backend_lookup("opencl", &backend));
	snprintf(path, sizeof(path), "%s/%s/shardrt_backend_opencl.so", folder, near_folder);
	CHECK_STR(srt_backend_module_path(backend), path);
}

/* What all users can write to is not searched: a program in /tmp must not load what another user
 * has put there. */
static void test_near_open(void)
{
	const srt_backend_t *backend = NULL;
	char words[256];

	unsetenv("SHARDRT_MODULE_PATH");
	CHECK_STATUS(srt_backend_lookup("opencl", &backend), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("no file shardrt_backend_opencl.so in ");
	snprintf(words, sizeof(words), "no module is loaded from %s/%s: its owner", folder,
		 near_folder);
	CHECK(strstr(logged.text, words));
	use_folders("%s/a");
	setenv("TEST_MODULE", "gpu", 1);
	CHECK_OK(srt_backend_lookup("opencl", &backend));
}

static void *load(void *arg)
{
	const srt_backend_t **backend = arg;

	CHECK_OK(srt_backend_lookup("opencl", backend));
	return NULL;
}

static void test_threads(void)
{
	const srt_backend_t *found[8] = { NULL };
	pthread_t threads[8];

	use_folders("%s/a");
	setenv("TEST_MODULE", "gpu", 1);
	for (int i = 0; i < 8; i++)
		CHECK_OR_DIE(pthread_create(&threads[i], NULL, load, &found[i]) == 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 8; i++)
		CHECK(found[i] != NULL && found[i] == found[0]);
	CHECK_INT(logged.nentered, 1);
}

static void test_list(void)
{
	srt_backend_info_t info = SRT_BACKEND_INFO_INIT;
	srt_device_description_t description = SRT_DEVICE_DESCRIPTION_INIT;
	size_t n = srt_backend_count();
	bool seen = false;

	use_folders("%s/a");
	setenv("TEST_MODULE", "gpu", 1);
	CHECK(n >= 3);
	CHECK_OK(srt_backend_get_info(0, &info));
	CHECK_STR(info.name, "cpu");
	CHECK_STR(info.module, "");
	CHECK_INT(info.ndevices, 1);
	CHECK_STR(info.why_none, "");
	for (size_t i = 0; i < n; i++) {
		CHECK_OK(srt_backend_get_info(i, &info));
		if (strcmp(info.name, "opencl"))
			continue;
		seen = true;
		CHECK(strstr(info.module, "/a/shardrt_backend_opencl.so"));
		CHECK_INT(info.ndevices, 2);
		CHECK_OK(srt_backend_get_device(i, 0, &description));
		CHECK_STR(description.name, "first");
		CHECK_INT(description.accelerator, 0);
		CHECK_OK(srt_backend_get_device(i, 1, &description));
		CHECK_STR(description.name, "second");
		CHECK_INT(description.accelerator, 1);
		CHECK_STATUS(srt_backend_get_device(i, 2, &description), SRT_ERR_INVALID_ARGUMENT);
		CHECK_STATUS(srt_backend_get_device(i, -1, &description), SRT_ERR_INVALID_ARGUMENT);
		CHECK_STATUS(srt_backend_get_device(i, 0, NULL), SRT_ERR_INVALID_ARGUMENT);
		setenv("TEST_MODULE", "none", 1);
		CHECK_OK(srt_backend_get_info(i, &info));
		CHECK_INT(info.ndevices, 0);
		CHECK_STR(info.why_none, "the list of drivers is empty");
		CHECK(strstr(info.module, "/a/shardrt_backend_opencl.so"));
	}
	CHECK(seen);
	CHECK_STATUS(srt_backend_get_info(n, &info), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_backend_get_info(0, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_backend_get_device(n, 0, &description), SRT_ERR_INVALID_ARGUMENT);
	/* Another backend is on the list when somebody has named it. */
	setenv("TEST_MODULE_NAME", "renamed", 1);
	CHECK_STATUS(open_device("renamed"), SRT_ERR_NOT_FOUND);
	CHECK_INT(srt_backend_count(), n + 1);
	CHECK_OK(srt_backend_get_info(n, &info));
	CHECK_STR(info.name, "renamed");
}

static void make_folder(const char *name)
{
	CHECK_OR_DIE(mkdir(name, 0700) == 0);
}

static void try_near(const char *name)
{
	char file[256];

	near_folder = name;
	snprintf(file, sizeof(file), "mkdir -p %s", name);
	CHECK_OR_DIE(system(file) == 0);
	place(name, "opencl", "module_test.so");
	CHECK_IN_CHILD(test_near);
	CHECK_INT(chmod(name, 0777), 0);
	CHECK_IN_CHILD(test_near_open);
	snprintf(file, sizeof(file), "%s/shardrt_backend_opencl.so", name);
	CHECK_INT(unlink(file), 0);
	CHECK_INT(rmdir(name), 0);
}

/* This program in a folder that it has made. */
static void run_copy(const char *self)
{
	char command[512], copy[256];

	CHECK_OR_DIE(getcwd(modules, sizeof(modules) - 32) != NULL);
	strcat(modules, "/tests/fakes/.libs");
	if (access("tests/fakes/.libs/module_test.so", R_OK))
		CHECK_SKIP("no shared objects were built");
	CHECK_OR_DIE(mkdtemp(folder) != NULL);
	snprintf(copy, sizeof(copy), "%s/bin/test_module", folder);
	snprintf(command, sizeof(command), "mkdir %s/bin && cp %s %s", folder, self, copy);
	CHECK_OR_DIE(system(command) == 0);
	execl(copy, copy, modules, folder, (char *)NULL);
	CHECK_OR_DIE(!"execl");
}

int main(int argc, char **argv)
{
	char command[256];

	if (argc != 3)
		run_copy("/proc/$PPID/exe");
	snprintf(modules, sizeof(modules), "%s", argv[1]);
	snprintf(folder, sizeof(folder), "%s", argv[2]);
	unsetenv("SHARDRT_BACKEND");
	setenv("SHARDRT_PROBE_TIMEOUT", "0", 1); /* modules are loaded into this process */
	srt_log_set(keep_log, SRT_LOG_WARN, NULL);
	CHECK_OR_DIE(chdir(folder) == 0);
	make_folder("a");
	make_folder("b");
	make_folder("a/shardrt_backend_folder.so");
	place("a", "text", NULL);
	place("a", "empty", "module_empty.so");
	place("a", "opencl", "module_test.so");
	place("a", "renamed", "module_test.so");
	place("b", "opencl", NULL);
	place("b", "cuda", "module_test.so");
	CHECK_IN_CHILD(test_missing);
	CHECK_IN_CHILD(test_broken);
	CHECK_IN_CHILD(test_no_device);
	CHECK_IN_CHILD(test_auto_broken);
	CHECK_IN_CHILD(test_auto_cpus);
	CHECK_IN_CHILD(test_auto_gpu);
	CHECK_IN_CHILD(test_auto_order);
	CHECK_IN_CHILD(test_folders);
	try_near("bin/libshardrt");
	try_near("bin/.libs");
	try_near(".libs");
	if (SRT_LIBDIR_NAME[0] != '/')
		try_near(SRT_LIBDIR_NAME "/libshardrt");
	CHECK_IN_CHILD(test_threads);
	CHECK_IN_CHILD(test_list);
	unlink("b/shardrt_backend_cuda.so");
	CHECK_IN_CHILD(test_auto_alone);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	CHECK_INT(system(command), 0);
	return check_done();
}
