/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameters: declared with name, shape and group; tied; freed. Each declaration updates the
 * unsharded layout of its unit.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/declare/declare.h"

/* Alignment of a parameter in a flat one with views, in bytes. */
#define FLAT_ALIGN ((size_t)16)

void srt_param_free(srt_param_t *param)
{
	if (param == NULL)
		return;
	for (size_t i = 0; i < param->naliases; i++)
		free(param->aliases[i]);
	for (size_t k = 0; k < SRT_ARRAY_LEN(param->checks.window); k++)
		srt_buffer_destroy(param->checks.window[k]);
	free(param->aliases);
	free(param->name);
	free(param);
}

static srt_status_t check_dtype(const srt_unit_t *unit, const char *name, srt_dtype_t dtype,
				bool frozen)
{
	if (dtype == SRT_F64)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"parameter '%s' has dtype f64, which parameters cannot have: "
				"declare f32, f16 or bf16",
				name);
	if (!srt_dtype_is_float(dtype) && (dtype != SRT_U8 || !frozen))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' has dtype %s, parameters must have a float dtype, "
				"or u8 if they are frozen",
				name, srt_dtype_name(dtype));
	if (unit->nparams > 0 && unit->params[0]->dtype != dtype)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' has dtype %s and '%s' has %s: the parameters of a "
				"unit, here '%s', must have one dtype",
				name, srt_dtype_name(dtype), unit->params[0]->name,
				srt_dtype_name(unit->params[0]->dtype), unit->name);
	return SRT_OK;
}

static srt_status_t check_declaration(const srt_unit_t *unit, const char *name, srt_dtype_t dtype,
				      int ndim, const int64_t *shape, bool frozen)
{
	srt_engine_t *engine = unit->engine;

	if (engine->build_begun)
		return srt_fail(SRT_ERR_STATE,
				"parameter '%s' is declared after srt_engine_build(): declare all "
				"parameters first",
				name);
	if (srt_engine_param_find(engine, name) != NULL || srt_buffers_find(engine, name) != NULL)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"parameter '%s' is declared twice: names must be unique in an engine",
			name);
	if (ndim == 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' is a scalar, which cannot be sharded: declare it "
				"1-D with one element",
				name);
	if (ndim < 0 || ndim > SRT_MAX_DIMS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' has %d dimensions, must have 1 to %d", name, ndim,
				SRT_MAX_DIMS);
	for (int i = 0; i < ndim; i++) {
		if (shape[i] < 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"parameter '%s' has size %lld in dimension %d, must be at "
					"least 0",
					name, (long long)shape[i], i);
	}
	return check_dtype(unit, name, dtype, frozen);
}

static srt_status_t check_options(const srt_engine_t *engine, const char *name,
				  const srt_param_options_t *options)
{
	if (options->group >= engine->optim->ngroups)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option group of parameter '%s' is %zu, must be less than %zu: "
				"declare groups with srt_engine_group_create()",
				name, options->group, engine->optim->ngroups);
	return srt_optim_check_param(name, options->weight_decay, options->lr_scale);
}

static srt_status_t check_placement(const srt_engine_t *engine, const char *name, int ndim,
				    const int64_t *shape, const srt_placement_t *p)
{
	if (p->mesh_dim == NULL) {
		if (p->tensor_dim == 0 && p->nblocks == 0 && p->nparts == 0)
			return SRT_OK;
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the placement of parameter '%s' has no mesh_dim", name);
	}
	if (engine->comms.tensor_dim < 0 ||
	    srt_mesh_find(engine->comms.mesh, p->mesh_dim) != engine->comms.tensor_dim)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' is cut over '%s', which must be a dimension of the "
				"engine's mesh that it neither shards nor replicates over",
				name, p->mesh_dim);
	if (p->tensor_dim < 0 || p->tensor_dim >= ndim || p->nblocks < 0 ||
	    (p->nblocks > 0 && shape[p->tensor_dim] % p->nblocks != 0))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the placement of parameter '%s' cuts dimension %d of %d in %d "
				"blocks: it must exist and be a multiple of the blocks",
				name, p->tensor_dim, ndim, p->nblocks);
	if (p->nparts < 0 || (p->nparts > 1 && p->nparts % srt_cell_count(engine) != 0))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the placement of parameter '%s' has %d parts, which the %d ranks "
				"of '%s' cannot share equally",
				name, p->nparts, srt_cell_count(engine), p->mesh_dim);
	return SRT_OK;
}

/* Without views one gradient is all or nothing. */
static srt_status_t check_flat(const srt_unit_t *unit, const char *name, bool frozen)
{
	const srt_param_t *other = unit->nparams > 0 ? unit->params[0] : NULL;

	if (unit->flat != SRT_FLAT_PADDED || other == NULL || other->frozen == frozen)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"parameter '%s' is %s and '%s' is %s: the parameters of a unit that is "
			"SRT_FLAT_PADDED, here '%s', must have uniform requires_grad; choose "
			"SRT_FLAT_VIEWS, or declare another unit for the frozen ones",
			name, frozen ? "frozen" : "trainable", other->name,
			other->frozen ? "frozen" : "trainable", unit->name);
}

/* Computes the sizes of the tensor and of this rank's cell. The checks include the other units:
 * plans add sizes without overflow checks. */
static srt_status_t compute_sizes(srt_param_t *param)
{
	const srt_engine_t *engine = param->unit->engine;
	const int cell = srt_cell_index(engine, engine->rank);
	size_t rows = (size_t)param->shape[0];
	size_t row_nelem = 1, nelem, total;
	bool fits = true;

	for (int i = 1; i < param->ndim; i++)
		fits = fits && srt_mul_size(row_nelem, (size_t)param->shape[i], &row_nelem);
	fits = fits && srt_mul_size(row_nelem, rows, &nelem) && nelem <= INT64_MAX / 16 &&
	       row_nelem <= INT64_MAX / 16;
	if (fits)
		fits = srt_dtype_nbytes(param->dtype, nelem, &param->whole_nbytes) == SRT_OK &&
		       srt_add_size(nelem, SRT_TENSOR_ALIGN, &total);
	fits = fits && srt_add_size(total, engine->declared.unsharded_nelem, &total);
	fits = fits && total <= SIZE_MAX / 4096; /* room for gradients, state and slots */
	if (!fits)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"parameter '%s' is too large: the parameters do not fit the address "
			"space",
			param->name);
	param->whole_nelem = (int64_t)nelem;
	srt_cell_describe(param);
	param->nelem = srt_cell_nelem(param, cell);
	param->nbytes = (size_t)param->nelem * srt_dtype_size(param->dtype);
	return SRT_OK;
}

/* The unsharded layout of the unit: trainable parameters, then frozen ones, each aligned. Cells
 * have the room of the first, which is the largest: the layout is the same on all ranks. */
static void layout_unit(srt_unit_t *unit)
{
	size_t at = 0;

	for (int frozen = 0; frozen < 2; frozen++) {
		for (size_t i = 0; i < unit->nparams; i++) {
			srt_param_t *param = unit->params[i];

			if (param->frozen != frozen)
				continue;
			param->unsharded_offset = at;
			at = srt_align_up(at + (size_t)srt_cell_nelem(param, 0),
					  srt_unit_align(unit));
		}
		if (!frozen)
			unit->trainable_nelem = at;
	}
	unit->engine->declared.unsharded_nelem += at - unit->unsharded_nelem;
	unit->unsharded_nelem = at;
}

/* The flat parameter of the unit. Cells have the room of the first here, too. */
static void layout_flat(srt_unit_t *unit)
{
	const size_t align =
		unit->flat == SRT_FLAT_VIEWS ? FLAT_ALIGN / srt_dtype_size(unit->types.compute) : 1;
	size_t at = 0;

	for (size_t i = 0; i < unit->nparams; i++) {
		srt_param_t *param = unit->params[i];

		param->flat_offset = srt_align_up(at, align);
		at = param->flat_offset + (size_t)srt_cell_nelem(param, 0);
	}
	unit->flat_nelem = at;
}

static srt_status_t append_param(srt_param_t ***list, size_t n, srt_param_t *param)
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
	srt_param_options_t o = SRT_PARAM_OPTIONS_INIT;
	srt_engine_t *engine;
	srt_param_t *param;
	srt_status_t status;

	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(shape);
	SRT_TRY(srt_check_not_null(out, __func__, "param"));
	SRT_TRY(srt_struct_read(&o, sizeof(o), options, "srt_param_options_t"));
	if (name[0] == '\0')
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: name is empty", __func__);
	engine = unit->engine;
	SRT_TRY(check_declaration(unit, name, dtype, ndim, shape, o.frozen != 0));
	SRT_TRY(check_options(engine, name, &o));
	SRT_TRY(check_flat(unit, name, o.frozen));
	SRT_TRY(check_placement(engine, name, ndim, shape, &o.placement));
	SRT_TRY(srt_names_reserve(&engine->declared.params));
	param = srt_calloc(1, sizeof(*param), name);
	if (param == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	param->unit = unit;
	param->name = srt_strdup(name);
	param->dtype = dtype;
	param->ndim = ndim;
	memcpy(param->shape, shape, (size_t)ndim * sizeof(*shape));
	param->frozen = o.frozen != 0;
	param->group = o.group;
	param->weight_decay =
		srt_optim_weight_decay(o.weight_decay, &engine->optim->groups[o.group]);
	param->lr_scale = o.lr_scale;
	param->is_cut = o.placement.mesh_dim != NULL && srt_cell_count(engine) > 1;
	param->cut.dim = o.placement.tensor_dim;
	param->cut.nblocks = o.placement.nblocks;
	param->cut.nparts = o.placement.nparts;
	status = param->name == NULL ? SRT_ERR_OUT_OF_MEMORY : compute_sizes(param);
	if (status == SRT_OK)
		status = srt_unit_resolve(unit, dtype);
	if (status == SRT_OK)
		status = append_param(&unit->params, unit->nparams, param);
	if (status == SRT_OK)
		status = append_param(&engine->params, engine->nparams, param);
	if (status != SRT_OK) {
		srt_param_free(param);
		return status;
	}
	srt_names_add(&engine->declared.params, param->name, param);
	unit->nparams++;
	param->index = engine->nparams++;
	param->trainable = param->frozen ? -1 : (int32_t)engine->declared.ntrainable++;
	if (!param->frozen)
		engine->declared.trainable_nelem += param->whole_nelem;
	layout_unit(unit);
	layout_flat(unit);
	*out = param;
	return SRT_OK;
}

srt_status_t srt_param_tie(srt_unit_t *unit, srt_param_t *param, const char *alias)
{
	char **grown;
	char *copy;

	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(param);
	SRT_NOT_NULL(alias);
	if (alias[0] == '\0')
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: alias is empty", __func__);
	if (param->unit != unit)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"'%s' of unit '%s' is tied to '%s' of unit '%s': tied parameters "
				"must be in one unit, e.g. their closest common ancestor",
				alias, unit->name, param->name, param->unit->name);
	if (unit->engine->build_begun)
		return srt_fail(SRT_ERR_STATE, "'%s' is tied to '%s' after srt_engine_build()",
				alias, param->name);
	if (srt_engine_param_find(unit->engine, alias) != NULL)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"'%s' cannot be an alias of '%s': a parameter already has this name", alias,
			param->name);
	SRT_TRY(srt_names_reserve(&unit->engine->declared.params));
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
	srt_names_add(&unit->engine->declared.params, copy, param);
	return SRT_OK;
}
