/* SPDX-License-Identifier: BSD-3-Clause */
/* The backend "late": orders of commands, their seed, and freed memory. */
#include "device/device.h"
#include "tests/harness/check.h"

#define NORDERS 64

static srt_device_t *open_device(const char *seed)
{
	const srt_device_request_t request = { .selector = "", .local_size = 1, .exact = 1 };
	srt_device_t *device;

	setenv("TOY_SEED", seed, 1);
	CHECK_OK_OR_DIE(srt_device_open("late", &request, SRT_NUMERICS_EXACT, &device));
	return device;
}

/* Bit i: in try i the copy on one stream came after the fill on the other one. */
static uint64_t run_orders(const char *seed, bool with_event)
{
	srt_device_t *device = open_device(seed);
	srt_stream_t *filling, *copying;
	srt_event_t *filled;
	srt_buffer_t *x, *y;
	uint64_t orders = 0;

	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "filling", &filling));
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "copying", &copying));
	CHECK_OK_OR_DIE(srt_event_create(device, &filled));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, sizeof(float), "x", &x));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, sizeof(float), "y", &y));
	for (int i = 0; i < NORDERS; i++) {
		float value;

		CHECK_OK(srt_op_fill(srt_view(x, 0, SRT_F32), 1.0f, 1, filling));
		CHECK_OK(srt_event_record(filled, filling));
		if (with_event)
			CHECK_OK(srt_stream_wait_event(copying, filled));
		CHECK_OK(srt_buffer_copy(y, 0, x, 0, sizeof(float), copying));
		CHECK_OK(srt_buffer_copy_to_host(&value, y, 0, sizeof(value), copying));
		orders |= (uint64_t)(value == 1.0f) << i;
		CHECK_OK(srt_buffer_zero(x, 0, sizeof(float), filling));
		CHECK_OK(srt_stream_sync(filling));
	}
	srt_buffer_destroy(x);
	srt_buffer_destroy(y);
	srt_event_destroy(filled);
	srt_stream_destroy(filling);
	srt_stream_destroy(copying);
	srt_device_close(device);
	return orders;
}

static void test_orders(void)
{
	const uint64_t orders = run_orders("1", false);

	CHECK(orders != 0 && orders != UINT64_MAX);
	CHECK(run_orders("1", false) == orders);
	CHECK(run_orders("2", false) != orders);
	CHECK(run_orders("1", true) == UINT64_MAX);
}

static void test_freed_memory(void)
{
	srt_device_t *device = open_device("1");
	const float value = 1.0f;
	srt_stream_t *stream;
	srt_buffer_t *buffer;
	uint32_t bits = 0;
	void *mem;

	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "test", &stream));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, sizeof(value), "x", &buffer));
	CHECK_OK(srt_buffer_copy_from_host(buffer, 0, &value, sizeof(value), stream));
	mem = buffer->impl;
	srt_buffer_destroy(buffer);
	CHECK_OK(device->backend->stream->read(stream->impl, &bits, mem, 0, sizeof(bits)));
	CHECK_INT(bits, UINT32_MAX); /* NaN in f32, f16 and bf16 */
	srt_stream_destroy(stream);
	srt_device_close(device);
}

int main(void)
{
	test_orders();
	test_freed_memory();
	return check_done();
}
