/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The matrix product on GPUs: chooses the shape of the tiles, so that all multiprocessors have
 * work, and whether k is cut. Then each block of SRT_K_MATMUL_KB steps is a product of its own,
 * whose sums go to planes of scratch; matmul_sums adds the planes by rising block, which is what
 * defines the result. Many blocks are done in spans, so that scratch is bounded; the first plane
 * of a span is then the sum of the earlier ones.
 */
#include "backends/gpu/gpu.h"
#include "base/base.h"

#define PLANES_NBYTES ((int64_t)64 << 20) /* at most, unless two planes are more */
#define MAX_SIZE ((int64_t)1 << 30)       /* of m, n, k: the kernels count in 32 bits */
#define MAX_GROUPS ((int64_t)1 << 30)

char srt_gpu_scratch[1];

#define TILE_INFO(rows, columns, r, c, upright)                                                    \
	{ "gpu_matmul", "matmul_" #rows "x" #columns, 6, (rows) / (r) * ((columns) / (c)) },
const srt_gpu_kernel_info_t srt_gpu_kernels[SRT_GPU_KERNEL_COUNT] = {
	SRT_GPU_TILES(TILE_INFO)[SRT_GPU_MATMUL_SUMS] = { "gpu_matmul", "matmul_sums", 3,
							  SRT_GPU_SUM_ITEMS },
	[SRT_GPU_WEIGHTS] = { "gpu_attention", "gpu_weights", 5, 0 },
	[SRT_GPU_GRADIENTS] = { "gpu_attention", "gpu_gradients", 9, 0 },
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

static int64_t max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

srt_binding_t srt_gpu_at(const srt_binding_t *place, int64_t nbytes)
{
	return (srt_binding_t){ .mem = place->mem,
				.offset = place->mem ? place->offset + (size_t)nbytes : 0 };
}

/* ---- the choice --------------------------------------------------------------------------- */

/* How a product is done. */
typedef struct choice {
	int tile;
	bool cut;
	int64_t ngroups, cycles;
} choice_t;

/*
 * Cycles of a product, as a rule of thumb: 128 multiply-adds a cycle on a multiprocessor, one
 * for each work-item of what is there; 32 bytes a cycle from memory; a start and an end of each
 * wave.
 */
static choice_t estimate(const srt_gpu_t *gpu, const srt_gpu_matmul_t *args, int tile, bool cut)
{
	const int64_t rows = tiles[tile].rows, columns = tiles[tile].columns;
	const int nitems = srt_gpu_kernels[tile].nitems;
	const int64_t nblocks = cut ? ceil_div(args->k, SRT_K_MATMUL_KB) : 1;
	const int64_t steps = cut ? SRT_K_MATMUL_KB : args->k;
	choice_t c = { .tile = tile, .cut = cut };
	int64_t each, step;

	c.ngroups = ceil_div(args->m, rows) * ceil_div(args->n, columns) * args->batch * nblocks;
	each = ceil_div(c.ngroups, gpu->nunits); /* of a multiprocessor */
	step = max64(rows * columns / (nitems < 128 ? nitems : 128), each * rows * columns / 128);
	step = max64(step, each * (rows + columns) / 8);
	c.cycles = step * steps + ceil_div(each * nitems, 256) * 1500;
	if (cut) /* the planes, written and read, and one launch more */
		c.cycles += nblocks * args->m * args->n * args->batch / (2 * gpu->nunits) + 6000;
	return c;
}

static choice_t choose(const srt_gpu_t *gpu, const srt_gpu_matmul_t *args, bool may_cut)
{
	choice_t best = { .tile = -1 };

	may_cut = may_cut && args->k > SRT_K_MATMUL_KB;
	for (int tile = 0; tile < SRT_GPU_TILE_COUNT; tile++) {
		if (srt_gpu_kernels[tile].nitems > gpu->max_items ||
		    (gpu->tile && gpu->tile != tile + 1))
			continue;
		for (int cut = 0; cut <= may_cut; cut++) {
			const choice_t c = estimate(gpu, args, tile, cut);

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
static int32_t is_vector(const srt_gpu_t *gpu, const srt_binding_t *place, int64_t nbytes,
			 int64_t ld, int64_t stride, int64_t inner)
{
	return place->mem && gpu->low_bits(place) % (4 * nbytes) == 0 && ld % 4 == 0 &&
	       stride % 4 == 0 && inner % 4 == 0;
}

static srt_status_t launch(const srt_gpu_t *gpu, const choice_t *c, const srt_gpu_matmul_t *wanted,
			   srt_dtype_t dtype, const srt_binding_t places[6])
{
	const int64_t nbytes = srt_gpu_nbytes(dtype);
	srt_gpu_matmul_t args = *wanted;

	args.vector_c = is_vector(gpu, &places[0], args.c_is_f32 ? 4 : nbytes, args.ldc,
				  args.stride_c, args.inner_c);
	args.vector_a = is_vector(gpu, &places[1], args.a_is_f32 ? 4 : nbytes, args.lda,
				  args.stride_a, args.inner_a);
	args.vector_b = is_vector(gpu, &places[2], nbytes, args.ldb, args.stride_b, args.inner_b);
	return gpu->launch(gpu->stream, (srt_gpu_kernel_t)c->tile, dtype, places, &args,
			   sizeof(args), c->ngroups);
}

srt_status_t srt_gpu_product(const srt_gpu_t *gpu, const srt_gpu_matmul_t *args, srt_dtype_t dtype,
			     const srt_binding_t places[6])
{
	const choice_t c = choose(gpu, args, false);

	return launch(gpu, &c, args, dtype, places);
}

/* Planes that there is room for at a time, and the elements of one. */
static int64_t planes_of(const srt_gpu_matmul_t *args, int64_t *plane)
{
	const int64_t nblocks = ceil_div(args->k, SRT_K_MATMUL_KB);
	int64_t most;

	*plane = args->batch * args->m * (ceil_div(args->n, 4) * 4);
	most = max64(2, PLANES_NBYTES / (int64_t)sizeof(float) / *plane);
	return most < nblocks ? most : nblocks;
}

/* The product block by block. */
static srt_status_t run_cut(const srt_gpu_t *gpu, const choice_t *c, const srt_gpu_matmul_t *args,
			    srt_dtype_t dtype, const srt_binding_t places[4])
{
	const int64_t nbytes = srt_gpu_nbytes(dtype);
	const int64_t ld = ceil_div(args->n, 4) * 4, item = args->m * ld;
	const int64_t nblocks = ceil_div(args->k, SRT_K_MATMUL_KB);
	const srt_binding_t planes = { .mem = srt_gpu_scratch }, none = { .mem = NULL };
	int64_t block = 0, plane;
	const int64_t nplanes = planes_of(args, &plane);

	SRT_TRY(gpu->scratch(gpu->stream, (size_t)(nplanes * plane) * sizeof(float)));
	while (block < nblocks) {
		const int64_t kept = block > 0, room = nplanes - kept;
		const int64_t n = nblocks - block < room ? nblocks - block : room;
		const int64_t k = block * SRT_K_MATMUL_KB;
		const bool last = block + n == nblocks;
		srt_gpu_matmul_t part = *args;
		srt_gpu_sums_t sums = {
			.m = args->m,
			.n = args->n,
			.batch = args->batch,
			.nplanes = kept + n,
			.ld = ld,
			.ldc = last ? args->ldc : ld,
			.stride_c = last ? args->stride_c : item,
			.alpha = last ? args->alpha : 1.0f,
			.accumulate = last && args->accumulate,
			.c_is_f32 = !last,
		};
		choice_t some = *c;

		part.k = last ? args->k - k : n * SRT_K_MATMUL_KB;
		part.ldc = ld;
		part.stride_c = item;
		part.stride_block = plane;
		part.c_is_f32 = 1;
		part.alpha = 1.0f;
		part.accumulate = 0;
		some.ngroups = c->ngroups / nblocks * n;
		SRT_TRY(launch(gpu, &some, &part, dtype,
			       (srt_binding_t[]){
				       srt_gpu_at(&planes, kept * plane * (int64_t)sizeof(float)),
				       srt_gpu_at(&places[1],
						  k * (args->trans_a ? args->lda : 1) * nbytes),
				       srt_gpu_at(&places[2],
						  k * (args->trans_b ? 1 : args->ldb) * nbytes),
				       none, none, none }));
		SRT_TRY(gpu->launch(gpu->stream, SRT_GPU_MATMUL_SUMS, dtype,
				    (srt_binding_t[]){ last ? places[0] : planes, planes,
						       last ? places[3] : none },
				    &sums, sizeof(sums),
				    args->batch * args->m * ceil_div(args->n, SRT_GPU_SUM_ITEMS)));
		block += n;
	}
	return SRT_OK;
}

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
	/* With tiles of 64 x 64 there are not too many groups. */
	return mm->m <= MAX_SIZE && mm->n <= MAX_SIZE && mm->k <= MAX_SIZE &&
	       mm->batch <= MAX_SIZE / ceil_div(mm->m, 64) / ceil_div(mm->n, 64);
}

static srt_gpu_matmul_t whole(const srt_k_matmul_t *mm)
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

srt_status_t srt_gpu_matmul(const srt_gpu_t *gpu, const srt_command_t *command)
{
	const srt_gpu_matmul_t args = whole(&command->matmul);
	const srt_binding_t *places = command->bindings;
	const srt_dtype_t dtype = (srt_dtype_t)command->dtype;
	const srt_binding_t none = { .mem = NULL };
	const choice_t c = choose(gpu, &args, true);

	if (c.cut)
		return run_cut(gpu, &c, &args, dtype, places);
	return launch(gpu, &c, &args, dtype,
		      (srt_binding_t[]){ places[0], places[1], places[2], places[3], none, none });
}

size_t srt_gpu_command_scratch(const srt_gpu_t *gpu, const srt_command_t *command, bool fast)
{
	srt_gpu_matmul_t args;
	int64_t plane, nplanes;

	if (!srt_gpu_can(command))
		return 0;
	if (command->kind != SRT_COMMAND_MATMUL)
		return srt_gpu_attention_scratch(command, fast);
	args = whole(&command->matmul);
	if (!choose(gpu, &args, true).cut)
		return 0;
	nplanes = planes_of(&args, &plane);
	return (size_t)(nplanes * plane) * sizeof(float);
}
