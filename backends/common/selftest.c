/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The self-test of the portable kernels on a device: launches them as usual, and compares the
 * digest of the results.
 */
#include "backends/common/selftest.h"

#include <string.h>

#include "base/base.h"
#include "kernels/cases/selftest.h"

typedef struct run {
	const srt_selftest_t *t;
	void *stream;
	bool failed; /* a kernel did not run: the last error has the reason */
} run_t;

void srt_selftest_init(srt_selftest_t *t)
{
	pthread_mutex_init(&t->lock, NULL);
	t->is_off = strcmp(t->host->config("SHARDRT_SELFTEST"), "no") == 0;
}

void srt_selftest_destroy(srt_selftest_t *t)
{
	pthread_mutex_destroy(&t->lock);
}

srt_status_t srt_selftest_stream_open(const srt_selftest_t *t, srt_selftest_stream_t *s)
{
	SRT_TRY(t->stream->create(t->device, 0, "self-test", &s->stream));
	if (t->mark_stream != NULL)
		t->mark_stream(s->stream);
	s->entered = t->stream->enter != NULL && t->stream->enter(t->device);
	s->env = srt_fpenv_enter(); /* inputs are computed on this thread too */
	return SRT_OK;
}

void srt_selftest_stream_close(const srt_selftest_t *t, srt_selftest_stream_t *s)
{
	srt_fpenv_leave(s->env);
	if (s->entered)
		t->stream->leave(t->device);
	t->stream->destroy(s->stream);
}

static srt_status_t sync_stream(const srt_selftest_t *t, void *stream)
{
	return t->stream->sync != NULL ? t->stream->sync(stream, 0) : SRT_OK;
}

srt_status_t srt_selftest_write(const srt_selftest_t *t, void *stream, void *mem, size_t offset,
				const void *bytes, size_t nbytes)
{
	SRT_TRY(t->stream->submit(stream, &(srt_command_t){
						  .kind = SRT_COMMAND_UPLOAD,
						  .nbindings = 1,
						  .bindings = { { mem, offset } },
						  .bytes = { nbytes, bytes },
					  }));
	return sync_stream(t, stream);
}

srt_status_t srt_selftest_read(const srt_selftest_t *t, void *stream, void *bytes, void *mem,
			       size_t nbytes)
{
	const void *host = t->mem->host(t->device, mem);

	SRT_TRY(sync_stream(t, stream));
	if (host == NULL)
		return t->stream->read(stream, bytes, mem, 0, nbytes);
	memcpy(bytes, host, nbytes);
	return SRT_OK;
}

static srt_status_t run_on(const run_t *r, const srt_command_t *wanted, void *mem,
			   unsigned char *bytes, size_t nbytes)
{
	srt_command_t command = *wanted;

	for (int i = 0; i < command.nbindings; i++)
		if (command.bindings[i].mem != NULL)
			command.bindings[i].mem = mem;
	SRT_TRY(srt_selftest_write(r->t, r->stream, mem, 0, bytes, nbytes));
	SRT_TRY(r->t->stream->submit(r->stream, &command));
	return srt_selftest_read(r->t, r->stream, bytes, mem, nbytes);
}

static srt_status_t run_launch(void *context, const srt_command_t *launch, unsigned char *bytes,
			       size_t nbytes)
{
	run_t *r = context;
	const srt_selftest_t *t = r->t;
	void *mem;
	srt_status_t status = t->mem->alloc(t->device, SRT_MEM_DEVICE, nbytes, "self-test", &mem);

	if (status == SRT_OK) {
		status = run_on(r, launch, mem, bytes, nbytes);
		t->mem->free(t->device, mem);
	}
	r->failed = status != SRT_OK;
	return status;
}

/* Reports a wrong digest: an error in exact mode, else a warning. */
static srt_status_t report_failure(const srt_selftest_t *t, const char *kernel)
{
	if (t->exact)
		return t->host->fail(SRT_ERR_DEVICE,
				     "kernel \"%s\" gives other bits than version %d of the "
				     "numeric contract on %s; the device is refused in exact mode: "
				     "try %s, or SHARDRT_NUMERICS=fast",
				     kernel, SRT_NUMERICS_VERSION, t->what, t->remedy);
	t->host->log(SRT_LOG_WARN,
		     "kernel \"%s\" gives other bits than the numeric contract on %s: results are "
		     "not those of other devices",
		     kernel, t->what);
	return SRT_OK;
}

static srt_status_t run_cases(const srt_selftest_t *t, srt_kernel_id_t which, srt_dtype_t dtype)
{
	run_t r = { .t = t };
	srt_selftest_stream_t stream;
	const char *kernel = NULL;
	srt_status_t status;

	if (t->is_off)
		return SRT_OK;
	SRT_TRY(srt_selftest_stream_open(t, &stream));
	r.stream = stream.stream;
	status = srt_kernels_selftest(which, dtype, run_launch, &r, &kernel);
	srt_selftest_stream_close(t, &stream);
	if (kernel != NULL)
		return report_failure(t, kernel);
	if (status == SRT_ERR_OUT_OF_MEMORY && !r.failed)
		return t->host->fail(status, "out of host memory for the self-test of kernels");
	return status;
}

srt_status_t srt_selftest_all(srt_selftest_t *t, srt_dtype_t dtype)
{
	return run_cases(t, SRT_SELFTEST_ALL, dtype);
}

void srt_selftest_type(srt_selftest_t *t, srt_dtype_t dtype)
{
	atomic_bool *passed = t->passed[dtype];

	pthread_mutex_lock(&t->lock);
	if (!atomic_load(&passed[SRT_K_FILL]) && srt_selftest_all(t, dtype) == SRT_OK)
		for (int k = 0; k < SRT_K_COUNT; k++)
			atomic_store(&passed[k], true);
	pthread_mutex_unlock(&t->lock);
}

srt_status_t srt_selftest_kernel(srt_selftest_t *t, srt_kernel_id_t kernel, srt_dtype_t dtype)
{
	atomic_bool *passed = &t->passed[dtype][kernel];
	srt_status_t status = SRT_OK;

	if (dtype == SRT_F32 || atomic_load_explicit(passed, memory_order_acquire))
		return SRT_OK;
	/* Concurrent callers wait for the first one's result. */
	pthread_mutex_lock(&t->lock);
	if (!atomic_load(passed)) {
		status = run_cases(t, kernel, dtype);
		atomic_store(passed, status == SRT_OK);
	}
	pthread_mutex_unlock(&t->lock);
	return status;
}
