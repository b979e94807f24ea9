/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Products by cuBLASLt (fast.h). Its matrices are column-major: a row-major C = A B is its
 * C^T = B^T A^T, so its first operand is our B, and its bias of rows is our bias of columns.
 *
 * A product looks up its algorithm (fast_algorithm.c), and is submitted with the stream's
 * descriptors and scratch.
 */
#include <limits.h>
#include <string.h>

#include "backends/cuda/fast_product.h"
#include "base/base.h"

#define WORKSPACE_HOPPER ((size_t)32 << 20)
#define WORKSPACE_BEFORE ((size_t)8 << 20)
#define MOST_ALIGN 256u
#define LEAST_SPLIT 1024 /* of a shorter dimension two products cost more than a slow one */

/* ---- open and close ---------------------------------------------------------------------- */

static void log_library(const srt_cuda_fast_t *fast)
{
	fast->device->host
		->log(SRT_LOG_INFO,
		      "numerics fast: matrix products by cuBLASLt %zu on the tensor cores, "
		      "fp32 operands %s; they are outside the identity of bits",
		      fast->lt->cublasLtGetVersion(),
		      fast->tf32 ? "rounded to TF32" : "as they are (ieee)");
}

static srt_status_t create_handle(srt_cuda_fast_t *fast)
{
	const srt_host_services_t *host = fast->device->host;
	srt_status_t status = srt_cublaslt(host, &fast->lt);
	cublasStatus_t code;

	if (status != SRT_OK)
		return status;
	code = fast->lt->cublasLtCreate(&fast->handle);
	if (code == CUBLAS_STATUS_SUCCESS) {
		code = srt_cuda_descriptors_make(fast->lt, &fast->descriptors);
		if (code == CUBLAS_STATUS_SUCCESS)
			return SRT_OK;
		fast->lt->cublasLtDestroy(fast->handle);
	}
	return srt_cublaslt_fail(host, fast->lt, code, "starting cuBLASLt on CUDA device \"%s\"",
				 fast->device->name);
}

srt_cuda_fast_t *srt_cuda_fast_open(srt_cuda_device_t *device)
{
	const srt_host_services_t *host = device->host;
	srt_cuda_fast_t *fast = host->alloc(sizeof(*fast));

	if (fast == NULL)
		return NULL;
	memset(fast, 0, sizeof(*fast));
	fast->device = device;
	fast->tf32 = strcmp(host->config("SHARDRT_CUDA_FP32"), "tf32") == 0;
	fast->workspace_nbytes = device->major >= 9 ? WORKSPACE_HOPPER : WORKSPACE_BEFORE;
	if (create_handle(fast) != SRT_OK) {
		host->log(SRT_LOG_INFO, "numerics fast: the exact kernels are used: %s",
			  host->last_error());
		host->free(fast);
		return NULL;
	}
	pthread_mutex_init(&fast->lock, NULL);
	log_library(fast);
	return fast;
}

void srt_cuda_fast_close(srt_cuda_fast_t *fast)
{
	if (fast == NULL)
		return;
	srt_cuda_descriptors_free(fast->lt, &fast->descriptors);
	fast->lt->cublasLtDestroy(fast->handle);
	pthread_mutex_destroy(&fast->lock);
	fast->device->host->free(fast);
}

/* ---- one product ------------------------------------------------------------------------- */

/* The largest power of two that divides the address. */
static uint16_t alignment_of(CUdeviceptr address)
{
	unsigned align = MOST_ALIGN;

	while (align > 1 && address % align != 0)
		align /= 2;
	return (uint16_t)align;
}

/* The product of a command with c, a, b and bias at these addresses; false: not supported. */
static bool make_problem(const srt_command_t *command, const CUdeviceptr at[4], size_t workspace,
			 srt_cuda_product_t *p)
{
	const srt_k_matmul_t *mm = &command->matmul;
	const bool batched = mm->batch > 1;

	if (mm->m < 1 || mm->n < 1 || mm->k < 1 || mm->m > INT_MAX || mm->n > INT_MAX ||
	    mm->k > INT_MAX || mm->batch > INT_MAX)
		return false;
	if (command->dtype >= SRT_CUDA_NDTYPES)
		return false;
	if (mm->c_is_f32 && at[3] != 0) /* it takes a bias of C's type only */
		return false;
	memset(p, 0, sizeof(*p));
	p->m = mm->m;
	p->n = mm->n;
	p->k = mm->k;
	p->batch = batched ? mm->batch : 1;
	/* The pitch of a single row has no meaning. */
	p->lda = srt_max64(mm->lda, mm->trans_a ? mm->m : mm->k);
	p->ldb = srt_max64(mm->ldb, mm->trans_b ? mm->k : mm->n);
	p->ldc = srt_max64(mm->ldc, mm->n);
	p->stride_a = batched ? mm->stride_a : 0;
	p->stride_b = batched ? mm->stride_b : 0;
	p->stride_c = batched ? mm->stride_c : 0;
	p->workspace = workspace;
	for (int i = 0; i < 4; i++)
		p->align[i] = alignment_of(at[i]);
	p->trans_a = mm->trans_a != 0;
	p->trans_b = mm->trans_b != 0;
	p->bias = at[3] != 0;
	p->accumulate = mm->accumulate != 0;
	p->type = (uint8_t)command->dtype;
	p->type_c = mm->c_is_f32 ? SRT_F32 : p->type;
	return true;
}

/* ---- dimensions that tensor cores cannot take -------------------------------------------- */

/* Moves a matrix of a part; 0 is C. */
static void move_binding(srt_command_t *part, int i, int64_t nelem)
{
	const bool is_f32 = i == 0 && part->matmul.c_is_f32;

	part->bindings[i].offset +=
		(size_t)(nelem * srt_gpu_nbytes(is_f32 ? SRT_F32 : part->dtype));
}

/*
 * cuBLASLt's fast kernels take 16 bytes at a time along the rows of all three matrices. A long
 * dimension along rows that is no multiple of that (a vocabulary, mostly) is split: a product of
 * the multiple, and one of the few elements that are left. Of a sum over k the second is added to
 * the first, which was rounded. False: there is nothing to split, or it would not help.
 */
static bool split_product(const srt_cuda_fast_t *fast, const srt_command_t *command,
			  srt_command_t parts[2])
{
	const srt_k_matmul_t *mm = &command->matmul;
	const int64_t unit = command->dtype == SRT_F32 ? 4 : 8;
	const int64_t m = mm->trans_a ? mm->m % unit : 0, n = mm->n % unit;
	const int64_t k = mm->trans_a && !mm->trans_b ? 0 : mm->k % unit;
	const int64_t odd = m ? mm->m : n ? mm->n : mm->k;
	srt_k_matmul_t *first = &parts[0].matmul, *rest = &parts[1].matmul;

	if ((m != 0) + (n != 0) + (k != 0) != 1 || odd < LEAST_SPLIT || mm->batch > 1 ||
	    mm->lda % unit || mm->ldb % unit || mm->ldc % unit ||
	    (command->dtype == SRT_F32 && !fast->tf32))
		return false;
	parts[0] = parts[1] = *command;
	if (m) {
		first->m -= m;
		rest->m = m;
		move_binding(&parts[1], 0, first->m * mm->ldc);
		move_binding(&parts[1], 1, first->m);
	} else if (n) {
		first->n -= n;
		rest->n = n;
		move_binding(&parts[1], 0, first->n);
		move_binding(&parts[1], 2, first->n * (mm->trans_b ? mm->ldb : 1));
		move_binding(&parts[1], 3, first->n);
	} else {
		first->k -= k;
		rest->k = k;
		rest->accumulate = 1;
		move_binding(&parts[1], 1, first->k * (mm->trans_a ? mm->lda : 1));
		move_binding(&parts[1], 2, first->k * (mm->trans_b ? 1 : mm->ldb));
		parts[1].bindings[3].mem = NULL;
	}
	return true;
}

/* Maximum workspace of an algorithm in the stream's scratch: the reserved bytes, because the memory
 * check includes only these. */
static size_t limit_workspace(const srt_cuda_stream_t *stream)
{
	const size_t most = stream->device->fast->workspace_nbytes;
	size_t there = most;

	if (stream->is_reserved)
		there = stream->reserved;
	else if (stream->no_workspace)
		there = 0;
	return there < most ? there : most;
}

/* Aligned like allocations; less aligned operands must fit the reserved bytes. */
static size_t part_scratch(srt_cuda_device_t *device, const srt_command_t *command)
{
	const CUdeviceptr at[4] = { MOST_ALIGN, MOST_ALIGN, MOST_ALIGN, MOST_ALIGN };
	size_t most = 0;
	srt_cuda_product_t p;

	if (!make_problem(command, at, device->fast->workspace_nbytes, &p))
		return 0;
	/* With a bias, and without. */
	for (p.bias = 0; p.bias <= 1; p.bias++) {
		srt_cuda_algorithm_t algorithm;

		p.align[3] = p.bias ? MOST_ALIGN : alignment_of(0);
		if (srt_cuda_fast_choose(device->fast, &p, &algorithm) == SRT_OK &&
		    algorithm.workspace_nbytes > most)
			most = algorithm.workspace_nbytes;
	}
	return most;
}

size_t srt_cuda_fast_scratch(srt_cuda_device_t *device, const srt_command_t *command)
{
	srt_command_t parts[2];
	size_t most;

	if (device->fast == NULL)
		return 0;
	most = part_scratch(device, command);
	if (!split_product(device->fast, command, parts))
		return most;
	for (int i = 0; i < 2; i++) {
		const size_t nbytes = part_scratch(device, &parts[i]);

		most = nbytes > most ? nbytes : most;
	}
	return most;
}

/* The stream's descriptors, created for its first product. */
static cublasStatus_t descriptors_of(srt_cuda_stream_t *stream, const srt_cuda_descriptors_t **out)
{
	const srt_host_services_t *host = stream->device->host;
	srt_cuda_descriptors_t *d = stream->descriptors;
	cublasStatus_t code;

	if (d == NULL) {
		d = host->alloc(sizeof(*d));
		if (d == NULL)
			return CUBLAS_STATUS_ALLOC_FAILED;
		code = srt_cuda_descriptors_make(stream->device->fast->lt, d);
		if (code != CUBLAS_STATUS_SUCCESS) {
			host->free(d);
			return code;
		}
		stream->descriptors = d;
	}
	*out = d;
	return CUBLAS_STATUS_SUCCESS;
}

void srt_cuda_fast_stream_free(srt_cuda_stream_t *stream)
{
	if (stream->descriptors == NULL)
		return;
	srt_cuda_descriptors_free(stream->device->fast->lt, stream->descriptors);
	stream->device->host->free(stream->descriptors);
}

static srt_status_t multiply(srt_cuda_stream_t *stream, const srt_cuda_fast_call_t *call)
{
	const srt_cuda_fast_t *fast = stream->device->fast;
	const srt_cuda_product_t *p = &call->product;
	const float beta = p->accumulate ? 1.0f : 0.0f;
	void *const c = (void *)call->at[0];
	const srt_cuda_descriptors_t *d;
	cublasLtMatmulAlgo_t algo;
	cublasStatus_t code;

	memcpy(&algo, call->algorithm.opaque, sizeof(algo));
	code = descriptors_of(stream, &d);
	if (code == CUBLAS_STATUS_SUCCESS)
		code = srt_cuda_fast_describe(fast, p, d, call->at[3]);
	if (code == CUBLAS_STATUS_SUCCESS)
		code = fast->lt->cublasLtMatmul(fast->handle, d->product, &call->alpha,
						(const void *)call->at[2], d->b,
						(const void *)call->at[1], d->a, &beta, c, d->c, c,
						d->c, &algo, (void *)call->workspace,
						call->algorithm.workspace_nbytes, stream->queue);
	if (code == CUBLAS_STATUS_SUCCESS)
		return SRT_OK;
	return srt_cublaslt_fail(stream->device->host, fast->lt, code,
				 "stream \"%s\": matrix product of %lld x %lld x %lld by cuBLASLt "
				 "failed",
				 stream->name, (long long)p->m, (long long)p->n, (long long)p->k);
}

/* If the workspace does not fit, uses an algorithm without workspace, which may be slower. */
static srt_status_t find_workspace(srt_cuda_stream_t *stream, srt_cuda_fast_call_t *call)
{
	const srt_host_services_t *host = stream->device->host;
	srt_status_t status =
		srt_scratch_provide(&stream->scratch, call->algorithm.workspace_nbytes);

	if (status == SRT_OK)
		call->workspace =
			((const srt_cuda_mem_t *)srt_scratch_mem(&stream->scratch))->address;
	if (status != SRT_ERR_OUT_OF_MEMORY)
		return status;
	if (!stream->no_workspace)
		host->log(SRT_LOG_WARN, "products of cuBLASLt may be slower: %s",
			  host->last_error());
	stream->no_workspace = true;
	call->product.workspace = 0;
	status = srt_cuda_fast_choose(stream->device->fast, &call->product, &call->algorithm);
	return status == SRT_ERR_UNSUPPORTED ?
		       host->fail(SRT_ERR_OUT_OF_MEMORY,
				  "stream \"%s\": cuBLASLt does not multiply without workspace",
				  stream->name) :
		       status;
}

/* SRT_ERR_UNSUPPORTED without fail(): the exact kernels must run it. */
static srt_status_t prepare_product(srt_cuda_stream_t *stream, const srt_command_t *command,
				    srt_cuda_fast_call_t *call)
{
	for (int i = 0; i < 4; i++)
		call->at[i] = command->bindings[i].mem != NULL ?
				      srt_cuda_address(stream, &command->bindings[i]) +
					      command->bindings[i].offset :
				      0;
	call->alpha = command->matmul.alpha;
	call->workspace = 0;
	if (!make_problem(command, call->at, limit_workspace(stream), &call->product))
		return SRT_ERR_UNSUPPORTED;
	return srt_cuda_fast_choose(stream->device->fast, &call->product, &call->algorithm);
}

static srt_status_t run_product(srt_cuda_stream_t *stream, srt_cuda_fast_call_t *call)
{
	if (call->algorithm.workspace_nbytes)
		SRT_TRY(find_workspace(stream, call));
	return multiply(stream, call);
}

srt_status_t srt_cuda_fast_matmul(srt_cuda_stream_t *stream, const srt_command_t *command)
{
	srt_cuda_fast_call_t calls[2];
	srt_command_t parts[2];

	if (stream->device->fast == NULL || command->exact)
		return SRT_ERR_UNSUPPORTED;
	if (split_product(stream->device->fast, command, parts) &&
	    prepare_product(stream, &parts[0], &calls[0]) == SRT_OK &&
	    prepare_product(stream, &parts[1], &calls[1]) == SRT_OK) {
		SRT_TRY(run_product(stream, &calls[0]));
		return run_product(stream, &calls[1]);
	}
	SRT_TRY(prepare_product(stream, command, &calls[0]));
	return run_product(stream, &calls[0]);
}
