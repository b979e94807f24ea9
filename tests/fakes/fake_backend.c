/* SPDX-License-Identifier: BSD-3-Clause */
/* The backend "fake": see fake_backend.h. Each slot counts, fails if it is its turn, else passes
 * on. */
#include "tests/fakes/fake_backend.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "device/device.h"

static atomic_long countdown; /* 1 = the next call fails; <= 0 = none */
static _Atomic(const char *) failed_slot;

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
	SRT_TRY(srt_backend_cpu()->device->open(host, request, device, caps));
	caps->peer_begin = 1;
	return SRT_OK;
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

static srt_status_t fake_submit(void *stream, const srt_command_t *command)
{
	static const char *const names[] = {
		[SRT_COMMAND_KERNEL] = "kernel",
		[SRT_COMMAND_MATMUL] = "matrix product",
		[SRT_COMMAND_ATTENTION] = "attention",
		[SRT_COMMAND_ATTENTION_BACKWARD] = "gradient of attention",
		[SRT_COMMAND_COPY] = "copy",
		[SRT_COMMAND_ZERO] = "zero",
		[SRT_COMMAND_UPLOAD] = "upload",
		[SRT_COMMAND_PEER_BEGIN] = "peer begin",
	};

	FAIL_IN_TURN(names[command->kind]);
	/* The cpu does not need it; it is here to be called, and to fail. */
	if (command->kind == SRT_COMMAND_PEER_BEGIN)
		return SRT_OK;
	return srt_backend_cpu()->stream->submit(stream, command);
}

static srt_status_t fake_sync(void *stream, int sleep)
{
	(void)stream;
	(void)sleep;
	/* The work has ended, as it has when a real device reports an error here. */
	FAIL_IN_TURN("sync");
	return SRT_OK;
}

static srt_status_t fake_reserve(void *stream, size_t nbytes)
{
	FAIL_IN_TURN("reserve");
	return srt_backend_cpu()->stream->reserve(stream, nbytes);
}

static size_t fake_scratch(void *device, const srt_command_t *command)
{
	return srt_backend_cpu()->stream->scratch(device, command);
}

static void fake_scratch_usage(void *device, size_t *nbytes, uint64_t *nallocations)
{
	srt_backend_cpu()->stream->scratch_usage(device, nbytes, nallocations);
}

/* Work has ended when it is submitted, and so has what is before an event. */
static srt_status_t fake_event_create(void *device, void **event)
{
	(void)device;
	FAIL_IN_TURN("event create");
	*event = malloc(1);
	return *event != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

static void fake_event_destroy(void *device, void *event)
{
	(void)device;
	free(event);
}

static srt_status_t fake_event_record(void *stream, void *event)
{
	(void)stream;
	(void)event;
	FAIL_IN_TURN("event record");
	return SRT_OK;
}

static srt_status_t fake_event_wait(void *stream, void *event)
{
	(void)stream;
	(void)event;
	FAIL_IN_TURN("event wait");
	return SRT_OK;
}

static srt_status_t fake_event_sync(void *device, void *event)
{
	(void)device;
	(void)event;
	FAIL_IN_TURN("event sync");
	return SRT_OK;
}

static int fake_event_query(void *device, void *event)
{
	(void)device;
	(void)event;
	return 1;
}

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
};

static const srt_backend_stream_ops_t stream_ops = {
	.create = fake_stream_create,
	.destroy = fake_stream_destroy,
	.submit = fake_submit,
	.sync = fake_sync,
	.reserve = fake_reserve,
	.scratch = fake_scratch,
	.scratch_usage = fake_scratch_usage,
	.event_create = fake_event_create,
	.event_destroy = fake_event_destroy,
	.event_record = fake_event_record,
	.event_wait = fake_event_wait,
	.event_sync = fake_event_sync,
	.event_query = fake_event_query,
};

static const srt_backend_t fake = {
	.abi = SRT_BACKEND_ABI,
	.kernels = srt_kernels_digest,
	.name = "fake",
	.aliases = "",
	.device = &device_ops,
	.mem = &mem_ops,
	.stream = &stream_ops,
};

srt_status_t fake_backend_add(void)
{
	return srt_backend_add(&fake);
}

void fake_backend_fail_at(long k)
{
	atomic_store(&failed_slot, "");
	atomic_store(&countdown, k);
}

bool fake_backend_failed(void)
{
	return fake_backend_failed_slot()[0] != '\0';
}

const char *fake_backend_failed_slot(void)
{
	const char *slot = atomic_load(&failed_slot);

	return slot != NULL ? slot : "";
}
