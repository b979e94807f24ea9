/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a trainer from the options: sizes, text, engine, tapes, memory; frees it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/try.h"
#include "tools/common.h"
#include "models/data/sft.h"
#include "models/data/text.h"
#include "tools/mesh.h"
#include "tools/peak.h"
#include "tools/train/data.h"

/* ---- checking --------------------------------------------------------------------------- */

/* The micro-batches of all ranks, shared out. */
static int prepare_tree(trainer_t *t)
{
	int64_t n = t->opt.micro_batches, world = t->ndata;

	if ((world & (world - 1)) != 0 || world > n)
		return tool_why_usage(&t->why,
				      "--accumulate-mode tree with --micro-batches %" PRId64
				      " runs on 1, 2, 4 ... %" PRId64
				      " ranks, not on %d: its bits are "
				      "the same for these numbers only",
				      n, n, t->ndata);
	t->opt.accumulate = n / world;
	return 0;
}

/* A mesh has all ranks; its tensor-parallel ranks have the same data. */
static int prepare_ranks(trainer_t *t)
{
	tool_mesh_t mesh;

	tool_mesh_parse(t->opt.mesh, &mesh, NULL, 0); /* checked with the options */
	if (mesh.ndim > 0 && mesh.nranks != t->world)
		return tool_why_usage(&t->why, "--mesh %s has %d ranks, but the job has %d",
				      t->opt.mesh, mesh.nranks, t->world);
	t->tensor_ranks = tool_mesh_tensor_ranks(&mesh);
	t->ndata = t->world / t->tensor_ranks;
	t->data_rank = mesh.ndim > 0 ? tool_mesh_data_rank(&mesh, t->rank) : t->rank;
	return 0;
}

static int need_feature(trainer_t *t, const char *option, srt_feature_t feature)
{
	srt_feature_info_t info = SRT_FEATURE_INFO_INIT;

	if (srt_feature_get_info(feature, &info) == SRT_OK && info.state != SRT_FEATURE_MISSING)
		return 0;
	return tool_why_usage(&t->why, "%s needs %s: this libshardrt was %s", option, info.packages,
			      info.why_missing);
}

int trainer_prepare(trainer_t *t)
{
	const train_options_t *o = &t->opt;
	int64_t parts;
	int error;

	if (o->sft_show > 0) /* nothing is written */
		t->opt.save = t->opt.checkpoint = t->opt.log = NULL;
	if (prepare_ranks(t) != 0 || (o->micro_batches > 0 && prepare_tree(t) != 0))
		return -1;
	parts = (int64_t)t->ndata * o->accumulate;
	if ((o->hash && need_feature(t, "--hash", SRT_FEATURE_HASH) != 0) ||
	    (o->checkpoint != NULL &&
	     need_feature(t, "--checkpoint", SRT_FEATURE_CHECKPOINTS) != 0) ||
	    trainer_find_sizes(t) != 0 ||
	    (o->save != NULL && t->rank == 0 && trainer_try_save(t, &error) != 0))
		return -1;
	if ((o->generate > 0 || o->sample > 0) && trainer_prepare_prompt(t) != 0)
		return -1;
	if (o->generate > 0)
		return 0;
	if (o->batch % parts != 0)
		return tool_why_usage(&t->why,
				      "--batch %" PRId64
				      " cannot be divided among %d ranks x %" PRId64
				      " micro-batches; it must be a multiple of %" PRId64,
				      o->batch, t->ndata, o->accumulate, parts);
	t->micro = o->batch / parts;
	return trainer_open_data(t);
}

/* ---- building ----------------------------------------------------------------------------- */

static srt_status_t create_mesh(trainer_t *t)
{
	tool_mesh_t mesh;

	tool_mesh_parse(t->opt.mesh, &mesh, NULL, 0); /* checked with the options */
	return tool_mesh_create(&mesh, t->comm, &t->mesh);
}

static srt_status_t declare_engine(trainer_t *t)
{
	const tool_precision_t precision = train_options_precision(&t->opt);
	srt_model_options_t model = { .recompute = (int)t->opt.recompute,
				      .sequence_parallel = (int)t->opt.sequence_parallel,
				      .matrix_decay = (float)t->opt.weight_decay,
				      .dtype = precision.stored,
				      .flat = (srt_flat_t)t->opt.flat };
	srt_engine_options_t options;
	srt_optim_options_t optim;

	static const srt_dtype_t base_dtypes[] = { SRT_F32, SRT_BF16, SRT_U8 };

	model.lora = t->lora.lora;
	if (t->opt.base_dtype >= 0)
		model.base_dtype = base_dtypes[t->opt.base_dtype];
	if (t->opt.decay == TRAIN_DECAY_ALL)
		model.vector_decay = model.matrix_decay;
	tool_reshard(t->opt.reshard, &model.reshard, NULL, 0); /* checked with the options */
	train_options_engine(&t->opt, &precision.policy, &optim, &options);
	SRT_TRY(create_mesh(t));
	options.mesh = t->mesh;
	model.mesh = t->mesh;
	if (t->opt.generate > 0 || t->opt.eval)
		optim.kind = SRT_OPTIM_NONE; /* has no state */
	SRT_TRY(srt_engine_create(t->context, &options, &t->engine));
	if (t->opt.optimizer == TRAIN_MUON && optim.kind != SRT_OPTIM_NONE) {
		const srt_optim_options_t muon = train_options_muon(&t->opt, &optim);

		SRT_TRY(srt_engine_group_create(t->engine, &muon, &model.linear_group));
	}
	return srt_decoder_declare(t->engine, &t->config, &model, &t->decoder);
}

static srt_status_t create_scaler(trainer_t *t)
{
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;

	options.rule =
		t->opt.scaler == TRAIN_SCALER_SHARDED ? SRT_SCALER_SHARDED : SRT_SCALER_PLAIN;
	if (t->opt.init_scale > 0)
		options.init_scale = (float)t->opt.init_scale;
	return srt_scaler_create(t->context, &options, &t->scaler);
}

static void raise_maximum(size_t *most, size_t nbytes)
{
	*most = nbytes > *most ? nbytes : *most;
}

static srt_status_t build_tape(trainer_t *t, srt_tape_mode_t mode, srt_tape_t **tape,
			       srt_decoder_io_t *io, size_t *nbytes)
{
	const srt_decoder_pass_t pass = {
		.batch = t->micro, .context = t->length, .documents = t->data->documents, .loss = 1
	};

	SRT_TRY(srt_tape_create(t->device, mode, tape));
	SRT_TRY(srt_decoder_record(t->decoder, *tape, &pass, io));
	raise_maximum(nbytes, srt_tape_nbytes(*tape));
	raise_maximum(&t->scratch_nbytes, srt_tape_scratch_nbytes(*tape));
	return SRT_OK;
}

static srt_status_t build_tapes(trainer_t *t, size_t *nbytes)
{
	if (t->opt.generate == 0 && !t->opt.eval)
		SRT_TRY(build_tape(t, SRT_TAPE_TRAINING, &t->train_tape, &t->train_io, nbytes));
	if (t->opt.generate == 0)
		SRT_TRY(build_tape(t, SRT_TAPE_FORWARD, &t->eval_tape, &t->eval_io, nbytes));
	if (t->opt.generate > 0 || t->opt.sample > 0) {
		SRT_TRY(trainer_create_generator(t));
		raise_maximum(nbytes, srt_generator_arena_nbytes(t->generator));
		raise_maximum(&t->scratch_nbytes, srt_generator_scratch_nbytes(t->generator));
	}
	return SRT_OK;
}

/* Bytes of the losses of all tokens of a step and of a validation, and of the results. */
typedef struct loss_nbytes {
	size_t step, eval, results, eval_total;
} loss_nbytes_t;

int64_t trainer_eval_windows(const trainer_t *t)
{
	const int64_t windows = t->data->count_windows(t);
	const int64_t limit = t->opt.eval_batches * t->opt.batch;

	return t->opt.eval_batches > 0 && limit < windows ? limit : windows;
}

static loss_nbytes_t compute_loss_nbytes(const trainer_t *t)
{
	const size_t micro = (size_t)(t->micro * t->length);
	const int64_t all = trainer_eval_windows(t), windows = all > 0 ? all : 1;

	return (loss_nbytes_t){
		.step = micro * (size_t)t->opt.accumulate * sizeof(float),
		.eval = (size_t)((windows + t->ndata - 1) / t->ndata * t->length) * sizeof(float),
		.results = sizeof(train_seen_t),
		.eval_total = sizeof(float),
	};
}

static srt_status_t build_buffers(trainer_t *t)
{
	const loss_nbytes_t nbytes = compute_loss_nbytes(t);
	const size_t ntokens = (size_t)(t->opt.accumulate * t->micro * t->length);
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;

	SRT_TRY(srt_buffer_create(t->device, SRT_MEM_DEVICE, nbytes.step, "losses", &t->losses));
	SRT_TRY(srt_buffer_create(t->device, SRT_MEM_DEVICE, nbytes.eval, "validation losses",
				  &t->eval_losses));
	SRT_TRY(srt_buffer_create(t->device, SRT_MEM_DEVICE, nbytes.results, "results of steps",
				  &t->results));
	SRT_TRY(srt_buffer_create(t->device, SRT_MEM_DEVICE, nbytes.eval_total,
				  "sum of validation losses", &t->eval_total));
	SRT_TRY(srt_buffer_create(t->device, SRT_MEM_PINNED, 2 * sizeof(train_seen_t),
				  "results on the host", &t->seen));
	for (int i = 0; i < 2; i++)
		SRT_TRY(srt_event_create(t->device, &t->arrived[i]));
	SRT_TRY(srt_device_get_info(t->device, &info));
	t->overlaps = info.async_streams;
	t->ids = calloc(ntokens, sizeof(*t->ids));
	t->targets = calloc(ntokens, sizeof(*t->targets));
	if (t->data->documents)
		t->positions = calloc(ntokens, sizeof(*t->positions));
	return t->ids != NULL && t->targets != NULL &&
			       (t->positions != NULL || !t->data->documents) ?
		       SRT_OK :
		       SRT_ERR_OUT_OF_MEMORY;
}

srt_status_t trainer_build(trainer_t *t)
{
	loss_nbytes_t losses = { 0 };
	size_t nbytes = 0;

	SRT_TRY(srt_stream_create(t->device, 0, "compute", &t->stream));
	SRT_TRY(declare_engine(t));
	/* Before the engine is built, so that it can check that there is memory for everything. A
	 * generator has allocated its own. */
	SRT_TRY(build_tapes(t, &nbytes));
	if (t->eval_tape != NULL)
		losses = compute_loss_nbytes(t);
	SRT_TRY(srt_engine_plan_extra(t->engine,
				      nbytes + losses.step + losses.eval + losses.results +
					      losses.eval_total +
					      srt_decoder_tables_nbytes(t->decoder),
				      t->scratch_nbytes));
	SRT_TRY(srt_engine_build(t->engine));
	/* Learning rates of 0 are wanted, as they are the user's. */
	for (size_t g = 0; g < srt_optim_group_count(srt_engine_optim(t->engine)); g++) {
		if ((g == 0 ? t->opt.lr : t->opt.muon_lr) == 0)
			SRT_TRY(srt_optim_set_lr(srt_engine_optim(t->engine), g, 0.0f, t->stream));
	}
	SRT_TRY(srt_stream_reserve(t->stream, t->scratch_nbytes));
	SRT_TRY(srt_buffer_create(t->device, srt_decoder_mem_kind(t->decoder), nbytes,
				  "activations", &t->arena));
	if (t->train_tape != NULL)
		SRT_TRY(srt_tape_bind(t->train_tape, t->arena));
	if (t->eval_tape != NULL) {
		SRT_TRY(srt_tape_bind(t->eval_tape, t->arena));
		SRT_TRY(build_buffers(t));
		if (t->opt.scaler != TRAIN_SCALER_NONE)
			SRT_TRY(create_scaler(t));
	}
	return t->generator != NULL ? srt_generator_bind(t->generator, t->arena) : SRT_OK;
}

const char *train_numerics(const srt_context_t *context)
{
	return srt_context_numerics(context) == SRT_NUMERICS_FAST ? "fast" : "exact";
}

void trainer_describe(const trainer_t *t, FILE *out)
{
	const srt_decoder_config_t *c = &t->config;
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;
	srt_plan_t plan = SRT_PLAN_INIT;
	char engine[32], activations[32], scratch[32], strategy[16], dtype[16];

	if (srt_device_get_info(t->device, &info) != SRT_OK ||
	    srt_engine_plan(t->engine, t->rank, 0, &plan) != SRT_OK)
		return;
	fprintf(out,
		"%s of %" PRId64 " layers, %" PRId64 " heads, %" PRId64 " wide, context %" PRId64
		", vocabulary %" PRId64 ": %.2f M parameters\n",
		c->names->root, c->layers, c->heads, c->width, t->length, c->vocab,
		(double)srt_decoder_nparams(c, 0) / 1e6);
	if (t->lora.lora != NULL)
		fprintf(out, "adapters with r %" PRId64 ": %.2f M parameters, which are trained\n",
			t->lora.lora->r, (double)srt_decoder_lora_nparams(t->decoder) / 1e6);
	fprintf(out,
		"%d rank%s (%s, %s%s), %s%s%s, %d thread%s per rank; memory per rank: %s + %s activations + %s "
		"scratch\n",
		t->world, t->world == 1 ? "" : "s",
		tool_word(TOOL_STRATEGIES, t->opt.strategy, strategy), t->opt.pure ? "pure " : "",
		tool_word(TOOL_DTYPES, t->opt.dtype, dtype), info.backend, info.isa[0] ? " " : "",
		info.isa, info.threads, info.threads == 1 ? "" : "s",
		tool_bytes((double)plan.total, engine),
		tool_bytes((double)plan.activations, activations),
		tool_bytes((double)plan.scratch, scratch));
	fprintf(out, "numerics %s: matrix products and attention %s\n", train_numerics(t->context),
		srt_context_numerics(t->context) == SRT_NUMERICS_FAST ?
			"do not have the same bits everywhere (with --numerics exact they do)" :
			"have the same bits everywhere (--numerics fast is faster where it can be)");
	if (c->tensor_parts > 1)
		fprintf(out, "%d tensor parts: the same bits for every tp that divides them\n",
			c->tensor_parts);
}

double trainer_peak(const trainer_t *t)
{
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;

	/* In numerics mode fast, products are of other types, on other units of the processor. */
	if (srt_device_get_info(t->device, &info) != SRT_OK || strcmp(info.backend, "cpu") != 0 ||
	    srt_context_numerics(t->context) != SRT_NUMERICS_EXACT)
		return 0.0;
	return tool_peak(info.isa, info.threads);
}

void trainer_destroy(trainer_t *t)
{
	if (t->writing != NULL) /* after a failure */
		srt_checkpoint_save_end(t->writing);
	if (t->stream != NULL)
		srt_stream_sync(t->stream);
	srt_generator_destroy(t->generator);
	srt_tokenizer_close(t->tokenizer);
	free(t->prompt);
	srt_tape_destroy(t->train_tape);
	srt_tape_destroy(t->eval_tape);
	free(t->ids);
	free(t->targets);
	free(t->positions);
	srt_buffer_destroy(t->results);
	srt_buffer_destroy(t->eval_total);
	srt_buffer_destroy(t->seen);
	for (int i = 0; i < 2; i++)
		srt_event_destroy(t->arrived[i]);
	srt_buffer_destroy(t->eval_losses);
	srt_buffer_destroy(t->losses);
	srt_buffer_destroy(t->arena);
	srt_decoder_destroy(t->decoder);
	srt_scaler_destroy(t->scaler);
	srt_engine_destroy(t->engine);
	srt_mesh_destroy(t->mesh);
	srt_text_destroy(t->text);
	srt_sft_destroy(t->sft);
	srt_sft_destroy(t->sft_val);
	srt_stream_destroy(t->stream);
	srt_context_destroy(t->context);
	tool_model_close(&t->model);
	tool_lora_close(&t->lora);
}
