/* SPDX-License-Identifier: BSD-3-Clause */
/* How tokens are drawn: temperature, the likeliest k, the likeliest that have a sum. */
#include <stdlib.h>
#include <string.h>

#include "models/sample.h"
#include "tests/harness/check.h"

/* How often each token is drawn of probabilities 0.5, 0.25, 0.15, 0.1. */
static void count_draws(const srt_sampling_t *sampling, int *counts)
{
	static const float row[] = { 0.1f, 0.5f, 0.15f, 0.25f };
	srt_sampler_t *sampler;

	memset(counts, 0, 4 * sizeof(*counts));
	CHECK_OK_OR_DIE(srt_sampler_create(4, &sampler));
	memcpy(srt_sampler_row(sampler), row, sizeof(row));
	for (uint64_t i = 0; i < 4000; i++)
		counts[srt_sampler_choose(sampler, sampling, 4, 1, i)]++;
	srt_sampler_destroy(sampler);
}

static int is_about(int count, double share)
{
	return count > 4000 * share - 150 && count < 4000 * share + 150;
}

int main(void)
{
	int n[4];

	count_draws(&(srt_sampling_t){ .temperature = 1.0f }, n);
	CHECK(is_about(n[0], 0.1) && is_about(n[1], 0.5) && is_about(n[2], 0.15));
	count_draws(&(srt_sampling_t){ .temperature = 1.0f, .top_k = 2 }, n);
	CHECK(n[0] == 0 && n[2] == 0 && is_about(n[1], 0.5 / 0.75));
	count_draws(&(srt_sampling_t){ .temperature = 1.0f, .top_k = 1, .top_p = 0.1f }, n);
	CHECK(n[1] == 4000);
	/* the fewest that reach the sum: 0.5 + 0.25 does not reach 0.8 */
	count_draws(&(srt_sampling_t){ .temperature = 1.0f, .top_p = 0.8f }, n);
	CHECK(n[0] == 0 && is_about(n[2], 0.15 / 0.9));
	count_draws(&(srt_sampling_t){ .temperature = 1.0f, .top_p = 0.74f }, n);
	CHECK(n[0] == 0 && n[2] == 0 && is_about(n[3], 0.25 / 0.75));
	/* of the two likeliest, which have 0.75: 0.5 reaches 0.6 of that */
	count_draws(&(srt_sampling_t){ .temperature = 1.0f, .top_k = 2, .top_p = 0.6f }, n);
	CHECK(n[1] == 4000);
	count_draws(&(srt_sampling_t){ .temperature = 0.0f }, n);
	CHECK(n[1] == 4000);
	count_draws(&(srt_sampling_t){ .temperature = 1e-30f, .top_k = 2 }, n);
	CHECK(n[1] == 4000);
	return check_done();
}
