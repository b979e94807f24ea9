/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the cores that the process may use, and binds the ranks of a node to disjoint cores.
 * Binding needs hwloc; without it, or with fewer cores than threads, the scheduler decides. A
 * binding by the launcher (mpirun, srun, taskset) is not changed.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_HWLOC
#include <hwloc.h>
#endif

#include "backends/cpu/cpu.h"
#include "base/base.h"

void srt_cpu_model_name(char *name, size_t name_nbytes)
{
	char line[256];
	FILE *f = fopen("/proc/cpuinfo", "re");

	snprintf(name, name_nbytes, "unknown processor");
	if (f == NULL)
		return;
	while (fgets(line, sizeof(line), f) != NULL) {
		const char *value = strchr(line, ':');

		if (value == NULL || strncmp(line, "model name", 10) != 0)
			continue;
		value += strspn(value, ": \t");
		snprintf(name, name_nbytes, "%.*s", (int)strcspn(value, "\n"), value);
		break;
	}
	fclose(f);
}

#ifdef HAVE_HWLOC

typedef struct binding {
	hwloc_topology_t topology;
	hwloc_cpuset_t before;
} binding_t;

/* The cores of one rank: an equal number of adjacent cores. */
static hwloc_cpuset_t rank_cores(hwloc_topology_t topology, int ncores, int local_rank,
				 int local_size)
{
	hwloc_cpuset_t set = hwloc_bitmap_alloc();
	int first = (int)((int64_t)ncores * local_rank / local_size);
	int end = (int)((int64_t)ncores * (local_rank + 1) / local_size);

	for (int i = first; set != NULL && i < end; i++) {
		hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);

		hwloc_bitmap_or(set, set, core->cpuset);
	}
	return set;
}

/* Binds if there are enough cores; else sets `why`. */
static bool bind_in_topology(binding_t *b, int local_rank, int local_size, int threads,
			     const char **why)
{
	hwloc_cpuset_t mine;
	bool bound;
	int ncores = hwloc_get_nbobjs_by_type(b->topology, HWLOC_OBJ_CORE);

	if (ncores < 1 || ncores / local_size < threads) {
		*why = "the ranks of this node have more threads than it has cores";
		return false;
	}
	if (hwloc_get_cpubind(b->topology, b->before, HWLOC_CPUBIND_THREAD)) {
		*why = "the present binding cannot be read";
		return false;
	}
	if (!hwloc_bitmap_isincluded(hwloc_topology_get_allowed_cpuset(b->topology), b->before)) {
		*why = "the launcher has already bound this process";
		return false;
	}
	mine = rank_cores(b->topology, ncores, local_rank, local_size);
	bound = mine != NULL && hwloc_set_cpubind(b->topology, mine, HWLOC_CPUBIND_THREAD) == 0;
	if (!bound)
		*why = "the system refused to bind";
	hwloc_bitmap_free(mine);
	return bound;
}

static void *try_bind(int local_rank, int local_size, int threads, const char **why)
{
	binding_t *b = srt_calloc(1, sizeof(*b), "the binding");

	*why = "out of memory";
	if (b == NULL)
		return NULL;
	b->before = hwloc_bitmap_alloc();
	if (b->before == NULL)
		goto free_binding;
	*why = "hwloc cannot read the topology";
	if (hwloc_topology_init(&b->topology))
		goto free_before;
	if (hwloc_topology_load(b->topology) ||
	    !bind_in_topology(b, local_rank, local_size, threads, why))
		goto destroy_topology;
	return b;

destroy_topology:
	hwloc_topology_destroy(b->topology);
free_before:
	hwloc_bitmap_free(b->before);
free_binding:
	free(b);
	return NULL;
}

void srt_cpu_unbind(void *saved)
{
	binding_t *b = saved;

	if (b == NULL)
		return;
	hwloc_set_cpubind(b->topology, b->before, HWLOC_CPUBIND_THREAD);
	hwloc_topology_destroy(b->topology);
	hwloc_bitmap_free(b->before);
	free(b);
}

#else

static void *try_bind(int local_rank, int local_size, int threads, const char **why)
{
	(void)local_rank;
	(void)local_size;
	(void)threads;
	*why = "this libshardrt was built without hwloc";
	return NULL;
}

void srt_cpu_unbind(void *saved)
{
	(void)saved;
}

#endif

srt_status_t srt_cpu_bind(const char *mode, int local_rank, int local_size, int threads,
			  void **saved)
{
	const char *why;

	*saved = NULL;
	/* A single rank of a node uses all cores. */
	if (strcmp(mode, "no") == 0 || (local_size <= 1 && strcmp(mode, "auto") == 0))
		return SRT_OK;
	*saved = try_bind(local_rank, local_size, threads, &why);
	if (*saved != NULL) {
		srt_log(SRT_LOG_DEBUG, "local rank %d of %d is bound to its own cores", local_rank,
			local_size);
		return SRT_OK;
	}
	if (strcmp(mode, "yes") == 0)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"option bind or SHARDRT_BIND is yes, but %s; set auto or fewer "
				"threads",
				why);
	srt_log(SRT_LOG_DEBUG, "local rank %d of %d is not bound to cores: %s", local_rank,
		local_size, why);
	return SRT_OK;
}
