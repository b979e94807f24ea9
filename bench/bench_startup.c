/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Start-up of a GPT with a tied head: modules, units by a policy, memory and initial values with
 * zero3 and AdamW. Each rank prints the time at which its engine was ready, and the parts of it:
 *
 *     shardrun -n 4 bench/bench_startup [normal|default|barrier]  (gpt2-124m, vocabulary 50257)
 *
 * normal: matrices are normal_(0, 0.02), biases zero; default: as PyTorch's modules have them.
 * barrier: no model; ready after a first barrier.
 * Times are seconds of CLOCK_MONOTONIC, which bench/peer_startup.py compares with its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shardrt/shardrt.h>

enum { LAYERS = 12, WIDTH = 768, VOCAB = 50257, CONTEXT = 1024, SEED = 1 };

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check_status(srt_status_t status)
{
	if (status == SRT_OK)
		return;
	fprintf(stderr, "bench_startup: %s\n", srt_error_last());
	exit(1);
}

/* ---- the model --------------------------------------------------------------------------- */

static srt_module_t *add_module(srt_module_t *parent, const char *name, const char *kind)
{
	srt_module_t *module;

	check_status(srt_module_create(parent, name, kind, &module));
	return module;
}

/* n = 0: of one dimension. */
static void add_param(srt_module_t *module, const char *name, int64_t rows, int64_t n,
		      const srt_init_t *init)
{
	const int64_t shape[] = { rows, n };

	check_status(srt_module_add_param(module, name, SRT_F32, n > 0 ? 2 : 1, shape, NULL));
	if (init != NULL)
		check_status(srt_module_record_init(module, name, init));
}

static void add_norm(srt_module_t *parent, const char *name)
{
	srt_module_t *module = add_module(parent, name, "LayerNorm");

	add_param(module, "weight", WIDTH, 0, NULL);
	add_param(module, "bias", WIDTH, 0, NULL);
}

static srt_module_t *add_embedding(srt_module_t *parent, const char *name, int64_t rows,
				   const srt_init_t *init)
{
	srt_module_t *module = add_module(parent, name, "Embedding");

	add_param(module, "weight", rows, WIDTH, init);
	return module;
}

static void add_linear(srt_module_t *parent, const char *name, int64_t in, int64_t out,
		       const srt_init_t *init)
{
	const srt_init_t zero = { .kind = SRT_INIT_CONSTANT };
	srt_module_t *module = add_module(parent, name, "Linear");

	add_param(module, "weight", out, in, init);
	add_param(module, "bias", out, 0, init != NULL ? &zero : NULL);
}

/* init: of matrices; NULL: PyTorch's default. */
static srt_module_t *create_gpt(const srt_init_t *init)
{
	srt_module_t *root = add_module(NULL, NULL, "GPT"), *wte, *blocks;
	char name[16];

	wte = add_embedding(root, "wte", VOCAB, init);
	add_embedding(root, "wpe", CONTEXT, init);
	blocks = add_module(root, "blocks", "ModuleList");
	for (int i = 0; i < LAYERS; i++) {
		srt_module_t *block;

		snprintf(name, sizeof(name), "%d", i);
		block = add_module(blocks, name, "Block");
		add_norm(block, "ln1");
		add_linear(block, "qkv", WIDTH, 3 * WIDTH, init);
		add_linear(block, "proj", WIDTH, WIDTH, init);
		add_norm(block, "ln2");
		add_linear(block, "fc", WIDTH, 4 * WIDTH, init);
		add_linear(block, "out", 4 * WIDTH, WIDTH, init);
	}
	add_norm(root, "lnf");
	check_status(srt_module_tie(add_module(root, "head", "Linear"), "weight", wte, "weight"));
	return root;
}

/* Each rank has heard of all others. */
static void pass_barrier(srt_context_t *context)
{
	char *all = malloc((size_t)srt_context_world_size(context)), mine = 0;

	if (all == NULL)
		exit(1);
	check_status(srt_comm_oob_allgather(srt_context_world(context), &mine, 1, all));
	free(all);
}

static int run_barrier(double start)
{
	srt_context_t *context;
	double joined, ready;

	check_status(srt_context_create(NULL, &context));
	joined = now_s();
	pass_barrier(context);
	ready = now_s();
	printf("{\"ready\": %.6f, \"join\": %.6f, \"version\": \"%s\"}\n", ready, joined - start,
	       srt_version_string());
	srt_context_destroy(context);
	return 0;
}

/* ---- the start --------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	static const char *const kinds[] = { "Block", NULL };
	const srt_wrap_policy_t policy = { .size = sizeof(policy),
					   .rule = SRT_WRAP_KINDS,
					   .kinds = kinds };
	const srt_materialize_options_t init = { .size = sizeof(init), .seed = SEED };
	const srt_init_t normal = { .kind = SRT_INIT_NORMAL, .std = 0.02 };
	const int is_default = argc > 1 && strcmp(argv[1], "default") == 0;
	const int is_barrier = argc > 1 && strcmp(argv[1], "barrier") == 0;
	double start = now_s(), joined, built, ready;
	srt_context_t *context;
	srt_stream_t *stream;
	srt_engine_t *engine;

	if (argc > 2 ||
	    (argc == 2 && !is_default && !is_barrier && strcmp(argv[1], "normal") != 0)) {
		fprintf(stderr, "usage: bench_startup [normal|default|barrier]\n");
		return 2;
	}
	if (is_barrier)
		return run_barrier(start);
	check_status(srt_context_create(NULL, &context));
	joined = now_s();
	check_status(srt_stream_create(srt_context_device(context), 0, "compute", &stream));
	check_status(srt_engine_create(context, NULL, &engine));
	check_status(
		srt_engine_wrap(engine, create_gpt(is_default ? NULL : &normal), &policy, NULL));
	check_status(srt_engine_build(engine));
	built = now_s();
	check_status(srt_engine_materialize(engine, &init, stream));
	check_status(srt_stream_sync(stream));
	ready = now_s();
	printf("{\"ready\": %.6f, \"join\": %.6f, \"build\": %.6f, \"init\": %.6f, "
	       "\"version\": \"%s\"}\n",
	       ready, joined - start, built - joined, ready - built, srt_version_string());
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return 0;
}
