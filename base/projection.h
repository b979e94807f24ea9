/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random projections of tensors, computed on the host: with them a sum over ranks is compared with
 * its parts, without the parts themselves. All functions are pure.
 *
 * A tensor is cut into blocks. The projection of a block is the sum of weight * element; a weight
 * has a random sign and a random magnitude in [1, 2). So a wrong element changes the projection by
 * at least its error, and two wrong ones (two elements that are exchanged) do not cancel.
 */
#ifndef SRT_BASE_PROJECTION_H
#define SRT_BASE_PROJECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shardrt/dtype.h>

#define SRT_PROJECTION_BLOCK ((int64_t)256)

/* Projections of the finite elements of a block. Exchanged as plain bytes. */
typedef struct srt_projection {
	double sum;       /* of weight * element */
	double norm;      /* Euclidean; of a sum of projections: at least that of the sum of the
			   * elements' magnitudes */
	double max;       /* the same for the largest magnitude */
	double nonfinite; /* how many elements of one part are infinite or NaN, at least */
} srt_projection_t;

/* What rounding may change on the way from the parts to the result. */
typedef struct srt_rounding {
	double relative; /* of the sum of the magnitudes of an element's parts */
	double absolute; /* of an element: where results are subnormal */
	double largest;  /* magnitude that no overflow makes infinite */
} srt_rounding_t;

/* An error that rounding does not explain. */
typedef enum srt_projection_fault {
	SRT_PROJECTION_OK,
	SRT_PROJECTION_WRONG,    /* another sum */
	SRT_PROJECTION_LOST,     /* an infinity or NaN of a part is not in the result */
	SRT_PROJECTION_INFINITE, /* the result has one, and the parts do not explain it */
} srt_projection_fault_t;

/* x (nelem) = elements of dtype, each NaN as 7fc00000. */
void srt_projection_widen(float *x, const void *elements, srt_dtype_t dtype, int64_t nelem);
/* Weights differ between steps and parameters. */
uint64_t srt_projection_key(uint64_t step, uint64_t param);
/* Adds the projection of x (nelem, at most a block), whose first element is number `first` of the
 * parameter. */
void srt_projection_add_block(srt_projection_t *p, uint64_t key, int64_t first, const float *x,
			      int64_t nelem);
/* p becomes the projection of the sum of the elements of both. */
void srt_projection_add(srt_projection_t *p, const srt_projection_t *q);

/* No rounding but those of the projections, which are in double. */
srt_rounding_t srt_rounding_none(void);
/* Then each element is rounded n times to the dtype; `nparts` of its parts are. */
void srt_rounding_add(srt_rounding_t *rounding, srt_dtype_t dtype, int n, int nparts);

/* Compares the projection of a result of nelem elements with that of its parts, which are divided
 * by the divisors, and of the value `old` that they are added to. *error and *bound are set for
 * SRT_PROJECTION_WRONG: the difference, and what rounding explains at most. */
srt_projection_fault_t srt_projection_compare(const srt_projection_t *result,
					      const srt_projection_t *parts,
					      const srt_projection_t *old, const float divisors[2],
					      const srt_rounding_t *rounding, int64_t nelem,
					      double *error, double *bound);

#endif
