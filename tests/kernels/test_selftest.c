/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The self-test: all instruction sets have the digests compiled in, one wrong bit in any output is
 * noticed, and it is quick. Of the cpu device: a wrong kernel, or a wrong product or attention of
 * the tuned ones, is refused in exact mode and logged otherwise.
 */
#include <time.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/gemm_tile.h"
#include "kernels/cases/selftest.h"
#include "tests/harness/device.h"

static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };

typedef struct cpu {
	srt_cpu_isa_t isa;
	int flip; /* the launch whose first output gets one wrong bit; -1 none */
	int nlaunches;
} cpu_t;

static srt_status_t run(void *context, const srt_command_t *launch, unsigned char *bytes,
			size_t nbytes)
{
	cpu_t *cpu = context;
	unsigned char *at[SRT_COMMAND_MAX_BINDINGS] = { 0 };

	(void)nbytes;
	for (int i = 0; i < launch->nbindings; i++)
		if (launch->bindings[i].mem != NULL)
			at[i] = bytes + launch->bindings[i].offset;
	srt_kernel_cpu(launch->kernel, launch->dtype, cpu->isa)(at, launch->args, 0,
								launch->ngroups);
	if (cpu->nlaunches++ == cpu->flip)
		at[0][3] ^= 0x40; /* which makes no NaN of a NaN */
	return SRT_OK;
}

/* Reliability: no memory for the self-test | "kernel gives other bits" | "out of host memory" */
static srt_status_t fail(void *context, const srt_command_t *launch, unsigned char *bytes,
			 size_t nbytes)
{
	(void)context;
	(void)launch;
	(void)bytes;
	(void)nbytes;
	return SRT_ERR_UNSUPPORTED;
}

static void test_isa(srt_cpu_isa_t isa, srt_dtype_t dtype)
{
	const char *kernel;
	clock_t start = clock();
	cpu_t cpu = { isa, -1, 0 };
	int nlaunches;

	CHECK_MSG(srt_kernels_selftest(SRT_SELFTEST_ALL, dtype, run, &cpu, &kernel) == SRT_OK &&
			  kernel == NULL,
		  "%s: %s differs for %s", srt_cpu_isa_name(isa), kernel != NULL ? kernel : "?",
		  srt_kernel_dtype_name(dtype));
	printf("%s, %s: %.1f ms of processor time\n", srt_cpu_isa_name(isa),
	       srt_kernel_dtype_name(dtype), (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC);
	nlaunches = cpu.nlaunches;
	CHECK(nlaunches > 0);
	for (int i = 0; i < nlaunches; i++) {
		cpu = (cpu_t){ isa, i, 0 };
		CHECK_STATUS(srt_kernels_selftest(SRT_SELFTEST_ALL, dtype, run, &cpu, &kernel),
			     SRT_ERR_DEVICE);
		CHECK(kernel != NULL);
	}
}

/* One kernel alone: its own cases and no others. */
static void test_one(void)
{
	cpu_t cpu = { SRT_ISA_BASELINE, -1, 0 };
	const char *kernel;
	int ncases = 0;

	for (int i = 0; i < SRT_CASE_COUNT; i++)
		ncases += srt_kernel_cases[i].kernel == SRT_K_REDUCE_RANKS;
	CHECK_OK(srt_kernels_selftest(SRT_K_REDUCE_RANKS, SRT_BF16, run, &cpu, &kernel));
	CHECK_INT(cpu.nlaunches, 2 * ncases);
	cpu = (cpu_t){ SRT_ISA_BASELINE, 2, 0 };
	CHECK_STATUS(srt_kernels_selftest(SRT_K_REDUCE_RANKS, SRT_F16, run, &cpu, &kernel),
		     SRT_ERR_DEVICE);
	CHECK_STR(kernel, "reduce_ranks");
}

/* ---- of the cpu device --------------------------------------------------------------------- */
static int nlogged;

static void count_log(srt_log_level_t level, const char *message, void *arg)
{
	(void)message;
	(void)arg;
	nlogged += level == SRT_LOG_WARN;
}

/* A sum whose last bit is wrong. */
static srt_status_t submit_wrong(void *stream, const srt_command_t *command)
{
	srt_status_t status = srt_cpu_submit(stream, command);

	if (command->kind == SRT_COMMAND_KERNEL && command->kernel == SRT_K_BIAS_BACKWARD)
		*(unsigned char *)srt_cpu_tensor(&command->bindings[0]) ^= 1;
	return status;
}

static void test_kernels(srt_cpu_device_t *cpu)
{
	srt_selftest_t *t = &cpu->selftest;
	srt_backend_stream_ops_t wrong = srt_cpu_stream_ops;

	wrong.submit = submit_wrong;
	CHECK_OK(srt_selftest_all(t, SRT_F32));
	t->stream = &wrong;
	CHECK_STATUS(srt_selftest_all(t, SRT_F32), SRT_ERR_DEVICE);
	CHECK_ERROR_HAS("kernel \"bias_backward\" gives other bits");
	CHECK_ERROR_HAS("refused in exact mode");
	t->exact = false;
	nlogged = 0;
	CHECK_OK(srt_selftest_all(t, SRT_F32));
	CHECK_INT(nlogged, 1);
	t->exact = true;
	t->is_off = true; /* as SHARDRT_SELFTEST=no has it */
	CHECK_OK(srt_selftest_all(t, SRT_F32));
	CHECK_OK(srt_selftest_kernel(t, SRT_K_BIAS_BACKWARD, SRT_BF16));
	t->passed[SRT_BF16][SRT_K_BIAS_BACKWARD] = false;
	t->is_off = false;
	t->stream = &srt_cpu_stream_ops;
}

/* A 16-bit kernel is tested when it is first used: refused as often as it is wrong, and it alone;
 * what passed once is not tested again. */
static void test_kernels_16(srt_cpu_device_t *cpu)
{
	srt_selftest_t *t = &cpu->selftest;
	srt_backend_stream_ops_t wrong = srt_cpu_stream_ops;

	wrong.submit = submit_wrong;
	t->stream = &wrong;
	for (srt_dtype_t dtype = SRT_F16; dtype <= SRT_BF16; dtype++) {
		for (int again = 0; again < 2; again++) {
			CHECK_STATUS(srt_selftest_kernel(t, SRT_K_BIAS_BACKWARD, dtype),
				     SRT_ERR_DEVICE);
			CHECK_ERROR_HAS("kernel \"bias_backward\" gives other bits");
			CHECK_ERROR_HAS("refused in exact mode");
		}
		CHECK_OK(srt_selftest_kernel(t, SRT_K_ADD, dtype));
		t->exact = dtype == SRT_F16;
		t->stream = t->exact ? &srt_cpu_stream_ops : &wrong;
		CHECK_OK(srt_selftest_kernel(t, SRT_K_BIAS_BACKWARD, dtype));
		t->exact = true;
		t->stream = &wrong;
		CHECK_OK(srt_selftest_kernel(t, SRT_K_BIAS_BACKWARD, dtype));
	}
	t->stream = &srt_cpu_stream_ops;
}

/* The variable is read when a device is opened. */
static void test_off(void)
{
	srt_device_t *device;

	setenv("SHARDRT_SELFTEST", "no", 1);
	device = test_cpu_device(1, "inline");
	CHECK(((srt_cpu_device_t *)device->impl)->selftest.is_off);
	srt_device_close(device);
	unsetenv("SHARDRT_SELFTEST");
	device = test_cpu_device(1, "inline");
	CHECK(!((srt_cpu_device_t *)device->impl)->selftest.is_off);
	srt_device_close(device);
}

static const srt_cpu_gemm_t *right;

/* An output is wrong, also when it is rounded to 16 bits. */
static void tile_wrong(int rows, int cols, int64_t kc, const float *a, int64_t rs, int64_t cs,
		       const float *b, int64_t ldb, const srt_cpu_tile_io_t *io)
{
	right->tile(rows, cols, kc, a, rs, cs, b, ldb, io);
	io->c[(rows - 1) * io->ldc + cols - 1] += 1.0f;
}

static void softmax_wrong(float *s, int64_t n, float stats[2])
{
	right->softmax(s, n, stats);
	((unsigned char *)&stats[1])[0] ^= 1;
}

static void softmax_backward_wrong(float *p, float *ds, int64_t n, const float stats[2], float d,
				   float scale)
{
	right->softmax_backward(p, ds, n, stats, d, scale);
	ds[0] += ds[0];
}

static void softmax_backward_half_wrong(float *p, float *ds, int64_t n, const float stats[2],
					float scale)
{
	right->softmax_backward_half(p, ds, n, stats, scale);
	ds[0] += ds[0]; /* which 16 bits have too */
}

/* With wrong micro-kernels. */
static void expect_refused(srt_cpu_device_t *cpu, const srt_cpu_gemm_t *wrong, const char *what)
{
	srt_selftest_t *t = &cpu->selftest;

	cpu->gemm = wrong;
	t->is_off = true;
	t->tuned[SRT_F32] = 0;
	CHECK_OK(srt_selftest_tuned(t, SRT_F32));
	t->is_off = false;
	t->tuned[SRT_F32] = 0;
	CHECK_STATUS(srt_selftest_tuned(t, SRT_F32), SRT_ERR_DEVICE);
	CHECK_ERROR_HAS(what);
	CHECK_ERROR_HAS("refused in exact mode");
	t->tuned[SRT_F32] = 0;
	for (size_t i = 0; i < SRT_ARRAY_LEN(dtypes); i++) {
		t->exact = dtypes[i] != SRT_F32; /* 16 bits are not tested at open */
		nlogged = 0;
		CHECK_MSG(!srt_selftest_has_tuned(t, dtypes[i]), "%s: not %s",
			  srt_dtype_name(dtypes[i]), what);
		CHECK(!srt_selftest_has_tuned(t, dtypes[i]));
		CHECK_INT(nlogged, 1);
		t->tuned[dtypes[i]] = 0;
	}
	cpu->gemm = right;
}

static void test_tuned(srt_cpu_device_t *cpu)
{
	srt_cpu_gemm_t wrong;
	double start;

	right = cpu->gemm;
	wrong = *right;
	wrong.tile = tile_wrong;
	expect_refused(cpu, &wrong, "the tuned matrix product in f32 gives other bits");
	wrong = *right;
	wrong.softmax = softmax_wrong;
	expect_refused(cpu, &wrong, "the tuned attention in f32 gives other bits");
	wrong = *right;
	wrong.softmax_backward = softmax_backward_wrong;
	wrong.softmax_backward_half = softmax_backward_half_wrong;
	expect_refused(cpu, &wrong, "the tuned gradient of attention in f32 gives other bits");
	for (size_t i = 0; i < SRT_ARRAY_LEN(dtypes); i++) {
		start = srt_now_s();
		CHECK_OK(srt_selftest_tuned(&cpu->selftest, dtypes[i]));
		CHECK(srt_selftest_has_tuned(&cpu->selftest, dtypes[i]));
		printf("tuned, %s: %.2f ms\n", srt_kernel_dtype_name(dtypes[i]),
		       (srt_now_s() - start) * 1e3);
	}
}

int main(void)
{
	const char *kernel;

	for (int isa = 0; isa < SRT_ISA_COUNT; isa++)
		for (size_t i = 0; srt_cpu_isa_usable((srt_cpu_isa_t)isa) && i < 3; i++)
			test_isa((srt_cpu_isa_t)isa, dtypes[i]);
	test_one();
	test_off();
	CHECK_STATUS(srt_kernels_selftest(SRT_SELFTEST_ALL, SRT_F32, fail, NULL, &kernel),
		     SRT_ERR_UNSUPPORTED);
	CHECK(kernel == NULL); /* it did not run: its bits are not wrong */
	srt_log_set(count_log, SRT_LOG_WARN, NULL);
	for (int isa = 0; isa < SRT_ISA_COUNT; isa++) {
		srt_device_t *device;

		if (!srt_cpu_isa_usable((srt_cpu_isa_t)isa))
			continue;
		setenv("SHARDRT_CPU_ISA", srt_cpu_isa_name((srt_cpu_isa_t)isa), 1);
		device = test_cpu_device(1 + isa % 2, isa % 2 ? "threads" : "inline");
		test_kernels(device->impl);
		test_kernels_16(device->impl);
		test_tuned(device->impl);
		srt_device_close(device);
	}
	return check_done();
}
