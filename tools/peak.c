/* SPDX-License-Identifier: BSD-3-Clause */
/* See peak.h. */
#include "config.h"

#include "tools/peak.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A thread's speed is the median of so many measurements, each about a millisecond. */
#define NMEASURED 15
#define ROUNDS (1 << 18)

static tool_peak_fn *find_function(const char *isa)
{
#ifdef __x86_64__
	if (!strcmp(isa, "baseline"))
		return tool_peak_baseline;
#endif
#ifdef HAVE_AVX2
	if (!strcmp(isa, "avx2"))
		return tool_peak_avx2;
#endif
#ifdef HAVE_AVX512
	if (!strcmp(isa, "avx512"))
		return tool_peak_avx512;
#endif
#ifdef HAVE_NEON
	if (!strcmp(isa, "neon"))
		return tool_peak_neon;
#endif
	(void)isa;
	return NULL;
}

const char *tool_peak_best_isa(void)
{
#ifdef __x86_64__
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
		return "avx512";
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return "avx2";
#elif defined(__aarch64__)
	return "neon";
#endif
	return "baseline";
}

static double thread_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

typedef struct measurement {
	tool_peak_fn *fn;
	pthread_t thread;
	float result;
	double flops; /* per second */
} measurement_t;

static void *measure_thread(void *arg)
{
	measurement_t *m = arg;
	double speed[NMEASURED];

	for (int i = 0; i < NMEASURED; i++) {
		const double start_s = thread_s();
		const double flops = ROUNDS * m->fn(ROUNDS, &m->result);

		speed[i] = flops / (thread_s() - start_s);
	}
	qsort(speed, NMEASURED, sizeof(speed[0]), compare_doubles);
	m->flops = speed[NMEASURED / 2];
	return NULL;
}

static int limit_to_cores(int nthreads)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) > nthreads)
		return nthreads;
	return CPU_COUNT(&set);
}

double tool_peak(const char *isa, int nthreads)
{
	const int n = limit_to_cores(nthreads);
	tool_peak_fn *fn = find_function(isa);
	measurement_t *m = fn != NULL ? calloc((size_t)n, sizeof(*m)) : NULL;
	double flops = 0.0;
	int nstarted = 0;

	if (m == NULL)
		return 0.0;
	for (; nstarted < n; nstarted++) {
		m[nstarted].fn = fn;
		if (pthread_create(&m[nstarted].thread, NULL, measure_thread, &m[nstarted]))
			break;
	}
	for (int i = 0; i < nstarted; i++) {
		pthread_join(m[i].thread, NULL);
		flops += m[i].flops;
	}
	free(m);
	return nstarted == n ? flops : 0.0;
}
