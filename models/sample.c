/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Choosing a token: sums of probabilities are in double, in the order of the tokens or, where some
 * are left out, from the likeliest on; so a choice depends on the row and the random bits alone.
 */
#include "models/sample.h"

#include <fenv.h>
#include <stdlib.h>

#include "models/hash.h"
#include "models/try.h"

struct srt_sampler {
	float *row;      /* (vocab) */
	int32_t *tokens; /* (vocab): a heap, the likeliest first; then those taken from it */
};

srt_status_t srt_sampler_create(int64_t vocab, srt_sampler_t **sampler)
{
	srt_sampler_t *s = calloc(1, sizeof(*s));

	if (s != NULL) {
		s->row = calloc((size_t)vocab, sizeof(*s->row));
		s->tokens = calloc((size_t)vocab, sizeof(*s->tokens));
	}
	if (s == NULL || s->row == NULL || s->tokens == NULL) {
		srt_sampler_destroy(s);
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory to choose from %lld tokens",
				      (long long)vocab);
	}
	*sampler = s;
	return SRT_OK;
}

void srt_sampler_destroy(srt_sampler_t *sampler)
{
	if (sampler == NULL)
		return;
	free(sampler->row);
	free(sampler->tokens);
	free(sampler);
}

float *srt_sampler_row(srt_sampler_t *sampler)
{
	return sampler->row;
}

/* Whether token a is likelier than b. */
static int is_likelier(const float *row, int32_t a, int32_t b)
{
	const int a_is_nan = row[a] != row[a], b_is_nan = row[b] != row[b];

	if (a_is_nan || b_is_nan)
		return a_is_nan == b_is_nan ? a < b : b_is_nan;
	return row[a] > row[b] || (row[a] == row[b] && a < b);
}

static int32_t find_likeliest(const float *row, int64_t n)
{
	int32_t best = 0;

	for (int32_t t = 1; t < n; t++)
		if (is_likelier(row, t, best))
			best = t;
	return best;
}

/* ---- the likeliest tokens ---------------------------------------------------------------- */

/* Moves heap[i] down to where the heap of n tokens has its order. */
static void sift(const float *row, int32_t *heap, int64_t n, int64_t i)
{
	for (int64_t child; (child = 2 * i + 1) < n; i = child) {
		const int32_t token = heap[i];

		if (child + 1 < n && is_likelier(row, heap[child + 1], heap[child]))
			child++;
		if (!is_likelier(row, heap[child], token))
			return;
		heap[i] = heap[child];
		heap[child] = token;
	}
}

/* The k likeliest tokens, the likeliest at the end: tokens[n - k .. n). Stops early where their
 * probabilities have the given sum. @return how many they are, at least one. */
static int64_t take_likeliest(const srt_sampler_t *s, int64_t n, int64_t k, double enough)
{
	double sum = 0.0;
	int64_t taken = 0;

	for (int32_t t = 0; t < n; t++)
		s->tokens[t] = t;
	for (int64_t i = n / 2 - 1; i >= 0; i--)
		sift(s->row, s->tokens, n, i);
	while (taken == 0 || (taken < k && sum < enough)) {
		const int32_t token = s->tokens[0];

		taken++;
		s->tokens[0] = s->tokens[n - taken];
		s->tokens[n - taken] = token;
		sift(s->row, s->tokens, n - taken, 0);
		sum += (double)s->row[token];
	}
	return taken;
}

/* The sum of the probabilities of the first n tokens, or of `tokens` from the last one on. */
static double sum_up(const float *row, const int32_t *tokens, int64_t n)
{
	double sum = 0.0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)row[tokens != NULL ? tokens[n - 1 - i] : i];
	return sum;
}

/* The first token at which the running sum exceeds u (0 <= u < 1) of the total; the likeliest one
 * where probabilities are NaN. */
static int32_t draw(const float *row, const int32_t *tokens, int64_t n, uint64_t bits)
{
	const double u = (double)(bits >> 11) * 0x1p-53 * sum_up(row, tokens, n);
	double sum = 0.0;

	for (int64_t i = 0; i < n; i++) {
		const int32_t token = tokens != NULL ? tokens[n - 1 - i] : (int32_t)i;

		sum += (double)row[token];
		if (sum > u)
			return token;
	}
	return tokens != NULL ? tokens[n - 1] : find_likeliest(row, n);
}

static int32_t draw_limited(const srt_sampler_t *s, const srt_sampling_t *sampling, int64_t n,
			    uint64_t bits)
{
	const int is_all = sampling->top_k == 0 || sampling->top_k >= n;
	const int has_sum = sampling->top_p > 0.0f && sampling->top_p < 1.0f;
	const int64_t k = is_all ? n : sampling->top_k;
	const double all = 2.0 * (double)n; /* more than any sum */
	int64_t taken;
	double sum;

	if (is_all && !has_sum)
		return draw(s->row, NULL, n, bits);
	taken = is_all ? n : take_likeliest(s, n, k, all);
	if (has_sum) {
		sum = sum_up(s->row, is_all ? NULL : s->tokens + n - taken, taken);
		taken = take_likeliest(s, n, k, sum * (double)sampling->top_p);
	}
	return draw(s->row, s->tokens + n - taken, taken, bits);
}

int32_t srt_sampler_choose(srt_sampler_t *s, const srt_sampling_t *sampling, int64_t n,
			   uint64_t key, uint64_t position)
{
	volatile int32_t token; /* written before the environment is restored */
	fenv_t env;

	if (srt_is_greedy(sampling))
		return find_likeliest(s->row, n);
	fegetenv(&env);
	fesetenv(FE_DFL_ENV);
	token = draw_limited(s, sampling, n, srt_counter_hash(sampling->seed, key, position));
	fesetenv(&env);
	return token;
}
