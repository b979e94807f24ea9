/* SPDX-License-Identifier: BSD-3-Clause */
/* The check of the loss scaler: bits, what it finds and where it says so; how the scale changes;
 * clipping in place. */
#include "runtime/ops/step.h"
#include "tests/kernels/kernel_check.h"

#include <shardrt/ops.h>

static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };
static srt_dtype_t dtype; /* of the case */

enum { FOUND_OWN, FOUND_IN_STATE, SCALE_IN_STATE };

/* where: found_inf and inv_scale by themselves, both in the state, or found_inf by itself alone. */
static void check(const float *x, int64_t n, float inv_scale, int where, float old)
{
	srt_k_elem_t args = { .nelem = n, .value = where == FOUND_OWN ? inv_scale : 77.0f };
	srt_k_step_state_t state = { .inv_scale = inv_scale, .found_inf = old, .lr = 3.0f }, after;
	float *want = kc_floats(n, NULL), found = old;

	for (int64_t i = 0; i < n; i++) {
		found = isfinite(x[i]) ? found : 1.0f;
		want[i] = half_round(dtype, x[i] * inv_scale);
	}
	after = state;
	after.found_inf = where == FOUND_IN_STATE ? found : old;
	kc_begin_as(dtype, SRT_K_UNSCALE, &args, "unscale");
	kc_out(x, want, n);
	if (where == FOUND_OWN)
		kc_absent();
	else
		kc_out_bytes(&state, &after, sizeof(state));
	if (where == FOUND_IN_STATE)
		kc_absent();
	else
		kc_out_floats(&old, &found, 1);
	kc_run();
	free(want);
}

static void test_values(int64_t n)
{
	static const float scales[] = { 1.0f, 0x1p-16f, 1.0f / 3.0f, 0x1p20f, INFINITY, 0.0f };
	float *x = kc_floats(n, kc_hard);

	for (int64_t i = 0; i < n; i++)
		x[i] = half_round(dtype, x[i]);
	for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++)
		check(x, n, scales[s], (int)(s % 3), 0.0f);
	for (int64_t i = 0; i < n; i++)
		x[i] = isfinite(x[i]) ? x[i] : 2.0f;
	for (int where = 0; where < 3; where++) {
		/* an overflow of the product is not found; what was found stays */
		check(x, n, 0x1p100f, where, 0.0f);
		check(x, n, 0.5f, where, 1.0f);
	}
	free(x);
}

/* A single one at any place of a group is found. */
static void test_places(void)
{
	enum { N = SRT_K_REDUCE_ELEMENTS + 70 };
	static const int64_t at[] = {
		0, 63, 64, SRT_K_REDUCE_ELEMENTS - 1, SRT_K_REDUCE_ELEMENTS, N - 1
	};
	static const float bad[] = { INFINITY, -INFINITY, NAN };
	float *x = kc_floats(N, NULL);

	for (size_t k = 0; k < sizeof(at) / sizeof(at[0]); k++) {
		x[at[k]] = bad[k % 3];
		check(x, N, 0.25f, FOUND_IN_STATE, 0.0f);
		x[at[k]] = 0.0f;
	}
	free(x);
}

/* One update; the block is compared as a whole. */
static void update(int is_sharded, double growth, double backoff, int interval,
		   const float values[3], int tracker, float want_scale, int want_tracker)
{
	srt_k_scaler_t args = { .interval = interval, .is_sharded = is_sharded };
	srt_k_step_state_t state = { .step = 5,
				     .scale = values[0],
				     .inv_scale = values[1],
				     .found_inf = values[2],
				     .growth_tracker = tracker };
	srt_k_step_state_t after = state;

	memcpy(&args.growth, &growth, sizeof(growth));
	memcpy(&args.backoff, &backoff, sizeof(backoff));
	after.scale = want_scale;
	after.inv_scale = (float)(1.0 / (double)want_scale);
	after.found_inf = 0.0f;
	after.growth_tracker = want_tracker;
	kc_begin(SRT_K_SCALER_UPDATE, &args, is_sharded ? "sharded" : "plain");
	kc_out_bytes(&state, &after, sizeof(state));
	kc_run();
}

static void test_update(void)
{
	static const float found[] = { 0.0f, -0.0f, 0.5f, 1.0f, 3.0f, NAN, INFINITY, -1.0f };
	static const float scales[] = { 65536.0f, 3.0f,     0.7f,    1e-42f,  0x1p-149f,
					0.0f,     0x1p127f, 3.3e38f, INFINITY };
	const double growth = 1.1, backoff = 0.9;

	for (size_t i = 0; i < 8 * sizeof(scales) / sizeof(scales[0]); i++) {
		float s = scales[i / 8], f = found[i % 8], grown = (float)((double)s * growth);
		const float values[] = { s, 77.0f, f };

		grown = isfinite(grown) ? grown : s;
		if (f != 0.0f)
			update(0, growth, backoff, 3, values, 2, (float)((double)s * backoff), 0);
		else
			update(0, growth, backoff, 3, values, 2, grown, 0);
		update(1, growth, backoff, 3, values, 2,
		       s * (f >= 1.0f ? (float)backoff : (float)growth), 0);
		if (f == 0.0f)
			update(0, growth, backoff, 3, values, 1, s, 2);
		if (!(f >= 1.0f))
			update(1, growth, backoff, 4, values, 2, s, 3);
	}
}

/* In place, then a step without a norm: the coefficient is that of a step with one. */
static void test_clip(int64_t n, float norm, float max_norm)
{
	srt_k_elem_t args = { .nelem = n, .value = max_norm };
	srt_k_step_state_t state = { .step = 5, .clip_coef = 0.5f, .grad_norm = 9.0f },
			   after = state;
	float *x = kc_floats(n, kc_hard), *want = kc_floats(n, NULL);
	float coef = max_norm > 0.0f ? max_norm / (norm + 1e-6f) : 1.0f;

	coef = coef > 1.0f ? 1.0f : coef;
	after.grad_norm = norm;
	after.clipped_by = coef;
	kc_round(dtype, x, n);
	for (int64_t i = 0; i < n; i++)
		want[i] = half_round(dtype, x[i] * coef);
	kc_begin_as(dtype, SRT_K_CLIP, &args, "clip");
	kc_out(x, want, n);
	kc_out_bytes(&state, &after, sizeof(state));
	kc_in(&norm, sizeof(norm));
	kc_run();
	free(x);
	free(want);
}

int main(void)
{
	static const float norms[] = { 2.0f, 0.5f, 0.0f, INFINITY };
	static const int64_t sizes[] = { 0, 1, 65, 2 * SRT_K_REDUCE_ELEMENTS + 5 };

	for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
		dtype = dtypes[d];
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
			test_values(sizes[s]);
		test_places();
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
			for (size_t k = 0; k < sizeof(norms) / sizeof(norms[0]); k++) {
				test_clip(sizes[s], norms[k], 1.0f);
				test_clip(sizes[s], norms[k], 0.0f);
			}
	}
	test_update();
	return kc_done();
}
