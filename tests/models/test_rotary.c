/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frequencies and tables of rotary embeddings: against the math library and frequencies recorded
 * from transformers 5.24; with the same bits on every machine and in every rounding mode; what is
 * refused.
 */
#include <fenv.h>
#include <math.h>
#include <stdlib.h>

#include <shardrt/models/rotary.h>

#include "tests/harness/bits.h"
#include "tests/harness/check.h"

static int64_t ulps_between(float a, float b)
{
	int32_t i, j;

	memcpy(&i, &a, sizeof(i));
	memcpy(&j, &b, sizeof(j));
	i = i < 0 ? INT32_MIN - i : i;
	j = j < 0 ? INT32_MIN - j : j;
	return llabs((int64_t)i - j);
}

/* The bases of published models. */
static void test_frequencies(void)
{
	static const float bases[] = { 1.0f, 10000.0f, 100000.0f, 500000.0f, 1e6f, 1e7f, 3e38f };
	static const int64_t dims[] = { 2, 4, 10, 64, 80, 128, 256 };

	for (int b = 0; b < 7; b++) {
		for (int d = 0; d < 7; d++) {
			srt_rope_t rope = SRT_ROPE_INIT;
			float got[128];

			rope.base = bases[b];
			rope.dim = dims[d];
			CHECK_OK(srt_rope_inv_freq(&rope, got));
			for (int64_t i = 0; i < dims[d] / 2; i++) {
				const float power = (float)(2 * i) / (float)dims[d];
				const float want = (float)pow((double)bases[b], -(double)power);

				CHECK_MSG(ulps_between(got[i], want) <= 1, "base %g, %lld of %lld",
					  (double)bases[b], (long long)i, (long long)dims[d]);
			}
		}
	}
}

typedef struct recorded {
	srt_rope_t rope;
	float inv_freq[8];
} recorded_t;

/* Computed in fp32 there. */
static void test_recorded(void)
{
	static const recorded_t cases[] = {
		{ { .size = sizeof(srt_rope_t),
		    .base = 500000.0f,
		    .dim = 16,
		    .kind = SRT_ROPE_LLAMA3,
		    .factor = 8.0f,
		    .low = 1.0f,
		    .high = 4.0f,
		    .old_context = 64 },
		  { 0x1p+0f, 0x1.453c18p-4f, 0x1.341190p-8f, 0x1.ddee9ep-11f, 0x1.72ba42p-13f,
		    0x1.1f91f0p-15f, 0x1.be2188p-18f, 0x1.5a0f4ep-20f } },
		{ { .size = sizeof(srt_rope_t),
		    .base = 1e6f,
		    .dim = 16,
		    .kind = SRT_ROPE_LINEAR,
		    .factor = 8.0f },
		  { 0x1p-3f, 0x1.6c310ep-6f, 0x1.030dc6p-8f, 0x1.708938p-11f, 0x1.0624dep-13f,
		    0x1.74eea6p-16f, 0x1.094564p-18f, 0x1.796182p-21f } },
		{ { .size = sizeof(srt_rope_t), .base = 1e6f, .dim = 12 },
		  { 0x1p+0f, 0x1.999998p-4f, 0x1.47ae12p-7f, 0x1.0624dep-10f, 0x1.a36e26p-14f,
		    0x1.4f8b60p-17f } },
	};

	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		float got[8];

		CHECK_OK(srt_rope_inv_freq(&cases[k].rope, got));
		for (int64_t i = 0; i < cases[k].rope.dim / 2; i++)
			CHECK_MSG(ulps_between(got[i], cases[k].inv_freq[i]) <= 1,
				  "case %zu, %lld: %a, recorded %a", k, (long long)i,
				  (double)got[i], (double)cases[k].inv_freq[i]);
	}
}

static void test_tables(void)
{
	enum { POSITIONS = 70001, PAIRS = 8 };
	float *cosines = malloc(sizeof(float) * POSITIONS * PAIRS), inv_freq[PAIRS];
	float *sines = malloc(sizeof(float) * POSITIONS * PAIRS);
	srt_rope_t rope = SRT_ROPE_INIT;
	uint64_t h = DIGEST_START, upwards;

	CHECK_OR_DIE(cosines != NULL && sines != NULL);
	rope.dim = 2 * PAIRS;
	CHECK_OK(srt_rope_inv_freq(&rope, inv_freq));
	CHECK_OK(srt_rope_tables(&rope, POSITIONS, cosines, sines));
	for (int64_t k = 0; k < POSITIONS * PAIRS; k++) {
		const float angle = (float)(k / PAIRS) * inv_freq[k % PAIRS];

		CHECK(ulps_between(cosines[k], (float)cos((double)angle)) <= 1);
		CHECK(ulps_between(sines[k], (float)sin((double)angle)) <= 1);
	}
	h = digest_floats(digest_floats(h, cosines, POSITIONS * PAIRS), sines, POSITIONS * PAIRS);
	CHECK_MSG(h == 0x57ebcc3e88f69dd4u, "the tables have the digest 0x%016llxu",
		  (unsigned long long)h);
	fesetround(FE_UPWARD);
	CHECK_OK(srt_rope_tables(&rope, POSITIONS, cosines, sines));
	fesetround(FE_TONEAREST);
	upwards = digest_floats(digest_floats(DIGEST_START, cosines, POSITIONS * PAIRS), sines,
				POSITIONS * PAIRS);
	CHECK(upwards == h);
	free(cosines);
	free(sines);
}

/* The last positions that tables can have, whose angles are the largest. */
static void test_far_positions(void)
{
	const int64_t n = SRT_ROPE_MAX_POSITIONS;
	float *cosines = malloc(sizeof(float) * (size_t)n);
	float *sines = malloc(sizeof(float) * (size_t)n);
	srt_rope_t rope = SRT_ROPE_INIT;

	CHECK_OR_DIE(cosines != NULL && sines != NULL);
	rope.dim = 2;
	CHECK_OK(srt_rope_tables(&rope, n, cosines, sines));
	for (int64_t p = 0; p < n; p += p < n - 10000 ? 9973 : 1) {
		CHECK(ulps_between(cosines[p], (float)cos((double)p)) <= 1);
		CHECK(ulps_between(sines[p], (float)sin((double)p)) <= 1);
	}
	free(cosines);
	free(sines);
}

#define REFUSED(change, words)                                                                     \
	do {                                                                                       \
		srt_rope_t with = rope;                                                            \
		with.change;                                                                       \
		CHECK_STATUS(srt_rope_inv_freq(&with, x), SRT_ERR_INVALID_ARGUMENT);               \
		CHECK_ERROR_HAS(words);                                                            \
		CHECK_STATUS(srt_rope_tables(&with, 1, x, x + 4), SRT_ERR_INVALID_ARGUMENT);       \
	} while (0)

static void test_refused(void)
{
	srt_rope_t rope = SRT_ROPE_INIT;
	float x[8];

	rope.dim = 4;
	rope.kind = SRT_ROPE_LLAMA3;
	CHECK_OK(srt_rope_inv_freq(&rope, x));
	REFUSED(size = 0, "must be set by SRT_ROPE_INIT");
	REFUSED(dim = 0, "dim is 0");
	REFUSED(dim = 3, "dim is 3, must be even");
	REFUSED(base = 0.5f, "base is 0.5");
	REFUSED(base = NAN, "base is");
	REFUSED(kind = (srt_rope_scaling_t)3, "kind is 3");
	REFUSED(factor = 0.5f, "factor is 0.5");
	REFUSED(low = 4.0f, "needs 0 < low < high");
	REFUSED(low = 0.0f, "needs 0 < low < high");
	REFUSED(old_context = 0, "old_context 0");
	CHECK_STATUS(srt_rope_tables(&rope, -1, x, x), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_rope_tables(&rope, SRT_ROPE_MAX_POSITIONS + 1, x, x),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("they have at most 16777216");
	CHECK_OK(srt_rope_tables(&rope, 0, NULL, NULL));
}

int main(void)
{
	test_frequencies();
	test_recorded();
	test_tables();
	test_far_positions();
	test_refused();
	return check_done();
}
