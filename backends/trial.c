/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The self-test through a backend's tables: portable kernels launched as any other, and the digest
 * of what comes back. Called by the modules' device.c and launch.c.
 */
#include "backends/trial.h"

#include "base/fpenv.h"
#include "kernels/selftest.h"

_Static_assert(SRT_F32 == 0 && SRT_F16 == 1 && SRT_BF16 == 2, "numbers of the 16-bit types");

typedef struct run {
	const srt_trial_t *trial;
	void *stream;
	bool failed; /* to run: the last error says why */
} run_t;

void srt_trial_init(srt_trial_t *trial)
{
	pthread_mutex_init(&trial->lock, NULL);
}

void srt_trial_destroy(srt_trial_t *trial)
{
	pthread_mutex_destroy(&trial->lock);
}

static srt_status_t upload(const run_t *r, srt_launch_t *launch, unsigned char *const *host,
			   const size_t *nbytes)
{
	const srt_trial_t *t = r->trial;

	for (int i = 0; i < launch->nplaces; i++) {
		srt_status_t status;

		if (!host[i])
			continue;
		status = t->mem->alloc(t->device, SRT_MEM_DEVICE, nbytes[i], "self-test",
				       &launch->places[i].mem);
		if (status == SRT_OK)
			status = t->work->from_host(r->stream, launch->places[i].mem, 0, host[i],
						    nbytes[i]);
		if (status != SRT_OK)
			return status;
	}
	return SRT_OK;
}

static srt_status_t download(const run_t *r, const srt_launch_t *launch, unsigned char *const *host,
			     const size_t *nbytes)
{
	const char *access = srt_kernel_info(launch->kernel)->access;

	for (int i = 0; i < launch->nplaces; i++) {
		srt_status_t status;

		if (!host[i] || access[i] == 'R' || access[i] == 'r')
			continue;
		status = r->trial->work->to_host(r->stream, host[i], launch->places[i].mem, 0,
						 nbytes[i]);
		if (status != SRT_OK)
			return status;
	}
	return SRT_OK;
}

static srt_status_t run_case(void *context, const srt_launch_t *wanted, unsigned char *const *host,
			     const size_t *nbytes)
{
	run_t *r = context;
	const srt_trial_t *t = r->trial;
	srt_launch_t launch = *wanted;
	srt_status_t status = upload(r, &launch, host, nbytes);

	if (status == SRT_OK)
		status = t->work->launch(r->stream, &launch);
	if (status == SRT_OK)
		status = t->stream->sync(r->stream);
	if (status == SRT_OK)
		status = download(r, &launch, host, nbytes);
	for (int i = 0; i < launch.nplaces; i++)
		if (launch.places[i].mem)
			t->mem->free(t->device, launch.places[i].mem);
	r->failed = status != SRT_OK;
	return status;
}

/* Other bits: refused, or said. */
static srt_status_t judge(const srt_trial_t *t, const char *kernel, bool exact)
{
	if (exact)
		return t->host
			->fail(SRT_ERR_DEVICE,
			       "kernel \"%s\" gives other bits than version %d of the numeric "
			       "contract says on %s; the device is refused in exact mode: try "
			       "another driver%s, or SHARDRT_NUMERICS=fast",
			       kernel, SRT_NUMERICS_VERSION, t->what, t->remedy);
	t->host->log(SRT_LOG_WARN,
		     "kernel \"%s\" gives other bits than the numeric contract says on %s: results "
		     "are not those of other devices",
		     kernel, t->what);
	return SRT_OK;
}

/* only: a kernel, or -1. */
static srt_status_t run_cases(const srt_trial_t *t, int only, srt_dtype_t dtype, bool exact)
{
	run_t r = { .trial = t };
	const char *kernel = NULL;
	srt_status_t status;
	srt_fpenv_t env;

	status = t->stream->create(t->device, 0, "self-test", &r.stream);
	if (status != SRT_OK)
		return status;
	t->mark_stream(r.stream);
	/* The inputs are computed here. */
	env = srt_fpenv_enter();
	if (only >= 0)
		status = srt_kernels_selftest_one((srt_kernel_id_t)only, dtype, run_case, &r,
						  &kernel);
	else
		status = srt_kernels_selftest(dtype, run_case, &r, &kernel);
	srt_fpenv_leave(env);
	t->stream->destroy(r.stream);
	if (status == SRT_OK || r.failed || !kernel)
		return status;
	return judge(t, kernel, exact);
}

srt_status_t srt_trial_device(srt_trial_t *trial, bool exact)
{
	return run_cases(trial, -1, SRT_F32, exact);
}

srt_status_t srt_trial_kernel(srt_trial_t *trial, srt_kernel_id_t kernel, srt_dtype_t dtype,
			      bool exact)
{
	bool *tried = &trial->tried[dtype == SRT_BF16][kernel];
	srt_status_t status = SRT_OK;

	if (dtype == SRT_F32)
		return SRT_OK;
	/* Whoever comes second waits for the verdict. */
	pthread_mutex_lock(&trial->lock);
	if (!*tried) {
		status = run_cases(trial, (int)kernel, dtype, exact);
		*tried = status == SRT_OK;
	}
	pthread_mutex_unlock(&trial->lock);
	return status;
}
