/* SPDX-License-Identifier: BSD-3-Clause */
/* Causes of low shares: each is printed if it is found on this machine; see bench.h. */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "models/try.h"
#include "tools/info/bench.h"
#include "tools/peak.h"

/* What rank 0 needs to know of a rank. */
typedef struct found {
	cpu_set_t set; /* processors that it may use */
	double own;    /* processor time that it used, seconds */
} found_t;

__attribute__((format(printf, 2, 3))) static void print_cause(bench_t *b, const char *format, ...)
{
	va_list args;

	printf("# ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	b->ncauses++;
}

/* The first line of a file of the kernel; "" if there is none. */
static const char *read_line(const char *path, char line[256])
{
	FILE *f = fopen(path, "r");

	if (f == NULL || fgets(line, 256, f) == NULL)
		line[0] = '\0';
	if (f != NULL)
		fclose(f);
	return line;
}

/* The number in a file about a processor, or `none`. */
static long read_cpu_number(int cpu, const char *name, long none)
{
	char path[128], line[256];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/%s", cpu, name);
	return *read_line(path, line) ? strtol(line, NULL, 10) : none;
}

bench_usage_t bench_usage(void)
{
	unsigned long long t[8] = { 0 }; /* user nice system idle iowait irq softirq steal */
	struct rusage own;
	struct timespec now;
	char line[256];

	sscanf(read_line("/proc/stat", line), "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0],
	       &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]);
	getrusage(RUSAGE_SELF, &own);
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (bench_usage_t){
		.wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec,
		.busy = (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) /
			(double)sysconf(_SC_CLK_TCK),
		.own = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
		       1e-6 * (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec),
	};
}

static void check_isa(bench_t *b)
{
	const char *best = tool_peak_best_isa(), *isa = b->info.isa, *value = "auto";

	if (!*isa || strcmp(isa, best) == 0 || strcmp(best, "baseline") == 0)
		return;
	srt_config_value("SHARDRT_CPU_ISA", &value, NULL);
	if (strcmp(value, "auto") != 0)
		print_cause(b, "SHARDRT_CPU_ISA=%s: this processor has %s", value, best);
	else
		print_cause(b,
			    "this libshardrt was built without %s, which this processor has: "
			    "configure --with-isa",
			    best);
}

/* Cores that these processors are threads of. */
static int count_cores(const cpu_set_t *set)
{
	int n = 0;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		const char *file = "topology/thread_siblings_list";

		if (!CPU_ISSET(cpu, set))
			continue;
		const long first = read_cpu_number(cpu, file, cpu);

		n += first == cpu || first >= CPU_SETSIZE || !CPU_ISSET((int)first, set);
	}
	return n;
}

/* Ranks of this node. */
static void check_processors(bench_t *b, const found_t *all, int nranks)
{
	const int threads = nranks * b->info.threads;
	const bench_usage_t now = bench_usage();
	double others = now.busy - b->before.busy;
	cpu_set_t set = all[0].set;
	int ncores;

	for (int r = 0; r < nranks; r++) {
		CPU_OR(&set, &set, &all[r].set);
		others -= all[r].own;
	}
	ncores = count_cores(&set);
	if (threads > ncores)
		print_cause(b, "%d threads share %d core%s: fewer ranks, or SHARDRT_THREADS",
			    threads, ncores, ncores == 1 ? "" : "s");
	else if (b->is_all_low)
		print_cause(b,
			    "threads are slower together than alone, in registers too: the clock "
			    "falls, or virtual processors share cores");
	others /= now.wall - b->before.wall;
	if (others > 0.05 * (double)sysconf(_SC_NPROCESSORS_ONLN))
		print_cause(b, "other programs kept %.2f of %ld processors busy", others,
			    sysconf(_SC_NPROCESSORS_ONLN));
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		const long limit = read_cpu_number(cpu, "cpufreq/scaling_max_freq", 0);
		const long most = read_cpu_number(cpu, "cpufreq/cpuinfo_max_freq", 0);

		if (limit < most) {
			print_cause(b,
				    "the clock of processor %d is limited to %ld of %ld MHz: "
				    "scaling_max_freq",
				    cpu, limit / 1000, most / 1000);
			break;
		}
	}
}

static void check_collectives(bench_t *b, bool is_one_node)
{
	const char *transport = srt_comm_transport(b->ranks.comm), *chosen = "", *peer = "";

	if (b->ranks.world == 1) {
		printf("# collectives are measured with several ranks: shardrun -n 2 shardrt-info "
		       "--bench\n");
		return;
	}
	printf("# collectives: %s\n", transport);
	if (!is_one_node || strcmp(transport, "zero copy") == 0 || strcmp(transport, "nccl") == 0)
		return;
	srt_config_value("SHARDRT_COLLECTIVES", &chosen, NULL);
	srt_config_value("SHARDRT_PEER_MEMORY", &peer, NULL);
	print_cause(b, "collectives are %s: SHARDRT_COLLECTIVES=%s, SHARDRT_PEER_MEMORY=%s%s",
		    transport, chosen, peer,
		    strcmp(chosen, "auto") == 0 && strcmp(peer, "auto") == 0 ?
			    ", and peers cannot map the memory of a rank's device" :
			    "");
}

static void print_causes(bench_t *b, const found_t *all)
{
	const bool is_one_node = srt_context_local_size(b->context) == b->ranks.world;
	char line[256];

	if (strstr(srt_build_info(), "sanitizers: none") == NULL)
		print_cause(b, "this libshardrt was built with sanitizers");
	check_isa(b);
	if (strcmp(b->info.backend, "cpu") == 0 && is_one_node)
		check_processors(b, all, b->ranks.world);
	if (b->nlow > 0 && strstr(read_line("/sys/kernel/mm/transparent_hugepage/enabled", line),
				  "[never]") != NULL)
		print_cause(b, "no huge pages: /sys/kernel/mm/transparent_hugepage/enabled");
	check_collectives(b, is_one_node);
	if (*b->fast_why)
		printf("# products in mode fast: none: %s\n", b->fast_why);
	if (b->nlow > 0 && b->ncauses == 0)
		printf("# no cause of the low shares was found; see docs/benchmarks.md\n");
}

srt_status_t bench_hints(bench_t *b)
{
	found_t mine = { .own = bench_usage().own - b->before.own }, *all;
	srt_status_t status;

	if (sched_getaffinity(0, sizeof(mine.set), &mine.set) != 0)
		CPU_ZERO(&mine.set);
	all = calloc((size_t)b->ranks.world, sizeof(*all));
	if (all == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no memory for %d ranks",
				      b->ranks.world);
	status = srt_comm_oob_allgather(b->ranks.comm, &mine, sizeof(mine), all);
	if (status == SRT_OK && b->ranks.rank == 0)
		print_causes(b, all);
	free(all);
	return status;
}
