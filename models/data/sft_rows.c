/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of examples, by epochs; see sft.h. */
#include <stdlib.h>
#include <string.h>

#include "models/data/pack.h"
#include "models/data/sft_impl.h"
#include "models/hash.h"
#include "models/try.h"

/* ---- placing -------------------------------------------------------------------------------- */

/* Tokens of an example that are read: all but the last one, which is only predicted. */
static int64_t length_of(const srt_sft_t *sft, size_t example)
{
	return (int64_t)(sft->begin[example + 1] - sft->begin[example]) - 1;
}

static int64_t targets_of(const srt_sft_t *sft, size_t example)
{
	int64_t n = 0;

	for (size_t i = sft->begin[example] + 1; i < sft->begin[example + 1]; i++)
		n += sft->is_answer[i];
	return n;
}

void srt_sft_rows_clear(srt_sft_rows_t *rows)
{
	free(rows->begin);
	free(rows->examples);
	free(rows->targets);
	*rows = (srt_sft_rows_t){ 0 };
}

/* Examples by their rows, within a row in the given order. @param row of each place of `order`. */
static void sort_rows(const srt_sft_t *sft, const size_t *order, const size_t *row,
		      srt_sft_rows_t *rows)
{
	const size_t n = sft->nexamples;

	for (size_t i = 0; i < n; i++)
		rows->begin[row[i] + 1]++;
	for (size_t r = 0; r < rows->nrows; r++)
		rows->begin[r + 1] += rows->begin[r];
	for (size_t i = 0; i < n; i++)
		rows->examples[rows->begin[row[i]]++] = order[i];
	memmove(rows->begin + 1, rows->begin, rows->nrows * sizeof(*rows->begin));
	rows->begin[0] = 0;
	for (size_t r = 0; r < rows->nrows; r++) {
		rows->targets[r + 1] = rows->targets[r];
		for (size_t i = rows->begin[r]; i < rows->begin[r + 1]; i++)
			rows->targets[r + 1] += targets_of(sft, rows->examples[i]);
	}
}

static srt_status_t place(const srt_sft_t *sft, const size_t *order, srt_sft_rows_t *rows)
{
	const size_t n = sft->nexamples;
	int64_t *lengths = malloc((n + 1) * sizeof(*lengths));
	size_t *row = malloc((n + 1) * sizeof(*row));
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	for (size_t i = 0; i < n && lengths != NULL; i++)
		lengths[i] = length_of(sft, order[i]);
	if (lengths != NULL && row != NULL)
		status = srt_pack_first_fit(lengths, n, sft->context, row, &rows->nrows);
	free(lengths);
	if (status == SRT_OK) {
		rows->begin = calloc(rows->nrows + 1, sizeof(*rows->begin));
		rows->examples = calloc(n + 1, sizeof(*rows->examples));
		rows->targets = calloc(rows->nrows + 1, sizeof(*rows->targets));
		if (rows->begin != NULL && rows->examples != NULL && rows->targets != NULL)
			sort_rows(sft, order, row, rows);
		else
			status = SRT_ERR_OUT_OF_MEMORY;
	}
	free(row);
	return status == SRT_OK ? SRT_OK :
				  srt_model_fail(status, "no host memory to place %zu examples", n);
}

/* ---- epochs --------------------------------------------------------------------------------- */

typedef struct keyed {
	uint64_t key;
	size_t example;
} keyed_t;

static int compare_keys(const void *left, const void *right)
{
	const keyed_t *a = left, *b = right;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->example < b->example ? -1 : a->example > b->example;
}

/* The rows of an epoch; with `shuffled` false, in the order of the file. */
static srt_status_t make_rows(const srt_sft_t *sft, int64_t epoch, bool shuffled,
			      srt_sft_rows_t *rows)
{
	const size_t n = sft->nexamples;
	keyed_t *keyed = malloc((n + 1) * sizeof(*keyed));
	size_t *order = malloc((n + 1) * sizeof(*order));
	srt_status_t status;

	srt_sft_rows_clear(rows);
	if (keyed == NULL || order == NULL) {
		free(keyed);
		free(order);
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory to place %zu examples",
				      n);
	}
	for (size_t i = 0; i < n; i++)
		keyed[i] =
			(keyed_t){ shuffled ? srt_counter_hash(sft->seed, (uint64_t)epoch, i) : 0,
				   i };
	qsort(keyed, n, sizeof(*keyed), compare_keys);
	for (size_t i = 0; i < n; i++)
		order[i] = keyed[i].example;
	free(keyed);
	status = place(sft, order, rows);
	free(order);
	return status;
}

static srt_status_t start_epoch(srt_sft_t *sft, int64_t epoch, int64_t before)
{
	SRT_TRY(make_rows(sft, epoch, true, &sft->rows));
	sft->epoch = epoch;
	sft->before = before;
	return SRT_OK;
}

srt_status_t srt_sft_start(srt_sft_t *sft)
{
	SRT_TRY(make_rows(sft, 0, false, &sft->windows));
	return start_epoch(sft, 0, 0);
}

static int64_t count_steps(const srt_sft_t *sft)
{
	return ((int64_t)sft->rows.nrows + sft->batch - 1) / sft->batch;
}

/* Goes to the epoch of a step. @param[out] row the first one of the step. */
static srt_status_t find_step(srt_sft_t *sft, int64_t step, size_t *row)
{
	if (step - 1 < sft->before)
		SRT_TRY(start_epoch(sft, 0, 0));
	while (step - 1 - sft->before >= count_steps(sft))
		SRT_TRY(start_epoch(sft, sft->epoch + 1, sft->before + count_steps(sft)));
	*row = (size_t)((step - 1 - sft->before) * sft->batch);
	return SRT_OK;
}

srt_status_t srt_sft_find_epoch(srt_sft_t *sft, int64_t step, int64_t *epoch, int64_t *before)
{
	size_t row;

	SRT_TRY(find_step(sft, step, &row));
	*epoch = sft->epoch;
	*before = sft->before;
	return SRT_OK;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void fill_row(const srt_sft_t *sft, const srt_sft_rows_t *rows, size_t row, int32_t *ids,
		     int32_t *targets, int32_t *positions)
{
	const size_t context = (size_t)sft->context;
	size_t at = 0;

	for (size_t i = row < rows->nrows ? rows->begin[row] : 0;
	     row < rows->nrows && i < rows->begin[row + 1]; i++) {
		const size_t example = rows->examples[i], begin = sft->begin[example];
		const size_t n = (size_t)length_of(sft, example);

		for (size_t t = 0; t < n; t++, at++) {
			const size_t next = begin + t + 1;

			ids[at] = sft->ids[begin + t];
			targets[at] = sft->is_answer[next] ? sft->ids[next] : -1;
			positions[at] = (int32_t)t;
		}
	}
	for (size_t t = 0; at < context; t++, at++) {
		ids[at] = 0;
		targets[at] = -1;
		positions[at] = (int32_t)t;
	}
}

srt_status_t srt_sft_ntargets(srt_sft_t *sft, int64_t step, int64_t *ntargets)
{
	const srt_sft_rows_t *rows = &sft->rows;
	size_t row, end;

	SRT_TRY(find_step(sft, step, &row));
	end = row + (size_t)sft->batch < rows->nrows ? row + (size_t)sft->batch : rows->nrows;
	*ntargets = rows->targets[end] - rows->targets[row];
	return SRT_OK;
}

srt_status_t srt_sft_batch(srt_sft_t *sft, int64_t step, int64_t first, int64_t count, int32_t *ids,
			   int32_t *targets, int32_t *positions)
{
	size_t row;

	SRT_TRY(find_step(sft, step, &row));
	for (int64_t i = 0; i < count; i++) {
		const int64_t at = i * sft->context;

		fill_row(sft, &sft->rows, row + (size_t)(first + i), ids + at, targets + at,
			 positions + at);
	}
	return SRT_OK;
}

int64_t srt_sft_nwindows(const srt_sft_t *sft)
{
	return (int64_t)sft->windows.nrows;
}

int64_t srt_sft_window_targets(const srt_sft_t *sft, int64_t n)
{
	return sft->windows.targets[n];
}

void srt_sft_window(const srt_sft_t *sft, int64_t w, int32_t *ids, int32_t *targets,
		    int32_t *positions)
{
	fill_row(sft, &sft->windows, (size_t)w, ids, targets, positions);
}
