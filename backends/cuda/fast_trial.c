/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tries attention on tensor cores (fast_attention.c) before a device's first use of it in a type:
 * small cases of both passes, with both head_dims, against the portable kernels on the same inputs.
 * On a stream and in memory of its own, given back at the end, whatever the caller's stream is at,
 * a recording too. The gradients are made from the portable pass's results, so that each kernel is
 * held to its own errors.
 *
 * How far an element may be off (docs/numerics.md, "Attention"): some roundings to the type, of the
 * weights and of what is stored, and what sums on tensor cores, in their order, do to a weight.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/fast.h"
#include "base/base.h"
#include "kernels/math.h"

#define VARIABLE "SHARDRT_CUDA_TUNED"
#define HEADS 2
#define MOST_ROWS 85
#define MOST (MOST_ROWS * HEADS * 128) /* elements of a tensor */
#define ALIGN ((size_t)256)
#define SCALE 2.0f
#define LEAST 0x1p-18f

/* Rows that fill no block or tile (64, 32 and 16 of them), more keys than queries and fewer. */
static const srt_attention_t cases[] = {
	{ .queries = 67, .keys = 85, .head_dim = 64, .causal = 1 },
	{ .queries = 35, .keys = 19, .head_dim = 64 },
	{ .queries = 85, .keys = 67, .head_dim = 128 },
	{ .queries = 19, .keys = 35, .head_dim = 128, .causal = 1 },
};

/* Inputs, what the kernels under trial make (OUT .. STATS), and what the portable ones do. */
enum { Q, K, V, DOUT, OUT, DQ, DK, DV, STATS, RIGHT, DSUM = RIGHT + STATS - OUT + 1, NTENSORS };
#define NINPUTS OUT
#define RIGHT_OF(tensor) ((tensor)-OUT + RIGHT)

static const char *const names[] = {
	[OUT] = "out", [DQ] = "dq", [DK] = "dk", [DV] = "dv", [STATS] = "stats"
};
static const char *const makers[] = { [OUT] = "fast_attention",
				      [DQ] = "fast_attention_q",
				      [DK] = "fast_attention_kv",
				      [DV] = "fast_attention_kv",
				      [STATS] = "fast_attention" };

/* The element furthest from what it has to be. */
typedef struct worst {
	const srt_attention_t *shape;
	int tensor;
	int64_t row, head, column;
	float is, right, ratio; /* of its error to what it may be */
} worst_t;

typedef struct fast_trial {
	srt_cuda_device_t *device;
	void *stream;
	srt_dtype_t dtype;
	srt_attention_t shape;
	float u, r;
	size_t at[NTENSORS + 1]; /* in `mem` and `bytes` */
	void *mem;
	unsigned char *bytes;
	float *inputs[NINPUTS]; /* as stored */
	float *bounds[STATS];   /* of OUT .. DV */
	worst_t worst;
} fast_trial_t;

/* ---- tensors ----------------------------------------------------------------------------- */

static int64_t rows_of(const srt_attention_t *shape, int tensor)
{
	int in = tensor >= RIGHT ? tensor - RIGHT + OUT : tensor;

	return in == K || in == V || in == DK || in == DV ? shape->keys : shape->queries;
}

static size_t nbytes_of(const srt_attention_t *shape, int tensor)
{
	const int64_t rows = rows_of(shape, tensor) * HEADS;

	if (tensor == STATS || tensor == RIGHT_OF(STATS) || tensor == DSUM)
		return (size_t)rows * 2 * sizeof(float);
	return (size_t)(rows * shape->head_dim) * sizeof(uint16_t);
}

static uint16_t half_of(srt_dtype_t dtype, float v)
{
	return dtype == SRT_F16 ? k_to_f16(v) : k_to_bf16(v);
}

static float element(const fast_trial_t *t, int tensor, int64_t i)
{
	uint16_t half;

	memcpy(&half, t->bytes + t->at[tensor] + (size_t)i * sizeof(half), sizeof(half));
	return t->dtype == SRT_F16 ? k_from_f16(half) : k_from_bf16(half);
}

static float number(const fast_trial_t *t, int tensor, int64_t i)
{
	float v;

	memcpy(&v, t->bytes + t->at[tensor] + (size_t)i * sizeof(v), sizeof(v));
	return v;
}

/* Inputs in [-1/2, 1/2]; NaN where results are to be. */
static void make_tensors(fast_trial_t *t, const srt_attention_t *shape)
{
	uint32_t state = 1;

	t->shape = *shape;
	t->shape.batch = 1;
	t->shape.heads = HEADS;
	t->shape.scale = SCALE;
	t->shape.ldq = t->shape.ldk = t->shape.ldv = HEADS * shape->head_dim;
	t->shape.lddq = t->shape.lddk = t->shape.lddv = HEADS * shape->head_dim;
	for (int i = 0; i < NTENSORS; i++)
		t->at[i + 1] = t->at[i] + srt_align_up(nbytes_of(shape, i), ALIGN);
	memset(t->bytes, 0xff, t->at[NTENSORS]);
	for (int n = 0; n < NINPUTS; n++)
		for (int64_t i = 0; i < rows_of(shape, n) * HEADS * shape->head_dim; i++) {
			uint16_t half;

			state = state * 1664525u + 1013904223u;
			half = half_of(t->dtype, (float)(int32_t)(state >> 8) * 0x1p-24f - 0.5f);
			memcpy(t->bytes + t->at[n] + (size_t)i * sizeof(half), &half, sizeof(half));
			t->inputs[n][i] = element(t, n, i);
		}
}

/* ---- on the device ----------------------------------------------------------------------- */

static srt_status_t run_portable(const fast_trial_t *t, srt_kernel_id_t kernel, const int *tensors)
{
	const srt_k_attention_t args = srt_kernel_attention_args(&t->shape);
	srt_launch_t launch = {
		.kernel = (uint16_t)kernel,
		.dtype = (uint16_t)t->dtype,
		.nplaces = srt_kernel_info(kernel)->nplaces,
		.args_nbytes = sizeof(args),
		.ngroups = srt_kernel_grid(kernel, &args),
		.args = &args,
	};

	/* Behind these: no lengths, no mask. */
	for (int i = 0; i < launch.nplaces - 2; i++)
		launch.places[i] = (srt_place_t){ .mem = t->mem, .offset = t->at[tensors[i]] };
	return srt_cuda_launch(t->stream, &launch);
}

static srt_status_t run_case(const fast_trial_t *t)
{
	static const int forward[] = { RIGHT_OF(OUT), RIGHT_OF(STATS), Q, K, V };
	static const int for_q[] = { RIGHT_OF(DQ), DOUT, Q, K, V, RIGHT_OF(STATS), DSUM };
	static const int for_kv[] = { RIGHT_OF(DK),    RIGHT_OF(DV), DOUT, Q, K, V,
				      RIGHT_OF(STATS), DSUM };
	static const int tried[] = { OUT, STATS, Q, K, V };
	static const int tried_back[] = {
		DQ, DK, DV, DOUT, RIGHT_OF(OUT), Q, K, V, RIGHT_OF(STATS), DSUM
	};
	srt_place_t places[7] = { { .mem = NULL } }, back[12] = { { .mem = NULL } };

	for (size_t i = 0; i < SRT_ARRAY_LEN(tried); i++)
		places[i] = (srt_place_t){ .mem = t->mem, .offset = t->at[tried[i]] };
	for (size_t i = 0; i < SRT_ARRAY_LEN(tried_back); i++)
		back[i] = (srt_place_t){ .mem = t->mem, .offset = t->at[tried_back[i]] };
	SRT_TRY(srt_cuda_from_host(t->stream, t->mem, 0, t->bytes, t->at[NTENSORS]));
	SRT_TRY(run_portable(t, SRT_K_ATTENTION, forward));
	SRT_TRY(srt_cuda_fast_attention(t->stream, &t->shape, t->dtype, places));
	/* It makes D, by the portable kernel. */
	SRT_TRY(srt_cuda_fast_attention_backward(t->stream, &t->shape, t->dtype, back));
	SRT_TRY(run_portable(t, SRT_K_ATTENTION_BACKWARD_Q, for_q));
	SRT_TRY(run_portable(t, SRT_K_ATTENTION_BACKWARD_KV, for_kv));
	return srt_cuda_work_ops.to_host(t->stream, t->bytes, t->mem, 0, t->at[NTENSORS]);
}

/* ---- what is allowed ---------------------------------------------------------------------- */

static float dot(const float *a, const float *b, int64_t n)
{
	float sum = 0.0f;

	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* sums += weight |x| */
static void add(float *sums, float weight, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sums[i] += weight * fabsf(x[i]);
}

/* The part of query i of a head in all sums. */
static void add_query(const fast_trial_t *t, int64_t head, int64_t i)
{
	const srt_attention_t *a = &t->shape;
	const int64_t d = a->head_dim, qi = (i * HEADS + head) * d, row = head * a->queries + i;
	const int64_t seen = a->causal && i + 1 < a->keys ? i + 1 : a->keys;
	const float m = number(t, RIGHT_OF(STATS), 2 * row);
	const float inv = 1.0f / number(t, RIGHT_OF(STATS), 2 * row + 1);
	const float dsum = number(t, DSUM, row), both = 4.0f * t->u + t->r;

	for (int64_t j = 0; j < seen; j++) {
		const int64_t kj = (j * HEADS + head) * d;
		const float s = dot(t->inputs[Q] + qi, t->inputs[K] + kj, d) * SCALE;
		const float dp = dot(t->inputs[DOUT] + qi, t->inputs[V] + kj, d);
		const float p = k_exp(s - m) * inv;
		const float ds = both * fabsf(p * (dp - dsum) * SCALE) + t->r * p;

		add(t->bounds[OUT] + qi, both * p, t->inputs[V] + kj, d);
		add(t->bounds[DV] + kj, both * p, t->inputs[DOUT] + qi, d);
		add(t->bounds[DQ] + qi, ds, t->inputs[K] + kj, d);
		add(t->bounds[DK] + kj, ds, t->inputs[Q] + qi, d);
	}
}

static void make_bounds(fast_trial_t *t)
{
	const float d = (float)t->shape.head_dim;

	t->u = t->dtype == SRT_F16 ? 0x1p-11f : 0x1p-8f;
	t->r = 2.0f * (d + 8.0f) * 0x1p-22f * (d / 4.0f) * SCALE + 0x1p-14f;
	for (int n = OUT; n <= DV; n++)
		for (int64_t i = 0; i < MOST; i++)
			t->bounds[n][i] = LEAST;
	for (int64_t head = 0; head < HEADS; head++)
		for (int64_t i = 0; i < t->shape.queries; i++)
			add_query(t, head, i);
}

/* ---- the verdict -------------------------------------------------------------------------- */

/* NaN in either is as far as can be. */
static void compare(fast_trial_t *t, const srt_attention_t *shape, int tensor, int64_t i, float is,
		    float right, float bound)
{
	const float off = fabsf(is - right) / bound, ratio = off == off ? off : INFINITY;
	const int64_t width = HEADS * shape->head_dim;

	if (!(ratio > t->worst.ratio))
		return;
	t->worst = (worst_t){ shape, tensor, .is = is, .right = right, .ratio = ratio };
	if (tensor == STATS) {
		t->worst.row = i / 2 % shape->queries;
		t->worst.head = i / 2 / shape->queries;
		t->worst.column = i % 2;
	} else {
		t->worst.row = i / width;
		t->worst.head = i % width / shape->head_dim;
		t->worst.column = i % shape->head_dim;
	}
}

static void compare_case(fast_trial_t *t, const srt_attention_t *shape)
{
	make_bounds(t);
	for (int64_t i = 0; i < 2 * HEADS * shape->queries; i++) {
		const float right = number(t, RIGHT_OF(STATS), i);

		compare(t, shape, STATS, i, number(t, STATS, i), right,
			i % 2 ? t->r * right : t->r);
	}
	for (int n = OUT; n <= DV; n++)
		for (int64_t i = 0; i < rows_of(shape, n) * HEADS * shape->head_dim; i++)
			compare(t, shape, n, i, element(t, n, i), element(t, RIGHT_OF(n), i),
				t->bounds[n][i]);
}

static srt_status_t run_cases(fast_trial_t *t)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(cases); i++) {
		make_tensors(t, &cases[i]);
		SRT_TRY(run_case(t));
		compare_case(t, &cases[i]);
	}
	return SRT_OK;
}

static srt_status_t run_in_memory(fast_trial_t *t)
{
	const srt_host_services_t *host = t->device->host;
	const size_t nbytes = NTENSORS * (MOST * sizeof(uint16_t) + ALIGN);
	const size_t nfloats = (NINPUTS + STATS - OUT) * MOST;
	float *floats = host->alloc(nfloats * sizeof(*floats));
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	for (int i = 0; floats && i < NINPUTS; i++)
		t->inputs[i] = floats + (size_t)i * MOST;
	for (int i = OUT; floats && i < STATS; i++)
		t->bounds[i] = floats + (size_t)(NINPUTS + i - OUT) * MOST;
	t->bytes = floats ? host->alloc(nbytes) : NULL;
	if (t->bytes)
		status = srt_cuda_mem_ops.alloc(t->device, SRT_MEM_DEVICE, nbytes, "self-test",
						&t->mem);
	if (status == SRT_OK) {
		status = run_cases(t);
		srt_cuda_mem_ops.free(t->device, t->mem);
	}
	host->free(t->bytes);
	host->free(floats);
	return status;
}

/* Not used, and said; or refused, where the variable asks for tuned kernels. */
static srt_status_t judge(const fast_trial_t *t)
{
	const srt_host_services_t *host = t->device->host;
	const worst_t *w = &t->worst;
	char text[256];

	snprintf(text, sizeof(text),
		 "kernel \"%s_%d\" makes %.4g of %.4g in %s at row %lld, head %lld, column %lld "
		 "(%lld queries, %lld keys%s), %.2g times the error that it may have",
		 makers[w->tensor], (int)w->shape->head_dim, (double)w->is, (double)w->right,
		 names[w->tensor], (long long)w->row, (long long)w->head, (long long)w->column,
		 (long long)w->shape->queries, (long long)w->shape->keys,
		 w->shape->causal ? ", causal" : "", (double)w->ratio);
	if (strcmp(host->config(VARIABLE), "tiled") == 0)
		return host->fail(SRT_ERR_DEVICE,
				  VARIABLE "=tiled: attention in %s on the tensor cores of %s is "
					   "wrong: %s; leave it unset",
				  srt_kernel_dtype_name(t->dtype), t->device->trial.what, text);
	host->log(SRT_LOG_WARN,
		  "attention in %s on tensor cores is not used on %s, the exact kernels are: %s",
		  srt_kernel_dtype_name(t->dtype), t->device->trial.what, text);
	return SRT_OK;
}

/* Under the lock. A trial that does not come to its end leaves no verdict. */
static srt_status_t try_type(srt_cuda_device_t *device, srt_dtype_t dtype)
{
	fast_trial_t trial = { .device = device, .dtype = dtype };
	srt_status_t status;
	bool works;

	SRT_TRY(srt_cuda_stream_ops.create(device, 0, "self-test", &trial.stream));
	((srt_cuda_stream_t *)trial.stream)->is_trial = true;
	status = run_in_memory(&trial);
	srt_cuda_stream_ops.destroy(trial.stream);
	works = trial.worst.ratio <= 1.0f;
	if (status == SRT_OK && !works)
		status = judge(&trial);
	if (status == SRT_OK)
		device->tuning.fast_state[dtype] = works ? 1 : -1;
	return status;
}

/* Whoever comes second waits for the verdict. */
srt_status_t srt_cuda_fast_try(srt_cuda_stream_t *stream, srt_dtype_t dtype)
{
	srt_cuda_tuning_t *tuning = &stream->device->tuning;
	srt_status_t status = SRT_OK;
	bool passed;

	if (stream->is_trial)
		return SRT_OK;
	pthread_mutex_lock(&tuning->lock);
	if (tuning->fast_state[dtype] == 0) {
		srt_cuda_scope_t scope = srt_cuda_enter(stream->device);

		status = try_type(stream->device, dtype);
		srt_cuda_leave(scope);
	}
	passed = tuning->fast_state[dtype] > 0;
	pthread_mutex_unlock(&tuning->lock);
	return status != SRT_OK || passed ? status : SRT_ERR_UNSUPPORTED;
}
