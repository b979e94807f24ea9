/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameters: declared (name, shape, group, ties), found, given values, and collected again.
 *
 * Before srt_engine_build() a parameter is a description; afterwards its shard lies in the arena.
 * Setting and initialising touch the own rows only: no rank ever needs a whole tensor for it, and
 * random values are keyed by (seed, name, element), so that they do not depend on the sharding.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"

void srt_param_free(srt_param_t *param)
{
	if (param == NULL)
		return;
	for (size_t i = 0; i < param->naliases; i++)
		free(param->aliases[i]);
	free(param->aliases);
	free(param->name);
	free(param);
}

static bool has_name(const srt_param_t *param, const char *name)
{
	if (strcmp(param->name, name) == 0)
		return true;
	for (size_t i = 0; i < param->naliases; i++) {
		if (strcmp(param->aliases[i], name) == 0)
			return true;
	}
	return false;
}

srt_param_t *srt_engine_find(srt_engine_t *engine, const char *name)
{
	if (engine == NULL || name == NULL)
		return NULL;
	for (size_t i = 0; i < engine->nparams; i++) {
		if (has_name(engine->params[i], name))
			return engine->params[i];
	}
	return NULL;
}

srt_param_t *srt_engine_param(srt_engine_t *engine, size_t i)
{
	return engine != NULL && i < engine->nparams ? engine->params[i] : NULL;
}

static srt_status_t check_declaration(const srt_unit_t *unit, const char *name, srt_dtype_t dtype,
				      int ndim, const int64_t *shape)
{
	srt_engine_t *engine = unit->engine;

	if (engine->built)
		return srt_fail(SRT_ERR_STATE,
				"parameter '%s' is declared after srt_engine_build(): declare all "
				"parameters first",
				name);
	if (srt_engine_find(engine, name) != NULL)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"parameter '%s' is declared twice: names must be unique in an engine",
			name);
	if (ndim == 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' is a scalar, which cannot be sharded: make it 1-D "
				"with one element",
				name);
	if (ndim < 0 || ndim > SRT_MAX_DIMS || shape == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' has %d dimensions; 1 to %d are possible", name,
				ndim, SRT_MAX_DIMS);
	for (int i = 0; i < ndim; i++) {
		if (shape[i] < 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"parameter '%s' has size %lld in dimension %d", name,
					(long long)shape[i], i);
	}
	switch (dtype) {
	case SRT_F32:
		return SRT_OK;
	case SRT_F16:
	case SRT_BF16:
	case SRT_F64:
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"parameter '%s' has dtype %s; parameters are f32 in this version",
				name, srt_dtype_name(dtype));
	default:
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' has dtype %s; only float tensors can be parameters",
				name, srt_dtype_name(dtype));
	}
}

/* Sizes of the tensor, and of all units with it, checked for overflow: plans add without care. */
static srt_status_t measure(srt_param_t *param)
{
	const srt_engine_t *engine = param->unit->engine;
	size_t rows = (size_t)param->shape[0];
	size_t row_nelem = 1, nelem, total;
	bool fits = true;

	for (int i = 1; i < param->ndim; i++)
		fits = fits && srt_mul_size(row_nelem, (size_t)param->shape[i], &row_nelem);
	fits = fits && srt_mul_size(row_nelem, rows, &nelem) && nelem <= INT64_MAX / 16 &&
	       row_nelem <= INT64_MAX / 16;
	if (fits)
		fits = srt_dtype_nbytes(param->dtype, row_nelem, &param->row_nbytes) == SRT_OK &&
		       srt_dtype_nbytes(param->dtype, nelem, &param->nbytes) == SRT_OK &&
		       srt_add_size(param->nbytes, SRT_TENSOR_ALIGN, &total);
	for (size_t u = 0; fits && u < engine->nunits; u++)
		fits = srt_add_size(total, engine->units[u]->full_nbytes, &total);
	fits = fits && total <= SIZE_MAX / 1024; /* gradients, state and slots come on top */
	if (!fits)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' is too large, alone or with the others, for this "
				"machine's addresses",
				param->name);
	param->row_nelem = (int64_t)row_nelem;
	param->nelem = (int64_t)nelem;
	return SRT_OK;
}

/* The unsharded layout of the unit: trainable parameters, then frozen ones, each aligned. */
static void place_in_unit(srt_unit_t *unit)
{
	size_t at = 0;

	for (int frozen = 0; frozen < 2; frozen++) {
		for (size_t i = 0; i < unit->nparams; i++) {
			srt_param_t *param = unit->params[i];

			if (param->frozen != frozen)
				continue;
			param->full_offset = at;
			at = srt_align_up(at + param->nbytes, SRT_TENSOR_ALIGN);
		}
		if (!frozen)
			unit->trainable_nbytes = at;
	}
	unit->full_nbytes = at;
}

static srt_status_t append(srt_param_t ***list, size_t n, srt_param_t *param)
{
	srt_param_t **grown = srt_realloc(*list, n + 1, sizeof(*grown), "list of parameters");

	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	grown[n] = param;
	*list = grown;
	return SRT_OK;
}

srt_status_t srt_param_create(srt_unit_t *unit, const char *name, srt_dtype_t dtype, int ndim,
			      const int64_t *shape, const srt_param_options_t *options,
			      srt_param_t **out)
{
	srt_engine_t *engine;
	srt_param_t *param;
	srt_status_t status;

	if (unit == NULL || name == NULL || name[0] == '\0' || out == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"a parameter needs a unit, a name and a place for the handle");
	engine = unit->engine;
	SRT_TRY(check_declaration(unit, name, dtype, ndim, shape));
	param = srt_calloc(1, sizeof(*param), name);
	if (param == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	param->unit = unit;
	param->name = srt_strdup(name);
	param->dtype = dtype;
	param->ndim = ndim;
	memcpy(param->shape, shape, (size_t)ndim * sizeof(*shape));
	if (options != NULL) {
		param->frozen = options->frozen != 0;
		param->weight_decay = options->weight_decay;
		param->lr_scale = options->lr_scale;
	}
	if (param->lr_scale == 0.0f)
		param->lr_scale = 1.0f;
	status = param->name == NULL ? SRT_ERR_OUT_OF_MEMORY : measure(param);
	if (status == SRT_OK)
		status = append(&unit->params, unit->nparams, param);
	if (status == SRT_OK)
		status = append(&engine->params, engine->nparams, param);
	if (status != SRT_OK) {
		srt_param_free(param);
		return status;
	}
	unit->nparams++;
	param->index = engine->nparams++;
	param->trainable = param->frozen ? -1 : (int32_t)engine->ntrainable++;
	if (!param->frozen)
		engine->trainable_nelem += param->nelem;
	place_in_unit(unit);
	*out = param;
	return SRT_OK;
}

srt_status_t srt_param_tie(srt_unit_t *unit, srt_param_t *param, const char *alias)
{
	char **grown;
	char *copy;

	if (unit == NULL || param == NULL || alias == NULL || alias[0] == '\0')
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"a tie needs a unit, a parameter and another name");
	if (param->unit != unit)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"'%s' of unit '%s' is tied to '%s' of unit '%s': tied parameters "
				"must be in one unit, e.g. their closest common ancestor",
				alias, unit->name, param->name, param->unit->name);
	if (unit->engine->built)
		return srt_fail(SRT_ERR_STATE, "'%s' is tied to '%s' after srt_engine_build()",
				alias, param->name);
	if (srt_engine_find(unit->engine, alias) != NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"'%s' cannot be another name of '%s': the name is taken", alias,
				param->name);
	copy = srt_strdup(alias);
	if (copy == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	grown = srt_realloc(param->aliases, param->naliases + 1, sizeof(*grown), alias);
	if (grown == NULL) {
		free(copy);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	param->aliases = grown;
	param->aliases[param->naliases++] = copy;
	return SRT_OK;
}

const char *srt_param_name(const srt_param_t *param)
{
	return param->name;
}

int srt_param_shape(const srt_param_t *param, int64_t *shape)
{
	memcpy(shape, param->shape, (size_t)param->ndim * sizeof(*shape));
	return param->ndim;
}

int64_t srt_param_nelem(const srt_param_t *param)
{
	return param->nelem;
}

int srt_param_requires_grad(const srt_param_t *param)
{
	return !param->frozen;
}

srt_status_t srt_param_shard(const srt_param_t *param, int rank, int64_t *offset, int64_t *size)
{
	const srt_engine_t *engine = param->unit->engine;

	if (rank < 0 || rank >= engine->world)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the shard of parameter '%s' on rank %d of %d is asked for",
				param->name, rank, engine->world);
	*size = srt_shard_local_rows(engine, param, rank, engine->world, offset);
	return SRT_OK;
}

srt_view_t srt_param_local(srt_param_t *param)
{
	return param->local;
}

srt_view_t srt_param_local_grad(srt_param_t *param)
{
	return param->local_grad;
}

srt_view_t srt_param_local_state(srt_param_t *param, int k)
{
	const srt_engine_t *engine = param->unit->engine;

	if (param->frozen || k < 0 || k >= engine->memory.nstates || !engine->built)
		return (srt_view_t){ 0 };
	return srt_view(engine->states[k], param->arena_offset, param->dtype);
}

/* Values change on `stream` between these two. */
static srt_status_t write_begin(srt_param_t *param, const char *call, srt_stream_t *stream)
{
	srt_unit_t *unit = param->unit;

	SRT_TRY(srt_engine_require_built(unit->engine, call));
	if (srt_unit_in_use(unit))
		return srt_fail(SRT_ERR_STATE,
				"parameter '%s' is changed while its unit '%s' is in use: change "
				"parameters between steps",
				param->name, unit->name);
	unit->uses = 0; /* a backward pass of the old values would be wrong */
	return srt_unshard_fence(unit, stream);
}

srt_status_t srt_param_init_normal(srt_param_t *param, uint64_t seed, float mean, float std,
				   srt_stream_t *stream)
{
	SRT_TRY(write_begin(param, "srt_param_init_normal", stream));
	SRT_TRY(srt_op_normal(stream, param->local, seed, param->name,
			      param->row0 * param->row_nelem, param->nrows * param->row_nelem, mean,
			      std));
	return srt_unshard_changed(param->unit->engine, stream);
}

srt_status_t srt_param_init_constant(srt_param_t *param, float value, srt_stream_t *stream)
{
	SRT_TRY(write_begin(param, "srt_param_init_constant", stream));
	SRT_TRY(srt_op_fill(stream, param->local, value, param->nrows * param->row_nelem));
	return srt_unshard_changed(param->unit->engine, stream);
}

/* Sets this rank's shard from its own rows in host memory. */
srt_status_t srt_param_set_local(srt_param_t *param, const void *rows, srt_stream_t *stream)
{
	size_t nbytes = (size_t)param->nrows * param->row_nbytes;

	SRT_TRY(write_begin(param, "srt_param_set", stream));
	if (nbytes > 0)
		SRT_TRY(srt_copy_from_host(stream, param->local.buffer, param->local.offset, rows,
					   nbytes));
	return srt_unshard_changed(param->unit->engine, stream);
}

srt_status_t srt_param_set(srt_param_t *param, const void *full, srt_stream_t *stream)
{
	const char *rows = full;
	size_t skipped = (size_t)param->row0 * param->row_nbytes;

	if (full == NULL && param->nbytes > 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_param_set of '%s': the full tensor is NULL", param->name);
	return srt_param_set_local(param, param->nrows > 0 ? rows + skipped : rows, stream);
}
