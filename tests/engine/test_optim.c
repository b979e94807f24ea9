/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The optimizer over a list of views: launches and bits do not depend on where the views are,
 * groups and parameters have their own hyper-parameters, state and step counts are read and set,
 * and wrong lists are refused. Runs on every backend.
 */
#include <shardrt/shardrt.h>

#include "tests/harness/device.h"
#include "tests/harness/options.h"

#define NPARAMS 3
#define MOST_NELEM 70

static const int64_t sizes[NPARAMS] = { 48, 70, 16 };
static const char *const names[NPARAMS] = { "a", "b", "c" };
static srt_device_t *device;
static srt_stream_t *stream;

/* A list and its buffers: one buffer of each kind, or one of each parameter. */
typedef struct list {
	srt_buffer_t *buffer[4 * NPARAMS];
	size_t nbuffers;
	srt_optim_param_t param[NPARAMS];
} list_t;

/* Elements from the start of the buffer, if all parameters share it. */
static int64_t offset_of(int i)
{
	return i == 0 ? 0 : i == 1 ? 48 : 128;
}

static srt_view_t add_view(list_t *list, int i, bool apart, srt_dtype_t dtype, const char *name)
{
	const size_t elem = srt_dtype_bits(dtype) / 8;

	if (apart || i == 0) {
		list->buffer[list->nbuffers++] =
			test_buffer(device, (size_t)(apart ? MOST_NELEM : 256) * elem, name);
		return srt_view(list->buffer[list->nbuffers - 1], 0, dtype);
	}
	return (srt_view_t){ .dtype = dtype };
}

static void place(list_t *list, bool apart, srt_view_t *(*view)(srt_optim_param_t *),
		  srt_dtype_t dtype, const char *name)
{
	for (int i = 0; i < NPARAMS; i++) {
		srt_view_t *v = view(&list->param[i]);

		*v = add_view(list, i, apart, dtype, name);
		if (v->buffer == NULL)
			*v = srt_view(view(&list->param[0])->buffer,
				      (size_t)offset_of(i) * (srt_dtype_bits(dtype) / 8), dtype);
	}
}

static srt_view_t *value_of(srt_optim_param_t *p)
{
	return &p->value;
}

static srt_view_t *grad_of(srt_optim_param_t *p)
{
	return &p->grad;
}

static srt_view_t *copy_of(srt_optim_param_t *p)
{
	return &p->copy;
}

static srt_view_t *state_of(srt_optim_param_t *p)
{
	return &p->state[0];
}

static void list_create(list_t *list, bool apart, bool has_copy, bool gives_state)
{
	memset(list, 0, sizeof(*list));
	for (int i = 0; i < NPARAMS; i++) {
		list->param[i] = (srt_optim_param_t)SRT_OPTIM_PARAM_INIT;
		list->param[i].name = names[i];
		list->param[i].nelem = sizes[i];
	}
	place(list, apart, value_of, SRT_F32, "values");
	place(list, apart, grad_of, SRT_F32, "gradients");
	if (has_copy)
		place(list, apart, copy_of, SRT_BF16, "copies");
	if (gives_state)
		place(list, apart, state_of, SRT_F32, "states");
	for (int i = 0; i < NPARAMS; i++)
		CHECK_OK(srt_op_normal(&(srt_normal_t){ .size = sizeof(srt_normal_t),
							.y = list->param[i].value,
							.seed = 7,
							.name = names[i],
							.nelem = sizes[i],
							.std = 1.0f },
				       stream));
}

static void list_destroy(list_t *list)
{
	CHECK_OK(srt_stream_sync(stream));
	for (size_t b = 0; b < list->nbuffers; b++)
		srt_buffer_destroy(list->buffer[b]);
}

static void set_grads(list_t *list, uint64_t step)
{
	for (int i = 0; i < NPARAMS; i++)
		CHECK_OK(srt_op_normal(&(srt_normal_t){ .size = sizeof(srt_normal_t),
							.y = list->param[i].grad,
							.seed = step,
							.name = names[i],
							.nelem = sizes[i],
							.std = 1.0f },
				       stream));
}

static void get_view(srt_view_t view, int64_t nelem, void *host)
{
	test_get(stream, host, view.buffer, view.offset,
		 (size_t)nelem * (srt_dtype_bits(view.dtype) / 8));
}

static void get_values(list_t *list, float values[NPARAMS][MOST_NELEM])
{
	for (int i = 0; i < NPARAMS; i++)
		get_view(list->param[i].value, sizes[i], values[i]);
}

static srt_optim_t *create(const list_t *list, const srt_optim_options_t *groups, size_t ngroups)
{
	srt_optim_t *optim;

	CHECK_OK_OR_DIE(
		srt_optim_create(device, groups, ngroups, list->param, NPARAMS, &optim, stream));
	return optim;
}

/* Views side by side are one launch, others one each; the bits are the same. */
static void test_places(srt_optim_kind_t kind, bool has_copy, bool gives_state)
{
	srt_optim_options_t group = SRT_OPTIM_OPTIONS_INIT;
	float values[2][NPARAMS][MOST_NELEM] = { 0 };
	uint16_t copies[2][NPARAMS][MOST_NELEM] = { 0 };

	if (kind == SRT_OPTIM_SGD)
		group = *OPTIM(.momentum = 0.9, .weight_decay = 0.01f);
	group.kind = kind;
	group.lr = 0.1f;
	for (int apart = 0; apart < 2; apart++) {
		uint64_t launches;
		srt_optim_t *optim;
		list_t list;

		list_create(&list, apart, has_copy, gives_state);
		optim = create(&list, &group, 1);
		for (uint64_t step = 0; step < 3; step++) {
			set_grads(&list, step);
			launches = srt_device_launches(device);
			CHECK_OK(srt_optim_step(optim, stream));
			CHECK_INT(srt_device_launches(device) - launches, apart ? 4 : 2);
		}
		get_values(&list, values[apart]);
		for (int i = 0; has_copy && i < NPARAMS; i++)
			get_view(list.param[i].copy, sizes[i], copies[apart][i]);
		srt_optim_destroy(optim);
		list_destroy(&list);
	}
	CHECK_BITS(&values[0][0][0], &values[1][0][0], (size_t)NPARAMS * MOST_NELEM);
	CHECK(memcmp(copies[0], copies[1], sizeof(copies[0])) == 0);
	CHECK((copies[0][2][15] != 0) == has_copy);
}

/* Each parameter has the hyper-parameters of its group, and its own decay and factor. */
static void test_groups(void)
{
	const srt_optim_options_t groups[] = {
		*OPTIM(.kind = SRT_OPTIM_SGD, .lr = 0.5f, .weight_decay = 0.25f),
		*OPTIM(.kind = SRT_OPTIM_SGD, .lr = 0.125f, .maximize = 1),
	};
	float before[NPARAMS][MOST_NELEM], after[NPARAMS][MOST_NELEM];
	srt_optim_options_t of_group = SRT_OPTIM_OPTIONS_INIT;
	uint64_t launches;
	srt_optim_t *optim;
	srt_view_t block;
	list_t list;

	list_create(&list, false, false, false);
	list.param[1].group = 1;
	list.param[2].weight_decay = 0.5f;
	list.param[2].lr_scale = 2.0f;
	optim = create(&list, groups, 2);
	CHECK_INT(srt_optim_state_count(optim), 0);
	CHECK_STATUS(srt_optim_state(optim, 0, 0, &block), SRT_ERR_NOT_FOUND);
	CHECK_INT(srt_optim_count(optim), NPARAMS);
	CHECK_STR(srt_optim_name(optim, 1), list.param[1].name);
	CHECK_STR(srt_optim_name(optim, NPARAMS), "");
	CHECK_INT(srt_optim_group_count(optim), 2);
	CHECK_OK(srt_optim_group_options(optim, 1, &of_group));
	CHECK(memcmp(&of_group, &groups[1], sizeof(of_group)) == 0);
	CHECK_STATUS(srt_optim_group_options(optim, 2, &of_group), SRT_ERR_INVALID_ARGUMENT);
	for (int i = 0; i < NPARAMS; i++)
		CHECK_OK(srt_op_fill(list.param[i].grad, 1.0f, sizes[i], stream));
	get_values(&list, before);
	launches = srt_device_launches(device);
	CHECK_OK(srt_optim_step(optim, stream));
	CHECK_INT(srt_device_launches(device) - launches, 4); /* 2 groups: scalars and values */
	get_values(&list, after);
	for (int i = 0; i < NPARAMS; i++) {
		const double lr = i == 0 ? 0.5 : i == 1 ? -0.125 : 1.0;
		const double decay = i == 0 ? 0.25 : i == 1 ? 0.0 : 0.5;

		for (int64_t k = 0; k < sizes[i]; k++) {
			double w = (double)before[i][k];

			CHECK_NEAR(after[i][k], w - lr * (1.0 + decay * w), 1e-6);
		}
	}
	srt_optim_destroy(optim);
	list_destroy(&list);
}

/* Parameters without a gradient, skipped steps, learning rates, step counts. */
static void test_state(void)
{
	const srt_optim_options_t groups[] = {
		*OPTIM(.kind = SRT_OPTIM_ADAM, .lr = 0.5f, ADAM_BASE),
		*OPTIM(.kind = SRT_OPTIM_ADAM, .lr = 0.25f, ADAM_BASE),
	};
	const float inf = 1.0f, zero = 0.0f;
	float before[NPARAMS][MOST_NELEM], after[NPARAMS][MOST_NELEM], moment[MOST_NELEM];
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	srt_optim_t *optim;
	srt_view_t found, block;
	int32_t steps;
	list_t list;

	list_create(&list, true, false, false);
	list.param[2].group = 1;
	optim = create(&list, groups, 2);
	CHECK_INT(srt_optim_state_count(optim), 2);
	CHECK_INT(srt_optim_find(optim, "c"), 2);
	CHECK_INT(srt_optim_find(optim, "d"), NPARAMS);
	set_grads(&list, 1);
	CHECK_OK(srt_optim_set_used(optim, 1, 0, stream));
	get_values(&list, before);
	CHECK_OK(srt_optim_step(optim, stream));
	get_values(&list, after);
	for (int i = 0; i < NPARAMS; i++) {
		CHECK((memcmp(before[i], after[i], (size_t)sizes[i] * 4) == 0) == (i == 1));
		CHECK_OK(srt_optim_get_steps(optim, (size_t)i, &steps, stream));
		CHECK_INT(steps, i != 1);
		CHECK_OK(srt_optim_state(optim, (size_t)i, 1, &block));
		get_view(block, sizes[i], moment);
		CHECK((moment[3] > 0.0f) == (i != 1));
	}
	CHECK_OK(srt_optim_found_inf(optim, &found)); /* an infinity is found: all groups skip */
	test_put(stream, found.buffer, found.offset, &inf, sizeof(inf));
	CHECK_OK(srt_optim_step(optim, stream));
	get_values(&list, before);
	CHECK(memcmp(before[2], after[2], (size_t)sizes[2] * 4) == 0);
	test_put(stream, found.buffer, found.offset, &zero, sizeof(zero));
	CHECK_OK(srt_optim_set_lr(optim, 1, 0.0f, stream));
	CHECK_OK(srt_optim_set_used(optim, 1, 1, stream));
	CHECK_OK(srt_optim_set_steps(optim, 1, 7, stream));
	CHECK_OK(srt_optim_step(optim, stream));
	get_values(&list, after);
	CHECK(memcmp(before[0], after[0], (size_t)sizes[0] * 4) != 0);
	CHECK(memcmp(before[1], after[1], (size_t)sizes[1] * 4) != 0);
	CHECK(memcmp(before[2], after[2], (size_t)sizes[2] * 4) == 0);
	CHECK_OK(srt_optim_get_steps(optim, 1, &steps, stream));
	CHECK_INT(steps, 8);
	for (size_t g = 0; g < 2; g++) {
		CHECK_OK(srt_optim_get_step_info(optim, g, &state, stream));
		CHECK(state.step == 2 && state.skipped == 1 && state.lr == (g == 0 ? 0.5f : 0.0f));
	}
	state.step = 41;
	CHECK_OK(srt_optim_set_step_info(optim, 1, &state, stream));
	CHECK_OK(srt_optim_step(optim, stream));
	CHECK_OK(srt_optim_get_step_info(optim, 1, &state, stream));
	CHECK_INT(state.step, 42);
	CHECK_STATUS(srt_optim_set_lr(optim, 2, 0.0f, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_optim_set_lr(optim, 0, -1.0f, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_optim_set_used(optim, NPARAMS, 0, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_optim_set_steps(optim, 0, -1, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_optim_get_step_info(optim, 2, &state, stream), SRT_ERR_INVALID_ARGUMENT);
	state.schedule = 9;
	CHECK_STATUS(srt_optim_set_step_info(optim, 1, &state, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_optim_step(NULL, stream), SRT_ERR_INVALID_ARGUMENT);
	srt_optim_destroy(optim);
	list_destroy(&list);
}

/* A list with one thing wrong. */
static void refuse(const list_t *good, const srt_optim_param_t *wrong, const char *words)
{
	const srt_optim_options_t options = SRT_OPTIM_ADAM_INIT;
	srt_optim_param_t list[2] = { good->param[0], *wrong };
	srt_optim_t *optim = NULL;

	CHECK_STATUS(srt_optim_create(device, &options, 1, list, 2, &optim, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(words);
	CHECK(optim == NULL);
}

static void test_errors(void)
{
	srt_optim_options_t groups[] = { SRT_OPTIM_OPTIONS_INIT, SRT_OPTIM_OPTIONS_INIT };
	srt_optim_param_t wrong;
	srt_optim_t *optim;
	list_t list;

	list_create(&list, true, true, false);
	wrong = list.param[0];
	refuse(&list, &wrong, "'a' is in the optimizer's list twice");
	wrong = list.param[1];
	wrong.name = NULL;
	refuse(&list, &wrong, "parameter 1 of the optimizer has no name");
	wrong = list.param[1];
	wrong.group = 1;
	refuse(&list, &wrong, "its group is 1, must be less than 1");
	wrong = list.param[1];
	wrong.nelem = 10 * MOST_NELEM;
	refuse(&list, &wrong, "700 elements at byte 0 are outside");
	wrong = list.param[1];
	wrong.grad.dtype = SRT_F16;
	refuse(&list, &wrong, "the gradient of parameter 'b' is f16, must be f32");
	wrong = list.param[1];
	wrong.grad.buffer = NULL;
	refuse(&list, &wrong, "the gradient of parameter 'b' is absent");
	wrong = list.param[1];
	wrong.value.dtype = SRT_I32;
	refuse(&list, &wrong, "must be f32 with a copy");
	wrong = list.param[1];
	wrong.copy.dtype = SRT_F32;
	refuse(&list, &wrong, "the copy of parameter 'b' is f32");
	wrong = list.param[1];
	wrong.state[0] = wrong.grad;
	refuse(&list, &wrong, "state 1 of parameter 'b' is absent");
	groups[0].kind = SRT_OPTIM_NONE;
	CHECK_STATUS(srt_optim_create(device, groups, 1, list.param, 1, &optim, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("kind of group 0 is 3");
	groups[0].kind = SRT_OPTIM_ADAM;
	CHECK_STATUS(srt_optim_create(device, groups, 2, list.param, 1, &optim, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("kind of group 1 is 2");
	groups[0].beta1 = 1;
	CHECK_STATUS(srt_optim_create(device, groups, 1, list.param, 1, &optim, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("beta1");
	CHECK_STATUS(srt_optim_create(device, groups, 0, list.param, 1, &optim, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("ngroups is 0");
	CHECK_STATUS(srt_optim_create(device, NULL, 1, list.param, 1, &optim, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	list_destroy(&list);
}

int main(void)
{
	CHECK_OK_OR_DIE(test_open_device(test_backend(), NULL, 0, &device));
	stream = test_stream(device, "test");
	test_places(SRT_OPTIM_SGD, false, false);
	test_places(SRT_OPTIM_SGD, false, true);
	test_places(SRT_OPTIM_ADAMW, false, false);
	test_places(SRT_OPTIM_ADAM, true, false);
	test_groups();
	test_state();
	test_errors();
	srt_optim_destroy(NULL);
	srt_stream_destroy(stream);
	srt_device_close(device);
	return check_done();
}
