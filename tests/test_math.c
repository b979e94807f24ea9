/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The elementary functions of the kernels: error bounds against the double math library, special
 * values, and the same bits from every instruction set. A sample of all bit patterns; with the
 * argument "all", every one of the 2^32.
 */
#include <math.h>

#include "config.h"
#include "kernels/cpu.h"
#include "tests/check.h"

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

/* The bounds that docs/numerics.md states. sinpi and cospi: absolute error, in units of 2^-24. */
static const struct function {
	const char *name;
	double (*reference)(double x);
	double bound;
	int absolute;
	float limit; /* |x| up to which it is defined */
} functions[] = {
	{ "exp", exp, 1.0, 0, INFINITY },
	{ "log", log, 1.0, 0, INFINITY },
	{ "sinpi", ref_sinpi, 1.5, 1, 0x1p21f },
	{ "cospi", ref_cospi, 1.5, 1, 0x1p21f },
};

#define NFUNCTIONS (int)SRT_ARRAY(functions)
#define SRT_ARRAY(a) (sizeof(a) / sizeof((a)[0]))
#define CHUNK 65536

static uint32_t bits_of(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static float float_of(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

/* Error in units of the last place of the exact result (of 2^-149 where that is subnormal). */
static double error_of(const struct function *f, float x, float y)
{
	double exact = f->reference((double)x);
	double unit;

	if (isnan(exact) || isnan(y))
		return isnan(exact) && isnan(y) ? 0.0 : HUGE_VAL;
	if (f->absolute)
		return fabs((double)y - exact) * 0x1p24;
	if (isinf(y) || isinf(exact)) /* overflow must begin where rounding to float overflows */
		return isinf(y) && (double)y == (double)(float)exact ? 0.0 :
		       fabs(exact) > 0x1.fffffep127                  ? 0.5 :
								       HUGE_VAL;
	unit = exact == 0.0 ? 0.0 : ldexp(1.0, ilogb(exact) - 23);
	if (unit < 0x1p-149)
		unit = 0x1p-149;
	return fabs((double)y - exact) / unit;
}

static void check_special(void)
{
	static const float in[] = { INFINITY, -INFINITY, NAN,   0.0f,  -0.0f,
				    1.0f,     -1.0f,     1e30f, -1e30f };
	static const float want_exp[] = { INFINITY,       0.0f,           NAN,      1.0f, 1.0f,
					  0x1.5bf0a8p+1f, 0x1.78b564p-2f, INFINITY, 0.0f };
	static const float want_log[] = { INFINITY,       NAN, NAN, -INFINITY, -INFINITY, 0.0f, NAN,
					  0x1.144f6ap+6f, NAN };
	static const float quarters[] = { 0.0f, 0.5f, 1.0f, 1.5f, 2.0f };
	static const float want_cos[] = { 1.0f, 0.0f, -1.0f, 0.0f, 1.0f };
	float y[SRT_ARRAY(in)];

	srt_math_eval_baseline(0, in, y, SRT_ARRAY(in));
	for (size_t i = 0; i < SRT_ARRAY(in); i++)
		CHECK_MSG(isnan(want_exp[i]) ? isnan(y[i]) : y[i] == want_exp[i], "exp(%a) = %a",
			  (double)in[i], (double)y[i]);
	srt_math_eval_baseline(1, in, y, SRT_ARRAY(in));
	for (size_t i = 0; i < SRT_ARRAY(in); i++)
		CHECK_MSG(isnan(want_log[i]) ? isnan(y[i]) : y[i] == want_log[i], "log(%a) = %a",
			  (double)in[i], (double)y[i]);
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
			if (!evals[isa] || !srt_cpu_isa_usable(isa))
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
	CHECK_MSG(worst <= f->bound, "%s(%a) is off by %.3f, allowed %.1f", f->name,
		  (double)worst_x, worst, f->bound);
	printf("%s: worst error %.3f %s at %a\n", f->name, worst, f->absolute ? "* 2^-24" : "ulp",
	       (double)worst_x);
	return worst;
}

int main(int argc, char **argv)
{
	int all = argc > 1 && !strcmp(argv[1], "all");

	check_special();
	for (int f = 0; f < NFUNCTIONS; f++)
		CHECK(check_function(f, all ? 1 : 10007) >
		      0.0); /* 0 would mean: nothing compared */
	return check_done();
}
