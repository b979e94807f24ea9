/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPT in fp16 with fp32 parameters and a gradient scaler, which skips two steps: in step 3 the
 * gradient of the loss is infinite on the last rank alone, in step 5 one element of the reduced
 * gradients is, which the last rank owns. On all ranks values and moments keep their bits in these
 * steps, and the scale is halved. Prints the hash of the parameters. Run by
 * tests/tools/test_hash_matrix.sh:
 *
 *     test_gpt_infinity small|PRESET ddp|zero1|zero2|zero3|kept
 *
 * kept: zero3 whose units keep their unsharded parameters.
 */
#include <math.h>
#include <stdlib.h>

#include <shardrt/shardrt.h>

#include <shardrt/models/families.h>
#include "models/hash.h"
#include "models/presets.h"
#include "runtime/engine/declare/declare.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

enum { BATCH = 30, STEPS = 6, IN_LOSS = 3, IN_GRADIENT = 5 };

static srt_context_t *context;
static srt_device_t *device;
static srt_stream_t *stream;
static int rank, world;

typedef struct model {
	srt_decoder_config_t config;
	srt_engine_t *engine;
	srt_decoder_t *decoder;
	srt_tape_t *tape;
	srt_decoder_io_t io;
	srt_buffer_t *arena, *infinity; /* infinity: (1) */
	srt_scaler_t *scaler;
} model_t;

static void choose_sizes(srt_decoder_config_t *config, const char *name)
{
	static const srt_decoder_config_t small = { SRT_DECODER_GPT, .layers = 2,   .heads = 2,
						    .width = 24,     .context = 20, .vocab = 256,
						    .tied = 1 };

	if (strcmp(name, "small") == 0)
		*config = small;
	else
		CHECK_OK_OR_DIE(srt_decoder_preset(name, config));
}

static srt_strategy_t choose_strategy(const char *name)
{
	srt_strategy_t strategy = SRT_STRATEGY_DDP;

	if (strcmp(name, "kept") == 0)
		return SRT_STRATEGY_ZERO3;
	while (strategy < SRT_STRATEGY_ZERO3 && strcmp(srt_strategy_name(strategy), name) != 0)
		strategy++;
	CHECK_STR(srt_strategy_name(strategy), name);
	return strategy;
}

static void open_model(model_t *m, const char *size, const char *strategy)
{
	const srt_precision_t precision = { .size = sizeof(precision),
					    .param = SRT_F16,
					    .reduce = SRT_F32 };
	const srt_engine_options_t options = { ENGINE_BASE,
					       .strategy = choose_strategy(strategy),
					       .precision = &precision,
					       .average = SRT_AVERAGE_SUM,
					       .norm_p = 2,
					       .max_norm = 0.5f,
					       .optim = OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 3e-3f,
							      ADAM_BASE) };
	const srt_model_options_t decay = { .matrix_decay = 0.1f,
					    .reshard = strcmp(strategy, "kept") == 0 ?
							       SRT_RESHARD_NEVER :
							       0 };

	*m = (model_t){ 0 };
	choose_sizes(&m->config, size);
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_decoder_declare(m->engine, &m->config, &decay, &m->decoder));
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	CHECK_OK_OR_DIE(srt_decoder_init(m->decoder, 5, stream));
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &m->tape));
	CHECK_OK_OR_DIE(srt_decoder_record_loss(m->decoder, m->tape, BATCH / world,
						m->config.context, &m->io));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, srt_tape_nbytes(m->tape), "arena",
					  &m->arena));
	CHECK_OK_OR_DIE(srt_tape_bind(m->tape, m->arena));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, 4, "infinity", &m->infinity));
	CHECK_OK(srt_op_fill(srt_view(m->infinity, 0, SRT_F32), INFINITY, 1, stream));
	CHECK_OK_OR_DIE(srt_scaler_create(context, NULL, &m->scaler));
}

static void close_model(model_t *m)
{
	CHECK_OK(srt_stream_sync(stream));
	srt_scaler_destroy(m->scaler);
	srt_tape_destroy(m->tape);
	srt_buffer_destroy(m->infinity);
	srt_buffer_destroy(m->arena);
	srt_decoder_destroy(m->decoder);
	srt_engine_destroy(m->engine);
}

/* Token t of a sequence: a line of a small language with some noise. */
static int32_t token(int step, int64_t sequence, int64_t t)
{
	const uint64_t h = srt_counter_hash((uint64_t)step, (uint64_t)sequence, (uint64_t)t);

	return h % 8 == 0 ? (int32_t)(h >> 8) & 255 : (int32_t)((sequence + 3 * t) & 255);
}

static void feed(const model_t *m, int step)
{
	const int64_t length = m->config.context, first = rank * (BATCH / world);
	const int64_t n = BATCH / world * length;
	const srt_view_t to[2] = { srt_tensor_view(m->io.ids), srt_tensor_view(m->io.targets) };
	int32_t *ids = calloc((size_t)n, sizeof(*ids));

	CHECK_OR_DIE(ids != NULL);
	for (int k = 0; k < 2; k++) { /* the target of a token is the next one */
		for (int64_t i = 0; i < n; i++)
			ids[i] = token(step, first + i / length, i % length + k);
		CHECK_OK(srt_buffer_copy_from_host(to[k].buffer, to[k].offset, ids,
						   (size_t)n * sizeof(*ids), stream));
	}
	free(ids);
}

/* Values and moments of all parameters. To be freed. */
static float *collect(const model_t *m, size_t *nbytes)
{
	static const srt_param_what_t all[] = { SRT_PARAM_VALUE, SRT_PARAM_STATE0,
						SRT_PARAM_STATE1 };
	const size_t n = (size_t)srt_decoder_nparams(&m->config, 0) * SRT_ARRAY_LEN(all);
	float *x = calloc(n, sizeof(*x));
	srt_param_t *param;
	size_t at = 0;

	CHECK_OR_DIE(x != NULL);
	for (size_t i = 0; (param = srt_engine_param_at(m->engine, i)) != NULL; i++) {
		for (size_t k = 0; k < SRT_ARRAY_LEN(all); k++) {
			CHECK_OR_DIE(at + (size_t)srt_param_nelem(param) <= n);
			CHECK_OK(srt_param_get(param, all[k], x + at, stream));
			at += (size_t)srt_param_nelem(param);
		}
	}
	CHECK_INT(at, n);
	*nbytes = n * sizeof(*x);
	return x;
}

/* An infinity in the last element of a reduced gradient: the last rank has it, with ddp all. */
static void spoil_gradient(const model_t *m)
{
	srt_param_t *param = srt_engine_param_find(m->engine, "blocks.1.fc.weight");
	srt_view_t grad = test_local(param, SRT_PARAM_GRAD);
	srt_part_t part;

	CHECK_INT(grad.dtype, SRT_F32);
	CHECK_OK(srt_param_part(param, rank, &part));
	CHECK(part.first + part.nelem == srt_param_nelem(param) || rank < world - 1);
	if (part.first + part.nelem < srt_param_nelem(param))
		return;
	grad.offset += (size_t)(part.nelem - 1) * sizeof(float);
	CHECK_OK_OR_DIE(srt_op_fill(grad, INFINITY, 1, stream));
}

static void run_step(model_t *m, int step)
{
	srt_view_t scale = test_scaler_view(m->scaler);

	if (step == IN_LOSS && rank == world - 1)
		scale = srt_view(m->infinity, 0, SRT_F32);
	feed(m, step);
	CHECK_OK_OR_DIE(srt_tape_forward(m->tape, stream));
	CHECK_OK_OR_DIE(srt_tape_backward(m->tape, 1.0f / (float)(BATCH * m->config.context), scale,
					  stream));
	CHECK_OK_OR_DIE(srt_engine_finish_backward(m->engine, stream));
	if (step == IN_GRADIENT)
		spoil_gradient(m);
	CHECK_OK_OR_DIE(srt_scaler_step(m->scaler, m->engine, stream));
	CHECK_OK_OR_DIE(srt_scaler_update(m->scaler, stream));
}

static void train(model_t *m)
{
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	srt_scaler_state_t scaler;
	float scale = 65536.0f, *before, *after;
	int skipped = 0;
	size_t nbytes;

	before = collect(m, &nbytes);
	for (int step = 1; step <= STEPS; step++) {
		const bool is_bad = step == IN_LOSS || step == IN_GRADIENT;

		run_step(m, step);
		skipped += is_bad;
		scale *= is_bad ? 0.5f : 1.0f;
		after = collect(m, &nbytes);
		CHECK_MSG((memcmp(before, after, nbytes) == 0) == is_bad, "rank %d, step %d", rank,
			  step);
		free(before);
		before = after;
		CHECK_OK(srt_engine_get_step_info(m->engine, &state, stream));
		CHECK_INT(state.skipped, skipped);
		CHECK_INT(state.step, step - skipped);
		CHECK_OK(srt_scaler_get_state(m->scaler, &scaler, stream));
		CHECK_MSG(scaler.scale == scale, "rank %d, step %d: the scale is %g, not %g", rank,
			  step, (double)scaler.scale, (double)scale);
	}
	free(before);
}

int main(int argc, char **argv)
{
	unsigned char hash[16];
	model_t m;

	CHECK_OR_DIE(argc == 3);
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "test", &stream));
	open_model(&m, argv[1], argv[2]);
	train(&m);
	if (srt_engine_hash(m.engine, hash, stream) == SRT_ERR_UNSUPPORTED)
		CHECK_SKIP("built without libxxhash");
	if (rank == 0) {
		printf("hash: numerics %d exact, xxh3-128 ", srt_numerics_version());
		for (size_t i = 0; i < sizeof(hash); i++)
			printf("%02x", hash[i]);
		putchar('\n');
	}
	close_model(&m);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
