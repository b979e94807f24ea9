/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays the table of initial distributions (replay.h): for each parameter and buffer of modules
 * of torch.nn, the recorded arguments of the last draw are those of srt_init_default(). Part of
 * replay_table().
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "tests/golden/replay.h"

#define RTOL 1e-12 /* of the case */

static int64_t integer_at(const json_t *array, size_t i)
{
	return (int64_t)json_integer_value(json_array_get(array, i));
}

/* The inputs of the Linear layer that has a bias: the columns of the weight in the same module. */
static int64_t find_fan_in(const json_t *rows, const json_t *bias, const char *name)
{
	const size_t n = strlen(name);
	char weight[128];
	const json_t *row;
	size_t i;

	if (n < 4 || strcmp(name + n - 4, "bias") != 0)
		return 0;
	snprintf(weight, sizeof(weight), "%.*sweight", (int)(n - 4), name);
	json_array_foreach(rows, i, row)
	{
		if (!strcmp(golden_text(row, "name"), weight) &&
		    !strcmp(golden_text(row, "module"), golden_text(bias, "module")) &&
		    json_equal(json_object_get(row, "args"), json_object_get(bias, "args")))
			return integer_at(json_object_get(row, "shape"), 1);
	}
	return 0;
}

static void compare_number(verdict_t *v, const json_t *row, const char *what, const char *field,
			   double got)
{
	const double want = golden_scalar(json_object_get(row, field));

	verdict_exact(v, fabs(got - want) <= RTOL * fabs(want), "%s: %s is %.17g, not %.17g", what,
		      field, got, want);
}

static void compare_init(verdict_t *v, const json_t *row, const char *what, const srt_init_t *init)
{
	static const char *const kinds[] = { "constant", "normal", "uniform" };
	const json_t *zero_row = json_object_get(row, "zero_row");
	const char *want = golden_text(row, "distribution");

	verdict_exact(v, want != NULL && !strcmp(kinds[init->kind], want), "%s is %s, not %s", what,
		      kinds[init->kind], want != NULL ? want : "?");
	if (init->kind == SRT_INIT_CONSTANT) {
		compare_number(v, row, what, "value", init->value);
	} else if (init->kind == SRT_INIT_NORMAL) {
		compare_number(v, row, what, "mean", init->mean);
		compare_number(v, row, what, "std", init->std);
	} else {
		compare_number(v, row, what, "low", init->low);
		compare_number(v, row, what, "high", init->high);
	}
	verdict_exact(v,
		      init->has_zero_row ?
			      zero_row != NULL && init->zero_row == json_integer_value(zero_row) :
			      zero_row == NULL,
		      "%s: another zero_row", what);
}

srt_status_t replay_init(golden_t *g, verdict_t *v)
{
	const json_t *rows = json_object_get(g->json, "rows"), *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const json_t *padding =
			json_object_get(json_object_get(row, "kwargs"), "padding_idx");
		const json_t *sizes = json_object_get(row, "shape");
		int64_t shape[SRT_MAX_DIMS] = { 0 };
		srt_init_query_t query = { .size = sizeof(query),
					   .kind = golden_text(row, "module"),
					   .name = golden_text(row, "name"),
					   .ndim = (int)json_array_size(sizes),
					   .shape = shape,
					   .has_padding = padding != NULL,
					   .padding_idx = json_integer_value(padding) };
		srt_init_t init;
		char what[160];

		if (query.kind == NULL || query.name == NULL || query.ndim > SRT_MAX_DIMS)
			return srt_fail(SRT_ERR_FORMAT, "row %zu is malformed", i);
		for (int d = 0; d < query.ndim; d++)
			shape[d] = integer_at(sizes, (size_t)d);
		query.fan_in = find_fan_in(rows, row, query.name);
		SRT_TRY(srt_init_default(&query, &init));
		snprintf(what, sizeof(what), "%s %s", query.kind, query.name);
		compare_init(v, row, what, &init);
	}
	verdict_exact(v, i > 0, "the table is empty");
	return SRT_OK;
}
