/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory: one range of addresses, mapped once, of which each allocation has pages: guard zone, the
 * caller's bytes, guard zone. New bytes are NaN, freed ones another pattern (of long ranges, a
 * first part), and addresses are not given out twice; so late writes are found: those of kernels at
 * once, others when the range is dropped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fakes/fake_cuda/fake.h"

#define HEAP_NBYTES ((size_t)1 << 40)
#define PAGE ((size_t)4096)
#define GUARD PAGE
#define ALIGN ((size_t)256) /* what cuMemAlloc promises */
#define GUARD_BYTE 0xfd
#define NEW_BYTE 0xff
#define FREED_BYTE 0xdf
#define KEEP_NBYTES ((size_t)64 << 20) /* of freed ranges that are watched */
#define MAX_FREED 1024
#define FILLED ((size_t)256 << 10) /* of a range, at most: scratch is large */

typedef struct range {
	uintptr_t outer, limit;
} range_t;

static uintptr_t heap, heap_next;
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
/* The first that ends after the address. */
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

static void add(const fake_alloc_t *a)
{
	size_t i = find(a->begin);

	allocs = fake_grow(allocs, nallocs, &room, sizeof(*allocs));
	memmove(&allocs[i + 1], &allocs[i], (nallocs++ - i) * sizeof(*allocs));
	allocs[i] = malloc(sizeof(**allocs));
	if (allocs[i] == NULL)
		abort();
	*allocs[i] = *a;
	allocs[i]->number = ++nmade;
}

static void drop(fake_alloc_t *a)
{
	size_t i = find(a->begin);

	memmove(&allocs[i], &allocs[i + 1], (--nallocs - i) * sizeof(*allocs));
	free(a);
}

static const char *const kind_names[] = { "allocation", "pinned memory", "registered memory" };

const char *fake_describe(uintptr_t address, char *text, size_t nbytes)
{
	size_t i = find(address);
	const fake_alloc_t *a = i < nallocs ? allocs[i] : NULL;
	const fake_alloc_t *before = i ? allocs[i - 1] : NULL;

	if (a != NULL && a->begin <= address)
		snprintf(text, nbytes, "byte %zu of %s %u of %zu bytes", address - a->begin,
			 kind_names[a->kind], a->number, a->end - a->begin);
	else if (before != NULL && address < before->limit)
		snprintf(text, nbytes, "%zu bytes after %s %u of %zu bytes", address - before->end,
			 kind_names[before->kind], before->number, before->end - before->begin);
	else if (a != NULL && a->outer <= address)
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

	if (a != NULL && address + nbytes <= a->end) {
		if (a->ctx == ctx || a->kind == FAKE_PINNED || a->kind == FAKE_REGISTERED)
			return true;
		fake_complain("%s: %s belongs to device %d", what,
			      fake_describe(address, where, sizeof(where)), a->ctx->device);
		return false;
	}
	if (a == NULL && host_ok && (address < heap || address >= heap_next))
		return true;
	if (a != NULL)
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

	if (a->kind == FAKE_REGISTERED)
		return;
	if (is_filled(a->outer, a->begin, GUARD_BYTE, &where) &&
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

/* So much of a range is filled. */
static size_t some(size_t nbytes)
{
	return nbytes < FILLED ? nbytes : FILLED;
}

/* The oldest freed range becomes a hole. */
static void forget_freed(void)
{
	range_t r = freed[0];
	uintptr_t where;

	if (!is_filled(r.outer, r.outer + some(r.limit - r.outer), FREED_BYTE, &where))
		fake_complain("something wrote %zu bytes into a freed range of %zu bytes",
			      where - r.outer, r.limit - r.outer);
	freed_nbytes -= r.limit - r.outer;
	memmove(&freed[0], &freed[1], --nfreed * sizeof(freed[0]));
	madvise((void *)r.outer, r.limit - r.outer, MADV_DONTNEED);
}

/* ---- allocation ---------------------------------------------------------------------------- */
static void heap_make(void)
{
	void *p;

	p = mmap(NULL, HEAP_NBYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		abort();
	madvise(p, HEAP_NBYTES, MADV_DONTDUMP);
	heap = heap_next = (uintptr_t)p;
}

static CUresult allocate(CUcontext ctx, fake_kind_t kind, size_t nbytes, uintptr_t *address)
{
	static uint32_t random = 1;
	fake_alloc_t a = { .kind = kind, .ctx = ctx };

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
	memset((void *)a.begin, NEW_BYTE, some(nbytes));
	memset((void *)a.end, GUARD_BYTE, a.limit - a.end);
	add(&a);
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
	if (a->kind == FAKE_DEVICE || a->kind == FAKE_PINNED) {
		memset((void *)r.outer, FREED_BYTE, some(r.limit - r.outer));
		if (r.limit - r.outer > FILLED)
			madvise((void *)(r.outer + FILLED), r.limit - r.outer - FILLED,
				MADV_DONTNEED);
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
		n += ctx == NULL || allocs[i]->ctx == ctx;
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
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
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
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	uintptr_t address = 0;

	(void)flags;
	if (status == CUDA_SUCCESS)
		status = allocate(fake_current(), FAKE_PINNED, nbytes, &address);
	if (status == CUDA_SUCCESS)
		*out = (void *)address;
	return fake_leave(&call, status);
}

/* Frees what starts at the address, when all work that was put has ended. */
static CUresult free_kind(fake_entry_t *call, uintptr_t address, fake_kind_t kind)
{
	CUresult status = fake_enter(call, FAKE_CURRENT);
	fake_alloc_t *a;
	char where[160];

	if (status == CUDA_SUCCESS ||
	    (fake_current() != NULL && status == fake_current()->sticky)) {
		a = fake_alloc_of(address);
		if (a == NULL || a->begin != address || a->kind != kind) {
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
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_alloc_t a = { .kind = FAKE_REGISTERED, .begin = (uintptr_t)p, .ctx = fake_current() };
	size_t i = find(a.begin);

	(void)flags;
	a.outer = a.begin;
	a.limit = a.end = a.begin + nbytes;
	if (status == CUDA_SUCCESS && (p == NULL || !nbytes))
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
	if (status == CUDA_SUCCESS && (a == NULL || a->kind < FAKE_PINNED))
		status = CUDA_ERROR_INVALID_VALUE;
	if (status == CUDA_SUCCESS)
		*out = (CUdeviceptr)(uintptr_t)p;
	return fake_leave(&call, status);
}
