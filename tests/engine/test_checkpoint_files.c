/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which file the ranks load, run at several world sizes by test_checkpoint.sh: files that differ
 * between ranks, files that are replaced meanwhile, and streams that fail.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <shardrt/shardrt.h>

#include "collectives/comm.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

enum { NELEM = 700001 }; /* a file is written in pieces of 1 MiB */

static srt_context_t *context;
static srt_stream_t *stream;
static srt_engine_t *engine;
static srt_param_t *param;
static char path[64], other[80];
static bool is_last; /* of the ranks */
static float values[NELEM], expected[NELEM];

static void meet(void)
{
	CHECK_OK_OR_DIE(srt_comm_status_consensus(srt_context_world(context), "meeting", SRT_OK));
}

static void create_engine(void)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	srt_unit_t *unit;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &unit));
	CHECK_OK_OR_DIE(
		srt_param_create(unit, "w", SRT_F32, 1, (int64_t[]){ NELEM }, NULL, &param));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
}

/* Element i is value + i % 1000. */
static void get_expected(float value, float *expected)
{
	for (int i = 0; i < NELEM; i++)
		expected[i] = value + (float)(i % 1000);
}

static void fill(float value)
{
	get_expected(value, values);
	CHECK_OK_OR_DIE(srt_param_set(param, SRT_PARAM_VALUE, values, stream));
}

static void save(const char *name, float value)
{
	fill(value);
	CHECK_OK_OR_DIE(srt_engine_save(engine, name, NULL, 0, stream));
}

static void check_values(float value)
{
	get_expected(value, expected);
	CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, values, stream));
	CHECK_BITS(values, expected, NELEM);
}

/* The ranks load different files: an error on all that has both paths, and nothing is changed. */
static void check_refused(const char *mine, const char *first, const char *last, const char *why)
{
	CHECK_STATUS(srt_engine_load(engine, mine, stream), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS(first);
	CHECK_ERROR_HAS(last);
	CHECK_ERROR_HAS(why);
	check_values(3.0f);
}

/* Waits until another process has this file open. */
static void await_open(long pid, const char *name)
{
	struct stat wanted, found;
	bool is_open = false;
	char fd[64];

	CHECK_OR_DIE(stat(name, &wanted) == 0);
	while (!is_open) {
		for (int i = 0; i < 256 && !is_open; i++) {
			snprintf(fd, sizeof(fd), "/proc/%ld/fd/%d", pid, i);
			is_open = stat(fd, &found) == 0 && found.st_ino == wanted.st_ino &&
				  found.st_dev == wanted.st_dev;
		}
		usleep(1000);
	}
}

/*
 * One rank has another path than the others, or its file was replaced after they opened theirs.
 *
 * Reliability: a file that is replaced while ranks open it | shards of two models, a success | an
 * error on all ranks, nothing changed
 */
static void test_two_files(void)
{
	long pids[3] = { 0 }, pid = (long)getpid();

	CHECK_OR_DIE(srt_context_world_size(context) <= 3);
	CHECK_OK_OR_DIE(
		srt_comm_oob_allgather(srt_context_world(context), &pid, sizeof(pid), pids));
	save(path, 1.0f);
	save(other, 2.0f);
	fill(3.0f);
	check_refused(is_last ? other : path, path, other, "files");
	if (is_last) {
		await_open(pids[0], path);
		CHECK_OR_DIE(rename(other, path) == 0);
	}
	check_refused(path, path, path, "files");
	CHECK_OK(srt_engine_load(engine, path, stream));
	check_values(2.0f);
}

/* Copies with the time of the original are loaded if all ranks ask for it. */
static void test_copies(void)
{
	const struct timespec old[2] = { { 1000000, 5 }, { 1000000, 5 } };

	save(path, 1.0f);
	save(other, 1.0f);
	fill(3.0f);
	if (is_last)
		CHECK_OR_DIE(utimensat(AT_FDCWD, path, old, 0) == 0 &&
			     utimensat(AT_FDCWD, other, old, 0) == 0);
	meet();
	check_refused(is_last ? other : path, path, other, "SHARDRT_LOAD_COPIES");
	if (is_last)
		setenv("SHARDRT_LOAD_COPIES", "yes", 1);
	check_refused(is_last ? other : path, path, other, "SHARDRT_LOAD_COPIES");
	setenv("SHARDRT_LOAD_COPIES", "yes", 1);
	CHECK_OK(srt_engine_load(engine, is_last ? other : path, stream));
	unsetenv("SHARDRT_LOAD_COPIES");
	check_values(1.0f);
	meet();
	if (is_last)
		CHECK_OR_DIE(unlink(other) == 0);
}

static srt_status_t fail_fn(void *arg)
{
	return srt_fail(SRT_ERR_DEVICE, "%s", (const char *)arg);
}

/*
 * The copies to the device of one rank fail: an error on all.
 *
 * Reliability: loading on a stream that has failed | a success | that failure, on all ranks
 */
static void test_failed_stream(void)
{
	static char boiler[] = "the boiler burst";
	srt_stream_t *failed;

	save(path, 1.0f);
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "failed", &failed));
	if (is_last)
		srt_stream_host_fn(failed, fail_fn, boiler);
	CHECK_STATUS(srt_engine_load(engine, path, failed), SRT_ERR_DEVICE);
	CHECK_ERROR_HAS(boiler);
	srt_stream_destroy(failed);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	is_last = srt_context_rank(context) == srt_context_world_size(context) - 1;
	snprintf(path, sizeof(path), "tests/engine/test_checkpoint_files.w%d.tmp",
		 srt_context_world_size(context));
	snprintf(other, sizeof(other), "%s.other", path);
	create_engine();
	if (srt_context_world_size(context) > 1) {
		test_two_files();
		test_copies();
	}
	test_failed_stream(); /* no rank can use the communicators afterwards */
	if (is_last)
		unlink(path);
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
