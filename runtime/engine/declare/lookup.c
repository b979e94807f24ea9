/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What was declared: units and parameters by position and name, and their properties; whether the
 * engine is built, and which parameters have no values yet.
 */
#include <string.h>

#include "runtime/engine/declare/declare.h"

srt_status_t srt_engine_require_built(const srt_engine_t *engine, const char *call)
{
	if (!engine->built)
		return srt_fail(SRT_ERR_STATE, "%s before srt_engine_build()", call);
	return SRT_OK;
}

srt_param_t *srt_engine_param_find(srt_engine_t *engine, const char *name)
{
	if (engine == NULL || name == NULL)
		return NULL;
	return srt_names_find(&engine->declared.params, name);
}

size_t srt_engine_unit_count(const srt_engine_t *engine)
{
	return engine != NULL ? engine->nunits : 0;
}

srt_unit_t *srt_engine_unit_at(srt_engine_t *engine, size_t i)
{
	return i < srt_engine_unit_count(engine) ? engine->units[i] : NULL;
}

srt_unit_t *srt_engine_unit_find(srt_engine_t *engine, const char *name)
{
	if (engine == NULL || name == NULL)
		return NULL;
	return srt_names_find(&engine->declared.units, name);
}

const char *srt_unit_name(const srt_unit_t *unit)
{
	return unit != NULL ? unit->name : "";
}

size_t srt_engine_param_count(const srt_engine_t *engine)
{
	return engine != NULL ? engine->nparams : 0;
}

srt_param_t *srt_engine_param_at(srt_engine_t *engine, size_t i)
{
	return i < srt_engine_param_count(engine) ? engine->params[i] : NULL;
}

const char *srt_param_name(const srt_param_t *param)
{
	return param != NULL ? param->name : "";
}

srt_comm_t *srt_engine_comm(const srt_engine_t *engine)
{
	return engine != NULL ? engine->comm : NULL;
}

srt_unit_t *srt_param_unit(const srt_param_t *param)
{
	return param != NULL ? param->unit : NULL;
}

int srt_param_shape(const srt_param_t *param, int64_t *shape)
{
	if (param == NULL || shape == NULL)
		return 0;
	memcpy(shape, param->shape, (size_t)param->ndim * sizeof(*shape));
	return param->ndim;
}

int srt_param_partition(const srt_param_t *param, int64_t *shape)
{
	const srt_engine_t *engine;

	if (param == NULL || shape == NULL)
		return 0;
	engine = param->unit->engine;
	srt_cell_shape(param, srt_cell_index(engine, engine->rank), shape);
	return param->ndim;
}

int64_t srt_param_nelem(const srt_param_t *param)
{
	return param != NULL ? param->whole_nelem : 0;
}

int srt_param_requires_grad(const srt_param_t *param)
{
	return param != NULL && !param->frozen;
}

srt_status_t srt_full_check(const srt_engine_t *engine, const char *call)
{
	for (size_t u = 0; u < engine->nunits; u++) {
		if (engine->units[u]->full != NULL)
			return srt_fail(SRT_ERR_STATE,
					"%s while the full parameters of unit '%s' are summoned: "
					"call srt_unit_full_params_end() of unit '%s' first",
					call, engine->units[u]->name,
					engine->units[u]->full->unit->name);
	}
	return SRT_OK;
}

void srt_param_expect_values(srt_param_t *param)
{
	if (param->is_unset || param->whole_nelem == 0)
		return;
	param->is_unset = true;
	param->unit->engine->declared.nunset++;
}

void srt_param_has_values(srt_param_t *param)
{
	param->unit->engine->declared.nunset -= param->is_unset;
	param->is_unset = false;
}

srt_status_t srt_values_check(const srt_engine_t *engine)
{
	char names[512] = "";
	size_t n = 0, used = 0;

	if (engine->declared.nunset == 0)
		return SRT_OK;
	for (size_t i = 0; i < engine->nparams; i++) {
		const char *name = engine->params[i]->name;

		if (!engine->params[i]->is_unset || used + strlen(name) + 5 > sizeof(names))
			continue;
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s'%s'",
					 n > 0 ? ", " : "", name);
		n++;
	}
	return srt_fail(SRT_ERR_STATE,
			"%zu parameter%s no values before the first forward pass: %s%s; call "
			"srt_engine_materialize() or srt_engine_load(), or set each of them",
			engine->declared.nunset, engine->declared.nunset == 1 ? " has" : "s have",
			names, n < engine->declared.nunset ? " and others" : "");
}
