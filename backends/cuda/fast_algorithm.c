/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses the algorithm of cuBLASLt for a product; called by fast.c. A table caches the algorithms.
 * For a new product cuBLASLt's heuristic returns an algorithm, or none, without using the device.
 * The table has sets of a few entries; a new entry replaces the oldest of its set. Operations copy
 * their entry, so entries can be replaced at any time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/fast_product.h"

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(((srt_cuda_algorithm_t *)0)->opaque),
	       "room for an algorithm");

/* ---- descriptors ------------------------------------------------------------------------- */

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

cublasStatus_t srt_cuda_descriptors_make(const srt_cublaslt_t *lt, srt_cuda_descriptors_t *d)
{
	cublasLtMatrixLayout_t *const layouts[] = { &d->a, &d->b, &d->c };
	cublasStatus_t code;

	memset(d, 0, sizeof(*d));
	code = lt->cublasLtMatmulDescCreate(&d->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
	for (int i = 0; i < 3 && code == CUBLAS_STATUS_SUCCESS; i++)
		code = lt->cublasLtMatrixLayoutCreate(layouts[i], CUDA_R_32F, 1, 1, 1);
	if (code == CUBLAS_STATUS_SUCCESS)
		code = lt->cublasLtMatmulPreferenceCreate(&d->preference);
	if (code != CUBLAS_STATUS_SUCCESS)
		srt_cuda_descriptors_free(lt, d);
	return code;
}

void srt_cuda_descriptors_free(const srt_cublaslt_t *lt, srt_cuda_descriptors_t *d)
{
	const cublasLtMatrixLayout_t layouts[] = { d->a, d->b, d->c };

	if (d->preference != NULL)
		lt->cublasLtMatmulPreferenceDestroy(d->preference);
	for (int i = 0; i < 3; i++)
		if (layouts[i] != NULL)
			lt->cublasLtMatrixLayoutDestroy(layouts[i]);
	if (d->product != NULL)
		lt->cublasLtMatmulDescDestroy(d->product);
	memset(d, 0, sizeof(*d));
}

/* A row-major matrix as it is stored: rows of cols elements, ld apart. */
static cublasStatus_t describe_matrix(const srt_cublaslt_t *lt, const srt_cuda_product_t *p,
				      cublasLtMatrixLayout_t layout, uint8_t dtype, int64_t rows,
				      int64_t cols, int64_t ld, int64_t stride)
{
	const uint32_t type = type_of(dtype);
	const uint64_t nrows = (uint64_t)cols, ncols = (uint64_t)rows; /* by columns */
	const int32_t batch = (int32_t)p->batch;
	const struct {
		cublasLtMatrixLayoutAttribute_t attribute;
		const void *value;
		size_t nbytes;
	} all[] = {
		{ CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof(type) },
		{ CUBLASLT_MATRIX_LAYOUT_ROWS, &nrows, sizeof(nrows) },
		{ CUBLASLT_MATRIX_LAYOUT_COLS, &ncols, sizeof(ncols) },
		{ CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof(ld) },
		{ CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch) },
		{ CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride) },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		TRY_LT(lt->cublasLtMatrixLayoutSetAttribute(layout, all[i].attribute, all[i].value,
							    all[i].nbytes));
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t describe_product(const srt_cuda_fast_t *fast, const srt_cuda_product_t *p,
				       cublasLtMatmulDesc_t product, uint64_t bias)
{
	const int32_t first = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
	const int32_t second = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
	const uint32_t epilogue = p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
	const uint64_t address = p->bias ? bias : 0;
	const int32_t compute = p->type == SRT_F32 && fast->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 :
								   CUBLAS_COMPUTE_32F;
	const struct {
		cublasLtMatmulDescAttributes_t attribute;
		const void *value;
		size_t nbytes;
	} all[] = {
		{ CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &compute, sizeof(compute) },
		{ CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first) },
		{ CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second) },
		{ CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue) },
		{ CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address, sizeof(address) },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		TRY_LT(fast->lt->cublasLtMatmulDescSetAttribute(product, all[i].attribute,
								all[i].value, all[i].nbytes));
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t srt_cuda_fast_describe(const srt_cuda_fast_t *fast, const srt_cuda_product_t *p,
				      const srt_cuda_descriptors_t *d, uint64_t bias)
{
	const srt_cublaslt_t *lt = fast->lt;
	const bool ta = p->trans_a, tb = p->trans_b;

	TRY_LT(describe_matrix(lt, p, d->a, p->type, ta ? p->k : p->m, ta ? p->m : p->k, p->lda,
			       p->stride_a));
	TRY_LT(describe_matrix(lt, p, d->b, p->type, tb ? p->n : p->k, tb ? p->k : p->n, p->ldb,
			       p->stride_b));
	TRY_LT(describe_matrix(lt, p, d->c, p->type_c, p->m, p->n, p->ldc, p->stride_c));
	return describe_product(fast, p, d->product, bias);
}

/* ---- algorithms -------------------------------------------------------------------------- */

static cublasStatus_t set_preference(const srt_cublaslt_t *lt, const srt_cuda_product_t *p,
				     cublasLtMatmulPreference_t preference)
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

/* Under the lock. */
static cublasStatus_t request_algorithm(const srt_cuda_fast_t *fast, srt_cuda_fast_entry_t *entry,
					float *waves)
{
	const srt_cuda_product_t *p = &entry->problem;
	const srt_cuda_descriptors_t *d = &fast->descriptors;
	cublasLtMatmulHeuristicResult_t result;
	int n = 0;

	TRY_LT(srt_cuda_fast_describe(fast, p, d, p->align[3]));
	TRY_LT(set_preference(fast->lt, p, d->preference));
	TRY_LT(fast->lt->cublasLtMatmulAlgoGetHeuristic(fast->handle, d->product, d->b, d->a, d->c,
							d->c, d->preference, 1, &result, &n));
	if (n < 1)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (result.state == CUBLAS_STATUS_SUCCESS) {
		memcpy(entry->algorithm.opaque, &result.algo, sizeof(result.algo));
		entry->algorithm.workspace_nbytes = result.workspaceSize;
		*waves = result.wavesCount;
	}
	return result.state;
}

/* An attribute of an algorithm; -1 if cuBLASLt does not have it. */
static int attribute_of(const srt_cuda_fast_t *fast, const cublasLtMatmulAlgo_t *algo,
			cublasLtMatmulAlgoConfigAttributes_t attribute)
{
	int32_t value = 0;
	size_t written = 0;

	return fast->lt->cublasLtMatmulAlgoConfigGetAttribute(algo, attribute, &value,
							      sizeof(value),
							      &written) == CUBLAS_STATUS_SUCCESS ?
		       value :
		       -1;
}

/* Logs the answer for a new product: the algorithm, or that the exact kernels run it. */
static void log_choice(const srt_cuda_fast_t *fast, const srt_cuda_fast_entry_t *entry,
		       cublasStatus_t code, float waves)
{
	const srt_host_services_t *host = fast->device->host;
	const srt_cuda_product_t *p = &entry->problem;
	cublasLtMatmulAlgo_t algo;
	char shape[256];

	snprintf(shape, sizeof(shape),
		 "product %" PRId64 " x %" PRId64 " x %" PRId64 " batch %" PRId64
		 " %s%s, %c%c, ld %" PRId64 " %" PRId64 " %" PRId64 ", aligned %u %u %u%s%s",
		 p->m, p->n, p->k, p->batch, srt_kernel_dtype_name(p->type),
		 p->type_c != p->type ? " to f32" : "", p->trans_a ? 'T' : 'N',
		 p->trans_b ? 'T' : 'N', p->lda, p->ldb, p->ldc, p->align[1], p->align[2],
		 p->align[0], p->bias ? ", bias" : "", p->accumulate ? ", added" : "");
	if (!entry->can) {
		host->log(SRT_LOG_INFO, "cuBLASLt refuses %s: %s; the exact kernels run it", shape,
			  fast->lt->cublasLtGetStatusName(code));
		return;
	}
	memcpy(&algo, entry->algorithm.opaque, sizeof(algo));
	host->log(SRT_LOG_INFO,
		  "cuBLASLt takes %s: algorithm %d, tile %d, stages %d, split-k %d, workspace %zu, "
		  "waves %.2f",
		  shape, attribute_of(fast, &algo, CUBLASLT_ALGO_CONFIG_ID),
		  attribute_of(fast, &algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
		  attribute_of(fast, &algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
		  attribute_of(fast, &algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
		  entry->algorithm.workspace_nbytes, (double)waves);
}

static unsigned set_of(const srt_cuda_product_t *p)
{
	const unsigned char *bytes = (const unsigned char *)p;
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (size_t i = 0; i < sizeof(*p); i++)
		hash = (hash ^ bytes[i]) * 16777619u;
	return (hash ^ hash >> 16) % SRT_CUDA_FAST_NSETS;
}

static srt_cuda_fast_entry_t *find_entry(srt_cuda_fast_t *fast, unsigned set,
					 const srt_cuda_product_t *p)
{
	for (int i = 0; i < SRT_CUDA_FAST_NWAYS; i++) {
		srt_cuda_fast_entry_t *entry = &fast->entries[set][i];

		if (entry->used && memcmp(&entry->problem, p, sizeof(*p)) == 0)
			return entry;
	}
	return NULL;
}

srt_status_t srt_cuda_fast_choose(srt_cuda_fast_t *fast, const srt_cuda_product_t *p,
				  srt_cuda_algorithm_t *algorithm)
{
	const srt_host_services_t *host = fast->device->host;
	const unsigned set = set_of(p);
	srt_status_t status = SRT_OK;
	srt_cuda_fast_entry_t *entry, made = { .problem = *p, .used = 1 };
	cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
	bool is_new = false;
	float waves = 0;

	pthread_mutex_lock(&fast->lock);
	entry = find_entry(fast, set, p);
	if (entry == NULL) {
		srt_cuda_scope_t scope = srt_cuda_enter(fast->device);

		code = request_algorithm(fast, &made, &waves);
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
			fast->oldest[set] =
				(uint8_t)((fast->oldest[set] + 1) % SRT_CUDA_FAST_NWAYS);
			*entry = made;
			is_new = true;
		}
	}
	if (status == SRT_OK && !entry->can)
		status = SRT_ERR_UNSUPPORTED;
	if (status == SRT_OK)
		*algorithm = entry->algorithm;
	pthread_mutex_unlock(&fast->lock);
	if (is_new)
		log_choice(fast, &made, code, waves);
	return status;
}
