/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory plan of a model, a preset of a GPT or one of Hugging Face: declares it on an engine of
 * one rank, asks the engine for the plan of the first and the last rank of the job, and prints it,
 * or its modules. Nothing is allocated or run.
 */
#include "tools/common.h"
#include "tools/info/info.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <shardrt/shardrt.h>

#include <shardrt/models/families.h>
#include "models/try.h"
#include "tools/lora.h"
#include "tools/model_folder.h"
#include "tools/precision.h"

static void print_row(const char *role, size_t first, size_t last, int same)
{
	char a[32], b[32];

	printf("    %-36s %12s", role, tool_bytes((double)first, a));
	if (!same)
		printf(" %12s", tool_bytes((double)last, b));
	printf("\n");
}

/* The sizes: members before the padded nslots, which is equal on all ranks. */
static int same_sizes(const srt_plan_t *first, const srt_plan_t *last)
{
	return memcmp(first, last, offsetof(srt_plan_t, nslots)) == 0;
}

/* Rank 0 has the largest shards and the last rank the smallest; both are shown if they differ. */
static void print_plan(const srt_plan_t *first, const srt_plan_t *last, int world_size)
{
	int same = same_sizes(first, last);
	char last_rank[32] = "";

	if (!same)
		snprintf(last_rank, sizeof last_rank, "rank %d", world_size - 1);
	printf("    %-36s %12s %12s\n", "", same ? "every rank" : "rank 0", last_rank);
	print_row("parameter shards", first->param_shards, last->param_shards, same);
	print_row("gradient shards", first->grad_shards, last->grad_shards, same);
	print_row("optimizer state", first->optimizer_state, last->optimizer_state, same);
	print_row("unsharded parameters", first->unsharded, last->unsharded, same);
	print_row("unsharded gradients", first->unsharded_grads, last->unsharded_grads, same);
	print_row("staging and tables", first->staging, last->staging, same);
	print_row("total of the engine", first->total, last->total, same);
	if (first->host_total > 0) {
		print_row("on the host: parameter shards", first->host_params, last->host_params,
			  same);
		print_row("  gradients", first->host_grads, last->host_grads, same);
		print_row("  optimizer state", first->host_state, last->host_state, same);
		print_row("  tables", first->host_staging, last->host_staging, same);
		print_row("  total", first->host_total, last->host_total, same);
	}
	print_row("mapped from other ranks", first->peer_mapped, last->peer_mapped, same);
	printf("    slots for unsharded units: %d\n", first->nslots);
}

/* An eager start: whole tensors are made on each rank, in host or device memory, and cut. */
static void print_start(const srt_decoder_config_t *config, srt_dtype_t stored)
{
	const double nbytes = (double)srt_decoder_nparams(config, 0) * srt_dtype_bits(stored) / 8;
	char text[32];

	printf("    initial values are made in the shards; an eager start would first make %s "
	       "(%.0f bytes)\n    on each rank, in host or device memory\n",
	       tool_bytes(nbytes, text), nbytes);
}

/* The memory that shardrt-train needs in addition, for micro-batches of some sizes, on this device
 * and in its numerics mode; exact for rows of one document, as --text and --tokens have them. */
static srt_status_t print_compute(srt_context_t *context, srt_decoder_t *decoder,
				  const info_plan_t *what, int64_t context_length,
				  const srt_plan_t *first, const srt_plan_t *last)
{
	const int same = same_sizes(first, last);
	const int ranks = what->sequence_parallel ? tool_mesh_tensor_ranks(&what->mesh) : 1;

	for (int64_t sequences = 1; sequences <= 16; sequences *= 4) {
		size_t nbytes, scratch, tables;

		if (sequences * context_length % ranks != 0)
			continue; /* the ranks cannot share its rows */
		SRT_TRY(srt_decoder_memory(decoder, srt_context_device(context), sequences,
					   context_length, &nbytes, &scratch));
		tables = srt_decoder_tables_nbytes(decoder);
		printf("    with micro-batches of %d sequence%s\n", (int)sequences,
		       sequences == 1 ? "" : "s");
		print_row("  activations", nbytes, nbytes, same);
		print_row("  scratch of products and attention", scratch, scratch, same);
		if (tables > 0)
			print_row("  angles of positions", tables, tables, same);
		print_row("  total", first->total + nbytes + scratch + tables,
			  last->total + nbytes + scratch + tables, same);
	}
	return SRT_OK;
}

static const char *get_name(const info_plan_t *what)
{
	return what->model != NULL ? what->model : what->preset;
}

/* Modules, units and what tensor parallelism cuts; data-parallel ranks share rows. */
static srt_status_t print_tree(const srt_engine_t *engine, const info_plan_t *what)
{
	char strategy[16];

	printf("tree: %s, %s on %d rank%s", get_name(what),
	       tool_word(TOOL_STRATEGIES, what->strategy, strategy), what->world_size,
	       what->world_size == 1 ? "" : "s");
	if (what->strategy == SRT_STRATEGY_DDP)
		printf(": each rank has all rows of a parameter or of its part\n");
	else
		printf(": what is sharded is cut along dimension 0 in chunks of "
		       "ceil(rows / ranks)\n");
	return srt_module_print(srt_engine_module(engine), stdout);
}

static srt_status_t plan_model(srt_context_t *context, const info_plan_t *what,
			       const srt_decoder_config_t *config, int64_t context_length,
			       const tool_precision_t *precision, const srt_lora_t *lora)
{
	static const srt_dtype_t base_dtypes[] = { SRT_F32, SRT_BF16, SRT_U8 };
	srt_engine_options_t options = { .size = sizeof(options),
					 .strategy = (srt_strategy_t)what->strategy,
					 .precision = &precision->policy,
					 .offload = what->offload,
					 .average = SRT_AVERAGE_SUM,
					 .norm_p = 2,
					 .max_norm = 1.0f,
					 .microbatches = what->accumulate,
					 .prefetch = 1 };
	srt_optim_options_t optim = SRT_OPTIM_OPTIONS_INIT;
	srt_mesh_t *mesh;
	srt_model_options_t model = { .recompute = what->recompute,
				      .sequence_parallel = what->sequence_parallel,
				      .matrix_decay = 0.1f,
				      .dtype = precision->stored,
				      .reshard = what->reshard,
				      .flat = (srt_flat_t)what->flat,
				      .lora = lora };
	srt_engine_t *engine = NULL;
	srt_decoder_t *decoder = NULL;
	srt_plan_t first = SRT_PLAN_INIT, last = SRT_PLAN_INIT;
	char strategy[16], dtype[16];
	srt_status_t status;

	SRT_TRY(tool_mesh_create(&what->mesh, NULL, &mesh));
	options.mesh = mesh;
	options.optim = &optim;
	optim.state_bits = what->optimizer == 1 ? 8 : 0;
	model.mesh = mesh;
	if (what->base_dtype >= 0)
		model.base_dtype = base_dtypes[what->base_dtype];
	status = srt_engine_create(context, &options, &engine);
	if (status == SRT_OK)
		status = srt_decoder_declare(engine, config, &model, &decoder);
	if (status == SRT_OK)
		status = srt_engine_plan(engine, 0, what->world_size, &first);
	if (status == SRT_OK)
		status = srt_engine_plan(engine, what->world_size - 1, what->world_size, &last);
	if (status == SRT_OK && what->plan) {
		printf("plan: %s, %lld parameters, %s%s, %s on %d rank%s, AdamW%s, clipping, %d "
		       "micro-batch%s\n",
		       get_name(what), (long long)srt_decoder_nparams(config, 0),
		       what->pure ? "pure " : "", tool_word(TOOL_DTYPES, what->dtype, dtype),
		       tool_word(TOOL_STRATEGIES, what->strategy, strategy), what->world_size,
		       what->world_size == 1 ? "" : "s",
		       what->optimizer == 1 ? " with states in 8 bits" : "", what->accumulate,
		       what->accumulate == 1 ? "" : "es");
		if (lora != NULL)
			printf("    adapters with r %lld: %lld parameters, which are trained\n",
			       (long long)lora->r, (long long)srt_decoder_lora_nparams(decoder));
		print_plan(&first, &last, what->world_size);
		print_start(config, precision->stored);
		status = print_compute(context, decoder, what, context_length, &first, &last);
	}
	if (status == SRT_OK && what->tree)
		status = print_tree(engine, what);
	srt_decoder_destroy(decoder);
	srt_engine_destroy(engine);
	srt_mesh_destroy(mesh);
	return status;
}

static int refuse_sizes(void)
{
	tool_error("%s", srt_error_last());
	return -1;
}

/* The sizes of the model, and the tokens of a sequence. @return 0, or -1 after an error message. */
static int find_sizes(const info_plan_t *what, srt_decoder_config_t *config, int64_t *length)
{
	char path[TOOL_CONFIG_NBYTES];
	const srt_family_t *family;
	const char *name;

	if (what->model != NULL) {
		tool_find_config(what->model, path);
		if (srt_family_read_config(path, &family, config) != SRT_OK)
			return refuse_sizes();
		*length = tool_find_length(what->context, config->context);
		if (*length <= config->context)
			return 0;
		tool_error("--context %lld: the model in %s has %lld positions",
			   (long long)what->context, what->model, (long long)config->context);
		return -1;
	}
	if (srt_decoder_preset(what->preset, config) != SRT_OK) {
		tool_error("unknown preset \"%s\"; the presets are:", what->preset);
		for (size_t i = 0; (name = srt_decoder_preset_name(i)) != NULL; i++)
			fprintf(stderr, "    %s\n", name);
		return -1;
	}
	config->context = what->context ? what->context : config->context;
	*length = config->context;
	return 0;
}

/* The adapters. @return 0, or -1 after an error message. */
static int find_adapters(const info_plan_t *what, const srt_decoder_config_t *config,
			 tool_lora_t *lora)
{
	tool_why_t why = { "", 0 };

	if (what->base_dtype >= 0 && what->lora == NULL)
		tool_why_usage(&why, "--base-dtype needs --lora");
	else if (tool_lora_open(lora, what->lora, NULL, &why) == 0)
		tool_lora_check(lora, config, &why);
	if (!why.text[0])
		return 0;
	tool_error("%s", why.text);
	return -1;
}

static int run_plan(const info_plan_t *what, const srt_decoder_config_t *config, int64_t length,
		    const tool_precision_t *precision, const srt_lora_t *lora)
{
	/* One rank, also if a launcher started this program. */
	srt_context_options_t options = { .size = sizeof(options), .bootstrap = "" };
	srt_context_t *context;
	srt_status_t status;

	if (srt_context_create(&options, &context) != SRT_OK) {
		tool_error("%s", srt_error_last());
		return 1;
	}
	status = plan_model(context, what, config, length, precision, lora);
	if (status != SRT_OK)
		tool_error("%s", srt_error_last());
	srt_context_destroy(context);
	return status != SRT_OK;
}

int info_plan(const info_plan_t *what)
{
	srt_decoder_config_t config;
	tool_precision_t precision;
	tool_lora_t lora = { 0 };
	int64_t length;
	int code;
	char why[600];

	if (tool_precision((tool_dtype_t)what->dtype, what->pure, (tool_reduce_t)what->reduce_dtype,
			   &precision, why, sizeof(why)) != 0) {
		tool_error("%s", why);
		return TOOL_EXIT_USAGE;
	}
	if (find_sizes(what, &config, &length) != 0)
		return TOOL_EXIT_USAGE;
	config.tensor_parts = what->tensor_parts;
	if (srt_decoder_check(&config, tool_mesh_tensor_ranks(&what->mesh)) != SRT_OK) {
		tool_error("%s", srt_error_last());
		return TOOL_EXIT_USAGE;
	}
	if (info_backend_is_unusable(why, sizeof(why))) {
		tool_error("%s", why);
		return 1;
	}
	code = find_adapters(what, &config, &lora) != 0 ?
		       TOOL_EXIT_USAGE :
		       run_plan(what, &config, length, &precision, lora.lora);
	tool_lora_close(&lora);
	return code;
}
