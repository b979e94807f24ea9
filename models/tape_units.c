/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Units on a tape: their boundaries, the casts of what enters and leaves them, and sections that
 * are recomputed.
 *
 * A tensor enters a unit where a layer inside of the unit first uses it: there it is cast, once for
 * each tensor and pass through the unit, if the unit casts its inputs. A tensor that crosses the
 * boundaries of several units is cast by each, the outer one first.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

static srt_open_unit_t *innermost(const srt_tape_t *tape)
{
	return tape->nopen > 0 ? &tape->open[tape->nopen - 1] : NULL;
}

void srt_tape_unit_begin(srt_tape_t *tape, srt_unit_t *unit)
{
	srt_open_unit_t *open;

	srt_tape_boundary(tape, unit, 1);
	if (tape->status != SRT_OK)
		return;
	open = srt_tape_grow(tape->open, tape->nopen, &tape->open_room, sizeof(*open));
	if (open == NULL) {
		srt_tape_fail(tape, SRT_ERR_OUT_OF_MEMORY, "no memory to record a unit");
		return;
	}
	tape->open = open;
	open = &tape->open[tape->nopen++];
	*open = (srt_open_unit_t){ .unit = unit, .begin = tape->nnodes - 1 };
	open->types = (srt_unit_types_t)SRT_UNIT_TYPES_INIT;
	if (srt_unit_types(unit, &open->types) != SRT_OK)
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT, NULL);
}

void srt_tape_unit_end(srt_tape_t *tape)
{
	const srt_open_unit_t *open = innermost(tape);

	if (tape->status != SRT_OK)
		return;
	if (open == NULL) {
		srt_tape_fail(tape, SRT_ERR_STATE, "srt_tape_unit_end() without an open unit");
		return;
	}
	if (tape->section && tape->nopen == tape->section_open_units) {
		srt_tape_fail(
			tape, SRT_ERR_STATE,
			"a unit ends inside a section that is recomputed, but began before it");
		return;
	}
	srt_tape_boundary(tape, open->unit, 0);
	tape->nopen--;
}

srt_dtype_t srt_tape_compute_dtype(const srt_tape_t *tape)
{
	/* a unit of bytes computes nothing */
	for (int u = tape->nopen - 1; u >= 0; u--)
		if (srt_is_float(tape->open[u].types.compute))
			return tape->open[u].types.compute;
	return SRT_F32;
}

/* ---- casts ------------------------------------------------------------------------------ */

/* The tensor as the unit casts it: recorded at its first use in the unit. */
static srt_tensor_t *cast_input(srt_tape_t *tape, srt_tensor_t *x, const srt_open_unit_t *unit)
{
	srt_unit_cast_t *casts;
	srt_tensor_t *y;

	for (int c = 0; c < tape->ncasts; c++)
		if (tape->casts[c].from == x && tape->casts[c].begin == unit->begin)
			return tape->casts[c].to;
	y = srt_layer_cast(tape, x, unit->types.compute);
	if (y == NULL)
		return NULL;
	y->origin = unit->begin;
	casts = srt_tape_grow(tape->casts, tape->ncasts, &tape->casts_room, sizeof(*casts));
	if (casts == NULL) {
		srt_tape_fail(tape, SRT_ERR_OUT_OF_MEMORY, "no memory to record a cast");
		return NULL;
	}
	tape->casts = casts;
	casts[tape->ncasts++] = (srt_unit_cast_t){ .from = x, .to = y, .begin = unit->begin };
	return y;
}

srt_tensor_t *srt_tape_enter(srt_tape_t *tape, const char *layer, srt_tensor_t *x)
{
	if (!srt_tape_usable(tape, x))
		return NULL;
	if (!srt_is_float(x->dtype)) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "%s: an input is %s, must be f32, f16 or bf16", layer,
			      srt_dtype_name(x->dtype));
		return NULL;
	}
	for (int u = 0; u < tape->nopen && x != NULL; u++) {
		const srt_open_unit_t *unit = &tape->open[u];

		if (unit->types.casts_inputs && x->origin < unit->begin &&
		    x->dtype != unit->types.compute)
			x = cast_input(tape, x, unit);
	}
	return x;
}

int srt_tape_same_dtype(srt_tape_t *tape, const char *layer, const srt_tensor_t *a,
			const srt_tensor_t *b)
{
	if (a->dtype == b->dtype)
		return 1;
	srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
		      "%s: the inputs are %s and %s; srt_layer_cast() makes one dtype of them",
		      layer, srt_dtype_name(a->dtype), srt_dtype_name(b->dtype));
	return 0;
}

srt_dtype_t srt_tape_output_dtype(const srt_tape_t *tape, const srt_tensor_t *x)
{
	const srt_open_unit_t *unit = innermost(tape);

	if (x == NULL)
		return SRT_F32;
	if (unit == NULL || !srt_is_float(x->dtype))
		return x->dtype;
	return unit->types.output != SRT_DTYPE_NONE ? unit->types.output : x->dtype;
}

srt_tensor_t *srt_tape_unit_output(srt_tape_t *tape, srt_tensor_t *x)
{
	if (!srt_tape_usable(tape, x))
		return NULL;
	return srt_is_float(x->dtype) ? srt_layer_cast(tape, x, srt_tape_output_dtype(tape, x)) : x;
}

/* ---- sections ---------------------------------------------------------------------------- */

void srt_tape_recompute_begin(srt_tape_t *tape)
{
	if (tape->section) {
		srt_tape_fail(tape, SRT_ERR_STATE,
			      "a section that is recomputed begins inside another one");
		return;
	}
	tape->section = ++tape->nsections;
	tape->section_open_units = tape->nopen;
}

void srt_tape_recompute_end(srt_tape_t *tape)
{
	if (tape->status == SRT_OK && !tape->section)
		srt_tape_fail(tape, SRT_ERR_STATE,
			      "srt_tape_recompute_end() without srt_tape_recompute_begin()");
	else if (tape->status == SRT_OK && tape->nopen != tape->section_open_units)
		srt_tape_fail(tape, SRT_ERR_STATE,
			      "a section that is recomputed ends inside a unit that began in it");
	tape->section = 0;
}
