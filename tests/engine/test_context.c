/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context of one rank: options before environment, malformed values of either refused with a
 * sentence, no leak after a failure at any point.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <math.h>

#include "tests/fakes/fake_backend.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

#include <shardrt/shardrt.h>

static void test_defaults(void)
{
	srt_context_t *context = NULL;
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_INT(srt_context_rank(context), 0);
	CHECK_INT(srt_context_world_size(context), 1);
	CHECK_INT(srt_context_local_rank(context), 0);
	CHECK_INT(srt_context_local_size(context), 1);
	CHECK_INT(srt_context_numerics(context), SRT_NUMERICS_EXACT);
	CHECK(srt_context_world(context));
	CHECK_OK(srt_device_get_info(srt_context_device(context), &info));
	CHECK_STR(info.backend, "cpu");
	CHECK(info.threads >= 1);
	srt_context_destroy(context);
	srt_context_destroy(NULL);
}

static void test_precedence(void)
{
	srt_context_options_t options = { .size = sizeof(options),
					  .threads = 2,
					  .numerics = SRT_NUMERICS_FAST };
	srt_context_t *context;
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;

	setenv("SHARDRT_THREADS", "3", 1);
	setenv("SHARDRT_NUMERICS", "exact", 1);
	CHECK_OK_OR_DIE(srt_context_create(&options, &context));
	CHECK_OK(srt_device_get_info(srt_context_device(context), &info));
	CHECK_INT(info.threads, 2);
	CHECK_INT(srt_context_numerics(context), SRT_NUMERICS_FAST);
	srt_context_destroy(context);
	setenv("SHARDRT_NUMERICS", "fast", 1);
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK(srt_device_get_info(srt_context_device(context), &info));
	CHECK_INT(info.threads, 3);
	CHECK_INT(srt_context_numerics(context), SRT_NUMERICS_FAST);
	srt_context_destroy(context);
	unsetenv("SHARDRT_THREADS");
	unsetenv("SHARDRT_NUMERICS");
}

static void refused(const srt_context_options_t *options, srt_status_t status, const char *words)
{
	srt_context_t *context = NULL;

	CHECK_STATUS(srt_context_create(options, &context), status);
	CHECK_ERROR_HAS(words);
	CHECK(context == NULL);
}

static void refused_env(const char *name, const char *value, srt_status_t status, const char *words)
{
	setenv(name, value, 1);
	refused(NULL, status, words);
	unsetenv(name);
}

static void test_refusals(void)
{
	const srt_status_t bad = SRT_ERR_INVALID_ARGUMENT;

	CHECK_STATUS(srt_context_create(NULL, NULL), bad);
	refused(CONTEXT(.threads = -1), bad, "threads is -1");
	refused(CONTEXT(.threads = 5000), bad, "threads is 5000");
	refused(CONTEXT(.bind = "on"), bad, "bind is \"on\", must be auto");
	refused(CONTEXT(.timeout_s = -1), bad, "timeout_s is -1");
	refused(CONTEXT(.timeout_s = (double)NAN), bad, "timeout_s is");
	refused(CONTEXT(.timeout_s = (double)INFINITY), bad, "timeout_s is inf");
	refused(CONTEXT(.numerics = (srt_numerics_t)9), bad, "numerics is 9");
	refused(CONTEXT(.backend = "tpu"), bad, "no backend \"tpu\"");
	refused(CONTEXT(.device = "cpu7"), bad, "SHARDRT_DEVICE=cpu7");
	refused(CONTEXT(.bootstrap = "carrier pigeon"), bad, "carrier pigeon");
	refused_env("SHARDRT_THREADS", "many", bad, "SHARDRT_THREADS=many");
	refused_env("SHARDRT_TIMEOUT", "-3", bad, "SHARDRT_TIMEOUT=-3");
	refused_env("SHARDRT_BACKEND", "tpu", bad, "no backend \"tpu\"");
#ifdef HAVE_CUDA
	setenv("SHARDRT_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1);
	refused(CONTEXT(.backend = "cuda"), SRT_ERR_NOT_FOUND, "no CUDA driver");
	refused_env("SHARDRT_BACKEND", "cuda", SRT_ERR_NOT_FOUND, "no CUDA driver");
	unsetenv("SHARDRT_CUDA_DRIVER");
#else
	refused(CONTEXT(.backend = "cuda"), SRT_ERR_UNSUPPORTED, "not part of this build");
	refused_env("SHARDRT_BACKEND", "cuda", SRT_ERR_UNSUPPORTED, "not installed");
#endif
	/* Told before anything else is looked at: other ranks wait for a rank that has joined. */
	refused(CONTEXT(.backend = "tpu", .bootstrap = "carrier pigeon"), bad, "no backend");
	refused_env("SHARDRT_NUMERICS", "sloppy", bad, "SHARDRT_NUMERICS=sloppy");
	refused_env("SHARDRT_CPU_STREAMS", "rivers", bad, "SHARDRT_CPU_STREAMS=rivers");
}

/* The device, then whatever the communicator needs of it, fails in turn. */
static void test_failing_device(void)
{
	const srt_context_options_t options = { .size = sizeof(options), .backend = "fake" };

	CHECK_OK_OR_DIE(fake_backend_add());
	for (long k = 1;; k++) {
		srt_context_t *context = NULL;
		srt_status_t status;

		fake_backend_fail_at(k);
		status = srt_context_create(&options, &context);
		if (!fake_backend_failed()) {
			CHECK_STATUS(status, SRT_OK);
			CHECK(k > 2);
			srt_context_destroy(context);
			return;
		}
		CHECK_STATUS(status, SRT_ERR_DEVICE);
		CHECK_ERROR_HAS("fails on purpose");
		CHECK(context == NULL);
	}
}

int main(void)
{
	test_defaults();
	test_precedence();
	test_refusals();
	test_failing_device();
	return check_done();
}
