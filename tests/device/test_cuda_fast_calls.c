/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What numerics mode fast of the cuda backend asks of cuBLASLt and of the driver, over the fakes of
 * both: when it runs, what is left to the exact kernels, the table of algorithms,
 * workspace, each call failing in turn, leaks. Products are in test_cuda_fast_products.c.
 */
#include "device/device.h"
#include "tests/device/cuda_fast.h"

#define INTERNAL_ERROR 14 /* CUBLAS_STATUS_INTERNAL_ERROR */

static void test_modes(void)
{
	fast_open(SRT_NUMERICS_DEFAULT);
	CHECK_INT(srt_context_numerics(fast_context), SRT_NUMERICS_EXACT);
	fast_close();
	fast_open(SRT_NUMERICS_FAST);
	CHECK_INT(srt_context_numerics(fast_context), SRT_NUMERICS_FAST);
	CHECK(strstr(fast_logged, "matrix products by cuBLASLt"));
	CHECK(strstr(fast_logged, "outside the identity of bits"));
	fast_close();
	fast_open(SRT_NUMERICS_EXACT);
	CHECK_INT(srt_context_numerics(fast_context), SRT_NUMERICS_EXACT);
	CHECK(strstr(fast_logged, "cuBLASLt") == NULL);
	product_check(&(product_t){ .mm = product(8, 8, 8, 0, 0, SRT_F32).mm, .dtype = SRT_F32 },
		      0);
	fast_close();
}

/* What cannot be loaded is said once, and the exact kernels run. */
static void test_missing(void)
{
	const product_t p = product(8, 8, 8, 0, 0, SRT_F32);
	const char *said;

	setenv("SHARDRT_CUBLASLT_LIBRARY", "/nonexistent/libcublasLt.so", 1);
	fast_open(SRT_NUMERICS_FAST);
	said = strstr(fast_logged,
		      "the exact kernels are used: there is no cuBLASLt: /nonexistent/");
	CHECK(said != NULL && strstr(said + 40, "there is no cuBLASLt") == NULL);
	product_check(&p, 0);
	fast_close();
	fast_open(SRT_NUMERICS_DEFAULT);
	CHECK_INT(srt_context_numerics(fast_context), SRT_NUMERICS_EXACT);
	fast_close();
	setenv("SHARDRT_CUBLASLT_LIBRARY", FAKE_CUDA_PATH, 1); /* another library */
	fast_open(SRT_NUMERICS_FAST);
	CHECK(strstr(fast_logged, "has no function cublasLtGetVersion"));
	fast_close();
	setenv("SHARDRT_CUBLASLT_LIBRARY", FAKE_CUBLASLT_PATH, 1);
	lt->fail_at(1, INTERNAL_ERROR);
	fast_open(SRT_NUMERICS_FAST);
	CHECK(strstr(fast_logged, "starting cuBLASLt on CUDA device"));
	product_check(&p, 0);
	fast_close();
}

static void test_left(void)
{
	product_t p = product(6, 5, 4, 4, 0, SRT_F32);

	lt->refuse(FAKE_REFUSE_BIAS);
	p.mm.m = 11; /* a new one */
	product_check(&p, 0);
	product_check(&p, 0);
	CHECK_INT(lt->count("cublasLtMatmulAlgoGetHeuristic"), 1);
	CHECK(strstr(fast_logged, "cuBLASLt refuses product 11 x 5 x 4 batch 1 f32, "));
	p.bias = 0;
	product_check(&p, 1);
	CHECK(strstr(fast_logged, "cuBLASLt takes product 11 x 5 x 4 batch 1 f32, "));
	lt->refuse(0);
	p.mm.k = 0;
	product_check(&p, 0);
}

/* A known problem asks for no algorithm and allocates nothing; the host never waits. */
static void test_known(void)
{
	const product_t p = product(10, 11, 12, 4, 0, SRT_BF16);
	const srt_matmul_t mm = product_views(&p);
	long asked, syncs, allocs;

	CHECK_OK(srt_op_matmul(&mm, fast_stream));
	asked = lt->count("cublasLtMatmulAlgoGetHeuristic");
	syncs = f->host_syncs();
	allocs = f->count("cuMemAlloc");
	for (int i = 0; i < 5; i++)
		CHECK_OK(srt_op_matmul(&mm, fast_stream));
	CHECK_INT(lt->count("cublasLtMatmulAlgoGetHeuristic"), asked);
	CHECK_INT(f->host_syncs(), syncs);
	CHECK_INT(f->count("cuMemAlloc"), allocs);
	/* More problems than the table has room for. */
	for (int64_t n = 1; n <= 1200; n++) {
		const product_t other = product(1, n, 2, 0, 0, SRT_F32);
		const srt_matmul_t of = product_views(&other);

		CHECK_OK(srt_op_matmul(&of, fast_stream));
	}
	CHECK_OK(srt_stream_sync(fast_stream));
	product_check(&p, 1);
}

/* The workspace is what was said and reserved, if that is none too; the driver has
 * given out what srt_device_allocated() counts. */
static void test_reserved(void)
{
	static float c[MOST];
	const product_t p = product(13, 14, 15, 0, 1, SRT_F32),
			t = product(14, 14, 15, 8, 0, SRT_BF16);
	const srt_matmul_t mm = product_views(&p), other = product_views(&t);
	const size_t before = srt_device_allocated(fast_device),
		     left = srt_device_available(fast_device);
	const size_t sizes[] = { 0, 1024, 0 };
	srt_stream_t *old = fast_stream;
	size_t nbytes = 0;
	long allocs;

	CHECK_OK(srt_op_matmul_memory(fast_device, &mm, SRT_F32, &nbytes));
	CHECK_OK(srt_op_matmul_memory(fast_device, &other, SRT_BF16, &nbytes));
	CHECK(nbytes > 1024);
	for (int i = 0; i < 3; i++) {
		const size_t wanted = i == 2 ? nbytes : sizes[i];

		CHECK_OK_OR_DIE(srt_stream_create(fast_device, 0, "reserved", &fast_stream));
		CHECK_OK(srt_stream_reserve(fast_stream, wanted));
		CHECK_INT(srt_device_allocated(fast_device) - before, wanted);
		product_upload(&p);
		CHECK_OK(srt_stream_sync(fast_stream));
		allocs = f->count("cuMemAlloc");
		CHECK_OK(srt_op_matmul(&mm, fast_stream));
		product_download(&p, c);
		CHECK(product_error(&p, c, 0, 1) <= 1.0);
		CHECK_INT(lt->workspace(), wanted);
		CHECK_OK(srt_op_matmul(&other, fast_stream));
		CHECK_OK(srt_stream_sync(fast_stream));
		CHECK_INT(f->count("cuMemAlloc"), allocs);
		CHECK_INT(srt_device_allocated(fast_device) - before, wanted);
		CHECK_INT(left - srt_device_available(fast_device), wanted);
		CHECK_OK(srt_stream_reserve(fast_stream, nbytes + 512));
		CHECK_OK(srt_op_matmul(&mm, fast_stream));
		CHECK_OK(srt_stream_sync(fast_stream));
		CHECK_INT(srt_device_allocated(fast_device) - before, nbytes + 512);
		product_download(&p, c);
		CHECK(product_error(&p, c, 0, 1) <= 1.0);
		srt_stream_destroy(fast_stream);
		CHECK_INT(srt_device_allocated(fast_device), before);
	}
	fast_stream = old;
}

/* The k-th call of cuBLASLt or of the driver fails: an error with a sentence, or the product. */
static int fails_well(int k, int of_driver)
{
	static float c[MOST];
	static int64_t fresh = 20; /* each a new problem */
	const product_t p = product(++fresh, 3, 5, 4, 1, SRT_F32);
	const srt_matmul_t mm = product_views(&p);
	srt_stream_t *old = fast_stream, *own;
	srt_status_t status;
	int came;

	product_upload(&p);
	CHECK_OK(srt_stream_sync(fast_stream));
	CHECK_OK_OR_DIE(srt_stream_create(fast_device, 0, "failing", &own));
	lt->reset();
	f->reset();
	if (of_driver)
		f->fail_at(k, CUDA_ERROR_UNKNOWN);
	else
		lt->fail_at(k, INTERNAL_ERROR);
	status = srt_op_matmul(&mm, own);
	if (status == SRT_OK)
		status = srt_stream_sync(own);
	came = of_driver ? f->failed()[0] != 0 : lt->count(NULL) >= k;
	f->fail_at(0, CUDA_SUCCESS);
	lt->fail_at(0, 0);
	if (status == SRT_OK) {
		fast_stream = own;
		product_download(&p, c);
		fast_stream = old;
		CHECK(product_error(&p, c, 0, 1) <= 1.0);
	} else {
		CHECK(came);
		CHECK(srt_error_last()[0]);
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

int main(void)
{
	fast_start(true);
	test_missing(); /* what has been loaded stays */
	test_modes();
	lt->reset();
	fast_open(SRT_NUMERICS_FAST);
	test_left();
	test_known();
	test_reserved();
	test_failures();
	fast_close();
	return check_done();
}
