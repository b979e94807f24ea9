/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory: one sparse file without a name, mapped once, of which each allocation is a range of pages
 * of its own: guard zone, the caller's bytes, guard zone. New bytes are NaN, freed ones another
 * pattern, and addresses are not given out twice; so late writes are found: those of kernels at
 * once, others when the range is dropped. A process that has an IPC handle opens the file through
 * /proc.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake_cuda/fake.h"

#define HEAP_NBYTES ((size_t)1 << 40)
#define PAGE ((size_t)4096)
#define GUARD PAGE
#define ALIGN ((size_t)256) /* what cuMemAlloc promises */
#define GUARD_BYTE 0xfd
#define NEW_BYTE 0xff
#define FREED_BYTE 0xdf
#define KEEP_NBYTES ((size_t)64 << 20) /* of freed ranges that are watched */
#define MAX_FREED 1024
#define IPC_MAGIC 0x66616b65u

/* The first bytes of the front guard zone, for processes that open a handle. */
typedef struct mark {
	uint64_t number; /* 0: freed */
} mark_t;

typedef struct ipc_handle {
	uint32_t magic;
	int pid, fd;
	unsigned number;
	uint64_t outer, begin, end, limit; /* from the heap's start */
} ipc_handle_t;

_Static_assert(sizeof(ipc_handle_t) <= sizeof(CUipcMemHandle), "room in a handle");

typedef struct range {
	uintptr_t outer, limit;
} range_t;

static uintptr_t heap, heap_next;
static int heap_fd;
static fake_alloc_t **allocs; /* by address */
static size_t nallocs, room;
static unsigned nmade;
static range_t freed[MAX_FREED];
static size_t nfreed, freed_nbytes;

static uintptr_t align_up(uintptr_t v, size_t to)
{
	return (v + to - 1) / to * to;
}

/* ---- the list ------------------------------------------------------------------------------ */
/* The first that ends behind the address. */
static size_t find(uintptr_t address)
{
	size_t low = 0, high = nallocs;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (allocs[middle]->end > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

fake_alloc_t *fake_alloc_of(uintptr_t address)
{
	size_t i = find(address);

	return i < nallocs && allocs[i]->begin <= address ? allocs[i] : NULL;
}

static fake_alloc_t *add(const fake_alloc_t *a)
{
	size_t i = find(a->begin);

	if (nallocs == room) {
		room = room ? 2 * room : 256;
		allocs = realloc(allocs, room * sizeof(*allocs));
	}
	if (!allocs)
		abort();
	memmove(&allocs[i + 1], &allocs[i], (nallocs++ - i) * sizeof(*allocs));
	allocs[i] = malloc(sizeof(**allocs));
	if (!allocs[i])
		abort();
	*allocs[i] = *a;
	allocs[i]->number = ++nmade;
	return allocs[i];
}

static void drop(fake_alloc_t *a)
{
	size_t i = find(a->begin);

	memmove(&allocs[i], &allocs[i + 1], (--nallocs - i) * sizeof(*allocs));
	free(a);
}

static const char *const kind_names[] = { "allocation", "imported memory", "pinned memory",
					  "registered memory" };

const char *fake_describe(uintptr_t address, char *text, size_t nbytes)
{
	size_t i = find(address);
	const fake_alloc_t *a = i < nallocs ? allocs[i] : NULL;
	const fake_alloc_t *before = i ? allocs[i - 1] : NULL;

	if (a && a->begin <= address)
		snprintf(text, nbytes, "byte %zu of %s %u of %zu bytes", address - a->begin,
			 kind_names[a->kind], a->number, a->end - a->begin);
	else if (before && address < before->limit)
		snprintf(text, nbytes, "%zu bytes behind %s %u of %zu bytes", address - before->end,
			 kind_names[before->kind], before->number, before->end - before->begin);
	else if (a && a->outer <= address)
		snprintf(text, nbytes, "%zu bytes before %s %u of %zu bytes", a->begin - address,
			 kind_names[a->kind], a->number, a->end - a->begin);
	else if (heap && address >= heap && address < heap_next)
		snprintf(text, nbytes, "%p, memory that was freed", (void *)address);
	else
		snprintf(text, nbytes, "%p, which is no memory of the device", (void *)address);
	return text;
}

bool fake_check_range(const char *what, CUcontext ctx, uintptr_t address, size_t nbytes,
		      bool host_ok)
{
	const fake_alloc_t *a = fake_alloc_of(address);
	char where[160];

	if (a && address + nbytes <= a->end) {
		if (a->ctx == ctx || a->kind == FAKE_PINNED || a->kind == FAKE_REGISTERED)
			return true;
		fake_complain("%s: %s belongs to device %d", what,
			      fake_describe(address, where, sizeof(where)), a->ctx->device);
		return false;
	}
	if (!a && host_ok && (address < heap || address >= heap_next))
		return true;
	if (a)
		address = a->end;
	fake_complain("%s: %zu bytes reach %s", what, nbytes,
		      fake_describe(address, where, sizeof(where)));
	return false;
}

/* ---- guards -------------------------------------------------------------------------------- */
static bool is_filled(uintptr_t begin, uintptr_t end, unsigned char byte, uintptr_t *where)
{
	for (uintptr_t p = begin; p < end; p++)
		if (*(unsigned char *)p != byte) {
			*where = p;
			return false;
		}
	return true;
}

static void check_guard(const fake_alloc_t *a)
{
	uintptr_t where;
	char text[160];

	if (a->kind == FAKE_REGISTERED || a->kind == FAKE_IMPORTED)
		return;
	if (is_filled(a->outer + sizeof(mark_t), a->begin, GUARD_BYTE, &where) &&
	    is_filled(a->end, a->limit, GUARD_BYTE, &where))
		return;
	fake_complain("something wrote %s", fake_describe(where, text, sizeof(text)));
	memset((void *)where, GUARD_BYTE, 1);
}

void fake_check_guards(void)
{
	for (size_t i = 0; i < nallocs; i++)
		check_guard(allocs[i]);
}

/* The oldest freed range becomes a hole. */
static void forget_freed(void)
{
	range_t r = freed[0];
	uintptr_t where;

	if (!is_filled(r.outer, r.limit, FREED_BYTE, &where))
		fake_complain("something wrote %zu bytes into a freed range of %zu bytes",
			      where - r.outer, r.limit - r.outer);
	freed_nbytes -= r.limit - r.outer;
	memmove(&freed[0], &freed[1], --nfreed * sizeof(freed[0]));
	madvise((void *)r.outer, r.limit - r.outer, MADV_REMOVE);
}

/* ---- allocation ---------------------------------------------------------------------------- */
static void heap_make(void)
{
	void *p;

	heap_fd = memfd_create("fake_cuda", MFD_CLOEXEC);
	if (heap_fd < 0 || ftruncate(heap_fd, (off_t)HEAP_NBYTES) != 0)
		abort();
	p = mmap(NULL, HEAP_NBYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, heap_fd, 0);
	if (p == MAP_FAILED)
		abort();
	madvise(p, HEAP_NBYTES, MADV_DONTDUMP);
	heap = heap_next = (uintptr_t)p;
}

static CUresult allocate(CUcontext ctx, fake_kind_t kind, size_t nbytes, uintptr_t *address)
{
	static uint32_t random = 1;
	fake_alloc_t a = { .kind = kind, .ctx = ctx };
	mark_t *mark;

	if (!nbytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!heap)
		heap_make();
	if (nbytes > fake.mem_nbytes || ctx->used > fake.mem_nbytes - nbytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a.outer = heap_next;
	a.begin = a.outer + GUARD + fake_random(&random) % (PAGE / ALIGN) * ALIGN;
	a.end = a.begin + nbytes;
	a.limit = align_up(a.end + GUARD, PAGE);
	if (a.limit > heap + HEAP_NBYTES)
		abort();
	heap_next = a.limit;
	memset((void *)a.outer, GUARD_BYTE, a.begin - a.outer);
	memset((void *)a.begin, NEW_BYTE, nbytes);
	memset((void *)a.end, GUARD_BYTE, a.limit - a.end);
	mark = (mark_t *)a.outer;
	mark->number = add(&a)->number;
	if (kind == FAKE_DEVICE)
		ctx->used += nbytes;
	*address = a.begin;
	return CUDA_SUCCESS;
}

static void release(fake_alloc_t *a)
{
	range_t r = { a->outer, a->limit };

	check_guard(a);
	fake_race_forget(a->begin, a->end);
	if (a->kind == FAKE_DEVICE)
		a->ctx->used -= a->end - a->begin;
	if (a->kind == FAKE_IMPORTED)
		munmap((void *)a->outer, a->limit - a->outer);
	if (a->kind == FAKE_DEVICE || a->kind == FAKE_PINNED) {
		memset((void *)r.outer, FREED_BYTE, r.limit - r.outer);
		freed[nfreed++] = r;
		freed_nbytes += r.limit - r.outer;
		while (nfreed && (nfreed == MAX_FREED || freed_nbytes > KEEP_NBYTES))
			forget_freed();
	}
	drop(a);
}

long fake_memory_live(CUcontext ctx)
{
	long n = 0;

	for (size_t i = 0; i < nallocs; i++)
		n += !ctx || allocs[i]->ctx == ctx;
	return n;
}

long fake_memory_drop(CUcontext ctx)
{
	long n = 0;

	for (size_t i = nallocs; i-- > 0;)
		if (allocs[i]->ctx == ctx) {
			release(allocs[i]);
			n++;
		}
	while (nfreed)
		forget_freed();
	return n;
}

/* ---- the driver's functions ---------------------------------------------------------------- */
CUresult cuMemGetInfo(size_t *nfree, size_t *total)
{
	fake_entry_t call = { .name = "cuMemGetInfo" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS) {
		*total = fake.mem_nbytes;
		*nfree = fake.mem_nbytes - fake_current()->used;
	}
	return fake_leave(&call, status);
}

CUresult cuMemAlloc(CUdeviceptr *out, size_t nbytes)
{
	fake_entry_t call = { .name = "cuMemAlloc" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL | FAKE_NO_CAPTURE);
	uintptr_t address = 0;

	if (status == CUDA_SUCCESS)
		status = allocate(fake_current(), FAKE_DEVICE, nbytes, &address);
	if (status == CUDA_SUCCESS)
		*out = address;
	return fake_leave(&call, status);
}

CUresult cuMemHostAlloc(void **out, size_t nbytes, unsigned flags)
{
	fake_entry_t call = { .name = "cuMemHostAlloc" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL | FAKE_NO_CAPTURE);
	uintptr_t address = 0;

	(void)flags;
	if (status == CUDA_SUCCESS)
		status = allocate(fake_current(), FAKE_PINNED, nbytes, &address);
	if (status == CUDA_SUCCESS)
		*out = (void *)address;
	return fake_leave(&call, status);
}

/* Frees what starts at the address, when all that is under way has ended. */
static CUresult free_kind(fake_entry_t *call, uintptr_t address, fake_kind_t kind)
{
	CUresult status = fake_enter(call, FAKE_CURRENT | FAKE_NO_CAPTURE);
	fake_alloc_t *a;
	char where[160];

	if (status == CUDA_SUCCESS || (fake_current() && status == fake_current()->sticky)) {
		a = fake_alloc_of(address);
		if (!a || a->begin != address || a->kind != kind) {
			fake_complain("%s: %s", call->name,
				      fake_describe(address, where, sizeof(where)));
			return fake_leave(call, CUDA_ERROR_INVALID_VALUE);
		}
		fake_wait_context(a->ctx);
		release(fake_alloc_of(address));
	}
	return fake_leave(call, status);
}

CUresult cuMemFree(CUdeviceptr p)
{
	fake_entry_t call = { .name = "cuMemFree" };

	return free_kind(&call, p, FAKE_DEVICE);
}

CUresult cuMemFreeHost(void *p)
{
	fake_entry_t call = { .name = "cuMemFreeHost" };

	return free_kind(&call, (uintptr_t)p, FAKE_PINNED);
}

CUresult cuMemHostRegister(void *p, size_t nbytes, unsigned flags)
{
	fake_entry_t call = { .name = "cuMemHostRegister" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL | FAKE_NO_CAPTURE);
	fake_alloc_t a = { .kind = FAKE_REGISTERED, .begin = (uintptr_t)p, .ctx = fake_current() };
	size_t i = find(a.begin);

	(void)flags;
	a.outer = a.begin;
	a.limit = a.end = a.begin + nbytes;
	if (status == CUDA_SUCCESS && (!p || !nbytes))
		status = CUDA_ERROR_INVALID_VALUE;
	if (status == CUDA_SUCCESS && i < nallocs && allocs[i]->begin < a.end)
		status = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (status == CUDA_SUCCESS)
		add(&a);
	return fake_leave(&call, status);
}

CUresult cuMemHostUnregister(void *p)
{
	fake_entry_t call = { .name = "cuMemHostUnregister" };

	return free_kind(&call, (uintptr_t)p, FAKE_REGISTERED);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *out, void *p, unsigned flags)
{
	fake_entry_t call = { .name = "cuMemHostGetDevicePointer" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	const fake_alloc_t *a = fake_alloc_of((uintptr_t)p);

	(void)flags;
	if (status == CUDA_SUCCESS && (!a || a->kind < FAKE_PINNED))
		status = CUDA_ERROR_INVALID_VALUE;
	if (status == CUDA_SUCCESS)
		*out = (CUdeviceptr)(uintptr_t)p;
	return fake_leave(&call, status);
}

/* ---- between processes --------------------------------------------------------------------- */
CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
	fake_entry_t call = { .name = "cuIpcGetMemHandle" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_alloc_t *a = fake_alloc_of(p);
	ipc_handle_t h = { .magic = IPC_MAGIC, .pid = getpid(), .fd = heap_fd };

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
static CUresult import(CUcontext ctx, const ipc_handle_t *h, uintptr_t *address)
{
	size_t nbytes = h->limit - h->outer;
	fake_alloc_t a = { .kind = FAKE_IMPORTED, .ctx = ctx };
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
	if (((mark_t *)p)->number != h->number) {
		munmap(p, nbytes);
		return CUDA_ERROR_MAP_FAILED;
	}
	a.outer = (uintptr_t)p;
	a.limit = a.outer + nbytes;
	a.begin = a.outer + (h->begin - h->outer);
	a.end = a.outer + (h->end - h->outer);
	*address = add(&a)->begin;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
	fake_entry_t call = { .name = "cuIpcOpenMemHandle" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	ipc_handle_t h;
	uintptr_t address = 0;

	memcpy(&h, &handle, sizeof(h));
	if (status == CUDA_SUCCESS &&
	    (h.magic != IPC_MAGIC || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
		status = CUDA_ERROR_INVALID_VALUE;
	/* As the driver: not for the process that made it. */
	if (status == CUDA_SUCCESS && h.pid == getpid())
		status = CUDA_ERROR_INVALID_CONTEXT;
	if (status == CUDA_SUCCESS)
		status = import(fake_current(), &h, &address);
	if (status == CUDA_SUCCESS)
		*out = address;
	return fake_leave(&call, status);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
	fake_entry_t call = { .name = "cuIpcCloseMemHandle" };

	return free_kind(&call, p, FAKE_IMPORTED);
}
