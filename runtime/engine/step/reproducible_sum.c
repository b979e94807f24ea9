/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reproducible sums: the bits do not depend on how the terms are spread over ranks. Used for the
 * gradient norm and for losses.
 *
 *     largest |term| of this rank -> largest over ranks -> terms as exact multiples of fixed quanta
 *     (bins) -> bins of all ranks, which add exactly in any order -> the sum, or its root
 *
 * The bins follow Demmel and Nguyen, "Parallel Reproducible Summation" (IEEE Transactions on
 * Computers, 2015), which ReproBLAS implements; docs/numerics.md defines ours. Two all-gathers of a
 * few bytes, in stream order; the host does not wait. Ranks that have all terms (ddp) compute the
 * sum without communication and get the same bits.
 */
#include "collectives/comm.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/step/reproducible_sum.h"
#include "runtime/engine/step/step.h"
#include "runtime/ops/step.h"

srt_status_t srt_reproducible_sum_create(srt_engine_t *engine,
					 const srt_reproducible_sum_layout_t *layout,
					 srt_comm_t *comm, const char *name, bool is_home,
					 srt_reproducible_sum_t *sum)
{
	srt_buffer_t *staging = is_home ? engine->storage.staging : engine->storage.exchange;
	srt_buffer_t *peers = engine->storage.exchange;

	*sum = (srt_reproducible_sum_t){
		.local_max = srt_view(staging, layout->local_max, SRT_F32),
		.local_bins = srt_view(staging, layout->local_bins, SRT_F64),
		.nranks = comm != NULL ? comm->size : 1,
		.engine = engine,
		.is_home = is_home,
	};
	sum->max = sum->all_max = sum->local_max;
	sum->all_bins = sum->local_bins;
	if (comm == NULL)
		return SRT_OK;
	sum->all_max = srt_view(staging, layout->all_max, SRT_F32);
	sum->all_bins = srt_view(staging, layout->all_bins, SRT_F64);
	sum->max = srt_view(staging, layout->max, SRT_F32);
	SRT_TRY(srt_coll_create_gather(comm, srt_view(peers, layout->local_max, SRT_F32),
				       srt_view(peers, layout->all_max, SRT_F32), 1, name,
				       &sum->gather_max));
	return srt_coll_create_gather(comm, srt_view(peers, layout->local_bins, SRT_F64),
				      srt_view(peers, layout->all_bins, SRT_F64), 2, name,
				      &sum->gather_bins);
}

/* Before `stream` writes what peers read of the last sum. */
static srt_status_t wait_readers(const srt_reproducible_sum_t *sum, srt_coll_t *coll,
				 srt_stream_t *stream)
{
	if (coll == NULL)
		return SRT_OK;
	return sum->is_home ? srt_exchange_wait_readers(sum->engine, coll, stream) :
			      srt_coll_wait_readers(coll, stream);
}

/* Gathers `mine` of every rank in `all`. */
static srt_status_t start_gather(const srt_reproducible_sum_t *sum, srt_coll_t *coll,
				 srt_view_t mine, srt_view_t all, size_t nbytes,
				 srt_stream_t *stream)
{
	const srt_table_range_t from = { mine.offset, nbytes };
	const srt_table_range_t to = { all.offset, nbytes * (size_t)sum->nranks };

	if (coll == NULL)
		return SRT_OK;
	return sum->is_home ? srt_exchange_start(sum->engine, coll, from, to, stream) :
			      srt_coll_start(coll, NULL, stream);
}

srt_status_t srt_reproducible_sum_local(const srt_reproducible_sum_t *sum, srt_stream_t *stream,
					srt_reproducible_sum_t *local)
{
	*local = (srt_reproducible_sum_t){
		.local_max = sum->local_max,
		.local_bins = sum->local_bins,
		.all_max = sum->local_max,
		.all_bins = sum->local_bins,
		.max = sum->local_max,
		.nranks = 1,
	};
	/* Edge: peers' reading of the last sum -> the local one. */
	SRT_TRY(wait_readers(sum, sum->gather_max, stream));
	return wait_readers(sum, sum->gather_bins, stream);
}

void srt_reproducible_sum_close(const srt_reproducible_sum_t *sum, const char *what)
{
	srt_coll_close(sum->gather_max, what);
	srt_coll_close(sum->gather_bins, what);
}

void srt_reproducible_sum_destroy(srt_reproducible_sum_t *sum)
{
	srt_coll_destroy(sum->gather_max);
	srt_coll_destroy(sum->gather_bins);
	*sum = (srt_reproducible_sum_t){ 0 };
}

srt_status_t srt_reproducible_sum_max(const srt_reproducible_sum_t *sum, const srt_terms_t *terms,
				      int nterms, srt_stream_t *stream)
{
	/* Edge: peers' reading of the last maximum -> the new one. */
	SRT_TRY(wait_readers(sum, sum->gather_max, stream));
	SRT_TRY(srt_buffer_zero(sum->local_max.buffer, sum->local_max.offset, sizeof(float),
				stream));
	for (int i = 0; i < nterms; i++)
		SRT_TRY(srt_op_absmax(sum->local_max, terms[i].x, terms[i].nelem, 1, stream));
	if (sum->gather_max == NULL)
		return SRT_OK;
	SRT_TRY(start_gather(sum, sum->gather_max, sum->local_max, sum->all_max, sizeof(float),
			     stream));
	return srt_op_absmax(sum->max, sum->all_max, sum->nranks, 0, stream);
}

srt_status_t srt_reproducible_sum_total(const srt_reproducible_sum_t *sum, const srt_terms_t *terms,
					int nterms, int64_t total_nelem, int power, int is_signed,
					srt_view_t out, srt_stream_t *stream)
{
	/* Edge: peers' reading of the last bins -> the new ones. */
	SRT_TRY(wait_readers(sum, sum->gather_bins, stream));
	SRT_TRY(srt_buffer_zero(sum->local_bins.buffer, sum->local_bins.offset, 2 * sizeof(double),
				stream));
	for (int i = 0; i < nterms; i++)
		SRT_TRY(srt_op_bin_sum(&(srt_bin_sum_t){ .bins = sum->local_bins,
							 .max = sum->max,
							 .x = terms[i].x,
							 .nelem = terms[i].nelem,
							 .total_nelem = total_nelem,
							 .power = power,
							 .is_signed = is_signed,
							 .accumulate = 1 },
				       stream));
	SRT_TRY(start_gather(sum, sum->gather_bins, sum->local_bins, sum->all_bins,
			     2 * sizeof(double), stream));
	return srt_op_bin_total(&(srt_bin_total_t){ .out = out,
						    .bins = sum->all_bins,
						    .max = sum->max,
						    .nbins = sum->nranks,
						    .power = power,
						    .root = !is_signed },
				stream);
}

srt_status_t srt_engine_sum(srt_engine_t *engine, srt_view_t values, int64_t nelem,
			    int64_t total_nelem, srt_view_t total, srt_stream_t *stream)
{
	const srt_terms_t terms = { values, nelem };

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_sum"));
	if (nelem < 0 || total_nelem < nelem || total_nelem < 1)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_sum: nelem is %lld and total_nelem %lld, must be at "
				"least 0 and at least max(1, nelem)",
				(long long)nelem, (long long)total_nelem);
	SRT_TRY(srt_verify_sum(engine, nelem, total_nelem));
	/* Edge: the last sum, perhaps on another stream -> this one, in the same memory. */
	SRT_TRY(srt_stream_wait_event(stream, engine->order.summed));
	SRT_TRY(srt_reproducible_sum_max(&engine->scalars.user_sum, &terms, 1, stream));
	SRT_TRY(srt_reproducible_sum_total(&engine->scalars.user_sum, &terms, 1, total_nelem, 1, 1,
					   total, stream));
	return srt_event_record(engine->order.summed, stream);
}
