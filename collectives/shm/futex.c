/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads sleep on a flag in shared memory (shm/control.h) by a futex. */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "collectives/shm/control.h"

static long call_futex(_Atomic uint32_t *flag, int op, uint32_t value,
		       const struct timespec *timeout)
{
	return syscall(SYS_futex, flag, op, value, timeout, NULL, 0);
}

/* Called after a change of the value. Both steps are sequentially consistent, like the sleeper's
 * two: either the sleeper sees the new value, or this thread sees the sleeper. */
static void wake_sleepers(srt_shm_flag_t *flag)
{
	if (atomic_load(&flag->nsleepers) != 0)
		call_futex(&flag->value, FUTEX_WAKE, INT32_MAX, NULL);
}

void srt_shm_set_flag(srt_shm_flag_t *flag, uint32_t value)
{
	atomic_store(&flag->value, value);
	wake_sleepers(flag);
}

void srt_shm_count_flag(srt_shm_flag_t *flag, uint32_t last)
{
	if (atomic_fetch_add(&flag->value, 1) + 1 == last)
		wake_sleepers(flag);
}

void srt_shm_wait_flag(srt_shm_flag_t *flag, uint32_t value, double seconds)
{
	struct timespec timeout = {
		.tv_sec = (time_t)seconds,
		.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9),
	};
	uint32_t seen;

	/* A rank that is killed here leaves the count too high, which costs a system call at each
	 * change. */
	atomic_fetch_add(&flag->nsleepers, 1);
	seen = atomic_load(&flag->value);
	if ((int32_t)(seen - value) < 0)
		call_futex(&flag->value, FUTEX_WAIT, seen, &timeout);
	atomic_fetch_sub(&flag->nsleepers, 1);
}
