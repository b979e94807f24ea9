/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products of a layer of gpt2-124m, y = x W^T, and of its backward pass; see bench.h. */
#include <stdio.h>
#include <string.h>

#include <shardrt/ops.h>

#include "models/try.h"
#include "tools/info/bench.h"

enum { TOKENS = 256, IN = 768, OUT = 3072 };
enum { X, Y, W, OPERANDS };

static const int64_t nelem[OPERANDS] = { TOKENS * IN, TOKENS *OUT, OUT *IN };

static const struct form {
	const char *name;
	int64_t m, n, k;
	int trans_a, trans_b, a, b, c;
} forms[] = {
	{ "y = x W^T", TOKENS, OUT, IN, 0, 1, X, W, Y },
	{ "dx = dy W", TOKENS, IN, OUT, 0, 0, Y, W, X },
	{ "dW = dy^T x", OUT, IN, TOKENS, 1, 0, Y, X, W },
};

srt_status_t bench_start_product(bench_t *b, void *arg)
{
	return srt_op_matmul(arg, b->stream);
}

/* In fast mode the multiply-adds of fp32 are no limit: the processor has faster ones. */
static srt_status_t run_dtype(bench_t *b, bool is_fast, srt_dtype_t dtype,
			      srt_buffer_t *operands[OPERANDS])
{
	for (int i = 0; i < OPERANDS; i++) {
		SRT_TRY(srt_buffer_create(b->device, SRT_MEM_DEVICE,
					  (size_t)nelem[i] * sizeof(float), "operand",
					  &operands[i]));
		SRT_TRY(srt_op_fill(srt_view(operands[i], 0, dtype), 0.5f, nelem[i], b->stream));
	}
	for (const struct form *f = forms; f < forms + 3; f++) {
		srt_matmul_t mm = SRT_MATMUL_INIT;
		char name[48];
		const bench_row_t row = {
			name,
			bench_start_product,
			&mm,
			2.0 * (double)(f->m * f->n * f->k),
			true,
			b->flops,
			is_fast ? 0.0 : 0.7,
		};

		snprintf(name, sizeof(name), "product %s %s, %s",
			 dtype == SRT_F32 ? "fp32" : "bf16", is_fast ? "fast" : "exact", f->name);
		mm.m = f->m, mm.n = f->n, mm.k = f->k;
		mm.trans_a = f->trans_a, mm.trans_b = f->trans_b;
		mm.a = srt_view(operands[f->a], 0, dtype);
		mm.b = srt_view(operands[f->b], 0, dtype);
		mm.c = srt_view(operands[f->c], 0, dtype);
		SRT_TRY(bench_measure(b, &row, NULL));
	}
	return SRT_OK;
}

static srt_status_t measure_mode(bench_t *b, bool is_fast)
{
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_BF16 };
	srt_status_t status = SRT_OK;

	for (int t = 0; t < 2 && status == SRT_OK; t++) {
		srt_buffer_t *operands[OPERANDS] = { NULL };

		status = run_dtype(b, is_fast, dtypes[t], operands);
		for (int i = 0; i < OPERANDS; i++)
			srt_buffer_destroy(operands[i]);
	}
	return status;
}

/* Another device of this rank, in fast mode. Only the cpu has one that several ranks can open. */
static srt_status_t measure_fast(bench_t *b)
{
	const srt_context_options_t options = { .size = sizeof(options),
						.backend = b->info.backend,
						.bootstrap = "",
						.threads = b->info.threads,
						.numerics = SRT_NUMERICS_FAST,
						.bind = "no" };
	srt_feature_info_t feature = SRT_FEATURE_INFO_INIT;
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;
	bench_t fast = *b;
	int lacks, rank;
	srt_context_t *context;
	srt_status_t status;

	SRT_TRY(srt_context_create(&options, &context));
	fast.device = srt_context_device(context);
	fast.stream = NULL;
	status = srt_device_get_info(fast.device, &info);
	if (status == SRT_OK)
		status = tool_find_largest(&b->ranks, "on faster kernels", !info.fast, &lacks,
					   &rank);
	if (status == SRT_OK && !lacks) {
		status = srt_stream_create(fast.device, 0, "fast", &fast.stream);
		if (status == SRT_OK)
			status = measure_mode(&fast, true);
	} else if (status == SRT_OK && info.fast) {
		snprintf(b->fast_why, sizeof(b->fast_why), "rank %d has no faster kernels", rank);
	} else if (status == SRT_OK) {
		snprintf(b->fast_why, sizeof(b->fast_why), "this device has no faster kernels");
		if (strcmp(info.backend, "cpu") == 0 &&
		    srt_feature_get_info(SRT_FEATURE_ONEDNN, &feature) == SRT_OK)
			snprintf(b->fast_why, sizeof(b->fast_why), "%s", feature.why_missing);
	}
	srt_stream_destroy(fast.stream);
	srt_context_destroy(context);
	return status;
}

srt_status_t bench_products(bench_t *b)
{
	SRT_TRY(measure_mode(b, false));
	if (strcmp(b->info.backend, "cpu") == 0 || b->ranks.world == 1)
		return measure_fast(b);
	snprintf(b->fast_why, sizeof(b->fast_why), "measured with one rank only");
	return SRT_OK;
}
