/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What kernels do to memory. Their text is compiled with -fsanitize=thread, whose calls at each
 * access end here instead of in a sanitizer: each is checked against the live allocations, for an
 * address that is a multiple of its size, and against what other threads of the launch have done to
 * the same bytes since a barrier that both have passed. When the launch ends, the bytes it has
 * touched go to the race finder.
 *
 * A cell describes 4 bytes, or for 2 or 1 in pages where such accesses came. It keeps the last
 * writer and the last reader; "many" where there were several at one time.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/fake_cuda/fake.h"
#include "tests/fakes/fake_cuda/fiber.h"

#define PAGE_SHIFT 12
#define PAGE ((uintptr_t)1 << PAGE_SHIFT)
#define NFAST 256u
#define NBUCKETS 16384u

#define MANY_THREADS 0xffffu
#define ATOMIC 0x80000000u        /* flag: the block wrote by atomics alone */
#define ATOMIC_BLOCKS 0xfffffffeu /* several blocks did */
#define MANY_BLOCKS 0xffffffffu

typedef struct cell {
	uint32_t wblock, rblock; /* 0: nobody */
	uint16_t wthread, winterval, rthread, rinterval;
} cell_t;

typedef struct page {
	uintptr_t number;
	unsigned lo, hi;       /* the bytes of it that kernels may touch */
	bool shared, constant; /* memory of the block; the program's own: no cells */
	unsigned shift;        /* of a cell; 0 where there are none */
	cell_t *cells;
	size_t room; /* of cells */
	struct page *next;
} page_t;

/* The block's shared arrays (shim.h). */
extern unsigned char __start_fake_shared[], __stop_fake_shared[];
/* Nothing else is on the first page of the section. */
static unsigned char first_page[PAGE] __attribute__((section("fake_shared"), aligned(PAGE), used));

static page_t *fast[NFAST], *buckets[NBUCKETS], *spare;
static page_t **used; /* by this launch */
static size_t nused, used_room;
static CUcontext ctx;
static const fake_kernel_t *kernel;
static bool complained;

static inline size_t shared_nbytes(void)
{
	return (size_t)((uintptr_t)__stop_fake_shared - (uintptr_t)__start_fake_shared);
}

void fake_access_complain(const char *format, ...)
{
	char text[512];
	va_list args;

	if (complained)
		return;
	complained = true;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fake_complain("kernel \"%s\", block %u: %s", kernel->name, fake_who.block - 1, text);
}

static const char *shared_or_global(uintptr_t at, char *text, size_t nbytes)
{
	if (at >= (uintptr_t)__start_fake_shared && at < (uintptr_t)__stop_fake_shared) {
		snprintf(text, nbytes, "shared memory");
		return text;
	}
	fake_lock();
	fake_describe(at, text, nbytes);
	fake_unlock();
	return text;
}

static void out_of_bounds(uintptr_t at, size_t nbytes, bool write)
{
	char where[160];

	fake_access_complain("thread %u %s %zu bytes at %s", fake_who.thread,
			     write ? "writes" : "reads", nbytes,
			     shared_or_global(at, where, sizeof(where)));
}

static void misaligned(uintptr_t at, size_t nbytes, bool write)
{
	char where[160];

	fake_access_complain("thread %u %s %zu bytes at an address that is no multiple of %zu: %s",
			     fake_who.thread, write ? "writes" : "reads", nbytes, nbytes,
			     shared_or_global(at, where, sizeof(where)));
}

static void race(uintptr_t at, const char *mine, const char *theirs, uint32_t block,
		 uint16_t thread)
{
	char where[160], who[64];

	block &= ~ATOMIC;
	if (block >= (ATOMIC_BLOCKS & ~ATOMIC))
		snprintf(who, sizeof(who), "several blocks");
	else if (thread == MANY_THREADS)
		snprintf(who, sizeof(who), "several threads of block %u", block - 1);
	else
		snprintf(who, sizeof(who), "thread %u of block %u", thread, block - 1);
	fake_access_complain("race: thread %u %s what %s %s at the same time: %s", fake_who.thread,
			     mine, who, theirs, shared_or_global(at, where, sizeof(where)));
}

/* ---- pages --------------------------------------------------------------------------------- */
static bool is_constant(uintptr_t at)
{
	extern const char __ehdr_start[] __attribute__((visibility("hidden")));
	extern const char _end[] __attribute__((visibility("hidden")));

	return at >= (uintptr_t)__ehdr_start && at < (uintptr_t)_end;
}

/* What kernels may touch of the page around an address; false: nothing. */
static bool limits(page_t *page, uintptr_t at)
{
	uintptr_t begin = (uintptr_t)__start_fake_shared, end = (uintptr_t)__stop_fake_shared;
	uintptr_t start = page->number << PAGE_SHIFT;
	const fake_alloc_t *a;

	page->shared = at >= begin && at < end;
	page->constant = false;
	if (!page->shared) {
		fake_lock();
		a = fake_alloc_of(at);
		if (a != NULL &&
		    (a->ctx == ctx || a->kind == FAKE_PINNED || a->kind == FAKE_REGISTERED)) {
			begin = a->begin;
			end = a->end;
		} else {
			page->constant = a == NULL && is_constant(at);
			begin = end = 0;
		}
		fake_unlock();
	}
	if (page->constant) {
		page->lo = 0;
		page->hi = PAGE;
		page->shift = 0;
		return true;
	}
	page->lo = begin > start ? (unsigned)(begin - start) : 0;
	page->hi = end < start + PAGE ? (unsigned)(end > start ? end - start : 0) : PAGE;
	return end > begin;
}

static void set_shift(page_t *page, unsigned shift)
{
	size_t n = PAGE >> shift;

	if (page->room < n) {
		page->cells = realloc(page->cells, n * sizeof(cell_t));
		page->room = n;
	}
	if (page->cells == NULL)
		abort();
	page->shift = shift;
}

/* Smaller cells, each with what the larger one knew. */
static void refine(page_t *page, unsigned shift)
{
	unsigned old = page->shift;

	set_shift(page, shift);
	for (size_t i = PAGE >> shift; i-- > 0;)
		page->cells[i] = page->cells[i >> (old - shift)];
}

static page_t *page_new(uintptr_t number)
{
	page_t *page = spare;

	if (page != NULL)
		spare = page->next;
	else
		page = calloc(1, sizeof(*page));
	used = fake_grow(used, nused, &used_room, sizeof(*used));
	if (page == NULL)
		abort();
	page->number = number;
	return page;
}

/* Called when the fast table has another page; NULL after a complaint. */
static page_t *page_of(uintptr_t at, size_t nbytes, bool write)
{
	uintptr_t number = at >> PAGE_SHIFT;
	page_t **bucket = &buckets[(number * 2654435761u) % NBUCKETS], *page = *bucket;

	while (page != NULL && page->number != number)
		page = page->next;
	if (page == NULL) {
		page = page_new(number);
		if (!limits(page, at) || (page->constant && write)) {
			page->next = spare;
			spare = page;
			out_of_bounds(at, nbytes, write);
			return NULL;
		}
		if (!page->constant) {
			set_shift(page, 2);
			memset(page->cells, 0, (PAGE >> 2) * sizeof(cell_t));
		}
		page->next = *bucket;
		*bucket = page;
		used[nused++] = page;
	}
	return fast[number % NFAST] = page;
}

/* ---- an access ----------------------------------------------------------------------------- */
/* Whether another thread did it, and no barrier lies between. */
static inline bool clash(bool shared, uint32_t block, uint16_t thread, uint16_t interval)
{
	if (!block)
		return false;
	if ((block & ~ATOMIC) != fake_who.block)
		return !shared; /* an earlier block's shared memory was another one */
	return thread != fake_who.thread && interval == fake_who.interval;
}

static inline void read_cell(const page_t *page, cell_t *c, uintptr_t at)
{
	if (clash(page->shared, c->wblock, c->wthread, c->winterval))
		race(at, "reads", "wrote", c->wblock, c->wthread);
	if (page->shared && (c->wblock & ~ATOMIC) != fake_who.block)
		fake_access_complain("thread %u reads shared memory that nobody has written",
				     fake_who.thread);
	if (!c->rblock || (page->shared && c->rblock != fake_who.block)) {
		c->rblock = fake_who.block;
		c->rthread = fake_who.thread;
		c->rinterval = fake_who.interval;
	} else if (c->rblock != fake_who.block) {
		c->rblock = MANY_BLOCKS;
	} else if (c->rinterval != fake_who.interval) {
		c->rthread = fake_who.thread;
		c->rinterval = fake_who.interval;
	} else if (c->rthread != fake_who.thread) {
		c->rthread = MANY_THREADS;
	}
}

static inline void write_cell(const page_t *page, cell_t *c, uintptr_t at)
{
	if (clash(page->shared, c->wblock, c->wthread, c->winterval))
		race(at, "writes", "wrote", c->wblock, c->wthread);
	if (clash(page->shared, c->rblock, c->rthread, c->rinterval))
		race(at, "writes", "read", c->rblock, c->rthread);
	c->wblock = fake_who.block;
	c->wthread = fake_who.thread;
	c->winterval = fake_who.interval;
}

/* Atomic operations clash with others' plain accesses, not among themselves. */
static void atomic_cell(const page_t *page, cell_t *c, uintptr_t at)
{
	bool was_atomic = c->wblock & ATOMIC;
	bool same_block = (c->wblock & ~ATOMIC) == fake_who.block;

	if (page->shared && !same_block)
		fake_access_complain("thread %u adds to shared memory that nobody has written",
				     fake_who.thread);
	if (!was_atomic && clash(page->shared, c->wblock, c->wthread, c->winterval))
		race(at, "changes", "wrote", c->wblock, c->wthread);
	if (clash(page->shared, c->rblock, c->rthread, c->rinterval))
		race(at, "changes", "read", c->rblock, c->rthread);
	if (was_atomic && !same_block && !page->shared) {
		c->wblock = ATOMIC_BLOCKS;
		return;
	}
	c->wthread = was_atomic && same_block && c->winterval == fake_who.interval &&
				     c->wthread != fake_who.thread ?
			     MANY_THREADS :
			     fake_who.thread;
	c->wblock = fake_who.block | ATOMIC;
	c->winterval = fake_who.interval;
}

typedef enum how { READ, WRITE, CHANGE } how_t;

/* Most accesses are to the thread's stack: their check is inlined, the rest is not. */
static inline bool is_private(uintptr_t at)
{
	return at - fake_stacks < FAKE_STACKS_NBYTES;
}

static void touch(uintptr_t at, size_t nbytes, how_t how);

static __attribute__((noinline)) void touch_memory(uintptr_t at, size_t nbytes, how_t how)
{
	unsigned offset = at & (PAGE - 1);
	page_t *page = fast[(at >> PAGE_SHIFT) % NFAST];

	if (page == NULL || page->number != at >> PAGE_SHIFT)
		page = page_of(at, nbytes, how != READ);
	if (page == NULL)
		return;
	if (page->constant) {
		if (how != READ && !(at - (uintptr_t)__start_fake_shared < shared_nbytes()))
			out_of_bounds(at, nbytes, true);
		return;
	}
	if (offset + nbytes > PAGE) {
		touch(at, PAGE - offset, how);
		touch(at + PAGE - offset, nbytes - (PAGE - offset), how);
		return;
	}
	if (offset < page->lo || offset + nbytes > page->hi) {
		out_of_bounds(at, nbytes, how != READ);
		return;
	}
	while (page->shift && (offset | nbytes) & ((1u << page->shift) - 1))
		refine(page, page->shift - 1);
	for (unsigned i = offset >> page->shift, end = (unsigned)(offset + nbytes) >> page->shift;
	     i < end; i++) {
		cell_t *c = &page->cells[i];

		if (how == READ)
			read_cell(page, c, at);
		else if (how == WRITE)
			write_cell(page, c, at);
		else
			atomic_cell(page, c, at);
	}
}

static inline void touch(uintptr_t at, size_t nbytes, how_t how)
{
	if (!is_private(at))
		touch_memory(at, nbytes, how);
}

/* Whole cells of a page that was touched not long ago, as most are. False: it is something else. */
static inline bool touch_cells(uintptr_t at, size_t nbytes, how_t how)
{
	const unsigned offset = at & (PAGE - 1);
	page_t *page = fast[(at >> PAGE_SHIFT) % NFAST];

	if (how == CHANGE || nbytes < 4 || page == NULL || page->number != at >> PAGE_SHIFT ||
	    page->shift != 2 || offset < page->lo || offset + nbytes > page->hi)
		return false;
	for (cell_t *c = &page->cells[offset / 4], *end = c + nbytes / 4; c < end; c++)
		(how == READ ? read_cell : write_cell)(page, c, at);
	return true;
}

/* An access of a device is to a multiple of its size, a power of two. */
static inline void touch_whole(uintptr_t at, size_t nbytes, how_t how)
{
	if (is_private(at))
		return;
	if ((at & (nbytes - 1)) != 0)
		misaligned(at, nbytes, how != READ);
	else if (touch_cells(at, nbytes, how))
		return;
	touch_memory(at, nbytes, how);
}

void fake_atomic(const volatile void *p, size_t nbytes)
{
	touch_whole((uintptr_t)p, nbytes, CHANGE);
}

void fake_touch(const volatile void *p, size_t nbytes, int write)
{
	touch_whole((uintptr_t)p, nbytes, write ? WRITE : READ);
}

/* ---- the compiler's calls ------------------------------------------------------------------ */
/* Where the whole build has ThreadSanitizer these are the sanitizer's, and kernels have none. */
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define FAKE_HAS_TSAN
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define FAKE_HAS_TSAN
#endif
#ifndef FAKE_HAS_TSAN
void __tsan_init(void), __tsan_func_entry(void *pc), __tsan_func_exit(void);
void __tsan_read_range(void *p, size_t nbytes), __tsan_write_range(void *p, size_t nbytes);
void __tsan_init(void)
{
}
void __tsan_func_entry(void *pc)
{
	(void)pc;
}
void __tsan_func_exit(void)
{
}
#define ACCESS(name, nbytes, how, function)                                                        \
	void __tsan_##name(void *p);                                                               \
	void __tsan_##name(void *p)                                                                \
	{                                                                                          \
		function((uintptr_t)p, nbytes, how);                                               \
	}
/* Unaligned are only those that the compiler has put together: its vectors, copies of structs. */
#define ACCESSES(nbytes)                                                                           \
	ACCESS(read##nbytes, nbytes, READ, touch_whole)                                            \
	ACCESS(write##nbytes, nbytes, WRITE, touch_whole)                                          \
	ACCESS(unaligned_read##nbytes, nbytes, READ, touch)                                        \
	ACCESS(unaligned_write##nbytes, nbytes, WRITE, touch)                                      \
	ACCESS(volatile_read##nbytes, nbytes, READ, touch_whole)                                   \
	ACCESS(volatile_write##nbytes, nbytes, WRITE, touch_whole)                                 \
	ACCESS(read_write##nbytes, nbytes, WRITE, touch_whole)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void *p, size_t nbytes)
{
	touch((uintptr_t)p, nbytes, READ);
}
void __tsan_write_range(void *p, size_t nbytes)
{
	touch((uintptr_t)p, nbytes, WRITE);
}
#endif

/* ---- a launch ------------------------------------------------------------------------------ */
void fake_access_begin(void *context, const fake_kernel_t *k)
{
	ctx = context;
	kernel = k;
	complained = false;
	/* Shared memory holds anything when a kernel begins; NaN shows. */
	memset(__start_fake_shared, 0xff, shared_nbytes());
}

static int by_number(const void *a, const void *b)
{
	uintptr_t x = (*(page_t *const *)a)->number, y = (*(page_t *const *)b)->number;

	return (x > y) - (x < y);
}

/* Adds the page's bytes, joined where they meet. */
static void collect(const page_t *page, fake_access_t **list, size_t *n, size_t *room)
{
	uintptr_t at = page->number << PAGE_SHIFT;
	size_t step = (size_t)1 << page->shift;

	for (size_t i = 0; i < PAGE >> page->shift; i++, at += step) {
		const cell_t *c = &page->cells[i];
		fake_access_t *last = *n ? &(*list)[*n - 1] : NULL;
		bool write = c->wblock != 0;

		if (!c->wblock && !c->rblock)
			continue;
		if (last != NULL && last->end == at && last->write == write) {
			last->end = at + step;
			continue;
		}
		*list = fake_grow(*list, *n, room, sizeof(**list));
		(*list)[(*n)++] = (fake_access_t){ at, at + step, write };
	}
}

void fake_access_end(fake_lane_t *lane)
{
	static fake_access_t *list;
	static size_t room;
	size_t n = 0;

	qsort(used, nused, sizeof(*used), by_number);
	for (size_t i = 0; i < nused; i++) {
		page_t *page = used[i];

		if (!page->shared && !page->constant)
			collect(page, &list, &n, &room);
		buckets[(page->number * 2654435761u) % NBUCKETS] = NULL;
		fast[page->number % NFAST] = NULL;
		page->next = spare;
		spare = page;
	}
	nused = 0;
	fake_lock();
	fake_race_note(lane, kernel->name, list, n);
	fake_unlock();
}
