/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The launcher of tuned attention (attention_vector.cl), for devices of CPU type: one work-item a
 * compute unit, each with its own piece of the stream's scratch; they share the heads. That of
 * GPUs is in tiled.c.
 */
#include "backends/opencl/tuned.h"
#include "base/base.h"

#define QUERIES 96                        /* of a block of the backward pass: attention_vector.cl */
#define SCRATCH_FLOATS ((int64_t)1 << 26) /* of all work-items, unless one needs more: 256 MiB */

static int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}

/* The scratch of one work-item. */
static srt_ocl_attention_t make_args(const srt_ocl_tuning_t *tuning, const srt_attention_t *shape,
				     bool backward)
{
	const int64_t keys = shape->keys, hd = shape->head_dim, nr = 2 * tuning->width;
	const int64_t across = round_up(hd * round_up(keys, nr), 16);
	const int64_t down = round_up(keys * round_up(hd, nr), 16);
	const int64_t down_queries = round_up(shape->queries * round_up(hd, nr), 16);
	/* Scores of 12 rows are written wherever rows begin. */
	const int64_t rows = backward ? QUERIES + 12 : 12;
	srt_ocl_attention_t args = {
		.shape = srt_kernel_attention_args(shape),
		/* Whole runs of 64 lanes, and 16 more against rows in one cache set. */
		.lds = round_up(keys, SRT_K_LANES) + 16,
	};

	if (backward) {
		args.vt = across;
		args.k = args.vt + across;
		args.q = args.k + down;
		args.dout = args.q + down_queries;
		args.p = args.dout + down_queries;
		args.ds = args.p + rows * args.lds;
		args.total = args.ds + rows * args.lds;
	} else {
		args.v = across;
		args.p = args.v + down;
		args.total = args.p + rows * args.lds;
	}
	return args;
}

/* The work-items that share the heads. */
static int64_t nitems_of(const srt_ocl_tuning_t *tuning, const srt_attention_t *shape,
			 int64_t floats)
{
	int64_t units = shape->batch * shape->heads;

	if (units > tuning->units)
		units = tuning->units;
	if (units > SCRATCH_FLOATS / floats)
		units = SCRATCH_FLOATS / floats;
	return units < 1 ? 1 : units;
}

size_t srt_ocl_attention_memory(void *dev, const srt_attention_t *shape, srt_dtype_t dtype,
				int backward, int masked, int exact)
{
	const srt_ocl_device_t *device = dev;
	const srt_ocl_tuning_t *tuning = &device->tuning;
	srt_ocl_attention_t args;

	(void)masked;
	(void)exact;
	if (tuning->form == SRT_OCL_TILED)
		return srt_gpu_can_attention(shape) ?
			       srt_gpu_attention_memory(shape, dtype, backward, false) :
			       0;
	if (tuning->form != SRT_OCL_VECTOR || dtype != SRT_F32)
		return 0;
	args = make_args(tuning, shape, backward);
	return (size_t)(nitems_of(tuning, shape, args.total) * args.total) * sizeof(float);
}

/* order: which of the operation's places the kernel has, before the scratch. */
static srt_status_t run(srt_ocl_stream_t *stream, const srt_ocl_op_t *op, const int *order,
			int nplaces, bool backward)
{
	const srt_attention_t *shape = &op->u.attention.shape;
	const srt_ocl_tuning_t *tuning = &stream->device->tuning;
	const srt_ocl_attention_t args = make_args(tuning, shape, backward);
	const int64_t units = nitems_of(tuning, shape, args.total);
	srt_ocl_at_t places[11];

	SRT_TRY(srt_ocl_scratch(stream, units * args.total));
	for (int i = 0; i < nplaces; i++)
		places[i] = srt_ocl_at(&op->u.attention.places[order[i]], 0);
	places[nplaces] = srt_ocl_scratch_at(stream, 0);
	return srt_ocl_tuned_launch(stream,
				    backward ? SRT_OCL_ATTENTION_BACKWARD : SRT_OCL_ATTENTION,
				    places, nplaces + 1, &args, sizeof(args),
				    (int64_t[]){ units, 1, 1 });
}

static srt_status_t run_attention(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	return run(stream, op, (const int[]){ 0, 1, 2, 3, 4, 5 }, 6, false);
}

/* The caller's scratch (places[9]) is for the portable kernels; this one is the stream's. */
static srt_status_t run_attention_backward(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	return run(stream, op, (const int[]){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 10 }, 10, true);
}

/* With a mask of bytes (the last place) the vector form has none. */
static srt_status_t put(srt_ocl_stream_t *stream, srt_ocl_op_fn *vector, srt_ocl_op_fn *tiled,
			const srt_attention_t *shape, srt_dtype_t dtype, const srt_place_t *places,
			int nplaces)
{
	const bool is_tiled = stream->device->tuning.form == SRT_OCL_TILED;
	srt_ocl_op_t op = { .run = is_tiled ? tiled : vector };

	if (!srt_ocl_tuned_can(places, nplaces) ||
	    (is_tiled ? !srt_gpu_can_attention(shape) : places[nplaces - 1].mem != NULL) ||
	    !srt_ocl_tuned_has(stream, dtype))
		return SRT_ERR_UNSUPPORTED;
	op.u.attention.shape = *shape;
	op.u.attention.dtype = dtype;
	for (int i = 0; i < nplaces; i++)
		op.u.attention.places[i] = places[i];
	return srt_ocl_stream_put(stream, &op);
}

srt_status_t srt_ocl_put_attention(void *stream, const srt_attention_t *shape, srt_dtype_t dtype,
				   const srt_place_t places[7], int exact)
{
	(void)exact;
	return put(stream, run_attention, srt_ocl_tiled_attention, shape, dtype, places, 7);
}

srt_status_t srt_ocl_put_attention_backward(void *stream, const srt_attention_t *shape,
					    srt_dtype_t dtype, const srt_place_t places[12],
					    int exact)
{
	(void)exact;
	return put(stream, run_attention_backward, srt_ocl_tiled_attention_backward, shape, dtype,
		   places, 12);
}
