/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies and fills. Host memory that is not pinned is read at the call, as the driver's staging
 * does to the caller's eye, and written while the call waits: the driver takes such copies without
 * a word, and they are slow. They are counted, or refused (FAKE_CUDA_PAGEABLE).
 */
#include <string.h>

#include "tests/fakes/fake_cuda/fake.h"

static uintptr_t extent(size_t width, size_t rows, size_t pitch)
{
	return (rows - 1) * pitch + width;
}

/* Adds the rows' bytes, joined where they meet; the rows of the other side lie between them only if
 * both are one allocation, and then the list is not sorted: the callers sort. */
static size_t add_rows(fake_access_t *list, size_t n, uintptr_t at, size_t width, size_t rows,
		       size_t pitch, bool write)
{
	for (size_t i = 0; i < rows; i++, at += pitch) {
		if (n && list[n - 1].end == at && list[n - 1].write == write)
			list[n - 1].end = at + width;
		else
			list[n++] = (fake_access_t){ at, at + width, write };
	}
	return n;
}

static void sort(fake_access_t *list, size_t n)
{
	for (size_t i = 1; i < n; i++)
		for (size_t k = i; k && list[k].begin < list[k - 1].begin; k--) {
			fake_access_t t = list[k];

			list[k] = list[k - 1];
			list[k - 1] = t;
		}
}

#define ROWS_AT_A_TIME 64

static void note(fake_lane_t *lane, const fake_op_t *op)
{
	fake_access_t list[2 * ROWS_AT_A_TIME];
	size_t rows = op->u.copy.rows, n = 0;

	fake_lock();
	if (op->kind == FAKE_SET) {
		n = add_rows(list, 0, op->u.set.dst, op->u.set.nbytes, 1, 0, true);
		fake_race_note(lane, op->name, list, n);
		fake_unlock();
		return;
	}
	for (size_t i = 0; i < rows; i += ROWS_AT_A_TIME) {
		size_t some = rows - i < ROWS_AT_A_TIME ? rows - i : ROWS_AT_A_TIME;

		n = add_rows(list, 0, op->u.copy.dst + i * op->u.copy.dst_pitch, op->u.copy.width,
			     some, op->u.copy.dst_pitch, true);
		if (!op->u.copy.carried)
			n = add_rows(list, n, op->u.copy.src + i * op->u.copy.src_pitch,
				     op->u.copy.width, some, op->u.copy.src_pitch, false);
		sort(list, n);
		for (size_t k = 1; k < n; k++)
			if (list[k].begin < list[k - 1].end)
				fake_complain("%s: the copy's two sides, or its rows, overlap",
					      op->name);
		fake_race_note(lane, op->name, list, n);
	}
	fake_unlock();
}

/* Both sides again: an allocation may have been freed since. */
static bool still_there(CUcontext ctx, const fake_op_t *op)
{
	bool ok;

	fake_lock();
	if (op->kind == FAKE_SET)
		ok = fake_check_range(op->name, ctx, op->u.set.dst, op->u.set.nbytes, false);
	else
		ok = fake_check_range(op->name, ctx, op->u.copy.dst,
				      extent(op->u.copy.width, op->u.copy.rows,
					     op->u.copy.dst_pitch),
				      true) &&
		     (op->u.copy.carried ||
		      fake_check_range(op->name, ctx, op->u.copy.src,
				       extent(op->u.copy.width, op->u.copy.rows,
					      op->u.copy.src_pitch),
				       true));
	fake_unlock();
	return ok;
}

void fake_run_copy(CUcontext ctx, fake_lane_t *lane, const fake_op_t *op)
{
	const unsigned char *src =
		op->u.copy.carried ? op->bytes : (const unsigned char *)op->u.copy.src;

	if (!still_there(ctx, op))
		return;
	note(lane, op);
	if (op->kind == FAKE_SET) {
		memset((void *)op->u.set.dst, op->u.set.value, op->u.set.nbytes);
		return;
	}
	for (size_t i = 0; i < op->u.copy.rows; i++) {
		unsigned char *dst = (unsigned char *)op->u.copy.dst + i * op->u.copy.dst_pitch;

		memcpy(dst, src + i * op->u.copy.src_pitch, op->u.copy.width);
	}
}

/* ---- the driver's functions ---------------------------------------------------------------- */
typedef struct side {
	uintptr_t address;
	size_t pitch;
	bool may_be_host; /* by the function's name */
} side_t;

static CUresult check_side(const fake_entry_t *call, const side_t *side, size_t width, size_t rows,
			   bool *pageable)
{
	if (!fake_check_range(call->name, fake_current(), side->address,
			      extent(width, rows, side->pitch), side->may_be_host))
		return CUDA_ERROR_INVALID_VALUE;
	*pageable = fake_alloc_of(side->address) == NULL;
	return CUDA_SUCCESS;
}

/* Rows from src to dst. */
static CUresult put_copy(fake_entry_t *call, side_t dst, side_t src, size_t width, size_t rows)
{
	CUresult status = fake_enter(call, FAKE_CURRENT | FAKE_CAN_FAIL);
	bool from_pageable = false, to_pageable = false;
	fake_op_t *op;

	if (status != CUDA_SUCCESS || !width || !rows)
		return fake_leave(call, status);
	status = check_side(call, &dst, width, rows, &to_pageable);
	if (status == CUDA_SUCCESS)
		status = check_side(call, &src, width, rows, &from_pageable);
	if (status == CUDA_SUCCESS && (from_pageable || to_pageable)) {
		fake.pageable++;
		if (fake.refuse_pageable)
			fake_complain("%s: %zu bytes of host memory that is not pinned", call->name,
				      width * rows);
	}
	if (status != CUDA_SUCCESS)
		return fake_leave(call, status);
	op = fake_op_new(FAKE_COPY, call->name, from_pageable ? width * rows : 0);
	op->u.copy.dst = dst.address;
	op->u.copy.src = src.address;
	op->u.copy.width = width;
	op->u.copy.rows = rows;
	op->u.copy.dst_pitch = dst.pitch;
	op->u.copy.src_pitch = src.pitch;
	if (from_pageable) {
		for (size_t i = 0; i < rows; i++)
			memcpy(op->bytes + i * width,
			       (const unsigned char *)src.address + i * src.pitch, width);
		op->u.copy.carried = true;
		op->u.copy.src_pitch = width;
	}
	fake_put(call->stream, op);
	if (to_pageable) {
		fake_wait_stream(call->stream);
		status = fake_current()->sticky;
	}
	return fake_leave(call, status);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t nbytes, CUstream stream)
{
	fake_entry_t call = { .name = "cuMemcpyAsync", .has_stream = true, .stream = stream };

	return put_copy(&call, (side_t){ dst, nbytes, true }, (side_t){ src, nbytes, true }, nbytes,
			1);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t nbytes, CUstream stream)
{
	fake_entry_t call = { .name = "cuMemcpyHtoDAsync", .has_stream = true, .stream = stream };

	return put_copy(&call, (side_t){ dst, nbytes, false },
			(side_t){ (uintptr_t)src, nbytes, true }, nbytes, 1);
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t nbytes, CUstream stream)
{
	fake_entry_t call = { .name = "cuMemcpyDtoHAsync", .has_stream = true, .stream = stream };

	return put_copy(&call, (side_t){ (uintptr_t)dst, nbytes, true },
			(side_t){ src, nbytes, false }, nbytes, 1);
}

/* An address by the type that the description gives it. */
static side_t side_of(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y,
		      size_t pitch)
{
	side_t side = { .pitch = pitch, .may_be_host = type != CU_MEMORYTYPE_DEVICE };

	side.address = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : (uintptr_t)device;
	side.address += y * pitch + x;
	return side;
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *c, CUstream stream)
{
	fake_entry_t call = { .name = "cuMemcpy2DAsync", .has_stream = true, .stream = stream };
	side_t dst = side_of(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY,
			     c->dstPitch);
	side_t src = side_of(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY,
			     c->srcPitch);

	if (c->dstMemoryType == CU_MEMORYTYPE_ARRAY || c->srcMemoryType == CU_MEMORYTYPE_ARRAY ||
	    (c->Height > 1 && (dst.pitch < c->WidthInBytes || src.pitch < c->WidthInBytes))) {
		fake_enter(&call, FAKE_NOTHING);
		return fake_leave(&call, CUDA_ERROR_INVALID_VALUE);
	}
	return put_copy(&call, dst, src, c->WidthInBytes, c->Height);
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t nbytes, CUstream stream)
{
	fake_entry_t call = { .name = "cuMemsetD8Async", .has_stream = true, .stream = stream };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_op_t *op;

	if (status != CUDA_SUCCESS || !nbytes)
		return fake_leave(&call, status);
	if (!fake_check_range(call.name, fake_current(), dst, nbytes, false))
		return fake_leave(&call, CUDA_ERROR_INVALID_VALUE);
	op = fake_op_new(FAKE_SET, call.name, 0);
	op->u.set.dst = dst;
	op->u.set.nbytes = nbytes;
	op->u.set.value = value;
	fake_put(stream, op);
	return fake_leave(&call, CUDA_SUCCESS);
}
