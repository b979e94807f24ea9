/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Units: declared as a tree, freed. The calls around their compute are in pass.c.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"

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
	for (size_t u = 0; u < engine->nunits; u++) {
		if (strcmp(engine->units[u]->name, name) == 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT, "unit '%s' is declared twice",
					name);
	}
	return SRT_OK;
}

srt_status_t srt_unit_create(srt_engine_t *engine, srt_unit_t *parent, const char *name,
			     srt_unit_t **out)
{
	srt_unit_t **grown, *unit;

	if (engine == NULL || name == NULL || name[0] == '\0' || out == NULL)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"srt_unit_create needs an engine, a name and a pointer for the result");
	SRT_TRY(check_unit(engine, parent, name));
	grown = srt_realloc(engine->units, engine->nunits + 1, sizeof(*grown), "list of units");
	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	engine->units = grown;
	unit = srt_calloc(1, sizeof(*unit), name);
	if (unit == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	unit->name = srt_strdup(name);
	if (unit->name == NULL) {
		free(unit);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	unit->engine = engine;
	unit->parent = parent;
	unit->index = engine->nunits;
	unit->depth = parent == NULL ? 0 : parent->depth + 1;
	engine->units[engine->nunits++] = unit;
	*out = unit;
	return SRT_OK;
}

void srt_unit_free(srt_unit_t *unit)
{
	srt_coll_destroy(unit->gather);
	srt_coll_destroy(unit->reduce);
	srt_event_destroy(unit->gathered);
	srt_event_destroy(unit->reduced);
	for (size_t i = 0; i < unit->nparams; i++)
		srt_param_free(unit->params[i]);
	free(unit->params);
	free(unit->name);
	free(unit);
}
