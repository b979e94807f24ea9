/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leaves out the waits of streams for events in two training steps, one at a time, on a device that
 * runs commands in unlucky orders (the backend "late"). The program must find each kind of missing
 * wait: without it some run has other results on some rank. The results without a missing wait must
 * not depend on the order.
 *
 * The phases of a step have separate streams, and the step reduces a block that the last
 * micro-batch left out, so that the waits of the engine and the scaler order different streams.
 *
 * Run by test_missing_edges.sh on 1 and 2 ranks; with the argument "all" it leaves out every wait,
 * also those that other waits make redundant.
 */
#include <math.h>

#include <shardrt/scaler.h>

#include "collectives/comm.h"
#include "runtime/scaler/scaler.h"
#include "tests/engine/edges.h"
#include "tests/engine/engine_case.h"

#define NSTEPS 2
#define NMICRO 2
#define NTRIES 8

static srt_context_t *context;
static bool tests_all; /* also the waits that are redundant, and all of a kind */
static bool poisons;   /* the last step has an infinity, so that found_inf changes */

/* ---- two training steps -------------------------------------------------------------------- */

/* A stream for each phase, so that each edge of the engine orders two streams. */
enum { FORWARD, BACKWARD0, BACKWARD1, STEP, READ, NSTREAMS };

typedef struct training {
	engine_case_t c;
	srt_scaler_t *scaler;
	srt_stream_t *streams[NSTREAMS];
	srt_buffer_t *scratch[NSTREAMS];
	srt_buffer_t *seen; /* float [nelem + NSTEPS * NMICRO]: sums of the values in the forward
			     * passes, and the scaled losses */
	size_t nelem;
} training_t;

/* The program's own edge. */
static void order(srt_stream_t *from, srt_stream_t *to)
{
	srt_event_t *event;

	CHECK_OK_OR_DIE(srt_event_create(srt_stream_device(from), &event));
	CHECK_OK(srt_event_record(event, from));
	CHECK_OK(edges_wait(to, event));
	srt_event_destroy(event);
}

static void use_stream(training_t *t, int stream)
{
	t->c.stream = t->streams[stream];
	t->c.scratch = t->scratch[stream];
}

/* Adds the unit's values to `seen`. */
static void see_unit(training_t *t, srt_unit_t *unit, const char *name)
{
	const size_t length = strlen(name);
	size_t at = 0;

	CHECK_OK_OR_DIE(srt_unit_forward_begin(unit, t->c.stream));
	for (size_t i = 0; i < t->c.nparams; i++) {
		srt_param_t *param = t->c.param[i];
		const char *rest = srt_param_name(param) + length;
		srt_view_t values;

		if (!strncmp(srt_param_name(param), name, length) && rest[0] == '.' &&
		    strchr(rest + 1, '.') == NULL) {
			CHECK_OK(srt_param_data(param, &values));
			CHECK_OK(srt_op_accumulate(srt_view(t->seen, at * sizeof(float), SRT_F32),
						   values, srt_param_nelem(param), t->c.stream));
		}
		at += (size_t)srt_param_nelem(param);
	}
}

/* The last micro-batch leaves out a block: the step reduces its gradients. */
static bool has_block(int m, int b)
{
	return m < NMICRO - 1 || b != 2;
}

static void forward(training_t *t, int m)
{
	char name[32];

	use_stream(t, FORWARD);
	see_unit(t, t->c.root, "root");
	for (int b = 0; b < NBLOCKS; b++) {
		if (!has_block(m, b))
			continue;
		snprintf(name, sizeof(name), "b%d", b);
		see_unit(t, t->c.block[b], name);
		if (b == 1) {
			see_unit(t, t->c.inner, "b1.inner");
			CHECK_OK(srt_unit_forward_end(t->c.inner, t->c.stream));
		}
		CHECK_OK(srt_unit_forward_end(t->c.block[b], t->c.stream));
	}
	CHECK_OK(srt_unit_forward_end(t->c.root, t->c.stream));
}

static void backward(training_t *t, int step, int m)
{
	char name[32];

	CHECK_OK(case_backward_unit(&t->c, t->c.root, "root", step, m));
	for (int b = NBLOCKS - 1; b >= 0; b--) {
		if (!has_block(m, b))
			continue;
		snprintf(name, sizeof(name), "b%d", b);
		CHECK_OK(case_backward_unit(&t->c, t->c.block[b], name, step, m));
		if (b == 1) {
			CHECK_OK(case_backward_unit(&t->c, t->c.inner, "b1.inner", step, m));
			CHECK_OK(srt_unit_backward_end(t->c.inner, t->c.stream));
		}
		CHECK_OK(srt_unit_backward_end(t->c.block[b], t->c.stream));
	}
	CHECK_OK(srt_unit_backward_end(t->c.root, t->c.stream));
}

static void scale_loss(training_t *t, int number)
{
	srt_view_t loss = srt_view(t->seen, (t->nelem + (size_t)number) * sizeof(float), SRT_F32);
	const srt_scaler_output_t output = {
		.size = sizeof(srt_scaler_output_t), .x = loss, .y = loss, .nelem = 1
	};

	CHECK_OK(srt_op_fill(loss, 1.0f, 1, t->c.stream));
	CHECK_OK(srt_scaler_scale(t->scaler, &output, 1, t->c.stream));
}

static void train(training_t *t)
{
	for (int step = 0; step < NSTEPS; step++) {
		for (int m = 0; m < NMICRO; m++) {
			CHECK_OK(srt_engine_microbatch(t->c.engine, m, NMICRO));
			forward(t, m);
			use_stream(t, BACKWARD0 + m);
			scale_loss(t, step * NMICRO + m);
			t->c.poison = poisons && step == NSTEPS - 1 ? INFINITY : 0.0f;
			backward(t, step, m);
		}
		CHECK_OK(srt_scaler_step(t->scaler, t->c.engine, t->streams[STEP]));
		CHECK_OK(srt_scaler_update(t->scaler, t->streams[STEP]));
	}
}

/* ---- its results --------------------------------------------------------------------------- */

typedef struct results {
	float *of[4];
	srt_step_info_t step;
	srt_scaler_state_t scaler;
	size_t nelem, nseen;
} results_t;

static void collect(training_t *t, results_t *r)
{
	memset(r, 0, sizeof(*r));
	r->nelem = t->nelem;
	r->nseen = t->nelem + NSTEPS * NMICRO;
	use_stream(t, READ);
	r->step = (srt_step_info_t)SRT_STEP_INFO_INIT;
	CHECK_OK(srt_engine_get_step_info(t->c.engine, &r->step, t->c.stream));
	CHECK_OK(srt_scaler_get_state(t->scaler, &r->scaler, t->c.stream));
	r->of[0] = case_collect(&t->c, SRT_PARAM_VALUE);
	r->of[1] = case_collect(&t->c, SRT_PARAM_STATE0);
	r->of[2] = case_collect(&t->c, SRT_PARAM_STATE1);
	r->of[3] = calloc(r->nseen, sizeof(float));
	CHECK_OR_DIE(r->of[3] != NULL);
	edges_end();
	order(t->streams[BACKWARD0], t->streams[FORWARD]);
	order(t->streams[BACKWARD1], t->streams[FORWARD]);
	CHECK_OK(srt_buffer_copy_to_host(r->of[3], t->seen, 0, r->nseen * sizeof(float),
					 t->streams[FORWARD]));
}

static bool results_equal(const results_t *a, const results_t *b)
{
	bool equal = !memcmp(&a->step, &b->step, sizeof(a->step)) &&
		     !memcmp(&a->scaler, &b->scaler, sizeof(a->scaler));

	for (int i = 0; i < 4; i++)
		equal &= !memcmp(a->of[i], b->of[i], (i < 3 ? a->nelem : a->nseen) * sizeof(float));
	return equal;
}

static void results_free(results_t *r)
{
	for (int i = 0; i < 4; i++)
		free(r->of[i]);
}

/* Two steps without wait `skipped`, or with all if it is -1. */
static void run_without(int skipped, const srt_engine_options_t *options, results_t *r)
{
	static const char *const names[NSTREAMS] = { "forward", "backward 0", "backward 1", "step",
						     "read" };
	srt_scaler_options_t scaler = SRT_SCALER_OPTIONS_INIT;
	srt_device_t *device = srt_context_device(context);
	training_t t;

	scaler.init_scale = 4.0f;
	scaler.growth_interval = 1;
	case_declare(&t.c, context, options, 5);
	case_build(&t.c);
	t.nelem = case_nelem(&t.c);
	CHECK_OK(srt_stream_sync(t.c.stream));
	srt_stream_destroy(t.c.stream);
	srt_buffer_destroy(t.c.scratch);
	for (int s = 0; s < NSTREAMS; s++) {
		CHECK_OK_OR_DIE(srt_stream_create(device, 0, names[s], &t.streams[s]));
		CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, (size_t)(5 * 13 * 4),
						  "scratch", &t.scratch[s]));
	}
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE,
					  (t.nelem + NSTEPS * NMICRO) * sizeof(float), "seen",
					  &t.seen));
	CHECK_OK_OR_DIE(srt_scaler_create(context, &scaler, &t.scaler));
	edges_begin(t.c.engine, t.scaler, skipped);
	train(&t);
	collect(&t, r);
	for (int s = 0; s < NSTREAMS; s++)
		CHECK_OK(srt_stream_sync(t.streams[s]));
	srt_engine_destroy(t.c.engine);
	srt_scaler_destroy(t.scaler);
	srt_buffer_destroy(t.seen);
	for (int s = 0; s < NSTREAMS; s++) {
		srt_buffer_destroy(t.scratch[s]);
		srt_stream_destroy(t.streams[s]);
	}
}

/* ---- the test ------------------------------------------------------------------------------ */

static bool is_any(bool mine)
{
	char byte = (char)mine, all[16];
	bool any = false;

	CHECK_OK_OR_DIE(srt_comm_oob_allgather(srt_context_world(context), &byte, 1, all));
	for (int r = 0; r < srt_context_world_size(context); r++)
		any |= all[r] != 0;
	return any;
}

/* Whether some run without the wait has other results on some rank. */
static bool is_found(int skipped, int ntries, const srt_engine_options_t *options,
		     const results_t *right)
{
	bool found = false;

	for (int i = 0; i < ntries && !found; i++) {
		results_t r;

		run_without(skipped, options, &r);
		found = is_any(!results_equal(&r, right));
		results_free(&r);
	}
	return found;
}

/* The kinds of waits, and where one that is left out must be found. Elsewhere nothing reads what
 * the wait orders, or host functions of collectives order it too. */
static const struct {
	const char *name;
	enum { ANY, ONE_RANK, TWO_RANKS, NOWHERE } where; /* NOWHERE: other waits imply it */
} kinds[] = {
	{ "forward, gathered", TWO_RANKS },
	{ "backward 0, gathered", TWO_RANKS },
	{ "backward 1, gathered", TWO_RANKS },
	{ "step, gathered", NOWHERE },
	{ "read, gathered", TWO_RANKS },
	{ "communication, released", TWO_RANKS },
	{ "communication, used", ONE_RANK },
	{ "step, used", NOWHERE },
	{ "forward, stepped", ANY },
	{ "backward 0, stepped", NOWHERE },
	{ "backward 1, stepped", NOWHERE },
	{ "step, stepped", NOWHERE },
	{ "communication, stepped", TWO_RANKS },
	{ "read, stepped", ANY },
	{ "communication, edge", ANY },
	{ "step, edge", ONE_RANK },
	{ "forward, reduced", NOWHERE },
	{ "backward 0, reduced", ANY },
	{ "backward 1, reduced", ANY },
	{ "step, reduced", TWO_RANKS },
	{ "backward 0, scaler", ANY },
	{ "backward 1, scaler", ANY },
	{ "step, scaler", NOWHERE },
	{ "read, scaler", ANY },
	{ "communication, downloaded", ANY },
	{ "communication, uploaded", TWO_RANKS },
	{ "copies, edge", ANY },
	{ "copies, gathered", TWO_RANKS },
	{ "copies, host edge", TWO_RANKS },
	{ "copies, landed", ANY },
	{ "copies, released", ONE_RANK },
	{ "copies, stepped", ANY },
	{ "host, downloaded", ANY },
	{ "host, edge", ANY },
	{ "host, uploaded", NOWHERE },
	{ "step, host edge", ANY },
};

/* For each kind, over all trainings of this world: waits of each class, and those found. */
static int nedges[SRT_ARRAY_LEN(kinds)][EDGE_NCLASSES], nfound[SRT_ARRAY_LEN(kinds)];

static size_t find_row(const char *name)
{
	size_t k = 0;

	while (k < SRT_ARRAY_LEN(kinds) && strcmp(kinds[k].name, name) != 0)
		k++;
	return k;
}

static void test_edge(const char *training, int e, const srt_engine_options_t *options,
		      const results_t *right)
{
	const edge_t *edge = &edges.of[e];
	const char *kind = edges.kinds[edge->kind];
	const size_t row = find_row(kind);
	bool found;

	CHECK_MSG(row < SRT_ARRAY_LEN(kinds), "%s: \"%s\" is a new kind", training, kind);
	if (row == SRT_ARRAY_LEN(kinds))
		return;
	nedges[row][edge->class]++;
	if (!tests_all && (edge->class != EDGE_SINGLE || nfound[row] > 0))
		return;
	found = is_found(e, edge->class == EDGE_SINGLE ? NTRIES : 1, options, right);
	CHECK_MSG(!found || edge->class == EDGE_SINGLE, "%s: wait %d, \"%s\", is redundant",
		  training, e, kind);
	nfound[row] += found;
}

static void test_training(const char *name, const srt_engine_options_t *options)
{
	results_t right, again;

	edges_clear();
	run_without(-1, options, &right);
	for (int i = 0; i < NTRIES; i++) {
		run_without(-1, options, &again);
		CHECK_MSG(results_equal(&again, &right), "%s: the results depend on the order",
			  name);
		results_free(&again);
	}
	for (int e = 0; e < edges.n; e++)
		test_edge(name, e, options, &right);
	results_free(&right);
}

static void check_kinds(void)
{
	const int world = srt_context_world_size(context);

	for (size_t k = 0; k < SRT_ARRAY_LEN(kinds); k++) {
		const bool required = kinds[k].where == ANY ||
				      kinds[k].where == (world == 1 ? ONE_RANK : TWO_RANKS);

		CHECK_MSG(!required || nfound[k] > 0,
			  "%d ranks: a missing wait \"%s\" is not found", world, kinds[k].name);
		if (srt_context_rank(context) == 0)
			printf("%-26s %3d waits, %3d redundant, %2d found\n", kinds[k].name,
			       nedges[k][EDGE_SINGLE] + nedges[k][EDGE_IMPLIED] +
				       nedges[k][EDGE_EARLY],
			       nedges[k][EDGE_IMPLIED] + nedges[k][EDGE_EARLY], nfound[k]);
	}
}

int main(int argc, char **argv)
{
	const srt_precision_t mixed = { .size = sizeof(mixed),
					.param = SRT_BF16,
					.reduce = SRT_F32 };
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);

	tests_all = argc > 1 && strcmp(argv[1], "all") == 0;
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	options.microbatches = NMICRO;
	options.prefetch = 1;
	test_training("zero3", &options);
	options.precision = &mixed;
	test_training("zero3 with bf16", &options);
	options.accumulation = SRT_ACCUMULATE_LAST;
	test_training("zero3 with bf16, accumulation at the last", &options);
	options.precision = NULL;
	test_training("zero3, accumulation at the last", &options);
	options.strategy = SRT_STRATEGY_DDP;
	test_training("ddp", &options);
	options = case_adamw(SRT_STRATEGY_ZERO3);
	options.microbatches = NMICRO;
	options.prefetch = 1;
	options.offload = (srt_offload_t){ .params = 1, .grads = 1, .state = 1 };
	test_training("zero3, all offloaded", &options);
	options.offload = (srt_offload_t){ .state = 1 };
	poisons = true;
	test_training("zero3, state offloaded", &options);
	check_kinds();
	srt_context_destroy(context);
	return check_done();
}
