/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums of 16-bit elements over ranks against their definition, by docs/numerics.md: in float, in
 * the tree's order, rounded once, or not at all where the shard is SRT_F32. Run by
 * test_collectives.sh.
 */
#include <stdbool.h>

#include "tests/harness/half.h"
#include "tests/harness/job.h"

#define GUARD -12345.0f

/* Both signs, several exponents, all bits used: another order of adding gives other bits. */
static float value(int rank, size_t i)
{
	uint64_t z = job_noise((uint64_t)rank, i);
	float m = (1.0f + (float)(z >> 40) * 0x1p-24f) * 2000.0f;

	m = ldexpf(m, (int)(z % 7) - 3);
	return (z >> 39) & 1 ? -m : m;
}

/* The sum of parts in 16 bits by its definition: [parts / pre, rounded,] the tree in float. */
static float half_sum(srt_dtype_t dtype, int size, size_t i, float predivisor)
{
	float part[64];
	int n = size;

	for (int r = 0; r < size; r++) {
		part[r] = half_round(dtype, value(r, i));
		part[r] = half_round(dtype, part[r] / predivisor);
	}
	for (; n > 1; n = (n + 1) / 2)
		for (int k = 0; k < (n + 1) / 2; k++)
			part[k] = 2 * k + 1 < n ? part[2 * k] + part[2 * k + 1] : part[2 * k];
	return part[0];
}

/* Rounded, / post, rounded. */
static float half_average(srt_dtype_t dtype, int size, size_t i, const srt_coll_epilogue_t *e)
{
	return half_round(dtype,
			  half_round(dtype, half_sum(dtype, size, i, e->predivisor)) / e->divisor);
}

static void test_half(job_t *job, srt_dtype_t dtype, srt_coll_kind_t kind, size_t nelem)
{
	srt_coll_owner_t owners[64];
	srt_coll_segment_t segments[64];
	const size_t all = nelem * (size_t)job->size;
	srt_coll_epilogue_t e = SRT_COLL_EPILOGUE_INIT;
	srt_buffer_t *full, *shard;
	uint16_t *host = calloc(all + 1, sizeof(*host));
	bool to_shard = kind == SRT_COLL_REDUCE_SCATTER;
	srt_coll_t *coll = NULL;

	CHECK_OR_DIE(host != NULL);
	for (int r = 0; r < job->size; r++) {
		segments[r] = (srt_coll_segment_t){ nelem * (size_t)r, 0, nelem };
		owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
	}
	CHECK_OK_OR_DIE(srt_buffer_create(job->device, srt_comm_mem_kind(job->world), all * 2,
					  "full", &full));
	CHECK_OK_OR_DIE(srt_buffer_create(job->device, srt_comm_mem_kind(job->world), nelem * 2,
					  "shard", &shard));
	const srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				       .kind = kind,
				       .name = "16 bits",
				       .dtype = dtype,
				       .full = srt_view(full, 0, dtype),
				       .shard = srt_view(shard, 0, dtype),
				       .owners = owners };
	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	CHECK_OK(srt_coll_divide_factors(dtype, job->size, 0, &e.predivisor, &e.divisor));
	for (size_t i = 0; i < all; i++)
		half_put(dtype, host, i, value(job->rank, i));
	test_put(job->stream, full, 0, host, all * 2);
	CHECK_OK(srt_coll_start(coll, &e, job->stream));
	test_get(job->stream, host, to_shard ? shard : full, 0, to_shard ? nelem * 2 : all * 2);
	for (size_t i = 0; i < (to_shard ? nelem : all); i++) {
		size_t at = to_shard ? i + nelem * (size_t)job->rank : i;
		uint16_t want = half_bits(dtype, half_average(dtype, job->size, at, &e));

		if (host[i] != want) {
			CHECK_MSG(0, "%s on %d ranks: [%zu] is %04x, expected %04x",
				  srt_dtype_name(dtype), job->size, at, host[i], want);
			break;
		}
	}
	CHECK_OK(srt_coll_wait_readers(coll, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(coll);
	srt_buffer_destroy(full);
	srt_buffer_destroy(shard);
	free(host);
}

/* A reduce-scatter of 16 bits into floats, in segments that leave gaps: the sum is not rounded. */
static void test_unrounded(job_t *job, srt_dtype_t dtype, size_t nelem)
{
	const size_t gap = 3, stride = nelem + gap, all = 2 * stride * (size_t)job->size;
	srt_coll_epilogue_t cases[] = { SRT_COLL_EPILOGUE_INIT, SRT_COLL_EPILOGUE_INIT };
	srt_coll_epilogue_t refused[] = { SRT_COLL_EPILOGUE_INIT, SRT_COLL_EPILOGUE_INIT };
	srt_coll_segment_t segments[64][2];
	srt_coll_owner_t owners[64];
	float *got, *host = calloc(all, sizeof(*host));
	uint16_t *half = (uint16_t *)host;
	srt_buffer_t *full, *shard = job_buffer(job, 2 * stride, "shard", &got);
	srt_coll_t *coll = NULL;
	srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				 .kind = SRT_COLL_REDUCE_SCATTER,
				 .name = "not rounded",
				 .dtype = dtype,
				 .shard = srt_view(shard, 0, SRT_F32),
				 .owners = owners };

	cases[1].predivisor = 4;
	refused[0].divisor = 2;
	refused[1].accumulate = 1;
	CHECK_OR_DIE(host != NULL);
	CHECK_OK_OR_DIE(srt_buffer_create(job->device, srt_comm_mem_kind(job->world), all * 2,
					  "full", &full));
	for (int r = 0; r < job->size; r++) {
		for (size_t k = 0; k < 2; k++)
			segments[r][k] =
				(srt_coll_segment_t){ (k * (size_t)job->size + (size_t)r) * stride,
						      k * stride, nelem };
		owners[r] = (srt_coll_owner_t){ segments[r], 2 };
	}
	desc.full = srt_view(full, 0, dtype);
	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	for (size_t c = 0; c < SRT_ARRAY_LEN(cases); c++) {
		for (size_t i = 0; i < all; i++)
			half_put(dtype, half, i, value(job->rank, i));
		for (size_t i = 0; i < 2 * stride; i++)
			got[i] = GUARD;
		CHECK_OK(srt_coll_wait_readers(coll, job->stream));
		test_put(job->stream, full, 0, half, all * 2);
		job_put(job, shard, got);
		CHECK_OK(srt_coll_start(coll, &cases[c], job->stream));
		job_get(job, got, shard);
		for (size_t i = 0; i < 2 * stride; i++) {
			size_t at = segments[job->rank][i / stride].full_offset + i % stride;
			float want = i % stride < nelem ?
					     half_sum(dtype, job->size, at, cases[c].predivisor) :
					     GUARD;

			if (memcmp(&got[i], &want, sizeof(want)) != 0) {
				CHECK_MSG(0, "%s on %d ranks: [%zu] is %.9g, expected %.9g",
					  srt_dtype_name(dtype), job->size, at, (double)got[i],
					  (double)want);
				break;
			}
		}
	}
	cases[0].divisor = 0;
	CHECK_STATUS(srt_coll_start(coll, &cases[0], job->stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("of \"not rounded\": a divisor is 0");
	for (size_t c = 0; c < SRT_ARRAY_LEN(refused); c++) {
		CHECK_STATUS(srt_coll_start(coll, &refused[c], job->stream),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("of \"not rounded\" keeps its sum in f32: it cannot divide it or");
	}
	CHECK_OK(srt_coll_wait_readers(coll, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(coll);
	coll = NULL;
	/* A shard of fp32: of a reduce-scatter only, and of floats only. */
	desc.kind = SRT_COLL_ALL_GATHER;
	CHECK_STATUS(srt_coll_create(job->world, &desc, &coll), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is f32, the collective ");
	srt_buffer_destroy(full);
	job_drop(shard, got);
	free(host);
}

int main(void)
{
	job_t job;

	job_open(&job);
	test_half(&job, SRT_F16, SRT_COLL_REDUCE_SCATTER, 777);
	test_half(&job, SRT_BF16, SRT_COLL_REDUCE_SCATTER, 33000);
	test_half(&job, SRT_F16, SRT_COLL_ALL_REDUCE, 131);
	test_unrounded(&job, SRT_F16, 777);
	test_unrounded(&job, SRT_BF16, 20000);
	job_close(&job);
	return check_done();
}
