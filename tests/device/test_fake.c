/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend that fails at its k-th call, for all k: every failure reaches the caller with its
 * sentence, except that of the wait in srt_stream_destroy(), by when the results are complete.
 * Nothing leaks, nothing hangs. Without a failure the results are those of the cpu backend.
 */
#include "tests/fakes/fake_backend.h"
#include "tests/harness/device.h"
#include "tests/kernels/all_cases.h"

static all_cases_t all;
static unsigned char *reference;

/* One run from opening to closing; its status. */
static srt_status_t run(unsigned char **bytes)
{
	srt_device_request_t request = { .local_size = 1, .threads = 2, .exact = 1 };
	srt_device_t *device = NULL;
	srt_status_t status;

	*bytes = NULL;
	SRT_TRY(srt_device_open("fake", &request, SRT_NUMERICS_DEFAULT, &device));
	status = all_cases_run(&all, device, bytes);
	CHECK_INT(srt_device_allocated(device), 0);
	srt_device_close(device);
	return status;
}

static long run_all_k(void)
{
	int unseen = 0;

	for (long k = 1;; k++) {
		unsigned char *bytes;
		srt_status_t status;

		fake_backend_fail_at(k);
		status = run(&bytes);
		if (!fake_backend_failed()) {
			CHECK_STATUS(status, SRT_OK);
			CHECK(all_cases_differ(&all, bytes, reference) == NULL);
			free(bytes);
			CHECK_INT(unseen, 1);
			return k - 1;
		}
		if (status == SRT_OK && strcmp(fake_backend_failed_slot(), "sync") == 0) {
			CHECK(all_cases_differ(&all, bytes, reference) == NULL);
			free(bytes);
			unseen++;
			continue;
		}
		CHECK_MSG(status == SRT_ERR_DEVICE, "call %ld (%s) failed, the run returned %s", k,
			  fake_backend_failed_slot(), srt_status_string(status));
		CHECK_ERROR_HAS("fails on purpose");
		CHECK_ERROR_HAS(fake_backend_failed_slot());
		CHECK(bytes == NULL);
	}
}

/* The slots that all_cases_run() does not come by. */
static void test_events(void)
{
	for (long k = 1;; k++) {
		srt_event_t *event = NULL;
		srt_device_t *device;
		srt_stream_t *s, *other;
		srt_status_t status;

		fake_backend_fail_at(0);
		device = test_device_of("fake", 1, "inline");
		s = test_stream(device, "s");
		other = test_stream(device, "other");
		fake_backend_fail_at(k);
		status = srt_event_create(device, &event);
		if (status == SRT_OK)
			status = srt_event_record(event, s);
		if (status == SRT_OK)
			status = srt_stream_wait_event(other, event);
		if (status == SRT_OK)
			status = srt_event_sync(event);
		if (status == SRT_OK)
			status = srt_stream_sync(other);
		CHECK_INT(status == SRT_OK, !fake_backend_failed());
		srt_event_destroy(event);
		srt_stream_destroy(other);
		srt_stream_destroy(s);
		srt_device_close(device);
		if (status == SRT_OK) {
			CHECK_INT(k, 7); /* six calls can fail */
			return;
		}
	}
}

int main(void)
{
	srt_device_t *device = test_cpu_device(1, "inline");
	long calls;

	all = all_cases_make(true, true);
	CHECK_OK_OR_DIE(all_cases_run(&all, device, &reference));
	srt_device_close(device);
	CHECK_OK_OR_DIE(fake_backend_add());
	CHECK_STATUS(fake_backend_add(), SRT_ERR_STATE);
	calls = run_all_k();
	CHECK_MSG(calls > 60, "only %ld calls", calls);
	test_events();
	free(reference);
	all_cases_free(&all);
	return check_done();
}
