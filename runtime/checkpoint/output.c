/* SPDX-License-Identifier: BSD-3-Clause */
/* See output.h. */
#include "runtime/checkpoint/output.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "runtime/checkpoint/source.h"

/* Rows of a transposed tensor that are collected before they are written. */
static int64_t count_block_rows(const srt_output_tensor_t *t)
{
	const int64_t row_nbytes = t->columns * (int64_t)srt_dtype_size(t->to);

	return row_nbytes == 0 ? t->rows :
				 srt_max64(1, (int64_t)SRT_OUTPUT_BLOCK_NBYTES / row_nbytes);
}

srt_status_t srt_output_open(srt_output_t *o)
{
	size_t block_nbytes = 0;
	bool casts = false;

	for (size_t i = 0; i < o->ntensors; i++) {
		const srt_output_tensor_t *t = &o->tensors[i];
		const size_t nbytes = (size_t)(count_block_rows(t) * t->columns);

		casts = casts || t->from != t->to;
		if (t->rows > 0 && nbytes * srt_dtype_size(t->to) > block_nbytes)
			block_nbytes = nbytes * srt_dtype_size(t->to);
	}
	if (block_nbytes > 0) {
		o->block = srt_calloc(block_nbytes, 1, "rows of a transposed tensor");
		if (o->block == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
	}
	if (!casts)
		return SRT_OK;
	o->rounded = srt_calloc(SRT_CAST_NELEM, sizeof(float), "rounded elements");
	return o->rounded != NULL ? srt_cast_open(&o->cast, srt_stream_device(o->stream)) :
				    SRT_ERR_OUT_OF_MEMORY;
}

void srt_output_close(srt_output_t *o)
{
	srt_cast_close(&o->cast);
	free(o->rounded);
	free(o->block);
}

/* Rows row .. row + n - 1 of the engine, which the block has as (columns,n). */
static srt_status_t write_block(const srt_output_t *o, size_t i, int64_t row, int64_t n)
{
	const srt_output_tensor_t *t = &o->tensors[i];
	const size_t item = srt_dtype_size(t->to), nbytes = (size_t)n * item;

	if (n == t->rows)
		return srt_file_writer_put(o->writer, i, 0, o->block, (size_t)t->nelem * item);
	for (int64_t c = 0; c < t->columns; c++)
		SRT_TRY(srt_file_writer_put(o->writer, i, (size_t)(c * t->rows + row) * item,
					    o->block + (size_t)c * nbytes, nbytes));
	return SRT_OK;
}

/* Elements first .. end - 1 of a transposed tensor; a block is written when it is full. */
static srt_status_t put_transposed(const srt_output_t *o, size_t i, int64_t first, int64_t end,
				   const char *elements)
{
	const srt_output_tensor_t *t = &o->tensors[i];
	const size_t item = srt_dtype_size(t->to);
	const int64_t most = count_block_rows(t);

	for (int64_t at = first, n; at < end; at += n) {
		const int64_t row = at / t->columns, column = at % t->columns;
		const int64_t begin = row - row % most, width = srt_min64(most, t->rows - begin);

		n = srt_min64(t->columns - column, end - at);
		for (int64_t k = 0; k < n; k++)
			memcpy(o->block + (size_t)((column + k) * width + row - begin) * item,
			       elements + (size_t)(at - first + k) * item, item);
		if (at + n == (begin + width) * t->columns)
			SRT_TRY(write_block(o, i, begin, width));
	}
	return SRT_OK;
}

static srt_status_t put_runs(const srt_output_t *o, size_t i, int64_t first, int64_t end,
			     const char *elements)
{
	const srt_output_tensor_t *t = &o->tensors[i];
	const size_t item = srt_dtype_size(t->to);

	for (int64_t at = first, n, run; at < end; at += n) {
		const int64_t to = srt_source_find(at, t->nelem, t->heads, &run);

		n = srt_min64(run, end - at);
		SRT_TRY(srt_file_writer_put(o->writer, i, (size_t)to * item,
					    elements + (size_t)(at - first) * item,
					    (size_t)n * item));
	}
	return SRT_OK;
}

srt_status_t srt_output_put(const srt_output_t *o, size_t i, size_t offset, const void *bytes,
			    size_t nbytes)
{
	const srt_output_tensor_t *t = &o->tensors[i];
	const size_t item = srt_dtype_size(t->from), n = nbytes / item;
	const int64_t first = (int64_t)(offset / item);

	if (t->from != t->to) {
		SRT_TRY(srt_cast_block(&o->cast, t->from, bytes, t->to, o->rounded, n, o->stream));
		bytes = o->rounded;
	}
	return t->rows > 0 ? put_transposed(o, i, first, first + (int64_t)n, bytes) :
			     put_runs(o, i, first, first + (int64_t)n, bytes);
}
