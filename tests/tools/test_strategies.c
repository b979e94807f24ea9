/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of a GPT under each strategy on 4 ranks, with AdamW and clipping: the formulas of
 * docs/strategies.md are the plan, row by row, and the plan is what is allocated and, where device
 * memory is the process's, resident. Prints the table of that page. Run by test_strategies.sh:
 *
 *     test_strategies small|PRESET       on one rank: the plan alone; on 4: allocates, too
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <shardrt/shardrt.h>

#include "device/device.h"
#include <shardrt/models/families.h>
#include "models/presets.h"
#include "runtime/engine/engine.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

enum { RANKS = 4, NSTATES = 2 };

static srt_context_t *context;

/* Ranks by strategy; without a mesh all of them are shards or, with ddp, replicas. */
static const struct layout {
	const char *name;
	srt_strategy_t strategy;
	const char *dims[2]; /* of a mesh of 2 x 2, or NULL */
	int nshards;
} layouts[] = {
	{ "ddp", SRT_STRATEGY_DDP, { NULL }, 1 },
	{ "zero1", SRT_STRATEGY_ZERO1, { NULL }, RANKS },
	{ "zero2", SRT_STRATEGY_ZERO2, { NULL }, RANKS },
	{ "zero3", SRT_STRATEGY_ZERO3, { NULL }, RANKS },
	{ "hybrid, 2 x 2", SRT_STRATEGY_HYBRID, { "replicate", "shard" }, 2 },
	{ "zero3, dp 2 x tp 2", SRT_STRATEGY_ZERO3, { "dp", "tp" }, 2 },
};

/* Bytes of an element that is stored, computed with, summed over ranks. */
static const struct dtypes {
	const char *name; /* in the table; NULL: is not there */
	srt_dtype_t stored;
	srt_dtype_t compute, sum;
	int64_t s, c, r;
} dtypes[] = {
	{ "fp32", SRT_F32, SRT_DTYPE_NONE, SRT_F32, 4, 4, 4 },
	{ "bf16", SRT_F32, SRT_BF16, SRT_F32, 4, 2, 4 },
	{ NULL, SRT_F32, SRT_BF16, SRT_DTYPE_NONE, 4, 2, 2 },
	{ NULL, SRT_F32, SRT_DTYPE_NONE, SRT_BF16, 4, 4, 2 },
	{ "pure bf16", SRT_BF16, SRT_DTYPE_NONE, SRT_DTYPE_NONE, 2, 2, 2 },
	{ NULL, SRT_BF16, SRT_DTYPE_NONE, SRT_F32, 2, 2, 4 },
};

/* What is in host memory. */
static const struct place {
	const char *name;
	srt_offload_t offload;
} places[] = {
	{ "none", { 0 } },
	{ "state", { .state = 1 } },
	{ "all", { .params = 1, .grads = 1, .state = 1 } },
};

/* Elements of this rank's parameters: of all units, of the root, of one block. */
typedef struct sizes {
	int64_t all, root, block;
	int nparams;
} sizes_t;

static sizes_t count_elements(srt_engine_t *engine)
{
	sizes_t sizes = { 0 };
	srt_param_t *param;

	for (size_t i = 0; (param = srt_engine_param_at(engine, i)) != NULL; i++) {
		int64_t shape[SRT_MAX_DIMS], n = 1;
		const int ndim = srt_param_partition(param, shape);

		for (int d = 0; d < ndim; d++)
			n *= shape[d];
		sizes.all += n;
		if (strncmp(srt_param_name(param), "blocks.", 7) != 0)
			sizes.root += n;
		if (strncmp(srt_param_name(param), "blocks.0.", 9) == 0)
			sizes.block += n;
		sizes.nparams++;
	}
	return sizes;
}

/* What `offload` moves to the host of a plan without it. */
static void move_to_host(const struct layout *l, const struct dtypes *d, const sizes_t *n,
			 const srt_offload_t *offload, srt_plan_t *plan)
{
	const int64_t at_once = n->root + 2 * n->block;
	const int64_t largest = (n->root > n->block ? n->root : n->block) / l->nshards;
	const int64_t uploaded = d->c * (offload->params ? at_once : n->all);

	if (!offload->state)
		return;
	plan->host_params = plan->param_shards;
	plan->host_grads = plan->grad_shards;
	plan->host_state = plan->optimizer_state;
	plan->optimizer_state = plan->param_shards = 0;
	if (l->nshards > 1)
		plan->param_shards = (size_t)(uploaded / l->nshards);
	else
		plan->unsharded = (size_t)uploaded;
	if (!offload->grads)
		return;
	plan->grad_shards = 0;
	plan->host_grads += (size_t)(d->r * largest);
	plan->staging = (size_t)((l->strategy == SRT_STRATEGY_HYBRID ? 4 + d->r : d->r) * largest);
	if (l->strategy == SRT_STRATEGY_DDP)
		plan->unsharded_grads = (size_t)((d->c + (d->r != d->c ? d->r : 0)) * at_once);
}

/* The formulas: docs/strategies.md, "Memory". The staging is without tables. */
static srt_plan_t apply_formulas(const struct layout *l, const struct dtypes *d, const sizes_t *n)
{
	const bool keeps = l->strategy == SRT_STRATEGY_ZERO1 || l->strategy == SRT_STRATEGY_ZERO2;
	const bool replicates = l->strategy == SRT_STRATEGY_HYBRID;
	const int64_t owned = n->all / l->nshards, at_once = n->root + 2 * n->block;
	const int64_t largest = (n->root > n->block ? n->root : n->block) / l->nshards;
	const int64_t cast = d->c != d->s ? d->c : 0, sum = d->r != d->c ? d->r : 0;
	int64_t unsharded = d->c * (keeps ? n->all : at_once);
	int64_t grads = (d->c + sum) * at_once, sums = 0;

	CHECK_INT(n->all % l->nshards, 0);
	if (replicates)
		sums += 4 * largest;
	if (d->r != (replicates ? 4 : d->s))
		sums += d->r * largest;
	if (l->strategy == SRT_STRATEGY_ZERO1)
		grads = d->c * n->all + sum * at_once;
	if (l->strategy == SRT_STRATEGY_DDP) {
		unsharded = sums = 0;
		if (d->r == d->s)
			grads = cast * at_once;
	}
	return (srt_plan_t){ .size = sizeof(srt_plan_t),
			     .param_shards = (size_t)((d->s + cast) * owned),
			     .grad_shards = (size_t)(d->s * owned),
			     .optimizer_state = (size_t)(NSTATES * d->s * owned),
			     .unsharded = (size_t)unsharded,
			     .unsharded_grads = (size_t)grads,
			     .staging = (size_t)sums };
}

static void check_plan(const char *name, const srt_plan_t *plan, const srt_plan_t *want,
		       int nparams)
{
	const long long tables = (long long)plan->staging - (long long)want->staging;
	const long failed = check_failed;

	CHECK_INT(plan->param_shards, want->param_shards);
	CHECK_INT(plan->grad_shards, want->grad_shards);
	CHECK_INT(plan->optimizer_state, want->optimizer_state);
	CHECK_INT(plan->buffers, 0);
	CHECK_INT(plan->unsharded, want->unsharded);
	CHECK_INT(plan->unsharded_grads, want->unsharded_grads);
	CHECK_MSG(tables > 0 && tables < 100 * nparams + 1024,
		  "%s: tables of %lld bytes for %d parameters", name, tables, nparams);
	CHECK_INT(plan->total, want->param_shards + want->grad_shards + want->optimizer_state +
				       want->unsharded + want->unsharded_grads + plan->staging);
	CHECK_INT(plan->host_params, want->host_params);
	CHECK_INT(plan->host_grads, want->host_grads);
	CHECK_INT(plan->host_state, want->host_state);
	CHECK_INT(plan->host_total,
		  want->host_params + want->host_grads + want->host_state + plan->host_staging);
	CHECK(plan->host_staging < (size_t)(100 * nparams + 1024));
	if (check_failed > failed)
		fprintf(stderr, "    %s\n", name);
}

static double mib(size_t nbytes)
{
	return (double)nbytes / 1048576.0;
}

static void print_row(const char *name, const char *dtype, const char *offload, const srt_plan_t *p)
{
	static size_t first;

	if (first == 0)
		first = p->total;
	printf("| %s | %s | %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.2f | %zu | %.2f | %zu |\n",
	       name, dtype, offload, mib(p->param_shards), mib(p->grad_shards),
	       mib(p->optimizer_state), mib(p->unsharded), mib(p->unsharded_grads), mib(p->staging),
	       p->total, (double)p->total / (double)first, p->host_total);
}

/* Bytes of this process's memory that are resident and not files; shared ones by share. 0: the
 * system does not tell, or a sanitizer has memory too. */
static long long resident(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	long long kib, sum = 0;
	char line[256];

	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "Pss_Anon: %lld", &kib) == 1 ||
		    sscanf(line, "Pss_Shmem: %lld", &kib) == 1)
			sum += kib * 1024;
	if (file != NULL)
		fclose(file);
#ifdef CHECK_SANITIZED
	sum = 0;
#endif
	return sum;
}

static void barrier(void)
{
	char byte = 0, all[RANKS];

	CHECK_OK_OR_DIE(srt_comm_oob_allgather(srt_context_world(context), &byte, 1, all));
}

static void touch(srt_buffer_t *buffer)
{
	if (buffer != NULL && srt_buffer_nbytes(buffer) > 0)
		memset(srt_buffer_host(buffer), 0, srt_buffer_nbytes(buffer));
}

/* Where device memory is the process's: all of the engine's memory is resident once it is used, and
 * takes no more than the plan, within 1 % and 512 KiB for the heap and parts of pages. */
static void check_resident(const char *name, const srt_engine_t *engine, const srt_plan_t *plan,
			   long long before)
{
	const long long planned = (long long)(plan->total + plan->host_total);
	long long used;

	if (before == 0 || !srt_context_device(context)->caps.host_memory)
		return;
	for (int a = 0; a < SRT_NARENAS; a++)
		touch(engine->storage.arena[a]);
	for (int k = 0; k < SRT_NSLOT_KINDS; k++)
		touch(engine->storage.slot_buffer[k]);
	touch(engine->storage.landing);
	barrier(); /* pages that peers have are counted in part */
	used = resident() - before;
	barrier();
	CHECK_MSG(used >= planned - planned / 100 && used <= planned + planned / 100 + (1 << 19),
		  "%s: %lld bytes are resident, %lld planned", name, used, planned);
}

/* Builds the engine on all ranks. */
static void check_allocated(const char *name, srt_engine_t *engine, const srt_plan_t *plan)
{
	srt_device_t *device = srt_context_device(context), *host;
	const size_t before = srt_device_allocated(device);
	size_t host_before, allocated, host_allocated;
	long long resident_before;

	barrier();
	malloc_trim(0); /* small parts of the plan may lie where freed memory was */
	resident_before = resident();
	CHECK_OK_OR_DIE(srt_context_host(context, &host));
	host_before = srt_device_allocated(host);
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	allocated = srt_device_allocated(device) - before;
	host_allocated = srt_device_allocated(host) - host_before;
	if (host == device)
		CHECK_MSG(allocated == plan->total + plan->host_total,
			  "%s: %zu bytes are allocated, %zu and %zu planned", name, allocated,
			  plan->total, plan->host_total);
	else
		CHECK_MSG(allocated == plan->total && host_allocated == plan->host_total,
			  "%s: %zu and %zu bytes are allocated, %zu and %zu planned", name,
			  allocated, host_allocated, plan->total, plan->host_total);
	check_resident(name, engine, plan, resident_before);
}

static void test_row(const srt_decoder_config_t *config, const struct layout *l,
		     const struct dtypes *d, const struct place *place)
{
	static const int shape[] = { 2, 2 };
	const int world = srt_context_world_size(context), rank = srt_context_rank(context);
	const srt_precision_t precision = { .size = sizeof(precision),
					    .param = d->compute,
					    .reduce = d->sum };
	srt_engine_options_t options = { ENGINE_BASE,
					 .strategy = l->strategy,
					 .precision = &precision,
					 .offload = place->offload,
					 .average = SRT_AVERAGE_SUM,
					 .norm_p = 2,
					 .max_norm = 1.0f,
					 .optim = OPTIM(.kind = SRT_OPTIM_ADAMW, ADAM_BASE) };
	srt_model_options_t model = { .matrix_decay = 0.1f, .dtype = d->stored };
	srt_engine_t *engine;
	srt_plan_t plan = SRT_PLAN_INIT, want = SRT_PLAN_INIT;
	sizes_t sizes;
	srt_decoder_t *decoder;
	char name[128];

	snprintf(name, sizeof(name), "%s, offload %s, bytes stored %d, computed %d, summed %d",
		 l->name, place->name, (int)d->s, (int)d->c, (int)d->r);
	if (l->dims[0] != NULL)
		CHECK_OK_OR_DIE(srt_mesh_create(world > 1 ? srt_context_world(context) : NULL, 2,
						shape, l->dims, &options.mesh));
	model.mesh = options.mesh;
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_decoder_declare(engine, config, &model, &decoder));
	sizes = count_elements(engine);
	want = apply_formulas(l, d, &sizes);
	move_to_host(l, d, &sizes, &place->offload, &want);
	for (int r = 0; r < RANKS; r++) { /* any rank can plan for any other */
		CHECK_OK_OR_DIE(srt_engine_plan(engine, r, RANKS, &plan));
		check_plan(name, &plan, &want, sizes.nparams);
	}
	if (world > 1)
		check_allocated(name, engine, &plan);
	if (rank == 0 && d->name != NULL)
		print_row(l->name, d->name, place->name, &plan);
	srt_decoder_destroy(decoder);
	srt_engine_destroy(engine);
	srt_mesh_destroy(options.mesh);
}

int main(int argc, char **argv)
{
	static const srt_decoder_config_t small = { SRT_DECODER_GPT, .layers = 3,   .heads = 4,
						    .width = 128,    .context = 64, .vocab = 256,
						    .tied = 1 };
	srt_decoder_config_t config = small;

	CHECK_OR_DIE(argc == 2);
	/* What is freed is not resident any more, and pages are small. */
	mallopt(M_MMAP_THRESHOLD, 1 << 16);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	if (strcmp(argv[1], "small") != 0)
		CHECK_OK_OR_DIE(srt_decoder_preset(argv[1], &config));
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK(srt_context_world_size(context) == 1 || srt_context_world_size(context) == RANKS);
	for (size_t d = 0; d < SRT_ARRAY_LEN(dtypes); d++)
		for (size_t p = 0; p < SRT_ARRAY_LEN(places); p++)
			for (size_t l = 0; l < SRT_ARRAY_LEN(layouts); l++)
				test_row(&config, &layouts[l], &dtypes[d], &places[p]);
	srt_context_destroy(context);
	return check_done();
}
