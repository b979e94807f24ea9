/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays tables about the loss scaler (replay.h): checking and unscaling of dense and of sparse
 * gradients (replay_sparse.c), scaled outputs, what averages divide by, and the state machine
 * (replay_sequences.c). All of them are exact.
 */
#include "config.h"
#include "runtime/ops/step.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay_fixture.h"
#include "tests/harness/half.h"

/* ---- values on the host and on the device --------------------------------------------------- */

void fixture_drop(values_t *v)
{
	free(v->x);
	free(v->i);
	*v = (values_t){ 0 };
}

srt_status_t fixture_recorded(fixture_t *f, const char *key, values_t *v)
{
	srt_safetensors_t *file = f->golden->expect;
	const srt_safetensors_tensor_t *t = srt_safetensors_find(file, key);

	*v = (values_t){ 0 };
	if (t == NULL)
		return srt_fail(SRT_ERR_FORMAT, "'%s' is not there", key);
	for (size_t k = 0; k < srt_safetensors_count(file); k++)
		f->golden->seen[k] |= srt_safetensors_tensor(file, k) == t;
	v->dtype = t->dtype;
	v->n = t->nelem;
	if (t->dtype != SRT_I64)
		return golden_floats(file, key, t->nelem, &v->x);
	v->i = srt_calloc(t->nelem + 1, sizeof(*v->i), key);
	if (v->i == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	return srt_safetensors_read(file, t, 0, t->nbytes, v->i);
}

srt_status_t fixture_alloc(fixture_t *f, size_t nbytes, srt_dtype_t dtype, srt_view_t *view)
{
	if (f->used + nbytes > srt_buffer_nbytes(f->buffer))
		return srt_fail(SRT_ERR_FORMAT, "a row of more than %zu bytes",
				srt_buffer_nbytes(f->buffer));
	*view = srt_view(f->buffer, f->used, dtype);
	f->used = srt_align_up(f->used + nbytes, 64);
	return SRT_OK;
}

srt_status_t fixture_put_bytes(fixture_t *f, const void *bytes, size_t nbytes, srt_dtype_t dtype,
			       srt_view_t *view)
{
	SRT_TRY(fixture_alloc(f, nbytes, dtype, view));
	return srt_buffer_copy_from_host(view->buffer, view->offset, bytes, nbytes, f->stream);
}

srt_status_t fixture_put(fixture_t *f, const values_t *v, srt_view_t *view)
{
	void *stored;
	srt_status_t status;

	if (v->i != NULL)
		return fixture_put_bytes(f, v->i, v->n * sizeof(*v->i), v->dtype, view);
	stored = srt_calloc(v->n + 1, sizeof(float), "values");
	if (stored == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < v->n; i++)
		half_put(v->dtype, stored, i, v->x[i]);
	status = fixture_put_bytes(f, stored, v->n * srt_dtype_bits(v->dtype) / 8, v->dtype, view);
	free(stored);
	return status;
}

srt_status_t fixture_get(fixture_t *f, srt_view_t view, size_t n, float **x)
{
	void *stored = srt_calloc(n + 1, sizeof(float), "values");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	*x = srt_calloc(n + 1, sizeof(**x), "values");
	if (stored != NULL && *x != NULL)
		status = srt_buffer_copy_to_host(stored, view.buffer, view.offset,
						 n * srt_dtype_bits(view.dtype) / 8, f->stream);
	for (size_t i = 0; i < n && status == SRT_OK; i++)
		(*x)[i] = half_get(view.dtype, stored, i);
	free(stored);
	return status;
}

bool fixture_same(const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(&a[i], &b[i], sizeof(*a)) && (a[i] == a[i] || b[i] == b[i]))
			return false;
	return true;
}

srt_status_t fixture_compare(fixture_t *f, srt_view_t view, const char *key)
{
	values_t want;
	float *got = NULL;
	srt_status_t status = fixture_recorded(f, key, &want);

	if (status == SRT_OK)
		status = fixture_get(f, view, want.n, &got);
	if (status == SRT_OK)
		verdict_exact(f->verdict,
			      want.dtype == view.dtype && fixture_same(got, want.x, want.n),
			      "%s differs", key);
	free(got);
	fixture_drop(&want);
	return status;
}

/* ---- unscaling ------------------------------------------------------------------------------ */

srt_status_t fixture_unscale(fixture_t *f, srt_view_t g, size_t n, float inv_scale, bool by_state,
			     float *found)
{
	srt_k_step_state_t state = { .inv_scale = inv_scale };
	srt_view_t where, none = { 0 };

	if (by_state) {
		SRT_TRY(fixture_put_bytes(f, &state, sizeof(state), SRT_U8, &where));
		SRT_TRY(srt_op_unscale(g, none, where, 0, (int64_t)n, f->stream));
		SRT_TRY(srt_buffer_copy_to_host(&state, where.buffer, where.offset, sizeof(state),
						f->stream));
		*found = state.found_inf;
		return SRT_OK;
	}
	SRT_TRY(fixture_put_bytes(f, &state.found_inf, sizeof(float), SRT_F32, &where));
	SRT_TRY(srt_op_unscale(g, where, none, inv_scale, (int64_t)n, f->stream));
	return srt_buffer_copy_to_host(found, where.buffer, where.offset, sizeof(*found),
				       f->stream);
}

static srt_status_t unscale_row(fixture_t *f, const json_t *row)
{
	static const char *const sets[] = { "f32.finite", "f16.finite", "bf16.finite",
					    "f32.nonfinite", "f16.nonfinite" };
	const json_t *want = json_object_get(row, "found_inf");
	float inv_scale = (float)golden_scalar(json_object_get(row, "inv_scale"));
	srt_status_t status = SRT_OK;

	verdict_exact(f->verdict, json_object_size(want) == SRT_ARRAY_LEN(sets), "other sets");
	for (size_t k = 0; k < 2 * SRT_ARRAY_LEN(sets) && status == SRT_OK; k++) {
		const char *set = sets[k / 2];
		float found = -1;
		char key[64];
		srt_view_t g;
		values_t in;

		f->used = 0;
		snprintf(key, sizeof(key), "in.%s", set);
		status = fixture_recorded(f, key, &in);
		if (status == SRT_OK)
			status = fixture_put(f, &in, &g);
		if (status == SRT_OK)
			status = fixture_unscale(f, g, in.n, inv_scale, k % 2, &found);
		snprintf(key, sizeof(key), "out%d.%s", (int)golden_number(row, "index", -1), set);
		if (status == SRT_OK)
			status = fixture_compare(f, g, key);
		verdict_exact(f->verdict, (double)found == golden_number(want, set, -1),
			      "%s: found_inf is %g", key, (double)found);
		fixture_drop(&in);
	}
	return status;
}

/* ---- scaled outputs -------------------------------------------------------------------------- */

/* n elements of x scaled into a tensor of dtype `to`, compared with INDEX.what. */
static srt_status_t scaled(fixture_t *f, int index, const char *what, srt_view_t x, size_t n,
			   srt_dtype_t to, float scale, bool by_state)
{
	const srt_k_step_state_t state = { .scale = scale };
	srt_view_t y, where = { 0 };
	char key[64];

	snprintf(key, sizeof(key), "%d.%s", index, what);
	SRT_TRY(fixture_alloc(f, n * sizeof(float), to, &y));
	if (by_state)
		SRT_TRY(fixture_put_bytes(f, &state, sizeof(state), SRT_U8, &where));
	SRT_TRY(srt_op_scale_loss(y, x, where, by_state ? 0 : scale, (int64_t)n, f->stream));
	return fixture_compare(f, y, key);
}

static srt_status_t outputs_row(fixture_t *f, const json_t *row)
{
	int index = (int)golden_number(row, "index", -1);
	float scale = (float)golden_scalar(json_object_get(row, "scale"));
	srt_status_t status;
	srt_view_t x;
	values_t in;
	char key[64];

	f->used = 0;
	snprintf(key, sizeof(key), "%d.in", index);
	status = fixture_recorded(f, key, &in);
	if (status == SRT_OK)
		status = fixture_put(f, &in, &x);
	for (int by_state = 0; by_state < 2 && status == SRT_OK; by_state++) {
		SRT_TRY(scaled(f, index, "sharded", x, in.n, in.dtype, scale, by_state));
		SRT_TRY(scaled(f, index, "plain", x, in.n, in.dtype, scale, by_state));
		SRT_TRY(scaled(f, index, "sharded0d", x, 1, in.dtype, scale, by_state));
		SRT_TRY(scaled(f, index, "plain0d", x, 1, SRT_F32, scale, by_state));
	}
	fixture_drop(&in);
	return status;
}

/* The recorded containers: each of their tensors, whose list is the caller's. */
static srt_status_t scale_nested(fixture_t *f, const json_t *in, const json_t *out, float scale)
{
	const json_t *item;
	srt_view_t x, y, none = { 0 };
	float value, got;
	size_t i;

	json_array_foreach(in, i, item)
	{
		const json_t *want = json_array_get(out, i);

		if (json_is_array(item)) {
			SRT_TRY(scale_nested(f, item, want, scale));
			continue;
		}
		value = (float)json_number_value(item);
		SRT_TRY(fixture_put_bytes(f, &value, sizeof(value), SRT_F32, &x));
		SRT_TRY(fixture_alloc(f, sizeof(value), SRT_F32, &y));
		SRT_TRY(srt_op_scale_loss(y, x, none, scale, 1, f->stream));
		SRT_TRY(srt_buffer_copy_to_host(&got, y.buffer, y.offset, sizeof(got), f->stream));
		verdict_exact(f->verdict, (double)got == json_number_value(want), "%g scaled is %g",
			      (double)value, (double)got);
	}
	return SRT_OK;
}

/* ---- what averages divide by ----------------------------------------------------------------- */

static void check_factors(verdict_t *v, srt_dtype_t dtype, int64_t n, double factor, double pre,
			  double post)
{
	float got_pre = 0, got_post = 0;
	srt_status_t status = srt_coll_divide_factors(dtype, n, (float)factor, &got_pre, &got_post);

	verdict_exact(v, status == SRT_OK && (double)got_pre == pre && (double)got_post == post,
		      "%s on %lld ranks, factor %g: %g and %g, recorded %g and %g",
		      srt_dtype_name(dtype), (long long)n, factor, (double)got_pre,
		      (double)got_post, pre, post);
}

static srt_status_t run_factors(golden_t *g, verdict_t *v)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(g->json, "rows"), i, row)
	{
		double x[5];

		for (size_t k = 0; k < SRT_ARRAY_LEN(x); k++)
			x[k] = json_number_value(json_array_get(row, k));
		check_factors(v, SRT_F16, (int64_t)x[0], 0, x[1], x[2]);
		check_factors(v, SRT_F16, (int64_t)x[0], 0, x[3], x[4]); /* of every dtype there */
	}
	json_array_foreach(json_object_get(g->json, "ops"), i, row)
	{
		const char *dtype = golden_text(row, "reduce_dtype"), *op = golden_text(row, "op");
		double n = golden_number(row, "n", 0), factor = golden_number(row, "factor", 0);

		if (dtype == NULL || op == NULL)
			return srt_fail(SRT_ERR_FORMAT, "an operation without dtype or name");
		if (!strcmp(dtype, "f16")) {
			verdict_exact(v, !strcmp(op, "SUM"), "f16 is reduced by %s", op);
			check_factors(v, SRT_F16, (int64_t)n, factor, golden_number(row, "pre", 0),
				      golden_number(row, "post", 0));
			continue;
		}
		/* The sum, the average, or the sum of parts that are divided: by what in all. */
		verdict_exact(v, strcmp(op, "SUM") || n == 1, "%s is summed on %g ranks", dtype, n);
		check_factors(v, strcmp(dtype, "f32") ? SRT_BF16 : SRT_F32, (int64_t)n, factor, 1,
			      !strcmp(op, "SUM") ? 1 :
			      !strcmp(op, "AVG") ? n :
						   factor);
	}
	json_array_foreach(json_object_get(g->json, "hsdp_f16"), i, row)
		check_factors(v, SRT_F16,
			      (int64_t)golden_number(row, "shard", 0) *
				      (int64_t)golden_number(row, "replicate", 0),
			      0, golden_number(row, "pre", 0), golden_number(row, "post", 0));
	return SRT_OK;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static srt_status_t run_rows(fixture_t *f)
{
	golden_t *g = f->golden;
	const json_t *row, *nested = json_object_get(g->json, "seed_check");
	srt_status_t (*run)(fixture_t *, const json_t *) = unscale_row;
	size_t i;

	if (golden_is_named(g, "sgs_sparse_unscale"))
		run = replay_sparse_row;
	if (golden_is_named(g, "sgs_scale_outputs"))
		run = outputs_row;
	json_array_foreach(json_object_get(g->json, "rows"), i, row) SRT_TRY(run(f, row));
	if (nested != NULL)
		SRT_TRY(scale_nested(f, json_object_get(nested, "in"),
				     json_object_get(nested, "out"),
				     (float)golden_number(nested, "init_scale", 0)));
	verdict_exact(f->verdict, f->nreordered <= f->nsums / 10,
		      "%zu of %zu sums are in another order of their terms", f->nreordered,
		      f->nsums);
	for (i = 0; i < srt_safetensors_count(g->expect); i++)
		verdict_exact(f->verdict, g->seen[i], "%s was not compared",
			      srt_safetensors_tensor(g->expect, i)->name);
	return SRT_OK;
}

/* Memory for a row: copies of its tensors, scratch to sort their elements by, step states. */
static size_t fixture_nbytes(const golden_t *g)
{
	const srt_safetensors_tensor_t *t;
	size_t most = 0;

	for (size_t i = 0; g->expect != NULL && (t = srt_safetensors_tensor(g->expect, i)) != NULL;
	     i++)
		most = t->nbytes > most ? t->nbytes : most;
	return ((size_t)1 << 20) + 64 * most;
}

srt_status_t replay_scaler(golden_t *g, srt_context_t *context, verdict_t *v, char *note,
			   size_t nnote)
{
	srt_device_t *device = srt_context_device(context);
	const bool has_sequences = golden_is_named(g, "scaler_state_machine");
	fixture_t f = { .golden = g, .verdict = v };
	srt_status_t status;

	if (g->expect == NULL && !has_sequences)
		return run_factors(g, v);
	status = srt_stream_create(device, 0, "scaler", &f.stream);
	if (status == SRT_OK)
		status = srt_buffer_create(device, SRT_MEM_DEVICE, fixture_nbytes(g), "rows",
					   &f.buffer);
	if (status == SRT_OK)
		status = has_sequences ? replay_sequences(&f, context) : run_rows(&f);
	if (f.nreordered)
		snprintf(note, nnote,
			 "%zu of %zu sums are in another order of their terms: torch's sort of "
			 "them is not stable",
			 f.nreordered, f.nsums);
	srt_stream_destroy(f.stream);
	srt_buffer_destroy(f.buffer);
	return status;
}
