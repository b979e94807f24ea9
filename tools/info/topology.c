/* SPDX-License-Identifier: BSD-3-Clause */
/* The topology of the node: from hwloc if it is compiled in, else from sysconf(). */
#include "config.h"

#include "tools/common.h"
#include "tools/info/info.h"

#include <stdio.h>

#ifdef HAVE_HWLOC
#include <hwloc.h>

/* One level of the topology: the number of objects, and the size of the first one. */
static void print_level(hwloc_topology_t topology, hwloc_obj_type_t type, const char *what)
{
	int n = hwloc_get_nbobjs_by_type(topology, type);
	hwloc_obj_t first = n > 0 ? hwloc_get_obj_by_type(topology, type, 0) : NULL;
	char text[32];

	if (first == NULL)
		return;
	printf("    %s: %d", what, n);
	if (hwloc_obj_type_is_cache(type))
		printf(" x %s", tool_bytes((double)first->attr->cache.size, text));
	if (type == HWLOC_OBJ_NUMANODE)
		printf(", first %s", tool_bytes((double)first->attr->numanode.local_memory, text));
	printf("\n");
}

void info_topology(void)
{
	hwloc_topology_t topology;

	printf("topology:\n");
	if (hwloc_topology_init(&topology)) {
		printf("    not available: hwloc_topology_init() failed\n");
		return;
	}
	if (hwloc_topology_load(topology)) {
		printf("    not available: hwloc_topology_load() failed\n");
	} else {
		print_level(topology, HWLOC_OBJ_PACKAGE, "packages");
		print_level(topology, HWLOC_OBJ_NUMANODE, "memory nodes");
		print_level(topology, HWLOC_OBJ_L3CACHE, "L3 caches");
		print_level(topology, HWLOC_OBJ_L2CACHE, "L2 caches");
		print_level(topology, HWLOC_OBJ_CORE, "cores");
		print_level(topology, HWLOC_OBJ_PU, "hardware threads");
	}
	hwloc_topology_destroy(topology);
}
#else
#include <unistd.h>

void info_topology(void)
{
	char text[32];

	printf("topology:\n    hardware threads: %ld\n    memory: %s\n"
	       "    (libshardrt was built without hwloc, which gives more)\n",
	       sysconf(_SC_NPROCESSORS_ONLN),
	       tool_bytes((double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE), text));
}
#endif
