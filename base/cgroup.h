/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control groups of this process, which containers and batch systems limit. A header, because
 * modules of backends link no object of base.
 */
#ifndef SRT_BASE_CGROUP_H
#define SRT_BASE_CGROUP_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SRT_CGROUP_PATH_NBYTES 1024

/* Reads the limits of one group from its folder. v2: the files are those of version 2. */
typedef void srt_cgroup_fn_t(void *arg, const char *folder, bool v2);

/* Visits the group's folder and its parents, up to the hierarchy's mount. A container may see its
 * own group as the mount; then only that is found. */
static inline void srt_cgroup_visit_levels(const char *mount, const char *cgroup, bool v2,
					   srt_cgroup_fn_t *visit, void *arg)
{
	char folder[SRT_CGROUP_PATH_NBYTES];
	size_t root = strlen(mount);
	int n = snprintf(folder, sizeof(folder), "%s%s", mount, cgroup);

	if (n < 0 || (size_t)n >= sizeof(folder))
		return;
	for (;;) {
		char *slash;

		visit(arg, folder, v2);
		slash = strrchr(folder, '/');
		if (strlen(folder) <= root || slash == NULL || (size_t)(slash - folder) < root)
			return;
		*slash = '\0';
	}
}

/* Whether a list such as "cpu,cpuacct" has the controller. */
static inline bool srt_cgroup_lists(const char *list, const char *controller)
{
	size_t n = strlen(controller);

	for (const char *at = list; (at = strstr(at, controller)) != NULL; at += n) {
		if ((at == list || at[-1] == ',') && (at[n] == '\0' || at[n] == ','))
			return true;
	}
	return false;
}

/* Visits all levels of this process's groups that have the controller ("cpu" or "memory"), of both
 * versions. root: the folder of /proc and /sys; "" except in tests. */
static inline void srt_cgroup_visit(const char *root, const char *controller,
				    srt_cgroup_fn_t *visit, void *arg)
{
	char line[SRT_CGROUP_PATH_NBYTES], path[SRT_CGROUP_PATH_NBYTES];
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	f = fopen(path, "re");
	if (f == NULL)
		return;
	/* hierarchy:controllers:path */
	while (fgets(line, sizeof(line), f) != NULL) {
		char *controllers = strchr(line, ':');
		char *cgroup = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
		bool v2;

		if (cgroup == NULL)
			continue;
		*cgroup++ = '\0';
		controllers++;
		cgroup[strcspn(cgroup, "\n")] = '\0';
		v2 = !controllers[0];
		if (!v2 && !srt_cgroup_lists(controllers, controller))
			continue;
		snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s", root, v2 ? "" : "/",
			 v2 ? "" : controller);
		srt_cgroup_visit_levels(path, cgroup, v2, visit, arg);
	}
	fclose(f);
}

#endif
