/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values of sharded tensors: constants and random numbers. Each rank fills its own shards. Random
 * numbers are keyed by the element's number in the whole tensor, so a shard is filled in runs of
 * consecutive elements.
 */
#include <math.h>

#include "runtime/ops/ops.h"
#include "runtime/tensors/tensors.h"

/* A distribution, checked. */
typedef struct values {
	enum { CONSTANT, UNIFORM, NORMAL } kind;
	uint64_t seed;
	float a, b; /* value; low, high; mean, std */
} values_t;

/* Elements first .. first + n - 1 of the whole tensor, at y. */
static srt_status_t fill_run(const srt_sharded_tensor_t *t, const values_t *v, srt_view_t y,
			     int64_t first, int64_t n, srt_stream_t *stream)
{
	switch (v->kind) {
	case CONSTANT:
		return srt_op_fill(y, v->a, n, stream);
	case UNIFORM:
		return srt_op_uniform(&(srt_uniform_t){ .size = sizeof(srt_uniform_t),
							.y = y,
							.seed = v->seed,
							.name = t->name,
							.first = first,
							.nelem = n,
							.low = v->a,
							.high = v->b },
				      stream);
	case NORMAL:
		break;
	}
	return srt_op_normal(&(srt_normal_t){ .size = sizeof(srt_normal_t),
					      .y = y,
					      .seed = v->seed,
					      .name = t->name,
					      .first = first,
					      .nelem = n,
					      .mean = v->a,
					      .std = v->b },
			     stream);
}

static srt_status_t fill_shard(const srt_sharded_tensor_t *t, size_t local, const values_t *v,
			       srt_stream_t *stream)
{
	const srt_shard_t *shard = &t->shards[t->local[local]];
	const int64_t nelem = srt_shard_nelem(shard, t->ndim);
	srt_view_t y = t->views[local];
	int nouter = 0;
	const int64_t n = srt_shard_run_length(t, shard, &nouter);

	if (v->kind == CONSTANT)
		return fill_run(t, v, y, 0, nelem, stream);
	for (int64_t at = 0; at < nelem; at += n) {
		SRT_TRY(fill_run(t, v, y, srt_shard_run_first(t, shard, nouter, at / n), n,
				 stream));
		y.offset += (size_t)n * srt_dtype_size(y.dtype);
	}
	return SRT_OK;
}

static srt_status_t fill_tensor(srt_sharded_tensor_t *t, const values_t *v, srt_stream_t *stream)
{
	for (size_t i = 0; i < t->nlocal; i++) {
		srt_stream_t *home;

		if (t->views[i].buffer == NULL)
			continue;
		SRT_TRY(srt_host_side_enter(&t->host, t->views[i].buffer->device, stream, &home));
		SRT_TRY(fill_shard(t, i, v, home));
		SRT_TRY(srt_host_side_leave(&t->host, home, stream));
	}
	return SRT_OK;
}

/* Also on ranks that have no elements. */
static srt_status_t check_dtype(const char *call, const srt_sharded_tensor_t *t)
{
	if (srt_dtype_is_float(t->dtype))
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"%s: sharded tensor '%s' is %s, must be f32, f16 or bf16", call, t->name,
			srt_dtype_name(t->dtype));
}

srt_status_t srt_sharded_tensor_fill(srt_sharded_tensor_t *t, float value, srt_stream_t *stream)
{
	SRT_TRY(srt_check_not_null(t, __func__, "tensor"));
	SRT_NOT_NULL(stream);
	SRT_TRY(check_dtype(__func__, t));
	return fill_tensor(t, &(values_t){ .kind = CONSTANT, .a = value }, stream);
}

srt_status_t srt_sharded_tensor_uniform(srt_sharded_tensor_t *t, uint64_t seed, float low,
					float high, srt_stream_t *stream)
{
	srt_k_uniform_t unused;

	SRT_TRY(srt_check_not_null(t, __func__, "tensor"));
	SRT_NOT_NULL(stream);
	SRT_TRY(check_dtype(__func__, t));
	SRT_TRY(srt_op_uniform_range(__func__, t->dtype, low, high, &unused));
	return fill_tensor(t, &(values_t){ UNIFORM, seed, low, high }, stream);
}

srt_status_t srt_sharded_tensor_normal(srt_sharded_tensor_t *t, uint64_t seed, float mean,
				       float std, srt_stream_t *stream)
{
	SRT_TRY(srt_check_not_null(t, __func__, "tensor"));
	SRT_NOT_NULL(stream);
	SRT_TRY(check_dtype(__func__, t));
	if (!isfinite(mean) || !isfinite(std) || std < 0.0f)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: mean is %g and std is %g; both must be finite, and std not "
				"negative",
				__func__, (double)mean, (double)std);
	return fill_tensor(t, &(values_t){ NORMAL, seed, mean, std }, stream);
}
