/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numerics mode fast of the cuda backend, over the fake driver and the fake cuBLASLt: products of
 * every form against sums in double, what is left to the exact kernels, the table of algorithms,
 * each call failing in turn, recordings, leaks. With SRT_TEST_CUDA=device the products alone, on
 * the device that there is.
 */
#include <math.h>
#include <stdlib.h>

#include "backends/core.h"
#include "tests/fake_cublaslt/fake_cublaslt.h"
#include "tests/fake_cuda.h"
#include "tests/half.h"
#include "tests/random.h"

#include <shardrt/shardrt.h>

#define LT_PATH "tests/fake_cublaslt/.libs/libfake_cublaslt.so"
#define INTERNAL_ERROR 14 /* CUBLAS_STATUS_INTERNAL_ERROR */
#define MOST 4096         /* elements of a tensor */
enum { C, A, B, BIAS, NTENSORS };

static const fake_cublaslt_api_t *lt;
static srt_context_t *context;
static srt_device_t *device;
static srt_stream_t *stream;
static srt_buffer_t *buffers[NTENSORS];
static float values[NTENSORS][MOST]; /* as stored: rounded to the type */
static char logged[8192];

static void keep_log(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	(void)level;
	strncat(logged, message, sizeof(logged) - strlen(logged) - 1);
	strncat(logged, "\n", sizeof(logged) - strlen(logged) - 1);
}

static void load_fakes(void)
{
	fake_cublaslt_api_fn *api;
	void *library, *launch;

	setenv("SHARDRT_CUDA_DRIVER", FAKE_CUDA_PATH, 1);
	setenv("SHARDRT_CUBLASLT_LIBRARY", LT_PATH, 1);
	setenv("FAKE_CUDA_KERNELS", "cpu", 1); /* their text is other tests' */
	setenv("FAKE_CUDA_DELAY_US", "10", 1);
	fake_cuda_load();
	f->set("kernels", 1);
	library = dlopen(LT_PATH, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	CHECK_OR_DIE(library != NULL);
	*(void **)&api = fake_symbol(library, FAKE_CUBLASLT_API_SYMBOL);
	*(void **)&launch = *(void **)&d.cuLaunchHostFunc;
	lt = api(launch);
}

static void open_context(srt_numerics_t numerics)
{
	const srt_context_options_t options = { .numerics = numerics };

	logged[0] = 0;
	CHECK_OK_OR_DIE(srt_context_create(&options, &context));
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	for (int i = 0; i < NTENSORS; i++)
		CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE,
						  (MOST + 64) * sizeof(float), "tensor",
						  &buffers[i]));
}

static void close_context(void)
{
	for (int i = 0; i < NTENSORS; i++)
		srt_buffer_destroy(buffers[i]);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	if (!lt)
		return;
	CHECK_INT(lt->live(), 0);
	CHECK_STR(lt->complaint(), "");
	CHECK_INT(f->leaks(), 0);
	CHECK_STR(f->complaint(), "");
}

/* ---- a product and its reference --------------------------------------------------------- */

typedef struct shape {
	srt_matmul_t mm;
	srt_dtype_t dtype;
	int bias, first; /* elements before the first of each tensor */
} shape_t;

static size_t size_of(srt_dtype_t dtype)
{
	return srt_dtype_bits(dtype) / 8;
}

static void upload(const shape_t *s)
{
	static unsigned char bytes[(MOST + 64) * sizeof(float)];

	for (int t = 0; t < NTENSORS; t++) {
		for (int i = 0; i < MOST; i++) {
			float v = (float)((int)(random32() >> 8) - (1 << 23)) * 0x1p-23f;
			uint16_t half = s->dtype == SRT_F32 ? 0 : half_bits(s->dtype, v);

			if (s->dtype != SRT_F32) {
				v = half_value(s->dtype, half);
				memcpy(&bytes[(size_t)(s->first + i) * 2], &half, 2);
			} else {
				memcpy(&bytes[(size_t)(s->first + i) * 4], &v, 4);
			}
			values[t][i] = v;
		}
		CHECK_OK_OR_DIE(srt_copy_from_host(stream, buffers[t], 0, bytes, sizeof(bytes)));
	}
}

static srt_matmul_t views(const shape_t *s)
{
	const size_t offset = (size_t)s->first * size_of(s->dtype);
	srt_matmul_t mm = s->mm;

	mm.c = srt_view(buffers[C], offset, s->dtype);
	mm.a = srt_view(buffers[A], offset, s->dtype);
	mm.b = srt_view(buffers[B], offset, s->dtype);
	if (s->bias)
		mm.bias = srt_view(buffers[BIAS], offset, s->dtype);
	return mm;
}

static void download(const shape_t *s, float *c)
{
	static unsigned char bytes[(MOST + 64) * sizeof(float)];

	CHECK_OK(srt_copy_to_host(stream, bytes, buffers[C], 0, sizeof(bytes)));
	for (int i = 0; i < MOST; i++) {
		uint16_t half;

		if (s->dtype == SRT_F32) {
			memcpy(&c[i], &bytes[(size_t)(s->first + i) * 4], 4);
		} else {
			memcpy(&half, &bytes[(size_t)(s->first + i) * 2], 2);
			c[i] = half_value(s->dtype, half);
		}
	}
}

/* Largest error over the bound of fp32 sums in any order and one rounding; `operands` is the
 * relative error of each operand's rounding. `times`: so many products one after the other. */
static double worst(const shape_t *s, const float *c, double operands, int times)
{
	const srt_matmul_t *mm = &s->mm;
	const double alpha = mm->alpha != 0.0f ? (double)mm->alpha : 1.0;
	const double unit = s->dtype == SRT_F32 ? 0x1p-24 : s->dtype == SRT_F16 ? 0x1p-11 : 0x1p-8;
	const int64_t items = mm->batch ? mm->batch : 1;
	double most = 0;

	for (int64_t e = 0; e < items * mm->m * mm->n; e++) {
		int64_t item = e / (mm->m * mm->n), i = e / mm->n % mm->m, j = e % mm->n;
		int64_t at = item * mm->stride_c + i * mm->ldc + j;
		double sum = 0, size = 0, bound, error;

		for (int64_t k = 0; k < mm->k; k++) {
			double x = (double)
				values[A][item * mm->stride_a +
					  (mm->trans_a ? k * mm->lda + i : i * mm->lda + k)];
			double y = (double)
				values[B][item * mm->stride_b +
					  (mm->trans_b ? j * mm->ldb + k : k * mm->ldb + j)];

			sum += x * y;
			size += fabs(x * y);
		}
		sum = sum * alpha + (s->bias ? (double)values[BIAS][j] : 0);
		sum = sum * times + (mm->accumulate ? (double)values[C][at] : 0);
		bound = (size * fabs(alpha) + 4) * times *
			((double)(mm->k + 2) * 0x1p-24 + unit * times + 2 * operands);
		error = fabs((double)c[at] - sum) / bound;
		most = error > most || isnan(error) ? error : most;
	}
	return most;
}

/* What lies between the rows of C stays. */
static int gaps_stay(const shape_t *s, const float *c)
{
	const srt_matmul_t *mm = &s->mm;

	if (mm->batch > 1)
		return 1;
	for (int64_t i = 0; i < mm->m; i++)
		for (int64_t j = mm->n; j < mm->ldc; j++)
			if (c[i * mm->ldc + j] != values[C][i * mm->ldc + j])
				return 0;
	return 1;
}

static shape_t shape(int64_t m, int64_t n, int64_t k, int bits, int64_t gap, srt_dtype_t dtype)
{
	srt_matmul_t mm = { .m = m, .n = n, .k = k, .trans_a = bits & 1, .trans_b = bits >> 1 & 1 };

	mm.accumulate = bits >> 3 & 1;
	mm.lda = (mm.trans_a ? m : k) + gap;
	mm.ldb = (mm.trans_b ? k : n) + gap;
	mm.ldc = n + gap;
	return (shape_t){ .mm = mm, .dtype = dtype, .bias = bits >> 2 & 1 };
}

/* computed: products that cuBLASLt has to compute for it. */
static void check_product(const shape_t *s, long computed)
{
	static float c[MOST];
	const srt_matmul_t mm = views(s);
	const long before = lt ? lt->computed() : 0;

	upload(s);
	CHECK_OK(srt_op_matmul(stream, &mm));
	download(s, c);
	CHECK_MSG(worst(s, c, 0, 1) <= 1.0, "%lld x %lld x %lld, type %d: error %g of the bound",
		  (long long)mm.m, (long long)mm.n, (long long)mm.k, (int)s->dtype,
		  worst(s, c, 0, 1));
	CHECK(gaps_stay(s, c));
	if (lt)
		CHECK_INT(lt->computed() - before, computed);
}

/* ---- tests ------------------------------------------------------------------------------- */

static void test_modes(void)
{
	open_context(SRT_NUMERICS_DEFAULT);
	CHECK_INT(srt_context_numerics(context), SRT_NUMERICS_FAST);
	CHECK(strstr(logged, "matrix products by cuBLASLt"));
	CHECK(strstr(logged, "outside the identity of bits"));
	close_context();
	open_context(SRT_NUMERICS_EXACT);
	CHECK_INT(srt_context_numerics(context), SRT_NUMERICS_EXACT);
	CHECK(!strstr(logged, "cuBLASLt"));
	check_product(&(shape_t){ .mm = shape(8, 8, 8, 0, 0, SRT_F32).mm }, 0);
	close_context();
}

/* What cannot be loaded is said once, and the exact kernels run. */
static void test_missing(void)
{
	const shape_t s = shape(8, 8, 8, 0, 0, SRT_F32);
	const char *said;

	setenv("SHARDRT_CUBLASLT_LIBRARY", "/nonexistent/libcublasLt.so", 1);
	open_context(SRT_NUMERICS_FAST);
	said = strstr(logged, "the exact kernels are used: there is no cuBLASLt: /nonexistent/");
	CHECK(said && !strstr(said + 40, "there is no cuBLASLt"));
	check_product(&s, 0);
	close_context();
	open_context(SRT_NUMERICS_DEFAULT);
	CHECK_INT(srt_context_numerics(context), SRT_NUMERICS_EXACT);
	close_context();
	setenv("SHARDRT_CUBLASLT_LIBRARY", FAKE_CUDA_PATH, 1); /* another library */
	open_context(SRT_NUMERICS_FAST);
	CHECK(strstr(logged, "has no function cublasLtGetVersion"));
	close_context();
	setenv("SHARDRT_CUBLASLT_LIBRARY", LT_PATH, 1);
	lt->fail_at(1, INTERNAL_ERROR);
	open_context(SRT_NUMERICS_FAST);
	CHECK(strstr(logged, "starting cuBLASLt on CUDA device"));
	check_product(&s, 0);
	close_context();
}

static void test_products(void)
{
	static const int64_t sizes[][3] = {
		{ 16, 16, 16 }, { 1, 7, 5 }, { 13, 1, 3 }, { 7, 19, 1 }, { 9, 31, 23 }
	};
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };

	for (size_t t = 0; t < 3; t++)
		for (size_t i = 0; i < SRT_ARRAY_LEN(sizes); i++)
			for (int bits = 0; bits < 16; bits++) {
				shape_t s = shape(sizes[i][0], sizes[i][1], sizes[i][2], bits,
						  (int64_t)(bits % 3), dtypes[t]);

				s.first = (int)i;
				s.mm.alpha = bits % 5 ? 0.0f : 0.75f;
				check_product(&s, 1);
			}
}

/* Items behind each other, side by side, one operand for all. */
static void test_batches(void)
{
	for (int bits = 0; bits < 16; bits++) {
		shape_t s = shape(5, 6, 7, bits, 1, bits % 2 ? SRT_F32 : SRT_BF16);

		s.mm.batch = 3;
		s.mm.stride_a = 100;
		s.mm.stride_b = bits & 4 ? 0 : 90;
		s.mm.stride_c = 80;
		check_product(&s, 1);
		s.mm.lda = s.mm.ldb = s.mm.ldc = 24; /* heads of a row */
		s.mm.stride_a = s.mm.stride_b = 8;
		s.mm.stride_c = 6;
		check_product(&s, 1);
	}
}

static void test_left(void)
{
	shape_t s = shape(6, 5, 4, 4, 0, SRT_F32);

	lt->refuse_bias(1);
	s.mm.m = 11; /* a new one */
	check_product(&s, 0);
	check_product(&s, 0);
	CHECK_INT(lt->count("cublasLtMatmulAlgoGetHeuristic"), 1);
	s.bias = 0;
	check_product(&s, 1);
	lt->refuse_bias(0);
	s.mm.k = 0;
	check_product(&s, 0);
}

/* A known problem asks for no algorithm and allocates nothing; the host never waits. */
static void test_known(void)
{
	const shape_t s = shape(10, 11, 12, 4, 0, SRT_BF16);
	const srt_matmul_t mm = views(&s);
	long asked, syncs, allocs;

	CHECK_OK(srt_op_matmul(stream, &mm));
	asked = lt->count("cublasLtMatmulAlgoGetHeuristic");
	syncs = f->host_syncs();
	allocs = f->count("cuMemAlloc");
	for (int i = 0; i < 5; i++)
		CHECK_OK(srt_op_matmul(stream, &mm));
	CHECK_INT(lt->count("cublasLtMatmulAlgoGetHeuristic"), asked);
	CHECK_INT(f->host_syncs(), syncs);
	CHECK_INT(f->count("cuMemAlloc"), allocs);
	/* More problems than the table has room for. */
	for (int64_t n = 1; n <= 1200; n++) {
		const shape_t other = shape(1, n, 2, 0, 0, SRT_F32);
		const srt_matmul_t of = views(&other);

		CHECK_OK(srt_op_matmul(stream, &of));
	}
	CHECK_OK(srt_stream_sync(stream));
	check_product(&s, 1);
}

/* A recording of a stream's first product, whose workspace is not there, and of a later one. */
static void test_recording(int used_before)
{
	static float c[MOST];
	const shape_t s = shape(9, 10, 12, 8, 0, SRT_F32); /* accumulates */
	const srt_backend_work_ops_t *work = device->backend->work;
	const srt_matmul_t mm = views(&s);
	srt_stream_t *recorded;
	void *recording = NULL;
	long allocs;

	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "recorded", &recorded));
	if (used_before)
		CHECK_OK(srt_op_matmul(recorded, &mm));
	CHECK_OK(srt_stream_sync(recorded));
	upload(&s);
	CHECK_OK(srt_stream_sync(stream));
	allocs = f->count("cuMemAlloc");
	CHECK_OK_OR_DIE(work->record_begin(recorded->impl));
	CHECK_OK(srt_op_matmul(recorded, &mm));
	CHECK_OK_OR_DIE(work->record_end(recorded->impl, &recording));
	CHECK_INT(f->count("cuMemAlloc"), allocs);
	for (int i = 0; i < 2; i++)
		CHECK_OK(work->replay(recorded->impl, recording));
	CHECK_OK(srt_stream_sync(recorded));
	download(&s, c);
	CHECK(worst(&s, c, 0, 2) <= 1.0);
	work->recording_free(recording);
	srt_stream_destroy(recorded);
}

/* The workspace is what was said and reserved, if that is none too; recordings use it; the driver
 * has given out what srt_device_allocated() counts. */
static void test_reserved(void)
{
	static float c[MOST];
	const srt_backend_work_ops_t *work = device->backend->work;
	const shape_t s = shape(13, 14, 15, 0, 1, SRT_F32), t = shape(14, 14, 15, 8, 0, SRT_BF16);
	const srt_matmul_t mm = views(&s), other = views(&t);
	const size_t before = srt_device_allocated(device), left = srt_device_available(device);
	const size_t sizes[] = { 0, 1024, 0 };
	srt_stream_t *old = stream;
	void *recording = NULL;
	size_t nbytes = 0;
	long allocs;

	CHECK_OK(srt_op_matmul_memory(device, &mm, SRT_F32, &nbytes));
	CHECK_OK(srt_op_matmul_memory(device, &other, SRT_BF16, &nbytes));
	CHECK(nbytes > 1024);
	for (int i = 0; i < 3; i++) {
		const size_t wanted = i == 2 ? nbytes : sizes[i];

		CHECK_OK_OR_DIE(srt_stream_create(device, 0, "reserved", &stream));
		CHECK_OK(srt_stream_reserve(stream, wanted));
		CHECK_INT(srt_device_allocated(device) - before, wanted);
		upload(&s);
		CHECK_OK(srt_stream_sync(stream));
		allocs = f->count("cuMemAlloc");
		CHECK_OK(srt_op_matmul(stream, &mm));
		download(&s, c);
		CHECK(worst(&s, c, 0, 1) <= 1.0);
		CHECK_OK(srt_op_matmul(stream, &other));
		CHECK_OK_OR_DIE(work->record_begin(stream->impl));
		CHECK_OK(srt_op_matmul(stream, &mm));
		CHECK_OK_OR_DIE(work->record_end(stream->impl, &recording));
		CHECK_OK(work->replay(stream->impl, recording));
		CHECK_OK(srt_stream_sync(stream));
		CHECK_INT(f->count("cuMemAlloc"), allocs);
		CHECK_INT(srt_device_allocated(device) - before, wanted);
		CHECK_INT(left - srt_device_available(device), wanted);
		/* With a recording, what it uses stays. */
		CHECK_OK(srt_stream_reserve(stream, nbytes + 512));
		CHECK_OK(work->replay(stream->impl, recording));
		CHECK_OK(srt_stream_sync(stream));
		CHECK_INT(srt_device_allocated(device) - before, wanted + nbytes + 512);
		download(&s, c);
		CHECK(worst(&s, c, 0, 1) <= 1.0);
		work->recording_free(recording);
		srt_stream_destroy(stream);
		CHECK_INT(srt_device_allocated(device), before);
	}
	stream = old;
}

/* The k-th call of cuBLASLt or of the driver fails: an error with a sentence, or the product. */
static int fails_well(int k, int of_driver)
{
	static float c[MOST];
	static int64_t fresh = 20; /* each a new problem */
	const shape_t s = shape(++fresh, 3, 5, 4, 1, SRT_F32);
	const srt_matmul_t mm = views(&s);
	srt_stream_t *old = stream, *own;
	srt_status_t status;
	int came;

	upload(&s);
	CHECK_OK(srt_stream_sync(stream));
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "failing", &own));
	lt->reset();
	f->reset();
	if (of_driver)
		f->fail_at(k, CUDA_ERROR_UNKNOWN);
	else
		lt->fail_at(k, INTERNAL_ERROR);
	status = srt_op_matmul(own, &mm);
	if (status == SRT_OK)
		status = srt_stream_sync(own);
	came = of_driver ? f->failed()[0] != 0 : lt->count(NULL) >= k;
	f->fail_at(0, CUDA_SUCCESS);
	lt->fail_at(0, 0);
	if (status == SRT_OK) {
		stream = own;
		download(&s, c);
		stream = old;
		CHECK(worst(&s, c, 0, 1) <= 1.0);
	} else {
		CHECK(came);
		CHECK(srt_last_error()[0]);
		if (!of_driver)
			CHECK_ERROR_HAS("cuBLASLt");
	}
	srt_stream_destroy(own);
	return came;
}

static void test_failures(void)
{
	int k = 1;

	while (fails_well(k, 0))
		k++;
	CHECK_MSG(k > 20, "only %d calls of cuBLASLt", k);
	for (k = 1; fails_well(k, 1); k++)
		;
	CHECK_MSG(k > 3, "only %d calls of the driver", k);
}

static void test_tf32(void)
{
	static float c[MOST];
	const shape_t s = shape(9, 31, 23, 0, 0, SRT_F32);
	const srt_matmul_t mm = views(&s);

	CHECK(strstr(logged, "rounded to TF32"));
	upload(&s);
	CHECK_OK(srt_op_matmul(stream, &mm));
	download(&s, c);
	if (lt) /* whose devices round whatever is allowed */
		CHECK(worst(&s, c, 0, 1) > 1.0);
	CHECK(worst(&s, c, 0x1p-11, 1) <= 1.0);
}

static void run_over_fakes(void)
{
	load_fakes();
	test_missing(); /* what has been loaded stays */
	test_modes();
	lt->reset();
	open_context(SRT_NUMERICS_FAST);
	test_products();
	test_batches();
	lt->reset();
	test_left();
	test_known();
	test_recording(0);
	test_recording(1);
	test_reserved();
	test_failures();
	close_context();
}

static void run_on_device(void)
{
	open_context(SRT_NUMERICS_DEFAULT);
	if (srt_context_numerics(context) != SRT_NUMERICS_FAST) {
		printf("SKIP: no numerics fast on this device: %s\n", logged);
		exit(77);
	}
	test_products();
	test_batches();
	close_context();
}

int main(void)
{
	srt_log_set(keep_log, SRT_LOG_INFO, NULL);
	setenv("SHARDRT_BACKEND", "cuda", 1);
	unsetenv("SHARDRT_NUMERICS");
	unsetenv("SHARDRT_CUDA_FP32");
	if (on_device())
		run_on_device();
	else
		run_over_fakes();
	setenv("SHARDRT_CUDA_FP32", "tf32", 1);
	open_context(SRT_NUMERICS_FAST);
	test_tf32();
	close_context();
	return check_done();
}
