/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that write to their shards themselves, through views of srt_param_local(): what passes,
 * srt_param_get() and the step make of it. Run by test_local_writes.sh.
 */
#include <unistd.h>

#include <shardrt/shardrt.h>

#include "runtime/engine/engine.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

#define NPARAMS 4
#define MOST 64 /* elements of a parameter */

static srt_context_t *context;
static int rank, world, reshard;         /* reshard: of the units */
static const srt_engine_options_t *form; /* the strategy and, if any, mesh and offload */

typedef struct program {
	srt_engine_t *engine;
	srt_stream_t *stream;
	srt_stream_t *home;            /* of the host device, if values are offloaded to it */
	srt_event_t *ready, *returned; /* of both devices */
	srt_buffer_t *seen;            /* what the last forward pass read, fp32 */
	srt_unit_t *root, *child;
	srt_param_t *param[NPARAMS]; /* [3] is frozen */
	srt_view_t view[NPARAMS];    /* kept from take_views() on */
} program_t;

static const int64_t shapes[NPARAMS][2] = { { 1, MOST }, { 5, 3 }, { 7, 2 }, { 3, 4 } };

/* solo: the root's parameter of one row only, which the first rank owns. */
static void declare(program_t *p, srt_dtype_t cast, bool solo)
{
	static const char *const names[NPARAMS] = { "one", "w", "x", "frozen" };
	const srt_precision_t precision = { .size = sizeof(precision), .param = cast };
	srt_engine_options_t options = *form;
	const srt_unit_options_t unit = { .size = sizeof(unit), .reshard = reshard };
	const srt_param_options_t frozen = { PARAM_BASE, .frozen = 1 };
	srt_device_t *device = srt_context_device(context);

	memset(p, 0, sizeof(*p));
	options.precision = &precision;
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "program", &p->stream));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, NPARAMS * MOST * sizeof(float),
					  "seen", &p->seen));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &p->engine));
	CHECK_OK_OR_DIE(srt_unit_create(p->engine, NULL, "root", &unit, &p->root));
	CHECK_OK_OR_DIE(srt_unit_create(p->engine, p->root, "child", &unit, &p->child));
	for (int i = 0; i < (solo ? 1 : NPARAMS); i++)
		CHECK_OK_OR_DIE(srt_param_create(i < 2 ? p->root : p->child, names[i], SRT_F32, 2,
						 shapes[i], i == 3 ? &frozen : NULL, &p->param[i]));
	CHECK_OK_OR_DIE(srt_engine_build(p->engine));
	for (int i = 0; i < NPARAMS && p->param[i] != NULL; i++)
		CHECK_OK(srt_param_init_constant(p->param[i], 1.0f, p->stream));
}

static void destroy(program_t *p)
{
	CHECK_OK(srt_stream_sync(p->stream));
	srt_engine_destroy(p->engine);
	srt_event_destroy(p->returned);
	srt_event_destroy(p->ready);
	srt_stream_destroy(p->home);
	srt_buffer_destroy(p->seen);
	srt_stream_destroy(p->stream);
}

static srt_status_t nap(void *arg)
{
	(void)arg;
	usleep(10000);
	return SRT_OK;
}

/* Later work on the stream is late. */
static void delay(srt_stream_t *stream)
{
	CHECK_OK(srt_stream_host_fn(stream, nap, NULL));
}

static void take_views(program_t *p)
{
	for (int i = 0; i < NPARAMS && p->param[i] != NULL; i++)
		p->view[i] = test_local(p->param[i], SRT_PARAM_VALUE);
	CHECK_OR_DIE(p->view[0].buffer != NULL);
}

/* The stream for work on what the engine owns, after earlier work of the caller's stream. */
static srt_stream_t *enter_home(program_t *p, const srt_view_t *view, srt_stream_t *stream)
{
	srt_device_t *device = view->buffer->device;

	if (device == srt_stream_device(stream))
		return stream;
	if (p->home == NULL) {
		CHECK_OK_OR_DIE(srt_stream_create(device, 0, "program's host", &p->home));
		CHECK_OK_OR_DIE(srt_event_create(device, &p->returned));
		CHECK_OK_OR_DIE(srt_event_create(srt_stream_device(stream), &p->ready));
	}
	CHECK_OK(srt_event_record(p->ready, stream));
	CHECK_OK(srt_stream_wait_event(p->home, p->ready));
	return p->home;
}

static void leave_home(const program_t *p, srt_stream_t *home, srt_stream_t *stream)
{
	if (home != stream) {
		CHECK_OK(srt_event_record(p->returned, home));
		CHECK_OK(srt_stream_wait_event(stream, p->returned));
	}
}

static void write_on(program_t *p, float value, srt_stream_t *stream)
{
	srt_stream_t *home = enter_home(p, &p->view[0], stream);

	for (int i = 0; i < NPARAMS && p->param[i] != NULL; i++) {
		srt_part_t part;

		CHECK_OK(srt_param_part(p->param[i], rank, &part));
		CHECK_OK(srt_op_fill(p->view[i], value, part.nelem, home));
	}
	leave_home(p, home, stream);
}

static void write_late(program_t *p, float value)
{
	delay(p->stream);
	write_on(p, value, p->stream);
}

static void use_params(const program_t *p, const srt_unit_t *unit, bool backward,
		       srt_stream_t *stream)
{
	for (int i = 0; i < NPARAMS && p->param[i] != NULL; i++) {
		const int64_t nelem = srt_param_nelem(p->param[i]);
		srt_view_t view;
		int accumulate;

		if (p->param[i]->unit != unit || (backward && p->param[i]->frozen))
			continue;
		if (!backward) {
			CHECK_OK(srt_param_data(p->param[i], &view));
			CHECK_OK(srt_op_cast(srt_view(p->seen, (size_t)i * MOST * 4, SRT_F32), view,
					     nelem, stream));
			continue;
		}
		CHECK_OK(srt_param_grad(p->param[i], &view, &accumulate));
		CHECK_OK(srt_op_fill(view, accumulate ? 2.0f : 1.0f, nelem, stream));
		CHECK_OK(srt_param_grad_ready(p->param[i]));
	}
}

static void forward_on(const program_t *p, srt_stream_t *root, srt_stream_t *child)
{
	CHECK_OK(srt_unit_forward_begin(p->root, root));
	use_params(p, p->root, false, root);
	CHECK_OK(srt_unit_forward_begin(p->child, child));
	use_params(p, p->child, false, child);
	CHECK_OK(srt_unit_forward_end(p->child, child));
	CHECK_OK(srt_unit_forward_end(p->root, root));
}

static void forward(const program_t *p)
{
	forward_on(p, p->stream, p->stream);
}

static void backward(const program_t *p)
{
	CHECK_OK(srt_unit_backward_begin(p->root, p->stream));
	CHECK_OK(srt_unit_backward_begin(p->child, p->stream));
	use_params(p, p->child, true, p->stream);
	CHECK_OK(srt_unit_backward_end(p->child, p->stream));
	use_params(p, p->root, true, p->stream);
	CHECK_OK(srt_unit_backward_end(p->root, p->stream));
}

static void check_all(const program_t *p, int i, const float *got, float expected, const char *when)
{
	const int64_t nelem = srt_param_nelem(p->param[i]);
	int64_t nwrong = 0;

	for (int64_t k = 0; k < nelem; k++)
		nwrong += got[k] != expected;
	CHECK_MSG(nwrong == 0, "%s: %d of %d elements of '%s' are not %g, the first is %g", when,
		  (int)nwrong, (int)nelem, srt_param_name(p->param[i]), (double)expected,
		  (double)got[0]);
}

static void check_seen(const program_t *p, float expected, const char *when)
{
	static float got[NPARAMS][MOST];

	CHECK_OK(srt_buffer_copy_to_host(got, p->seen, 0, sizeof(got), p->stream));
	for (int i = 0; i < NPARAMS && p->param[i] != NULL; i++)
		check_all(p, i, got[i], expected, when);
}

/* frozen: the value of the frozen parameter. */
static void check_get(const program_t *p, float expected, float frozen, const char *when)
{
	float got[MOST];

	for (int i = 0; i < NPARAMS && p->param[i] != NULL; i++) {
		CHECK_OK(srt_param_get(p->param[i], SRT_PARAM_VALUE, got, p->stream));
		check_all(p, i, got, i == 3 ? frozen : expected, when);
	}
}

/*
 * Reliability: shards written without `srt_engine_write_begin()`, after a pass | units gathered
 * before keep the old values | gathered again
 */
static void test_values(srt_dtype_t cast)
{
	program_t p;

	declare(&p, cast, false);
	forward(&p);
	check_seen(&p, 1.0f, "before any change");
	take_views(&p);
	write_late(&p, 2.0f);
	forward(&p);
	check_seen(&p, 2.0f, "after a pass");
	write_late(&p, 3.0f);
	check_get(&p, 3.0f, 3.0f, "srt_param_get()");
	write_late(&p, 4.0f);
	check_get(&p, 4.0f, 4.0f, "srt_param_get() once more");
	write_late(&p, 5.0f);
	forward(&p);
	check_seen(&p, 5.0f, "after srt_param_get()");

	CHECK_OK(srt_engine_microbatch(p.engine, 0, 2));
	forward(&p);
	backward(&p);
	write_late(&p, 6.0f);
	CHECK_OK(srt_engine_microbatch(p.engine, 1, 2));
	forward(&p);
	check_seen(&p, 6.0f, "between micro-batches");
	backward(&p);
	CHECK_OK(srt_engine_step(p.engine, p.stream));
	check_get(&p, 5.0f, 6.0f, "the step"); /* 6 - 0.5 * (1 + 1) */
	destroy(&p);
}

/*
 * Reliability: shards written without `srt_engine_write_begin()`, on a stream | gathers overtook
 * the writes | gathers wait for the stream of the pass
 */
static void test_order(srt_dtype_t cast)
{
	srt_stream_t *writer, *other;
	srt_event_t *written;
	program_t p;

	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "writer", &writer));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "other", &other));
	CHECK_OK_OR_DIE(srt_event_create(srt_context_device(context), &written));
	declare(&p, cast, false);
	take_views(&p);
	for (int step = 0; step < 3; step++) {
		const float value = 10.0f + (float)step;

		forward(&p);
		backward(&p);
		CHECK_OK(srt_engine_step(p.engine, p.stream));
		write_late(&p, value);
		forward(&p);
		check_seen(&p, value, "after a step");

		delay(writer);
		write_on(&p, value + 0.5f, writer);
		CHECK_OK(srt_event_record(written, writer));
		CHECK_OK(srt_stream_wait_event(p.stream, written));
		forward_on(&p, p.stream, other);
		CHECK_OK(srt_stream_sync(other));
		check_seen(&p, value + 0.5f, "on three streams");
	}
	destroy(&p);
	srt_event_destroy(written);
	srt_stream_destroy(other);
	srt_stream_destroy(writer);
}

/* The parameter that the first rank owns alone, after a step: 0.5. */
static void declare_solo(program_t *p)
{
	declare(p, SRT_DTYPE_NONE, true);
	forward(p); /* in the first step each pass waits for all ranks */
	backward(p);
	CHECK_OK(srt_engine_step(p->engine, p->stream));
}

/*
 * The first rank writes while the last one, which owns nothing, has not read yet.
 *
 * Reliability: shards written without `srt_engine_write_begin()`, while a rank is late | that rank
 * read the next values | the write waits until all ranks have read
 */
static void test_late_reader(void)
{
	static const char *const rounds[] = { "first view", "kept view", "srt_param_get()" };
	program_t p;

	declare_solo(&p);
	for (int round = 0; round < 3; round++) {
		const float value = 0.5f + (float)round;

		if (rank == world - 1)
			usleep(50000);
		if (round < 2)
			forward(&p);
		else
			check_get(&p, value, value, rounds[round]);
		if (round == 0)
			take_views(&p);
		write_on(&p, value + 1.0f, p.stream);
		if (round < 2)
			check_seen(&p, value, rounds[round]);
	}
	destroy(&p);
}

/*
 * Reliability: `srt_param_get()` between `srt_engine_write_begin()` and `_end()` | later changes
 * were not seen, or seen by a late rank too early | the values at the call
 */
static void test_get_in_pair(void)
{
	program_t p;
	float value = 0.5f;

	declare_solo(&p);
	for (int round = 0; round < 2; round++) {
		CHECK_OK(srt_engine_write_begin(p.engine, p.stream));
		take_views(&p);
		for (int change = 0; change < 3; change++) {
			if (rank == world - 1)
				usleep(20000);
			check_get(&p, value, value, "between changes");
			value += 1.0f;
			write_on(&p, value, p.stream);
		}
		CHECK_OK(srt_engine_write_end(p.engine, p.stream));
	}
	CHECK_INT(p.engine->writes.unseen, 0);
	destroy(&p);
}

static void test_saved(srt_dtype_t cast)
{
	static const char path[] = "tests/engine/test_local_writes.tmp";
	unsigned char before[16] = { 0 }, hash[16] = { 0 }, expected[16] = { 0 };
	srt_status_t status;
	program_t p;

	declare(&p, cast, false);
	status = srt_engine_hash(p.engine, before, p.stream);
	if (status != SRT_ERR_UNSUPPORTED)
		CHECK_OK(status);
	take_views(&p);
	write_late(&p, 2.0f);
	CHECK_OK(srt_engine_save(p.engine, path, NULL, 0, p.stream));
	if (status == SRT_OK) {
		write_late(&p, 3.0f);
		CHECK_OK(srt_engine_hash(p.engine, hash, p.stream));
		for (int i = 0; i < NPARAMS; i++)
			CHECK_OK(srt_param_init_constant(p.param[i], 3.0f, p.stream));
		CHECK_OK(srt_engine_hash(p.engine, expected, p.stream));
		CHECK(memcmp(hash, expected, sizeof(hash)) == 0);
		CHECK(memcmp(hash, before, sizeof(hash)) != 0);
	}
	CHECK_OK(srt_engine_load(p.engine, path, p.stream));
	check_get(&p, 2.0f, 2.0f, "loaded");
	destroy(&p);
	if (rank == 0)
		remove(path);
}

/* Views that are taken between srt_engine_write_begin() and _end() cost nothing afterwards. */
static void test_pair(srt_dtype_t cast)
{
	program_t p;

	declare(&p, cast, false);
	for (int step = 0; step < 2; step++) {
		const float value = 2.0f + (float)step;

		forward(&p);
		CHECK_OK(srt_engine_write_begin(p.engine, p.stream));
		take_views(&p);
		write_late(&p, value);
		CHECK_OK(srt_engine_write_end(p.engine, p.stream));
		forward(&p);
		CHECK_INT(p.engine->writes.unseen, 0);
		if (world > 1 && !p.engine->checks.on) { /* else all is released */
			const bool gathered = p.root->slot[SRT_SLOT_PARAMS] != NULL;

			CHECK_INT(p.root->unshard.is_gathered, gathered);
			CHECK_INT(p.root->unshard.is_exposed, gathered); /* its end does not wait */
		}
		check_seen(&p, value, "after write_end()");
	}
	destroy(&p);
}

/*
 * Reliability: the reduced gradient between a backward pass and the step | values of the last step
 * | refused by name, or right after `srt_engine_finish_backward()`
 */
static void test_gradients(srt_dtype_t cast)
{
	float got[MOST];
	program_t p;

	declare(&p, cast, false);
	for (int step = 0; step < 3; step++) {
		forward(&p);
		backward(&p);
		CHECK(test_local(p.param[1], SRT_PARAM_GRAD).buffer == NULL);
		CHECK_ERROR_HAS("'w' is not reduced yet: call srt_engine_finish_backward()");
		CHECK_STATUS(srt_param_get(p.param[1], SRT_PARAM_GRAD, got, p.stream),
			     SRT_ERR_STATE);
		CHECK_ERROR_HAS("'w' is not reduced yet: call srt_engine_finish_backward()");
		CHECK_OK(srt_engine_finish_backward(p.engine, p.stream));
		for (int i = 0; i < 3; i++) {
			const srt_view_t grad = test_local(p.param[i], SRT_PARAM_GRAD);
			srt_stream_t *home;
			srt_part_t part;

			CHECK_OR_DIE(grad.buffer != NULL);
			CHECK_OK(srt_param_get(p.param[i], SRT_PARAM_GRAD, got, p.stream));
			check_all(&p, i, got, 1.0f, "gradient");
			CHECK_OK(srt_param_part(p.param[i], rank, &part));
			delay(p.stream);
			home = enter_home(&p, &grad, p.stream);
			CHECK_OK(srt_op_scale(grad, grad, 2.0f, part.nelem, home));
			leave_home(&p, home, p.stream);
		}
		CHECK_OK(srt_engine_step(p.engine, p.stream));
		check_get(&p, -(float)step, 1.0f, "stepped by the changed gradient");
	}
	CHECK(test_local(p.param[3], SRT_PARAM_GRAD).buffer == NULL);
	CHECK_ERROR_HAS("'frozen' is frozen: it has no gradient");
	CHECK(test_local(p.param[1], SRT_PARAM_STATE0).buffer == NULL);
	CHECK_ERROR_HAS("'w' has no optimizer state 0");
	destroy(&p);
}

static void run(const srt_engine_options_t *options, int groups)
{
	static const srt_dtype_t casts[] = { SRT_DTYPE_NONE, SRT_BF16 };

	form = options;
	reshard = groups;
	for (size_t k = 0; k < SRT_ARRAY_LEN(casts); k++) {
		test_values(casts[k]);
		test_order(casts[k]);
		test_saved(casts[k]);
		test_pair(casts[k]);
		test_gradients(casts[k]);
	}
	test_late_reader();
	test_get_in_pair();
}

int main(void)
{
	static const char *const names[] = { "replicate", "shard" };
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0.5f);
	srt_mesh_t *mesh;
	int shape[2];

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	options.microbatches = 2;
	for (; options.strategy <= SRT_STRATEGY_ZERO3 && world < 4; options.strategy++)
		run(&options, 0);
	options.strategy = SRT_STRATEGY_ZERO3;
	options.offload = (srt_offload_t){ .params = 1, .grads = 1, .state = 1 };
	run(&options, 0);
	options.offload = (srt_offload_t){ 0 };
	if (world == 4)
		run(&options, 2);
	shape[0] = world % 2 == 0 ? 2 : 1;
	shape[1] = world / shape[0];
	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, names, &mesh));
	options.strategy = SRT_STRATEGY_HYBRID;
	options.mesh = mesh;
	run(&options, 0);
	srt_mesh_destroy(mesh);
	srt_context_destroy(context);
	return check_done();
}
