/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tile kernel for instruction sets with fused multiply-add, written over a vector type that
 * the including file defines: vec_t, mask_t, VL (lanes), MR (rows), NV (vectors across), IN_PLACE
 * (gemm_tile.h), ROWS_MAX (of tile_rows()), and v_load, v_store, v_set1, v_add, v_mul, v_mask(n),
 * v_load_mask, v_store_mask; factor_t, v_factor(p) and v_fma_factor for a number of A that all
 * lanes multiply; v_low_ and v_high_ of f16 and bf16 widen the lower and the higher half of each
 * word. The file also defines transpose(), tiles and rows_fns.
 *
 * One kernel per (rows, vectors) is instantiated, so that an edge costs in proportion to its size.
 * The sums of a tile stay in registers during a block of k.
 */
#ifndef SRT_BACKENDS_CPU_GEMM_VECTOR_H
#define SRT_BACKENDS_CPU_GEMM_VECTOR_H

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* A body that has an instance for each of its sizes, and the pragma of its loops. Builds with
 * sanitizers have one function whose sizes are variables: so many instances with checks take long
 * to compile. */
#if defined(SRT_SANITIZED)
#define INSTANTIATED static __attribute__((noinline))
#define UNROLL
#elif defined(__clang__)
#define INSTANTIATED ALWAYS_INLINE
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define INSTANTIATED ALWAYS_INLINE
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Stores a tile, general case: v = [prior + v] [* alpha] [+ bias] [old + v]; sums (rows,NR). */
static __attribute__((noinline)) void tile_finish(int rows, int cols, const float *sums,
						  const srt_cpu_tile_io_t *io)
{
	for (int i = 0; i < rows; i++) {
		for (int j = 0; j < cols; j += VL) {
			mask_t mask = v_mask(cols - j < VL ? cols - j : VL);
			vec_t v = v_load(sums + i * NR + j);

			if (io->prior != NULL)
				v = v_add(v_load_mask(io->prior + i * io->ldprior + j, mask), v);
			if (io->alpha != 1.0f)
				v = v_mul(v, v_set1(io->alpha));
			if (io->bias != NULL)
				v = v_add(v, v_load_mask(io->bias + j, mask));
			if (io->old != NULL)
				v = v_add(v_load_mask(io->old + i * io->ldold + j, mask), v);
			v_store_mask(io->c + i * io->ldc + j, mask, v);
		}
	}
}

/* One step of k for the rows first <= i < end; constants at each call. */
#define TILE_STEP(first, end)                                                                      \
	do {                                                                                       \
		vec_t bv[NV];                                                                      \
                                                                                                   \
		UNROLL                                                                             \
		for (int j = 0; j < nv; j++)                                                       \
			bv[j] = v_load(b + j * VL);                                                \
		b += ldb;                                                                          \
		UNROLL                                                                             \
		for (int i = 0; i < rows; i++) {                                                   \
			if (i < (first) || i >= (end))                                             \
				continue;                                                          \
			factor_t x = v_factor(ap[i / 3] + i % 3 * rs);                             \
			UNROLL                                                                     \
			for (int j = 0; j < nv; j++)                                               \
				acc[i][j] = v_fma_factor(x, bv[j], acc[i][j]);                     \
		}                                                                                  \
		UNROLL                                                                             \
		for (int i = 0; i < rows; i += 3)                                                  \
			ap[i / 3] += cs;                                                           \
	} while (0)

/* One step for all rows. */
#define TILE_STEP_AHEAD()                                                                          \
	do {                                                                                       \
		__builtin_prefetch(ahead, 0, 2);                                                   \
		ahead += ahead_step;                                                               \
		TILE_STEP(0, rows);                                                                \
	} while (0)

/* One step for all rows, and a row of a panel packed. */
#define TILE_STEP_PACK()                                                                           \
	do {                                                                                       \
		UNROLL                                                                             \
		for (int j = 0; j < NV; j++) {                                                     \
			__builtin_prefetch(src + PACK_AHEAD * io->pack_ld + j * VL);               \
			v_store(dst + j * VL, v_load_mask(src + j * VL, pack_mask[j]));            \
		}                                                                                  \
		src += io->pack_ld;                                                                \
		dst += NR;                                                                         \
		TILE_STEP(0, rows);                                                                \
	} while (0)

#define C_STEPS 8     /* steps of k in which one row of C is fetched */
#define PACK_AHEAD 16 /* rows between the one that is packed and the one that is fetched */

/*
 * rows, nv and packs (1 = packs a panel) are constants at each call: without sanitizers everything
 * unrolls into registers.
 */
INSTANTIATED void tile_body(const int rows, const int nv, const int packs, int cols, int64_t kc,
			    const float *a, int64_t rs, int64_t cs, const float *b, int64_t ldb,
			    const srt_cpu_tile_io_t *io)
{
	vec_t acc[MR][NV];
	mask_t pack_mask[NV] = { v_mask(0) };
	const float *src = io->pack_src;
	float *dst = io->pack_dst;
	const float *ap[(MR + 2) / 3];
	const char *ahead = io->ahead != NULL ? io->ahead : (const char *)a;
	const int64_t ahead_step = io->ahead != NULL ? io->ahead_step : 0;
	int64_t k = 0;

	UNROLL
	for (int i = 0; i < rows; i++) {
		if (i % 3 == 0)
			ap[i / 3] = a + i * rs;
		UNROLL
		for (int j = 0; j < nv; j++)
			acc[i][j] = v_set1(0.0f);
	}
	UNROLL
	for (int j = 0; packs && j < NV; j++)
		pack_mask[j] = v_mask(io->pack_cols < j * VL       ? 0 :
				      io->pack_cols < (j + 1) * VL ? io->pack_cols - j * VL :
								     VL);
	if (io->start != NULL) {
		mask_t mask = v_mask(cols - (nv - 1) * VL);

		UNROLL
		for (int i = 0; i < rows; i++)
			UNROLL
		for (int j = 0; j < nv; j++)
			acc[i][j] = v_load_mask(io->start + i * io->ldstart + j * VL,
						j < nv - 1 ? v_mask(VL) : mask);
	}
	if (io->ragged != SRT_CPU_FULL)
		kc -= rows - 1;
	if (io->ragged == SRT_CPU_HEAD) {
		UNROLL
		for (int t = 1; t < rows; t++)
			TILE_STEP(0, t);
	}
	/* C is fetched a row in a few steps, not at once, so that other loads do not wait. */
	for (int i = 0; i < rows && k + C_STEPS <= kc; i++) {
		UNROLL
		for (int j = 0; j < nv; j++)
			__builtin_prefetch(io->c + i * io->ldc + j * VL, 1);
		for (int64_t end = k + C_STEPS; k < end; k++) {
			if (packs)
				TILE_STEP_PACK();
			else
				TILE_STEP_AHEAD();
		}
	}
	if (packs)
		for (; k < kc; k++)
			TILE_STEP_PACK();
	else if (io->ahead != NULL)
		for (; k < kc; k++)
			TILE_STEP_AHEAD();
	for (; k < kc; k++) /* a fetch in each step would slow narrower vectors */
		TILE_STEP(0, rows);
	if (io->ragged == SRT_CPU_TAIL) {
		UNROLL
		for (int t = 1; t < rows; t++)
			TILE_STEP(t, rows);
	}
	if (cols == nv * VL && io->old == NULL) {
		if (io->prior != NULL) {
			UNROLL
			for (int i = 0; i < rows; i++)
				UNROLL
			for (int j = 0; j < nv; j++)
				acc[i][j] = v_add(v_load(io->prior + i * io->ldprior + j * VL),
						  acc[i][j]);
		}

		if (io->alpha != 1.0f) {
			vec_t alpha = v_set1(io->alpha);

			UNROLL
			for (int i = 0; i < rows; i++)
				UNROLL
			for (int j = 0; j < nv; j++)
				acc[i][j] = v_mul(acc[i][j], alpha);
		}
		if (io->bias != NULL) {
			UNROLL
			for (int j = 0; j < nv; j++) {
				vec_t bias = v_load(io->bias + j * VL);

				UNROLL
				for (int i = 0; i < rows; i++)
					acc[i][j] = v_add(acc[i][j], bias);
			}
		}
		UNROLL
		for (int i = 0; i < rows; i++)
			UNROLL
		for (int j = 0; j < nv; j++)
			v_store(io->c + i * io->ldc + j * VL, acc[i][j]);
	} else {
		float sums[MR * NR] __attribute__((aligned(64)));

		UNROLL
		for (int i = 0; i < rows; i++)
			UNROLL
		for (int j = 0; j < nv; j++)
			v_store(sums + i * NR + j * VL, acc[i][j]);
		tile_finish(rows, cols, sums, io);
	}
}

typedef void tile_fn(int cols, int64_t kc, const float *a, int64_t rs, int64_t cs, const float *b,
		     int64_t ldb, const srt_cpu_tile_io_t *io);

/* Defines the kernels of a number of rows, and lists them for the table. */
#define TILE(rows)                                                                                 \
	static void tile_##rows##_1(int cols, int64_t kc, const float *a, int64_t rs, int64_t cs,  \
				    const float *b, int64_t ldb, const srt_cpu_tile_io_t *io)      \
	{                                                                                          \
		tile_body(rows, 1, 0, cols, kc, a, rs, cs, b, ldb, io);                            \
	}                                                                                          \
	static void tile_##rows##_2(int cols, int64_t kc, const float *a, int64_t rs, int64_t cs,  \
				    const float *b, int64_t ldb, const srt_cpu_tile_io_t *io)      \
	{                                                                                          \
		tile_body(rows, 2, 0, cols, kc, a, rs, cs, b, ldb, io);                            \
	}
#define TILES(rows)                                                                                \
	{                                                                                          \
		tile_##rows##_1, tile_##rows##_2                                                   \
	}

/* x[t][j] = x[j][t] */
ALWAYS_INLINE void transpose(vec_t x[VL]);

/* The first VL words of VL rows, ld bytes apart, by columns: x[t][j] = word t of row j. */
INSTANTIATED void load_columns(const char *src, int64_t ld, vec_t x[VL])
{
	UNROLL
	for (int j = 0; j < VL; j++) {
		__builtin_prefetch(src + (VL + j) * ld, 0, 2); /* the next panel */
		x[j] = v_load((const float *)(src + j * ld));
	}
	transpose(x);
}

/* The first number of VL rows. */
static __attribute__((noinline)) void load_column(srt_dtype_t dtype, const char *src, int64_t ld,
						  float column[VL])
{
	for (int j = 0; j < VL; j++)
		column[j] = widen_element(dtype, src + j * ld);
}

/* acc[i] += ap[i][k] * x */
#define ROWS_STEP(k, x)                                                                            \
	do {                                                                                       \
		vec_t bv = x;                                                                      \
                                                                                                   \
		UNROLL                                                                             \
		for (int i = 0; i < rows; i++)                                                     \
			acc[i] = v_fma_factor(v_factor(ap[i] + (k)), bv, acc[i]);                  \
	} while (0)

/*
 * The sums of VL columns of a B that is stored (n,k), ld bytes from one to the next. Each block
 * transposes words of VL columns, which are one step of k or two of 16 bits. rows and dtype are
 * constants at each call.
 */
INSTANTIATED void rows_body(const int rows, const srt_dtype_t dtype, int64_t kc, const float *a,
			    int64_t rs, const char *b, int64_t ld, float *sums)
{
	const int64_t nbytes = dtype == SRT_F32 ? 4 : 2, block = VL * 4 / nbytes;
	const float *ap[ROWS_MAX];
	vec_t acc[ROWS_MAX];
	int64_t k = 0;

	UNROLL
	for (int i = 0; i < rows; i++) {
		ap[i] = a + i * rs;
		acc[i] = v_set1(0.0f);
	}
	for (; k + block <= kc; k += block, b += VL * 4) {
		vec_t x[VL];

		load_columns(b, ld, x);
		if (dtype == SRT_F32) {
			UNROLL
			for (int t = 0; t < VL; t++)
				ROWS_STEP(t, x[t]);
		} else if (dtype == SRT_F16) {
			UNROLL
			for (int t = 0; t < VL; t++) {
				ROWS_STEP(2 * t, v_low_f16(x[t]));
				ROWS_STEP(2 * t + 1, v_high_f16(x[t]));
			}
		} else {
			UNROLL
			for (int t = 0; t < VL; t++) {
				ROWS_STEP(2 * t, v_low_bf16(x[t]));
				ROWS_STEP(2 * t + 1, v_high_bf16(x[t]));
			}
		}
		UNROLL
		for (int i = 0; i < rows; i++)
			ap[i] += block;
	}
	for (; k < kc; k++, b += nbytes) {
		float column[VL] __attribute__((aligned(64)));

		load_column(dtype, b, ld, column);
		ROWS_STEP(0, v_load(column));
		UNROLL
		for (int i = 0; i < rows; i++)
			ap[i]++;
	}
	UNROLL
	for (int i = 0; i < rows; i++)
		v_store(sums + i * NR, acc[i]);
}

typedef void rows_fn(srt_dtype_t dtype, int64_t kc, const float *a, int64_t rs, const char *b,
		     int64_t ld, float *sums);

/* Defines the function of a number of rows. */
#define ROWS(rows)                                                                                 \
	static void rows_##rows(srt_dtype_t dtype, int64_t kc, const float *a, int64_t rs,         \
				const char *b, int64_t ld, float *sums)                            \
	{                                                                                          \
		if (dtype == SRT_F32)                                                              \
			rows_body(rows, SRT_F32, kc, a, rs, b, ld, sums);                          \
		else if (dtype == SRT_F16)                                                         \
			rows_body(rows, SRT_F16, kc, a, rs, b, ld, sums);                          \
		else                                                                               \
			rows_body(rows, SRT_BF16, kc, a, rs, b, ld, sums);                         \
	}

static tile_fn *const tiles[MR][NV]; /* of the including file */

static void compute_tile(int rows, int cols, int64_t kc, const float *a, int64_t rs, int64_t cs,
			 const float *b, int64_t ldb, const srt_cpu_tile_io_t *io)
{
	tiles[rows - 1][(cols - 1) / VL](cols, kc, a, rs, cs, b, ldb, io);
}

static rows_fn *const rows_fns[ROWS_MAX]; /* of the including file */

static void tile_rows(srt_dtype_t dtype, int rows, int64_t kc, const float *a, int64_t rs,
		      const void *b, int64_t ldb, const srt_cpu_tile_io_t *io)
{
	float sums[ROWS_MAX * NR] __attribute__((aligned(64)));
	const int64_t ld = ldb * (dtype == SRT_F32 ? 4 : 2);

	for (int j = 0; j < NR; j += VL)
		rows_fns[rows - 1](dtype, kc, a, rs, (const char *)b + j * ld, ld, sums + j);
	tile_finish(rows, NR, sums, io);
}

#if !IN_PLACE
static void tile_pack(int64_t kc, const float *a, int64_t rs, int64_t cs, const float *b,
		      int64_t ldb, const srt_cpu_tile_io_t *io)
{
	tile_body(MR, NV, 1, NR, kc, a, rs, cs, b, ldb, io);
}
#endif

static void pack_rows(int cols, int width, int64_t kc, const float *src, int64_t ld, float *dst)
{
	if (cols == NR && width == NR) {
		for (int64_t k = 0; k < kc; k++) {
			UNROLL
			for (int j = 0; j < NV; j++) {
				__builtin_prefetch(src + (k + PACK_AHEAD) * ld + j * VL);
				v_store(dst + k * NR + j * VL, v_load(src + k * ld + j * VL));
			}
		}
		return;
	}
	for (int64_t k = 0; k < kc; k++) {
		for (int j = 0; j < width; j += VL) {
			int n = cols - j < 0 ? 0 : cols - j < VL ? cols - j : VL;

			v_store(dst + k * width + j, v_load_mask(src + k * ld + j, v_mask(n)));
		}
	}
}

/* VL columns of a panel; src: rows, ld bytes apart. */
static void pack_vector(srt_dtype_t dtype, int64_t kc, const char *src, int64_t ld, float *dst)
{
	const int64_t nbytes = dtype == SRT_F32 ? 4 : 2, block = VL * 4 / nbytes;
	int64_t k = 0;

	for (; k + block <= kc; k += block, src += VL * 4) {
		vec_t x[VL];

		load_columns(src, ld, x);
		UNROLL
		for (int t = 0; t < VL; t++) {
			if (dtype == SRT_F32) {
				v_store(dst + t * NR, x[t]);
			} else if (dtype == SRT_F16) {
				v_store(dst + 2 * t * NR, v_low_f16(x[t]));
				v_store(dst + (2 * t + 1) * NR, v_high_f16(x[t]));
			} else {
				v_store(dst + 2 * t * NR, v_low_bf16(x[t]));
				v_store(dst + (2 * t + 1) * NR, v_high_bf16(x[t]));
			}
		}
		dst += block * NR;
	}
	for (; k < kc; k++, src += nbytes, dst += NR)
		load_column(dtype, src, ld, dst);
}

static void pack_transposed(srt_dtype_t dtype, int cols, int64_t kc, const void *src, int64_t ld,
			    float *dst)
{
	const int64_t nbytes = dtype == SRT_F32 ? 4 : 2;
	const char *p = src;

	ld *= nbytes;
	for (int j0 = 0; j0 < NR; j0 += VL) {
		if (cols - j0 >= VL) {
			pack_vector(dtype, kc, p + j0 * ld, ld, dst + j0);
			continue;
		}
		for (int64_t k = 0; k < kc; k++)
			v_store(dst + k * NR + j0, v_set1(0.0f));
		for (int j = j0; j < cols; j++)
			for (int64_t k = 0; k < kc; k++)
				dst[k * NR + j] = widen_element(dtype, p + j * ld + k * nbytes);
	}
}

#endif
