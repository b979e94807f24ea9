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

typedef struct cpu {
	srt_cpu_isa_t isa;
	int flip; /* the launch whose first output gets one wrong bit, in its last word; -1 none */
	int nlaunches;
} cpu_t;

static srt_status_t run(void *context, const srt_launch_t *launch, unsigned char *const *host,
			const size_t *nbytes)
{
	cpu_t *cpu = context;
	srt_kernel_cpu_fn *entry =
		srt_kernel_cpu((srt_kernel_id_t)launch->kernel, SRT_F32, cpu->isa);

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

static void print_digests(void)
{
	for (int i = 0; i < srt_kernels_selftest_count(); i++) {
		cpu_t cpu = { SRT_ISA_BASELINE, -1, 0 };
		srt_kernel_id_t kernel;
		uint64_t digest, expected;

		CHECK_OK(srt_kernels_selftest_case(i, run, &cpu, &kernel, &digest, &expected));
		printf("%s 0x%016" PRIx64 "u%s\n", srt_kernel_info(kernel)->name, digest,
		       digest == expected ? "" : " changed");
	}
}

static void test_all_kernels_have_a_case(void)
{
	int seen[SRT_K_COUNT] = { 0 };

	for (int i = 0; i < srt_kernels_selftest_count(); i++) {
		cpu_t cpu = { SRT_ISA_BASELINE, -1, 0 };
		srt_kernel_id_t kernel;
		uint64_t digest, expected;

		CHECK_OK(srt_kernels_selftest_case(i, run, &cpu, &kernel, &digest, &expected));
		seen[kernel] = 1;
	}
	for (int k = 0; k < SRT_K_COUNT; k++)
		CHECK_MSG(seen[k], "kernel %s has no case",
			  srt_kernel_info((srt_kernel_id_t)k)->name);
}

static void test_isa(srt_cpu_isa_t isa)
{
	const char *kernel;
	clock_t start = clock();
	cpu_t cpu = { isa, -1, 0 };

	CHECK_MSG(srt_kernels_selftest(run, &cpu, &kernel) == SRT_OK && !kernel, "%s: %s differs",
		  srt_cpu_isa_name(isa), kernel ? kernel : "?");
	printf("%s: %.1f ms of processor time\n", srt_cpu_isa_name(isa),
	       (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC);
	for (int i = 0; i < srt_kernels_selftest_count(); i++) {
		cpu = (cpu_t){ isa, i, 0 };
		CHECK_STATUS(srt_kernels_selftest(run, &cpu, &kernel), SRT_ERR_DEVICE);
		CHECK(kernel != NULL);
	}
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
			test_isa((srt_cpu_isa_t)isa);
	CHECK_STATUS(srt_kernels_selftest(fail, NULL, &kernel), SRT_ERR_UNSUPPORTED);
	return check_done();
}
