/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A gradient scaler with sharded parameters and with ddp gives the same training: PyTorch's
 * TestShardedGradScalerParityWithDDP. Each model is trained with ddp, then with each sharding and
 * offload, on the same data in the same precision. In every other step one rank has an infinity in
 * a gradient. Losses, values, moments, scale, growth tracker, findings and skipped steps have the
 * same bits after each step (docs/numerics.md: casts do not depend on the strategy). PyTorch
 * compares the last loss and, in fp32, the last values, within a tolerance.
 * Run by test_scaler_parity.sh.
 */
#include <math.h>
#include <stdlib.h>

#include <shardrt/shardrt.h>

#include "base/base.h"
#include "models/hash.h"
#include <shardrt/models/layers.h>
#include "models/transformer.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

enum { STEPS = 6, ROWS = 4, SRC = 5, TGT = 3, ITEMS = 2, WIDTH = 8, VOCAB = 11 };

static srt_context_t *context;
static srt_device_t *device, *host;
static srt_stream_t *stream;
static int rank, world;

/* ---- what is trained ----------------------------------------------------------------------- */

/* A chain of linear layers in these units. The loss is the sum of the output. */
static const struct {
	const char *name;
	int parent;
} units[] = { { "root", 0 }, { "module.1", 0 }, { "module.1.0", 1 }, { "module.2", 0 } };

typedef struct chain {
	struct {
		const char *name;
		int unit;
		int64_t in, out;
	} layers[6];
	const char *trainable; /* the layer that is not frozen; NULL: none is */
} chain_t;

static const chain_t nested = {
	.layers = { { "module.0", 0, 8, 4 },
		    { "module.1.0", 2, 4, 16 },
		    { "module.1.1", 1, 16, 16 },
		    { "module.2", 3, 16, 4 },
		    { "module.3", 0, 4, 8 } },
};

static const chain_t nonuniform_nested = {
	.layers = { { "module.0", 0, 8, 4 },
		    { "module.1.0", 2, 4, 16 },
		    { "module.1.1", 1, 16, 16 },
		    { "module.2.0", 3, 16, 4 },
		    { "module.2.1", 3, 4, 8 } },
	.trainable = "module.2.1",
};

typedef struct case_of_model {
	const char *name;
	const chain_t *chain; /* NULL: the Transformer */
	float init_scale;
} case_of_model_t;

static const case_of_model_t models[] = {
	{ "nested", &nested, 16384.0f },
	{ "nonuniform_nested", &nonuniform_nested, 2048.0f },
	{ "transformer", NULL, 65536.0f },
};

/* By FSDP1's rules: the loss, too, is fp16, so that large scales are infinite in it. */
static const struct {
	const char *name;
	srt_precision_t precision;
} precisions[] = {
	{ "fp32", SRT_PRECISION_INIT },
	{ "fp16",
	  { .size = sizeof(srt_precision_t),
	    .param = SRT_F16,
	    .reduce = SRT_F16,
	    .buffer = SRT_F16,
	    .rule = SRT_PRECISION_FSDP1 } },
};

/* What is compared with ddp. */
static const struct {
	const char *name;
	srt_strategy_t strategy;
} strategies[] = {
	{ "SHARD_GRAD_OP", SRT_STRATEGY_ZERO2 },
	{ "FULL_SHARD", SRT_STRATEGY_ZERO3 },
};

/* What is in host memory, with each strategy. */
static const struct {
	const char *name;
	srt_offload_t offload;
} places[] = {
	{ "device", { 0 } },
	{ "host", { .params = 1, .grads = 1, .state = 1 } },
};

/* ---- a model ------------------------------------------------------------------------------- */

typedef struct model {
	const case_of_model_t *of;
	srt_engine_t *engine;
	srt_scaler_t *scaler;
	srt_stream_t *home; /* of the device that has the shards */
	srt_tape_t *tape;
	srt_buffer_t *arena, *stats;
	srt_unit_t *units[SRT_ARRAY_LEN(units)];
	int open; /* the innermost unit that is open on the tape */
	srt_tensor_t *x, *loss;
	srt_transformer_t *transformer;
	srt_transformer_io_t io;
} model_t;

static void declare_chain(model_t *m)
{
	const chain_t *chain = m->of->chain;
	char name[64];
	srt_param_t *param;

	for (size_t u = 0; u < SRT_ARRAY_LEN(units); u++)
		CHECK_OK_OR_DIE(srt_unit_create(m->engine,
						u == 0 ? NULL : m->units[units[u].parent],
						units[u].name, NULL, &m->units[u]));
	for (size_t i = 0; chain->layers[i].name != NULL; i++) {
		const char *layer = chain->layers[i].name;
		const int64_t shape[] = { chain->layers[i].out, chain->layers[i].in };
		const srt_param_options_t options = { PARAM_BASE,
						      .frozen = chain->trainable != NULL &&
								strcmp(chain->trainable, layer) };
		srt_unit_t *unit = m->units[chain->layers[i].unit];

		snprintf(name, sizeof(name), "%s.weight", layer);
		CHECK_OK_OR_DIE(srt_param_create(unit, name, SRT_F32, 2, shape, &options, &param));
		snprintf(name, sizeof(name), "%s.bias", layer);
		CHECK_OK_OR_DIE(srt_param_create(unit, name, SRT_F32, 1, shape, &options, &param));
	}
}

static bool is_inside(int unit, int outer)
{
	while (unit != outer && unit != 0)
		unit = units[unit].parent;
	return unit == outer;
}

/* Ends units that are open and begins others, so that `unit` is the innermost. */
static void open_unit(model_t *m, int unit)
{
	while (!is_inside(unit, m->open)) {
		srt_tape_unit_end(m->tape);
		m->open = units[m->open].parent;
	}
	if (unit == m->open)
		return;
	open_unit(m, units[unit].parent);
	srt_tape_unit_begin(m->tape, m->units[unit]);
	m->open = unit;
}

static void record_chain(model_t *m)
{
	const chain_t *chain = m->of->chain;
	char weight[64], bias[64];
	srt_tensor_t *y;

	m->x = y = srt_tape_input(m->tape, SRT_F32, ROWS, chain->layers[0].in);
	srt_tape_unit_begin(m->tape, m->units[0]);
	for (size_t i = 0; chain->layers[i].name != NULL; i++) {
		open_unit(m, chain->layers[i].unit);
		snprintf(weight, sizeof(weight), "%s.weight", chain->layers[i].name);
		snprintf(bias, sizeof(bias), "%s.bias", chain->layers[i].name);
		y = srt_layer_linear(m->tape, y, srt_engine_param_find(m->engine, weight),
				     srt_engine_param_find(m->engine, bias));
	}
	open_unit(m, 0);
	m->loss = srt_layer_sum(m->tape, srt_tape_unit_output(m->tape, y));
	srt_tape_unit_end(m->tape);
	srt_tape_keep(m->tape, m->loss);
	CHECK_OK_OR_DIE(srt_tape_finish(m->tape));
}

/* BatchNorm's statistics are buffers: cast once. */
static void record_transformer(model_t *m, srt_dtype_t buffer)
{
	const float stats[2 * ITEMS] = { 0.1f, -0.2f, 1.3f, 0.7f }; /* mean, variance */
	const srt_dtype_t dtype = buffer != SRT_DTYPE_NONE ? buffer : SRT_F32;
	const size_t cast = 256; /* an aligned offset for the statistics in `dtype` */
	srt_view_t view[2];

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, 4 * cast, "stats", &m->stats));
	CHECK_OK(srt_buffer_copy_from_host(m->stats, 0, stats, sizeof(stats), stream));
	for (size_t k = 0; k < 2; k++) {
		view[k] = srt_view(m->stats, (1 + k) * cast, dtype);
		CHECK_OK(srt_op_cast(view[k],
				     srt_view(m->stats, k * ITEMS * sizeof(float), SRT_F32), ITEMS,
				     stream));
	}
	CHECK_OK_OR_DIE(srt_transformer_record_loss(m->transformer, m->tape, SRC, TGT, view[0],
						    view[1], &m->io));
	m->loss = m->io.loss;
}

static void open_model(model_t *m, const case_of_model_t *of, const srt_precision_t *precision,
		       srt_strategy_t strategy, const srt_offload_t *offload)
{
	const srt_engine_options_t options = {
		ENGINE_BASE, .strategy = strategy, .precision = precision, .offload = *offload,
		.optim = OPTIM(.kind = SRT_OPTIM_ADAM, .lr = 0.01f, ADAM_BASE)
	};
	srt_scaler_options_t scaler = SRT_SCALER_OPTIONS_INIT;
	const srt_transformer_config_t config = {
		.layers = 1, .heads = 2, .width = WIDTH, .ff = 6, .vocab = VOCAB, .batch = ITEMS
	};

	scaler.rule = SRT_SCALER_SHARDED;
	scaler.init_scale = of->init_scale;
	scaler.growth_interval = 1;
	*m = (model_t){ .of = of };
	CHECK_OK(srt_stream_create(offload->state ? host : device, 0, "shards", &m->home));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &m->engine));
	if (of->chain != NULL)
		declare_chain(m);
	else
		CHECK_OK_OR_DIE(srt_transformer_declare(m->engine, &config, NULL, &m->transformer));
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	for (size_t i = 0; srt_engine_param_at(m->engine, i) != NULL; i++)
		CHECK_OK(srt_param_init_normal(srt_engine_param_at(m->engine, i), 3, 0.1f, 0.3f,
					       stream));
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &m->tape));
	if (of->chain != NULL)
		record_chain(m);
	else
		record_transformer(m, precision->buffer);
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, srt_tape_nbytes(m->tape), "arena",
					  &m->arena));
	CHECK_OK_OR_DIE(srt_tape_bind(m->tape, m->arena));
	CHECK_OK_OR_DIE(srt_scaler_create(context, &scaler, &m->scaler));
}

static void close_model(model_t *m)
{
	CHECK_OK(srt_stream_sync(stream));
	srt_scaler_destroy(m->scaler);
	srt_stream_destroy(m->home);
	srt_tape_destroy(m->tape);
	srt_transformer_destroy(m->transformer);
	srt_engine_destroy(m->engine);
	srt_buffer_destroy(m->arena);
	srt_buffer_destroy(m->stats);
}

/* ---- a step -------------------------------------------------------------------------------- */

static uint64_t noise(int step, int64_t of, int64_t i)
{
	return srt_counter_hash((uint64_t)step * 64 + (uint64_t)rank, (uint64_t)of, (uint64_t)i);
}

/* Fills an input of the tape: of->chain's x with values in [0, 1), ids below VOCAB. */
static void feed_input(srt_tensor_t *tensor, int step, int64_t of)
{
	const srt_view_t to = srt_tensor_view(tensor);
	const int64_t n = srt_tensor_rows(tensor) * srt_tensor_cols(tensor);
	union {
		float x[ROWS * WIDTH];
		int32_t ids[ROWS * WIDTH];
	} host = { 0 };

	CHECK_OR_DIE(n <= ROWS * WIDTH);
	for (int64_t i = 0; i < n; i++) {
		if (to.dtype == SRT_F32)
			host.x[i] = (float)(noise(step, of, i) % 4096) / 4096.0f;
		else
			host.ids[i] = (int32_t)(noise(step, of, i) % VOCAB);
	}
	CHECK_OK(srt_buffer_copy_from_host(to.buffer, to.offset, &host, (size_t)n * 4, stream));
}

static void feed(const model_t *m, int step)
{
	if (m->of->chain != NULL) {
		feed_input(m->x, step, 0);
		return;
	}
	feed_input(m->io.src, step, 1);
	feed_input(m->io.tgt, step, 2);
	feed_input(m->io.vocab_bias, 0, 3);
	feed_input(m->io.long_buffer, 0, 4);
}

/* Every other step from the first on, by turns on the first and the last rank. */
static int find_injector(int step)
{
	return step % 2 == 0 ? -1 : step % 4 == 1 ? 0 : world - 1;
}

/* Infinities in this rank's shard of the first gradient that it has a shard of. */
static void inject(const model_t *m)
{
	srt_param_t *param;

	for (size_t i = 0; (param = srt_engine_param_at(m->engine, i)) != NULL; i++) {
		const srt_view_t grad = test_local(param, SRT_PARAM_GRAD);
		srt_part_t part;

		CHECK_OK(srt_param_part(param, rank, &part));
		if (!srt_param_requires_grad(param) || part.nelem == 0)
			continue;
		CHECK_INT(grad.dtype, SRT_F32);
		CHECK_OK(srt_stream_sync(stream));
		CHECK_OK_OR_DIE(srt_op_fill(grad, INFINITY, part.nelem, m->home));
		CHECK_OK(srt_stream_sync(m->home));
		return;
	}
	CHECK_MSG(0, "rank %d has no shard of a gradient", rank);
}

static void run_step(model_t *m, int step)
{
	feed(m, step);
	CHECK_OK_OR_DIE(srt_tape_forward(m->tape, stream));
	CHECK_OK_OR_DIE(srt_tape_backward(m->tape, 1.0f, test_scaler_view(m->scaler), stream));
	CHECK_OK_OR_DIE(srt_engine_finish_backward(m->engine, stream));
	if (rank == find_injector(step))
		inject(m);
	CHECK_OK_OR_DIE(srt_scaler_step(m->scaler, m->engine, stream));
}

/* ---- the results of a training ------------------------------------------------------------- */

/* For each step: losses of this rank, values and moments of all parameters, and scalars. */
typedef struct trace {
	float *tensors[STEPS]; /* losses first */
	size_t ntensors, nlosses;
	struct scalars {
		float scale;
		int32_t growth_tracker, found_inf, step, skipped;
	} scalars[STEPS];
} trace_t;

static size_t count_tensors(const model_t *m)
{
	size_t n = (size_t)srt_tensor_rows(m->loss);
	srt_param_t *param;

	for (size_t i = 0; (param = srt_engine_param_at(m->engine, i)) != NULL; i++)
		n += (size_t)srt_param_nelem(param) * (srt_param_requires_grad(param) ? 3 : 1);
	return n;
}

static void collect_tensors(const model_t *m, trace_t *trace, int step)
{
	static const srt_param_what_t what[] = { SRT_PARAM_VALUE, SRT_PARAM_STATE0,
						 SRT_PARAM_STATE1 };
	const srt_view_t loss = srt_tensor_view(m->loss);
	float *to = calloc(trace->ntensors, sizeof(*to));
	srt_param_t *param;

	CHECK_OR_DIE(to != NULL);
	trace->tensors[step - 1] = to;
	CHECK_OK(srt_buffer_copy_to_host(to, loss.buffer, loss.offset, trace->nlosses * sizeof(*to),
					 stream));
	to += trace->nlosses;
	for (size_t i = 0; (param = srt_engine_param_at(m->engine, i)) != NULL; i++) {
		for (int k = 0; k < (srt_param_requires_grad(param) ? 3 : 1); k++) {
			CHECK_OK(srt_param_get(param, what[k], to, stream));
			to += srt_param_nelem(param);
		}
	}
}

static void train(const case_of_model_t *of, const srt_precision_t *precision,
		  srt_strategy_t strategy, const srt_offload_t *offload, trace_t *trace)
{
	unsigned char hash[16];
	srt_status_t status;
	model_t m;

	open_model(&m, of, precision, strategy, offload);
	*trace = (trace_t){ .ntensors = count_tensors(&m),
			    .nlosses = (size_t)srt_tensor_rows(m.loss) };
	for (int step = 1; step <= STEPS; step++) {
		struct scalars *s = &trace->scalars[step - 1];
		srt_scaler_state_t scaler;
		srt_step_info_t state = SRT_STEP_INFO_INIT;
		float found_inf;

		run_step(&m, step);
		CHECK_OK(srt_scaler_get_found_inf(m.scaler, &found_inf, stream));
		CHECK_OK_OR_DIE(srt_scaler_update(m.scaler, stream));
		CHECK_OK(srt_scaler_get_state(m.scaler, &scaler, stream));
		CHECK_OK(srt_engine_get_step_info(m.engine, &state, stream));
		*s = (struct scalars){ scaler.scale, scaler.growth_tracker, found_inf != 0.0f,
				       state.step, state.skipped };
		collect_tensors(&m, trace, step);
	}
	status = srt_engine_hash(m.engine, hash, stream); /* an error if replicas differ */
	CHECK(status == SRT_OK || status == SRT_ERR_UNSUPPORTED);
	close_model(&m);
}

static void free_trace(trace_t *trace)
{
	for (int s = 0; s < STEPS; s++)
		free(trace->tensors[s]);
}

/* The training is one: steps with an infinity are skipped on all ranks, others change values. */
static void check_training(const char *name, const trace_t *t, float init_scale)
{
	float scale = init_scale;
	int32_t skipped = 0;

	for (int step = 1; step <= STEPS; step++) {
		const struct scalars *s = &t->scalars[step - 1];
		const bool is_skipped = s->skipped > skipped;
		const float *before = step > 1 ? t->tensors[step - 2] + t->nlosses : NULL;
		const size_t nbytes = (t->ntensors - t->nlosses) * sizeof(float);

		CHECK_MSG(is_skipped || find_injector(step) < 0, "%s, step %d", name, step);
		CHECK_MSG(is_skipped == s->found_inf, "%s, step %d", name, step);
		CHECK_INT(s->step, step - s->skipped);
		scale *= is_skipped ? 0.5f : 2.0f;
		CHECK_MSG(s->scale == scale, "%s, step %d: the scale is %g, not %g", name, step,
			  (double)s->scale, (double)scale);
		if (before != NULL)
			CHECK_MSG((memcmp(before, t->tensors[step - 1] + t->nlosses, nbytes) ==
				   0) == is_skipped,
				  "%s, step %d", name, step);
		skipped = s->skipped;
	}
	CHECK_MSG(skipped <= STEPS - 2, "%s: %d of %d steps were skipped", name, skipped, STEPS);
}

static void check_same(const char *name, const trace_t *got, const trace_t *want)
{
	for (int s = 0; s < STEPS; s++) {
		const struct scalars *a = &got->scalars[s], *b = &want->scalars[s];

		CHECK_INT(got->ntensors, want->ntensors);
		CHECK_MSG(memcmp(got->tensors[s], want->tensors[s],
				 want->ntensors * sizeof(float)) == 0,
			  "%s, step %d: other losses, values or moments than with ddp", name,
			  s + 1);
		CHECK_MSG(memcmp(a, b, sizeof(*a)) == 0,
			  "%s, step %d: scale %g, found %d, step %d, with ddp %g, %d, %d", name,
			  s + 1, (double)a->scale, (int)a->found_inf, (int)a->step,
			  (double)b->scale, (int)b->found_inf, (int)b->step);
	}
}

static void test_model(const case_of_model_t *of, size_t p)
{
	const srt_precision_t *precision = &precisions[p].precision;
	const srt_offload_t on_device = { 0 };
	trace_t ddp, got;
	char name[128];

	train(of, precision, SRT_STRATEGY_DDP, &on_device, &ddp);
	snprintf(name, sizeof(name), "%s %s ddp on %d ranks", of->name, precisions[p].name, world);
	check_training(name, &ddp, of->init_scale);
	if (rank == 0)
		printf("%s: %d of %d steps skipped\n", name, (int)ddp.scalars[STEPS - 1].skipped,
		       STEPS);
	for (size_t i = 0; i < SRT_ARRAY_LEN(strategies) * SRT_ARRAY_LEN(places); i++) {
		const size_t s = i / SRT_ARRAY_LEN(places), o = i % SRT_ARRAY_LEN(places);

		train(of, precision, strategies[s].strategy, &places[o].offload, &got);
		snprintf(name, sizeof(name), "%s %s %s %s on %d ranks", of->name,
			 precisions[p].name, strategies[s].name, places[o].name, world);
		check_same(name, &got, &ddp);
		free_trace(&got);
	}
	free_trace(&ddp);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_context_host(context, &host));
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "test", &stream));
	for (size_t i = 0; i < SRT_ARRAY_LEN(models) * SRT_ARRAY_LEN(precisions); i++)
		test_model(&models[i / SRT_ARRAY_LEN(precisions)], i % SRT_ARRAY_LEN(precisions));
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
