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
static srt_ocl_attention_t make_args(const srt_ocl_tuning_t *tuning, const srt_k_attention_t *shape,
				     bool backward)
{
	const int64_t keys = shape->keys, hd = shape->head_dim, nr = 2 * tuning->width;
	const int64_t across = round_up(hd * round_up(keys, nr), 16);
	const int64_t down = round_up(keys * round_up(hd, nr), 16);
	const int64_t down_queries = round_up(shape->queries * round_up(hd, nr), 16);
	/* Scores of 12 rows are written wherever rows begin. */
	const int64_t rows = backward ? QUERIES + 12 : 12;
	srt_ocl_attention_t args = {
		.shape = *shape,
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
static int64_t nitems_of(const srt_ocl_tuning_t *tuning, const srt_k_attention_t *shape,
			 int64_t floats)
{
	int64_t units = shape->batch * shape->heads;

	if (units > tuning->units)
		units = tuning->units;
	if (units > SCRATCH_FLOATS / floats)
		units = SCRATCH_FLOATS / floats;
	return units < 1 ? 1 : units;
}

size_t srt_ocl_vector_attention_scratch(const srt_ocl_device_t *device,
					const srt_command_t *command)
{
	const srt_ocl_tuning_t *tuning = &device->tuning;
	const srt_ocl_attention_t args = make_args(tuning, &command->attention,
						   command->kind == SRT_COMMAND_ATTENTION_BACKWARD);

	return (size_t)(nitems_of(tuning, &command->attention, args.total) * args.total) *
	       sizeof(float);
}

/* The kernels have the command's bindings, but for the mask, and the backward pass's scratch, which
 * is for the portable kernels: theirs is the stream's, and comes last. */
srt_status_t srt_ocl_vector_attention(srt_ocl_stream_t *stream, const srt_command_t *command)
{
	static const int forward[] = { 0, 1, 2, 3, 4, 5 };
	static const int backward[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 10 };
	const bool is_backward = command->kind == SRT_COMMAND_ATTENTION_BACKWARD;
	const int n = is_backward ? SRT_ARRAY_LEN(backward) : SRT_ARRAY_LEN(forward);
	const srt_ocl_tuning_t *tuning = &stream->device->tuning;
	const srt_ocl_attention_t args = make_args(tuning, &command->attention, is_backward);
	const int64_t units = nitems_of(tuning, &command->attention, args.total);
	srt_ocl_at_t places[SRT_ARRAY_LEN(backward) + 1];

	SRT_TRY(srt_ocl_scratch(stream, units * args.total));
	for (int i = 0; i < n; i++)
		places[i] =
			srt_ocl_at(&command->bindings[(is_backward ? backward : forward)[i]], 0);
	places[n] = srt_ocl_scratch_at(stream, 0);
	return srt_ocl_tuned_launch(stream,
				    is_backward ? SRT_OCL_ATTENTION_BACKWARD : SRT_OCL_ATTENTION,
				    places, n + 1, &args, sizeof(args), (int64_t[]){ units, 1, 1 });
}
