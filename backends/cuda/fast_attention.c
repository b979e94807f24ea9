/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches of the kernels of fast_attention.cu: attention of numerics mode fast on tensor cores.
 * The backward pass is D by its portable kernel, then dq, then dk and dv. Called by work.c; what is
 * not taken here is left to the exact kernels.
 */
#include <limits.h>
#include <stdio.h>

#include "backends/cuda/fast.h"
#include "backends/cuda/images.h"
#include "base/base.h"

#define OWN 64 /* rows of a block: fast_attention.h */
#define NTHREADS 128
#define ALIGN 16
#define MOST_ROWS (1 << 30)

enum { FORWARD, FOR_Q, FOR_KV, NPASSES };
static const char *const passes[NPASSES] = { "fast_attention", "fast_attention_q",
					     "fast_attention_kv" };

_Static_assert(2 * NPASSES == SRT_CUDA_NFAST, "kernels of a type: for two head_dims");

/* ---- kernels ----------------------------------------------------------------------------- */

/* Under the device's lock. */
static srt_status_t load(srt_cuda_device_t *device, srt_dtype_t dtype)
{
	const char *type = srt_kernel_dtype_name(dtype);
	CUmodule module;
	srt_status_t status =
		srt_cuda_module_load(device,
				     dtype == SRT_F16 ? srt_cuda_image_fast_attention_f16 :
							srt_cuda_image_fast_attention_bf16,
				     "fast attention's", &module);

	if (status != SRT_OK)
		return status;
	for (int i = 0; i < SRT_CUDA_NFAST; i++) {
		char name[64];
		CUresult code;

		snprintf(name, sizeof(name), "k_%s_%d_%s", passes[i / 2], i % 2 ? 128 : 64, type);
		code = device->drv->cuModuleGetFunction(&device->fast_functions[dtype][i], module,
							name);
		if (code == CUDA_SUCCESS)
			continue;
		status = srt_cuda_fail(device->host, device->drv, code,
				       "CUDA device \"%s\": kernel \"%s\" is not in its image",
				       device->name, name);
		device->drv->cuModuleUnload(module);
		return status;
	}
	device->fast_modules[dtype] = module;
	return SRT_OK;
}

static srt_status_t find(srt_cuda_device_t *device, int pass, int64_t head_dim, srt_dtype_t dtype,
			 CUfunction *function)
{
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&device->lock);
	if (!device->fast_modules[dtype]) {
		srt_cuda_scope_t scope = srt_cuda_enter(device);

		status = load(device, dtype);
		srt_cuda_leave(scope);
	}
	*function = device->fast_functions[dtype][2 * pass + (head_dim == 128)];
	pthread_mutex_unlock(&device->lock);
	return status;
}

void srt_cuda_fast_kernels_free(srt_cuda_device_t *device)
{
	for (int i = 0; i < SRT_CUDA_NDTYPES; i++)
		if (device->fast_modules[i])
			device->drv->cuModuleUnload(device->fast_modules[i]);
}

/* ---- launches ---------------------------------------------------------------------------- */

static srt_status_t run(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	const unsigned grid[3] = { op->u.fast_attention.nblocks, 1, 1 };
	CUdeviceptr addresses[SRT_CUDA_FAST_PLACES];
	unsigned long long offsets[SRT_CUDA_FAST_PLACES];
	void *params[2 * SRT_CUDA_FAST_PLACES + 1];
	int n = 0;

	for (int i = 0; i < op->u.fast_attention.nplaces; i++) {
		const srt_place_t *place = &op->u.fast_attention.places[i];

		addresses[i] = place->mem ? ((const srt_cuda_mem_t *)place->mem)->address : 0;
		offsets[i] = place->offset;
		params[n++] = &addresses[i];
		params[n++] = &offsets[i];
	}
	params[n] = (void *)&op->u.fast_attention.args;
	return srt_cuda_launch_function(stream, op->u.fast_attention.function, grid, NTHREADS, 0,
					params, "fast attention");
}

static int64_t blocks(const srt_attention_t *shape, int64_t positions)
{
	return shape->batch * shape->heads * ((positions + OWN - 1) / OWN);
}

static srt_status_t put(srt_cuda_stream_t *stream, int pass, const srt_attention_t *shape,
			srt_dtype_t dtype, const srt_place_t *const *places, int nplaces)
{
	srt_cuda_op_t op = { .run = run };
	srt_status_t status;

	status = find(stream->device, pass, shape->head_dim, dtype, &op.u.fast_attention.function);
	if (status != SRT_OK)
		return status;
	op.u.fast_attention.args = srt_kernel_attention_args(shape);
	op.u.fast_attention.nblocks =
		(unsigned)blocks(shape, pass == FOR_KV ? shape->keys : shape->queries);
	op.u.fast_attention.nplaces = nplaces;
	for (int i = 0; i < nplaces; i++)
		op.u.fast_attention.places[i] = *places[i];
	return srt_cuda_stream_put(stream, &op);
}

/* ---- what is taken ----------------------------------------------------------------------- */

/* Absent, or of rows that begin at multiples of 16 bytes. */
static bool is_aligned(const srt_place_t *place, int64_t ld)
{
	const srt_cuda_mem_t *mem = place->mem;

	return !mem || ((mem->address + place->offset) % ALIGN == 0 && ld % (ALIGN / 2) == 0);
}

static bool takes(const srt_cuda_stream_t *stream, const srt_attention_t *shape, srt_dtype_t dtype)
{
	const srt_cuda_device_t *device = stream->device;

	return device->fast && device->major >= 8 && (dtype == SRT_F16 || dtype == SRT_BF16) &&
	       (shape->head_dim == 64 || shape->head_dim == 128) && shape->queries <= MOST_ROWS &&
	       shape->keys <= MOST_ROWS && shape->batch <= INT_MAX && shape->heads <= SHRT_MAX &&
	       blocks(shape, shape->queries) <= INT_MAX && blocks(shape, shape->keys) <= INT_MAX;
}

enum { OUT, STATS, Q, K, V, LENGTHS, MASK };

srt_status_t srt_cuda_fast_attention(srt_cuda_stream_t *stream, const srt_attention_t *shape,
				     srt_dtype_t dtype, const srt_place_t places[7])
{
	const srt_place_t *const args[] = { &places[OUT], &places[STATS], &places[Q], &places[K],
					    &places[V] };
	const int64_t width = shape->heads * shape->head_dim;

	if (!takes(stream, shape, dtype) || !srt_cuda_sees(places, 7) || places[LENGTHS].mem ||
	    places[MASK].mem || !is_aligned(&places[OUT], width) ||
	    !is_aligned(&places[Q], shape->ldq) || !is_aligned(&places[K], shape->ldk) ||
	    !is_aligned(&places[V], shape->ldv))
		return SRT_ERR_UNSUPPORTED;
	SRT_TRY(srt_cuda_fast_try(stream, dtype));
	return put(stream, FORWARD, shape, dtype, args, 5);
}

/* The order of the backward pass's places. */
enum { B_DQ, B_DK, B_DV, B_DOUT, B_OUT, B_Q, B_K, B_V, B_STATS, B_SCRATCH, B_LENGTHS, B_MASK };

static srt_status_t launch_d(srt_cuda_stream_t *stream, const srt_attention_t *shape,
			     srt_dtype_t dtype, const srt_place_t *places)
{
	const srt_k_attention_t args = srt_kernel_attention_args(shape);
	srt_launch_t launch = {
		.kernel = SRT_K_ATTENTION_BACKWARD_D,
		.dtype = (uint16_t)dtype,
		.nplaces = 3,
		.args_nbytes = sizeof(args),
		.ngroups = srt_kernel_grid(SRT_K_ATTENTION_BACKWARD_D, &args),
		.args = &args,
		.places = { places[B_SCRATCH], places[B_DOUT], places[B_OUT] },
	};

	return srt_cuda_launch(stream, &launch);
}

srt_status_t srt_cuda_fast_attention_backward(srt_cuda_stream_t *stream,
					      const srt_attention_t *shape, srt_dtype_t dtype,
					      const srt_place_t places[12])
{
	const srt_place_t *const for_q[] = { &places[B_DQ],     &places[B_DOUT], &places[B_Q],
					     &places[B_K],      &places[B_V],    &places[B_STATS],
					     &places[B_SCRATCH] };
	const srt_place_t *const for_kv[] = { &places[B_DK],    &places[B_DV],     &places[B_DOUT],
					      &places[B_Q],     &places[B_K],      &places[B_V],
					      &places[B_STATS], &places[B_SCRATCH] };
	const int64_t width = shape->heads * shape->head_dim;
	const int64_t lds[] = { shape->lddq, shape->lddk, shape->lddv, width,
				width,       shape->ldq,  shape->ldk,  shape->ldv };
	srt_status_t status;

	if (!takes(stream, shape, dtype) || !srt_cuda_sees(places, 12) || places[B_LENGTHS].mem ||
	    places[B_MASK].mem)
		return SRT_ERR_UNSUPPORTED;
	for (int i = B_DQ; i <= B_V; i++)
		if (!is_aligned(&places[i], lds[i]))
			return SRT_ERR_UNSUPPORTED;
	SRT_TRY(srt_cuda_fast_try(stream, dtype));
	status = launch_d(stream, shape, dtype, places);
	if (status == SRT_OK && places[B_DQ].mem)
		status = put(stream, FOR_Q, shape, dtype, for_q, 7);
	if (status == SRT_OK && (places[B_DK].mem || places[B_DV].mem))
		status = put(stream, FOR_KV, shape, dtype, for_kv, 8);
	return status;
}
