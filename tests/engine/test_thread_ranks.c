/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that are threads of one process: they open devices at the same time, and train.
 *
 * Reliability: `srt_context_create()` in two threads at a time | crashed in the OpenCL driver,
 * which looked for devices in both | ranks may be threads, on each device
 */
#include <shardrt/shardrt.h>

#include "tests/harness/check.h"
#include "tests/harness/device.h"
#include "tests/harness/options.h"

#define WORLD 2
#define NELEM 24
#define NSTEPS 3

/* What rank 0 sends to the others. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char bytes[1024];
	int nsent, nreceived;
} sent = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static int broadcast(void *arg, void *data, size_t nbytes)
{
	pthread_mutex_lock(&sent.lock);
	if (*(const int *)arg == 0) {
		while (sent.nsent > sent.nreceived)
			pthread_cond_wait(&sent.changed, &sent.lock);
		memcpy(sent.bytes, data, nbytes);
		sent.nsent++;
	} else {
		while (sent.nsent == sent.nreceived)
			pthread_cond_wait(&sent.changed, &sent.lock);
		memcpy(data, sent.bytes, nbytes);
		sent.nreceived++;
	}
	pthread_cond_broadcast(&sent.changed);
	pthread_mutex_unlock(&sent.lock);
	return 0;
}

static void train(srt_context_t *context, int rank)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 1.0f);
	const int64_t shape[] = { 6, 4 };
	srt_stream_t *stream;
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *param;
	float values[NELEM];
	srt_view_t grad;
	int accumulate;

	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "compute", &stream));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "model", NULL, &unit));
	CHECK_OK_OR_DIE(srt_param_create(unit, "w", SRT_F32, 2, shape, NULL, &param));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	for (int step = 0; step < NSTEPS; step++) {
		CHECK_OK(srt_unit_forward_begin(unit, stream));
		CHECK_OK(srt_unit_forward_end(unit, stream));
		CHECK_OK(srt_unit_backward_begin(unit, stream));
		CHECK_OK(srt_param_grad(param, &grad, &accumulate));
		CHECK_OK(srt_op_fill(grad, (float)(rank + 1), NELEM, stream));
		CHECK_OK(srt_param_grad_ready(param));
		CHECK_OK(srt_unit_backward_end(unit, stream));
		CHECK_OK(srt_engine_step(engine, stream));
	}
	CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, values, stream));
	for (int i = 0; i < NELEM; i++)
		CHECK(values[i] == -1.5f * NSTEPS); /* the mean of 1 and 2, in each step */
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
}

static bool is_refused; /* by SHARDRT_COLLECTIVES */

static void *run_rank(void *arg)
{
	int rank = *(const int *)arg;
	const srt_context_options_t options = { .size = sizeof(options),
						.rank = rank,
						.world_size = WORLD,
						.broadcast = broadcast,
						.broadcast_arg = &rank };
	srt_context_t *context;

	if (is_refused) {
		CHECK_STATUS(srt_context_create(&options, &context), SRT_ERR_UNSUPPORTED);
		CHECK_ERROR_HAS("threads of one process, and only ucx connects those");
		return NULL;
	}
	CHECK_OK_OR_DIE(srt_context_create(&options, &context));
	train(context, rank);
	srt_context_destroy(context);
	return NULL;
}

static void run_ranks(void)
{
	static const int ranks[WORLD] = { 0, 1 };
	pthread_t threads[WORLD];

	for (int r = 0; r < WORLD; r++)
		CHECK_OR_DIE(pthread_create(&threads[r], NULL, run_rank,
					    (void *)(uintptr_t)&ranks[r]) == 0);
	for (int r = 0; r < WORLD; r++)
		CHECK_OR_DIE(pthread_join(threads[r], NULL) == 0);
}

int main(void)
{
	srt_feature_info_t ucx = SRT_FEATURE_INFO_INIT;

	CHECK_OK_OR_DIE(srt_feature_get_info(SRT_FEATURE_UCX, &ucx));
	if (ucx.state == SRT_FEATURE_MISSING)
		CHECK_SKIP("ranks in one process need UCX");
	unsetenv("SHARDRT_BOOTSTRAP");
	run_ranks();
	is_refused = true;
	setenv("SHARDRT_COLLECTIVES", "shm", 1);
	run_ranks();
	return check_done();
}
