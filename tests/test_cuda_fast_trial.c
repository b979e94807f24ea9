/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who tries attention on tensor cores before its first use (backends/cuda/fast_trial.c), over the
 * fake driver: once for a device and type, whoever comes first and in a recording too; tensor cores
 * that do it wrongly in one way or another, in all kernels or one, are found, and the results are
 * the exact kernels'; each driver function failing in turn during the trial.
 *
 * SRT_TEST_LONG=1: every single call of the driver fails in turn, not the first ones of each name.
 */
#include <pthread.h>

#include "backends/core.h"
#include "tests/fake_cublaslt.h"
#include "tests/fake_cuda/kernel.h"
#include "tests/half.h"
#include "tests/random.h"

#include <shardrt/shardrt.h>

#define TRIAL 12 /* launches of the kernels that are tried */
#define ROWS 20
#define HEAD_DIM 64
#define NBYTES ((size_t)(ROWS * HEAD_DIM * 2))

enum { Q, K, V, DOUT, OUT, DQ, DK, DV, NTENSORS };
static const char *const names[] = { "q", "k", "v", "dout", "out", "dq", "dk", "dv" };
static const srt_dtype_t dtypes[] = { SRT_F16, SRT_BF16 };
static const srt_attention_t shape = {
	.batch = 1, .queries = ROWS, .keys = ROWS, .heads = 1, .head_dim = HEAD_DIM, .scale = 0.5f
};

static uint16_t inputs[3][OUT][ROWS * HEAD_DIM]; /* by type */
static char logged[8192];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_log(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	(void)level;
	pthread_mutex_lock(&log_lock);
	strncat(logged, message, sizeof(logged) - strlen(logged) - 1);
	strncat(logged, "\n", sizeof(logged) - strlen(logged) - 1);
	pthread_mutex_unlock(&log_lock);
}

/* ---- an attention with its gradient ------------------------------------------------------- */

typedef struct job {
	srt_device_t *device;
	srt_stream_t *stream;
	srt_buffer_t *buffers[NTENSORS], *stats, *scratch;
	srt_attention_views_t views;
} job_t;

typedef struct results {
	uint16_t of[NTENSORS][ROWS * HEAD_DIM];
} results_t;

static job_t make_job(srt_device_t *device, srt_dtype_t dtype)
{
	job_t j = { .device = device };
	srt_view_t *const of[] = { &j.views.q,   &j.views.k,  &j.views.v,  &j.views.dout,
				   &j.views.out, &j.views.dq, &j.views.dk, &j.views.dv };

	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &j.stream));
	for (int t = 0; t < NTENSORS; t++) {
		CHECK_OK_OR_DIE(
			srt_buffer_create(device, SRT_MEM_DEVICE, NBYTES, names[t], &j.buffers[t]));
		*of[t] = srt_view(j.buffers[t], 0, dtype);
		if (t < OUT)
			CHECK_OK_OR_DIE(srt_copy_from_host(j.stream, j.buffers[t], 0,
							   inputs[dtype][t], NBYTES));
	}
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, ROWS * 16, "stats", &j.stats));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, ROWS * 8, "scratch", &j.scratch));
	j.views.stats = srt_view(j.stats, 0, SRT_F32);
	j.views.scratch = srt_view(j.scratch, 0, SRT_F32);
	CHECK_OK_OR_DIE(srt_stream_sync(j.stream));
	return j;
}

static void drop_job(job_t *j)
{
	for (int t = 0; t < NTENSORS; t++)
		srt_buffer_destroy(j->buffers[t]);
	srt_buffer_destroy(j->stats);
	srt_buffer_destroy(j->scratch);
	srt_stream_destroy(j->stream);
}

static srt_status_t put(job_t *j)
{
	srt_attention_t a = shape;
	srt_status_t status;

	a.ldq = a.ldk = a.ldv = a.lddq = a.lddk = a.lddv = HEAD_DIM;
	status = srt_op_attention(j->stream, &a, &j->views);
	if (status == SRT_OK)
		status = srt_op_attention_backward(j->stream, &a, &j->views);
	return status;
}

static void get(job_t *j, results_t *r)
{
	memset(r, 0, sizeof(*r));
	for (int t = OUT; t < NTENSORS; t++)
		CHECK_OK(srt_copy_to_host(j->stream, r->of[t], j->buffers[t], 0, NBYTES));
}

static srt_context_t *open_context(srt_numerics_t numerics)
{
	const srt_context_options_t options = { .numerics = numerics };
	srt_context_t *context;

	logged[0] = 0;
	CHECK_OK_OR_DIE(srt_context_create(&options, &context));
	CHECK_INT(srt_context_numerics(context), numerics);
	return context;
}

static void close_context(srt_context_t *context)
{
	srt_context_destroy(context);
	CHECK_INT(lt->live(), 0);
	CHECK_INT(f->live(), 0);
	CHECK_INT(f->leaks(), 0);
	CHECK_STR(f->complaint(), "");
}

static void compute(srt_context_t *context, srt_dtype_t dtype, results_t *r)
{
	job_t j = make_job(srt_context_device(context), dtype);

	CHECK_OK(put(&j));
	get(&j, r);
	drop_job(&j);
}

static long fast_launches(void)
{
	const fake_cuda_call_t *call;
	long n = 0;

	for (long i = 0; (call = f->call(i)) != NULL; i++)
		n += call->kernel && strncmp(call->kernel, "k_fast_attention", 16) == 0;
	return n;
}

static bool is_same(const results_t *a, const results_t *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- tests ------------------------------------------------------------------------------- */

static results_t exact[3], fast[3];

/* Once for a type; what it took is given back, and is nobody's scratch. */
static void test_once(void)
{
	srt_context_t *context = open_context(SRT_NUMERICS_FAST);
	srt_device_t *device = srt_context_device(context);

	for (int i = 0; i < 2; i++) {
		job_t j = make_job(device, dtypes[i]);
		const size_t allocated = srt_device_allocated(device);

		f->reset();
		CHECK_OK(put(&j));
		CHECK_INT(fast_launches(), TRIAL + 3);
		CHECK(f->count("cuMemAlloc") > 0);
		CHECK_INT(f->count("cuMemFree"), f->count("cuMemAlloc"));
		CHECK_INT(srt_device_allocated(device), allocated);
		CHECK_OK(put(&j));
		CHECK_INT(fast_launches(), TRIAL + 6);
		get(&j, &fast[dtypes[i]]);
		CHECK(!is_same(&fast[dtypes[i]], &exact[dtypes[i]]));
		drop_job(&j);
	}
	CHECK_MSG(!strstr(logged, "is not used"), "%s", logged);
	close_context(context);
}

static void *run_first(void *arg)
{
	CHECK_OK(put(arg));
	return NULL;
}

static void test_two_threads(void)
{
	srt_context_t *context = open_context(SRT_NUMERICS_FAST);
	job_t jobs[2];
	pthread_t threads[2];
	results_t r;

	for (int i = 0; i < 2; i++)
		jobs[i] = make_job(srt_context_device(context), SRT_BF16);
	f->reset();
	for (int i = 0; i < 2; i++)
		CHECK_OR_DIE(pthread_create(&threads[i], NULL, run_first, &jobs[i]) == 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	CHECK_INT(fast_launches(), TRIAL + 2 * 3);
	for (int i = 0; i < 2; i++) {
		get(&jobs[i], &r);
		CHECK(is_same(&r, &fast[SRT_BF16]));
		drop_job(&jobs[i]);
	}
	close_context(context);
}

/* pass: 0 all. The log names device, kernel and element; everything is the exact kernels'. */
static void test_fault(int fault, int pass, const char *said)
{
	const srt_dtype_t dtype = dtypes[(fault + pass) % 2];
	srt_context_t *context;
	const char *once;
	results_t r;

	f->set("warp_fault", fault);
	f->set("warp_fault_of", pass);
	context = open_context(SRT_NUMERICS_FAST);
	compute(context, dtype, &r);
	CHECK_MSG(is_same(&r, &exact[dtype]), "fault %d of %d, type %d", fault, pass, (int)dtype);
	once = strstr(logged, "on tensor cores is not used on CUDA device \"");
	CHECK_MSG(once && strstr(once, said) && strstr(once, "at row ") &&
			  strstr(once, " times the error"),
		  "fault %d of %d, type %d: %s", fault, pass, (int)dtype, logged);
	f->reset();
	compute(context, dtype, &r);
	CHECK_INT(fast_launches(), 0);
	CHECK(is_same(&r, &exact[dtype]));
	CHECK(once && !strstr(once + 1, "on tensor cores"));
	close_context(context);
	f->set("warp_fault", FAKE_WARP_RIGHT);
}

static void test_faults(void)
{
	for (int fault = FAKE_WARP_ROWS; fault <= FAKE_WARP_EXP2; fault++)
		test_fault(fault, 1, "kernel \"fast_attention_");
	for (int fault = FAKE_WARP_ROWS; fault <= FAKE_WARP_EXP2; fault++) {
		if (fault == FAKE_WARP_XOR) /* they have none */
			continue;
		test_fault(fault, 2, "kernel \"fast_attention_q_");
		test_fault(fault, 3, "kernel \"fast_attention_kv_");
	}
}

/* Asked for by name, they are refused, every time. */
static void test_refused(void)
{
	srt_context_t *context;
	job_t j;

	setenv("SHARDRT_CUDA_TUNED", "tiled", 1);
	f->set("warp_fault", FAKE_WARP_ROWS);
	f->set("warp_fault_of", 0);
	context = open_context(SRT_NUMERICS_FAST);
	j = make_job(srt_context_device(context), SRT_BF16);
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(put(&j), SRT_ERR_DEVICE);
		CHECK_ERROR_HAS("SHARDRT_CUDA_TUNED=tiled: attention in bf16 on the tensor cores "
				"of CUDA device \"");
		CHECK_ERROR_HAS(" times the error that it may have; leave it unset");
	}
	f->set("warp_fault", FAKE_WARP_RIGHT);
	CHECK_OK(put(&j));
	drop_job(&j);
	close_context(context);
	setenv("SHARDRT_CUDA_TUNED", "portable", 1);
}

/* A trial that could not be made is made by the next call. */
static void test_again(void)
{
	srt_context_t *context = open_context(SRT_NUMERICS_FAST);
	job_t j = make_job(srt_context_device(context), SRT_BF16);
	results_t r;

	f->fail_call("cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_STATUS(put(&j), SRT_ERR_OUT_OF_MEMORY);
	CHECK_ERROR_HAS("self-test");
	CHECK_OK(put(&j));
	get(&j, &r);
	CHECK(is_same(&r, &fast[SRT_BF16]));
	CHECK_STR(logged, "");
	drop_job(&j);
	close_context(context);
}

/* Attention that is the exact kernels', whose own trials are not what fails then. */
static void put_exact(job_t *j)
{
	srt_attention_t a = shape;

	a.heads = 2;
	a.head_dim = HEAD_DIM / 2;
	a.ldq = a.ldk = a.ldv = a.lddq = a.lddk = a.lddv = HEAD_DIM;
	CHECK_OK_OR_DIE(srt_op_attention(j->stream, &a, &j->views));
	CHECK_OK_OR_DIE(srt_op_attention_backward(j->stream, &a, &j->views));
	CHECK_OK_OR_DIE(srt_stream_sync(j->stream));
}

/* The k-th call fails, of a name or NULL: of all; whether it came. */
static bool fails(const char *name, long k)
{
	srt_context_t *context = open_context(SRT_NUMERICS_FAST);
	job_t j = make_job(srt_context_device(context), SRT_BF16);
	const char *what = name ? name : "call";
	srt_status_t status;
	bool came;

	put_exact(&j);
	f->reset();
	if (name)
		f->fail_call(name, k, CUDA_ERROR_OUT_OF_MEMORY);
	else
		f->fail_at(k, CUDA_ERROR_OUT_OF_MEMORY);
	status = put(&j);
	if (status == SRT_OK)
		status = srt_stream_sync(j.stream);
	came = f->failed()[0] != 0;
	CHECK_MSG(status == SRT_OK || (came && strstr(srt_last_error(), "CUDA_ERROR_")),
		  "%s, %ld: %s: %s", what, k, srt_status_string(status), srt_last_error());
	CHECK_MSG(!logged[0], "%s, %ld: %s", what, k, logged);
	f->reset();
	drop_job(&j);
	close_context(context);
	return came;
}

static void test_failures(bool is_long)
{
	static const char *const functions[] = {
#define NAME(name) #name,
		SRT_CUDA_FUNCTIONS(NAME)
#undef NAME
	};
	bool called[SRT_ARRAY_LEN(functions)];
	srt_context_t *context = open_context(SRT_NUMERICS_FAST);
	job_t j = make_job(srt_context_device(context), SRT_BF16);
	int n = 0;

	put_exact(&j);
	f->reset();
	CHECK_OK(put(&j));
	for (size_t i = 0; i < SRT_ARRAY_LEN(functions); i++)
		called[i] = f->count(functions[i]) > 0;
	drop_job(&j);
	close_context(context);
	for (size_t i = 0; i < SRT_ARRAY_LEN(functions); i++)
		n += called[i] && fails(functions[i], 1);
	CHECK_MSG(n >= 10, "only %d calls have failed", n);
	for (long k = 1; is_long && fails(NULL, k); k++)
		;
}

int main(void)
{
	const char *is_long = getenv("SRT_TEST_LONG");
	srt_context_t *context;

	srt_log_set(keep_log, SRT_LOG_WARN, NULL);
	setenv("SHARDRT_BACKEND", "cuda", 1);
	setenv("SHARDRT_CUDA_TUNED", "portable", 1); /* what is tiled is other tests' */
	unsetenv("SHARDRT_NUMERICS");
	fake_cublaslt_load();
	f->set("delay_us", 0);
	for (int i = 0; i < 2; i++)
		for (int t = 0; t < OUT; t++)
			for (int e = 0; e < ROWS * HEAD_DIM; e++)
				inputs[dtypes[i]][t][e] =
					half_bits(dtypes[i], (float)(int32_t)random32() * 0x1p-31f);
	context = open_context(SRT_NUMERICS_EXACT);
	for (int i = 0; i < 2; i++)
		compute(context, dtypes[i], &exact[dtypes[i]]);
	close_context(context);
	test_once();
	test_two_threads();
	test_faults();
	test_refused();
	test_again();
	test_failures(is_long && is_long[0]);
	return check_done();
}
