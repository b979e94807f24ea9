/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small GPT on 1, 2, 3 ranks: ddp and zero3 end with the same bits for each kind of accumulation,
 * in 16 bits too, and with blocks that are recomputed;
 * the loss falls; the loss of a forward tape is that of a training tape; a step allocates nothing;
 * generated text is the same on all ranks; another data order gives another hash; the plan's total
 * is what is allocated.
 */
#include <math.h>
#include <stdlib.h>

#include <shardrt/shardrt.h>

#include <shardrt/models/generate.h>
#include <shardrt/models/families.h>
#include "models/hash.h"
#include "models/presets.h"
#include "runtime/engine/checks/checks.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

enum { CONTEXT = 12, BATCH = 12, STEPS = 5 };

static srt_context_t *context;
static srt_device_t *device;
static srt_stream_t *stream;
static int rank, world;

typedef struct plan {
	srt_strategy_t strategy;
	srt_accumulation_t accumulation;
	int accumulate;
	int tied, attn_bias;
	int shift; /* rank r takes the slice of rank (r + shift) % world */
	srt_dtype_t dtype;
	srt_precision_t precision; /* but for the size */
	int recompute;
} plan_t;

typedef struct model {
	srt_engine_t *engine;
	srt_decoder_t *decoder;
	srt_tape_t *tape;
	srt_decoder_io_t io;
	srt_buffer_t *arena;
	int64_t micro;
} model_t;

/* Token t of sequence `index`: words of a small language with some noise. */
static int32_t token(int step, int64_t index, int64_t t)
{
	uint64_t h = srt_counter_hash((uint64_t)step, (uint64_t)index, (uint64_t)t);

	return h % 8 == 0 ? (int32_t)(h >> 8) & 15 : (int32_t)((index + 3 * t) & 15);
}

static void open_model(model_t *m, const plan_t *plan)
{
	srt_decoder_config_t config = {
		SRT_DECODER_GPT, .layers = 2,        .heads = 2,
		.width = 20,     .context = CONTEXT, .vocab = 17,
		.ffn_width = 60, .tied = plan->tied, .qkv_bias = plan->attn_bias
	};
	srt_precision_t precision = plan->precision;
	srt_engine_options_t options = { .size = sizeof(options),
					 .prefetch = 1,
					 .strategy = plan->strategy,
					 .precision = &precision,
					 .average = SRT_AVERAGE_SUM,
					 .accumulation = plan->accumulation,
					 .microbatches = plan->accumulate,
					 .norm_p = 2,
					 .max_norm = 1.0f,
					 .optim = OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 3e-3f,
							ADAM_BASE) };
	srt_model_options_t decay = { .matrix_decay = 0.1f,
				      .dtype = plan->dtype,
				      .recompute = plan->recompute };

	precision.size = sizeof(precision);
	memset(m, 0, sizeof(*m));
	m->micro = BATCH / world / plan->accumulate;
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_decoder_declare(m->engine, &config, &decay, &m->decoder));
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	CHECK_OK_OR_DIE(srt_decoder_init(m->decoder, 5, stream));
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &m->tape));
	CHECK_OK_OR_DIE(srt_decoder_record_loss(m->decoder, m->tape, m->micro, CONTEXT, &m->io));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, srt_tape_nbytes(m->tape), "arena",
					  &m->arena));
	CHECK_OK_OR_DIE(srt_tape_bind(m->tape, m->arena));
}

static void close_model(model_t *m)
{
	CHECK_OK(srt_stream_sync(stream));
	srt_tape_destroy(m->tape);
	srt_buffer_destroy(m->arena);
	srt_decoder_destroy(m->decoder);
	srt_engine_destroy(m->engine);
}

static void feed(const srt_decoder_io_t *io, int step, int64_t first, int64_t micro)
{
	int32_t ids[BATCH * CONTEXT], targets[BATCH * CONTEXT];

	for (int64_t i = 0; i < micro * CONTEXT; i++) {
		ids[i] = token(step, first + i / CONTEXT, i % CONTEXT);
		targets[i] = token(step, first + i / CONTEXT, i % CONTEXT + 1);
	}
	CHECK_OK(srt_decoder_put_tokens(io, ids, targets, stream));
}

/* Mean loss of this rank's tokens of the last micro-batch. */
static double mean_loss(const srt_decoder_io_t *io, int64_t micro)
{
	float loss[BATCH * CONTEXT];
	srt_view_t view = srt_tensor_view(io->loss);
	double sum = 0.0;

	CHECK_OK(srt_buffer_copy_to_host(loss, view.buffer, view.offset,
					 (size_t)(micro * CONTEXT) * sizeof(float), stream));
	for (int64_t i = 0; i < micro * CONTEXT; i++)
		sum += (double)loss[i];
	return sum / (double)(micro * CONTEXT);
}

static void run_step(model_t *m, const plan_t *plan, int step)
{
	int64_t slice = (rank + plan->shift) % world * (BATCH / world);

	for (int i = 0; i < plan->accumulate; i++) {
		CHECK_OK_OR_DIE(srt_engine_microbatch(m->engine, i, plan->accumulate));
		feed(&m->io, step, slice + i * m->micro, m->micro);
		CHECK_OK_OR_DIE(srt_tape_forward(m->tape, stream));
		CHECK_OK_OR_DIE(srt_tape_backward(m->tape, 1.0f / (BATCH * CONTEXT),
						  (srt_view_t){ 0 }, stream));
	}
	CHECK_OK_OR_DIE(srt_engine_step(m->engine, stream));
	CHECK_OK_OR_DIE(srt_stream_sync(stream)); /* which takes its scratch when it executes */
}

/* Five steps; the hash of what comes out. */
static void train(const plan_t *plan, unsigned char hash[16])
{
	model_t m;

	open_model(&m, plan);
	for (int step = 0; step < STEPS; step++) {
		uint64_t allocations = srt_device_allocations(device);

		run_step(&m, plan, step);
		if (step > 0)
			CHECK_INT(srt_device_allocations(device), allocations);
	}
	CHECK_OK(srt_engine_check(m.engine));
	if (srt_engine_hash(m.engine, hash, stream) == SRT_ERR_UNSUPPORTED)
		CHECK_SKIP("built without libxxhash");
	close_model(&m);
}

static int computes_in_f32(const plan_t *plan)
{
	return plan->dtype == SRT_DTYPE_NONE &&
	       (plan->precision.param == SRT_DTYPE_NONE || plan->precision.param == SRT_F32);
}

static void test_strategies(void)
{
	static const plan_t plans[] = {
		{ .accumulate = 1, .tied = 1 },
		{ .accumulate = 2, .tied = 1, .attn_bias = 1 },
		{ .accumulate = 2, .accumulation = SRT_ACCUMULATE_LAST, .tied = 1 },
		{ .accumulate = 1, .tied = 0, .attn_bias = 1 },
		{ .accumulate = 2,
		  .tied = 1,
		  .precision = { .param = SRT_BF16, .reduce = SRT_F32 } },
		{ .accumulate = 1, .precision = { .param = SRT_F16 } },
		{ .accumulate = 1, .precision = { .param = SRT_F32, .output = SRT_BF16 } },
		{ .accumulate = 1, .tied = 1, .dtype = SRT_BF16 },
	};
	unsigned char ddp[16], zero3[16], again[16], moved[16];

	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		plan_t plan = plans[i];

		plan.strategy = SRT_STRATEGY_DDP;
		train(&plan, ddp);
		plan.strategy = SRT_STRATEGY_ZERO3;
		train(&plan, zero3);
		CHECK_MSG(memcmp(ddp, zero3, 16) == 0, "plan %zu on %d ranks", i, world);
		plan.recompute = 1;
		train(&plan, again);
		CHECK_MSG(memcmp(again, zero3, 16) == 0, "plan %zu on %d ranks, recomputed", i,
			  world);
		plan.shift = 1;
		train(&plan, moved);
		/* of two ranks the sum is the same whichever comes first; sums of three gradients
		 * in 16 bits are mostly exact */
		if (world <= 2 || computes_in_f32(&plan))
			CHECK_MSG((memcmp(moved, zero3, 16) != 0) == (world > 2),
				  "plan %zu on %d ranks: another order of the ranks", i, world);
	}
}

/* The arena of blocks that are recomputed is smaller, and that of 16 bits too. */
static void test_arenas(void)
{
	plan_t plan = { .strategy = SRT_STRATEGY_ZERO3, .accumulate = 1 };
	size_t nbytes[4];
	model_t m;

	for (int i = 0; i < 4; i++) {
		plan.recompute = i & 1;
		plan.precision.param = i & 2 ? SRT_BF16 : SRT_DTYPE_NONE;
		open_model(&m, &plan);
		nbytes[i] = srt_tape_nbytes(m.tape);
		close_model(&m);
	}
	printf("arenas: fp32 %zu bytes, %zu recomputed; bf16 %zu, %zu recomputed\n", nbytes[0],
	       nbytes[1], nbytes[2], nbytes[3]);
	CHECK(nbytes[1] < nbytes[0] && nbytes[2] < nbytes[0] && nbytes[3] < nbytes[2]);
}

/* A forward tape has the loss of the training tape. */
static void test_learning(const plan_t *plan)
{
	srt_tape_t *eval;
	srt_decoder_io_t io;
	srt_buffer_t *arena;
	double first = 0.0, last = 0.0;
	model_t m;

	open_model(&m, plan);
	for (int step = 0; step < 40; step++) {
		run_step(&m, plan, step);
		last = mean_loss(&m.io, m.micro);
		first = step == 0 ? last : first;
	}
	CHECK_NEAR(first, log(17.0), 0.1);
	CHECK_MSG(last < 0.75 * first, "loss %.3f -> %.3f", first, last);

	/* a forward tape needs less memory and has the loss that the training tape has */
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_FORWARD, &eval));
	CHECK_OK_OR_DIE(srt_decoder_record_loss(m.decoder, eval, m.micro, CONTEXT, &io));
	CHECK(srt_tape_nbytes(eval) < srt_tape_nbytes(m.tape));
	CHECK_OK_OR_DIE(
		srt_buffer_create(device, SRT_MEM_DEVICE, srt_tape_nbytes(eval), "arena", &arena));
	CHECK_OK_OR_DIE(srt_tape_bind(eval, arena));
	feed(&io, 99, rank * m.micro, m.micro);
	CHECK_OK_OR_DIE(srt_tape_forward(eval, stream));
	first = mean_loss(&io, m.micro);
	run_step(&m, plan, 99);
	last = mean_loss(&m.io, m.micro);
	CHECK_MSG(first == last, "%.9g on the forward tape, %.9g on the training tape", first,
		  last);
	CHECK_OK(srt_stream_sync(stream));
	srt_tape_destroy(eval);
	srt_buffer_destroy(arena);
	close_model(&m);
}

/* One text on all ranks, greedy and sampled. */
static void test_generate(void)
{
	enum { N = CONTEXT - 3 };
	const plan_t plan = { .strategy = SRT_STRATEGY_ZERO3, .accumulate = 1, .tied = 1 };
	const srt_generator_options_t sizes = { .sequences = 1, .length = CONTEXT };
	const int32_t prompt[] = { 1, 4, 7 };
	int32_t tokens[N], *all = calloc((size_t)world, sizeof(tokens));
	srt_sequence_t s = { .prompt = prompt, .nprompt = 3, .max_tokens = N, .tokens = tokens };
	srt_sampling_t sampling = { .seed = 7 };
	srt_generator_t *g;
	srt_buffer_t *arena;
	model_t m;

	CHECK_OR_DIE(all != NULL);
	open_model(&m, &plan);
	for (int step = 0; step < 10; step++)
		run_step(&m, &plan, step);
	CHECK_OK_OR_DIE(srt_generator_create(m.decoder, device, &sizes, &g));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, srt_generator_arena_nbytes(g),
					  "arena", &arena));
	CHECK_OK_OR_DIE(srt_generator_bind(g, arena));
	for (int greedy = 0; greedy < 2; greedy++) {
		sampling.temperature = greedy ? 0.0f : 1.0f;
		CHECK_OK(srt_decoder_generate(g, &sampling, &s, 1, NULL, NULL, stream));
		CHECK(s.ntokens == N);
		CHECK_OK(srt_comm_oob_allgather(srt_context_world(context), tokens, sizeof(tokens),
						all));
		for (int r = 0; r < world; r++)
			CHECK(memcmp(all + r * N, tokens, sizeof(tokens)) == 0);
	}
	CHECK_OK(srt_stream_sync(stream));
	srt_generator_destroy(g);
	srt_buffer_destroy(arena);
	free(all);
	close_model(&m);
}

/* What the engine, the tapes and their stream take is what was planned, and a step takes no more.
 * Products whose sums are cut take scratch on GPUs too. With a mesh all ranks are tensor-parallel
 * and have one batch. */
static void test_memory(srt_mesh_t *mesh)
{
	const srt_decoder_config_t config = { SRT_DECODER_GPT, .layers = 1,        .heads = 2,
					      .width = 24,     .context = CONTEXT, .vocab = 700,
					      .tied = 1 };
	const srt_engine_options_t options = {
		ENGINE_BASE, .mesh = mesh, .strategy = SRT_STRATEGY_ZERO3, .norm_p = 2,
		.optim = OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 3e-3f, ADAM_BASE)
	};
	const plan_t plan = { .accumulate = 1, .shift = mesh != NULL ? world - rank : 0 };
	const size_t before = srt_device_allocated(device);
	const srt_model_options_t decay = { .matrix_decay = 0.1f, .mesh = mesh };
	size_t activations, scratch;
	srt_stream_t *old = stream;
	uint64_t allocations = 0;
	srt_plan_t planned = SRT_PLAN_INIT;
	model_t m = { .micro = BATCH / world };

	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "planned", &stream));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &m.engine));
	CHECK_OK_OR_DIE(srt_decoder_declare(m.engine, &config, &decay, &m.decoder));
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &m.tape));
	CHECK_OK_OR_DIE(srt_decoder_record_loss(m.decoder, m.tape, m.micro, CONTEXT, &m.io));
	CHECK_OK(srt_decoder_memory(m.decoder, device, m.micro, CONTEXT, &activations, &scratch));
	CHECK_INT(activations, srt_tape_nbytes(m.tape));
	CHECK_INT(scratch, srt_tape_scratch_nbytes(m.tape));
	CHECK_OK(srt_engine_plan_extra(m.engine, activations, scratch));
	CHECK_OK(srt_engine_plan(m.engine, rank, 0, &planned));
	CHECK_OK_OR_DIE(srt_engine_build(m.engine));
	CHECK_OK_OR_DIE(srt_buffer_create(device, srt_decoder_mem_kind(m.decoder), activations,
					  "arena", &m.arena));
	CHECK_OK_OR_DIE(srt_tape_bind(m.tape, m.arena));
	CHECK_OK_OR_DIE(srt_decoder_init(m.decoder, 5, stream));
	for (int step = 0; step < 4; step++) {
		run_step(&m, &plan, step);
		CHECK_OK(srt_stream_sync(stream));
		CHECK_INT(srt_device_allocated(device) - before, planned.rank_total);
		CHECK(step == 0 || srt_device_allocations(device) == allocations);
		allocations = srt_device_allocations(device);
	}
	printf("%zu bytes of scratch\n", scratch);
	close_model(&m);
	srt_stream_destroy(stream);
	CHECK_INT(srt_device_allocated(device), before);
	stream = old;
}

static void test_tensor_memory(void)
{
	const char *const names[] = { "dp", "tp" };
	const int shape[] = { 1, 2 };
	srt_mesh_t *mesh;

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, names, &mesh));
	test_memory(mesh);
	srt_mesh_destroy(mesh);
}

static void test_sizes(void)
{
	srt_decoder_config_t c;

	CHECK_OK(srt_decoder_preset("gpt2-124m", &c));
	c.vocab = 50257;
	CHECK_INT(srt_decoder_nparams(&c, 0), 124439808); /* as GPT-2 has */
	CHECK_STATUS(srt_decoder_preset("gpt5", &c), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("'gpt5'; the presets are nano");
	CHECK_STR(srt_decoder_preset_name(0), "nano");
	CHECK(srt_decoder_preset_name(3) == NULL);
	c.heads = 7;
	CHECK_STATUS(srt_decoder_check(&c, 1), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("7 heads; it must be a multiple");
	c.heads = 6;
	CHECK_STATUS(srt_decoder_check(&c, 4), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("6 heads of queries cannot be divided among 4 tensor-parallel");
	c.vocab = 10; /* 3, 3, 3 and 1; or 2, 2, 2, 2, 2 and nothing */
	CHECK_OK(srt_decoder_check(&c, 3));
	c.heads = 12;
	CHECK_OK(srt_decoder_check(&c, 4));
	CHECK_STATUS(srt_decoder_check(&c, 6), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("a vocabulary of 10 gives nothing to the last of 6 tensor-parallel ranks");
	c.qk_norm = SRT_DECODER_QK_HEAD;
	CHECK_OK(srt_decoder_check(&c, 4));
	c.qk_norm = SRT_DECODER_QK_WIDTH;
	CHECK_OK(srt_decoder_check(&c, 4));
	c.heads = 0;
	CHECK_STATUS(srt_decoder_check(&c, 1), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("heads must be from 1 to");
	c = (srt_decoder_config_t){ SRT_DECODER_GPT,  .layers = 1 << 20, .heads = 1,
				    .width = 1 << 20, .context = 1,      .vocab = 1 };
	CHECK_STATUS(srt_decoder_check(&c, 1), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("1048576 layers that are 1048576 wide is too large");
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	test_sizes();
	test_strategies();
	test_arenas();
	test_learning(&(plan_t){ .strategy = SRT_STRATEGY_ZERO3, .accumulate = 1, .tied = 1 });
	test_learning(&(plan_t){ .strategy = SRT_STRATEGY_ZERO3,
				 .accumulate = 1,
				 .tied = 1,
				 .precision = { .param = SRT_BF16, .reduce = SRT_F32 } });
	test_generate();
	test_memory(NULL);
	if (world == 2)
		test_tensor_memory();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
