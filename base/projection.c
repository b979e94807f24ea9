/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random projections (projection.h) and the bound of their rounding errors.
 *
 * The bound: let the elements of a result have the rounding errors e, and the weights be w, with
 * 1 <= |w| < 2. Their projection is off by the sum of w * e. It is at most 2 |e|_1, hence at most
 * 2 sqrt(n) |e|_2; and as the signs of w are random, it exceeds 2 t |e|_2 with a probability of at
 * most 2 exp(-t^2 / 2) (Hoeffding's inequality), for t = 10 4e-22. An element whose parts have
 * magnitudes with the sum m is off by at most relative * m + absolute, and by Minkowski's
 * inequality the norm of m over a block is at most the sum of the parts' norms.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/projection.h"

#define NDEVIATIONS 10.0 /* t */

static uint32_t widen_f16(uint16_t half)
{
	const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, mantissa = half & 0x3ffu;
	const uint32_t exponent = half >> 10 & 0x1fu;
	float small = (float)mantissa * 0x1p-24f;
	uint32_t bits;

	if (exponent == 0x1fu)
		return sign | 0x7f800000u | mantissa << 13;
	if (exponent != 0)
		return sign | (exponent + 112) << 23 | mantissa << 13;
	memcpy(&bits, &small, sizeof(bits));
	return sign | bits;
}

void srt_projection_widen(float *x, const void *elements, srt_dtype_t dtype, int64_t nelem)
{
	const unsigned char *bytes = elements;

	for (int64_t i = 0; i < nelem; i++) {
		uint32_t bits;
		uint16_t half;

		if (dtype == SRT_F32) {
			memcpy(&bits, bytes + 4 * i, sizeof(bits));
		} else {
			memcpy(&half, bytes + 2 * i, sizeof(half));
			bits = dtype == SRT_F16 ? widen_f16(half) : (uint32_t)half << 16;
		}
		if ((bits & 0x7fffffffu) > 0x7f800000u)
			bits = 0x7fc00000u;
		memcpy(&x[i], &bits, sizeof(bits));
	}
}

uint64_t srt_projection_key(uint64_t step, uint64_t param)
{
	return srt_mix64(srt_mix64(0, step), param);
}

/* A random sign, and 1 plus 28 random bits: products with floats are exact. */
static double make_weight(uint64_t random)
{
	const uint64_t bits =
		(random & UINT64_C(0x800fffffff000000)) | UINT64_C(0x3ff0000000000000);
	double weight;

	memcpy(&weight, &bits, sizeof(weight));
	return weight;
}

void srt_projection_add_block(srt_projection_t *p, uint64_t key, int64_t first, const float *x,
			      int64_t nelem)
{
	srt_projection_t block = { 0 };

	for (int64_t i = 0; i < nelem; i++) {
		const double value = (double)x[i], magnitude = fabs(value);

		if (!isfinite(x[i])) {
			block.nonfinite++;
			continue;
		}
		block.sum += value * make_weight(srt_mix64(key, (uint64_t)(first + i)));
		block.norm += value * value;
		block.max = magnitude > block.max ? magnitude : block.max;
	}
	block.norm = sqrt(block.norm);
	srt_projection_add(p, &block);
}

void srt_projection_add(srt_projection_t *p, const srt_projection_t *q)
{
	p->sum += q->sum;
	p->norm += q->norm;
	p->max += q->max;
	if (q->nonfinite > p->nonfinite)
		p->nonfinite = q->nonfinite;
}

/* ---- roundings --------------------------------------------------------------------------- */

srt_rounding_t srt_rounding_none(void)
{
	/* Sums in double of a block and of up to a million parts. */
	return (srt_rounding_t){ .relative = 0x1p-32, .largest = 0x1.fffffep127 };
}

void srt_rounding_add(srt_rounding_t *rounding, srt_dtype_t dtype, int n, int nparts)
{
	/* Half an ulp of 1, half the smallest subnormal, the largest value. */
	static const struct {
		double unit, tiny, largest;
	} of[] = {
		[SRT_F32] = { 0x1p-24, 0x1p-150, 0x1.fffffep127 },
		[SRT_F16] = { 0x1p-11, 0x1p-25, 0x1.ffcp15 },
		[SRT_BF16] = { 0x1p-8, 0x1p-134, 0x1.fep127 },
	};

	for (int i = 0; i < n; i++)
		rounding->relative += (1.0 + rounding->relative) * of[dtype].unit;
	rounding->absolute += (double)n * (double)nparts * of[dtype].tiny;
	if (n > 0 && of[dtype].largest < rounding->largest)
		rounding->largest = of[dtype].largest;
}

static double smaller(double a, double b)
{
	return a < b ? a : b;
}

srt_projection_fault_t srt_projection_compare(const srt_projection_t *result,
					      const srt_projection_t *parts,
					      const srt_projection_t *old, const float divisors[2],
					      const srt_rounding_t *rounding, int64_t nelem,
					      double *error, double *bound)
{
	const double first = divisors[0] != 0.0f ? (double)divisors[0] : 1.0;
	const double both = divisors[1] != 0.0f ? (double)divisors[1] * first : first;
	/* The smallest number that a magnitude is divided by on its way. */
	const double least = smaller(1.0, smaller(first, both));
	const double root = sqrt((double)nelem);
	const double expected = parts->sum / both + old->sum;

	if (result->nonfinite < parts->nonfinite || result->nonfinite < old->nonfinite)
		return SRT_PROJECTION_LOST;
	if (parts->nonfinite > 0.0 || old->nonfinite > 0.0) /* these elements are in no sum */
		return SRT_PROJECTION_OK;
	if (result->nonfinite > 0.0)
		return (1.0 + rounding->relative) * (parts->max / least + old->max) <
				       0.99 * rounding->largest ?
			       SRT_PROJECTION_INFINITE :
			       SRT_PROJECTION_OK;
	*error = fabs(result->sum - expected);
	*bound = 2.0 * smaller(NDEVIATIONS, root) *
		 (rounding->relative * (parts->norm / both + old->norm) +
		  rounding->absolute / least * root);
	return *error <= *bound ? SRT_PROJECTION_OK : SRT_PROJECTION_WRONG;
}
