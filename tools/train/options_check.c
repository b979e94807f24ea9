/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of options of shardrt-train that involve several; see options.h. */
#include "models/data/chat.h"
#include "tools/mesh.h"
#include "tools/train/options_internal.h"

static int check_precision(const train_options_t *o, char *why, size_t nwhy)
{
	tool_precision_t precision;

	if (tool_precision((tool_dtype_t)o->dtype, (int)o->pure, (tool_reduce_t)o->reduce_dtype,
			   &precision, why, nwhy) != 0)
		return -1;
	if (o->init_scale > 0 && o->scaler == TRAIN_SCALER_NONE) {
		snprintf(why, nwhy, "--init-scale needs --scaler");
		return -1;
	}
	if (o->generate > 0 || o->steps == 0 || o->dtype != TOOL_FP16)
		return 0;
	if (o->scaler == TRAIN_SCALER_NONE) {
		snprintf(why, nwhy,
			 "--dtype fp16 needs --scaler: most gradients are below 6e-8, the least "
			 "fp16 number, and would be 0");
		return -1;
	}
	if (o->pure && o->scaler == TRAIN_SCALER_PLAIN) {
		snprintf(why, nwhy,
			 "--pure --dtype fp16 needs --scaler sharded: GradScaler refuses fp16 "
			 "gradients");
		return -1;
	}
	return 0;
}

/* --accumulate-mode tree and --micro-batches go together. */
static int check_tree(const train_options_t *o, char *why, size_t nwhy)
{
	int tree = o->accumulate_mode == SRT_ACCUMULATE_TREE;
	int64_t n = o->micro_batches;
	tool_precision_t precision;
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;

	if (tree != (n > 0)) {
		snprintf(why, nwhy, "%s",
			 tree ? "--accumulate-mode tree needs --micro-batches N, those of a step "
				"over all ranks" :
				"--micro-batches is for --accumulate-mode tree; otherwise "
				"--accumulate has the micro-batches of each rank");
		return -1;
	}
	if (!tree)
		return 0;
	if ((n & (n - 1)) != 0 || o->batch % n != 0) {
		snprintf(why, nwhy,
			 "--micro-batches %lld must be a power of two that divides --batch %lld",
			 (long long)n, (long long)o->batch);
		return -1;
	}
	if (o->accumulate != 1) {
		snprintf(why, nwhy,
			 "--accumulate cannot be given with --accumulate-mode tree: "
			 "--micro-batches and the number of ranks decide it");
		return -1;
	}
	precision = train_options_precision(o);
	if (srt_precision_resolve(&precision.policy, precision.stored, &types) != SRT_OK ||
	    types.reduce != SRT_F32) {
		snprintf(why, nwhy,
			 "--accumulate-mode tree needs gradients that are reduced in "
			 "fp32: --reduce-dtype fp32");
		return -1;
	}
	return 0;
}

/* What Muon does not go together with. */
static int check_muon(const train_options_t *o, char *why, size_t nwhy)
{
	tool_mesh_t mesh;

	if (o->optimizer != TRAIN_MUON) {
		if (o->muon_adjust == SRT_MUON_ORIGINAL)
			return 0;
		snprintf(why, nwhy, "--muon-adjust is for --optimizer muon");
		return -1;
	}
	if (o->pure) {
		snprintf(why, nwhy,
			 "--optimizer muon needs parameters in fp32: leave out --pure; --dtype "
			 "bf16 alone computes with copies in bf16");
		return -1;
	}
	if (o->lora != NULL || o->adapter != NULL) {
		snprintf(
			why, nwhy,
			"--optimizer muon steps the matrices of blocks, which --lora and --adapter "
			"freeze: choose adamw");
		return -1;
	}
	if (tool_mesh_parse(o->mesh, &mesh, why, nwhy) != 0)
		return -1;
	if (tool_mesh_tensor_ranks(&mesh) > 1) {
		snprintf(why, nwhy,
			 "--optimizer muon is not for tensor parallelism: --mesh without tp");
		return -1;
	}
	return 0;
}

static int check_mesh(const train_options_t *o, char *why, size_t nwhy)
{
	tool_mesh_t mesh;

	if (tool_mesh_parse(o->mesh, &mesh, why, nwhy) != 0)
		return -1;
	if (o->sequence_parallel && tool_mesh_tensor_ranks(&mesh) == 1) {
		snprintf(why, nwhy, "--sequence-parallel needs --mesh with tp");
		return -1;
	}
	if (o->tensor_parts > 1 && o->optimizer == TRAIN_ADAMW8BIT) {
		snprintf(why, nwhy,
			 "--optimizer adamw8bit is not for --tensor-parts: which states are in 8 "
			 "bits depends on tp; choose adamw");
		return -1;
	}
	return tool_mesh_check(&mesh, (srt_strategy_t)o->strategy, why, nwhy);
}

static int check_reshard(const train_options_t *o, char *why, size_t nwhy)
{
	int reshard;

	return tool_reshard(o->reshard, &reshard, why, nwhy);
}

static int check_schedule(const train_options_t *o, char *why, size_t nwhy)
{
	if (o->min_lr > o->lr) {
		snprintf(why, nwhy, "--min-lr %g is above --lr %g", o->min_lr, o->lr);
		return -1;
	}
	if (o->warmup > o->steps && o->steps > 0) {
		snprintf(why, nwhy, "--warmup %lld is more than --steps %lld", (long long)o->warmup,
			 (long long)o->steps);
		return -1;
	}
	if (o->decay_steps > 0 && o->schedule != SRT_SCHEDULE_STABLE) {
		snprintf(why, nwhy, "--decay-steps is for --schedule stable");
		return -1;
	}
	if (o->decay_steps > o->steps - o->warmup && o->steps > 0) {
		snprintf(why, nwhy,
			 "--decay-steps %lld and --warmup %lld are more than --steps %lld",
			 (long long)o->decay_steps, (long long)o->warmup, (long long)o->steps);
		return -1;
	}
	return 0;
}

static int check_adapters(const train_options_t *o, char *why, size_t nwhy)
{
	const int has_adapters = o->lora != NULL || o->adapter != NULL;

	if (o->lora != NULL && o->adapter != NULL) {
		snprintf(why, nwhy,
			 "--lora and --adapter are both given: the folder of --adapter has the "
			 "sizes of its adapters");
		return -1;
	}
	if (o->base_dtype >= 0 && !has_adapters) {
		snprintf(why, nwhy,
			 "--base-dtype needs --lora or --adapter: without adapters all "
			 "parameters are trained, in the dtype that --dtype and --pure give");
		return -1;
	}
	if (has_adapters && (o->save_dtype >= 0 || o->max_shard_size > 0)) {
		snprintf(why, nwhy,
			 "--save-dtype and --max-shard-size are for the weights of a model, but "
			 "--save writes adapters here; shardrt-ckpt merge-lora writes the model");
		return -1;
	}
	return 0;
}

static int is_missing(const char *path)
{
	return path == NULL || !*path;
}

/* --text, --tokens and --sft, and what is for the last. */
static int check_data(const train_options_t *o, char *why, size_t nwhy)
{
	if (o->text != NULL && o->tokens != NULL) {
		snprintf(why, nwhy, "--text and --tokens are both given: one has the data");
		return -1;
	}
	if (o->sft != NULL && (o->text != NULL || o->tokens != NULL)) {
		snprintf(why, nwhy, "--sft and --%s are both given: one has the data",
			 o->text != NULL ? "text" : "tokens");
		return -1;
	}
	if (o->generate == 0 && is_missing(o->text) && is_missing(o->tokens) &&
	    is_missing(o->sft)) {
		snprintf(
			why, nwhy,
			"there is no text to train on: --text FILE, --tokens FILE or --sft FILE is "
			"missing");
		return -1;
	}
	if (o->sft == NULL && (o->template != NULL || o->sft_show > 0 || o->sft_skip_bad)) {
		snprintf(why, nwhy, "--template, --sft-show and --sft-skip-bad need --sft FILE");
		return -1;
	}
	if (o->sft_show > 0 && o->generate > 0) {
		snprintf(why, nwhy, "--sft-show prints examples: --generate is not for it");
		return -1;
	}
	if (o->template != NULL && srt_chat_find(o->template) == NULL) {
		snprintf(why, nwhy,
			 "--template %s: there is no such template; possible are %s. Jinja "
			 "templates are not run",
			 o->template, srt_chat_names());
		return -1;
	}
	return 0;
}

int train_options_check(const train_options_t *o, char *why, size_t nwhy)
{
	srt_offload_t offload;

	if (o->help || o->version)
		return 0;
	if (o->generate > 0 && o->init == NULL) {
		snprintf(why, nwhy, "--generate needs --init FILE, a saved model");
		return -1;
	}
	if (check_data(o, why, nwhy) != 0)
		return -1;
	if (o->eval && (o->val != NULL || o->save != NULL || o->checkpoint != NULL ||
			o->log != NULL || o->generate > 0)) {
		snprintf(why, nwhy,
			 "--eval does not train, and evaluates all of --text or --tokens: --val, "
			 "--save, --checkpoint, --log and --generate are not for it");
		return -1;
	}
	if (o->val != NULL && !*o->val) {
		snprintf(why, nwhy, "--val needs the name of a file");
		return -1;
	}
	if (o->tokens != NULL && o->sample > 0) {
		snprintf(why, nwhy,
			 "--sample prints bytes, but the tokens of --tokens are not bytes");
		return -1;
	}
	if ((o->generate > 0 || o->sample > 0) && !*o->prompt) {
		snprintf(why, nwhy, "--prompt must not be empty");
		return -1;
	}
	if (o->save_every > 0 && o->save == NULL && o->checkpoint == NULL) {
		snprintf(why, nwhy, "--save-every needs --save FILE or --checkpoint DIR");
		return -1;
	}
	if (o->init_random && o->init == NULL) {
		snprintf(why, nwhy, "--init-random needs --init FOLDER, which has a config.json");
		return -1;
	}
	if ((o->max_shard_size > 0 || o->save_dtype >= 0) && o->save == NULL) {
		snprintf(why, nwhy, "--max-shard-size and --save-dtype need --save FOLDER");
		return -1;
	}
	if (o->resume && o->checkpoint == NULL) {
		snprintf(why, nwhy, "--resume needs --checkpoint DIR");
		return -1;
	}
	if (o->checkpoint != NULL && (!*o->checkpoint || o->generate > 0)) {
		snprintf(why, nwhy, "--checkpoint needs the name of a folder, and no --generate");
		return -1;
	}
	if (check_schedule(o, why, nwhy) != 0 || check_precision(o, why, nwhy) != 0 ||
	    check_mesh(o, why, nwhy) != 0 || tool_offload(o->offload, &offload, why, nwhy) != 0 ||
	    check_reshard(o, why, nwhy) != 0 || check_adapters(o, why, nwhy) != 0 ||
	    check_muon(o, why, nwhy) != 0)
		return -1;
	return check_tree(o, why, nwhy);
}
