/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake driver's own objects (fake_cuda.h says what it is for). cuda.h leaves its handles as
 * structs without a body; here they have one.
 *
 * One lock for all state, one condition for all that wait: slow, and easy to check. An operation is
 * put on a stream's list; the stream's thread runs it without the lock. Kernels run one at a time
 * (launch.c).
 */
#ifndef SRT_TESTS_FAKE_CUDA_FAKE_H
#define SRT_TESTS_FAKE_CUDA_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "tests/fakes/fake_cuda/fake_cuda.h"
#include "tests/fakes/fake_cuda/kernel.h"

#define FAKE_MAX_DEVICES 8
#define FAKE_MAX_SLOTS 128 /* streams at a time */
#define FAKE_MAX_MODULES 64
#define FAKE_MAX_STACK 16   /* contexts pushed by a thread */
#define FAKE_MAX_PARAMS 512 /* bytes of a launch */

/* ---- time (race.c) ---------------------------------------------------------------------- */
/* What has happened before: of each slot, so many operations. */
typedef struct fake_clock {
	uint32_t at[FAKE_MAX_SLOTS];
} fake_clock_t;

/* A stream, for the race finder. */
typedef struct fake_lane {
	int slot;
	unsigned stream; /* number, for messages */
	fake_clock_t clock;
} fake_lane_t;

/* Bytes begin <= address < end that an operation has read or written. */
typedef struct fake_access {
	uintptr_t begin, end;
	bool write;
} fake_access_t;

int fake_slot_take(void); /* called with the lock, as are all in this part */
void fake_slot_release(int slot);
void fake_clock_join(fake_clock_t *clock, const fake_clock_t *other);
/* What the host's thread knows to have happened. */
extern fake_clock_t fake_host_clock;
/* What host functions know of each other. */
extern fake_clock_t fake_fn_clock;
/* The next operation of the lane, `what` of which has touched the bytes, in rising order: complains
 * if an earlier one that is not known to be over has touched them too. */
void fake_race_note(fake_lane_t *lane, const char *what, const fake_access_t *accesses, size_t n);
/* The memory is another's from now on. */
void fake_race_forget(uintptr_t begin, uintptr_t end);
/* Forgets what nothing can clash with any more. */
void fake_race_tidy(void);

/* ---- memory (memory.c) ------------------------------------------------------------------ */
typedef enum fake_kind {
	FAKE_DEVICE,     /* cuMemAlloc */
	FAKE_PINNED,     /* cuMemHostAlloc */
	FAKE_REGISTERED, /* cuMemHostRegister */
} fake_kind_t;

typedef struct fake_alloc {
	uintptr_t begin, end;   /* the caller's bytes */
	uintptr_t outer, limit; /* with guard zones; of those mapped by us */
	fake_kind_t kind;
	CUcontext ctx;
	unsigned number;
} fake_alloc_t;

/* The live one that holds the address, or NULL. Called with the lock. */
fake_alloc_t *fake_alloc_of(uintptr_t address);
/* The one next to an address that is in none, for messages. */
const char *fake_describe(uintptr_t address, char *text, size_t nbytes);
/* Complains if the bytes are not all in one live allocation that the context may use. */
bool fake_check_range(const char *what, CUcontext ctx, uintptr_t address, size_t nbytes,
		      bool host_ok);
/* Complains of bytes written around live allocations, and into those freed. */
void fake_check_guards(void);
/* Drops what a context still has; how many those were. */
long fake_memory_drop(CUcontext ctx);
long fake_memory_live(CUcontext ctx);

/* ---- operations (stream.c, copy.c) ------------------------------------------------------ */
typedef struct fake_op fake_op_t;

/* The end of a stream at one moment; held by the event and by every wait on it. */
typedef struct fake_point {
	int refs;
	bool reached;
	fake_clock_t clock; /* when reached */
} fake_point_t;

typedef enum fake_op_kind {
	FAKE_COPY,
	FAKE_SET,
	FAKE_LAUNCH,
	FAKE_HOST_FN,
	FAKE_RECORD,
	FAKE_WAIT,
} fake_op_kind_t;

struct fake_op {
	fake_op_t *next;
	fake_op_kind_t kind;
	const char *name;   /* of the call, or the kernel */
	bool fails;         /* on purpose */
	fake_clock_t known; /* the host's clock when it was put */
	union {
		struct {
			uintptr_t dst, src;
			size_t width, rows, dst_pitch, src_pitch;
			bool carried; /* src follows the op in memory */
		} copy;
		struct {
			uintptr_t dst;
			size_t nbytes;
			unsigned char value;
		} set;
		struct {
			const fake_kernel_t *kernel;
			unsigned grid[3], block[3];
			_Alignas(16) unsigned char params[FAKE_MAX_PARAMS];
		} launch;
		struct {
			CUhostFn fn;
			void *arg;
		} host;
		fake_point_t *point; /* of a record and of a wait */
	} u;
	unsigned char bytes[];
};

fake_op_t *fake_op_new(fake_op_kind_t kind, const char *name, size_t nbytes);
/* Queues it; takes it over. Called with the lock. */
void fake_put(CUstream stream, fake_op_t *op);
/* Run one on behalf of the context. Without the lock. */
void fake_run_launch(CUcontext ctx, fake_lane_t *lane, const fake_op_t *op);
void fake_run_copy(CUcontext ctx, fake_lane_t *lane, const fake_op_t *op);
fake_point_t *fake_point_new(int refs);
void fake_point_drop(fake_point_t *point);

/* ---- handles ---------------------------------------------------------------------------- */
typedef struct fake_object fake_object_t;

typedef enum fake_type {
	FAKE_STREAM,
	FAKE_EVENT,
	FAKE_MODULE,
} fake_type_t;

/* At the start of each: what is live, and whose. */
struct fake_object {
	fake_object_t *next, **link; /* of the list */
	fake_object_t *same;         /* in the table by address */
	fake_type_t type;
	unsigned number; /* of its type, from 1 on */
	CUcontext ctx;
};

struct CUctx_st {
	int device;
	int refs; /* of the primary context */
	CUresult sticky;
	size_t used; /* bytes allocated */
};

struct CUstream_st {
	fake_object_t object;
	fake_lane_t lane;
	int priority;
	pthread_t thread;
	uint32_t random; /* state of the delays */
	pthread_cond_t work;
	fake_op_t *first, **last;
	unsigned length; /* operations that have not begun */
	bool busy, ending;
};

struct CUevent_st {
	fake_object_t object;
	fake_point_t *point; /* of the last record, or NULL */
};

struct CUfunc_st {
	const fake_kernel_t *kernel;
	CUmodule module;
};

struct CUmod_st {
	fake_object_t object;
	size_t nfunctions;
	struct CUfunc_st functions[]; /* of all kernels */
};

/* ---- state and calls (record.c) --------------------------------------------------------- */
typedef struct fake_state {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* an operation is done */
	bool initialised;
	struct CUctx_st ctx[FAKE_MAX_DEVICES];
	fake_object_t *objects;
	CUstream streams[FAKE_MAX_SLOTS]; /* the live ones, by slot */
	CUmodule modules[FAKE_MAX_MODULES];
	unsigned made[8]; /* of each type */
	/* settings */
	uint32_t seed, delay_us;
	unsigned queue; /* operations that a stream takes before it blocks the caller */
	unsigned nfull; /* threads that wait for room in one */
	bool cpu_kernels, refuse_pageable, mig;
	int ndevices, driver_version, capability, nunits;
	int block_threads; /* that a block may have at most; 0: what its launch bounds say */
	size_t mem_nbytes;
	/* counts */
	long host_syncs, pageable, leaks, compared;
} fake_state_t;

extern fake_state_t fake;

typedef struct fake_thread {
	CUcontext stack[FAKE_MAX_STACK];
	int depth;
	bool in_host_fn;
} fake_thread_t;

extern _Thread_local fake_thread_t fake_thread;

void fake_lock(void);
void fake_unlock(void);
/* Says what is wrong, and ends the process unless complaints are collected. With or without the
 * lock. */
void fake_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The lowest bits are as random as the highest. */
uint32_t fake_random(uint32_t *state);

/* An array with room for more than n elements, doubled when it is full. There is always memory. */
static inline void *fake_grow(void *array, size_t n, size_t *room, size_t size)
{
	if (n < *room)
		return array;
	*room = *room ? 2 * *room : 1024;
	array = realloc(array, *room * size);
	if (array == NULL)
		abort();
	return array;
}

/* What a call needs before it may do something. */
typedef enum fake_needs {
	FAKE_NOTHING = 0,
	FAKE_INIT = 1,     /* cuInit was called */
	FAKE_CURRENT = 2,  /* a current context */
	FAKE_CAN_FAIL = 4, /* on purpose */
} fake_needs_t;

/* Takes the lock and says whether the call may go on; fake_leave() records it and gives up the
 * lock. Every entry is FAKE_ENTER ... return fake_leave(&call, status). */
typedef struct fake_entry {
	const char *name;
	bool has_stream, has_event; /* takes one */
	CUstream stream;
	CUevent event;
	const char *kernel;
	unsigned stream_number, event_number;
} fake_entry_t;

CUresult fake_enter(fake_entry_t *entry, int needs);
CUresult fake_leave(fake_entry_t *entry, CUresult status);
CUcontext fake_current(void);
/* The k-th operation that is put fails when it runs (fail_later). */
bool fake_op_should_fail(const char *name);
CUresult fake_fail_code(void);

/* Handles that are live; else a complaint. */
CUresult fake_live(void *handle, fake_type_t type, const char *call);
void fake_object_add(void *object, fake_type_t type, CUcontext ctx);
void fake_object_remove(void *object);
/* An object of a context, or NULL. */
fake_object_t *fake_object_any(CUcontext ctx);

/* The host waits: for a stream, for all of a context. With the lock, given up meanwhile. */
void fake_wait_stream(CUstream stream);
void fake_wait_context(CUcontext ctx);
/* Ends its thread and frees it. With the lock. */
void fake_stream_end(CUstream stream);
void fake_event_free(CUevent event);
void fake_module_free(CUmodule module);

#endif
