/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See onednn.h. A product of floats is two passes over the pool: the operands are rounded to bf16
 * into scratch, then each part multiplies its rows of C on its thread. Tensors of bf16 are
 * multiplied in place. oneDNN caches the code of each shape.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "backends/cpu/onednn.h"
#include "backends/cpu/pack.h"
#include "device/backend.h"

#if defined(HAVE_ONEDNN) && defined(HAVE_AVX512)

#include <dlfcn.h>
#include <immintrin.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define LIBRARY "libdnnl.so." STRING(DNNL_VERSION_MAJOR)

#define MIN_SIZE 32  /* of m, n and k: for less, conversions cost more than they save */
#define PART_ROWS 32 /* rows of C that parts are multiples of */

/* The functions that are called. */
#define FUNCTIONS(F)                                                                               \
	F(engine_create)                                                                           \
	F(engine_destroy)                                                                          \
	F(stream_create)                                                                           \
	F(stream_wait)                                                                             \
	F(stream_destroy)                                                                          \
	F(memory_desc_init_by_strides)                                                             \
	F(matmul_desc_init)                                                                        \
	F(primitive_attr_create)                                                                   \
	F(primitive_attr_destroy)                                                                  \
	F(post_ops_create)                                                                         \
	F(post_ops_destroy)                                                                        \
	F(post_ops_append_sum)                                                                     \
	F(primitive_attr_set_post_ops)                                                             \
	F(primitive_desc_create)                                                                   \
	F(primitive_desc_destroy)                                                                  \
	F(primitive_create)                                                                        \
	F(primitive_destroy)                                                                       \
	F(primitive_execute)                                                                       \
	F(memory_create)                                                                           \
	F(memory_destroy)

#define DECLARE(name) __typeof__(&dnnl_##name) name;

struct srt_cpu_onednn {
	void *library;
	FUNCTIONS(DECLARE)
	void (*omp_set_num_threads)(int); /* NULL: it was built without OpenMP */
	dnnl_engine_t engine;
	dnnl_primitive_attr_t plain, adds; /* how C is stored */
};

static int load_library(srt_cpu_onednn_t *dnn)
{
	const struct {
		const char *name;
		void *slot;
	} functions[] = {
#define ENTRY(name) { "dnnl_" #name, &dnn->name },
		FUNCTIONS(ENTRY)
	};
	void *address;

	dnn->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	for (size_t i = 0; dnn->library != NULL && i < SRT_ARRAY_LEN(functions); i++) {
		address = dlsym(dnn->library, functions[i].name);
		if (address == NULL)
			return 0;
		memcpy(functions[i].slot, &address, sizeof(address));
	}
	if (dnn->library != NULL) {
		address = dlsym(dnn->library, "omp_set_num_threads");
		memcpy(&dnn->omp_set_num_threads, &address, sizeof(address));
	}
	return dnn->library != NULL;
}

static int create_engine(srt_cpu_onednn_t *dnn)
{
	dnnl_post_ops_t sum = NULL;
	int ok = dnn->engine_create(&dnn->engine, dnnl_cpu, 0) == dnnl_success &&
		 dnn->primitive_attr_create(&dnn->plain) == dnnl_success &&
		 dnn->primitive_attr_create(&dnn->adds) == dnnl_success &&
		 dnn->post_ops_create(&sum) == dnnl_success &&
		 dnn->post_ops_append_sum(sum, 1.0f) == dnnl_success &&
		 dnn->primitive_attr_set_post_ops(dnn->adds, sum) == dnnl_success;

	if (sum != NULL)
		dnn->post_ops_destroy(sum);
	return ok;
}

srt_cpu_onednn_t *srt_cpu_onednn_open(void)
{
	srt_cpu_onednn_t *dnn;

	__builtin_cpu_init();
	if (!__builtin_cpu_supports("avx512bf16")) {
		srt_fail(SRT_ERR_UNSUPPORTED, "this processor does not multiply bf16");
		return NULL;
	}
	dnn = calloc(1, sizeof(*dnn));
	if (dnn != NULL && load_library(dnn) && create_engine(dnn))
		return dnn;
	srt_fail(SRT_ERR_UNSUPPORTED, LIBRARY " cannot be used; install oneDNN (Debian: libdnnl2)");
	srt_cpu_onednn_close(dnn);
	return NULL;
}

void srt_cpu_onednn_close(srt_cpu_onednn_t *dnn)
{
	if (dnn == NULL)
		return;
	if (dnn->plain != NULL)
		dnn->primitive_attr_destroy(dnn->plain);
	if (dnn->adds != NULL)
		dnn->primitive_attr_destroy(dnn->adds);
	if (dnn->engine != NULL)
		dnn->engine_destroy(dnn->engine);
	free(dnn); /* the library stays loaded: its OpenMP threads may still exist */
}

int srt_cpu_onednn_takes(const srt_cpu_matmul_t *mm)
{
	if (mm->dtype == SRT_F16 || mm->shape.c_is_f32)
		return 0;
	return mm->shape.batch <= 1 && mm->shape.alpha == 1.0f && mm->shape.m >= MIN_SIZE &&
	       mm->shape.n >= MIN_SIZE && mm->shape.k >= MIN_SIZE;
}

/* ---- one product ------------------------------------------------------------------------ */

/* A stored operand: rows of cols elements, ld apart. bf16: what is multiplied, rows pitch apart:
 * the operand itself, or floats rounded to scratch. */
typedef struct operand {
	const void *src;
	int64_t rows, cols, ld;
	const uint16_t *bf16;
	int64_t pitch;
} operand_t;

typedef struct product {
	srt_cpu_onednn_t *dnn;
	const srt_cpu_matmul_t *mm;
	operand_t a, b;
	uint16_t *scratch[2]; /* of a and b, or NULL */
	int nparts;
	atomic_int failed; /* a dnnl_status_t */
} product_t;

/* scratch NULL: the operand is of bf16. */
static operand_t make_operand(const void *src, int64_t rows, int64_t cols, int64_t ld,
			      uint16_t *scratch)
{
	return (operand_t){ .src = src,
			    .rows = rows,
			    .cols = cols,
			    .ld = ld,
			    .bf16 = scratch != NULL ? scratch : src,
			    .pitch = scratch != NULL ? cols : ld };
}

static size_t operand_nbytes(int64_t rows, int64_t cols)
{
	return srt_align_up((size_t)rows * (size_t)cols * sizeof(uint16_t), 64);
}

size_t srt_cpu_onednn_scratch(const srt_cpu_matmul_t *mm)
{
	return mm->dtype == SRT_BF16 ? 0 :
				       operand_nbytes(mm->shape.m, mm->shape.k) +
					       operand_nbytes(mm->shape.k, mm->shape.n);
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static void round_row(
	uint16_t *dst, const float *src, int64_t n)
{
	for (; n >= 16; n -= 16, src += 16, dst += 16)
		_mm256_storeu_si256((__m256i *)(void *)dst,
				    (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(src)));
	if (n > 0) {
		__mmask16 mask = (__mmask16)((1u << n) - 1u);

		_mm256_mask_storeu_epi16(dst, mask,
					 (__m256i)_mm512_cvtneps_pbh(
						 _mm512_maskz_loadu_ps(mask, src)));
	}
}

static void round_operand(const operand_t *x, uint16_t *scratch, int part, int nparts)
{
	int64_t end = x->rows * (part + 1) / nparts;

	for (int64_t r = x->rows * part / nparts; r < end; r++)
		round_row(scratch + r * x->cols, (const float *)x->src + r * x->ld, x->cols);
}

static void round_part(void *arg, int64_t first, int64_t end, int thread)
{
	product_t *p = arg;

	(void)thread;
	for (int64_t part = first; part < end; part++) {
		round_operand(&p->a, p->scratch[0], (int)part, p->nparts);
		round_operand(&p->b, p->scratch[1], (int)part, p->nparts);
	}
}

/* A matrix of (rows,cols) in memory at p; strides between rows and columns. */
static dnnl_status_t describe_matrix(const srt_cpu_onednn_t *dnn, dnnl_memory_desc_t *desc,
				     dnnl_data_type_t type, int64_t rows, int64_t cols,
				     int64_t row_stride, int64_t col_stride)
{
	const dnnl_dims_t dims = { rows, cols }, strides = { row_stride, col_stride };

	return dnn->memory_desc_init_by_strides(desc, 2, dims, type, strides);
}

/* Objects of oneDNN that a call creates and destroys. */
typedef struct call {
	dnnl_memory_desc_t a, b, c, bias;
	dnnl_primitive_desc_t desc;
	dnnl_primitive_t primitive;
	dnnl_stream_t stream;
	dnnl_memory_t memory[4];
} call_t;

#define TRY_DNN(call)                                                                              \
	do {                                                                                       \
		dnnl_status_t status_ = (call);                                                    \
		if (status_ != dnnl_success)                                                       \
			return status_;                                                            \
	} while (0)

static dnnl_status_t make_primitive(const product_t *p, int64_t rows, call_t *call)
{
	const srt_cpu_onednn_t *dnn = p->dnn;
	const srt_cpu_matmul_t *mm = p->mm;
	const dnnl_data_type_t type = mm->dtype == SRT_BF16 ? dnnl_bf16 : dnnl_f32;
	const int64_t lda = p->a.pitch, ldb = p->b.pitch;
	dnnl_matmul_desc_t desc;

	TRY_DNN(describe_matrix(dnn, &call->a, dnnl_bf16, rows, mm->shape.k,
				mm->shape.trans_a ? 1 : lda, mm->shape.trans_a ? lda : 1));
	TRY_DNN(describe_matrix(dnn, &call->b, dnnl_bf16, mm->shape.k, mm->shape.n,
				mm->shape.trans_b ? 1 : ldb, mm->shape.trans_b ? ldb : 1));
	TRY_DNN(describe_matrix(dnn, &call->c, type, rows, mm->shape.n, mm->shape.ldc, 1));
	TRY_DNN(describe_matrix(dnn, &call->bias, type, 1, mm->shape.n, mm->shape.n, 1));
	TRY_DNN(dnn->matmul_desc_init(&desc, &call->a, &call->b,
				      mm->bias != NULL ? &call->bias : NULL, &call->c));
	TRY_DNN(dnn->primitive_desc_create(&call->desc, &desc,
					   mm->shape.accumulate ? dnn->adds : dnn->plain,
					   dnn->engine, NULL));
	return dnn->primitive_create(&call->primitive, call->desc);
}

static dnnl_status_t execute_part(const product_t *p, int64_t row, call_t *call)
{
	const srt_cpu_onednn_t *dnn = p->dnn;
	const srt_cpu_matmul_t *mm = p->mm;
	dnnl_exec_arg_t args[4];
	const struct {
		int arg;
		const dnnl_memory_desc_t *desc;
		const void *data;
	} tensors[] = {
		{ DNNL_ARG_SRC, &call->a, p->a.bf16 + row * (mm->shape.trans_a ? 1 : p->a.pitch) },
		{ DNNL_ARG_WEIGHTS, &call->b, p->b.bf16 },
		{ DNNL_ARG_DST, &call->c, srt_cpu_element(mm->c, mm->dtype, row * mm->shape.ldc) },
		{ DNNL_ARG_BIAS, &call->bias, mm->bias },
	};
	int nargs = mm->bias != NULL ? 4 : 3;

	for (int i = 0; i < nargs; i++) {
		TRY_DNN(dnn->memory_create(&call->memory[i], tensors[i].desc, dnn->engine,
					   (void *)(uintptr_t)tensors[i].data));
		args[i] = (dnnl_exec_arg_t){ tensors[i].arg, call->memory[i] };
	}
	TRY_DNN(dnn->stream_create(&call->stream, dnn->engine, dnnl_stream_default_flags));
	TRY_DNN(dnn->primitive_execute(call->primitive, call->stream, nargs, args));
	return dnn->stream_wait(call->stream);
}

static void end_call(const srt_cpu_onednn_t *dnn, call_t *call)
{
	for (int i = 0; i < 4; i++)
		if (call->memory[i] != NULL)
			dnn->memory_destroy(call->memory[i]);
	if (call->stream != NULL)
		dnn->stream_destroy(call->stream);
	if (call->primitive != NULL)
		dnn->primitive_destroy(call->primitive);
	if (call->desc != NULL)
		dnn->primitive_desc_destroy(call->desc);
}

static void multiply_part(void *arg, int64_t first, int64_t end, int thread)
{
	product_t *p = arg;
	const int64_t units = (p->mm->shape.m + PART_ROWS - 1) / PART_ROWS;

	(void)thread;
	if (p->dnn->omp_set_num_threads != NULL)
		p->dnn->omp_set_num_threads(1); /* the pool provides the threads */
	for (int64_t part = first; part < end; part++) {
		int64_t row = units * part / p->nparts * PART_ROWS;
		int64_t next = units * (part + 1) / p->nparts * PART_ROWS;
		call_t call = { .desc = NULL };
		dnnl_status_t status;

		next = next < p->mm->shape.m ? next : p->mm->shape.m;
		if (row >= next)
			continue;
		status = make_primitive(p, next - row, &call);
		if (status == dnnl_success)
			status = execute_part(p, row, &call);
		end_call(p->dnn, &call);
		if (status != dnnl_success)
			atomic_store(&p->failed, (int)status);
	}
}

srt_status_t srt_cpu_onednn_matmul(srt_cpu_onednn_t *dnn, srt_cpu_pool_t *pool,
				   const srt_cpu_matmul_t *mm, void *scratch)
{
	product_t p = { .dnn = dnn, .mm = mm, .nparts = srt_cpu_pool_threads(pool) };
	int failed;

	if (mm->dtype == SRT_F32) {
		p.scratch[0] = scratch;
		p.scratch[1] =
			p.scratch[0] + operand_nbytes(mm->shape.m, mm->shape.k) / sizeof(uint16_t);
	}
	p.a = make_operand(mm->a, mm->shape.trans_a ? mm->shape.k : mm->shape.m,
			   mm->shape.trans_a ? mm->shape.m : mm->shape.k, mm->shape.lda,
			   p.scratch[0]);
	p.b = make_operand(mm->b, mm->shape.trans_b ? mm->shape.n : mm->shape.k,
			   mm->shape.trans_b ? mm->shape.k : mm->shape.n, mm->shape.ldb,
			   p.scratch[1]);
	if (mm->dtype == SRT_F32)
		srt_cpu_pool_run(pool, round_part, &p, p.nparts, 1);
	srt_cpu_pool_run(pool, multiply_part, &p, p.nparts, 1);
	failed = atomic_load(&p.failed);
	if (failed != dnnl_success)
		return srt_fail(SRT_ERR_DEVICE, "matrix product by %s: its status is %d", LIBRARY,
				failed);
	return SRT_OK;
}

#else

srt_cpu_onednn_t *srt_cpu_onednn_open(void)
{
	srt_fail(SRT_ERR_UNSUPPORTED, "this library was built without oneDNN, or without kernels "
				      "for AVX-512; configure it --with-onednn (Debian: "
				      "libdnnl-dev)");
	return NULL;
}

void srt_cpu_onednn_close(srt_cpu_onednn_t *dnn)
{
	(void)dnn;
}

int srt_cpu_onednn_takes(const srt_cpu_matmul_t *mm)
{
	(void)mm;
	return 0;
}

size_t srt_cpu_onednn_scratch(const srt_cpu_matmul_t *mm)
{
	(void)mm;
	return 0;
}

srt_status_t srt_cpu_onednn_matmul(srt_cpu_onednn_t *dnn, srt_cpu_pool_t *pool,
				   const srt_cpu_matmul_t *mm, void *scratch)
{
	(void)dnn;
	(void)pool;
	(void)mm;
	(void)scratch;
	return SRT_ERR_UNSUPPORTED;
}

#endif

srt_status_t srt_cpu_onednn_probe(void)
{
	srt_cpu_onednn_t *dnn = srt_cpu_onednn_open();

	if (dnn == NULL)
		return SRT_ERR_UNSUPPORTED;
	srt_cpu_onednn_close(dnn);
	return SRT_OK;
}
