/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every call goes through: settings, the record of calls, faults on purpose, complaints, live
 * handles; and the table by which tests ask (fake_cuda.h).
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fakes/fake_cuda/fake.h"

#define MAX_CALLS 65536

fake_state_t fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
_Thread_local fake_thread_t fake_thread;

static fake_cuda_call_t calls[MAX_CALLS]; /* the first ones; all are counted */
static long ncalls;
static long fail_at, fail_later; /* counts down */
static char fail_name[64];       /* only calls of this name count; "": all */
static CUresult fail_code;
static const char *failed = "";
static bool collects;
static long ncomplaints;
static char complaint[1024];

void fake_lock(void)
{
	pthread_mutex_lock(&fake.lock);
}

void fake_unlock(void)
{
	pthread_mutex_unlock(&fake.lock);
}

uint32_t fake_random(uint32_t *state)
{
	uint32_t x = *state = *state * 1664525u + 1013904223u;

	x = (x ^ x >> 16) * 0x45d9f3bu;
	return x ^ x >> 16;
}

void fake_complain(const char *format, ...)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!__atomic_load_n(&collects, __ATOMIC_ACQUIRE)) {
		fprintf(stderr, "fake_cuda: %s (FAKE_CUDA_SEED=%u)\n", text, fake.seed);
		abort();
	}
	pthread_mutex_lock(&lock);
	if (!ncomplaints++)
		memcpy(complaint, text, sizeof(text));
	pthread_mutex_unlock(&lock);
}

/* ---- settings ------------------------------------------------------------------------------ */
static void set(const char *what, long value)
{
	if (!strcmp(what, "seed"))
		fake.seed = (uint32_t)value;
	else if (!strcmp(what, "queue"))
		fake.queue = (unsigned)value;
	else if (!strcmp(what, "fault"))
		for (int i = 0; i < FAKE_MAX_DEVICES; i++)
			fake.ctx[i].sticky = (CUresult)value;
	else if (!strcmp(what, "delay_us"))
		fake.delay_us = (uint32_t)value;
	else if (!strcmp(what, "kernels"))
		fake.cpu_kernels = value != 0;
	else if (!strcmp(what, "devices"))
		fake.ndevices = value < FAKE_MAX_DEVICES ? (int)value : FAKE_MAX_DEVICES;
	else if (!strcmp(what, "driver_version"))
		fake.driver_version = (int)value;
	else if (!strcmp(what, "capability"))
		fake.capability = (int)value;
	else if (!strcmp(what, "multiprocessors"))
		fake.nunits = (int)value;
	else if (!strcmp(what, "mem_bytes"))
		fake.mem_nbytes = (size_t)value;
	else if (!strcmp(what, "pageable"))
		fake.refuse_pageable = value != 0;
	else if (!strcmp(what, "block_threads"))
		fake.block_threads = (int)value;
	else if (!strcmp(what, "mig"))
		fake.mig = value != 0;
	else
		fake_complain("no setting is called \"%s\"", what);
}

static long from_environment(const char *name, long otherwise)
{
	const char *text = getenv(name);
	char *end;
	long value;

	if (text == NULL || !text[0])
		return otherwise;
	value = strtol(text, &end, 10);
	if (*end)
		fake_complain("%s=%s is no number", name, text);
	return value;
}

static bool environment_is(const char *name, const char *yes, const char *no)
{
	const char *text = getenv(name);

	if (text != NULL && text[0] && strcmp(text, yes) != 0 && strcmp(text, no) != 0)
		fake_complain("%s=%s is neither %s nor %s", name, text, yes, no);
	return text != NULL && !strcmp(text, yes);
}

bool fake_has_fma;

__attribute__((constructor)) static void read_environment(void)
{
	struct timespec now;

#ifdef __x86_64__
	fake_has_fma = __builtin_cpu_supports("fma");
#endif
	clock_gettime(CLOCK_REALTIME, &now);
	set("seed",
	    from_environment("FAKE_CUDA_SEED", (long)(now.tv_nsec ^ getpid()) & 0x7fffffff));
	set("delay_us", from_environment("FAKE_CUDA_DELAY_US", 100));
	set("queue", from_environment("FAKE_CUDA_QUEUE", 1000));
	set("kernels", environment_is("FAKE_CUDA_KERNELS", "cpu", "text"));
	set("devices", from_environment("FAKE_CUDA_DEVICES", 1));
	set("driver_version", from_environment("FAKE_CUDA_DRIVER_VERSION", CUDA_VERSION));
	set("capability", from_environment("FAKE_CUDA_CAPABILITY", 90));
	set("multiprocessors", from_environment("FAKE_CUDA_MULTIPROCESSORS", 132));
	set("mem_bytes", from_environment("FAKE_CUDA_MEM_BYTES", 16L << 30));
	set("pageable", environment_is("FAKE_CUDA_PAGEABLE", "refuse", "allow"));
	set("mig", from_environment("FAKE_CUDA_MIG", 0));
	fail_at = from_environment("FAKE_CUDA_FAIL", 0);
	fail_code = CUDA_ERROR_UNKNOWN;
}

/* ---- calls --------------------------------------------------------------------------------- */
CUcontext fake_current(void)
{
	return fake_thread.depth ? fake_thread.stack[fake_thread.depth - 1] : NULL;
}

static CUresult may_go_on(const fake_entry_t *entry, int needs)
{
	if (fake_thread.in_host_fn)
		return CUDA_ERROR_NOT_PERMITTED;
	if (needs & FAKE_CAN_FAIL && fail_at > 0 &&
	    (!fail_name[0] || !strcmp(fail_name, entry->name)) && --fail_at == 0) {
		failed = entry->name;
		return fail_code;
	}
	if (needs & (FAKE_INIT | FAKE_CURRENT) && !fake.initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (needs & FAKE_CURRENT) {
		if (fake_current() == NULL)
			return CUDA_ERROR_INVALID_CONTEXT;
		if (!fake_current()->refs)
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
		if (fake_current()->sticky)
			return fake_current()->sticky;
	}
	return CUDA_SUCCESS;
}

CUresult fake_enter(fake_entry_t *entry, int needs)
{
	CUresult status;

	fake_lock();
	while (fake.nfull > 0 && (entry->has_stream || entry->has_event))
		pthread_cond_wait(&fake.changed, &fake.lock);
	status = may_go_on(entry, needs);
	if (status == CUDA_SUCCESS && entry->has_stream)
		status = fake_live(entry->stream, FAKE_STREAM, entry->name);
	if (status == CUDA_SUCCESS && entry->has_event)
		status = fake_live(entry->event, FAKE_EVENT, entry->name);
	/* Numbers now: the call may destroy what it names. */
	if (status == CUDA_SUCCESS && entry->has_stream)
		entry->stream_number = entry->stream->object.number;
	if (status == CUDA_SUCCESS && entry->has_event)
		entry->event_number = entry->event->object.number;
	return status;
}

CUresult fake_leave(fake_entry_t *entry, CUresult status)
{
	if (ncalls < MAX_CALLS)
		calls[ncalls] = (fake_cuda_call_t){ .name = entry->name,
						    .status = status,
						    .stream = entry->stream_number,
						    .event = entry->event_number,
						    .kernel = entry->kernel };
	ncalls++;
	fake_unlock();
	return status;
}

bool fake_op_should_fail(const char *name)
{
	if (fail_later <= 0 || --fail_later > 0)
		return false;
	failed = name;
	return true;
}

/* ---- handles ------------------------------------------------------------------------------- */
static const char *const type_names[] = { "stream", "event", "module" };

static fake_object_t *table[1024]; /* by address */

static fake_object_t **bucket_of(const void *object)
{
	return &table[((uintptr_t)object >> 4) * 2654435761u >> 8 & 1023];
}

/* The default stream is none: it would order more than was meant. */
CUresult fake_live(void *handle, fake_type_t type, const char *call)
{
	for (fake_object_t *o = *bucket_of(handle); o != NULL; o = o->same)
		if (o == handle && o->type == type)
			return CUDA_SUCCESS;
	fake_complain("%s: %p is no live %s", call, handle, type_names[type]);
	return CUDA_ERROR_INVALID_HANDLE;
}

void fake_object_add(void *object, fake_type_t type, CUcontext ctx)
{
	fake_object_t *o = object;

	*o = (fake_object_t){ .next = fake.objects, .type = type, .ctx = ctx };
	o->number = ++fake.made[type];
	o->link = &fake.objects;
	if (o->next != NULL)
		o->next->link = &o->next;
	fake.objects = o;
	o->same = *bucket_of(o);
	*bucket_of(o) = o;
}

void fake_object_remove(void *object)
{
	fake_object_t *o = object, **same = bucket_of(o);

	*o->link = o->next;
	if (o->next != NULL)
		o->next->link = o->link;
	while (*same != o)
		same = &(*same)->same;
	*same = o->same;
}

fake_object_t *fake_object_any(CUcontext ctx)
{
	fake_object_t *o = fake.objects;

	while (o != NULL && o->ctx != ctx)
		o = o->next;
	return o;
}

/* ---- what tests ask ------------------------------------------------------------------------ */
static void api_reset(void)
{
	fake_lock();
	ncalls = ncomplaints = 0;
	complaint[0] = 0;
	fail_at = fail_later = 0;
	fail_name[0] = 0;
	failed = "";
	fake.host_syncs = fake.pageable = fake.leaks = fake.compared = 0;
	fake_unlock();
}

static void api_fail(long *what, const char *name, long k, CUresult code)
{
	fake_lock();
	snprintf(fail_name, sizeof(fail_name), "%s", name);
	fail_at = fail_later = 0;
	*what = k;
	fail_code = code;
	failed = "";
	fake_unlock();
}

static void api_fail_at(long k, CUresult code)
{
	api_fail(&fail_at, "", k, code);
}

static void api_fail_call(const char *name, long k, CUresult code)
{
	api_fail(&fail_at, name, k, code);
}

static void api_fail_later(long k, CUresult code)
{
	api_fail(&fail_later, "", k, code);
}

CUresult fake_fail_code(void)
{
	return fail_code;
}

static const char *api_failed(void)
{
	return failed;
}

static long api_count(const char *name)
{
	long n = 0;

	fake_lock();
	if (name == NULL)
		n = ncalls;
	for (long i = 0; name != NULL && i < ncalls && i < MAX_CALLS; i++)
		n += !strcmp(calls[i].name, name);
	fake_unlock();
	return n;
}

static const fake_cuda_call_t *api_call(long i)
{
	return i >= 0 && i < ncalls && i < MAX_CALLS ? &calls[i] : NULL;
}

static long api_host_syncs(void)
{
	return fake.host_syncs;
}

static long api_pageable(void)
{
	return fake.pageable;
}

static void api_collect(int on)
{
	__atomic_store_n(&collects, on != 0, __ATOMIC_RELEASE);
}

static long api_complaints(void)
{
	return ncomplaints;
}

static const char *api_complaint(void)
{
	return complaint;
}

static long api_leaks(void)
{
	return fake.leaks;
}

static long api_live(void)
{
	long n;

	fake_lock();
	n = fake_memory_live(NULL);
	for (fake_object_t *o = fake.objects; o != NULL; o = o->next)
		n++;
	fake_unlock();
	return n;
}

static long api_compared(void)
{
	return fake.compared;
}

fake_cuda_api_fn fake_cuda_api;
const fake_cuda_api_t *fake_cuda_api(void)
{
	static const fake_cuda_api_t api = {
		.reset = api_reset,
		.fail_at = api_fail_at,
		.fail_call = api_fail_call,
		.fail_later = api_fail_later,
		.failed = api_failed,
		.count = api_count,
		.call = api_call,
		.host_syncs = api_host_syncs,
		.pageable_copies = api_pageable,
		.collect = api_collect,
		.complaints = api_complaints,
		.complaint = api_complaint,
		.leaks = api_leaks,
		.live = api_live,
		.compared = api_compared,
		.set = set,
	};

	return &api;
}
