/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the late device: the toy's, but freed memory is kept for a while. Its bytes are 0xff:
 * a command that reads it too late computes with NaN, and one that writes it does no harm.
 */
#include <string.h>

#include "tests/fakes/backend_late/late.h"

#define KEPT_NBYTES ((size_t)64 << 20) /* at most, unless one allocation is larger */
#define KEPT_MAX 1024

typedef struct late_freed {
	toy_device_t *device;
	toy_mem_t *mem;
} late_freed_t;

/* The freed memory of all devices, oldest first: a ring. */
static struct {
	pthread_mutex_t lock;
	late_freed_t freed[KEPT_MAX];
	size_t first, n, nbytes;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void free_oldest(void)
{
	late_freed_t *oldest = &kept.freed[kept.first];

	kept.first = (kept.first + 1) % KEPT_MAX;
	kept.n--;
	if (oldest->mem == NULL)
		return;
	kept.nbytes -= oldest->mem->nbytes;
	toy_mem_ops.free(oldest->device, oldest->mem);
}

static void mem_free(void *device, void *m)
{
	toy_mem_t *mem = m;

	if (mem->owned)
		memset(mem->bytes, 0xff, mem->nbytes);
	pthread_mutex_lock(&kept.lock);
	while (kept.n == KEPT_MAX || (kept.n > 0 && kept.nbytes + mem->nbytes > KEPT_NBYTES))
		free_oldest();
	kept.freed[(kept.first + kept.n++) % KEPT_MAX] = (late_freed_t){ device, mem };
	kept.nbytes += mem->nbytes;
	pthread_mutex_unlock(&kept.lock);
}

void late_mem_release(toy_device_t *device)
{
	pthread_mutex_lock(&kept.lock);
	for (size_t i = 0; i < kept.n; i++) {
		late_freed_t *freed = &kept.freed[(kept.first + i) % KEPT_MAX];

		if (freed->device != device || freed->mem == NULL)
			continue;
		kept.nbytes -= freed->mem->nbytes;
		toy_mem_ops.free(device, freed->mem);
		freed->mem = NULL;
	}
	pthread_mutex_unlock(&kept.lock);
}

static srt_status_t mem_alloc(void *device, srt_mem_kind_t kind, size_t nbytes, const char *name,
			      void **mem)
{
	return toy_mem_ops.alloc(device, kind, nbytes, name, mem);
}

static void *mem_host(void *device, void *mem)
{
	return toy_mem_ops.host(device, mem);
}

static srt_status_t mem_wrap_host(void *device, void *host, size_t nbytes, const char *name,
				  void **mem)
{
	return toy_mem_ops.wrap_host(device, host, nbytes, name, mem);
}

const srt_backend_mem_ops_t late_mem_ops = {
	.alloc = mem_alloc,
	.free = mem_free,
	.host = mem_host,
	.wrap_host = mem_wrap_host,
};
