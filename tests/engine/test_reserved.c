/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reserved fields: every public struct that ends in them is refused with a sentence that names the
 * struct and the field if one is not zero, and accepted if all are zero. The library writes zeros
 * to those of the structs that it fills. test_reserved_ops.c has the structs of sharded
 * tensors.
 */
#include <string.h>

#include <shardrt/shardrt.h>

#include "tests/engine/reserved_case.h"
#include "tests/harness/check.h"

static srt_context_t *context;
static srt_stream_t *stream;

/* The functions call with reserved[i] = value. */

}

static srt_status_t call_scaler_options(int i, uint64_t value)
{
	srt_scaler_options_t options = { .growth_interval = 1 };
	srt_scaler_t *made = NULL;
	srt_status_t status;

	options.reserved[i] = value;
	status = srt_scaler_create(context, &options, &made);
	srt_scaler_destroy(made);
	return status;
}

static srt_status_t call_scaler_state(int i, uint64_t value)
{
	srt_scaler_state_t state;
	srt_scaler_t *scaler;
	srt_status_t status;

	CHECK_OK_OR_DIE(srt_scaler_create(context, NULL, &scaler));
	CHECK_OK(srt_scaler_get_state(scaler, stream, &state));
	state.reserved[i] = value;
	status = srt_scaler_set_state(scaler, &state, stream);
	CHECK_OK(srt_stream_sync(stream));
	srt_scaler_destroy(scaler);
	return status;
}

static srt_status_t scale_output(const srt_scaler_output_t *output)
{
	srt_scaler_t *scaler;
	srt_status_t status;

	CHECK_OK_OR_DIE(srt_scaler_create(context, NULL, &scaler));
	status = srt_scaler_scale(scaler, output, 1, stream);
	CHECK_OK(srt_stream_sync(stream));
	srt_scaler_destroy(scaler);
	return status;
}

static srt_status_t call_scaler_output(int i, uint64_t value)
{
	srt_scaler_output_t output = { .ndim = 1 };

	output.reserved[i] = value;
	return scale_output(&output);
}

static srt_status_t unscale_grad(const srt_scaler_grad_t *grad)
{
	srt_scaler_t *scaler;
	srt_buffer_t *state;
	srt_status_t status;

	CHECK_OK_OR_DIE(srt_scaler_create(context, NULL, &scaler));
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE,
					  sizeof(srt_step_state_t), "state", &state));
	srt_scaler_view(scaler);
	status = srt_scaler_unscale_grads(scaler, srt_view(state, 0, SRT_U8), grad, 1, stream);
	CHECK_OK(srt_stream_sync(stream));
	srt_scaler_destroy(scaler);
	srt_buffer_destroy(state);
	return status;
}

static srt_status_t call_scaler_grad(int i, uint64_t value)
{
	srt_scaler_grad_t grad = { .name = "w" };

	grad.reserved[i] = value;
	return unscale_grad(&grad);
}

static srt_status_t call_scaler_sparse(int i, uint64_t value)
{
	srt_scaler_sparse_t sparse = { .coo = { .block = 1, .ndim = 1, .shape = { 1 } } };
	const srt_scaler_grad_t grad = { .name = "w", .sparse = &sparse };

	sparse.reserved[i] = value;
	return unscale_grad(&grad);
}

/* Each fills a struct whose bytes were not zero, and returns the reserved fields. */

}

static const struct {
	const char *type;
	const uint64_t *(*fill)(void *memory);
} results[] = {
};

/* Structs that the library fills can grow into their reserved fields, which are zero till then. */
static void check_results(void)
{
	static uint64_t memory[512];

	for (size_t s = 0; s < sizeof(results) / sizeof(results[0]); s++) {
		const uint64_t *reserved;

		memset(memory, 0xff, sizeof(memory));
		reserved = results[s].fill(memory);
		for (int i = 0; i < 4; i++)
			CHECK_MSG(reserved[i] == 0, "%s.reserved[%d]", results[s].type, i);
	}
}

static const reserved_case_t structs[] = {
	{ "srt_scaler_output_t", call_scaler_output },
	{ "srt_scaler_grad_t", call_scaler_grad },
	{ "srt_scaler_sparse_t", call_scaler_sparse },
	{ "srt_scaler_options_t", call_scaler_options },
	{ "srt_scaler_state_t", call_scaler_state },
};

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	reserved_check(structs, sizeof(structs) / sizeof(structs[0]));
	check_results();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
