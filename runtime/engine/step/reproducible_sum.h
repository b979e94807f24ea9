/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums and maxima over ranks that do not depend on the sharding (reproducible_sum.c). */
#ifndef SRT_RUNTIME_ENGINE_STEP_REPRODUCIBLE_SUM_H
#define SRT_RUNTIME_ENGINE_STEP_REPRODUCIBLE_SUM_H

#include <stdbool.h>

#include <shardrt/engine.h>

#include "runtime/engine/layout/memory.h"

/* The buffers and collectives of a reproducible sum over ranks. */
typedef struct srt_reproducible_sum {
	srt_view_t local_max, local_bins, all_max, all_bins, max;
	srt_coll_t *gather_max, *gather_bins; /* NULL: this rank has all the values */
	int nranks;                           /* that have a part of them */
	srt_engine_t *engine;
	bool is_home; /* the terms and all but what is gathered are where the owned values are */
} srt_reproducible_sum_t;

/* Terms that this rank has. */
typedef struct srt_terms {
	srt_view_t x;
	int64_t nelem;
} srt_terms_t;
/* comm: each of its ranks has a part of the terms; NULL: every rank has all of them. */
srt_status_t srt_reproducible_sum_create(srt_engine_t *engine,
					 const srt_reproducible_sum_layout_t *layout,
					 srt_comm_t *comm, const char *name, bool is_home,
					 srt_reproducible_sum_t *sum);
/* The sum of this rank's terms alone, in the same memory; used on `stream` only. */
srt_status_t srt_reproducible_sum_local(const srt_reproducible_sum_t *sum, srt_stream_t *stream,
					srt_reproducible_sum_t *local);
/* srt_coll_close() of its collectives. */
void srt_reproducible_sum_close(const srt_reproducible_sum_t *sum, const char *what);
void srt_reproducible_sum_destroy(srt_reproducible_sum_t *sum);
/* sum->max = largest |x| over all ranks. */
srt_status_t srt_reproducible_sum_max(const srt_reproducible_sum_t *sum, const srt_terms_t *terms,
				      int nterms, srt_stream_t *stream);
/* After srt_reproducible_sum_max(): out = the power-th root of the sum of |x|^power over all ranks;
 * is_signed: the sum of x. */
srt_status_t srt_reproducible_sum_total(const srt_reproducible_sum_t *sum, const srt_terms_t *terms,
					int nterms, int64_t total_nelem, int power, int is_signed,
					srt_view_t out, srt_stream_t *stream);

#endif
