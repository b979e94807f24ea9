/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of stream calls on a device (SHARDRT_BACKEND, SHARDRT_DEVICE): launches of a tiny kernel
 * one after the other, with a wait after each, host functions between launches, an event from
 * stream to stream.
 *
 *     bench/bench_stream [COUNT]       (2000 of each; the best of five repeats, microseconds)
 */
#include <stdio.h>
#include <stdlib.h>

#include <shardrt/ops.h>

#include "device/device.h"

#define REPEATS 5

typedef struct bench {
	srt_context_t *context;
	srt_stream_t *stream, *other;
	srt_event_t *there, *back;
	srt_buffer_t *buffer;
	int count;
} bench_t;

static void check_status(srt_status_t status)
{
	if (status == SRT_OK)
		return;
	fprintf(stderr, "bench_stream: %s\n", srt_error_last());
	exit(1);
}

static void submit_kernel(bench_t *b)
{
	check_status(srt_op_fill(srt_view(b->buffer, 0, SRT_F32), 1.0f, 16, b->stream));
}

static srt_status_t do_nothing(void *arg)
{
	(void)arg;
	return SRT_OK;
}

static void submit_one(bench_t *b)
{
	submit_kernel(b);
}

static void launch_and_sync(bench_t *b)
{
	submit_kernel(b);
	check_status(srt_stream_sync(b->stream));
}

static void launch_and_host_fn(bench_t *b)
{
	submit_kernel(b);
	check_status(srt_stream_host_fn(b->stream, do_nothing, NULL));
}

static void host_fn_and_sync(bench_t *b)
{
	launch_and_host_fn(b);
	check_status(srt_stream_sync(b->stream));
}

static void record_event(bench_t *b)
{
	check_status(srt_event_record(b->there, b->stream));
}

static void ping_pong(bench_t *b)
{
	check_status(srt_event_record(b->there, b->stream));
	check_status(srt_stream_wait_event(b->other, b->there));
	check_status(srt_event_record(b->back, b->other));
	check_status(srt_stream_wait_event(b->stream, b->back));
}

static void upload_bytes(bench_t *b)
{
	float x[16] = { 0 };

	check_status(srt_buffer_copy_from_host(b->buffer, 0, x, sizeof(x), b->stream));
}

static void measure_call(bench_t *b, const char *what, void (*one)(bench_t *b))
{
	double best = 1e9;

	for (int r = 0; r < REPEATS; r++) {
		double start;

		one(b);
		check_status(srt_stream_sync(b->stream));
		start = srt_now_s();
		for (int i = 0; i < b->count; i++)
			one(b);
		check_status(srt_stream_sync(b->stream));
		start = (srt_now_s() - start) / b->count;
		best = start < best ? start : best;
	}
	printf("%-44s %8.2f us\n", what, best * 1e6);
}

int main(int argc, char **argv)
{
	bench_t b = { .count = argc > 1 ? atoi(argv[1]) : 2000 };
	srt_device_t *device;

	check_status(srt_context_create(NULL, &b.context));
	device = srt_context_device(b.context);
	printf("%s, %d threads\n", device->caps.name, device->caps.threads);
	check_status(srt_stream_create(device, 0, "bench", &b.stream));
	check_status(srt_stream_create(device, 0, "other", &b.other));
	check_status(srt_event_create(device, &b.there));
	check_status(srt_event_create(device, &b.back));
	check_status(srt_buffer_create(device, SRT_MEM_DEVICE, 64, "bench", &b.buffer));
	measure_call(&b, "launch", submit_one);
	measure_call(&b, "launch, sync", launch_and_sync);
	measure_call(&b, "launch, host function", launch_and_host_fn);
	measure_call(&b, "launch, host function, sync", host_fn_and_sync);
	measure_call(&b, "record", record_event);
	measure_call(&b, "event to another stream and back", ping_pong);
	measure_call(&b, "upload of 64 bytes", upload_bytes);
	srt_buffer_destroy(b.buffer);
	srt_event_destroy(b.back);
	srt_event_destroy(b.there);
	srt_stream_destroy(b.other);
	srt_stream_destroy(b.stream);
	srt_context_destroy(b.context);
	return 0;
}
