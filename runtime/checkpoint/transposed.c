/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads a shard of a transposed matrix (transposed.h).
 *
 * A shard is a list of runs: elements that follow each other in the matrix. Runs whose rows touch
 * make a box of rows and columns; in the file this is a box of columns and rows, read in blocks:
 * one read for a block of complete rows of the file, else one for each row. From the block the
 * elements of the runs are copied to their places.
 */
#include "runtime/checkpoint/transposed.h"

#include <string.h>

#include "base/base.h"
#include "runtime/engine/declare/declare.h"

/* Rows and columns of the matrix, ends excluded. */
typedef struct box {
	int64_t row, row_end, column, column_end;
} box_t;

typedef struct reading {
	const srt_param_t *param;
	int cell;
	int64_t first, end; /* elements of the shard */
	int64_t rows, columns;
	size_t item;
	const srt_safetensors_t *file;
	const srt_safetensors_tensor_t *tensor;
	char *block, *elements;
} reading_t;

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* The run from element `at` of the shard on: `whole` is its first element in the matrix. */
static int64_t get_run(const reading_t *r, int64_t at, int64_t *whole)
{
	return least(srt_cell_run(r->param, r->cell, at, whole), r->end - at);
}

static box_t find_run_box(const reading_t *r, int64_t whole, int64_t n)
{
	const int64_t last = whole + n - 1;
	box_t b = { .row = whole / r->columns, .row_end = last / r->columns + 1 };

	if (b.row_end - b.row == 1) {
		b.column = whole % r->columns;
		b.column_end = last % r->columns + 1;
	} else {
		b.column_end = r->columns;
	}
	return b;
}

/* The box of the runs from `at` on whose rows touch. @return the element after them. */
static int64_t find_box(const reading_t *r, int64_t at, box_t *box)
{
	int64_t whole, n = get_run(r, at, &whole);

	*box = find_run_box(r, whole, n);
	for (at += n; at < r->end; at += n) {
		box_t next;

		n = get_run(r, at, &whole);
		next = find_run_box(r, whole, n);
		if (next.row < box->row || next.row > box->row_end)
			break;
		box->row_end = most(box->row_end, next.row_end);
		box->column = least(box->column, next.column);
		box->column_end = most(box->column_end, next.column_end);
	}
	return at;
}

/* The block has (columns, rows) of b, as the file. */
static srt_status_t read_block(const reading_t *r, const box_t *b)
{
	const int64_t width = b->row_end - b->row;
	const size_t row_nbytes = (size_t)width * r->item;

	if (width == r->rows)
		return srt_safetensors_read(r->file, r->tensor,
					    (size_t)(b->column * r->rows) * r->item,
					    (size_t)(b->column_end - b->column) * row_nbytes,
					    r->block);
	for (int64_t c = b->column; c < b->column_end; c++)
		SRT_TRY(srt_safetensors_read(r->file, r->tensor,
					     (size_t)(c * r->rows + b->row) * r->item, row_nbytes,
					     r->block + (size_t)(c - b->column) * row_nbytes));
	return SRT_OK;
}

/* n elements, `stride` apart in the block. */
static void copy_strided(void *to, const char *from, int64_t n, size_t stride, size_t item)
{
	for (int64_t i = 0; i < n; i++)
		memcpy((char *)to + (size_t)i * item, from + (size_t)i * stride, item);
}

/* The elements of one run that are in the block, to where the run begins. */
static void copy_run(const reading_t *r, const box_t *b, int64_t whole, int64_t n, char *to)
{
	const size_t stride = (size_t)(b->row_end - b->row) * r->item;
	const int64_t end = whole + n;
	const int64_t row_end = least(b->row_end, (end - 1) / r->columns + 1);

	for (int64_t row = most(b->row, whole / r->columns); row < row_end; row++) {
		const int64_t begin = row * r->columns;
		const int64_t c = most(b->column, whole - begin);
		const int64_t c_end = least(b->column_end, end - begin);

		if (c < c_end)
			copy_strided(to + (size_t)(begin + c - whole) * r->item,
				     r->block + (size_t)(c - b->column) * stride +
					     (size_t)(row - b->row) * r->item,
				     c_end - c, stride, r->item);
	}
}

/* The runs of elements first .. end - 1 of the shard, which are in this box. */
static srt_status_t read_box(const reading_t *r, const box_t *box, int64_t first, int64_t end)
{
	const int64_t room = (int64_t)(SRT_TRANSPOSED_NBYTES / r->item);
	box_t b;

	for (b.row = box->row; b.row < box->row_end; b.row = b.row_end) {
		b.row_end = least(box->row_end, b.row + room);
		for (b.column = box->column; b.column < box->column_end; b.column = b.column_end) {
			b.column_end = least(box->column_end,
					     b.column + most(1, room / (b.row_end - b.row)));
			SRT_TRY(read_block(r, &b));
			for (int64_t at = first, n, whole; at < end; at += n) {
				n = get_run(r, at, &whole);
				copy_run(r, &b, whole, n,
					 r->elements + (size_t)(at - r->first) * r->item);
			}
		}
	}
	return SRT_OK;
}

srt_status_t srt_transposed_read(const srt_param_t *p, const srt_safetensors_t *file,
				 const srt_safetensors_tensor_t *tensor, void *block,
				 void *elements)
{
	const srt_engine_t *engine = p->unit->engine;
	const reading_t r = {
		.param = p,
		.cell = srt_cell_index(engine, engine->rank),
		.first = p->shard.first,
		.end = p->shard.first + p->shard.nelem,
		.rows = p->shape[0],
		.columns = p->shape[1],
		.item = srt_dtype_size(tensor->dtype),
		.file = file,
		.tensor = tensor,
		.block = block,
		.elements = elements,
	};
	box_t box;

	for (int64_t at = r.first, next; at < r.end; at = next) {
		next = find_box(&r, at, &box);
		SRT_TRY(read_box(&r, &box, at, next));
	}
	return SRT_OK;
}
