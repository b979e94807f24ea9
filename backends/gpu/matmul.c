/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The matrix product on GPUs: chooses the shape of the tiles, so that all multiprocessors have
 * work, and whether to cut k. With a cut, each block of SRT_K_MATMUL_KB steps is a separate product
 * with its sums in a plane of scratch; matmul_sums adds the planes by rising block, as the result
 * is defined. Many blocks are computed in spans to bound the scratch; the first plane of a span is
 * the sum of the earlier spans.
 */
#include <string.h>

#include "backends/gpu/gpu.h"
#include "base/base.h"

/* Floats of scratch of a command. Many blocks of k, or heads and queries, fill all
 * multiprocessors. */
#define MIN_SCRATCH ((int64_t)1 << 23)
#define UNIT_SCRATCH ((int64_t)1 << 19) /* for each multiprocessor */
#define MOST_UNITS 160                  /* multiprocessors that count: some are small in OpenCL */
#define MAX_SIZE ((int64_t)1 << 30)     /* of m, n, k: the kernels count in 32 bits */
#define MAX_LD ((int64_t)1 << 25)       /* between rows: 64 bytes of each are less than 2^32 */
#define MAX_GROUPS ((int64_t)1 << 30)

char srt_gpu_scratch[1];

#define TILE_INFO(rows, columns, r, c, ...)                                                        \
	{ "gpu_matmul", "matmul_" #rows "x" #columns, (rows) / (r) * ((columns) / (c)) },
const srt_gpu_kernel_info_t srt_gpu_kernels[SRT_GPU_KERNEL_COUNT] = {
	SRT_GPU_TILES(TILE_INFO)[SRT_GPU_MATMUL_SUMS] = { "gpu_matmul", "matmul_sums",
							  SRT_GPU_SUM_ITEMS },
	[SRT_GPU_WEIGHTS] = { "gpu_attention", "gpu_weights", 0 },
	[SRT_GPU_GRADIENTS] = { "gpu_attention", "gpu_gradients", 0 },
	[SRT_GPU_HEADS] = { "gpu_attention", "gpu_heads", 0 },
};

static const struct {
	int64_t rows, columns, resident; /* work-items of a multiprocessor */
} tiles[] = {
#define TILE_SHAPE(rows, columns, r, c, upright, resident) { rows, columns, resident },
	SRT_GPU_TILES(TILE_SHAPE)
};

static int64_t ceil_div(int64_t n, int64_t by)
{
	return (n + by - 1) / by;
}

srt_binding_t srt_gpu_at(const srt_binding_t *binding, int64_t nbytes)
{
	return (srt_binding_t){ .mem = binding->mem,
				.offset = binding->mem != NULL ? binding->offset + (size_t)nbytes :
								 0 };
}

srt_command_t *srt_gpu_add(srt_gpu_plan_t *plan, int kernel, const srt_binding_t *bindings,
			   int nbindings, const void *args, size_t args_nbytes, int64_t ngroups)
{
	srt_command_t *launch = &plan->launches[plan->nlaunches++];

	*launch = (srt_command_t){
		.kind = SRT_COMMAND_TUNED,
		.kernel = (uint16_t)kernel,
		.dtype = plan->command->dtype,
		.nbindings = (uint16_t)nbindings,
		.args_nbytes = (uint16_t)args_nbytes,
		.ngroups = ngroups,
	};
	memcpy(launch->bindings, bindings, (size_t)nbindings * sizeof(*bindings));
	memcpy(launch->args, args, args_nbytes);
	return launch;
}

int64_t srt_gpu_scratch_floats(const srt_gpu_t *gpu)
{
	return srt_max64(MIN_SCRATCH, srt_min64(gpu->nunits, MOST_UNITS) * UNIT_SCRATCH);
}

/* ---- the choice --------------------------------------------------------------------------- */

/* How a product is done. */
typedef struct choice {
	int tile;
	bool cut;
	int64_t ngroups, cycles;
} choice_t;

/* Multiply-adds that a multiprocessor with nitems work-items makes in a cycle; 128 is the most. It
 * makes fewer because work-items wait, and because a work-item with fewer elements loads more
 * operands for each multiply-add, which does not matter any more above 86. */
static int64_t rate_of(int64_t nitems, int64_t elements)
{
	const int64_t counted = srt_min64(elements, 86);

	return 128 * nitems / (nitems + 80) * 2 * counted / (counted + 64);
}

/* The blocks of k of a launch, at most, if k is cut, and the planes for them. */
typedef struct span {
	int64_t nblocks, nplanes, nlaunches;
	int64_t plane; /* elements */
} span_t;

static span_t find_span(const srt_gpu_t *gpu, const srt_gpu_matmul_t *args)
{
	const int64_t nblocks = ceil_div(args->k, SRT_K_MATMUL_KB);
	const int64_t plane = args->batch * args->m * (ceil_div(args->n, 4) * 4);
	const int64_t most = srt_max64(2, srt_gpu_scratch_floats(gpu) / plane);
	span_t span = { .nblocks = nblocks, .nplanes = nblocks, .nlaunches = 1, .plane = plane };

	if (nblocks > most) { /* one plane has the sum of the earlier spans */
		span.nlaunches = ceil_div(nblocks, most - 1);
		span.nblocks = ceil_div(nblocks, span.nlaunches);
		span.nplanes = span.nblocks + 1;
	}
	return span;
}

/* Waves of as many work-items as a multiprocessor has at a time, and a smaller last one; at most
 * 32 bytes a cycle from memory; a start and an end of each wave, and where C is read the time that
 * work-items wait for it. */
static int64_t cycles_of(const srt_gpu_t *gpu, int tile, int64_t ngroups, int64_t steps,
			 bool reads_c)
{
	const int64_t rows = tiles[tile].rows, columns = tiles[tile].columns;
	const int64_t nitems = srt_gpu_kernels[tile].nitems, elements = rows * columns / nitems;
	const int64_t resident = srt_max64(tiles[tile].resident / nitems, 1);
	const int64_t each = ceil_div(ngroups, gpu->nunits), rest = each % resident;
	int64_t cycles =
		elements * (each - rest) * nitems * steps / rate_of(resident * nitems, elements);

	if (rest)
		cycles += elements * rest * nitems * steps / rate_of(rest * nitems, elements);
	return srt_max64(cycles, each * (rows + columns) * steps / 8) +
	       ceil_div(each, resident) * (1500 + (reads_c ? 320 * elements : 0));
}

static choice_t estimate_cycles(const srt_gpu_t *gpu, const srt_gpu_matmul_t *args, int tile,
				bool cut)
{
	const int64_t ntiles = ceil_div(args->m, tiles[tile].rows) *
			       ceil_div(args->n, tiles[tile].columns) * args->batch;
	const span_t span = find_span(gpu, args);
	choice_t c = { .tile = tile, .cut = cut, .ngroups = ntiles };

	if (!cut) {
		c.cycles = cycles_of(gpu, tile, ntiles, args->k, args->accumulate);
		return c;
	}
	/* Each plane is written and read; each launch has one more for the sum. */
	c.ngroups = ntiles * span.nblocks;
	c.cycles = span.nlaunches * (cycles_of(gpu, tile, c.ngroups, SRT_K_MATMUL_KB, false) +
				     (span.nblocks + 1) * span.plane / (2 * gpu->nunits) + 6000);
	return c;
}

static choice_t choose_tile(const srt_gpu_t *gpu, const srt_gpu_matmul_t *args, bool may_cut)
{
	choice_t best = { .tile = -1 };

	may_cut = may_cut && args->k > SRT_K_MATMUL_KB;
	for (int tile = 0; tile < SRT_GPU_TILE_COUNT; tile++) {
		if (srt_gpu_kernels[tile].nitems > gpu->max_items ||
		    (gpu->tile && gpu->tile != tile + 1))
			continue;
		for (int cut = 0; cut <= may_cut; cut++) {
			const choice_t c = estimate_cycles(gpu, args, tile, cut);

			if ((gpu->cut && may_cut && gpu->cut != cut + 1) || c.ngroups > MAX_GROUPS)
				continue;
			if (best.tile < 0 || c.cycles < best.cycles)
				best = c;
		}
	}
	return best;
}

/* ---- launches ----------------------------------------------------------------------------- */

/* Whether four neighbours are always aligned. */
static int32_t is_vector(const srt_gpu_t *gpu, const srt_binding_t *binding, int64_t nbytes,
			 int64_t ld, int64_t stride, int64_t inner)
{
	return binding->mem != NULL && gpu->low_bits(binding) % (4 * nbytes) == 0 && ld % 4 == 0 &&
	       stride % 4 == 0 && inner % 4 == 0;
}

static void set_vectors(const srt_gpu_t *gpu, srt_command_t *launch)
{
	const int64_t nbytes = srt_gpu_nbytes((srt_dtype_t)launch->dtype);
	const srt_binding_t *at = launch->bindings;
	srt_gpu_matmul_t *args = (srt_gpu_matmul_t *)(void *)launch->args;

	args->vector_c = is_vector(gpu, &at[0], args->c_is_f32 ? 4 : nbytes, args->ldc,
				   args->stride_c, args->inner_c);
	args->vector_a = is_vector(gpu, &at[1], args->a_is_f32 ? 4 : nbytes, args->lda,
				   args->stride_a, args->inner_a);
	args->vector_b = is_vector(gpu, &at[2], nbytes, args->ldb, args->stride_b, args->inner_b);
}

void srt_gpu_choose(const srt_gpu_t *gpu, srt_command_t *product)
{
	const srt_gpu_matmul_t *args = (const srt_gpu_matmul_t *)(void *)product->args;
	const choice_t c = choose_tile(gpu, args, false);

	product->kernel = (uint16_t)c.tile;
	product->ngroups = c.ngroups;
	set_vectors(gpu, product);
}

/* A product whose k is not cut: one launch. */
static bool next_whole(srt_gpu_plan_t *plan, const srt_gpu_matmul_t *args)
{
	const srt_binding_t *at = plan->command->bindings, none = { .mem = NULL };

	if (plan->next++)
		return false;
	set_vectors(&plan->gpu,
		    srt_gpu_add(plan, plan->tile,
				(srt_binding_t[]){ at[0], at[1], at[2], at[3], none, none }, 6,
				args, sizeof(*args), plan->ngroups));
	return true;
}

/* A product whose k is cut: the blocks of a span, and their sum. */
static bool next_blocks(srt_gpu_plan_t *plan, const srt_gpu_matmul_t *args)
{
	const srt_binding_t *at = plan->command->bindings;
	const int64_t nbytes = srt_gpu_nbytes((srt_dtype_t)plan->command->dtype);
	const int64_t ld = ceil_div(args->n, 4) * 4, item = args->m * ld;
	const int64_t nblocks = ceil_div(args->k, SRT_K_MATMUL_KB), block = plan->next;
	const srt_binding_t planes = { .mem = srt_gpu_scratch }, none = { .mem = NULL };
	const span_t span = find_span(&plan->gpu, args);
	const int64_t nkept = block > 0, n = srt_min64(span.nblocks, nblocks - block);
	const int64_t k = block * SRT_K_MATMUL_KB;
	const bool last = block + n == nblocks;
	srt_gpu_matmul_t part = *args;
	srt_gpu_sums_t sums = {
		.m = args->m,
		.n = args->n,
		.batch = args->batch,
		.nplanes = nkept + n,
		.ld = ld,
		.ldc = last ? args->ldc : ld,
		.stride_c = last ? args->stride_c : item,
		.alpha = last ? args->alpha : 1.0f,
		.accumulate = last && args->accumulate,
		.c_is_f32 = !last || args->c_is_f32,
	};

	if (block == nblocks)
		return false;
	part.k = last ? args->k - k : n * SRT_K_MATMUL_KB;
	part.ldc = ld;
	part.stride_c = item;
	part.stride_block = span.plane;
	part.c_is_f32 = 1;
	part.alpha = 1.0f;
	part.accumulate = 0;
	set_vectors(&plan->gpu,
		    srt_gpu_add(plan, plan->tile,
				(srt_binding_t[]){
					srt_gpu_at(&planes,
						   nkept * span.plane * (int64_t)sizeof(float)),
					srt_gpu_at(&at[1],
						   k * (args->trans_a ? args->lda : 1) * nbytes),
					srt_gpu_at(&at[2],
						   k * (args->trans_b ? 1 : args->ldb) * nbytes),
					none, none, none },
				6, &part, sizeof(part), plan->ngroups / span.nblocks * n));
	srt_gpu_add(plan, SRT_GPU_MATMUL_SUMS,
		    (srt_binding_t[]){ last ? at[0] : planes, planes, last ? at[3] : none }, 3,
		    &sums, sizeof(sums),
		    args->batch * args->m * ceil_div(args->n, SRT_GPU_SUM_ITEMS));
	plan->next += n;
	return true;
}

/* ---- plans -------------------------------------------------------------------------------- */

static bool can_attention(const srt_k_attention_t *a)
{
	return a->queries > 0 && a->keys > 0 && a->queries <= MAX_SIZE && a->keys <= MAX_LD &&
	       a->head_dim <= MAX_LD && a->heads <= MAX_LD / srt_max64(a->head_dim, 1) &&
	       a->batch <= MAX_SIZE / a->heads && a->ldq <= MAX_LD && a->ldk <= MAX_LD &&
	       a->ldv <= MAX_LD;
}

bool srt_gpu_can(const srt_command_t *command)
{
	const srt_k_matmul_t *mm = &command->matmul;

	if (command->kind != SRT_COMMAND_MATMUL)
		return can_attention(&command->attention);
	/* With tiles of 64 x 64 the number of groups is in range. */
	return mm->m <= MAX_SIZE && mm->n <= MAX_SIZE && mm->k <= MAX_SIZE && mm->lda <= MAX_LD &&
	       mm->ldb <= MAX_LD &&
	       mm->batch <= MAX_SIZE / ceil_div(mm->m, 64) / ceil_div(mm->n, 64);
}

static srt_gpu_matmul_t make_args(const srt_k_matmul_t *mm)
{
	return (srt_gpu_matmul_t){
		.m = mm->m,
		.n = mm->n,
		.k = mm->k,
		.batch = mm->batch,
		.inner = 1,
		.lda = mm->lda,
		.ldb = mm->ldb,
		.ldc = mm->ldc,
		.stride_a = mm->stride_a,
		.stride_b = mm->stride_b,
		.stride_c = mm->stride_c,
		.alpha = mm->alpha,
		.chain = SRT_K_MATMUL_KB,
		.trans_a = mm->trans_a != 0,
		.trans_b = mm->trans_b != 0,
		.accumulate = mm->accumulate != 0,
		.c_is_f32 = mm->c_is_f32,
	};
}

void srt_gpu_plan(srt_gpu_plan_t *plan, const srt_gpu_t *gpu, const srt_command_t *command)
{
	srt_gpu_matmul_t args;
	choice_t c;

	plan->is_portable = gpu == NULL;
	plan->command = command;
	plan->scratch_nbytes = 0;
	plan->next = plan->next_query = 0;
	if (gpu == NULL)
		return;
	plan->gpu = *gpu;
	if (command->kind != SRT_COMMAND_MATMUL) {
		srt_gpu_attention_plan(plan);
		return;
	}
	args = make_args(&command->matmul);
	c = choose_tile(gpu, &args, true);
	plan->tile = (srt_gpu_kernel_t)c.tile;
	plan->is_cut = c.cut;
	plan->ngroups = c.ngroups;
	if (c.cut) {
		const span_t span = find_span(gpu, &args);

		plan->scratch_nbytes = (size_t)(span.nplanes * span.plane) * sizeof(float);
	}
}

bool srt_gpu_next(srt_gpu_plan_t *plan)
{
	srt_gpu_matmul_t args;

	plan->nlaunches = 0;
	if (plan->is_portable) {
		if (plan->next++)
			return false;
		plan->nlaunches = srt_command_expand(plan->command, plan->launches);
		return true;
	}
	if (plan->command->kind != SRT_COMMAND_MATMUL)
		return srt_gpu_attention_next(plan);
	args = make_args(&plan->command->matmul);
	return plan->is_cut ? next_blocks(plan, &args) : next_whole(plan, &args);
}
