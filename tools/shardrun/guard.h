/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guard: a process that kills the process groups of the ranks when shardrun has ended, in
 * whatever way: SIGKILL, a crash, the OOM killer. PR_SET_PDEATHSIG reaches only the direct children
 * of shardrun, and not what a wrapper runs. Used by tools/shardrun/shardrun.c and child.c.
 */
#ifndef SRT_TOOLS_SHARDRUN_GUARD_H
#define SRT_TOOLS_SHARDRUN_GUARD_H

#include <sys/types.h>

/*
 * Starts the guard. Returns its process, or -1 with errno set. *guard is the descriptor to report
 * groups to: the guard acts when no process has it open any more; it is closed by exec.
 */
pid_t srt_launch_guard_start(int *guard);

/* The process group pid exists from now on. Called by its first process, before exec, and again for
 * another guard. */
void srt_launch_guard_add(int guard, pid_t pid);
/* The group is killed. Called before its first process is reaped: its number is not reused yet. */
void srt_launch_guard_remove(int guard, pid_t pid);

#endif
