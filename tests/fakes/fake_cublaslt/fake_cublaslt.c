/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See fake_cublaslt.h: the handle, descriptors, and what tests ask. Descriptors begin with the
 * structs of fake.h.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/fake_cublaslt/fake.h"
#include "tests/fakes/fake_cublaslt/fake_cublaslt.h"

#define MOST_NAMES 32
#define DESCRIPTOR_NBYTES 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	const char *name;
	long n;
} counts[MOST_NAMES];
static long ncalls, fails_at, nlive, ndescriptors, ncomplaints, ncomputed;
static size_t last_workspace;
static int fail_code, refused;
static char first_complaint[256];
static job_t *jobs; /* a stream that failed runs none: freed with the last handle */
static CUresult (*launch_host_func)(CUstream, CUhostFn, void *);

void fake_complain(const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&lock);
	va_start(args, format);
	if (ncomplaints++ == 0)
		vsnprintf(first_complaint, sizeof(first_complaint), format, args);
	va_end(args);
	pthread_mutex_unlock(&lock);
}

int fake_enter(const char *name)
{
	int code = 0, i = 0;

	pthread_mutex_lock(&lock);
	while (i < MOST_NAMES - 1 && counts[i].name != NULL && strcmp(counts[i].name, name) != 0)
		i++;
	counts[i].name = name;
	counts[i].n++;
	ncalls++;
	if (fails_at > 0 && --fails_at == 0)
		code = fail_code;
	pthread_mutex_unlock(&lock);
	return code;
}

/* ---- descriptors ------------------------------------------------------------------------- */

size_t cublasLtGetVersion(void)
{
	return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
	return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_OF_FAKE";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
	(void)status;
	return "a status of the fake";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
	ENTER();
	*handle = calloc(1, 16);
	pthread_mutex_lock(&lock);
	nlive++;
	pthread_mutex_unlock(&lock);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
	job_t *gone = NULL;

	fake_enter(__func__);
	free(handle);
	pthread_mutex_lock(&lock);
	if (--nlive == 0) {
		gone = jobs;
		jobs = NULL;
	}
	pthread_mutex_unlock(&lock);
	while (gone != NULL) {
		job_t *next = gone->next;

		free(gone);
		gone = next;
	}
	return CUBLAS_STATUS_SUCCESS;
}

/* More than cublasLt.h has room for, as of a later version. */
static void *descriptor_new(const void *begin, size_t nbytes)
{
	unsigned char *p = malloc(DESCRIPTOR_NBYTES);

	if (p == NULL)
		abort();
	memset(p, 0xa5, DESCRIPTOR_NBYTES);
	memcpy(p, begin, nbytes);
	pthread_mutex_lock(&lock);
	ndescriptors++;
	pthread_mutex_unlock(&lock);
	return p;
}

static cublasStatus_t descriptor_free(void *desc)
{
	uint32_t magic;

	memcpy(&magic, desc, sizeof(magic));
	if (magic != MAGIC)
		fake_complain("a descriptor that does not live is destroyed");
	memset(desc, 0, DESCRIPTOR_NBYTES);
	free(desc);
	pthread_mutex_lock(&lock);
	ndescriptors--;
	pthread_mutex_unlock(&lock);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
					cudaDataType_t scale)
{
	product_t product = { .magic = MAGIC, .compute = compute, .scale = scale };

	ENTER();
	if (scale != CUDA_R_32F)
		return CUBLAS_STATUS_INVALID_VALUE;
	*desc = descriptor_new(&product, sizeof(product));
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
	fake_enter(__func__);
	return descriptor_free(desc);
}

static cublasStatus_t take(void *to, size_t size, const void *from, size_t nbytes)
{
	if (size != nbytes)
		return CUBLAS_STATUS_INVALID_VALUE;
	memcpy(to, from, nbytes);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
					      cublasLtMatmulDescAttributes_t attribute,
					      const void *value, size_t nbytes)
{
	product_t *p = (product_t *)(void *)desc;

	ENTER();
	if (p->magic != MAGIC)
		return CUBLAS_STATUS_INVALID_VALUE;
	switch (attribute) {
	case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
		return take(&p->compute, sizeof(p->compute), value, nbytes);
	case CUBLASLT_MATMUL_DESC_TRANSA:
		return take(&p->trans_a, sizeof(p->trans_a), value, nbytes);
	case CUBLASLT_MATMUL_DESC_TRANSB:
		return take(&p->trans_b, sizeof(p->trans_b), value, nbytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE:
		return take(&p->epilogue, sizeof(p->epilogue), value, nbytes);
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
		return take(&p->bias, sizeof(p->bias), value, nbytes);
	default:
		return CUBLAS_STATUS_INVALID_VALUE;
	}
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *desc, cudaDataType type,
					  uint64_t rows, uint64_t cols, int64_t ld)
{
	layout_t layout = { MAGIC, type, rows, cols, ld, 0, 1, 0 };

	ENTER();
	*desc = descriptor_new(&layout, sizeof(layout));
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t desc)
{
	fake_enter(__func__);
	return descriptor_free(desc);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t desc,
						cublasLtMatrixLayoutAttribute_t attribute,
						const void *value, size_t nbytes)
{
	layout_t *l = (layout_t *)(void *)desc;

	ENTER();
	if (l->magic != MAGIC)
		return CUBLAS_STATUS_INVALID_VALUE;
	switch (attribute) {
	case CUBLASLT_MATRIX_LAYOUT_TYPE:
		return take(&l->type, sizeof(l->type), value, nbytes);
	case CUBLASLT_MATRIX_LAYOUT_ROWS:
		return take(&l->rows, sizeof(l->rows), value, nbytes);
	case CUBLASLT_MATRIX_LAYOUT_COLS:
		return take(&l->cols, sizeof(l->cols), value, nbytes);
	case CUBLASLT_MATRIX_LAYOUT_LD:
		return take(&l->ld, sizeof(l->ld), value, nbytes);
	case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
		return take(&l->batch, sizeof(l->batch), value, nbytes);
	case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
		return take(&l->stride, sizeof(l->stride), value, nbytes);
	default:
		return CUBLAS_STATUS_INVALID_VALUE;
	}
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *desc)
{
	preference_t preference = { .magic = MAGIC, .align = { 256, 256, 256, 256 } };

	ENTER();
	*desc = descriptor_new(&preference, sizeof(preference));
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t desc)
{
	fake_enter(__func__);
	return descriptor_free(desc);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t desc,
						    cublasLtMatmulPreferenceAttributes_t attribute,
						    const void *value, size_t nbytes)
{
	preference_t *p = (preference_t *)(void *)desc;

	ENTER();
	if (p->magic != MAGIC)
		return CUBLAS_STATUS_INVALID_VALUE;
	switch (attribute) {
	case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
		return take(&p->workspace, sizeof(p->workspace), value, nbytes);
	case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
		return take(&p->schemes, sizeof(p->schemes), value, nbytes);
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
		return take(&p->align[0], sizeof(p->align[0]), value, nbytes);
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
		return take(&p->align[1], sizeof(p->align[1]), value, nbytes);
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
		return take(&p->align[2], sizeof(p->align[2]), value, nbytes);
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
		return take(&p->align[3], sizeof(p->align[3]), value, nbytes);
	default:
		return CUBLAS_STATUS_INVALID_VALUE;
	}
}

/* ---- products ---------------------------------------------------------------------------- */

/* Where no test has given it: the driver that the backend was told to load. */
static void find_launch_host_func(void)
{
	const char *path = getenv("SHARDRT_CUDA_DRIVER");
	void *driver = path != NULL ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
	void *launch = driver != NULL ? dlsym(driver, "cuLaunchHostFunc") : NULL;

	if (launch == NULL)
		abort();
	memcpy(&launch_host_func, &launch, sizeof(launch));
}

CUresult fake_put(CUstream stream, job_t *job, CUhostFn fn)
{
	pthread_mutex_lock(&lock);
	if (launch_host_func == NULL)
		find_launch_host_func();
	job->next = jobs;
	jobs = job;
	pthread_mutex_unlock(&lock);
	return launch_host_func(stream, fn, job);
}

void fake_computed(size_t workspace_nbytes)
{
	pthread_mutex_lock(&lock);
	ncomputed++;
	last_workspace = workspace_nbytes;
	pthread_mutex_unlock(&lock);
}

bool fake_refuses(int kind)
{
	return refused == kind;
}

/* ---- for tests --------------------------------------------------------------------------- */

static void api_reset(void)
{
	pthread_mutex_lock(&lock);
	memset(counts, 0, sizeof(counts));
	ncalls = fails_at = ncomplaints = ncomputed = 0;
	fail_code = refused = 0;
	first_complaint[0] = 0;
	pthread_mutex_unlock(&lock);
}

static void api_fail_at(long k, int code)
{
	pthread_mutex_lock(&lock);
	fails_at = k;
	fail_code = code;
	pthread_mutex_unlock(&lock);
}

static void api_refuse(int kind)
{
	refused = kind;
}

static long api_count(const char *name)
{
	long n = name != NULL ? 0 : ncalls;

	pthread_mutex_lock(&lock);
	for (int i = 0; name != NULL && i < MOST_NAMES && counts[i].name != NULL; i++)
		if (strcmp(counts[i].name, name) == 0)
			n = counts[i].n;
	pthread_mutex_unlock(&lock);
	return n;
}

static long api_computed(void)
{
	long n;

	pthread_mutex_lock(&lock);
	n = ncomputed;
	pthread_mutex_unlock(&lock);
	return n;
}

static size_t api_workspace(void)
{
	size_t nbytes;

	pthread_mutex_lock(&lock);
	nbytes = last_workspace;
	pthread_mutex_unlock(&lock);
	return nbytes;
}

static long api_live(void)
{
	return nlive + ndescriptors;
}

static long api_complaints(void)
{
	return ncomplaints;
}

static const char *api_complaint(void)
{
	return first_complaint;
}

const fake_cublaslt_api_t *fake_cublaslt_api(void *launch);

const fake_cublaslt_api_t *fake_cublaslt_api(void *launch)
{
	static const fake_cublaslt_api_t api = {
		.reset = api_reset,
		.fail_at = api_fail_at,
		.refuse = api_refuse,
		.count = api_count,
		.computed = api_computed,
		.workspace = api_workspace,
		.live = api_live,
		.complaints = api_complaints,
		.complaint = api_complaint,
	};

	memcpy(&launch_host_func, &launch, sizeof(launch));
	return &api;
}
