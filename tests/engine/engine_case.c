/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/engine/engine_case.h"

#include "collectives/comm.h"
#include "runtime/engine/checks/checks.h"

#include <unistd.h>

float case_random(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	uint32_t x = a * 0x9e3779b1u ^ b * 0x85ebca77u ^ c * 0xc2b2ae3du ^ (d + 1) * 0x27d4eb2fu;

	for (int i = 0; i < 3; i++) {
		x ^= x >> 15;
		x *= 0x2c1b3c6du;
		x ^= x >> 12;
	}
	return (float)(int32_t)(x & 0xffffff00u) * 0x1p-31f;
}

/* eps is not 0 in SRT_F16. */
const srt_optim_options_t case_adamw_eps = {
	.size = sizeof(srt_optim_options_t),
	.kind = SRT_OPTIM_ADAMW,
	.lr = 0.05f,
	.beta1 = 0.9,
	.beta2 = 0.999,
	.eps = 1e-3f,
};

srt_engine_options_t case_adamw(srt_strategy_t strategy)
{
	static const srt_optim_options_t adamw = {
		.size = sizeof(adamw), .kind = SRT_OPTIM_ADAMW, .lr = 0.05f, ADAM_BASE
	};

	return (srt_engine_options_t){
		ENGINE_BASE, .strategy = strategy, .norm_p = 2, .max_norm = 1.0f, .optim = &adamw,
	};
}

/* Rows, columns, columns in blocks; some parameters are whole. */
static srt_placement_t case_placement(const engine_case_t *c, const char *name, int ndim,
				      const int64_t *shape)
{
	const uint32_t turn = (uint32_t)c->nparams % 4;

	if (c->cut_over == NULL || turn == 3 || strncmp(name, "never", 5) == 0)
		return (srt_placement_t){ 0 };
	if (ndim == 1 || turn == 0)
		return (srt_placement_t){ .mesh_dim = c->cut_over, .nparts = c->cut_parts };
	return (srt_placement_t){ .mesh_dim = c->cut_over,
				  .tensor_dim = 1,
				  .nblocks = shape[1] % 2 == 0 ? 2 : 0,
				  .nparts = c->cut_parts };
}

srt_param_t *case_param(engine_case_t *c, srt_unit_t *unit, const char *name, int64_t rows,
			int64_t columns, int frozen, float decay)
{
	const int64_t shape[] = { rows, columns };
	const size_t group = unit == c->root ? 0 : columns < 0 ? 2 : 1;
	const int ndim = columns < 0 ? 1 : 2;
	const srt_param_options_t options = { .size = sizeof(options),
					      .lr_scale = 1.0f,
					      .frozen = frozen,
					      .group = group < c->ngroups ? group : 0,
					      .weight_decay = decay,
					      .placement = case_placement(c, name, ndim, shape) };
	srt_param_t *param;

	CHECK_OK_OR_DIE(srt_param_create(unit, name, c->stored, ndim, shape, &options, &param));
	CHECK_OR_DIE(c->nparams < MAX_CASE_PARAMS);
	c->param[c->nparams++] = param;
	return param;
}

/* Groups that differ from the engine's options in all that they may. */
static void case_groups(engine_case_t *c)
{
	for (size_t g = 1; g < c->ngroups; g++) {
		srt_optim_options_t group = SRT_OPTIM_OPTIONS_INIT;
		size_t index;

		CHECK_OK(srt_optim_group_options(srt_engine_optim(c->engine), 0, &group));
		if (c->muon && g == 1) {
			group = (srt_optim_options_t)SRT_OPTIM_MUON_INIT;
			CHECK_OK(srt_engine_group_create(c->engine, &group, &index));
			continue;
		}
		group.lr *= g == 1 ? 0.5f : 0.25f;
		group.momentum = g == 1 ? 0.0 : group.momentum * 0.5;
		group.beta1 *= 0.9;
		group.beta2 *= 0.99;
		group.eps *= 2.0f;
		group.maximize = g == 2;
		CHECK_OK(srt_engine_group_create(c->engine, &group, &index));
		CHECK_INT(index, g);
	}
}

/* What a case offloads: all or the state if SRT_TEST_OFFLOAD says so. */
static srt_offload_t case_offload(const srt_offload_t *given)
{
	const char *what = getenv("SRT_TEST_OFFLOAD");
	srt_offload_t offload = *given;

	if (what != NULL && strcmp(what, "none") != 0) {
		offload.state = 1;
		offload.params = offload.grads = strcmp(what, "all") == 0;
	}
	return offload;
}

/* Which units are flat; all, in one form, if SRT_TEST_FLAT says so. */
static srt_flat_t case_flat(srt_flat_t given)
{
	const char *what = getenv("SRT_TEST_FLAT");

	if (what == NULL || given != SRT_FLAT_NO)
		return given;
	return strcmp(what, "views") == 0  ? SRT_FLAT_VIEWS :
	       strcmp(what, "padded") == 0 ? SRT_FLAT_PADDED :
					     SRT_FLAT_NO;
}

void case_declare(engine_case_t *c, srt_context_t *context, const srt_engine_options_t *options,
		  int64_t h)
{
	case_declare_as(c, context, options, h, &(case_types_t){ .stored = SRT_F32 });
}

void case_declare_as(engine_case_t *c, srt_context_t *context, const srt_engine_options_t *options,
		     int64_t h, const case_types_t *types)
{
	const srt_flat_t flat = case_flat(types->flat);
	/* "root" and "b3" have frozen parameters and others. */
	const srt_unit_options_t mixed = { .size = sizeof(mixed),
					   .flat = flat == SRT_FLAT_PADDED ? SRT_FLAT_VIEWS :
									     flat };
	const srt_unit_options_t mixed_block = { .size = sizeof(mixed_block),
						 .reshard = types->reshard,
						 .flat = mixed.flat };
	const srt_unit_options_t block = { .size = sizeof(block),
					   .reshard = types->reshard,
					   .flat = flat };
	const srt_unit_options_t block1 = { .size = sizeof(block1),
					    .precision = types->of_block1,
					    .reshard = types->reshard,
					    .flat = flat };
	const srt_unit_options_t never = { .size = sizeof(never), .flat = flat };
	srt_engine_options_t offloaded = *options;
	char name[32];

	memset(c, 0, sizeof(*c));
	c->stored = types->stored != SRT_DTYPE_NONE ? types->stored : SRT_F32;
	c->ngroups = types->ngroups;
	c->cut_over = types->cut_over;
	c->cut_parts = types->cut_parts;
	c->muon = types->muon;
	c->rank = srt_context_rank(context);
	offloaded.offload = case_offload(&options->offload);
	CHECK_OK_OR_DIE(srt_engine_create(context, &offloaded, &c->engine));
	case_groups(c);
	CHECK_OK_OR_DIE(srt_unit_create(c->engine, NULL, "root", &mixed, &c->root));
	c->tied = case_param(c, c->root, "root.weight", h, 3, 0, 0.1f);
	CHECK_OK_OR_DIE(srt_param_tie(c->root, c->tied, "head.weight"));
	case_param(c, c->root, "root.frozen", 4, 2, 1, 0.0f);
	for (int b = 0; b < NBLOCKS; b++) {
		snprintf(name, sizeof(name), "b%d", b);
		CHECK_OK_OR_DIE(srt_unit_create(c->engine, c->root, name,
						b == 1 ? &block1 :
						b == 3 ? &mixed_block :
							 &block,
						&c->block[b]));
		snprintf(name, sizeof(name), "b%d.weight", b);
		case_param(c, c->block[b], name, h, h + b, 0, 0.1f);
		snprintf(name, sizeof(name), "b%d.bias", b);
		case_param(c, c->block[b], name, h, -1, b == 3, 0.0f);
		snprintf(name, sizeof(name), "b%d.one", b);
		case_param(c, c->block[b], name, 1, -1, 0, 0.0f);
	}
	case_param(c, c->block[2], "b2.empty", 0, 3, 0, 0.0f);
	case_param(c, c->block[2], "b2.unused", 2, 3, 0, 0.1f);
	CHECK_OK_OR_DIE(srt_unit_create(c->engine, c->block[1], "b1.inner", &block1, &c->inner));
	case_param(c, c->inner, "b1.inner.weight", 3, h, 0, 0.1f);
	CHECK_OK_OR_DIE(srt_unit_create(c->engine, c->root, "never", &never, &c->never));
	case_param(c, c->never, "never.weight", h, 2, 0, 0.1f);
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &c->stream));
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE,
					  (size_t)(h * (h + 8) * 4), "scratch", &c->scratch));
}

size_t case_allocated(srt_context_t *context)
{
	srt_device_t *device = srt_context_device(context), *host;

	CHECK_OK_OR_DIE(srt_context_host(context, &host));
	return srt_device_allocated(device) + (host != device ? srt_device_allocated(host) : 0);
}

size_t case_planned(const srt_plan_t *plan)
{
	return plan->total + plan->host_total;
}

/* The addresses that case_use() expects in every pass; found after the build or, without
 * case_build(), before the first use. */
static void case_find_addresses(engine_case_t *c)
{
	if (c->has_addresses)
		return;
	c->has_addresses = 1;
	for (size_t i = 0; i < c->nparams; i++) {
		CHECK_OK(srt_param_address(c->param[i], SRT_PARAM_VALUE, &c->value[i]));
		CHECK_STATUS(srt_param_address(c->param[i], SRT_PARAM_GRAD, &c->grad[i]),
			     srt_param_requires_grad(c->param[i]) ? SRT_OK : SRT_ERR_STATE);
	}
}

void case_build(engine_case_t *c)
{
	CHECK_OK_OR_DIE(srt_engine_build(c->engine));
	case_find_addresses(c);
	for (size_t i = 0; i < c->nparams; i++)
		CHECK_OK(srt_param_init_normal(c->param[i], 1234, 0.0f, 0.5f, c->stream));
	CHECK_OK(srt_engine_check(c->engine));
}

void case_destroy(engine_case_t *c)
{
	if (c->stream != NULL)
		srt_stream_sync(c->stream);
	srt_engine_destroy(c->engine);
	srt_buffer_destroy(c->scratch);
	srt_stream_destroy(c->stream);
}

static srt_status_t case_sleep(void *arg)
{
	usleep((useconds_t)(uintptr_t)arg);
	return SRT_OK;
}

static void case_between(engine_case_t *c, uint32_t where)
{
	float x = case_random((uint32_t)c->rank, where, 7, 7);

	if (c->check)
		CHECK_OK(srt_engine_check(c->engine));
	if (c->delay && x > 0.6f)
		CHECK_OK(srt_stream_host_fn(c->stream, case_sleep,
					    (void *)(uintptr_t)(unsigned)(x * 300.0f)));
}

static int64_t case_cell_nelem(const srt_param_t *param)
{
	int64_t shape[SRT_MAX_DIMS], nelem = 1;

	for (int i = srt_param_partition(param, shape); i-- > 0;)
		nelem *= shape[i];
	return nelem;
}

static int case_is_at(srt_view_t view, srt_view_t address)
{
	return view.buffer == address.buffer && view.offset == address.offset &&
	       view.dtype == address.dtype;
}

/* One use of parameter i: adds factor * values to its gradient. */
static srt_status_t case_use(engine_case_t *c, size_t i, float factor)
{
	srt_param_t *param = c->param[i];
	int64_t nelem = case_cell_nelem(param);
	srt_view_t whole, grad, scratch = srt_view(c->scratch, 0, SRT_F32);
	int accumulate;
	srt_status_t status;

	status = srt_param_data(param, &whole);
	if (status == SRT_OK)
		status = srt_param_grad(param, &grad, &accumulate);
	if (status != SRT_OK)
		return status;
	case_find_addresses(c);
	CHECK(case_is_at(whole, c->value[i]));
	CHECK(case_is_at(grad, c->grad[i]));
	scratch.dtype = grad.dtype;
	status = srt_op_scale(accumulate ? scratch : grad, whole, factor, nelem, c->stream);
	if (status == SRT_OK && accumulate)
		status = srt_op_add(grad, grad, scratch, nelem, c->stream);
	return status == SRT_OK ? srt_param_grad_ready(param) : status;
}

static int case_is_unused(const engine_case_t *c, const srt_param_t *param)
{
	return strcmp(srt_param_name(param), "b2.unused") == 0 &&
	       (c->unused == 1 || (c->unused == 2 && c->rank == 0));
}

static float case_poison(const engine_case_t *c, const srt_param_t *param)
{
	const bool is_poisoned = c->poison != 0.0f && c->rank == c->engine->world - 1 &&
				 strcmp(srt_param_name(param), "b1.weight") == 0;

	return is_poisoned ? c->poison : 1.0f;
}

srt_status_t case_backward_unit(engine_case_t *c, srt_unit_t *unit, const char *name, int step,
				int micro)
{
	size_t length = strlen(name);
	srt_status_t status = srt_unit_backward_begin(unit, c->stream);

	for (size_t i = 0; status == SRT_OK && i < c->nparams; i++) {
		srt_param_t *param = c->param[i];
		const char *rest = srt_param_name(param) + length;
		uint32_t key = (uint32_t)(step * 8 + micro);

		if (strncmp(srt_param_name(param), name, length) != 0 || rest[0] != '.' ||
		    strchr(rest + 1, '.') != NULL || !srt_param_requires_grad(param) ||
		    case_is_unused(c, param))
			continue;
		status = case_use(c, i,
				  case_poison(c, param) *
					  case_random((uint32_t)c->rank, key, (uint32_t)i, 0));
		if (status == SRT_OK && param == c->tied)
			status =
				case_use(c, i, case_random((uint32_t)c->rank, key, (uint32_t)i, 1));
	}
	case_between(c, (uint32_t)(step * 100 + micro));
	return status;
}

srt_status_t case_forward(engine_case_t *c, int step)
{
	srt_status_t status = srt_unit_forward_begin(c->root, c->stream);

	for (int b = 0; status == SRT_OK && b < NBLOCKS; b++) {
		case_between(c, (uint32_t)(step * 10 + b));
		status = srt_unit_forward_begin(c->block[b], c->stream);
		if (status == SRT_OK && b == 1)
			status = srt_unit_forward_begin(c->inner, c->stream);
		if (status == SRT_OK && b == 1)
			status = srt_unit_forward_end(c->inner, c->stream);
		if (status == SRT_OK)
			status = srt_unit_forward_end(c->block[b], c->stream);
	}
	return status == SRT_OK ? srt_unit_forward_end(c->root, c->stream) : status;
}

srt_status_t case_backward(engine_case_t *c, int step, int micro)
{
	srt_status_t status = case_backward_unit(c, c->root, "root", step, micro);

	for (int b = NBLOCKS - 1; status == SRT_OK && b >= 0; b--) {
		char name[32];

		snprintf(name, sizeof(name), "b%d", b);
		status = case_backward_unit(c, c->block[b], name, step, micro);
		if (status == SRT_OK && b == 1)
			status = case_backward_unit(c, c->inner, "b1.inner", step, micro);
		if (status == SRT_OK && b == 1)
			status = srt_unit_backward_end(c->inner, c->stream);
		if (status == SRT_OK)
			status = srt_unit_backward_end(c->block[b], c->stream);
		case_between(c, (uint32_t)(step * 50 + b));
	}
	return status == SRT_OK ? srt_unit_backward_end(c->root, c->stream) : status;
}

srt_status_t case_passes(engine_case_t *c, int step, int nmicro)
{
	srt_status_t status = SRT_OK;

	for (int m = 0; status == SRT_OK && m < nmicro; m++) {
		status = srt_engine_microbatch(c->engine, m, nmicro);
		if (status == SRT_OK)
			status = case_forward(c, step);
		if (status == SRT_OK)
			status = case_backward(c, step, m);
	}
	return status;
}

srt_status_t case_step(engine_case_t *c, int step, int nmicro)
{
	srt_status_t status = case_passes(c, step, nmicro);

	return status == SRT_OK ? srt_engine_step(c->engine, c->stream) : status;
}

size_t case_nelem(const engine_case_t *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->nparams; i++)
		n += (size_t)srt_param_nelem(c->param[i]);
	return n;
}

size_t case_total_nelem(srt_context_t *context, int64_t h)
{
	const srt_engine_options_t options = case_adamw(SRT_STRATEGY_DDP);
	engine_case_t c;
	size_t n;

	case_declare(&c, context, &options, h);
	n = case_nelem(&c);
	case_destroy(&c);
	return n;
}

float *case_collect(engine_case_t *c, srt_param_what_t what)
{
	float *all = calloc(case_nelem(c) + 1, sizeof(*all));
	size_t at = 0;

	CHECK_OR_DIE(all != NULL);
	for (size_t i = 0; i < c->nparams; i++) {
		srt_status_t status = srt_param_get(c->param[i], what, all + at, c->stream);

		if (status != SRT_ERR_NOT_FOUND || what == SRT_PARAM_VALUE)
			CHECK_OK(status);
		at += (size_t)srt_param_nelem(c->param[i]);
	}
	return all;
}

size_t case_offset(const engine_case_t *c, const char *name)
{
	size_t at = 0;

	for (size_t i = 0; i < c->nparams; i++) {
		if (strcmp(srt_param_name(c->param[i]), name) == 0)
			return at;
		at += (size_t)srt_param_nelem(c->param[i]);
	}
	CHECK_OR_DIE(!"a parameter of the case");
	return 0;
}

srt_comm_t *case_group(srt_context_t *context, const char *name)
{
	const int world = srt_context_world_size(context);
	srt_comm_t *group = NULL;
	int ranks[16];

	CHECK_OR_DIE(world <= 16);
	for (int r = 0; r < world; r++)
		ranks[r] = r;
	CHECK_OK_OR_DIE(
		srt_comm_create_group(srt_context_world(context), ranks, world, name, &group));
	return group;
}

srt_comm_t *case_begin(engine_case_t *c, srt_context_t *context, srt_strategy_t strategy,
		       const char *name)
{
	const srt_engine_options_t options = { .size = sizeof(options),
					       .prefetch = 1,
					       .strategy = strategy,
					       .comm = case_group(context, name),
					       .microbatches = 2,
					       .optim = OPTIM_SGD(0.1f) };

	case_declare(c, context, &options, 5);
	case_build(c);
	return options.comm;
}

void case_wait_for_all(srt_context_t *context)
{
	char byte = 0, all[16];

	CHECK_OK(srt_comm_oob_allgather(srt_context_world(context), &byte, 1, all));
}

void case_first_step(engine_case_t *c, srt_context_t *context)
{
	CHECK_OK(case_step(c, 0, 1));
	CHECK_OK(srt_stream_sync(c->stream));
	case_wait_for_all(context);
}

void case_end(engine_case_t *c, srt_context_t *context, srt_comm_t *group)
{
	case_wait_for_all(context);
	srt_engine_reset(c->engine);
	case_destroy(c);
	srt_comm_destroy(group);
}
