/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The elementary functions of the kernels: error bounds against the double math library, special
 * values, and the same bits from every instruction set. A sample of all bit patterns; with the
 * arguments "all" and a function's name, every one of the 2^32 (of powers, one in 101); with
 * "names", the names.
 */
#include <math.h>

#include "config.h"
#include "kernels/cpu.h"
#include "tests/harness/bits.h"
#include "tests/harness/check.h"

typedef void eval_fn(int function, const float *x, float *y, int64_t n);

eval_fn srt_math_eval_baseline;
#ifdef HAVE_AVX2
eval_fn srt_math_eval_avx2;
#endif
#ifdef HAVE_AVX512
eval_fn srt_math_eval_avx512;
#endif

static eval_fn *const evals[SRT_ISA_COUNT] = {
	[SRT_ISA_BASELINE] = srt_math_eval_baseline,
#ifdef HAVE_AVX2
	[SRT_ISA_AVX2] = srt_math_eval_avx2,
#endif
#ifdef HAVE_AVX512
	[SRT_ISA_AVX512] = srt_math_eval_avx512,
#endif
};

static double ref_sinpi(double x)
{
	return sin(M_PI * (x - 2.0 * floor(x / 2.0 + 0.5)));
}

static double ref_cospi(double x)
{
	return cos(M_PI * (x - 2.0 * floor(x / 2.0 + 0.5)));
}

static double ref_sigmoid(double x)
{
	return 1.0 / (1.0 + exp(-x));
}

static double ref_below(double x)
{
	return 0.5 * erfc(-x * M_SQRT1_2);
}

static double ref_bell(double x)
{
	return exp(-0.5 * x * x);
}

static double ref_rsqrt(double x)
{
	return 1.0 / sqrt(x);
}

static double ref_cube(double x)
{
	return x * x * x;
}

static double ref_inverse_square(double x)
{
	return 1.0 / (x * x);
}

static double ref_pow1001(double x)
{
	return pow(x, 1001.0);
}

static double ref_pow_minus_1000(double x)
{
	return pow(x, -1000.0);
}

static double ref_one(double x)
{
	(void)x;
	return 1.0;
}

/* The bounds that docs/numerics.md states. sinpi and cospi: absolute error, in units of 2^-24. */
static const struct function {
	const char *name;
	double (*reference)(double x);
	double bound;
	int absolute;
	float limit;  /* |x| up to which it is defined */
	int is_power; /* its loops are slow: a sample of all arguments has to do */
} functions[] = {
	{ "exp", exp, 1.0, 0, INFINITY, 0 },
	{ "log", log, 1.0, 0, INFINITY, 0 },
	{ "sinpi", ref_sinpi, 1.5, 1, 0x1p21f, 0 },
	{ "cospi", ref_cospi, 1.5, 1, 0x1p21f, 0 },
	{ "expm1", expm1, 1.5, 0, INFINITY, 0 },
	{ "tanh", tanh, 2.75, 0, INFINITY, 0 },
	{ "sigmoid", ref_sigmoid, 2.75, 0, INFINITY, 0 },
	{ "erf", erf, 1.25, 0, INFINITY, 0 },
	{ "normal_law", ref_below, 6.5, 0, INFINITY, 0 },
	{ "bell", ref_bell, 2.0, 0, INFINITY, 0 },
	{ "sin", sin, 1.25, 0, INFINITY, 0 },
	{ "cos", cos, 1.25, 0, INFINITY, 0 },
	{ "rsqrt", ref_rsqrt, 1.5, 0, INFINITY, 0 },
	{ "x^3", ref_cube, 1.0, 0, INFINITY, 1 },
	{ "x^-2", ref_inverse_square, 1.0, 0, INFINITY, 1 },
	{ "x^1001", ref_pow1001, 1.0, 0, INFINITY, 1 },
	{ "x^-1000", ref_pow_minus_1000, 1.0, 0, INFINITY, 1 },
	{ "x^0", ref_one, 0.0, 0, INFINITY, 1 },
};

#define NFUNCTIONS (int)SRT_ARRAY(functions)
#define SRT_ARRAY(a) (sizeof(a) / sizeof((a)[0]))
#define CHUNK 65536

/* 2^(exponent of x - 23), at least 2^-149; 0 for x = 0. */
static double unit_of(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	bits = bits >> 52 & 0x7ff;
	if (x == 0.0)
		return 0.0;
	if (bits < 1023 - 126)
		return 0x1p-149;
	bits = (bits - 23) << 52;
	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* Error in units of the last place of the exact result (of 2^-149 where that is subnormal). */
static double error_of(const struct function *f, float x, float y)
{
	double exact = f->reference((double)x);

	if (isnan(exact) || isnan(y))
		return isnan(exact) && isnan(y) ? 0.0 : HUGE_VAL;
	if (f->absolute)
		return fabs((double)y - exact) * 0x1p24;
	if (isinf(y) || isinf(exact)) /* overflow must begin where rounding to float overflows */
		return isinf(y) && (double)y == (double)(float)exact ? 0.0 :
		       fabs(exact) > 0x1.fffffep127                  ? 0.5 :
								       HUGE_VAL;
	return (double)y == exact ? 0.0 : fabs((double)y - exact) / unit_of(exact);
}

/* What functions[which] gives for special arguments, the sign of zeros included. */
static void check_values(int which, const float *x, const float *want, size_t n)
{
	float y[16];

	CHECK_OR_DIE(n <= 16);
	srt_math_eval_baseline(which, x, y, (int64_t)n);
	for (size_t i = 0; i < n; i++)
		CHECK_MSG(isnan(want[i]) ? isnan(y[i]) : bits_of(y[i]) == bits_of(want[i]),
			  "%s at %a is %a, expected %a", functions[which].name, (double)x[i],
			  (double)y[i], (double)want[i]);
}

static void check_special(void)
{
	static const float in[] = { INFINITY, -INFINITY, NAN, 0.0f, -0.0f };
	static const struct {
		const char *name;
		float want[SRT_ARRAY(in)];
	} table[] = {
		{ "exp", { INFINITY, 0, NAN, 1, 1 } },
		{ "log", { INFINITY, NAN, NAN, -INFINITY, -INFINITY } },
		{ "expm1", { INFINITY, -1, NAN, 0, -0.0f } },
		{ "tanh", { 1, -1, NAN, 0, -0.0f } },
		{ "sigmoid", { 1, 0, NAN, 0.5f, 0.5f } },
		{ "erf", { 1, -1, NAN, 0, -0.0f } },
		{ "normal_law", { 1, 0, NAN, 0.5f, 0.5f } },
		{ "bell", { 0, 0, NAN, 1, 1 } },
		{ "sin", { NAN, NAN, NAN, 0, -0.0f } },
		{ "cos", { NAN, NAN, NAN, 1, 1 } },
		{ "rsqrt", { 0, NAN, NAN, INFINITY, -INFINITY } },
		{ "x^3", { INFINITY, -INFINITY, NAN, 0, -0.0f } },
		{ "x^-2", { 0, 0, NAN, INFINITY, INFINITY } },
		{ "x^1001", { INFINITY, -INFINITY, NAN, 0, -0.0f } },
		{ "x^0", { 1, 1, 1, 1, 1 } },
	};
	static const float quarters[] = { 0.0f, 0.5f, 1.0f, 1.5f, 2.0f };
	static const float want_cos[] = { 1.0f, 0.0f, -1.0f, 0.0f, 1.0f };
	float y[SRT_ARRAY(quarters)];
	int nchecked = 0;

	for (size_t k = 0; k < SRT_ARRAY(table); k++) {
		for (int f = 0; f < NFUNCTIONS; f++) {
			if (strcmp(functions[f].name, table[k].name))
				continue;
			check_values(f, in, table[k].want, SRT_ARRAY(in));
			nchecked++;
		}
	}
	CHECK_INT(nchecked, SRT_ARRAY(table));
	srt_math_eval_baseline(3, quarters, y, SRT_ARRAY(quarters));
	for (size_t i = 0; i < SRT_ARRAY(quarters); i++)
		CHECK_MSG(y[i] == want_cos[i], "cospi(%a) = %a", (double)quarters[i], (double)y[i]);
}

/* Bit patterns first, first + stride, ... of which there are n: in all sets, against the
 * reference. */
static double check_function(int which, uint64_t stride)
{
	static float x[CHUNK], y[SRT_ISA_COUNT][CHUNK];
	const struct function *f = &functions[which];
	double worst = 0.0;
	float worst_x = 0.0f;

	for (uint64_t bits = 0; bits < 0x100000000u;) {
		int n = 0;

		for (; n < CHUNK && bits < 0x100000000u; bits += stride) {
			float v = float_of((uint32_t)bits);

			if (f->limit < INFINITY && !(fabsf(v) < f->limit))
				continue;
			x[n++] = v;
		}
		for (int isa = 0; isa < SRT_ISA_COUNT; isa++) {
			if (evals[isa] == NULL || !srt_cpu_isa_usable(isa))
				continue;
			evals[isa](which, x, y[isa], n);
			for (int i = 0; isa && i < n; i++)
				if (bits_of(y[isa][i]) != bits_of(y[0][i]) &&
				    !(isnan(y[isa][i]) && isnan(y[0][i])))
					CHECK_MSG(0, "%s(%a): %s %a, baseline %a", f->name,
						  (double)x[i], srt_cpu_isa_name(isa),
						  (double)y[isa][i], (double)y[0][i]);
		}
		for (int i = 0; i < n; i++) {
			double e = error_of(f, x[i], y[0][i]);

			if (e > worst) {
				worst = e;
				worst_x = x[i];
			}
		}
	}
	CHECK_MSG(worst <= f->bound, "%s at %a is off by %.3f, allowed %.1f", f->name,
		  (double)worst_x, worst, f->bound);
	printf("%s: worst error %.3f %s at %a\n", f->name, worst, f->absolute ? "* 2^-24" : "ulp",
	       (double)worst_x);
	return worst;
}

int main(int argc, char **argv)
{
	int all = argc == 3 && !strcmp(argv[1], "all"), nchecked = 0;

	if (argc == 2 && !strcmp(argv[1], "names")) {
		for (int f = 0; f < NFUNCTIONS; f++)
			printf("%s\n", functions[f].name);
		return 0;
	}
	check_special();
	for (int f = 0; f < NFUNCTIONS; f++) {
		if (all && strcmp(argv[2], functions[f].name))
			continue;
		/* no error at all would mean: nothing compared */
		CHECK(check_function(f, !all                  ? 10007 :
					functions[f].is_power ? 101 :
								1) > 0.0 ||
		      functions[f].bound == 0.0);
		nchecked++;
	}
	CHECK_INT(nchecked, all ? 1 : NFUNCTIONS);
	return check_done();
}
