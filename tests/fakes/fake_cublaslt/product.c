/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Heuristics and products of the fake: D = alpha op(A) op(B) + beta C + bias of D's rows, in
 * double, rounded once, from the descriptors alone.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/fake_cublaslt/fake.h"
#include "tests/fakes/fake_cublaslt/fake_cublaslt.h"
#include "tests/harness/half.h"

/* ---- checks ------------------------------------------------------------------------------ */

static uint64_t hash(uint64_t h, const void *bytes, size_t nbytes)
{
	for (size_t i = 0; i < nbytes; i++)
		h = (h ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
	return h;
}

/* The problem without the bias's address. */
static uint64_t problem_of(const product_t *p, const layout_t *a, const layout_t *b,
			   const layout_t *c, const layout_t *d)
{
	const layout_t *layouts[] = { a, b, c, d };
	product_t q = *p;
	uint64_t h = 14695981039346656037u;

	q.bias = q.bias != 0;
	h = hash(h, &q, sizeof(q));
	for (int i = 0; i < 4; i++)
		h = hash(h, layouts[i], sizeof(layout_t));
	return h;
}

static bool legal(const layout_t *l, const char *name)
{
	if (l->magic == MAGIC && l->rows > 0 && l->cols > 0 && l->ld >= (int64_t)l->rows &&
	    l->batch >= 1 && l->stride >= 0)
		return true;
	fake_complain("layout of %s: %llu x %llu, ld %lld, batch %d, stride %lld", name,
		      (unsigned long long)l->rows, (unsigned long long)l->cols, (long long)l->ld,
		      l->batch, (long long)l->stride);
	return false;
}

static bool fits(const product_t *p, const layout_t *a, const layout_t *b, const layout_t *c,
		 const layout_t *d)
{
	const uint64_t m = p->trans_a ? a->cols : a->rows, ka = p->trans_a ? a->rows : a->cols;
	const uint64_t n = p->trans_b ? b->rows : b->cols, kb = p->trans_b ? b->cols : b->rows;
	const bool wider = d->type == CUDA_R_32F && !p->bias; /* else the bias has D's type */
	const bool types =
		a->type == b->type && c->type == d->type && (a->type == d->type || wider);
	const bool tf32 = p->compute == CUBLAS_COMPUTE_32F_FAST_TF32;

	if (!legal(a, "A") || !legal(b, "B") || !legal(c, "C") || !legal(d, "D"))
		return false;
	if (p->magic == MAGIC && ka == kb && d->rows == m && d->cols == n && c->rows == m &&
	    c->cols == n && types && a->batch == b->batch && a->batch == c->batch &&
	    a->batch == d->batch && (p->compute == CUBLAS_COMPUTE_32F || tf32) &&
	    (!tf32 || a->type == CUDA_R_32F) &&
	    (p->epilogue == CUBLASLT_EPILOGUE_BIAS) == !!p->bias)
		return true;
	fake_complain("a product of %llu x %llu by %llu x %llu to %llu x %llu",
		      (unsigned long long)m, (unsigned long long)ka, (unsigned long long)kb,
		      (unsigned long long)n, (unsigned long long)d->rows,
		      (unsigned long long)d->cols);
	return false;
}

static uint32_t align_of(uint64_t address)
{
	uint32_t align = 256;

	while (align > 1 && address % align != 0)
		align /= 2;
	return align;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
					      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
					      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
					      cublasLtMatmulPreference_t preference, int wanted,
					      cublasLtMatmulHeuristicResult_t *results, int *n)
{
	const product_t *p = (const product_t *)(const void *)product;
	const preference_t *pref = (const preference_t *)(const void *)preference;
	const layout_t *la = (const layout_t *)(const void *)a;
	const layout_t *lb = (const layout_t *)(const void *)b;
	const layout_t *lc = (const layout_t *)(const void *)c;
	const layout_t *ld = (const layout_t *)(const void *)d;
	algorithm_t algorithm = { .magic = MAGIC };

	ENTER();
	*n = 0;
	if (handle == NULL || wanted < 1 || pref->magic != MAGIC || !fits(p, la, lb, lc, ld))
		return CUBLAS_STATUS_INVALID_VALUE;
	if (p->bias && fake_refuses(FAKE_REFUSE_BIAS))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	algorithm.problem = problem_of(p, la, lb, lc, ld);
	algorithm.workspace =
		pref->workspace < WANTED_WORKSPACE ? pref->workspace : WANTED_WORKSPACE;
	memcpy(algorithm.align, pref->align, sizeof(pref->align));
	algorithm.align[4] = p->bias ? align_of(p->bias) : 1;
	memset(results, 0xa5, sizeof(*results));
	memset(&results->algo, 0, sizeof(results->algo));
	memcpy(&results->algo, &algorithm, sizeof(algorithm));
	results->workspaceSize = algorithm.workspace;
	results->state = CUBLAS_STATUS_SUCCESS;
	*n = 1;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
						    cublasLtMatmulAlgoConfigAttributes_t attribute,
						    void *value, size_t nbytes, size_t *written)
{
	int32_t one = 1;

	(void)algo, (void)attribute;
	if (nbytes < sizeof(one))
		return CUBLAS_STATUS_INVALID_VALUE;
	memcpy(value, &one, sizeof(one));
	*written = sizeof(one);
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---------------------------------------------------------------------------- */

static size_t size_of(const layout_t *l)
{
	return l->type == CUDA_R_32F ? 4 : 2;
}

static srt_dtype_t dtype_of(const layout_t *l)
{
	return l->type == CUDA_R_16F ? SRT_F16 : SRT_BF16;
}

static double load(const layout_t *l, const void *p, int64_t at)
{
	uint16_t bits;
	float v;

	if (l->type == CUDA_R_32F) {
		memcpy(&v, (const char *)p + at * 4, sizeof(v));
		return (double)v;
	}
	memcpy(&bits, (const char *)p + at * 2, sizeof(bits));
	return (double)half_value(dtype_of(l), bits);
}

static void store(const layout_t *l, void *p, int64_t at, double x)
{
	float v = (float)x;
	uint16_t bits;

	if (l->type == CUDA_R_32F) {
		memcpy((char *)p + at * 4, &v, sizeof(v));
		return;
	}
	bits = half_bits(dtype_of(l), v);
	memcpy((char *)p + at * 2, &bits, sizeof(bits));
}

/* To 10 bits of mantissa, as tensor cores take fp32. */
static double operand(const product_t *p, double v)
{
	float x = (float)v;
	uint32_t bits;

	if (p->compute != CUBLAS_COMPUTE_32F_FAST_TF32)
		return v;
	memcpy(&bits, &x, sizeof(bits));
	bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
	memcpy(&x, &bits, sizeof(x));
	return (double)x;
}

static double element(const job_t *job, int64_t item, int64_t i, int64_t j)
{
	const layout_t *a = &job->a, *b = &job->b;
	const product_t *p = &job->product;
	const int64_t depth = (int64_t)(p->trans_a ? a->rows : a->cols);
	double sum = 0;

	for (int64_t k = 0; k < depth; k++) {
		int64_t ia = item * a->stride + (p->trans_a ? k + i * a->ld : i + k * a->ld);
		int64_t ib = item * b->stride + (p->trans_b ? j + k * b->ld : k + j * b->ld);

		sum += operand(p, load(a, job->pa, ia)) * operand(p, load(b, job->pb, ib));
	}
	return sum;
}

/* In the stream. */
static void compute(void *arg)
{
	const job_t *job = arg;
	const layout_t *d = &job->d;

	if (job->workspace != NULL)
		memset(job->workspace, 0x5a, job->workspace_nbytes);
	for (int64_t item = 0; item < d->batch; item++) {
		for (int64_t j = 0; j < (int64_t)d->cols; j++) {
			for (int64_t i = 0; i < (int64_t)d->rows; i++) {
				int64_t at = item * d->stride + i + j * d->ld;
				double v = (double)job->alpha * element(job, item, i, j);

				if (job->beta != 0.0f)
					v += (double)job->beta *
					     load(&job->c, job->pc,
						  item * job->c.stride + i + j * job->c.ld);
				if (job->product.bias)
					v += load(d, (const void *)(uintptr_t)job->product.bias, i);
				store(d, job->pd, at, v);
			}
		}
	}
	fake_computed(job->workspace_nbytes);
}

/* Whether the pointers keep what was promised for the algorithm. */
static bool keeps(const job_t *job, const algorithm_t *algorithm)
{
	const layout_t *layouts[] = { &job->a, &job->b, &job->c, &job->d };
	const uint64_t addresses[] = { (uintptr_t)job->pa, (uintptr_t)job->pb, (uintptr_t)job->pc,
				       (uintptr_t)job->pd, job->product.bias };

	if (algorithm->magic != MAGIC ||
	    algorithm->problem != problem_of(&job->product, &job->a, &job->b, &job->c, &job->d)) {
		fake_complain("the algorithm was given for another problem");
		return false;
	}
	for (int i = 0; i < 5; i++) {
		if (i < 4 && !addresses[i]) {
			fake_complain("operand %d is NULL", i);
			return false;
		}
		if (addresses[i] && addresses[i] % algorithm->align[i] != 0) {
			fake_complain("operand %d is not aligned to %u bytes", i,
				      algorithm->align[i]);
			return false;
		}
		if (addresses[i] && i < 4 && addresses[i] % size_of(layouts[i]) != 0) {
			fake_complain("operand %d is between two elements", i);
			return false;
		}
	}
	if (job->workspace_nbytes < algorithm->workspace ||
	    (algorithm->workspace && job->workspace == NULL)) {
		fake_complain("less workspace than the algorithm needs");
		return false;
	}
	if (algorithm->workspace && (uintptr_t)job->workspace % WORKSPACE_ALIGN != 0) {
		fake_complain("the workspace is not aligned to %u bytes", WORKSPACE_ALIGN);
		return false;
	}
	return true;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
			      const void *alpha, const void *pa, cublasLtMatrixLayout_t a,
			      const void *pb, cublasLtMatrixLayout_t b, const void *beta,
			      const void *pc, cublasLtMatrixLayout_t c, void *pd,
			      cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
			      void *workspace, size_t workspace_nbytes, cudaStream_t stream)
{
	algorithm_t algorithm;
	job_t *job;

	ENTER();
	job = calloc(1, sizeof(*job));
	if (handle == NULL || job == NULL)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	memcpy(&job->product, product, sizeof(job->product));
	memcpy(&job->a, a, sizeof(job->a));
	memcpy(&job->b, b, sizeof(job->b));
	memcpy(&job->c, c, sizeof(job->c));
	memcpy(&job->d, d, sizeof(job->d));
	memcpy(&job->alpha, alpha, sizeof(float));
	memcpy(&job->beta, beta, sizeof(float));
	memcpy(&algorithm, algo, sizeof(algorithm));
	job->pa = pa;
	job->pb = pb;
	job->pc = pc;
	job->pd = pd;
	job->workspace = workspace;
	job->workspace_nbytes = workspace_nbytes;
	if (!fits(&job->product, &job->a, &job->b, &job->c, &job->d) || !keeps(job, &algorithm)) {
		free(job);
		return CUBLAS_STATUS_INVALID_VALUE;
	}
	return fake_put((CUstream)stream, job, compute) == CUDA_SUCCESS ?
		       CUBLAS_STATUS_SUCCESS :
		       CUBLAS_STATUS_EXECUTION_FAILED;
}
