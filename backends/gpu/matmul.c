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

#define PLANES_NBYTES ((int64_t)64 << 20) /* at most, unless two planes are more */
#define MAX_SIZE ((int64_t)1 << 30)       /* of m, n, k: the kernels count in 32 bits */
#define MAX_GROUPS ((int64_t)1 << 30)

char srt_gpu_scratch[1];

#define TILE_INFO(rows, columns, r, c, upright)                                                    \
	{ "gpu_matmul", "matmul_" #rows "x" #columns, (rows) / (r) * ((columns) / (c)) },
const srt_gpu_kernel_info_t srt_gpu_kernels[SRT_GPU_KERNEL_COUNT] = {
	SRT_GPU_TILES(TILE_INFO)[SRT_GPU_MATMUL_SUMS] = { "gpu_matmul", "matmul_sums",
							  SRT_GPU_SUM_ITEMS },
	[SRT_GPU_WEIGHTS] = { "gpu_attention", "gpu_weights", 0 },
	[SRT_GPU_GRADIENTS] = { "gpu_attention", "gpu_gradients", 0 },
};

static const struct {
	int64_t rows, columns;
} tiles[] = {
#define TILE_SHAPE(rows, columns, ...) { rows, columns },
	SRT_GPU_TILES(TILE_SHAPE)
};

static int64_t ceil_div(int64_t n, int64_t by)
{
	return (n + by - 1) / by;
}

srt_binding_t srt_gpu_at(const srt_binding_t *binding, int64_t nbytes)
{
	return (srt_binding_t){ .mem = binding->mem,
				.offset = binding->mem ? binding->offset + (size_t)nbytes : 0 };
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

/* ---- the choice --------------------------------------------------------------------------- */

/* How a product is done. */
typedef struct choice {
	int tile;
	bool cut;
	int64_t ngroups, cycles;
} choice_t;

/*
 * Estimated cycles of a product: at most 128 multiply-adds a cycle on a multiprocessor, one for
 * each resident work-item; 32 bytes a cycle from memory; a start and an end of each wave.
 */
static choice_t estimate_cycles(const srt_gpu_t *gpu, const srt_gpu_matmul_t *args, int tile,
				bool cut)
{
	const int64_t rows = tiles[tile].rows, columns = tiles[tile].columns;
	const int nitems = srt_gpu_kernels[tile].nitems;
	const int64_t nblocks = cut ? ceil_div(args->k, SRT_K_MATMUL_KB) : 1;
	const int64_t steps = cut ? SRT_K_MATMUL_KB : args->k;
	choice_t c = { .tile = tile, .cut = cut };
	int64_t each, step;

	c.ngroups = ceil_div(args->m, rows) * ceil_div(args->n, columns) * args->batch * nblocks;
	each = ceil_div(c.ngroups, gpu->nunits); /* of a multiprocessor */
	step = srt_max64(rows * columns / (nitems < 128 ? nitems : 128),
			 each * rows * columns / 128);
	step = srt_max64(step, each * (rows + columns) / 8);
	c.cycles = step * steps + ceil_div(each * nitems, 256) * 1500;
	if (cut) /* the planes, written and read, and one launch more */
		c.cycles += nblocks * args->m * args->n * args->batch / (2 * gpu->nunits) + 6000;
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
	return binding->mem && gpu->low_bits(binding) % (4 * nbytes) == 0 && ld % 4 == 0 &&
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

/* The number of planes that scratch holds, and the elements of one. */
static int64_t planes_of(const srt_gpu_matmul_t *args, int64_t *plane)
{
	const int64_t nblocks = ceil_div(args->k, SRT_K_MATMUL_KB);
	int64_t most;

	*plane = args->batch * args->m * (ceil_div(args->n, 4) * 4);
	most = srt_max64(2, PLANES_NBYTES / (int64_t)sizeof(float) / *plane);
	return most < nblocks ? most : nblocks;
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

/* A product whose k is cut: as many blocks as there are planes, and their sum. */
static bool next_blocks(srt_gpu_plan_t *plan, const srt_gpu_matmul_t *args)
{
	const srt_binding_t *at = plan->command->bindings;
	const int64_t nbytes = srt_gpu_nbytes((srt_dtype_t)plan->command->dtype);
	const int64_t ld = ceil_div(args->n, 4) * 4, item = args->m * ld;
	const int64_t nblocks = ceil_div(args->k, SRT_K_MATMUL_KB), block = plan->next;
	const srt_binding_t planes = { .mem = srt_gpu_scratch }, none = { .mem = NULL };
	int64_t plane;
	const int64_t nplanes = planes_of(args, &plane);
	const int64_t nkept = block > 0, nfree = nplanes - nkept;
	const int64_t n = nblocks - block < nfree ? nblocks - block : nfree;
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
		.c_is_f32 = !last,
	};

	if (block == nblocks)
		return false;
	part.k = last ? args->k - k : n * SRT_K_MATMUL_KB;
	part.ldc = ld;
	part.stride_c = item;
	part.stride_block = plane;
	part.c_is_f32 = 1;
	part.alpha = 1.0f;
	part.accumulate = 0;
	set_vectors(&plan->gpu,
		    srt_gpu_add(plan, plan->tile,
				(srt_binding_t[]){
					srt_gpu_at(&planes, nkept * plane * (int64_t)sizeof(float)),
					srt_gpu_at(&at[1],
						   k * (args->trans_a ? args->lda : 1) * nbytes),
					srt_gpu_at(&at[2],
						   k * (args->trans_b ? 1 : args->ldb) * nbytes),
					none, none, none },
				6, &part, sizeof(part), plan->ngroups / nblocks * n));
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
	return a->queries > 0 && a->keys > 0 && a->queries <= MAX_SIZE && a->keys <= MAX_SIZE &&
	       a->head_dim <= MAX_SIZE && a->heads <= MAX_SIZE && a->batch <= MAX_SIZE / a->heads;
}

bool srt_gpu_can(const srt_command_t *command)
{
	const srt_k_matmul_t *mm = &command->matmul;

	if (command->kind != SRT_COMMAND_MATMUL)
		return can_attention(&command->attention);
	/* With tiles of 64 x 64 the number of groups is in range. */
	return mm->m <= MAX_SIZE && mm->n <= MAX_SIZE && mm->k <= MAX_SIZE &&
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
	};
}

void srt_gpu_plan(srt_gpu_plan_t *plan, const srt_gpu_t *gpu, const srt_command_t *command)
{
	srt_gpu_matmul_t args;
	choice_t c;
	int64_t plane;

	plan->is_portable = !gpu;
	plan->command = command;
	plan->scratch_nbytes = 0;
	plan->next = plan->next_query = 0;
	if (!gpu)
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
	if (c.cut)
		plan->scratch_nbytes = (size_t)(planes_of(&args, &plane) * plane) * sizeof(float);
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
