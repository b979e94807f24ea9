/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of cases.def, the sizes of its families, the digests of the self-test, and how
 * the places of a launch lie in memory. What places hold is in case_places.c.
 */
#include "kernels/cases/cases.h"

#include <string.h>

#include "base/base.h"

#define GUARD 64
#define PATTERN 0xa5

/* ---- sizes: r, n, k, b --------------------------------------------------------------------- */
#define UNWRAP(...) __VA_ARGS__
#define FAMILY(name, rarity, benched, selftest_sizes, quick_sizes, more_sizes)                     \
	static const srt_kernel_dims_t name##_selftest[] = { UNWRAP selftest_sizes };              \
	static const srt_kernel_dims_t name##_quick[] = { UNWRAP quick_sizes };                    \
	static const srt_kernel_dims_t name##_more[] = { UNWRAP more_sizes };                      \
	static const srt_kernel_family_t family_##name = {                                         \
		.selftest = name##_selftest,                                                       \
		.quick = name##_quick,                                                             \
		.more = name##_more,                                                               \
		.nselftest = SRT_ARRAY_LEN(name##_selftest),                                       \
		.nquick = SRT_ARRAY_LEN(name##_quick),                                             \
		.nmore = SRT_ARRAY_LEN(name##_more),                                               \
		.bench = benched,                                                                  \
		.rare = rarity,                                                                    \
	};
#define OF4(r, n, k, b)                                                                            \
	{                                                                                          \
		r, n, k, b                                                                         \
	}
#define OF(r, n) OF4(r, n, 0, 0)

/* Sizes of the self-test, of quick runs, and those that long runs have as well. */
FAMILY(ELEMENTS, 5, OF(0, 16 << 20), (OF(0, 131)),
       (OF(0, 0), OF(0, 1), OF(0, 7), OF(0, 131), OF(0, 2048), OF(0, 4099)),
       (OF(0, 16385), OF(0, 65536), OF(0, 100003), OF(0, 1048583)))
FAMILY(ROWS, 150, OF(16384, 1024), (OF(3, 131)),
       (OF(0, 3), OF(1, 1), OF(3, 64), OF(5, 131), OF(67, 7), OF(2, 1031)),
       (OF(1, 4099), OF(131, 257), OF(7, 50257), OF(2053, 96)))
FAMILY(COLUMNS, 400, OF(16384, 1024), (OF(400, 5)),
       (OF(0, 3), OF(1, 1), OF(3, 67), OF(131, 5), OF(400, 7)),
       (OF(513, 131), OF(1031, 64), OF(4099, 257)))
FAMILY(TABLE, 50, OF4(16384, 1024, 8192, 1024), (OF4(2200, 1, 2, 100), OF4(10, 70, 7, 2)),
       (OF4(0, 3, 2, 1), OF4(1, 1, 1, 1), OF4(13, 70, 7, 3), OF4(131, 5, 11, 17),
	OF4(7, 513, 1031, 7)),
       (OF4(7200, 1, 7, 100), OF4(1031, 257, 521, 128)))
FAMILY(PRODUCT, 700, OF4(1024, 1024, 1024, 1), (OF4(2, 5, 515, 1), OF4(2, 70, 7, 1)),
       (OF4(0, 5, 3, 1), OF4(3, 5, 0, 1), OF4(1, 1, 1, 1), OF4(2, 5, 515, 1), OF4(13, 67, 7, 2),
	OF4(7, 131, 67, 1)),
       (OF4(3, 70, 1030, 1), OF4(131, 67, 601, 1), OF4(1, 257, 600, 3), OF4(37, 64, 512, 2)))
FAMILY(HEADS, 2000, OF4(256, 64, 6, 4), (OF4(67, 4, 1, 1), OF4(5, 3, 2, 3)),
       (OF4(0, 4, 2, 1), OF4(1, 1, 1, 1), OF4(7, 5, 3, 2), OF4(67, 8, 1, 1)),
       (OF4(131, 20, 2, 1), OF4(64, 64, 2, 2), OF4(257, 16, 1, 1)))
FAMILY(STEP, 5, OF(0, 16 << 20), (OF(0, 131)),
       (OF(0, 0), OF(0, 1), OF(0, 7), OF(0, 131), OF4(0, 131, 1, 0), OF(0, 4099)),
       (OF(0, 65536), OF(0, 100003)))
FAMILY(FEW, 5, OF(0, 0), (OF(0, 3)), (OF(0, 0), OF(0, 1), OF(0, 3), OF4(0, 7, 1, 0)), (OF(0, 131)))
FAMILY(COO, 5, OF(0, 1 << 20), (OF(0, 131)),
       (OF(0, 0), OF(0, 1), OF(0, 7), OF(0, 131), OF(0, 2048), OF(0, 4099)), (OF(0, 16385)))

/* ---- the table ----------------------------------------------------------------------------- */
#define R (d->r)
#define N (d->n)
#define K (d->k)
#define B (d->b)
#define PLACE(n, below, type, fill)                                                                \
	{                                                                                          \
		n, below, type, fill                                                               \
	}
#define OUT(n) PLACE(n, 0, 't', 'o')
#define IN(n) PLACE(n, 0, 't', 'v')
#define OUT_F32(n) PLACE(n, 0, 'f', 'o')
#define IN_F32(n) PLACE(n, 0, 'f', 'v')
#define IN_F16(n) PLACE(n, 0, 'h', 'v')
#define IN_BF16(n) PLACE(n, 0, 'b', 'v')
#define POSITIVE(n) PLACE(n, 0, 'f', '+')
#define IDS(n, below) PLACE(n, below, 'i', 'i')
#define LENGTHS(n, below) PLACE(n, below, 'i', 'e')
#define TARGETS(n, below) PLACE(n, below, 'i', 't')
#define LABELS(n, below) PLACE(n, below, 'i', 'u')
#define FALLING(n, first) PLACE(n, first, 'i', 'd')
#define BYTES(n) PLACE(n, 0, 'y', 'y')
#define MAX_OF_NEXT PLACE(1, 0, 'f', 'm')
#define BINS(n) PLACE(n, 0, 'd', 'n')
#define NO_BINS(n) PLACE(n, 0, 'd', '0')
#define STATE PLACE(1, 0, 'B', 's')
#define LINEAR PLACE(1, SRT_K_SCHEDULE_LINEAR, 'B', 's')
#define STABLE PLACE(1, SRT_K_SCHEDULE_STABLE, 'B', 's')
#define PARAMS PLACE(3, 0, 'B', 'p')
#define SEGMENTS PLACE(2, N, 'B', 'g')
#define GROUPS PLACE(2, 0, 'B', 'h')
#define SEGMENTS8 PLACE(4, N, 'B', 'q')
#define ABSENT PLACE(0, 0, 't', '-')
#define OUT_KEYS(n) PLACE(n, 0, 'l', 'o')
#define OUT_IDS(n) PLACE(n, 0, 'i', 'o')
#define KEYS(n) PLACE(n, 0, 'l', 'k')
#define COUNTS(n) PLACE(((n) + SRT_K_ELEMENTS - 1) / SRT_K_ELEMENTS, n, 'i', 'c')
#define ORDER(n) PLACE(n, n, 'i', 'j')
#define STARTS(n) PLACE(n, 0, 'i', 'r')
#define COUNT(n) PLACE(1, n, 'i', '#')

#define CASE(name, NAME, FAMILY, type, init, ...)                                                  \
	static void make_##name(const srt_kernel_dims_t *d, void *args,                            \
				srt_kernel_place_t *places)                                        \
	{                                                                                          \
		const srt_kernel_place_t all[] = { __VA_ARGS__ };                                  \
                                                                                                   \
		(void)d;                                                                           \
		memcpy(args, &(const type){ UNWRAP init }, sizeof(type));                          \
		memcpy(places, all, sizeof(all));                                                  \
	}
#include "kernels/cases/cases.def"

const srt_kernel_case_t srt_kernel_cases[SRT_CASE_COUNT] = {
#define CASE(name, NAME, FAMILY, type, init, ...)                                                  \
	{ #name, SRT_K_##NAME, &family_##FAMILY, make_##name },
#include "kernels/cases/cases.def"
};

#undef R
#undef N
#undef K
#undef B

const uint64_t srt_kernel_selftest_digests[SRT_CASE_COUNT][SRT_KERNEL_NDTYPES] = {
#define f32 SRT_F32
#define f16 SRT_F16
#define bf16 SRT_BF16
#define DIGEST(name, dtype, selftest, quick, more) [SRT_CASE_##name][dtype] = selftest,
#include "kernels/cases/digests.def"
#undef f32
#undef f16
#undef bf16
};

/* ---- a launch ------------------------------------------------------------------------------ */
static bool is_written(const srt_kernel_run_t *run, int i)
{
	return strchr("WXwx", srt_kernel_info(run->c->kernel)->access[i]) != NULL;
}

void srt_kernel_run_init(srt_kernel_run_t *run, const srt_kernel_case_t *c, srt_dtype_t dtype,
			 const srt_kernel_dims_t *dims, bool shifted)
{
	size_t used = 0;

	*run = (srt_kernel_run_t){ .c = c,
				   .dtype = dtype,
				   .nplaces = srt_kernel_info(c->kernel)->nplaces };
	c->make(dims, run->args, run->places);
	run->ngroups = srt_kernel_grid(c->kernel, run->args);
	for (int i = 0; i < run->nplaces; i++) {
		bool is_tensor = strchr("Bd", run->places[i].type) == NULL;
		size_t width = srt_kernel_place_width(&run->places[i], dtype);

		run->offset[i] = used + GUARD + (is_tensor && shifted ? width : 0);
		used = srt_align_up(run->offset[i] +
					    srt_kernel_place_nbytes(&run->places[i], dtype),
				    64);
	}
	run->nbytes = used + GUARD;
}

void srt_kernel_run_fill(const srt_kernel_run_t *run, srt_kernel_input_t input, bool found_inf,
			 unsigned char *bytes)
{
	unsigned char *next = NULL;

	memset(bytes, PATTERN, run->nbytes);
	for (int i = run->nplaces; i-- > 0;) {
		srt_kernel_place_fill(run->c, i, run->places, run->dtype, input, found_inf,
				      bytes + run->offset[i], next);
		next = bytes + run->offset[i];
	}
}

void srt_kernel_run_canonical(const srt_kernel_run_t *run, unsigned char *bytes)
{
	for (int i = 0; i < run->nplaces; i++)
		if (is_written(run, i))
			srt_kernel_place_canonical(&run->places[i], run->dtype,
						   bytes + run->offset[i]);
}

uint64_t srt_kernel_digest(uint64_t h, const unsigned char *p, size_t nbytes)
{
	for (; nbytes >= 8; nbytes -= 8, p += 8) {
		uint64_t u;

		memcpy(&u, p, 8);
		h = (h ^ u) * 0x100000001b3u;
		h ^= h >> 32;
	}
	for (; nbytes; nbytes--)
		h = (h ^ *p++) * 0x100000001b3u;
	return h;
}

uint64_t srt_kernel_run_digest(const srt_kernel_run_t *run, uint64_t h, const unsigned char *bytes)
{
	for (int i = 0; i < run->nplaces; i++)
		if (is_written(run, i))
			h = srt_kernel_digest(h, bytes + run->offset[i],
					      srt_kernel_place_nbytes(&run->places[i], run->dtype));
	return h;
}
