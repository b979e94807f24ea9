/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The optimizer over a list of views with states in 8 bits, against the rule of bitsandbytes in
 * plain C: values and states of several steps, bit for bit; states read and set; lists that
 * are refused. Runs on every backend.
 */
#include <math.h>

#include <shardrt/shardrt.h>

#include "kernels/dialect/codes.h"
#include "tests/harness/bits.h"
#include "tests/harness/device.h"
#include "tests/harness/options.h"

#define ROWS 20
#define ROW 300 /* blocks of 256 and 44 */
#define NELEM (ROWS * ROW)
#define SMALL 100 /* elements of a parameter whose states are fp32 */
#define STEPS 5

static srt_device_t *device;
static srt_stream_t *stream;
static const srt_optim_options_t adamw8 = { .size = sizeof(adamw8),
					    .kind = SRT_OPTIM_ADAMW,
					    .lr = 0.0078125f,
					    .weight_decay = 0.125f,
					    .state_bits = 8,
					    ADAM_BASE };

/* A parameter in plain C: fp32 moments, after each step those that codes have. */
typedef struct plain {
	float w[NELEM], g[NELEM], state[2][NELEM];
	int64_t nelem;
	double power[2]; /* of the betas */
} plain_t;

/* What y, the share of a block's largest magnitude, becomes: the nearest value; at the mean of two,
 * in fp32, the one nearer to 0. */
static float round_share(int k, float y)
{
	const int zero = k == 0 ? 127 : 0, last = y < 0.0f ? zero : 255 - zero;
	float best = 0.0f;

	for (int c = 1; c <= last; c++) {
		const float next = k == 0 ? k_signed_value(zero + c) : k_unsigned_value(c);

		if (fabsf(y) > 0.5f * (best + next))
			best = next;
	}
	return y < 0.0f && best > 0.0f ? -best : best;
}

static float round_element(int k, float x, float top)
{
	const float share = top > 0.0f ? round_share(k, x / top) : 0.0f;

	/* an exp_avg_sq above 0 is not 0 */
	return (k == 1 && x > 0.0f && share == 0.0f ? k_unsigned_value(1) : share) * top;
}

static void round_blocks(plain_t *p, int k)
{
	for (int64_t row = 0; row < p->nelem; row += ROW) {
		for (int64_t at = 0; at < ROW; at += 256) {
			const int64_t n = ROW - at < 256 ? ROW - at : 256;
			float *x = p->state[k] + row + at, top = 0.0f;

			for (int64_t i = 0; i < n; i++)
				top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
			for (int64_t i = 0; i < n; i++)
				x[i] = round_element(k, x[i], top);
		}
	}
}

static void step_plain(plain_t *p, bool in_8_bits)
{
	const float lr = adamw8.lr, decay = adamw8.weight_decay;
	float bias[2];

	p->power[0] *= adamw8.beta1;
	p->power[1] *= adamw8.beta2;
	for (int k = 0; k < 2; k++)
		bias[k] = (float)(1.0 - p->power[k]);
	for (int64_t i = 0; i < p->nelem; i++) {
		float *m = &p->state[0][i], *v = &p->state[1][i];
		float w = p->w[i] - lr * decay * p->w[i];

		*m = fmaf((float)(1.0 - adamw8.beta1), p->g[i] - *m, *m);
		*v = (float)adamw8.beta2 * *v + (float)(1.0 - adamw8.beta2) * p->g[i] * p->g[i];
		p->w[i] = w - lr / bias[0] * *m / (sqrtf(*v) / sqrtf(bias[1]) + adamw8.eps);
	}
	for (int k = 0; in_8_bits && k < 2; k++)
		round_blocks(p, k);
}

/* ---- a list of both ----------------------------------------------------------------------- */

typedef struct list {
	srt_buffer_t *values, *grads;
	srt_optim_param_t param[2];
	srt_optim_t *optim;
	plain_t plain[2];
} list_t;

static const char *const names[] = { "coded", "small" };

static void upload(srt_view_t view, const float *x, int64_t nelem)
{
	CHECK_OK(srt_buffer_copy_from_host(view.buffer, view.offset, x,
					   (size_t)nelem * sizeof(float), stream));
}

static float draw(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (float)(int32_t)(*seed & 0xffffff00u) * 0x1p-31f;
}

static void create(list_t *list)
{
	uint32_t seed = 5;
	size_t at = 0;

	memset(list, 0, sizeof(*list));
	list->plain[0].nelem = NELEM;
	list->plain[1].nelem = SMALL;
	list->values = test_buffer(device, (NELEM + SMALL) * sizeof(float), "values");
	list->grads = test_buffer(device, (NELEM + SMALL) * sizeof(float), "gradients");
	for (int i = 0; i < 2; i++) {
		srt_optim_param_t *p = &list->param[i];
		plain_t *plain = &list->plain[i];

		*p = (srt_optim_param_t)SRT_OPTIM_PARAM_INIT;
		p->name = names[i];
		p->nelem = plain->nelem;
		p->row_nelem = i == 0 ? ROW : 0;
		p->value = srt_view(list->values, at, SRT_F32);
		p->grad = srt_view(list->grads, at, SRT_F32);
		at += (size_t)p->nelem * sizeof(float);
		plain->power[0] = plain->power[1] = 1.0;
		for (int64_t e = 0; e < p->nelem; e++)
			plain->w[e] = draw(&seed);
		upload(p->value, plain->w, p->nelem);
	}
	CHECK_OK_OR_DIE(srt_optim_create(device, &adamw8, 1, list->param, 2, &list->optim, stream));
}

static void destroy(list_t *list)
{
	CHECK_OK(srt_stream_sync(stream));
	srt_optim_destroy(list->optim);
	srt_buffer_destroy(list->values);
	srt_buffer_destroy(list->grads);
}

static void check_results(const list_t *list)
{
	static float got[NELEM];

	for (size_t i = 0; i < 2; i++) {
		const plain_t *plain = &list->plain[i];
		const srt_view_t value = list->param[i].value;

		CHECK_OK(srt_buffer_copy_to_host(got, value.buffer, value.offset,
						 (size_t)plain->nelem * sizeof(float), stream));
		CHECK_BITS(got, plain->w, plain->nelem);
		for (size_t k = 0; k < 2; k++) {
			CHECK_OK(srt_optim_get_state(list->optim, i, k, got, stream));
			CHECK_BITS(got, plain->state[k], plain->nelem);
		}
	}
}

static void step(list_t *list, int number)
{
	uint32_t seed = 77u + (uint32_t)number;

	for (int i = 0; i < 2; i++) {
		plain_t *plain = &list->plain[i];

		for (int64_t e = 0; e < plain->nelem; e++) {
			const float x = draw(&seed);

			plain->g[e] = e % 7 == 0 ? 0.0f : x * x * x; /* of many magnitudes */
		}
		upload(list->param[i].grad, plain->g, plain->nelem);
		step_plain(plain, i == 0);
	}
	CHECK_OK(srt_optim_step(list->optim, stream));
}

static void test_steps(void)
{
	static list_t list;

	create(&list);
	for (int s = 0; s < STEPS; s++) {
		step(&list, s);
		check_results(&list);
	}
	destroy(&list);
}

/* States that were read are set in another optimizer, which has the same then; other values become
 * the nearest codes. */
static void test_states(void)
{
	static list_t list, other;
	static float x[NELEM], got[NELEM];

	create(&list);
	create(&other);
	for (int s = 0; s < 2; s++)
		step(&list, s);
	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < 2; k++) {
			CHECK_OK(srt_optim_get_state(list.optim, i, k, x, stream));
			CHECK_OK(srt_optim_set_state(other.optim, i, k, x, stream));
			CHECK_OK(srt_optim_get_state(other.optim, i, k, got, stream));
			CHECK_BITS(got, x, list.param[i].nelem);
		}
	for (int e = 0; e < NELEM; e++)
		x[e] = other.plain[0].state[0][e] = e % 11 == 3 ? -0.3f : (float)e * 1e-7f;
	round_blocks(&other.plain[0], 0);
	CHECK_OK(srt_optim_set_state(other.optim, 0, 0, x, stream));
	CHECK_OK(srt_optim_get_state(other.optim, 0, 0, got, stream));
	CHECK_BITS(got, other.plain[0].state[0], NELEM);
	destroy(&list);
	destroy(&other);
}

static void check_refused(list_t *list, const srt_optim_options_t *options, srt_status_t status,
			  const char *words)
{
	srt_optim_t *optim;

	CHECK_STATUS(srt_optim_create(device, options, 1, list->param, 2, &optim, stream), status);
	CHECK_ERROR_HAS(words);
}

static void test_refused(void)
{
	static list_t list;
	srt_optim_options_t o = adamw8;
	srt_view_t view;
	float x;

	create(&list);
	CHECK_STATUS(srt_optim_state(list.optim, 0, 0, &view), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("states of parameter 'coded' are in 8 bits");
	CHECK_OK(srt_optim_state(list.optim, 1, 0, &view));
	CHECK_STATUS(srt_optim_get_state(list.optim, 0, 2, &x, stream), SRT_ERR_NOT_FOUND);
	o.amsgrad = 1;
	check_refused(&list, &o, SRT_ERR_UNSUPPORTED, "amsgrad and state_bits 8");
	o.amsgrad = 0;
	o.state_bits = 4;
	check_refused(&list, &o, SRT_ERR_INVALID_ARGUMENT, "state_bits is 4");
	o = (srt_optim_options_t)SRT_OPTIM_SGD_INIT;
	o.state_bits = 8;
	check_refused(&list, &o, SRT_ERR_INVALID_ARGUMENT, "state_bits is 8, but the optimizer");
	list.param[0].row_nelem = 7;
	check_refused(&list, &adamw8, SRT_ERR_INVALID_ARGUMENT, "must be whole rows");
	list.param[0].row_nelem = ROW;
	list.param[1].state[0] = list.param[1].grad;
	check_refused(&list, &adamw8, SRT_ERR_UNSUPPORTED, "state 0 of parameter 'small' is given");
	destroy(&list);
}

int main(void)
{
	CHECK_OK_OR_DIE(test_open_device(test_backend(), NULL, 0, &device));
	stream = test_stream(device, "test");
	test_steps();
	test_states();
	test_refused();
	srt_stream_destroy(stream);
	srt_device_close(device);
	return check_done();
}
