/* SPDX-License-Identifier: BSD-3-Clause */
/* shardrt-ckpt diff: tensors of one name in two files, by dtype, shape and bits; see ckpt.h. */
#include "tools/ckpt/ckpt.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common.h"

static double read_f16(uint16_t bits)
{
	const double sign = bits & 0x8000 ? -1.0 : 1.0;
	const int exponent = bits >> 10 & 31, fraction = bits & 1023;

	if (exponent == 31)
		return fraction ? (double)NAN : sign * (double)INFINITY;
	return exponent == 0 ? sign * ldexp(fraction, -24) :
			       sign * ldexp(1024 + fraction, exponent - 25);
}

/* An element as a number. */
static double read_element(srt_dtype_t dtype, const void *p)
{
	uint16_t half;
	uint32_t wide;
	float f32;
	double f64;
	int32_t i32;
	int64_t i64;

	switch (dtype) {
	case SRT_F32:
		memcpy(&f32, p, sizeof(f32));
		return (double)f32;
	case SRT_F16:
		memcpy(&half, p, sizeof(half));
		return read_f16(half);
	case SRT_BF16:
		memcpy(&half, p, sizeof(half));
		wide = (uint32_t)half << 16;
		memcpy(&f32, &wide, sizeof(f32));
		return (double)f32;
	case SRT_F64:
		memcpy(&f64, p, sizeof(f64));
		return f64;
	case SRT_I32:
		memcpy(&i32, p, sizeof(i32));
		return i32;
	case SRT_I64:
		memcpy(&i64, p, sizeof(i64));
		return (double)i64;
	case SRT_U8:
		return *(const unsigned char *)p;
	default: /* only its bits are compared */
		return 0.0;
	}
}

/* The elements whose bits differ, and their largest difference. */
typedef struct difference {
	size_t nelem;
	double most;
	int has_nan; /* of exactly one of two elements, or a difference of infinities */
} difference_t;

static void compare_piece(const srt_file_tensor_t *t, const char *a, const char *b, size_t nbytes,
			  difference_t *d)
{
	/* of elements that share bytes, the bytes are compared */
	const size_t item = t->nbytes < t->nelem ? 1 : t->nbytes / t->nelem;

	if (memcmp(a, b, nbytes) == 0)
		return;
	for (size_t at = 0; at < nbytes; at += item) {
		double by;

		if (memcmp(a + at, b + at, item) == 0)
			continue;
		d->nelem++;
		by = fabs(read_element(t->dtype, a + at) - read_element(t->dtype, b + at));
		d->has_nan |= isnan(by) != 0;
		d->most = by > d->most ? by : d->most;
	}
}

/* @param piece two of CKPT_PIECE_NBYTES. @return 0, CKPT_DIFFERS or CKPT_TROUBLE. */
static int compare_values(srt_file_t *const file[2], const srt_file_tensor_t *t, char *piece)
{
	difference_t d = { 0 };

	for (size_t at = 0, n; at < t->nbytes; at += n) {
		n = t->nbytes - at < CKPT_PIECE_NBYTES ? t->nbytes - at : CKPT_PIECE_NBYTES;
		for (int i = 0; i < 2; i++)
			if (srt_file_read(file[i], t->name, at, n,
					  piece + (size_t)i * CKPT_PIECE_NBYTES) != SRT_OK)
				return ckpt_fail();
		compare_piece(t, piece, piece + CKPT_PIECE_NBYTES, n, &d);
	}
	if (d.nelem == 0)
		return 0;
	if (t->nbytes < t->nelem)
		printf("%s: %zu of %zu bytes differ", ckpt_name(t->name).text, d.nelem, t->nbytes);
	else
		printf("%s: %zu of %zu elements differ", ckpt_name(t->name).text, d.nelem,
		       t->nelem);
	if (t->dtype != SRT_DTYPE_NONE)
		printf(", by %.9g at most%s", d.most, d.has_nan ? ", some are NaN" : "");
	putchar('\n');
	return CKPT_DIFFERS;
}

static void format_shape(const srt_file_tensor_t *t, char *text, size_t ntext)
{
	size_t n = (size_t)snprintf(text, ntext, "%s [", t->dtype_name);

	for (int i = 0; i < t->ndim; i++)
		n += (size_t)snprintf(text + n, ntext - n, "%s%" PRId64, i ? "," : "", t->shape[i]);
	snprintf(text + n, ntext - n, "]");
}

static int compare_tensors(const ckpt_request_t *r, srt_file_t *const file[2],
			   const srt_file_tensor_t t[2], char *piece)
{
	char shape[2][192];

	if (strcmp(t[0].dtype_name, t[1].dtype_name) == 0 && t[0].ndim == t[1].ndim &&
	    memcmp(t[0].shape, t[1].shape, (size_t)t[0].ndim * sizeof(t[0].shape[0])) == 0)
		return compare_values(file, &t[0], piece);
	for (int i = 0; i < 2; i++)
		format_shape(&t[i], shape[i], sizeof(shape[i]));
	printf("%s: %s in %s, %s in %s\n", ckpt_name(t[0].name).text, shape[0], r->path[0],
	       shape[1], r->path[1]);
	return CKPT_DIFFERS;
}

/* Both files list their tensors in the order of names. */
static int compare_files(const ckpt_request_t *r, srt_file_t *const file[2], char *piece)
{
	size_t at[2] = { 0, 0 }, ndiffer = 0, n = 0;

	for (;; n++) {
		srt_file_tensor_t t[2] = { SRT_FILE_TENSOR_INIT, SRT_FILE_TENSOR_INIT };
		int has[2], order, code = CKPT_DIFFERS;

		for (int i = 0; i < 2; i++)
			has[i] = srt_file_at(file[i], at[i], &t[i]) == SRT_OK;
		if (!has[0] && !has[1])
			break;
		order = has[0] && has[1] ? strcmp(t[0].name, t[1].name) : has[1] - has[0];
		if (order == 0)
			code = compare_tensors(r, file, t, piece);
		else
			printf("%s: only in %s\n", ckpt_name(t[order > 0].name).text,
			       r->path[order > 0]);
		if (code == CKPT_TROUBLE)
			return code;
		ndiffer += code == CKPT_DIFFERS;
		at[0] += order <= 0;
		at[1] += order >= 0;
	}
	if (ndiffer > 0)
		printf("%zu of %zu tensors differ\n", ndiffer, n);
	return ndiffer > 0 ? CKPT_DIFFERS : 0;
}

int ckpt_diff(const ckpt_request_t *r)
{
	srt_file_t *file[2] = { NULL, NULL };
	char *piece = malloc(2 * CKPT_PIECE_NBYTES);
	int code = CKPT_TROUBLE;

	if (piece == NULL)
		tool_error("no memory to compare files");
	else if (ckpt_open(r->path[0], r->all, &file[0]) == 0 &&
		 ckpt_open(r->path[1], r->all, &file[1]) == 0)
		code = compare_files(r, file, piece);
	srt_file_close(file[0]);
	srt_file_close(file[1]);
	free(piece);
	return code;
}
