/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan of the vector form's attention (attention_vector.cl): one launch of one work-item a
 * compute unit. The work-items share the heads; each has a part of the stream's scratch.
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
	/* Scores of 12 rows are written for each first row. */
	const int64_t rows = backward ? QUERIES + 12 : 12;
	srt_ocl_attention_t args = {
		.shape = *shape,
		/* A multiple of 64 lanes, plus 16 so that rows use different cache sets. */
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

size_t srt_ocl_vector_attention_plan(const srt_ocl_tuning_t *tuning, const srt_command_t *command)
{
	const srt_ocl_attention_t args = make_args(tuning, &command->attention,
						   command->kind == SRT_COMMAND_ATTENTION_BACKWARD);

	return (size_t)(nitems_of(tuning, &command->attention, args.total) * args.total) *
	       sizeof(float);
}

/* The kernels have the command's bindings except the mask and the scratch of the backward pass,
 * which is for the portable kernels. The last binding is the stream's scratch. */
void srt_ocl_vector_attention_add(srt_ocl_plan_t *plan, const srt_ocl_tuning_t *tuning)
{
	static const int forward[] = { 0, 1, 2, 3, 4, 5 };
	static const int backward[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 10 };
	const srt_command_t *command = plan->gpu.command;
	const bool is_backward = command->kind == SRT_COMMAND_ATTENTION_BACKWARD;
	const int n = is_backward ? SRT_ARRAY_LEN(backward) : SRT_ARRAY_LEN(forward);
	const srt_ocl_attention_t args = make_args(tuning, &command->attention, is_backward);
	srt_binding_t bindings[SRT_ARRAY_LEN(backward) + 1];

	for (int i = 0; i < n; i++)
		bindings[i] = command->bindings[(is_backward ? backward : forward)[i]];
	bindings[n] = (srt_binding_t){ .mem = srt_gpu_scratch };
	srt_gpu_add(&plan->gpu, is_backward ? SRT_OCL_ATTENTION_BACKWARD : SRT_OCL_ATTENTION,
		    bindings, n + 1, &args, sizeof(args),
		    nitems_of(tuning, &command->attention, args.total));
}
