/* SPDX-License-Identifier: BSD-3-Clause */
/* Causes of low shares: each is printed if it is found on this machine; see bench.h. */
#include <math.h>
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

bench_usage_t bench_usage(const cpu_set_t *set)
{
	bench_usage_t usage = { .busy = 0.0 };
	const double tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
	FILE *f = fopen("/proc/stat", "r");
	struct rusage own;
	struct timespec now;
	char line[256];

	/* user nice system idle iowait irq softirq steal; the first line is of all processors */
	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		unsigned long long user, nice, system, steal;
		int cpu;

		if (strncmp(line, "cpu ", 4) == 0 ||
		    sscanf(line, "cpu%d %llu %llu %llu %*u %*u %*u %*u %llu", &cpu, &user, &nice,
			   &system, &steal) != 5 ||
		    cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, set))
			continue;
		usage.busy += tick_s * (double)(user + nice + system);
		usage.stolen += tick_s * (double)steal;
	}
	if (f != NULL)
		fclose(f);
	getrusage(RUSAGE_SELF, &own);
	clock_gettime(CLOCK_MONOTONIC, &now);
	usage.wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
	usage.own = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
		    1e-6 * (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec);
	return usage;
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

/* Time that the ranks' processors did not have for the ranks, whose own is given. */
static void check_others(bench_t *b, double own)
{
	const bench_usage_t now = bench_usage(&b->set);
	const double wall = now.wall - b->before.wall, busy = now.busy - b->before.busy - own;
	const double stolen = now.stolen - b->before.stolen;
	const int n = CPU_COUNT(&b->set);

	if (busy > 0.05 * n * wall)
		print_cause(b, "other programs kept %.2f of %d processors busy", busy / wall, n);
	if (stolen > 0.05 * n * wall)
		print_cause(b,
			    "the hypervisor withheld %.2f of %d processors from this virtual "
			    "machine: steal time",
			    stolen / wall, n);
}

/* Processors that this process's cgroup and its parents allow, if less than n. Version 2 only. */
static double find_quota(double n)
{
	char group[256], path[300], line[256];

	if (strncmp(read_line("/proc/self/cgroup", group), "0::/", 4) != 0)
		return n;
	group[strcspn(group, "\n")] = '\0';
	for (char *end = group + strlen(group); end != NULL; end = strrchr(group + 3, '/')) {
		double used, period;

		*end = '\0';
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", group + 3);
		if (sscanf(read_line(path, line), "%lf %lf", &used, &period) == 2 && period > 0.0)
			n = fmin(n, used / period);
	}
	return n;
}

/* Ranks of this node. */
static void check_processors(bench_t *b, double own)
{
	const int threads = b->ranks.world * b->info.threads, ncores = count_cores(&b->set);
	const double quota = find_quota(threads);

	if (threads > ncores)
		print_cause(b, "%d threads share %d core%s: fewer ranks, or SHARDRT_THREADS",
			    threads, ncores, ncores == 1 ? "" : "s");
	else if (b->is_all_low)
		print_cause(b,
			    "threads are slower together than alone, in registers too: the clock "
			    "falls, or virtual processors share cores");
	if (quota < threads)
		print_cause(b, "cpu.max of the cgroup allows %.2f processors to %d thread%s", quota,
			    threads, threads == 1 ? "" : "s");
	check_others(b, own);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &b->set))
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

static void print_causes(bench_t *b, double own)
{
	const bool is_one_node = srt_context_local_size(b->context) == b->ranks.world;
	char line[256];

	if (strstr(srt_build_info(), "sanitizers: none") == NULL)
		print_cause(b, "this libshardrt was built with sanitizers");
	check_isa(b);
	if (strcmp(b->info.backend, "cpu") == 0 && is_one_node)
		check_processors(b, own);
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
	const double mine = bench_usage(&b->set).own - b->before.own;
	double own = 0.0, *all = calloc((size_t)b->ranks.world, sizeof(*all));
	srt_status_t status;

	if (all == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no memory for %d ranks",
				      b->ranks.world);
	status = srt_comm_oob_allgather(b->ranks.comm, &mine, sizeof(mine), all);
	for (int r = 0; r < b->ranks.world; r++)
		own += all[r];
	if (status == SRT_OK && b->ranks.rank == 0)
		print_causes(b, own);
	free(all);
	return status;
}
