/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Units: declared as a tree, freed. The calls around their compute are in pass.c.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/declare/declare.h"

static srt_status_t check_unit(const srt_engine_t *engine, const srt_unit_t *parent,
			       const char *name)
{
	if (engine->build_begun)
		return srt_fail(SRT_ERR_STATE, "unit '%s' is declared after srt_engine_build()",
				name);
	if (parent == NULL && engine->nunits > 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"unit '%s' has no parent, but the engine already has the root '%s'",
				name, engine->units[0]->name);
	if (parent != NULL && parent->engine != engine)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the parent '%s' of unit '%s' belongs to another engine",
				parent->name, name);
	if (srt_names_find(&engine->declared.units, name) != NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "unit '%s' is declared twice", name);
	return SRT_OK;
}

static srt_status_t check_options(const char *name, const srt_unit_options_t *options)
{
	if (options->reshard < 0 && options->reshard != SRT_RESHARD_NEVER &&
	    options->reshard != SRT_RESHARD_ALWAYS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option reshard of unit '%s' is %d, must be 0, SRT_RESHARD_NEVER, "
				"SRT_RESHARD_ALWAYS or a number of ranks",
				name, options->reshard);
	if (options->flat < SRT_FLAT_NO || options->flat > SRT_FLAT_PADDED)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option flat of unit '%s' is %d, must be SRT_FLAT_NO, "
				"SRT_FLAT_VIEWS or SRT_FLAT_PADDED",
				name, (int)options->flat);
	return SRT_OK;
}

/* One rank alone keeps everything. */
static int normalise_reshard(srt_engine_t *engine, const char *name, int reshard)
{
	if (reshard != 1)
		return reshard;
	if (!engine->declared.warned_reshard)
		srt_log(SRT_LOG_WARN,
			"rank %d: option reshard of unit '%s' is 1, a group of one rank: the unit keeps "
			"the memory of its unsharded parameters, as with SRT_RESHARD_NEVER",
			engine->rank, name);
	engine->declared.warned_reshard = true;
	return SRT_RESHARD_NEVER;
}

srt_status_t srt_unit_resolve(srt_unit_t *unit, srt_dtype_t stored)
{
	SRT_TRY(srt_precision_resolve(&unit->precision, stored, &unit->types));
	if (unit->precision.rule == SRT_PRECISION_FSDP1 && unit->parent != NULL)
		unit->types.casts_inputs = 0;
	return SRT_OK;
}

srt_status_t srt_unit_types(const srt_unit_t *unit, srt_unit_types_t *types)
{
	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(types);
	return srt_struct_write(types, &unit->types, sizeof(unit->types), "srt_unit_types_t");
}

srt_status_t srt_unit_create(srt_engine_t *engine, srt_unit_t *parent, const char *name,
			     const srt_unit_options_t *options, srt_unit_t **out)
{
	srt_unit_options_t o = SRT_UNIT_OPTIONS_INIT;
	srt_precision_t precision = SRT_PRECISION_INIT;
	srt_unit_t **grown, *unit;
	srt_status_t status;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(name);
	SRT_TRY(srt_check_not_null(out, __func__, "unit"));
	SRT_TRY(srt_struct_read(&o, sizeof(o), options, "srt_unit_options_t"));
	if (name[0] == '\0')
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: name is empty", __func__);
	SRT_TRY(check_unit(engine, parent, name));
	SRT_TRY(check_options(name, &o));
	SRT_TRY(srt_struct_read(&precision, sizeof(precision),
				o.precision != NULL ? o.precision : &engine->precision,
				"srt_precision_t"));
	SRT_TRY(srt_names_reserve(&engine->declared.units));
	grown = srt_realloc(engine->units, engine->nunits + 1, sizeof(*grown), "list of units");
	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	engine->units = grown;
	unit = srt_calloc(1, sizeof(*unit), name);
	if (unit == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	unit->engine = engine;
	unit->parent = parent;
	unit->precision = precision;
	unit->types = (srt_unit_types_t)SRT_UNIT_TYPES_INIT;
	unit->reshard = normalise_reshard(engine, name, o.reshard);
	unit->flat = o.flat;
	status = srt_unit_resolve(unit, SRT_F32);
	unit->name = status == SRT_OK ? srt_strdup(name) : NULL;
	if (unit->name == NULL) {
		free(unit);
		return status == SRT_OK ? SRT_ERR_OUT_OF_MEMORY : status;
	}
	unit->index = engine->nunits;
	unit->depth = parent == NULL ? 0 : parent->depth + 1;
	engine->units[engine->nunits++] = unit;
	srt_names_add(&engine->declared.units, unit->name, unit);
	*out = unit;
	return SRT_OK;
}

void srt_unit_free(srt_unit_t *unit)
{
	srt_coll_destroy(unit->unshard.gather);
	srt_coll_destroy(unit->unshard.regather);
	srt_coll_destroy(unit->grads.reduce);
	srt_coll_destroy(unit->grads.all_reduce);
	srt_event_destroy(unit->unshard.gathered);
	srt_event_destroy(unit->grads.reduced);
	srt_event_destroy(unit->unshard.uploaded);
	for (size_t i = 0; i < unit->nparams; i++)
		srt_param_free(unit->params[i]);
	free(unit->params);
	free(unit->name);
	free(unit);
}
