/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Products by cuBLASLt (fast.h). It counts by columns: a row-major C = A B is its C^T = B^T A^T, so
 * its first operand is our B, and a bias of its rows is our bias of the columns.
 *
 *   in the slot     what is asked for is looked up among the algorithms found so far; if it is new,
 *                   cuBLASLt is asked for one (on the host alone), or says that it has none
 *   in the stream   the product: descriptors on the stack, the algorithm, the stream's workspace
 *
 * The algorithms are a table of sets of a few entries; a new one takes the place of the set's
 * oldest. An entry is copied to the operation, so entries come and go freely.
 */
#include "backends/cuda/fast.h"

#include <limits.h>
#include <string.h>

#include "backends/cuda/cublaslt.h"

#define NSETS 128
#define NWAYS 8
#define WORKSPACE_HOPPER ((size_t)32 << 20)
#define WORKSPACE_BEFORE ((size_t)8 << 20)
#define MOST_ALIGN 256u

/* What an algorithm depends on: all of it compared as bytes. */
typedef struct problem {
	int64_t m, n, k, batch;
	int64_t lda, ldb, ldc, stride_a, stride_b, stride_c;
	uint64_t workspace;       /* bytes that may be used */
	uint16_t align[4];        /* of c, a, b, bias, as places; bytes */
	uint8_t trans_a, trans_b; /* of our operands */
	uint8_t bias, accumulate; /* whether there are */
	uint8_t type, zeroes[3];  /* srt_dtype_t */
} problem_t;

typedef struct entry {
	problem_t problem;
	srt_cuda_algorithm_t algorithm;
	uint8_t used, can; /* can = 0: cuBLASLt has none */
} entry_t;

struct srt_cuda_fast {
	srt_cuda_device_t *device;
	const srt_cublaslt_t *lt;
	cublasLtHandle_t handle;
	bool tf32;
	size_t workspace_nbytes; /* of a stream */

	pthread_mutex_t lock;
	entry_t entries[NSETS][NWAYS];
	uint8_t oldest[NSETS];
};

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(((srt_cuda_algorithm_t *)0)->opaque),
	       "room for an algorithm");

/* ---- open and close ---------------------------------------------------------------------- */

static void announce(const srt_cuda_fast_t *fast)
{
	fast->device->host
		->log(SRT_LOG_INFO,
		      "numerics fast: matrix products by cuBLASLt %zu on the tensor cores, "
		      "fp32 operands %s; they are outside the identity of bits",
		      fast->lt->cublasLtGetVersion(),
		      fast->tf32 ? "rounded to TF32" : "as they are (ieee)");
}

static srt_status_t start(srt_cuda_fast_t *fast)
{
	const srt_host_services_t *host = fast->device->host;
	srt_status_t status = srt_cublaslt(host, &fast->lt);
	cublasStatus_t code;

	if (status != SRT_OK)
		return status;
	code = fast->lt->cublasLtCreate(&fast->handle);
	if (code == CUBLAS_STATUS_SUCCESS)
		return SRT_OK;
	fast->handle = NULL;
	return srt_cublaslt_fail(host, fast->lt, code, "starting cuBLASLt on CUDA device \"%s\"",
				 fast->device->name);
}

srt_cuda_fast_t *srt_cuda_fast_open(srt_cuda_device_t *device)
{
	const srt_host_services_t *host = device->host;
	srt_cuda_fast_t *fast = host->alloc(sizeof(*fast));

	if (!fast)
		return NULL;
	memset(fast, 0, sizeof(*fast));
	fast->device = device;
	fast->tf32 = strcmp(host->config("SHARDRT_CUDA_FP32"), "tf32") == 0;
	fast->workspace_nbytes = device->major >= 9 ? WORKSPACE_HOPPER : WORKSPACE_BEFORE;
	if (start(fast) != SRT_OK) {
		host->log(SRT_LOG_INFO, "numerics fast: the exact kernels are used: %s",
			  host->last_error());
		host->free(fast);
		return NULL;
	}
	pthread_mutex_init(&fast->lock, NULL);
	announce(fast);
	return fast;
}

void srt_cuda_fast_close(srt_cuda_fast_t *fast)
{
	if (!fast)
		return;
	fast->lt->cublasLtDestroy(fast->handle);
	pthread_mutex_destroy(&fast->lock);
	fast->device->host->free(fast);
}

/* ---- descriptors ------------------------------------------------------------------------- */

typedef struct descriptors {
	cublasLtMatmulDescOpaque_t product;
	cublasLtMatrixLayoutOpaque_t a, b, c; /* of our operands */
} descriptors_t;

static cudaDataType_t type_of(uint8_t dtype)
{
	return dtype == SRT_F32 ? CUDA_R_32F : dtype == SRT_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

#define TRY_LT(call)                                                                               \
	do {                                                                                       \
		cublasStatus_t code_ = (call);                                                     \
		if (code_ != CUBLAS_STATUS_SUCCESS)                                                \
			return code_;                                                              \
	} while (0)

/* A row-major matrix as it is stored: rows of cols elements, ld apart. */
static cublasStatus_t describe(const srt_cublaslt_t *lt, const problem_t *p,
			       cublasLtMatrixLayoutOpaque_t *layout, int64_t rows, int64_t cols,
			       int64_t ld, int64_t stride)
{
	const int32_t batch = (int32_t)p->batch;

	TRY_LT(lt->cublasLtMatrixLayoutInit_internal(layout, sizeof(*layout), type_of(p->type),
						     (uint64_t)cols, (uint64_t)rows, ld));
	if (batch == 1)
		return CUBLAS_STATUS_SUCCESS;
	TRY_LT(lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
						    &batch, sizeof(batch)));
	return lt->cublasLtMatrixLayoutSetAttribute(layout,
						    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
						    &stride, sizeof(stride));
}

static cublasStatus_t describe_product(const srt_cuda_fast_t *fast, const problem_t *p,
				       cublasLtMatmulDescOpaque_t *product, uint64_t bias)
{
	const srt_cublaslt_t *lt = fast->lt;
	const cublasOperation_t first = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
	const cublasOperation_t second = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
	const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
	const cublasComputeType_t compute = p->type == SRT_F32 && fast->tf32 ?
						    CUBLAS_COMPUTE_32F_FAST_TF32 :
						    CUBLAS_COMPUTE_32F;

	TRY_LT(lt->cublasLtMatmulDescInit_internal(product, sizeof(*product), compute, CUDA_R_32F));
	TRY_LT(lt->cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &first,
						  sizeof(first)));
	TRY_LT(lt->cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &second,
						  sizeof(second)));
	if (!p->bias)
		return CUBLAS_STATUS_SUCCESS;
	TRY_LT(lt->cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
						  sizeof(epilogue)));
	return lt->cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
						  sizeof(bias));
}

/* bias: its address, or one that is aligned like it. */
static cublasStatus_t describe_all(const srt_cuda_fast_t *fast, const problem_t *p,
				   descriptors_t *d, uint64_t bias)
{
	const srt_cublaslt_t *lt = fast->lt;
	const bool ta = p->trans_a, tb = p->trans_b;

	TRY_LT(describe(lt, p, &d->a, ta ? p->k : p->m, ta ? p->m : p->k, p->lda, p->stride_a));
	TRY_LT(describe(lt, p, &d->b, tb ? p->n : p->k, tb ? p->k : p->n, p->ldb, p->stride_b));
	TRY_LT(describe(lt, p, &d->c, p->m, p->n, p->ldc, p->stride_c));
	return describe_product(fast, p, &d->product, bias);
}

/* ---- algorithms -------------------------------------------------------------------------- */

static cublasStatus_t set_preference(const srt_cublaslt_t *lt, const problem_t *p,
				     cublasLtMatmulPreferenceOpaque_t *preference)
{
	/* Parts of a sum over k are added in fp32, so that 16-bit results are rounded once. */
	const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	const struct {
		cublasLtMatmulPreferenceAttributes_t attribute;
		uint32_t align;
	} aligns[] = {
		{ CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p->align[2] },
		{ CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p->align[1] },
		{ CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p->align[0] },
		{ CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p->align[0] },
	};

	TRY_LT(lt->cublasLtMatmulPreferenceInit_internal(preference, sizeof(*preference)));
	TRY_LT(lt->cublasLtMatmulPreferenceSetAttribute(preference,
							CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
							&p->workspace, sizeof(p->workspace)));
	TRY_LT(lt->cublasLtMatmulPreferenceSetAttribute(preference,
							CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
							&schemes, sizeof(schemes)));
	for (size_t i = 0; i < sizeof(aligns) / sizeof(aligns[0]); i++)
		TRY_LT(lt->cublasLtMatmulPreferenceSetAttribute(preference, aligns[i].attribute,
								&aligns[i].align,
								sizeof(aligns[i].align)));
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t ask(const srt_cuda_fast_t *fast, entry_t *entry)
{
	const problem_t *p = &entry->problem;
	cublasLtMatmulPreferenceOpaque_t preference;
	cublasLtMatmulHeuristicResult_t result;
	descriptors_t d;
	int n = 0;

	TRY_LT(describe_all(fast, p, &d, p->align[3]));
	TRY_LT(set_preference(fast->lt, p, &preference));
	TRY_LT(fast->lt->cublasLtMatmulAlgoGetHeuristic(fast->handle, &d.product, &d.b, &d.a, &d.c,
							&d.c, &preference, 1, &result, &n));
	if (n < 1)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (result.state == CUBLAS_STATUS_SUCCESS) {
		memcpy(entry->algorithm.opaque, &result.algo, sizeof(result.algo));
		entry->algorithm.workspace_nbytes = result.workspaceSize;
	}
	return result.state;
}

static unsigned set_of(const problem_t *p)
{
	const unsigned char *bytes = (const unsigned char *)p;
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (size_t i = 0; i < sizeof(*p); i++)
		hash = (hash ^ bytes[i]) * 16777619u;
	return (hash ^ hash >> 16) % NSETS;
}

static entry_t *find(srt_cuda_fast_t *fast, unsigned set, const problem_t *p)
{
	for (int i = 0; i < NWAYS; i++) {
		entry_t *entry = &fast->entries[set][i];

		if (entry->used && memcmp(&entry->problem, p, sizeof(*p)) == 0)
			return entry;
	}
	return NULL;
}

/* Whether cuBLASLt does it, and by what. */
static srt_status_t choose(srt_cuda_fast_t *fast, const problem_t *p,
			   srt_cuda_algorithm_t *algorithm)
{
	const srt_host_services_t *host = fast->device->host;
	const unsigned set = set_of(p);
	srt_status_t status = SRT_OK;
	entry_t *entry;

	pthread_mutex_lock(&fast->lock);
	entry = find(fast, set, p);
	if (!entry) {
		entry_t made = { .problem = *p, .used = 1 };
		srt_cuda_scope_t scope = srt_cuda_enter(fast->device);
		cublasStatus_t code = ask(fast, &made);

		srt_cuda_leave(scope);
		made.can = code == CUBLAS_STATUS_SUCCESS;
		if (!made.can && code != CUBLAS_STATUS_NOT_SUPPORTED &&
		    code != CUBLAS_STATUS_INVALID_VALUE) {
			status = srt_cublaslt_fail(host, fast->lt, code,
						   "matrix product of %lld x %lld x %lld: cuBLASLt "
						   "finds no algorithm",
						   (long long)p->m, (long long)p->n,
						   (long long)p->k);
		} else {
			entry = &fast->entries[set][fast->oldest[set]];
			fast->oldest[set] = (uint8_t)((fast->oldest[set] + 1) % NWAYS);
			*entry = made;
		}
	}
	if (status == SRT_OK && !entry->can)
		status = SRT_ERR_UNSUPPORTED;
	if (status == SRT_OK)
		*algorithm = entry->algorithm;
	pthread_mutex_unlock(&fast->lock);
	return status;
}

/* ---- one product ------------------------------------------------------------------------- */

static CUdeviceptr address_of(const srt_place_t *place)
{
	const srt_cuda_mem_t *mem = place->mem;

	return mem ? mem->address + place->offset : 0;
}

/* The largest power of two that divides the address. */
static uint16_t align_of(CUdeviceptr address)
{
	unsigned align = MOST_ALIGN;

	while (align > 1 && address % align != 0)
		align /= 2;
	return (uint16_t)align;
}

static int64_t max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* The product of a slot; false: not for cuBLASLt. */
static bool make_problem(const srt_matmul_t *mm, srt_dtype_t dtype, const srt_place_t *places,
			 size_t workspace, problem_t *p)
{
	const bool batched = mm->batch > 1;

	if (mm->m < 1 || mm->n < 1 || mm->k < 1 || mm->m > INT_MAX || mm->n > INT_MAX ||
	    mm->k > INT_MAX || mm->batch > INT_MAX)
		return false;
	if (dtype != SRT_F32 && dtype != SRT_F16 && dtype != SRT_BF16)
		return false;
	for (int i = 0; i < 4; i++)
		if (places[i].mem && !((const srt_cuda_mem_t *)places[i].mem)->address)
			return false; /* host memory that the device does not see */
	memset(p, 0, sizeof(*p));
	p->m = mm->m;
	p->n = mm->n;
	p->k = mm->k;
	p->batch = batched ? mm->batch : 1;
	/* Of a single row the distance may be anything. */
	p->lda = max64(mm->lda, mm->trans_a ? mm->m : mm->k);
	p->ldb = max64(mm->ldb, mm->trans_b ? mm->k : mm->n);
	p->ldc = max64(mm->ldc, mm->n);
	p->stride_a = batched ? mm->stride_a : 0;
	p->stride_b = batched ? mm->stride_b : 0;
	p->stride_c = batched ? mm->stride_c : 0;
	p->workspace = workspace;
	for (int i = 0; i < 4; i++)
		p->align[i] = align_of(address_of(&places[i]));
	p->trans_a = mm->trans_a != 0;
	p->trans_b = mm->trans_b != 0;
	p->bias = places[3].mem != NULL;
	p->accumulate = mm->accumulate != 0;
	p->type = (uint8_t)dtype;
	return true;
}

/* The stream's workspace, made at the first product that is not being recorded; 0 bytes if there is
 * no memory for it, which costs speed. */
static size_t workspace(srt_cuda_stream_t *stream)
{
	const srt_cuda_device_t *device = stream->device;
	size_t nbytes = device->fast->workspace_nbytes;
	srt_cuda_scope_t scope;

	if (stream->workspace || stream->no_workspace)
		return stream->workspace ? nbytes : 0;
	if (stream->recording)
		return 0;
	scope = srt_cuda_enter(stream->device);
	stream->no_workspace = device->drv->cuMemAlloc(&stream->workspace, nbytes) != CUDA_SUCCESS;
	srt_cuda_leave(scope);
	if (stream->no_workspace) {
		stream->workspace = 0;
		device->host->log(SRT_LOG_WARN,
				  "stream \"%s\": no %zu bytes of workspace for cuBLASLt; products "
				  "may be slower",
				  stream->name, nbytes);
		return 0;
	}
	device->host->log(SRT_LOG_INFO, "stream \"%s\": %zu bytes of workspace for cuBLASLt",
			  stream->name, nbytes);
	return nbytes;
}

void srt_cuda_fast_stream_free(srt_cuda_stream_t *stream)
{
	if (stream->workspace)
		stream->device->drv->cuMemFree(stream->workspace);
	stream->workspace = 0;
}

static cublasStatus_t multiply(srt_cuda_stream_t *stream, const srt_cuda_op_t *op,
			       const problem_t *p)
{
	const srt_cuda_fast_t *fast = stream->device->fast;
	const srt_place_t *places = op->u.fast.places;
	const CUdeviceptr c = address_of(&places[0]);
	const float alpha = op->u.fast.mm.alpha, beta = p->accumulate ? 1.0f : 0.0f;
	cublasLtMatmulAlgo_t algo;
	descriptors_t d;

	memcpy(&algo, op->u.fast.algorithm.opaque, sizeof(algo));
	TRY_LT(describe_all(fast, p, &d, address_of(&places[3])));
	return fast->lt->cublasLtMatmul(fast->handle, &d.product, &alpha,
					(const void *)address_of(&places[2]), &d.b,
					(const void *)address_of(&places[1]), &d.a, &beta,
					(const void *)c, &d.c, (void *)c, &d.c, &algo,
					(void *)stream->workspace,
					op->u.fast.algorithm.workspace_nbytes, stream->queue);
}

static srt_status_t run_product(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	const srt_matmul_t *mm = &op->u.fast.mm;
	problem_t p;
	cublasStatus_t code;

	make_problem(mm, op->u.fast.dtype, op->u.fast.places, 0, &p);
	code = multiply(stream, op, &p);
	if (code == CUBLAS_STATUS_SUCCESS)
		return SRT_OK;
	return srt_cublaslt_fail(stream->device->host, stream->device->fast->lt, code,
				 "stream \"%s\": matrix product of %lld x %lld x %lld by cuBLASLt "
				 "failed",
				 stream->name, (long long)mm->m, (long long)mm->n,
				 (long long)mm->k);
}

srt_status_t srt_cuda_fast_matmul(srt_cuda_stream_t *stream, const srt_matmul_t *mm,
				  srt_dtype_t dtype, const srt_place_t places[4])
{
	srt_cuda_op_t op = { .run = run_product };
	srt_status_t status;
	problem_t p;

	if (!stream->device->fast || !make_problem(mm, dtype, places, workspace(stream), &p))
		return SRT_ERR_UNSUPPORTED;
	status = choose(stream->device->fast, &p, &op.u.fast.algorithm);
	if (status != SRT_OK)
		return status;
	op.u.fast.mm = *mm;
	op.u.fast.dtype = dtype;
	for (int i = 0; i < 4; i++)
		op.u.fast.places[i] = places[i];
	return srt_cuda_stream_put(stream, &op);
}
