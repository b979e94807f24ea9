/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels' self-test: every kernel has a case, all instruction sets have the digests compiled
 * in, one wrong bit in any output is noticed, and it is quick. With the argument "print": the
 * digests as this machine computes them.
 */
#include <time.h>

#include "kernels/cpu.h"
#include "kernels/selftest.h"
#include "tests/check.h"

static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };

#define FOR_DTYPES(d) for (const srt_dtype_t *d = dtypes; d < dtypes + 3; d++)

typedef struct cpu {
	srt_cpu_isa_t isa;
	int flip; /* the launch whose first output gets one wrong bit, near its end; -1 none */
	int nlaunches;
} cpu_t;

static srt_status_t run(void *context, const srt_launch_t *launch, unsigned char *const *host,
			const size_t *nbytes)
{
	cpu_t *cpu = context;
	srt_kernel_cpu_fn *entry = srt_kernel_cpu(launch->kernel, launch->dtype, cpu->isa);

	entry(host, launch->args, 0, launch->ngroups);
	if (cpu->nlaunches++ == cpu->flip)
		host[0][nbytes[0] - 4] ^= 1;
	return SRT_OK;
}

static srt_status_t fail(void *context, const srt_launch_t *launch, unsigned char *const *host,
			 const size_t *nbytes)
{
	(void)context;
	(void)launch;
	(void)host;
	(void)nbytes;
	return SRT_ERR_UNSUPPORTED;
}

/* The digest of a case; false if its kernel has no such dtype. */
static int digest_of(int number, srt_dtype_t dtype, srt_kernel_id_t *kernel, uint64_t *digest,
		     uint64_t *expected)
{
	cpu_t cpu = { SRT_ISA_BASELINE, -1, 0 };
	srt_status_t status =
		srt_kernels_selftest_case(number, dtype, run, &cpu, kernel, digest, expected);

	CHECK(status == SRT_OK || status == SRT_ERR_UNSUPPORTED);
	CHECK_INT(status == SRT_OK, srt_kernel_has(*kernel, dtype));
	return status == SRT_OK;
}

static void print_digests(void)
{
	for (int i = 0; i < srt_kernels_selftest_count(); i++) {
		srt_kernel_id_t kernel = SRT_K_COUNT;
		uint64_t digest, expected;
		int changed = 0;

		FOR_DTYPES(d)
		{
			if (!digest_of(i, *d, &kernel, &digest, &expected))
				continue;
			if (*d == SRT_F32)
				printf("%s", srt_kernel_info(kernel)->name);
			printf(" 0x%016" PRIx64 "u", digest);
			changed |= digest != expected;
		}
		printf("%s\n", changed ? " changed" : "");
	}
}

static void test_all_kernels_have_a_case(void)
{
	int seen[SRT_DTYPE_COUNT][SRT_K_COUNT] = { 0 };

	for (int i = 0; i < srt_kernels_selftest_count(); i++) {
		FOR_DTYPES(d)
		{
			srt_kernel_id_t kernel;
			uint64_t digest, expected;

			if (digest_of(i, *d, &kernel, &digest, &expected))
				seen[*d][kernel] = 1;
		}
	}
	for (int k = 0; k < SRT_K_COUNT; k++)
		FOR_DTYPES(d)
	CHECK_MSG(seen[*d][k] == srt_kernel_has((srt_kernel_id_t)k, *d),
		  "kernel %s has no case for %s", srt_kernel_info((srt_kernel_id_t)k)->name,
		  srt_kernel_dtype_name(*d));
}

static void test_isa(srt_cpu_isa_t isa, srt_dtype_t dtype)
{
	const char *kernel;
	clock_t start = clock();
	cpu_t cpu = { isa, -1, 0 };
	int nlaunches;

	CHECK_MSG(srt_kernels_selftest(dtype, run, &cpu, &kernel) == SRT_OK && !kernel,
		  "%s: %s differs for %s", srt_cpu_isa_name(isa), kernel ? kernel : "?",
		  srt_kernel_dtype_name(dtype));
	printf("%s, %s: %.1f ms of processor time\n", srt_cpu_isa_name(isa),
	       srt_kernel_dtype_name(dtype), (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC);
	nlaunches = cpu.nlaunches;
	CHECK(nlaunches > 0);
	for (int i = 0; i < nlaunches; i++) {
		cpu = (cpu_t){ isa, i, 0 };
		CHECK_STATUS(srt_kernels_selftest(dtype, run, &cpu, &kernel), SRT_ERR_DEVICE);
		CHECK(kernel != NULL);
	}
}

/* One kernel alone: its own cases and no others. */
static void test_one(void)
{
	cpu_t cpu = { SRT_ISA_BASELINE, -1, 0 };
	const char *kernel;

	CHECK_OK(srt_kernels_selftest_one(SRT_K_REDUCE_RANKS, SRT_BF16, run, &cpu, &kernel));
	CHECK_INT(cpu.nlaunches, 3);
	cpu = (cpu_t){ SRT_ISA_BASELINE, 1, 0 };
	CHECK_STATUS(srt_kernels_selftest_one(SRT_K_REDUCE_RANKS, SRT_F16, run, &cpu, &kernel),
		     SRT_ERR_DEVICE);
	CHECK_STR(kernel, "reduce_ranks");
}

int main(int argc, char **argv)
{
	const char *kernel;

	if (argc > 1 && !strcmp(argv[1], "print")) {
		print_digests();
		return check_done();
	}
	test_all_kernels_have_a_case();
	for (int isa = 0; isa < SRT_ISA_COUNT; isa++)
		if (srt_cpu_isa_usable((srt_cpu_isa_t)isa))
			FOR_DTYPES(d)
	test_isa((srt_cpu_isa_t)isa, *d);
	test_one();
	CHECK_STATUS(srt_kernels_selftest(SRT_F32, fail, NULL, &kernel), SRT_ERR_UNSUPPORTED);
	return check_done();
}
