/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values of parameters, initialised and set.
 *
 * Each rank writes its own elements only, so no rank needs an unsharded tensor. Random values are
 * keyed by (seed, name, element) and do not depend on the sharding. local.c has values that the
 * program writes itself, gather_full.c reads unsharded tensors.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpenv.h"
#include "runtime/engine/checks/checks.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/step/step.h"
#include "runtime/engine/values/values.h"
#include "runtime/ops/ops.h"

#include <shardrt/init.h>

srt_status_t srt_param_write_end(srt_param_t *param, srt_stream_t *home, srt_stream_t *stream)
{
	srt_param_has_values(param);
	SRT_TRY(srt_param_round(param, home));
	SRT_TRY(srt_check_record(param, home));
	SRT_TRY(srt_unshard_changed(param->unit->engine, home));
	return srt_home_leave(param->unit->engine, stream);
}

srt_status_t srt_param_write_begin(srt_param_t *param, const char *call, srt_stream_t *stream,
				   srt_stream_t **home)
{
	srt_unit_t *unit = param->unit;

	SRT_TRY(srt_engine_require_built(unit->engine, call));
	if (srt_unit_in_use(unit))
		return srt_fail(SRT_ERR_STATE,
				"%s changes parameter '%s' while its unit '%s' is in use: change "
				"parameters outside of passes",
				call, param->name, unit->name);
	unit->pass.uses = 0; /* a backward pass needs a forward pass of the new values */
	SRT_TRY(srt_home_enter(unit->engine, stream, home));
	return srt_unshard_wait_readers(unit, *home);
}

/* The numbers of a distribution as kernels take them: value; mean, std; or low, high. */
static void round_numbers(const srt_init_t *init, float numbers[2])
{
	const bool is_normal = init->kind == SRT_INIT_NORMAL;
	const bool is_uniform = init->kind == SRT_INIT_UNIFORM;
	const srt_fpenv_t env = srt_fpenv_enter();

	numbers[0] = (float)(is_normal ? init->mean : is_uniform ? init->low : init->value);
	numbers[1] = (float)(is_normal ? init->std : is_uniform ? init->high : 0.0);
	srt_fpenv_leave(env);
}

/* Has the same result on all ranks, whatever shard they have. */
static srt_status_t check_init(const srt_param_t *param, const char *call, const srt_init_t *init,
			       const float numbers[2])
{
	srt_k_uniform_t unused;

	if (!srt_dtype_is_float(param->dtype))
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s: parameter '%s' has dtype %s, which no distribution gives: set "
				"its values with srt_param_set() or srt_param_set_local()",
				call, param->name, srt_dtype_name(param->dtype));
	if (init->has_zero_row && (init->zero_row < 0 || init->zero_row >= param->shape[0]))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: zero_row is %lld, but parameter '%s' has %lld rows", call,
				(long long)init->zero_row, param->name, (long long)param->shape[0]);
	switch (init->kind) {
	case SRT_INIT_CONSTANT:
		return SRT_OK;
	case SRT_INIT_NORMAL:
		if (!isfinite(numbers[0]) || !isfinite(numbers[1]) || numbers[1] < 0.0f)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"%s: parameter '%s' has mean %g and std %g; both must be "
					"finite in fp32, and std not negative",
					call, param->name, init->mean, init->std);
		return SRT_OK;
	case SRT_INIT_UNIFORM:
		if (init->low < init->high && numbers[0] == numbers[1])
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"%s: the bounds %.17g and %.17g of parameter '%s' are one "
					"fp32 value: use SRT_INIT_CONSTANT",
					call, init->low, init->high, param->name);
		return srt_op_uniform_range(call, param->dtype, numbers[0], numbers[1], &unused);
	}
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: there is no distribution number %d", call,
			(int)init->kind);
}

/* Elements first .. first + n - 1 of the unsharded tensor, at y. */
static srt_status_t fill_run(const srt_param_t *param, uint64_t seed, const srt_init_t *init,
			     const float numbers[2], srt_view_t y, int64_t first, int64_t n,
			     srt_stream_t *home)
{
	int64_t row, begin, end;

	if (init->kind == SRT_INIT_NORMAL)
		SRT_TRY(srt_op_normal(&(srt_normal_t){ .size = sizeof(srt_normal_t),
						       .y = y,
						       .seed = seed,
						       .name = param->name,
						       .first = first,
						       .nelem = n,
						       .mean = numbers[0],
						       .std = numbers[1] },
				      home));
	else if (init->kind == SRT_INIT_UNIFORM)
		SRT_TRY(srt_op_uniform(&(srt_uniform_t){ .size = sizeof(srt_uniform_t),
							 .y = y,
							 .seed = seed,
							 .name = param->name,
							 .first = first,
							 .nelem = n,
							 .low = numbers[0],
							 .high = numbers[1] },
				       home));
	else
		SRT_TRY(srt_op_fill(y, numbers[0], n, home));
	if (!init->has_zero_row)
		return SRT_OK;
	row = param->whole_nelem / param->shape[0];
	begin = init->zero_row * row;
	end = begin + row < first + n ? begin + row : first + n;
	begin = begin > first ? begin : first;
	if (begin >= end)
		return SRT_OK;
	y.offset += (size_t)(begin - first) * srt_dtype_size(y.dtype);
	return srt_op_fill(y, 0.0f, end - begin, home);
}

/* All ranks initialise alike. */
static srt_status_t verify_init(const srt_param_t *param, uint64_t seed, const srt_init_t *init,
				const float numbers[2])
{
	uint64_t key[4] = { seed, (uint64_t)init->kind, 0,
			    init->has_zero_row ? (uint64_t)init->zero_row : UINT64_MAX };

	memcpy(&key[2], numbers, 2 * sizeof(*numbers));
	if (init->kind == SRT_INIT_CONSTANT && !init->has_zero_row)
		return srt_verify_float(param->unit->engine, SRT_ACTION_INIT_CONSTANT,
					(uint32_t)param->index, numbers[0]);
	return srt_verify_call(param->unit->engine, SRT_ACTION_INIT, (uint32_t)param->index,
			       srt_hash64(0, key, sizeof(key)));
}

static srt_status_t init_param(srt_param_t *param, const char *call, uint64_t seed,
			       const srt_init_t *init, srt_stream_t *stream)
{
	const srt_engine_t *engine = param->unit->engine;
	const int64_t begin = param->shard.first;
	const int64_t end = begin + param->shard.nelem;
	srt_view_t y = param->views.local;
	srt_stream_t *home;
	float numbers[2];

	round_numbers(init, numbers);
	SRT_TRY(check_init(param, call, init, numbers));
	SRT_TRY(srt_full_check(engine, call));
	SRT_TRY(srt_param_write_begin(param, call, stream, &home));
	SRT_TRY(verify_init(param, seed, init, numbers));
	for (int64_t at = begin, n, first; at < end; at += n) {
		n = srt_cell_run(param, srt_cell_index(engine, engine->rank), at, &first);
		n = n < end - at ? n : end - at;
		y.offset =
			param->views.local.offset + (size_t)(at - begin) * srt_dtype_size(y.dtype);
		SRT_TRY(fill_run(param, seed, init, numbers, y, first, n, home));
	}
	return srt_param_write_end(param, home, stream);
}

srt_status_t srt_param_init(srt_param_t *param, uint64_t seed, const srt_init_t *init,
			    srt_stream_t *stream)
{
	SRT_NOT_NULL(param);
	SRT_NOT_NULL(init);
	SRT_NOT_NULL(stream);
	return init_param(param, "srt_param_init", seed, init, stream);
}

srt_status_t srt_param_init_normal(srt_param_t *param, uint64_t seed, float mean, float std,
				   srt_stream_t *stream)
{
	const srt_init_t init = { .kind = SRT_INIT_NORMAL,
				  .mean = (double)mean,
				  .std = (double)std };

	SRT_NOT_NULL(param);
	SRT_NOT_NULL(stream);
	return init_param(param, "srt_param_init_normal", seed, &init, stream);
}

srt_status_t srt_param_init_constant(srt_param_t *param, float value, srt_stream_t *stream)
{
	const srt_init_t init = { .kind = SRT_INIT_CONSTANT, .value = (double)value };

	SRT_NOT_NULL(param);
	SRT_NOT_NULL(stream);
	return init_param(param, "srt_param_init_constant", 0, &init, stream);
}

srt_status_t srt_param_set_shard(srt_param_t *param, const char *call, const void *elements,
				 srt_stream_t *stream)
{
	const size_t nbytes = param->shard.nbytes;
	srt_stream_t *home;

	SRT_TRY(srt_param_write_begin(param, call, stream, &home));
	if (nbytes > 0)
		SRT_TRY(srt_buffer_copy_from_host(param->views.local.buffer,
						  param->views.local.offset, elements, nbytes,
						  home));
	return srt_param_write_end(param, home, stream);
}

/* This rank's shard, copied from the unsharded tensor. */
static srt_status_t copy_shard(const srt_param_t *param, srt_view_t to, srt_view_t full,
			       bool on_host, srt_stream_t *stream)
{
	const srt_engine_t *engine = param->unit->engine;
	const size_t elem = srt_dtype_size(param->dtype);
	const int64_t begin = param->shard.first;
	const int64_t end = begin + param->shard.nelem;

	for (int64_t at = begin, n, first; at < end; at += n) {
		n = srt_cell_run(param, srt_cell_index(engine, engine->rank), at, &first);
		n = n < end - at ? n : end - at;

		const size_t from = (size_t)first * elem, nbytes = (size_t)n * elem;
		const size_t offset = to.offset + (size_t)(at - begin) * elem;

		if (on_host)
			SRT_TRY(srt_buffer_copy_from_host(to.buffer, offset,
							  (const char *)srt_view_host(full) + from,
							  nbytes, stream));
		else
			SRT_TRY(srt_buffer_copy(to.buffer, offset, full.buffer, full.offset + from,
						nbytes, stream));
	}
	return SRT_OK;
}

srt_status_t srt_param_set_full(srt_param_t *param, srt_param_what_t what, srt_view_t full,
				bool on_host, srt_stream_t *stream)
{
	srt_engine_t *engine = param->unit->engine;
	const bool is_value = what == SRT_PARAM_VALUE;
	const int role = is_value ? SRT_ROLE_MASTER : (int)srt_role_stepped(engine);
	srt_stream_t *home;

	SRT_TRY(is_value ? srt_param_write_begin(param, "srt_unit_full_params_end", stream, &home) :
			   srt_home_enter(engine, stream, &home));
	/* Edge: the last readers, for which `home` waits -> the copy by the device. */
	SRT_TRY(srt_home_leave(engine, stream));
	SRT_TRY(copy_shard(param, srt_param_device_view(param, role), full, on_host, stream));
	SRT_TRY(srt_home_enter(engine, stream, &home));
	return is_value ? srt_param_write_end(param, home, stream) :
			  srt_event_record(engine->order.stepped, home);
}
