/* SPDX-License-Identifier: BSD-3-Clause */
/* The backend "fake": see fake_backend.h. Each slot counts, fails if it is its turn, else passes
 * on. */
#include "tests/fake_backend.h"

#include <stdatomic.h>

#include "backends/core.h"

static atomic_long countdown; /* 1 = the next call fails; <= 0 = none */
static _Atomic(const char *) failed_slot;
static _Atomic fake_mode_t fail_mode;

/* true: this call is the one. */
static bool its_turn(const char *slot)
{
	if (atomic_fetch_sub(&countdown, 1) != 1)
		return false;
	atomic_store(&failed_slot, slot);
	return true;
}

static srt_status_t fail_now(const char *slot)
{
	return srt_fail(SRT_ERR_DEVICE, "fake backend: %s fails on purpose", slot);
}

#define FAIL_IN_TURN(slot)                                                                         \
	do {                                                                                       \
		if (its_turn(slot))                                                                \
			return fail_now(slot);                                                     \
	} while (0)

static srt_status_t fail_on_stream(void *slot)
{
	return fail_now(slot);
}

/* For asynchronous slots: fails here, or puts something on the stream that will. */
static srt_status_t fail_async(const char *slot, void *stream)
{
	if (atomic_load(&fail_mode) == FAKE_AT_CALL)
		return fail_now(slot);
	return srt_backend_cpu()->stream->host_fn(stream, fail_on_stream, (void *)(uintptr_t)slot);
}

#define FAIL_ASYNC_IN_TURN(slot, stream)                                                           \
	do {                                                                                       \
		if (its_turn(slot))                                                                \
			return fail_async(slot, stream);                                           \
	} while (0)

/* ---- device --------------------------------------------------------------------------- */

static srt_status_t fake_probe(const srt_host_services_t *host, int *ndevices)
{
	FAIL_IN_TURN("probe");
	return srt_backend_cpu()->device->probe(host, ndevices);
}

static srt_status_t fake_open(const srt_host_services_t *host, const srt_device_request_t *request,
			      void **device, srt_backend_caps_t *caps)
{
	FAIL_IN_TURN("open");
	return srt_backend_cpu()->device->open(host, request, device, caps);
}

static void fake_close(void *device)
{
	srt_backend_cpu()->device->close(device);
}

/* ---- memory --------------------------------------------------------------------------- */

static srt_status_t fake_alloc(void *device, srt_mem_kind_t kind, size_t nbytes, const char *name,
			       void **mem)
{
	FAIL_IN_TURN("alloc");
	return srt_backend_cpu()->mem->alloc(device, kind, nbytes, name, mem);
}

static void fake_free(void *device, void *mem)
{
	srt_backend_cpu()->mem->free(device, mem);
}

static void *fake_host(void *device, void *mem)
{
	return srt_backend_cpu()->mem->host(device, mem);
}

static srt_status_t fake_export(void *device, void *mem, srt_mem_handle_t *handle)
{
	FAIL_IN_TURN("export");
	return srt_backend_cpu()->mem->export_handle(device, mem, handle);
}

static srt_status_t fake_import(void *device, const srt_mem_handle_t *handle, void **mem)
{
	FAIL_IN_TURN("import");
	return srt_backend_cpu()->mem->import_handle(device, handle, mem);
}

static srt_status_t fake_wrap(void *device, void *host, size_t nbytes, const char *name, void **mem)
{
	FAIL_IN_TURN("wrap host");
	return srt_backend_cpu()->mem->wrap_host(device, host, nbytes, name, mem);
}

/* The cpu does not need it; it is here to be called, and to fail. */
static srt_status_t fake_peer_begin(void *device, void *stream, void *mem, size_t offset,
				    size_t nbytes)
{
	(void)device;
	(void)mem;
	(void)offset;
	(void)nbytes;
	FAIL_ASYNC_IN_TURN("peer begin", stream);
	return SRT_OK;
}

/* ---- streams and events --------------------------------------------------------------- */

static srt_status_t fake_stream_create(void *device, int priority, const char *name, void **stream)
{
	FAIL_IN_TURN("stream create");
	return srt_backend_cpu()->stream->create(device, priority, name, stream);
}

static void fake_stream_destroy(void *stream)
{
	srt_backend_cpu()->stream->destroy(stream);
}

static srt_status_t fake_sync(void *stream)
{
	srt_status_t status = srt_backend_cpu()->stream->sync(stream);

	/* The work has ended, as it has when a real device reports an error here. */
	FAIL_IN_TURN("sync");
	return status;
}

static srt_status_t fake_host_fn(void *stream, srt_host_fn *fn, void *arg)
{
	FAIL_ASYNC_IN_TURN("host function", stream);
	return srt_backend_cpu()->stream->host_fn(stream, fn, arg);
}

static srt_status_t fake_event_create(void *device, void **event)
{
	FAIL_IN_TURN("event create");
	return srt_backend_cpu()->stream->event_create(device, event);
}

static void fake_event_destroy(void *event)
{
	srt_backend_cpu()->stream->event_destroy(event);
}

static srt_status_t fake_event_record(void *event, void *stream)
{
	FAIL_IN_TURN("event record");
	return srt_backend_cpu()->stream->event_record(event, stream);
}

static srt_status_t fake_event_wait(void *stream, void *event)
{
	FAIL_ASYNC_IN_TURN("event wait", stream);
	return srt_backend_cpu()->stream->event_wait(stream, event);
}

static srt_status_t fake_event_sync(void *event)
{
	srt_status_t status = srt_backend_cpu()->stream->event_sync(event);

	FAIL_IN_TURN("event sync");
	return status;
}

static srt_status_t fake_event_query(void *event, int *done)
{
	FAIL_IN_TURN("event query");
	return srt_backend_cpu()->stream->event_query(event, done);
}

/* ---- work ----------------------------------------------------------------------------- */

static srt_status_t fake_copy(void *stream, void *dst, size_t dst_offset, void *src,
			      size_t src_offset, size_t nbytes)
{
	FAIL_ASYNC_IN_TURN("copy", stream);
	return srt_backend_cpu()->work->copy(stream, dst, dst_offset, src, src_offset, nbytes);
}

static srt_status_t fake_from_host(void *stream, void *dst, size_t offset, const void *src,
				   size_t nbytes)
{
	FAIL_ASYNC_IN_TURN("copy from host", stream);
	return srt_backend_cpu()->work->from_host(stream, dst, offset, src, nbytes);
}

static srt_status_t fake_to_host(void *stream, void *dst, void *src, size_t offset, size_t nbytes)
{
	FAIL_IN_TURN("copy to host");
	return srt_backend_cpu()->work->to_host(stream, dst, src, offset, nbytes);
}

static srt_status_t fake_zero(void *stream, void *dst, size_t offset, size_t nbytes)
{
	FAIL_ASYNC_IN_TURN("zero", stream);
	return srt_backend_cpu()->work->zero(stream, dst, offset, nbytes);
}

static srt_status_t fake_launch(void *stream, const srt_launch_t *launch)
{
	FAIL_ASYNC_IN_TURN("launch", stream);
	return srt_backend_cpu()->work->launch(stream, launch);
}

static srt_status_t fake_matmul(void *stream, const srt_matmul_t *mm, srt_dtype_t dtype,
				const srt_place_t places[4], int exact)
{
	FAIL_ASYNC_IN_TURN("matmul", stream);
	return srt_backend_cpu()->work->matmul(stream, mm, dtype, places, exact);
}

static srt_status_t fake_attention(void *stream, const srt_attention_t *shape, srt_dtype_t dtype,
				   const srt_place_t places[7], int exact)
{
	FAIL_ASYNC_IN_TURN("attention", stream);
	return srt_backend_cpu()->work->attention(stream, shape, dtype, places, exact);
}

/* No slot for attention's backward pass: the portable kernels run on this backend. */

static const srt_backend_device_ops_t device_ops = {
	.probe = fake_probe,
	.open = fake_open,
	.close = fake_close,
};

static const srt_backend_mem_ops_t mem_ops = {
	.alloc = fake_alloc,
	.free = fake_free,
	.host = fake_host,
	.export_handle = fake_export,
	.import_handle = fake_import,
	.wrap_host = fake_wrap,
	.peer_begin = fake_peer_begin,
};

static const srt_backend_stream_ops_t stream_ops = {
	.create = fake_stream_create,
	.destroy = fake_stream_destroy,
	.sync = fake_sync,
	.host_fn = fake_host_fn,
	.event_create = fake_event_create,
	.event_destroy = fake_event_destroy,
	.event_record = fake_event_record,
	.event_wait = fake_event_wait,
	.event_sync = fake_event_sync,
	.event_query = fake_event_query,
};

static const srt_backend_work_ops_t work_ops = {
	.copy = fake_copy,
	.from_host = fake_from_host,
	.to_host = fake_to_host,
	.zero = fake_zero,
	.launch = fake_launch,
	.matmul = fake_matmul,
	.attention = fake_attention,
};

static const srt_backend_t fake = {
	.abi = SRT_BACKEND_ABI,
	.kernels = srt_kernels_digest,
	.name = "fake",
	.aliases = "",
	.device = &device_ops,
	.mem = &mem_ops,
	.stream = &stream_ops,
	.work = &work_ops,
};

srt_status_t fake_backend_add(void)
{
	return srt_backend_add(&fake);
}

void fake_backend_fail_at(long k, fake_mode_t mode)
{
	atomic_store(&failed_slot, "");
	atomic_store(&fail_mode, mode);
	atomic_store(&countdown, k);
}

bool fake_backend_failed(void)
{
	return fake_backend_failed_slot()[0] != '\0';
}

const char *fake_backend_failed_slot(void)
{
	const char *slot = atomic_load(&failed_slot);

	return slot ? slot : "";
}
