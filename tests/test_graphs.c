/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Training steps recorded and replayed, on the cuda backend over the fake driver: a GPT with and
 * without SHARDRT_GRAPHS, and on the cpu, ends with the same bits, with tied and frozen parameters,
 * micro-batches, a validation of another shape between; steps are replays, and need few calls of
 * the driver; the host waits for nothing in a step. Several ranks: tests/test_graphs_ranks.sh.
 *
 *     test_graphs count    how many calls of the driver a step of the preset nano makes
 */
#include <shardrt/shardrt.h>

#include "models/gpt.h"
#include "models/hash.h"
#include "tests/fake_cuda.h"

enum { CONTEXT = 8, BATCH = 4, STEPS = 6 };

typedef struct plan {
	srt_gpt_config_t config;
	int accumulate;
	int batch, context; /* of a micro-batch */
	int frozen;         /* the embeddings and the biases are */
	int evaluates;      /* a forward pass of another shape after each step */
	int steps;
	int shows; /* the calls of the last step */
} plan_t;

typedef struct tape {
	srt_tape_t *tape;
	srt_gpt_io_t io;
} tape_t;

typedef struct model {
	srt_context_t *context;
	srt_stream_t *stream;
	srt_engine_t *engine;
	srt_gpt_t *gpt;
	tape_t train, eval;
	srt_buffer_t *arena;
} model_t;

static int is_frozen(const char *name, void *arg)
{
	const plan_t *plan = arg;

	return plan->frozen && (strstr(name, "wpe") || strstr(name, "bias"));
}

static void record(model_t *m, const plan_t *plan, tape_t *t, srt_tape_mode_t mode, int batch)
{
	srt_device_t *device = srt_context_device(m->context);

	CHECK_OK_OR_DIE(srt_tape_create(device, mode, &t->tape));
	CHECK_OK_OR_DIE(srt_gpt_record_loss(m->gpt, t->tape, batch, plan->context, &t->io));
}

static void open_model(model_t *m, const char *backend, plan_t *plan)
{
	srt_context_options_t where = { .backend = backend,
					.threads = 1,
					.numerics = SRT_NUMERICS_EXACT };
	srt_engine_options_t options = { .reduction = SRT_REDUCE_SUM,
					 .microbatches = plan->accumulate,
					 .optimizer = SRT_OPTIMIZER_ADAMW,
					 .lr = 3e-3f,
					 .warmup = 2,
					 .norm_p = 2,
					 .max_norm = 1.0f };
	srt_model_options_t decay = { .matrix_decay = 0.1f, .frozen = is_frozen, .arg = plan };
	size_t train, eval;

	memset(m, 0, sizeof(*m));
	CHECK_OK_OR_DIE(srt_context_create(&where, &m->context));
	CHECK_OK_OR_DIE(
		srt_stream_create(srt_context_device(m->context), 0, "compute", &m->stream));
	CHECK_OK_OR_DIE(srt_engine_create(m->context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_gpt_declare(m->engine, &plan->config, &decay, &m->gpt));
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	CHECK_OK_OR_DIE(srt_gpt_init(m->gpt, 5, m->stream));
	record(m, plan, &m->train, SRT_TAPE_TRAINING, plan->batch);
	record(m, plan, &m->eval, SRT_TAPE_FORWARD, 1);
	train = srt_tape_nbytes(m->train.tape);
	eval = srt_tape_nbytes(m->eval.tape);
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(m->context), SRT_MEM_DEVICE,
					  train > eval ? train : eval, "arena", &m->arena));
	CHECK_OK_OR_DIE(srt_tape_bind(m->train.tape, m->arena));
	CHECK_OK_OR_DIE(srt_tape_bind(m->eval.tape, m->arena));
}

static void close_model(model_t *m)
{
	CHECK_OK(srt_stream_sync(m->stream));
	srt_tape_destroy(m->train.tape);
	srt_tape_destroy(m->eval.tape);
	srt_buffer_destroy(m->arena);
	srt_gpt_destroy(m->gpt);
	srt_engine_destroy(m->engine);
	srt_stream_destroy(m->stream);
	srt_context_destroy(m->context);
}

static void feed(const model_t *m, const tape_t *t, int64_t vocab, int step)
{
	const srt_view_t ids = srt_tensor_view(t->io.ids), to = srt_tensor_view(t->io.targets);
	int64_t n = srt_tensor_rows(t->io.ids);
	int32_t tokens[8 * 64 + 1];

	CHECK_OR_DIE(n <= 8 * 64);
	for (int64_t i = 0; i <= n; i++)
		tokens[i] = (int32_t)(srt_counter_hash((uint64_t)step, (uint64_t)i / 3, 0) %
				      (uint64_t)vocab);
	CHECK_OK(srt_copy_from_host(m->stream, ids.buffer, ids.offset, tokens,
				    (size_t)n * sizeof(*tokens)));
	CHECK_OK(srt_copy_from_host(m->stream, to.buffer, to.offset, tokens + 1,
				    (size_t)n * sizeof(*tokens)));
}

static void run_step(model_t *m, const plan_t *plan, int step)
{
	for (int i = 0; i < plan->accumulate; i++) {
		CHECK_OK_OR_DIE(srt_engine_microbatch(m->engine, i, plan->accumulate));
		feed(m, &m->train, plan->config.vocab, step * 10 + i);
		CHECK_OK_OR_DIE(srt_tape_forward(m->train.tape, m->stream));
		CHECK_OK_OR_DIE(srt_tape_backward(m->train.tape, m->stream, 0.01f));
	}
	CHECK_OK_OR_DIE(srt_engine_step(m->engine, m->stream));
	if (!plan->evaluates)
		return;
	feed(m, &m->eval, plan->config.vocab, step);
	CHECK_OK_OR_DIE(srt_tape_forward(m->eval.tape, m->stream));
}

/* What the last of the steps cost. */
typedef struct cost {
	long calls, launches, replays, waits;
} cost_t;

/* Each function that has been called, with how often. */
static void show_names(void)
{
	for (long i = 0; f->call(i); i++) {
		const char *name = f->call(i)->name;
		long k = 0;

		while (strcmp(f->call(k)->name, name) != 0)
			k++;
		if (k == i)
			printf("\t%s %ld\n", name, f->count(name));
	}
}

static void train(const char *backend, int graphs, plan_t *plan, unsigned char hash[16],
		  cost_t *cost)
{
	srt_device_t *device;
	model_t m;

	setenv("SHARDRT_GRAPHS", graphs ? "auto" : "no", 1);
	open_model(&m, backend, plan);
	device = srt_context_device(m.context);
	for (int step = 0; step < plan->steps; step++) {
		uint64_t replays = srt_device_replays(device);
		uint64_t allocations = srt_device_allocations(device);

		f->reset();
		run_step(&m, plan, step);
		cost->calls = f->count(NULL);
		cost->launches = f->count("cuLaunchKernel");
		cost->waits = f->host_syncs();
		cost->replays = (long)(srt_device_replays(device) - replays);
		if (plan->shows && step == plan->steps - 1)
			show_names();
		if (step > 0)
			CHECK_INT(srt_device_allocations(device), allocations);
	}
	CHECK_OK(srt_engine_check(m.engine));
	if (srt_engine_hash(m.engine, m.stream, hash) == SRT_ERR_UNSUPPORTED)
		CHECK_SKIP("built without libxxhash");
	close_model(&m);
}

static void compare(plan_t *plan, const char *what)
{
	unsigned char cpu[16], plain[16], replayed[16];
	cost_t with, without;

	train("cpu", 1, plan, cpu, &with);
	CHECK_INT(with.replays, 0);
	train("cuda", 0, plan, plain, &without);
	CHECK_INT(without.replays, 0);
	train("cuda", 1, plan, replayed, &with);
	CHECK_MSG(memcmp(cpu, plain, 16) == 0, "%s: other bits than the cpu's", what);
	CHECK_MSG(memcmp(plain, replayed, 16) == 0, "%s: other bits when replayed", what);
	CHECK_MSG(with.replays > 0 && with.calls * 3 < without.calls,
		  "%s: %ld calls of the driver with %ld replays, %ld without", what, with.calls,
		  with.replays, without.calls);
	CHECK_MSG(with.waits == 0 && without.waits == 0, "%s: the host waits in a step", what);
	CHECK_INT(f->live(), 0);
}

static void test_models(void)
{
	const srt_gpt_config_t small = {
		.layers = 2, .heads = 2, .width = 16, .context = CONTEXT, .vocab = 17, .mult = 2
	};
	plan_t plan = {
		.config = small, .accumulate = 1, .batch = BATCH, .context = CONTEXT, .steps = STEPS
	};

	compare(&plan, "one micro-batch");
	plan.config.tied = plan.config.attn_bias = 1;
	plan.frozen = plan.evaluates = 1;
	compare(&plan, "tied and frozen parameters");
	plan.accumulate = 3;
	compare(&plan, "micro-batches");
}

static void show(const char *what, const cost_t *c)
{
	printf("%s: %ld calls of the driver a step, %ld of them launches, %ld replays\n", what,
	       c->calls, c->launches, c->replays);
}

static void count_nano(void)
{
	plan_t plan = { .accumulate = 1, .batch = 4, .steps = 4, .shows = 1 };
	unsigned char plain[16], replayed[16];
	cost_t with, without;

	CHECK_OK_OR_DIE(srt_gpt_preset("nano", &plan.config));
	plan.context = (int)plan.config.context;
	train("cuda", 0, &plan, plain, &without);
	train("cuda", 1, &plan, replayed, &with);
	show("nano without recordings", &without);
	show("nano with recordings", &with);
	CHECK(memcmp(plain, replayed, 16) == 0);
}

int main(int argc, char **argv)
{
	setenv("SHARDRT_CUDA_DRIVER", FAKE_CUDA_PATH, 1);
	setenv("SHARDRT_CUDA_TUNED", "portable", 1); /* tuned kernels are slow on the fake */
	fake_cuda_load();
	f->set("delay_us", 0);
	f->set("kernels", 1);
	if (argc > 1 && !strcmp(argv[1], "count"))
		count_nano();
	else
		test_models();
	return check_done();
}
