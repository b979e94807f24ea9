/* SPDX-License-Identifier: BSD-3-Clause */
/* Mistakes of programs that SHARDRT_CHECK=1 finds. Run with it by test_engine_errors.sh. */
#include "tests/engine/engine_case.h"

static srt_context_t *context;
static int rank, world;

/* Compute that uses the gradient's memory or a view as it must not. 0: right. */
static srt_status_t faulty_step(engine_case_t *c, int fault)
{
	const int last = rank == world - 1;
	srt_status_t status = SRT_OK;
	srt_view_t kept, grad;
	int accumulate;

	CHECK_OK(srt_unit_forward_begin(c->root, c->stream));
	CHECK_OK(srt_unit_forward_begin(c->inner->parent, c->stream));
	CHECK_OK(srt_unit_forward_begin(c->inner, c->stream));
	CHECK_OK(srt_param_data(srt_engine_param_find(c->engine, "b1.inner.weight"), &kept));
	CHECK_OK(srt_unit_forward_end(c->inner, c->stream));
	CHECK_OK(srt_unit_forward_end(c->inner->parent, c->stream));
	CHECK_OK(srt_unit_forward_end(c->root, c->stream));
	CHECK_OK(srt_unit_backward_begin(c->root, c->stream));
	CHECK_OK(srt_param_grad(c->tied, &grad, &accumulate));
	CHECK_INT(accumulate, c->engine->options.clear_grads);
	if (fault == 1 && last) /* adds */
		CHECK_OK(srt_op_axpy(grad, srt_view(c->scratch, 0, SRT_F32), 1.0f, 15, c->stream));
	else if (fault == 2 &&
		 last) /* memory of a unit that was released, as own kernels read it */
		CHECK_OK(srt_buffer_copy(grad.buffer, grad.offset, kept.buffer->original,
					 kept.offset, 15 * sizeof(float), c->stream));
	else
		CHECK_OK(srt_op_fill(grad, 0.5f, 15, c->stream));
	CHECK_OK(srt_param_grad_ready(c->tied));
	status = srt_unit_backward_end(c->root, c->stream);
	return status == SRT_OK ? srt_engine_step(c->engine, c->stream) : status;
}

/*
 * Reliability: a view used after its unit, a gradient that was not cleared | worse training |
 * `SHARDRT_CHECK=1` names the parameter
 */
static void test_checks(void)
{
	char text[64];

	snprintf(text, sizeof(text), "on rank %d: the gradient of parameter 'root.weight'",
		 world - 1);
	for (int fault = 0; fault < 4; fault++) {
		srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
						 .clear_grads = fault == 3,
						 .optim = OPTIM_SGD(0.1f) };
		engine_case_t c;
		srt_status_t status;

		case_declare(&c, context, &options, 5);
		case_build(&c);
		CHECK_OK(srt_buffer_zero(c.scratch, 0, 64, c.stream));
		CHECK_OK(faulty_step(&c, 0));
		status = faulty_step(&c, fault == 3 ? 1 : fault);
		if (fault == 0 || fault == 3) {
			CHECK_OK(status);
		} else {
			CHECK_STATUS(status, SRT_ERR_STATE);
			CHECK_ERROR_HAS(text);
			CHECK_ERROR_HAS("in step 2");
		}
		case_destroy(&c);
	}
}

/*
 * Values that the last rank changes outside of srt_engine_write_begin() and _end(), through a view
 * from inside: the next call that uses them fails, and only there.
 *
 * Reliability: values written through a view of `srt_engine_write_begin()` after `_end()` | units
 * gathered before keep the old ones | `SHARDRT_CHECK=1` names the parameter and the missing call
 */
static void test_own_writes(srt_strategy_t strategy)
{
	static const char *const calls[] = { "forward pass", "srt_engine_step()", "srt_param_get()",
					     "srt_engine_write_begin()" };

	for (size_t i = 0; i < SRT_ARRAY_LEN(calls); i++) {
		engine_case_t c;
		srt_comm_t *group = case_begin(&c, context, strategy, calls[i]);
		const int writes = rank == world - 1;
		srt_status_t status = SRT_OK;
		srt_view_t value;
		float got[15];

		CHECK_OK(srt_engine_write_begin(c.engine, c.stream));
		value = test_local(c.tied, SRT_PARAM_VALUE);
		CHECK_OK(srt_op_fill(value, 2.0f, 1, c.stream)); /* is right */
		CHECK_OK(srt_engine_write_end(c.engine, c.stream));
		case_first_step(&c, context);
		if (i == 1)
			CHECK_OK(case_passes(&c, 1, 1));
		if (writes) /* without a change: is not wrong */
			CHECK_OK(srt_buffer_copy(c.scratch, 0, value.buffer, value.offset, 4,
						 c.stream));
		if (writes)
			CHECK_OK(srt_op_fill(value, 3.0f, 1, c.stream));
		if (i == 1)
			status = srt_engine_step(c.engine, c.stream);
		else if (!writes)
			;
		else if (i == 0)
			status = srt_unit_forward_begin(c.root, c.stream);
		else if (i == 2)
			status = srt_param_get(c.tied, SRT_PARAM_VALUE, got, c.stream);
		else
			status = srt_engine_write_begin(c.engine, c.stream);
		if (i == 1 || writes) {
			char text[96];

			CHECK_STATUS(status, SRT_ERR_STATE);
			snprintf(text, sizeof(text),
				 "rank %d: the values of parameter 'root.weight'", world - 1);
			CHECK_ERROR_HAS(text);
			CHECK_ERROR_HAS("call srt_engine_write_begin()");
		}
		case_end(&c, context, group);
	}
}

/* Values may change between passes, but not from the begin of a forward pass to its backward pass.
 */
static void test_own_writes_in_pass(void)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, SRT_STRATEGY_ZERO3, "pass");
	const srt_view_t value = test_local(c.tied, SRT_PARAM_VALUE);
	float got[15];

	case_first_step(&c, context);
	CHECK_OK(srt_op_fill(value, 3.0f, 1, c.stream));
	CHECK_OK(srt_param_get(c.tied, SRT_PARAM_VALUE, got, c.stream));
	CHECK_OK(srt_op_fill(value, 4.0f, 1, c.stream));
	CHECK_OK(case_forward(&c, 1));
	case_wait_for_all(context);
	if (rank == world - 1) {
		CHECK_OK(srt_op_fill(value, 5.0f, 1, c.stream));
		CHECK_STATUS(srt_unit_backward_begin(c.root, c.stream), SRT_ERR_STATE);
		CHECK_ERROR_HAS("the values of parameter 'root.weight'");
		CHECK_ERROR_HAS("change values before a forward pass");
	}
	case_end(&c, context, group);
}

static srt_status_t fill(engine_case_t *c, srt_view_t view, int64_t nelem)
{
	return srt_op_fill(view, 7.0f, nelem, c->stream);
}

/*
 * Reliability: an own kernel that changes gathered values, or their copy in bf16 | with zero2 the
 * backward pass computed with them, without a word | `SHARDRT_CHECK=1` names parameter and rank at
 * the end of the unit, or at the next begin
 */
static void test_gathered_writes(srt_strategy_t strategy, bool after_end, srt_dtype_t cast)
{
	const srt_precision_t precision = { .size = sizeof(precision), .param = cast };
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = strategy,
					       .comm = case_group(context, "gathered"),
					       .precision = &precision, .optim = OPTIM_SGD(0.1f) };
	const int writes = rank == world - 1;
	srt_status_t status;
	engine_case_t c;
	srt_view_t value;
	char text[96];

	case_declare(&c, context, &options, 5);
	case_build(&c);
	case_first_step(&c, context);
	CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
	CHECK_OK(srt_param_data(c.tied, &value));
	if (writes && !after_end)
		CHECK_OK(fill(&c, value, 1));
	status = srt_unit_forward_end(c.root, c.stream);
	value.buffer = value.buffer->original; /* the check of views does not see an own kernel */
	if (writes && after_end) {
		CHECK_OK(status);
		CHECK_OK(fill(&c, value, 1));
		status = srt_unit_backward_begin(c.root, c.stream);
	}
	snprintf(text, sizeof(text), "rank %d: the %svalues of parameter 'root.weight'", world - 1,
		 strategy == SRT_STRATEGY_DDP ? "" : "gathered ");
	CHECK_STATUS(status, writes ? SRT_ERR_STATE : SRT_OK);
	if (writes)
		CHECK_ERROR_HAS(text);
	case_end(&c, context, options.comm);
}

/*
 * Reliability: operations on a view after the end of its unit, or on more elements than its
 * parameter has | changed other parameters, without a word | `SHARDRT_CHECK=1`: the call is refused
 */
static void test_views(srt_strategy_t strategy)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, strategy, "views");
	srt_view_t value, again, grad;
	int accumulate;

	CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
	CHECK_OK(srt_param_data(c.tied, &value));
	CHECK_STATUS(fill(&c, value, 16), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(
		"64 bytes from byte 0 of the view of the values of parameter 'root.weight', "
		"which has 60 bytes");
	value.offset -= sizeof(float);
	CHECK_STATUS(fill(&c, value, 1), SRT_ERR_INVALID_ARGUMENT);
	value.offset += sizeof(float);
	CHECK_OK(srt_unit_forward_end(c.root, c.stream));
	CHECK_STATUS(fill(&c, value, 15), SRT_ERR_STATE);
	CHECK_ERROR_HAS("srt_op_fill: y: the view of the values of parameter 'root.weight' is used "
			"outside of begin and end of its unit");
	CHECK_STATUS(srt_buffer_copy(c.scratch, 0, value.buffer, value.offset, 4, c.stream),
		     SRT_ERR_STATE);
	CHECK_OK(srt_unit_backward_begin(c.root, c.stream));
	CHECK_OK(srt_param_data(c.tied, &again));
	CHECK_OK(srt_buffer_copy(c.scratch, 0, again.buffer, again.offset, 60, c.stream));
	CHECK_OK(srt_param_grad(c.tied, &grad, &accumulate));
	CHECK_STATUS(fill(&c, grad, 16), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("the view of the gradient of parameter 'root.weight'");
	CHECK_OK(fill(&c, grad, 15));
	CHECK_OK(srt_param_grad_ready(c.tied));
	CHECK_OK(srt_unit_backward_end(c.root, c.stream));
	CHECK_STATUS(fill(&c, grad, 15), SRT_ERR_STATE);
	case_end(&c, context, group);
}

/* Views of srt_param_address() may be used when those of srt_param_data() and srt_param_grad() may,
 * in every pass. */
static void test_addresses(srt_strategy_t strategy)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, strategy, "addresses");
	srt_view_t value, grad, view;
	int accumulate;

	CHECK_OK(srt_param_address(c.tied, SRT_PARAM_VALUE, &value));
	CHECK_OK(srt_param_address(c.tied, SRT_PARAM_GRAD, &grad));
	for (int pass = 0; pass < 2; pass++) {
		CHECK_STATUS(srt_buffer_copy(c.scratch, 0, value.buffer, value.offset, 4, c.stream),
			     SRT_ERR_STATE);
		CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
		CHECK_OK(srt_buffer_copy(c.scratch, 0, value.buffer, value.offset, 60, c.stream));
		CHECK_STATUS(fill(&c, grad, 15), SRT_ERR_STATE);
		CHECK_ERROR_HAS("the view of the gradient of parameter 'root.weight' is used "
				"outside of begin and end of its unit");
		CHECK_OK(srt_unit_forward_end(c.root, c.stream));
		CHECK_STATUS(fill(&c, value, 15), SRT_ERR_STATE);
		CHECK_OK(srt_unit_backward_begin(c.root, c.stream));
		CHECK_OK(srt_buffer_copy(c.scratch, 0, value.buffer, value.offset, 60, c.stream));
		CHECK_OK(srt_param_grad(c.tied, &view, &accumulate));
		CHECK_OK(fill(&c, grad, 15));
		CHECK_OK(srt_param_grad_ready(c.tied));
		CHECK_OK(srt_unit_backward_end(c.root, c.stream));
		CHECK_STATUS(fill(&c, grad, 15), SRT_ERR_STATE);
		CHECK_OK(srt_engine_step(c.engine, c.stream));
	}
	case_end(&c, context, group);
}

/* Reliability: `srt_param_get()` inside a pass, which may need memory of a unit in use | was not
 * seen | `SHARDRT_CHECK=1`: an error on all ranks */
static void test_get_in_pass(void)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, SRT_STRATEGY_ZERO3, "get");
	float got[15];

	CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
	CHECK_STATUS(srt_param_get(c.tied, SRT_PARAM_VALUE, got, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("parameter 'root.weight' is read inside a pass of root 'root'");
	CHECK_OK(srt_unit_forward_end(c.root, c.stream));
	CHECK_OK(srt_param_get(c.tied, SRT_PARAM_VALUE, got, c.stream));
	case_end(&c, context, group);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	test_checks();
	test_own_writes(SRT_STRATEGY_DDP);
	test_own_writes(SRT_STRATEGY_ZERO3);
	test_own_writes_in_pass();
	test_gathered_writes(SRT_STRATEGY_ZERO2, false, SRT_DTYPE_NONE);
	test_gathered_writes(SRT_STRATEGY_ZERO2, true, SRT_DTYPE_NONE);
	test_gathered_writes(SRT_STRATEGY_ZERO3, false, SRT_BF16);
	test_gathered_writes(SRT_STRATEGY_DDP, true, SRT_BF16);
	test_views(SRT_STRATEGY_ZERO2);
	test_views(SRT_STRATEGY_DDP);
	test_addresses(SRT_STRATEGY_ZERO3);
	test_addresses(SRT_STRATEGY_DDP);
	test_get_in_pass();
	srt_context_destroy(context);
	return check_done();
}
