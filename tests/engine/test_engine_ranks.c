/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that do not do the same: declarations, values of replicas, the order of passes and the
 * arguments of calls after the first step. A communicator is poisoned by that, so each case has a
 * group of all ranks to itself. With an argument ("pass", "step" or "hash", then perhaps "ddp") a
 * stream fails on one rank. Run by test_engine_errors.sh.
 */
#include <math.h>

#include "collectives/comm.h"
#include "tests/engine/engine_case.h"

static srt_context_t *context;
static int rank, world;

static const srt_engine_options_t plain = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0.1f);
static const srt_engine_options_t ddp = ENGINE_SGD(SRT_STRATEGY_DDP, 0.1f);

/* ---- replicas ---------------------------------------------------------------------------- */

static void set_other_value(engine_case_t *c, const char *name)
{
	srt_param_t *param = srt_engine_param_find(c->engine, name);
	float *values = calloc((size_t)srt_param_nelem(param), sizeof(*values));

	CHECK_OR_DIE(values != NULL);
	CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, values, c->stream));
	if (rank == world - 1)
		values[3] *= 1.0f + 0x1p-20f;
	CHECK_OK(srt_param_set(param, SRT_PARAM_VALUE, values, c->stream));
	free(values);
}

/*
 * Reliability: replicas that differ | each rank trains a model, two hashes, both a success | an
 * error on all ranks in the first step and from the hash
 */
static void test_replicas(void)
{
	unsigned char hash[16];
	engine_case_t c;
	char ranks[64];
	srt_comm_t *group = case_begin(&c, context, SRT_STRATEGY_DDP, "replicas");
	srt_status_t status;

	snprintf(ranks, sizeof(ranks), "differs between rank 0 and rank %d", world - 1);
	status = srt_engine_hash(c.engine, hash, c.stream);
	if (status != SRT_ERR_UNSUPPORTED)
		CHECK_OK(status);
	set_other_value(&c, "b1.weight");
	set_other_value(&c, "b2.weight");
	if (status != SRT_ERR_UNSUPPORTED) {
		CHECK_STATUS(srt_engine_hash(c.engine, hash, c.stream), SRT_ERR_MISMATCH);
		CHECK_ERROR_HAS("parameter 'b1.weight'");
		CHECK_ERROR_HAS(ranks);
	}
	/* The first step finds it too. */
	CHECK_STATUS(case_step(&c, 0, 1), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("parameter 'b1.weight'");
	CHECK_ERROR_HAS(ranks);
	case_end(&c, context, group);
}

/* The option trust_replicas: the first step compares nothing, the hash does. */
static void test_trusted_replicas(void)
{
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0.1f);
	unsigned char hash[16];
	engine_case_t c;
	srt_status_t status;

	options.comm = case_group(context, "trusted");
	options.microbatches = 2;
	options.trust_replicas = 1;
	case_declare(&c, context, &options, 5);
	case_build(&c);
	set_other_value(&c, "b1.weight");
	CHECK_OK(case_step(&c, 0, 1));
	CHECK_OK(srt_stream_sync(c.stream));
	status = srt_engine_hash(c.engine, hash, c.stream);
	CHECK(status == SRT_ERR_MISMATCH || status == SRT_ERR_UNSUPPORTED);
	case_end(&c, context, options.comm);
}

/* ---- calls ------------------------------------------------------------------------------- */

/* The rank that calls last fails at once, the others do at a wait for it. */
static void check_differs(engine_case_t *c, srt_status_t status, const char *a, const char *b)
{
	for (int step = 0; status == SRT_OK && step < 8; step++) {
		status = case_step(c, step, 1);
		if (status == SRT_OK)
			status = srt_stream_sync(c->stream);
	}
	CHECK_STATUS(status, SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS(a);
	CHECK_ERROR_HAS(b);
}

/*
 * A rank evaluates alone, in ddp: no collective is in a forward pass.
 *
 * Reliability: a pass of one rank alone | found after `SHARDRT_TIMEOUT`, in small models never |
 * the call fails and names the rank
 */
static void test_pass_alone(srt_strategy_t strategy, int alone)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, strategy, "pass");
	srt_status_t status = SRT_OK;
	char a[64];

	case_first_step(&c, context);
	if (rank == alone)
		status = case_forward(&c, 1);
	snprintf(a, sizeof(a), "rank %d runs forward unit 'root'", alone);
	check_differs(&c, status, a, "runs backward unit 'root'");
	case_end(&c, context, group);
}

/* A rank has one pass more after the last backward pass of a step. */
static void test_pass_before_step(void)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, SRT_STRATEGY_DDP, "pass before step");
	srt_status_t status;

	case_first_step(&c, context);
	status = case_passes(&c, 1, 1);
	if (status == SRT_OK && rank == 0)
		status = case_forward(&c, 1);
	if (status == SRT_OK)
		status = srt_engine_step(c.engine, c.stream);
	check_differs(&c, status, "rank 0 runs forward unit 'root'", "calls srt_engine_step()");
	case_end(&c, context, group);
}

static void test_reset_alone(void)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, SRT_STRATEGY_DDP, "reset");
	srt_status_t status;

	case_first_step(&c, context);
	status = case_passes(&c, 1, 1);
	if (status == SRT_OK)
		status = srt_engine_finish_backward(c.engine, c.stream);
	if (status == SRT_OK)
		status = rank == 0 ? srt_engine_reset(c.engine) :
				     srt_engine_step(c.engine, c.stream);
	check_differs(&c, status, "rank 0 calls srt_engine_reset()", "calls srt_engine_step()");
	case_end(&c, context, group);
}

/*
 * Reliability: learning rates, seeds, clipping or micro-batches that differ | ranks with other
 * weights | an error that names the call, the ranks and both values
 */
static void test_arguments(void)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, SRT_STRATEGY_ZERO3, "learning rate");
	srt_param_t *param;
	srt_status_t status;

	case_first_step(&c, context);
	check_differs(&c,
		      srt_optim_set_lr(srt_engine_optim(c.engine), SRT_OPTIM_ALL_GROUPS,
				       rank == 0 ? 0.25f : 0.5f, c.stream),
		      "rank 0 sets the learning rate of group -1 to 0.25", "to 0.5");
	case_end(&c, context, group);

	group = case_begin(&c, context, SRT_STRATEGY_DDP, "micro-batches");
	case_first_step(&c, context);
	check_differs(&c, case_step(&c, 1, 1 + (rank == 0)), "in micro-batch 1 of 1",
		      "in micro-batch 1 of 2");
	case_end(&c, context, group);

	group = case_begin(&c, context, SRT_STRATEGY_ZERO3, "seed");
	param = srt_engine_param_find(c.engine, "b1.weight");
	check_differs(&c, srt_param_init_normal(param, rank == 0, 0.0f, 1.0f, c.stream),
		      "initialises 'b1.weight' with seed and distribution", ", rank");
	case_end(&c, context, group);

	group = case_begin(&c, context, SRT_STRATEGY_DDP, "constant");
	param = srt_engine_param_find(c.engine, "b1.weight");
	check_differs(&c, srt_param_init_constant(param, rank == 0, c.stream),
		      "initialises 'b1.weight' with 1,", "initialises 'b1.weight' with 0;");
	case_end(&c, context, group);

	group = case_begin(&c, context, SRT_STRATEGY_ZERO3, "full parameters");
	status = srt_unit_full_params_begin(c.block[1],
					    &(srt_full_params_options_t){
						    .size = sizeof(srt_full_params_options_t),
						    .offload_to_cpu = rank == 0 },
					    c.stream);
	check_differs(&c, status, "calls srt_unit_full_params_begin() of unit 'b1' (options 11)",
		      "calls srt_unit_full_params_begin() of unit 'b1' (options 1)");
	case_end(&c, context, group);

	group = case_begin(&c, context, SRT_STRATEGY_ZERO3, "clip");
	case_first_step(&c, context);
	CHECK_OK(case_passes(&c, 1, 1));
	CHECK_OK(srt_engine_finish_backward(c.engine, c.stream));
	case_wait_for_all(context);
	status = srt_engine_clip(c.engine, 2, rank == 0 ? 2.0f : 1.0f, c.stream);
	if (status == SRT_OK)
		status = srt_engine_step(c.engine, c.stream);
	check_differs(&c, status, "rank 0 calls srt_engine_clip() with norm_p 2 and max_norm 2,",
		      "with norm_p 2 and max_norm 1;");
	case_end(&c, context, group);
}

/* A rank alone may write to its values: the gathers of the ranks differ, once one is left out. */
static void test_views_alone(void)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, SRT_STRATEGY_ZERO3, "views");
	srt_status_t status;

	case_first_step(&c, context);
	if (rank == 0)
		CHECK(test_local(c.tied, SRT_PARAM_VALUE).buffer != NULL);
	CHECK_OK(case_step(&c, 1, 1)); /* gathers all in any case */
	CHECK_OK(case_forward(&c, 2));
	case_wait_for_all(context);
	status = case_forward(&c, 2);
	check_differs(&c, status, "rank 0 gathers values again, as it called srt_param_local() for",
		      "uses gathered values again;");
	case_end(&c, context, group);
}

/* Reliability: a wrong number of values of a sum | a wrong mean | an error with both numbers */
static void test_sum(void)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, SRT_STRATEGY_ZERO3, "sum");
	srt_view_t values, total;
	srt_status_t status;
	char text[64];

	values = srt_view(c.scratch, 0, SRT_F32);
	total = srt_view(c.scratch, 64, SRT_F32);
	CHECK_OK(srt_buffer_zero(c.scratch, 0, 128, c.stream));
	CHECK_OK(srt_engine_sum(c.engine, values, 2, 2 * world, total, c.stream));
	CHECK_OK(srt_engine_sum(c.engine, values, rank == 0, 1, total, c.stream));
	case_wait_for_all(context);
	status = srt_engine_sum(c.engine, values, 2, 2 * world + 1, total, c.stream);
	snprintf(text, sizeof(text), "total_nelem %d, but together the ranks have %d",
		 2 * world + 1, 2 * world);
	check_differs(&c, status, text, "every rank calls srt_engine_sum()");
	case_end(&c, context, group);

	group = case_begin(&c, context, SRT_STRATEGY_DDP, "other sum");
	values = srt_view(c.scratch, 0, SRT_F32);
	total = srt_view(c.scratch, 64, SRT_F32);
	CHECK_OK(srt_buffer_zero(c.scratch, 0, 128, c.stream));
	status = srt_engine_sum(c.engine, values, 2, 2 * world + (rank == 0), total, c.stream);
	snprintf(text, sizeof(text), "rank 0 calls srt_engine_sum() with total_nelem %d",
		 2 * world + 1);
	check_differs(&c, status, text, "; all ranks must make the same calls");
	case_end(&c, context, group);
}

/* ---- ranks that wait for each other -------------------------------------------------------- */

static char long_wait[1024];

static void keep_wait(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	if (level == SRT_LOG_WARN && strstr(message, "has waited") != NULL)
		snprintf(long_wait, sizeof(long_wait), "%s", message);
}

/*
 * One rank saves, the others read a gradient: both are blocking exchanges.
 *
 * Reliability: a rank that saves while another one reads | a timeout, or a sentence about
 * something else | an error that names both
 */
static void test_other_operation(void)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, SRT_STRATEGY_ZERO3, "operations");
	srt_status_t status;

	case_first_step(&c, context);
	status = rank == 0 ? srt_engine_save(c.engine, "tests/engine/test_engine_ranks.tmp", NULL,
					     0, c.stream) :
			     srt_param_get(c.tied, SRT_PARAM_GRAD, NULL, c.stream);
	CHECK_STATUS(status, SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("rank 0 is beginning to save ");
	CHECK_ERROR_HAS(" is gathering tensor 'root.weight'");
	case_end(&c, context, group);
}

/*
 * A collective of one rank alone, while the others wait for it elsewhere.
 *
 * Reliability: a rank that does not come | silence for 600 s | after 10 s a warning of what each
 * rank waits for
 */
static void test_long_wait(void)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, SRT_STRATEGY_ZERO3, "waits");
	const double timeout_s = group->bootstrap->timeout_s;
	srt_status_t status;
	char text[SRT_WAIT_TEXT] = "";

	case_first_step(&c, context);
	if (rank == 0) {
		while (strncmp(text, "an exchange", 11) != 0)
			srt_wait_read(group, 1, text);
		group->bootstrap->timeout_s = 1.0;
		srt_log_set(keep_wait, SRT_LOG_WARN, NULL);
		status = srt_engine_sum(c.engine, srt_view(c.scratch, 0, SRT_F32), 0, 1,
					srt_view(c.scratch, 64, SRT_F32), c.stream);
		if (status == SRT_OK)
			status = srt_stream_sync(c.stream);
		srt_log_set(NULL, SRT_LOG_WARN, NULL);
		group->bootstrap->timeout_s = timeout_s;
		CHECK_STATUS(status, SRT_ERR_TIMEOUT);
		CHECK(strstr(long_wait, " of \"sum over ranks\" on communicator \"waits\"") !=
		      NULL);
		CHECK(strstr(long_wait,
			     "; rank 1 waits in an exchange on communicator \"world\"") != NULL);
	}
	case_end(&c, context, group);
}

/* ---- gradients that are marked ready ----------------------------------------------------- */

static int nwarnings;
static char warning[512];

static void count_warnings(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	if (level != SRT_LOG_WARN || strstr(message, "srt_param_grad_ready") == NULL)
		return;
	nwarnings++;
	snprintf(warning, sizeof(warning), "%s", message);
}

/*
 * Reliability: a gradient marked ready that was not written | the gradient of the last step was
 * used again | the call fails and names the parameter
 */
static void test_ready(void)
{
	engine_case_t c;
	srt_comm_t *group = case_begin(&c, context, SRT_STRATEGY_ZERO3, "ready");
	srt_view_t view;
	float grad[5 * 3];
	int accumulate;

	srt_log_set(count_warnings, SRT_LOG_WARN, NULL);
	case_first_step(&c, context);
	for (int step = 0; step < 2; step++) {
		CHECK_OK(case_forward(&c, step));
		CHECK_OK(srt_unit_backward_begin(c.root, c.stream));
		/* Whatever the memory has, it is not a gradient of this pass. */
		CHECK_STATUS(srt_param_grad_ready(c.tied), SRT_ERR_STATE);
		CHECK_ERROR_HAS("'root.weight' without srt_param_grad()");
		CHECK_OK(srt_param_grad(c.tied, &view, &accumulate));
		CHECK_INT(accumulate, 0);
		CHECK_OK(srt_unit_backward_end(c.root, c.stream));
		CHECK_OK(srt_engine_step(c.engine, c.stream));
		CHECK_STATUS(srt_param_get(c.tied, SRT_PARAM_GRAD, grad, c.stream),
			     SRT_ERR_NOT_FOUND);
	}
	CHECK_INT(nwarnings, 1);
	CHECK_MSG(strstr(warning, "'root.weight'") != NULL, "%s", warning);
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	case_end(&c, context, group);
}

static void test_declared_differently(void)
{
	srt_optim_options_t optim = *plain.optim;
	srt_engine_options_t o = plain;
	srt_unit_t *unit = NULL;
	engine_case_t c;

	o.optim = &optim;
	optim.lr = rank == world - 1 ? 0.2f : 0.1f;
	o.accumulation = rank == world - 1 ? SRT_ACCUMULATE_LAST : SRT_ACCUMULATE_EVERY;
	case_declare(&c, context, &o, 5);
	CHECK_STATUS(srt_engine_build(c.engine), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("learning rate is '0.1");
	CHECK_ERROR_HAS("accumulation is 'every' on rank 0 and 'last' on rank");
	case_destroy(&c);

	/* the smallest difference that there is */
	o = plain;
	optim = (srt_optim_options_t)SRT_OPTIM_OPTIONS_INIT;
	o.optim = &optim;
	optim.beta2 = rank == world - 1 ? nextafter(0.99, 1.0) : 0.99;
	case_declare(&c, context, &o, 5);
	CHECK_STATUS(srt_engine_build(c.engine), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("betas 0.9");
	case_destroy(&c);

	case_declare(&c, context, &plain, 5);
	if (rank == world - 1)
		case_param(&c, c.block[3], "extra", 2, 2, 0, 0.0f);
	CHECK_STATUS(srt_engine_build(c.engine), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("is missing on rank 0 and 'extra' (2,2)");
	case_destroy(&c);

	case_declare(&c, context, &plain, 5);
	case_param(&c, c.block[3], "extra", rank == 0 ? 2 : 3, 2, 0, 0.0f);
	CHECK_STATUS(srt_engine_build(c.engine), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("'extra' (2,2)");
	CHECK_ERROR_HAS("'extra' (3,2)");
	case_destroy(&c);

	/* units by their names, though their parameters differ with them */
	case_declare(&c, context, &plain, 5);
	CHECK_OK(srt_unit_create(c.engine, c.root, rank == world - 1 ? "tail" : "head", NULL,
				 &unit));
	case_param(&c, unit, "extra", 2, 2, 0, 0.0f);
	CHECK_STATUS(srt_engine_build(c.engine), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("different units: index");
	CHECK_ERROR_HAS("is 'head' in '");
	CHECK_ERROR_HAS("on rank 0 and 'tail' in '");
	case_destroy(&c);
}

static srt_status_t fail(void *arg)
{
	(void)arg;
	return srt_fail(SRT_ERR_SYSTEM, "the work of this test fails");
}

/*
 * A stream fails on the last rank: before its first pass, before its second step, before the hash.
 *
 * Reliability: a stream that fails on one rank | the others wait for `SHARDRT_TIMEOUT`, or hear
 * only that the rank has left | all ranks have an error with the rank and the cause
 */
static void fail_stream(const srt_engine_options_t *options, const char *before)
{
	static const char *const places[] = { "pass", "step", "hash" };
	unsigned char hash[16];
	char who[32];
	srt_status_t status = SRT_OK;
	engine_case_t c;

	snprintf(who, sizeof(who), "on rank %d", world - 1);
	case_declare(&c, context, options, 5);
	case_build(&c);
	for (int step = 0; status == SRT_OK && step < 3; step++) {
		if (strcmp(before, places[step]) == 0 && rank == world - 1)
			CHECK_OK(srt_stream_host_fn(c.stream, fail, NULL));
		status = step < 2 ? case_step(&c, step, 1) :
				    srt_engine_hash(c.engine, hash, c.stream);
		if (status == SRT_OK)
			status = srt_stream_sync(c.stream);
	}
	if (status == SRT_ERR_UNSUPPORTED) { /* the hash */
		CHECK_ERROR_HAS("built without it");
	} else {
		CHECK_STATUS(status, SRT_ERR_SYSTEM);
		CHECK_ERROR_HAS("the work of this test fails");
		if (rank != world - 1)
			CHECK_ERROR_HAS(who);
	}
	case_destroy(&c);
}

int main(int argc, char **argv)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	if (argc > 1) {
		fail_stream(argc > 2 ? &ddp : &plain, argv[1]);
		srt_context_destroy(context);
		return check_done();
	}
	test_declared_differently();
	test_ready();
	test_replicas();
	test_trusted_replicas();
	test_pass_alone(SRT_STRATEGY_DDP, 0);
	test_pass_alone(SRT_STRATEGY_DDP, world - 1);
	test_pass_alone(SRT_STRATEGY_ZERO3, 0);
	test_pass_before_step();
	test_reset_alone();
	test_arguments();
	test_views_alone();
	test_sum();
	test_other_operation();
	test_long_wait();
	srt_context_destroy(context);
	return check_done();
}
