/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sharded optimizer: values and states of random shardings have the bits of an optimizer over
 * the whole tensors, before and after the state was loaded under other shardings; named parameters;
 * what is refused, on all ranks. Run by test_sharded_tensor.sh.
 *
 * Parity: 002 TestShardedOptimizer.test_named_params_with_sharded_tensor | 1 to 4 | all | passes
 */
#include <shardrt/ops.h>

#include "base/base.h"
#include "tests/harness/options.h"
#include "tests/harness/random.h"
#include "tests/tensors/tensor_case.h"

enum { NGROUPS = 2, NPARAMS = 4, PLAIN = 3, MAX_NELEM = 60, NSTEPS = 3 };

static tensor_case_t c;
static const char *const names[NPARAMS] = { "linear1.weight", "linear2.weight", "scale", "bias" };
static const int64_t shapes[NPARAMS][2] = { { 12, 5 }, { 3, 7 }, { 1, 1 }, { 11, 1 } };

static int64_t nelem_of(int i)
{
	return shapes[i][0] * shapes[i][1];
}

static size_t nbytes_of(int i, srt_dtype_t dtype)
{
	return (size_t)nelem_of(i) * srt_dtype_bits(dtype) / 8;
}

/* ---- the reference: whole tensors on each rank ------------------------------------------- */

typedef struct whole {
	srt_buffer_t *values[NPARAMS], *grads[NPARAMS];
	srt_optim_t *optim;
} whole_t;

/* Values or gradients of a step, the same on all ranks and for all shardings. */
static void draw(srt_buffer_t *buffer, int i, srt_dtype_t dtype, uint64_t seed)
{
	CHECK_OK(srt_op_normal(&(srt_normal_t){ .size = sizeof(srt_normal_t),
						.y = srt_view(buffer, 0, dtype),
						.seed = seed,
						.name = names[i],
						.nelem = nelem_of(i),
						.std = 1.0f },
			       c.stream));
}

static void whole_create(whole_t *w, const srt_optim_options_t *groups, srt_dtype_t dtype)
{
	srt_device_t *device = srt_context_device(c.context);
	srt_optim_param_t list[NPARAMS];

	for (int i = 0; i < NPARAMS; i++) {
		CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes_of(i, dtype),
						  "value", &w->values[i]));
		CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes_of(i, dtype),
						  "grad", &w->grads[i]));
		draw(w->values[i], i, dtype, 1);
		list[i] = (srt_optim_param_t){ .size = sizeof(list[i]),
					       .name = names[i],
					       .nelem = nelem_of(i),
					       .value = srt_view(w->values[i], 0, dtype),
					       .grad = srt_view(w->grads[i], 0, dtype),
					       .group = i % 2,
					       .weight_decay = SRT_OPTIM_GROUP_WEIGHT_DECAY,
					       .lr_scale = i == 1 ? 0.5f : 1.0f };
	}
	CHECK_OK_OR_DIE(
		srt_optim_create(device, groups, NGROUPS, list, NPARAMS, &w->optim, c.stream));
}

static void whole_destroy(whole_t *w)
{
	CHECK_OK(srt_stream_sync(c.stream));
	srt_optim_destroy(w->optim);
	for (int i = 0; i < NPARAMS; i++) {
		srt_buffer_destroy(w->values[i]);
		srt_buffer_destroy(w->grads[i]);
	}
}

/* ---- sharded ----------------------------------------------------------------------------- */

typedef struct parts {
	srt_sharded_tensor_t *values[NPARAMS], *grads[NPARAMS]; /* of PLAIN: NULL */
	srt_buffer_t *plain_value, *plain_grad;
	srt_sharded_optim_param_t list[NPARAMS];
	srt_optim_t *optim;
} parts_t;

static void parts_list(parts_t *p, srt_dtype_t dtype)
{
	for (int i = 0; i < NPARAMS; i++)
		p->list[i] =
			(srt_sharded_optim_param_t){ .size = sizeof(p->list[i]),
						     .name = names[i],
						     .value = p->values[i],
						     .grad = p->grads[i],
						     .group = i % 2,
						     .weight_decay = SRT_OPTIM_GROUP_WEIGHT_DECAY,
						     .lr_scale = i == 1 ? 0.5f : 1.0f };
	p->list[PLAIN].nelem = nelem_of(PLAIN);
	p->list[PLAIN].plain_value = srt_view(p->plain_value, 0, dtype);
	p->list[PLAIN].plain_grad = srt_view(p->plain_grad, 0, dtype);
}

/* Parameters of random shardings, with the values of another optimizer's or new ones. */
static void parts_create(parts_t *p, const srt_optim_options_t *groups, srt_dtype_t dtype,
			 const parts_t *from)
{
	srt_device_t *device = srt_context_device(c.context);
	tensor_sharding_t s;

	*p = (parts_t){ 0 };
	for (int i = 0; i < NPARAMS; i++) {
		if (i == PLAIN)
			continue;
		tensor_random_sharding(&s, &c, 2, shapes[i]);
		if (from != NULL) {
			CHECK_OK_OR_DIE(srt_sharded_tensor_reshard(from->values[i], &s.sharding,
								   &p->values[i], c.stream));
		} else {
			CHECK_OK_OR_DIE(srt_sharded_tensor_create(c.context, NULL, names[i], dtype,
								  2, shapes[i], &s.sharding,
								  &p->values[i]));
			CHECK_OK(srt_sharded_tensor_normal(p->values[i], 1, 0.0f, 1.0f, c.stream));
		}
		CHECK_OK_OR_DIE(
			srt_sharded_tensor_create_like(p->values[i], names[i], &p->grads[i]));
	}
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes_of(PLAIN, dtype), "value",
					  &p->plain_value));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes_of(PLAIN, dtype), "grad",
					  &p->plain_grad));
	if (from != NULL)
		CHECK_OK(srt_buffer_copy(p->plain_value, 0, from->plain_value, 0,
					 nbytes_of(PLAIN, dtype), c.stream));
	else
		draw(p->plain_value, PLAIN, dtype, 1);
	parts_list(p, dtype);
	CHECK_OK_OR_DIE(srt_sharded_optim_create(c.context, NULL, groups, NGROUPS, p->list, NPARAMS,
						 &p->optim, c.stream));
}

static void parts_destroy(parts_t *p)
{
	CHECK_OK(srt_stream_sync(c.stream));
	srt_optim_destroy(p->optim);
	for (int i = 0; i < NPARAMS; i++) {
		srt_sharded_tensor_destroy(p->values[i]);
		srt_sharded_tensor_destroy(p->grads[i]);
	}
	srt_buffer_destroy(p->plain_value);
	srt_buffer_destroy(p->plain_grad);
}

static void step(whole_t *w, parts_t *p, srt_dtype_t dtype, uint64_t number)
{
	for (int i = 0; i < NPARAMS; i++) {
		draw(w->grads[i], i, dtype, 100 + number);
		if (i != PLAIN)
			CHECK_OK(srt_sharded_tensor_normal(p->grads[i], 100 + number, 0.0f, 1.0f,
							   c.stream));
	}
	draw(p->plain_grad, PLAIN, dtype, 100 + number);
	CHECK_OK(srt_optim_step(w->optim, c.stream));
	CHECK_OK(srt_optim_step(p->optim, c.stream));
}

static void check_plain(srt_view_t got, srt_view_t want, size_t nbytes, const char *what)
{
	unsigned char a[MAX_NELEM * 4], b[MAX_NELEM * 4];

	CHECK_OK(srt_buffer_copy_to_host(a, got.buffer, got.offset, nbytes, c.stream));
	CHECK_OK(srt_buffer_copy_to_host(b, want.buffer, want.offset, nbytes, c.stream));
	CHECK_MSG(memcmp(a, b, nbytes) == 0, "%s of the plain parameter", what);
}

/* Values, states and step counts are those of the whole tensors. */
static void check_equal(const whole_t *w, const parts_t *p, srt_dtype_t dtype)
{
	const size_t nstates = srt_optim_state_count(w->optim);
	unsigned char bytes[MAX_NELEM * 4];

	CHECK_INT(srt_optim_state_count(p->optim), nstates);
	for (int i = 0; i < NPARAMS; i++) {
		const size_t nbytes = nbytes_of(i, dtype);
		int32_t steps = -1, whole_steps = -2;

		CHECK_OK(srt_optim_get_steps(p->optim, (size_t)i, &steps, c.stream));
		CHECK_OK(srt_optim_get_steps(w->optim, (size_t)i, &whole_steps, c.stream));
		CHECK_INT(steps, whole_steps);
		if (i == PLAIN) {
			check_plain(p->list[i].plain_value, srt_view(w->values[i], 0, dtype),
				    nbytes, "value");
		} else {
			CHECK_OK(srt_buffer_copy_to_host(bytes, w->values[i], 0, nbytes, c.stream));
			tensor_check(&c, p->values[i], bytes, "value");
		}
		for (size_t k = 0; k < nstates; k++) {
			srt_sharded_tensor_t *mine =
				srt_sharded_optim_state(p->optim, (size_t)i, k);
			srt_view_t state, plain;

			CHECK_OK(srt_optim_state(w->optim, (size_t)i, k, &state));
			CHECK_OK(srt_optim_state(p->optim, (size_t)i, k, &plain));
			CHECK((mine == NULL) == (i == PLAIN));
			CHECK((plain.buffer != NULL) == (i == PLAIN));
			if (i == PLAIN) {
				check_plain(plain, state, nbytes, "state");
				continue;
			}
			CHECK_OK(srt_buffer_copy_to_host(bytes, state.buffer, state.offset, nbytes,
							 c.stream));
			tensor_check(&c, mine, bytes, srt_optim_state_name(p->optim, k));
		}
	}
}

static void test_kind(srt_optim_options_t group, srt_dtype_t dtype)
{
	srt_optim_options_t groups[NGROUPS] = { group, group };
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	whole_t w;
	parts_t p, q;

	groups[1].lr = 0.01f;
	groups[1].weight_decay = 0.1f;
	for (int g = 0; g < NGROUPS; g++) {
		groups[g].warmup = 2;
		groups[g].lr_steps = 20;
	}
	random_state = 12345 + (uint64_t)group.kind * 7 + (uint64_t)dtype;
	whole_create(&w, groups, dtype);
	parts_create(&p, groups, dtype, NULL);
	for (uint64_t s = 0; s < NSTEPS; s++)
		step(&w, &p, dtype, s);
	check_equal(&w, &p, dtype);
	parts_create(&q, groups, dtype, &p);
	CHECK_OK(srt_sharded_optim_load(q.optim, p.optim, c.stream));
	check_equal(&w, &q, dtype);
	parts_destroy(&p);
	for (uint64_t s = NSTEPS; s < 2 * NSTEPS; s++)
		step(&w, &q, dtype, s);
	check_equal(&w, &q, dtype);
	CHECK_OK(srt_optim_set_lr(q.optim, 1, 0.25f, c.stream));
	CHECK_OK(srt_optim_set_lr(w.optim, 1, 0.25f, c.stream));
	for (size_t i = 0; i < NPARAMS; i++) {
		CHECK_OK(srt_optim_set_steps(q.optim, i, 50, c.stream));
		CHECK_OK(srt_optim_set_steps(w.optim, i, 50, c.stream));
	}
	step(&w, &q, dtype, 99);
	check_equal(&w, &q, dtype);
	CHECK_OK(srt_optim_get_step_info(q.optim, 0, &state, c.stream));
	CHECK_INT(state.step, 2 * NSTEPS + 1);
	state.step = 1; /* within the warm-up */
	CHECK_OK(srt_optim_set_step_info(q.optim, 0, &state, c.stream));
	CHECK_OK(srt_optim_set_step_info(w.optim, 0, &state, c.stream));
	step(&w, &q, dtype, 100);
	check_equal(&w, &q, dtype);
	parts_destroy(&q);
	whole_destroy(&w);
}

static void test_names(void)
{
	const srt_optim_options_t groups[NGROUPS] = { SRT_OPTIM_ADAM_INIT, SRT_OPTIM_ADAM_INIT };
	parts_t p;

	random_state = 77;
	parts_create(&p, groups, SRT_F32, NULL);
	CHECK_INT(srt_optim_count(p.optim), NPARAMS);
	for (size_t i = 0; i < NPARAMS; i++) {
		CHECK_STR(srt_optim_name(p.optim, i), names[i]);
		CHECK_INT(srt_optim_find(p.optim, names[i]), i);
	}
	CHECK_STR(srt_optim_name(p.optim, NPARAMS), "");
	CHECK_INT(srt_optim_find(p.optim, "linear"), NPARAMS);
	CHECK_INT(srt_optim_state_count(p.optim), 2);
	CHECK_STR(srt_optim_state_name(p.optim, 0), "exp_avg");
	CHECK_STR(srt_optim_state_name(p.optim, 1), "exp_avg_sq");
	CHECK_STR(srt_optim_state_name(p.optim, 2), "");
	CHECK_STR(srt_sharded_tensor_name(srt_sharded_optim_state(p.optim, 0, 1)),
		  "linear1.weight.exp_avg_sq");
	CHECK(srt_sharded_optim_state(p.optim, 0, 2) == NULL);
	CHECK(srt_sharded_optim_state(p.optim, NPARAMS, 0) == NULL);
	parts_destroy(&p);
}

/* ---- errors ------------------------------------------------------------------------------ */

static srt_status_t try_create(const srt_optim_options_t *groups,
			       const srt_sharded_optim_param_t *list)
{
	srt_optim_t *optim = NULL;
	const srt_status_t status = srt_sharded_optim_create(c.context, NULL, groups, NGROUPS, list,
							     NPARAMS, &optim, c.stream);

	CHECK((optim != NULL) == (status == SRT_OK));
	srt_optim_destroy(optim);
	return status;
}

/* On the last rank alone; every rank has the error. */
static void test_errors(void)
{
	const srt_optim_options_t sgd[NGROUPS] = { SRT_OPTIM_SGD_INIT, SRT_OPTIM_SGD_INIT };
	const srt_optim_options_t adam[NGROUPS] = { SRT_OPTIM_ADAM_INIT, SRT_OPTIM_ADAM_INIT };
	srt_optim_options_t bad[NGROUPS] = { SRT_OPTIM_SGD_INIT, SRT_OPTIM_SGD_INIT };
	srt_optim_options_t momentum[NGROUPS] = { SRT_OPTIM_SGD_INIT, SRT_OPTIM_SGD_INIT };
	srt_optim_options_t no_lr[NGROUPS] = { SRT_OPTIM_SGD_INIT, SRT_OPTIM_SGD_INIT };
	const bool last = c.rank == c.world - 1;
	srt_sharded_optim_param_t list[NPARAMS];
	srt_optim_t *fewer;
	parts_t p;

	bad[1].lr = -1.0f;
	momentum[0].momentum = 0.9;
	no_lr[0].lr = no_lr[1].lr = 0;
	random_state = 99;
	parts_create(&p, sgd, SRT_F32, NULL);
#define WITH(change, words)                                                                        \
	do {                                                                                       \
		memcpy(list, p.list, sizeof(list));                                                \
		if (last)                                                                          \
			change;                                                                    \
		REFUSED(try_create(sgd, list), SRT_ERR_INVALID_ARGUMENT, words);                   \
	} while (0)
	WITH(list[1].name = "", "parameter 1 of the optimizer has no name");
	WITH(list[1].grad = NULL, "'linear2.weight' must have a sharded value and gradient");
	WITH(list[1].nelem = 3, "or be plain");
	WITH(list[1].grad = p.grads[0],
	     "the gradient of parameter 'linear2.weight' has another shape, dtype or sharding");
	WITH(list[PLAIN].plain_grad.buffer = NULL, "bias");
#undef WITH
	REFUSED(try_create(last ? bad : sgd, p.list), SRT_ERR_INVALID_ARGUMENT, "lr");
	memcpy(list, p.list, sizeof(list));
	list[2].name = names[1];
	REFUSED(try_create(sgd, list), SRT_ERR_INVALID_ARGUMENT, "twice");
	list[2] = p.list[2];
	list[2].group = 2;
	REFUSED(try_create(sgd, list), SRT_ERR_INVALID_ARGUMENT, "its group is 2");
	if (c.world > 1) {
		list[2].group = last;
		REFUSED(try_create(sgd, list), SRT_ERR_MISMATCH,
			"the parameters or their options differ");
		REFUSED(try_create(last ? adam : sgd, p.list), SRT_ERR_MISMATCH,
			"the parameters or their options differ");
		REFUSED(try_create(last ? momentum : sgd, p.list), SRT_ERR_MISMATCH,
			"the parameters or their options differ");
		memcpy(list, p.list, sizeof(list));
		list[1].lr_scale = last ? 2.0f : 1.0f;
		REFUSED(try_create(sgd, list), SRT_ERR_MISMATCH,
			"the parameters or their options differ");
	}
	REFUSED(srt_optim_set_lr(p.optim, 2, 0.1f, c.stream), SRT_ERR_INVALID_ARGUMENT, "2");
	REFUSED(srt_optim_set_steps(p.optim, NPARAMS, 1, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"index is 4, must be less than 4");
	CHECK_OK_OR_DIE(srt_sharded_optim_create(c.context, NULL, sgd, NGROUPS, p.list, NPARAMS - 1,
						 &fewer, c.stream));
	REFUSED(srt_sharded_optim_load(p.optim, fewer, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"the state has no parameter 'bias'");
	REFUSED(srt_sharded_optim_load(fewer, p.optim, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"the optimizer has no parameter 'bias', which the state has");
	srt_optim_destroy(fewer);
	CHECK_OK_OR_DIE(srt_sharded_optim_create(c.context, NULL, no_lr, NGROUPS, p.list, NPARAMS,
						 &fewer, c.stream));
	CHECK_OK(srt_sharded_optim_load(p.optim, fewer, c.stream));
	CHECK_STATUS(srt_optim_step(p.optim, c.stream), SRT_ERR_STATE);
	srt_optim_destroy(fewer);
	parts_destroy(&p);
}

int main(void)
{
	tensor_case_open(&c);
	test_kind(*OPTIM_SGD(0.1f), SRT_F32);
	test_kind(*OPTIM(.kind = SRT_OPTIM_SGD, .lr = 0.1f, .momentum = 0.9, .nesterov = 1),
		  SRT_F32);
	test_kind(*OPTIM(.kind = SRT_OPTIM_ADAM, .lr = 0.1f, .weight_decay = 0.01f, ADAM_BASE),
		  SRT_F32);
	test_kind(*OPTIM(.kind = SRT_OPTIM_ADAM, .lr = 0.1f, .amsgrad = 1, ADAM_BASE), SRT_F32);
	test_kind(*OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 0.1f, .weight_decay = 0.1f, ADAM_BASE),
		  SRT_F32);
	test_kind(*OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 0.1f, .beta1 = 0.9, .beta2 = 0.999,
			 .eps = 1e-4f),
		  SRT_BF16);
	test_names();
	test_errors();
	tensor_case_close(&c);
	return check_done();
}
