/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory between processes. A handle names the file of the owner's heap (memory.c) and a range of
 * it, which another process opens through /proc and maps. The first bytes of the range, in the
 * guard zone, say whether the allocation lives, and who has it open: so use after the owner has
 * freed it is found, and freeing it while others have it open.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake_cuda/fake.h"

#define MAGIC 0x66616b65u

typedef struct handle {
	uint32_t magic;
	int pid, fd;
	unsigned number;
	uint64_t outer, begin, end, limit; /* from the heap's start */
} handle_t;

_Static_assert(sizeof(handle_t) <= sizeof(CUipcMemHandle), "room in a handle");

static fake_mark_t *mark_of(const fake_alloc_t *a)
{
	return (fake_mark_t *)a->outer;
}

bool fake_ipc_lives(const fake_alloc_t *a)
{
	return a->kind != FAKE_IMPORTED ||
	       __atomic_load_n(&mark_of(a)->number, __ATOMIC_ACQUIRE) == a->theirs;
}

/* A process whose memory is gone has nothing mapped any more, though it may not be reaped yet. */
static bool process_lives(int pid)
{
	char path[64], text[8];

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	return readlink(path, text, sizeof(text)) > 0;
}

void fake_ipc_check_closed(const fake_alloc_t *a)
{
	for (int i = 0; i < FAKE_MAX_READERS; i++) {
		int pid = __atomic_load_n(&mark_of(a)->readers[i], __ATOMIC_ACQUIRE);

		if (pid && pid != getpid() && process_lives(pid))
			fake_complain("cuMemFree: process %d has allocation %u of %zu bytes open",
				      pid, a->number, a->end - a->begin);
	}
}

/* Replaces one of the readers of an allocation. */
static bool set_reader(fake_mark_t *mark, int old, int pid)
{
	for (int i = 0; i < FAKE_MAX_READERS; i++) {
		int expected = old;

		if (__atomic_compare_exchange_n(&mark->readers[i], &expected, pid, false,
						__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return true;
	}
	return false;
}

void fake_ipc_unmap(const fake_alloc_t *a)
{
	if (fake_ipc_lives(a))
		set_reader(mark_of(a), getpid(), 0);
	munmap((void *)a->outer, a->limit - a->outer);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
	fake_entry_t call = { .name = "cuIpcGetMemHandle" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	const fake_alloc_t *a = fake_alloc_of(p);
	uintptr_t heap;
	handle_t h = { .magic = MAGIC, .pid = getpid(), .fd = fake_heap(&heap) };

	if (status == CUDA_SUCCESS && fake.ipc == FAKE_IPC_NO_HANDLES)
		status = CUDA_ERROR_NOT_SUPPORTED;
	if (status == CUDA_SUCCESS && (!a || a->kind != FAKE_DEVICE))
		status = CUDA_ERROR_INVALID_VALUE;
	if (status == CUDA_SUCCESS) {
		h.number = a->number;
		h.outer = a->outer - heap;
		h.begin = a->begin - heap;
		h.end = a->end - heap;
		h.limit = a->limit - heap;
		memset(out, 0, sizeof(*out));
		memcpy(out, &h, sizeof(h));
	}
	return fake_leave(&call, status);
}

/* Maps a peer's range; its guard zone must still say that it lives. */
static CUresult import(CUcontext ctx, const handle_t *h, uintptr_t *address)
{
	size_t nbytes = h->limit - h->outer;
	fake_alloc_t a = {
		.kind = FAKE_IMPORTED, .ctx = ctx, .theirs = h->number, .owner = h->pid, .opens = 1
	};
	char path[64];
	void *p;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", h->pid, h->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_MAP_FAILED;
	p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)h->outer);
	close(fd);
	if (p == MAP_FAILED)
		return CUDA_ERROR_MAP_FAILED;
	a.outer = (uintptr_t)p;
	a.limit = a.outer + nbytes;
	a.begin = a.outer + (h->begin - h->outer);
	a.end = a.outer + (h->end - h->outer);
	if (!fake_ipc_lives(&a) || !set_reader(p, 0, getpid())) {
		munmap(p, nbytes);
		return CUDA_ERROR_MAP_FAILED;
	}
	*address = fake_alloc_add(&a)->begin;
	return CUDA_SUCCESS;
}

/* What is open already has one address, and is counted. */
static bool open_again(CUcontext ctx, const handle_t *h, uintptr_t *address)
{
	fake_alloc_t *a;

	for (size_t i = 0; (a = fake_alloc_at(i)); i++) {
		if (a->kind != FAKE_IMPORTED || a->ctx != ctx || a->owner != h->pid ||
		    a->theirs != h->number)
			continue;
		a->opens++;
		*address = a->begin;
		return true;
	}
	return false;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
	fake_entry_t call = { .name = "cuIpcOpenMemHandle" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL | FAKE_NO_CAPTURE);
	handle_t h;
	uintptr_t address = 0;

	memcpy(&h, &handle, sizeof(h));
	if (status == CUDA_SUCCESS &&
	    (h.magic != MAGIC || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
		status = CUDA_ERROR_INVALID_VALUE;
	if (status == CUDA_SUCCESS && fake.ipc == FAKE_IPC_NO_OPENING)
		status = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	/* As the driver: not for the process that made it. */
	if (status == CUDA_SUCCESS && h.pid == getpid())
		status = CUDA_ERROR_INVALID_CONTEXT;
	if (status == CUDA_SUCCESS && !open_again(fake_current(), &h, &address))
		status = import(fake_current(), &h, &address);
	if (status == CUDA_SUCCESS)
		*out = address;
	return fake_leave(&call, status);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
	fake_entry_t call = { .name = "cuIpcCloseMemHandle" };

	return fake_free_kind(&call, p, FAKE_IMPORTED);
}
