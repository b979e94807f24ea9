/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fibers (fiber.h). On x86-64 a switch is a few instructions; elsewhere it is ucontext's. A fiber
 * whose thread has ended takes the next thread that starts, of this block or a later one: threads
 * without a barrier all run on one stack, which stays in the cache.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fakes/fake_cuda/fake.h"
#include "tests/fakes/fake_cuda/fiber.h"

#define CANARY 0x5ca1ab1e0ddba11eULL

typedef enum state {
	AT_START, /* has run nothing of this block */
	AT_BARRIER,
	AT_WARP_BARRIER,
	AT_END,
} state_t;

typedef struct thread {
	state_t state;
	int line;  /* of the barrier */
	int fiber; /* that it has from its start to its end */
} thread_t;

fake_dim_t fake_thread_idx, fake_block_idx, fake_block_dim, fake_grid_dim;
fake_who_t fake_who;
uintptr_t fake_stacks;

static thread_t threads[FAKE_MAX_THREADS];
static int current;                                /* thread */
static int idle[FAKE_MAX_THREADS], nidle, nfibers; /* fibers without a thread, and all */
static bool stop; /* a complaint: threads are abandoned where they are */
static const fake_kernel_t *kernel;
static void **params;

static void main_of_fiber(void);

#if defined(__x86_64__)
/* Saves what a call preserves on the stack, gives up the stack pointer, takes the other. */
void fake_switch(void **from, void *to);
__asm__(".text\n"
	".globl fake_switch\n"
	".hidden fake_switch\n"
	".type fake_switch,@function\n"
	"fake_switch:\n"
	"	pushq %rbp\n	pushq %rbx\n	pushq %r12\n"
	"	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n"
	"	popq %r12\n	popq %rbx\n	popq %rbp\n"
	"	ret\n"
	".size fake_switch,.-fake_switch\n");

static void *fiber_sp[FAKE_MAX_THREADS], *main_sp;

static void make(int i, unsigned char *stack, size_t nbytes)
{
	/* At main_of_fiber's start the stack is 8 off 16, as after a call. */
	void **top = (void **)(stack + nbytes - 16);

	top -= 8;
	memset(top, 0, 8 * sizeof(*top));
	top[6] = (void *)(uintptr_t)main_of_fiber;
	fiber_sp[i] = top;
}

static void enter(int fiber)
{
	fake_switch(&main_sp, fiber_sp[fiber]);
}

static void leave(void)
{
	fake_switch(&fiber_sp[threads[current].fiber], main_sp);
}
#else
#include <ucontext.h>

static ucontext_t fiber_context[FAKE_MAX_THREADS], main_context;

static void make(int i, unsigned char *stack, size_t nbytes)
{
	if (getcontext(&fiber_context[i]) != 0)
		abort();
	fiber_context[i].uc_stack.ss_sp = stack;
	fiber_context[i].uc_stack.ss_size = nbytes;
	makecontext(&fiber_context[i], main_of_fiber, 0);
}

static void enter(int fiber)
{
	swapcontext(&main_context, &fiber_context[fiber]);
}

static void leave(void)
{
	swapcontext(&fiber_context[threads[current].fiber], &main_context);
}
#endif

static void main_of_fiber(void)
{
	for (;;) {
		kernel->run(params);
		threads[current].state = AT_END;
		leave();
	}
}

/* Stacks start at different places of their pages: all at the same would share a cache's sets. */
static unsigned char *stack_of(int i)
{
	return (unsigned char *)fake_stacks + (size_t)i * FAKE_STACK_NBYTES;
}

static void make_fiber(int i)
{
	if (!fake_stacks) {
		void *p = mmap(NULL, FAKE_STACKS_NBYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			abort();
		fake_stacks = (uintptr_t)p;
	}
	make(i, stack_of(i), FAKE_STACK_NBYTES - (size_t)(i % 32) * 320);
	memcpy(stack_of(i), &(uint64_t){ CANARY }, sizeof(uint64_t));
}

static int take_fiber(void)
{
	if (nidle)
		return idle[--nidle];
	make_fiber(nfibers);
	return nfibers++;
}

static void give_back(int i)
{
	uint64_t canary;

	memcpy(&canary, stack_of(threads[i].fiber), sizeof(canary));
	if (canary != CANARY) {
		fake_complain("kernel \"%s\": thread %d needs more than %zu bytes of stack",
			      kernel->name, i, FAKE_STACK_NBYTES);
		memcpy(stack_of(threads[i].fiber), &(uint64_t){ CANARY }, sizeof(canary));
	}
	idle[nidle++] = threads[i].fiber;
}

static void run_thread(int i)
{
	unsigned in_row = (unsigned)i / fake_block_dim.x;

	if (threads[i].state == AT_START)
		threads[i].fiber = take_fiber();
	current = i;
	fake_thread_idx.x = (unsigned)i % fake_block_dim.x;
	fake_thread_idx.y = in_row % fake_block_dim.y;
	fake_thread_idx.z = in_row / fake_block_dim.y;
	fake_who.thread = (uint16_t)i;
	enter(threads[i].fiber);
	if (threads[i].state == AT_END)
		give_back(i);
}

static void wait_at(state_t state, int line)
{
	threads[current].state = state;
	threads[current].line = line;
	leave();
}

void fake_barrier(int line)
{
	wait_at(AT_BARRIER, line);
}

void fake_warp_sync(int line)
{
	wait_at(AT_WARP_BARRIER, line);
}

/* Threads [first, first + n) to their next barrier or their end; in a cyclic order with a random
 * step, which passes through all. */
static void run_some(int first, int n, uint32_t *random)
{
	uint32_t r = fake_random(random);
	int step = n % 2 ? 1 : (int)(r >> 16) % n | 1, at = (int)(r % (uint32_t)n);

	if (n & (n - 1)) /* no power of two */
		step = r >> 31 ? n - 1 : 1;
	for (int i = 0; i < n; i++, at = (at + step) % n)
		if (threads[first + at].state != AT_END)
			run_thread(first + at);
}

/* Whether all of them wait at one barrier, or all have ended; complains if only some do. */
static bool agree(int first, int n, const char *what)
{
	const thread_t *a = &threads[first];

	for (int i = first + 1; i < first + n; i++) {
		const thread_t *b = &threads[i];

		if (a->state == b->state && (a->state == AT_END || a->line == b->line))
			continue;
		if (a->state == AT_END || b->state == AT_END)
			fake_access_complain("%s waits in line %d for thread %d, which has ended: "
					     "a barrier that only some threads reach",
					     what, a->state == AT_END ? b->line : a->line,
					     a->state == AT_END ? first : i);
		else
			fake_access_complain("%s: thread %d waits in line %d, thread %d in line "
					     "%d: a barrier that only some threads reach",
					     what, first, a->line, i, b->line);
		stop = true;
		return false;
	}
	return true;
}

static bool uses_warps(int first, int n)
{
	for (int i = first; i < first + n; i++)
		if (threads[i].state == AT_WARP_BARRIER)
			return true;
	return false;
}

/* Each warp goes on until all of its threads are at a barrier of the block, or have ended. */
static void run_warps(int n, uint32_t *random)
{
	for (int first = 0; first < n && !stop; first += 32) {
		const int width = n - first < 32 ? n - first : 32;

		while (!stop && uses_warps(first, width) && agree(first, width, "a warp"))
			run_some(first, width, random);
	}
}

bool fake_block_run(const fake_kernel_t *k, void **p, uint32_t *random)
{
	int n = (int)(fake_block_dim.x * fake_block_dim.y * fake_block_dim.z);

	kernel = k;
	params = p;
	stop = false;
	fake_who.interval = 0;
	for (int i = 0; i < n; i++)
		threads[i].state = AT_START;
	do {
		run_some(0, n, random);
		run_warps(n, random);
		fake_who.interval++;
	} while (!stop && agree(0, n, "a block") && threads[0].state != AT_END);
	for (int i = 0; stop && i < n; i++)
		if (threads[i].state == AT_BARRIER || threads[i].state == AT_WARP_BARRIER) {
			give_back(i);
			make_fiber(threads[i].fiber); /* abandoned where it was */
		}
	return !stop;
}
