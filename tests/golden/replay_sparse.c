/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays the table of sparse gradients (replay.h): coalescing of 16-bit ones, and unscaling.
 */
#include "config.h"
#include "runtime/ops/step.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay_fixture.h"
#include "tests/harness/half.h"

/* ---- sparse gradients ------------------------------------------------------------------------ */

/* The dense sum of entries in float, against the recorded one. */
static srt_status_t compare_dense(fixture_t *f, const char *key, const int64_t *indices,
				  const float *values, size_t n, const srt_coo_t *coo, bool exact)
{
	float *dense = NULL;
	values_t want;
	srt_status_t status = fixture_recorded(f, key, &want);
	bool ok = true;

	if (status == SRT_OK && want.n != (size_t)(coo->shape[0] * coo->shape[1]))
		status = srt_fail(SRT_ERR_FORMAT, "'%s' has another shape", key);
	if (status == SRT_OK)
		dense = srt_calloc(want.n + 1, sizeof(*dense), key);
	for (size_t i = 0; dense != NULL && i < n; i++)
		dense[indices[i] * coo->shape[1] + indices[n + i]] += values[i];
	for (size_t i = 0; dense != NULL && i < want.n; i++) {
		ok &= fixture_same(&dense[i], &want.x[i], 1) ||
		      (!exact && fabsf(dense[i] - want.x[i]) <= 1e-6f * fabsf(want.x[i]));
	}
	verdict_exact(f->verdict, dense != NULL && ok, "%s differs", key);
	free(dense);
	fixture_drop(&want);
	return status;
}

enum { MAX_TERMS = 10 }; /* of a sum whose orders are all tried */

/* Whether some order of adding n terms in f16, unscaled, is what was recorded. */
static bool any_order(float *terms, size_t n, size_t done, float sum, float inv_scale, float want)
{
	bool found = false;

	if (done == n) {
		sum = half_round(SRT_F16, sum * inv_scale);
		return fixture_same(&sum, &want, 1);
	}
	for (size_t i = done; i < n && !found; i++) {
		float term = terms[i];

		terms[i] = terms[done];
		terms[done] = term;
		found = any_order(terms, n, done + 1, done ? half_round(SRT_F16, sum + term) : term,
				  inv_scale, want);
		terms[done] = terms[i];
		terms[i] = term;
	}
	return found;
}

/*
 * torch sorts the entries by a sort that is not stable: where equal keys end up depends on how
 * the vectors of the processor it ran on compare and swap them, which nothing recorded tells. So
 * where each addition is rounded, sums of three or more terms may have been taken in another order
 * than by rising position (of two it leaves no trace). Such a sum must be there in some order of
 * its terms; replay_scaler.c limits their number. *sums: as recorded; the caller's to free.
 */
static srt_status_t compare_sums(fixture_t *f, const char *key, srt_coo_t coo,
				 const values_t *indices, const values_t *values,
				 const int64_t *left, srt_view_t out, float inv_scale, float **sums)
{
	size_t n = values->n;
	float *got = NULL;
	values_t want;
	srt_status_t status = fixture_recorded(f, key, &want);

	if (status == SRT_OK)
		status = fixture_get(f, out, want.n, &got);
	f->nsums += want.n;
	for (size_t k = 0; k < want.n && status == SRT_OK; k++) {
		float terms[MAX_TERMS + 1];
		size_t nterms = 0;

		if (fixture_same(&got[k], &want.x[k], 1))
			continue;
		for (size_t i = 0; i < n && nterms < SRT_ARRAY_LEN(terms); i++)
			if (indices->i[i] == left[k] && indices->i[n + i] == left[want.n + k])
				terms[nterms++] = values->x[i];
		f->nreordered++;
		verdict_exact(f->verdict,
			      coo.round_each && nterms > 2 && nterms <= MAX_TERMS &&
				      any_order(terms, nterms, 0, 0, inv_scale, want.x[k]),
			      "%s [%zu] is %g, recorded %g", key, k, (double)got[k],
			      (double)want.x[k]);
		got[k] = want.x[k];
	}
	*sums = got;
	fixture_drop(&want);
	return status;
}

/* A gradient that is coalesced first. */
static srt_status_t coalesced_row(fixture_t *f, const char *name, const char *class, srt_coo_t coo,
				  const values_t *indices, const values_t *values, float inv_scale,
				  float *found)
{
	const size_t n = values->n;
	srt_view_t in_indices, in_values, out_indices, out_values, count, scratch;
	srt_status_t status = SRT_OK;
	int64_t *got_indices;
	float *sums = NULL;
	values_t want = { 0 };
	int32_t nleft = -1;
	size_t nbytes;
	char key[96];

	SRT_TRY(srt_coo_scratch(&coo, &nbytes));
	SRT_TRY(fixture_put(f, indices, &in_indices));
	SRT_TRY(fixture_put(f, values, &in_values));
	SRT_TRY(fixture_alloc(f, 2 * n * sizeof(int64_t), SRT_I64, &out_indices));
	SRT_TRY(fixture_alloc(f, n * sizeof(float), values->dtype, &out_values));
	SRT_TRY(fixture_alloc(f, sizeof(nleft), SRT_I32, &count));
	SRT_TRY(fixture_alloc(f, nbytes, SRT_U8, &scratch));
	SRT_TRY(srt_op_coo_coalesce(&(srt_scaler_sparse_t){ .coo = coo,
							    .indices = in_indices,
							    .out_indices = out_indices,
							    .out_values = out_values,
							    .count = count,
							    .scratch = scratch },
				    in_values, f->stream));
	SRT_TRY(fixture_unscale(f, out_values, n, inv_scale, true, found));
	SRT_TRY(srt_buffer_copy_to_host(&nleft, count.buffer, count.offset, sizeof(nleft),
					f->stream));
	got_indices = srt_calloc(2 * n + 1, sizeof(*got_indices), name);
	if (got_indices == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	snprintf(key, sizeof(key), "%s.%s.out.indices", name, class);
	status = fixture_recorded(f, key, &want);
	verdict_exact(f->verdict, status == SRT_OK && want.n == 2 * (size_t)nleft,
		      "%s: %d entries are left", key, (int)nleft);
	for (size_t dim = 0; dim < 2 && status == SRT_OK && want.n == 2 * (size_t)nleft; dim++) {
		status = srt_buffer_copy_to_host(got_indices + dim * (size_t)nleft,
						 out_indices.buffer,
						 out_indices.offset + dim * n * sizeof(int64_t),
						 (size_t)nleft * sizeof(int64_t), f->stream);
		verdict_exact(f->verdict,
			      !memcmp(got_indices + dim * (size_t)nleft,
				      want.i + dim * (size_t)nleft,
				      (size_t)nleft * sizeof(int64_t)),
			      "%s differs", key);
	}
	snprintf(key, sizeof(key), "%s.%s.out.values", name, class);
	if (status == SRT_OK)
		status = compare_sums(f, key, coo, indices, values, got_indices, out_values,
				      inv_scale, &sums);
	snprintf(key, sizeof(key), "%s.%s.out.dense", name, class);
	if (status == SRT_OK)
		status = compare_dense(f, key, got_indices, sums, (size_t)nleft, &coo, true);
	free(sums);
	free(got_indices);
	fixture_drop(&want);
	return status;
}

/*
 * A gradient that is left as it is. The recorded input shares its memory with both classes'
 * results: it holds the values unscaled twice. Scales are powers of two, so the values before can
 * be had again exactly; the dense sum of the first class was taken between the two.
 */
static srt_status_t plain_row(fixture_t *f, const char *name, const char *class, srt_coo_t coo,
			      const values_t *indices, values_t *values, float scale, float *found)
{
	bool first = !strcmp(class, "ShardedGradScaler");
	float *got = NULL;
	srt_status_t status;
	values_t want;
	srt_view_t view;
	char key[96];

	for (size_t i = 0; i < values->n; i++)
		values->x[i] = values->x[i] * scale * (first ? scale : 1.0f);
	SRT_TRY(fixture_put(f, values, &view));
	SRT_TRY(fixture_unscale(f, view, values->n, 1.0f / scale, false, found));
	status = fixture_get(f, view, values->n, &got);
	snprintf(key, sizeof(key), "%s.%s.out.dense", name, class);
	if (status == SRT_OK)
		status = compare_dense(f, key, indices->i, got, values->n, &coo, false);
	free(got);
	snprintf(key, sizeof(key), "%s.%s.out.values", name, class);
	if (status == SRT_OK && first)
		status = fixture_unscale(f, view, values->n, 1.0f / scale, false, &(float){ 0 });
	if (status == SRT_OK)
		status = fixture_compare(f, view, key);
	snprintf(key, sizeof(key), "%s.%s.out.indices", name, class);
	if (status == SRT_OK)
		status = fixture_recorded(f, key, &want);
	if (status == SRT_OK) {
		verdict_exact(f->verdict,
			      want.n == indices->n &&
				      !memcmp(want.i, indices->i, want.n * sizeof(*want.i)),
			      "%s differs", key);
		fixture_drop(&want);
	}
	return status;
}

srt_status_t replay_sparse_row(fixture_t *f, const json_t *row)
{
	const char *name = golden_text(row, "name"), *class = golden_text(row, "class");
	const json_t *shape = json_object_get(row, "shape");
	const char *found_text = golden_text(row, "found_inf");
	float scale = (float)golden_scalar(json_object_get(row, "scale")), found = -1;
	float inv_scale = (float)(1.0 / (double)scale);
	srt_coo_t coo = { .block = 1,
			  .ndim = 2,
			  .nnz = (int64_t)golden_number(row, "nnz", -1),
			  .shape = { json_integer_value(json_array_get(shape, 0)),
				     json_integer_value(json_array_get(shape, 1)) },
			  .round_each = class != NULL && !strcmp(class, "GradScaler") };
	values_t indices = { 0 }, values = { 0 };
	srt_status_t status;
	char key[96];

	if (name == NULL || class == NULL || found_text == NULL)
		return srt_fail(SRT_ERR_FORMAT, "a row without name, class or found_inf");
	f->used = 0;
	snprintf(key, sizeof(key), "%s.in.indices", name);
	status = fixture_recorded(f, key, &indices);
	snprintf(key, sizeof(key), "%s.in.values", name);
	if (status == SRT_OK)
		status = fixture_recorded(f, key, &values);
	if (status == SRT_OK && ((int64_t)values.n != coo.nnz || indices.n != 2 * values.n))
		status = srt_fail(SRT_ERR_FORMAT, "'%s' has another size", key);
	if (status == SRT_OK && values.dtype == SRT_F16)
		status = coalesced_row(f, name, class, coo, &indices, &values, inv_scale, &found);
	else if (status == SRT_OK)
		status = plain_row(f, name, class, coo, &indices, &values, scale, &found);
	verdict_exact(f->verdict, (double)found == strtod(found_text, NULL),
		      "%s, %s: found_inf is %g", name, class, (double)found);
	/* less than two entries always are */
	verdict_exact(f->verdict,
		      golden_is_set(row, "coalesced_after") ==
			      (values.dtype == SRT_F16 || coo.nnz < 2),
		      "%s: only f16 is coalesced", name);
	fixture_drop(&indices);
	fixture_drop(&values);
	return status;
}
