/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srt_backend_comm_ops_t over NCCL, for CUDA devices.
 *
 * A group is a list of calls. A thread that may block makes the calls when the stream has reached
 * the group. Communicators are nonblocking (ncclConfig_t.blocking = 0): NCCL's own threads wait for
 * peers (joining, the first messages between two ranks) while ours poll, and an abort ends the
 * wait. Threads: `lock` is held for each call on the communicator, and for all calls of a group,
 * but never while waiting. docs/threads-and-streams.md lists the calling threads.
 */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backends/cuda/nccl_library.h"

/* The first failure of a communicator. */
typedef struct failure {
	srt_status_t status; /* SRT_OK: none */
	char message[512];
} failure_t;

typedef struct call {
	enum { SEND, RECV, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE } kind;
	void *dst;
	const void *src;
	size_t count;
	ncclDataType_t type;
	int peer;
} call_t;

typedef struct nccl_comm nccl_comm_t;

/* The calls between begin_group() and end_group(). */
typedef struct group {
	nccl_comm_t *comm;
	size_t ncalls, capacity;
	call_t calls[];
} group_t;

struct nccl_comm {
	srt_cuda_device_t *device;
	const srt_nccl_library_t *nccl;
	/* Used by the caller's thread only. */
	group_t *group;
	bool joined;

	pthread_mutex_t lock; /* of all below */
	ncclComm_t impl;      /* NULL: aborted */
	failure_t failure;
};

#define FIRST_CAPACITY ((size_t)64)
/* The memory plan keeps this part of the device's memory free for NCCL: docs/cuda.md, "Memory". */
#define OVERHEAD_PART 50
#define YIELD_NS 200000
/* Deadline of ncclCommFinalize(). */
#define LEAVE_S 5

/* ---- failing ---------------------------------------------------------------------------- */

/* Records a failure with NCCL's text. Called with the lock held if c is not NULL. Without a
 * communicator NCCL reports the last failure of any. */
static srt_status_t record_failure(const nccl_comm_t *c, const srt_nccl_library_t *nccl,
				   const char *what, ncclResult_t code, failure_t *failure)
{
	const char *more = nccl->ncclGetLastError(c != NULL ? c->impl : NULL);
	const char *text = nccl->ncclGetErrorString(code);
	int n;

	failure->status = SRT_ERR_DEVICE;
	n = snprintf(failure->message, sizeof(failure->message), "NCCL: %s: %s (%d)", what,
		     text != NULL ? text : "no text", (int)code);
	if (more != NULL && more[0] && n > 0 && (size_t)n < sizeof(failure->message))
		snprintf(failure->message + n, sizeof(failure->message) - (size_t)n, ": %.200s",
			 more);
	return failure->status;
}

static srt_status_t report_failure(const srt_host_services_t *host, const failure_t *failure)
{
	return failure->status == SRT_OK ? SRT_OK :
					   host->fail(failure->status, "%s", failure->message);
}

static bool is_error(ncclResult_t code)
{
	return code != ncclSuccess && code != ncclInProgress;
}

/* ---- joining and leaving ------------------------------------------------------------------ */

/* NCCL identifies a GPU by its PCI bus address, which the slices of one GPU (MIG) share. It refuses
 * two ranks with the same address. */
static srt_status_t probe_library(void *dev, srt_comm_description_t *description)
{
	const srt_cuda_device_t *device = dev;
	const srt_nccl_library_t *nccl;
	srt_status_t status = srt_nccl_library(device->host, &nccl);

	if (status != SRT_OK)
		return status;
	if (!device->bus[0])
		return device->host->fail(SRT_ERR_UNSUPPORTED,
					  "device \"%s\" has no PCI bus address", device->name);
	*description =
		(srt_comm_description_t){ .version = (uint32_t)nccl->version,
					  .driver_overhead = device->mem_nbytes / OVERHEAD_PART };
	snprintf(description->library, sizeof(description->library), "NCCL %d.%d.%d",
		 nccl->version / 10000, nccl->version / 100 % 100, nccl->version % 100);
	_Static_assert(sizeof(device->bus) == sizeof(description->device_id), "both are 16 bytes");
	memcpy(description->device_id, device->bus, sizeof(device->bus));
	return SRT_OK;
}

static srt_status_t make_id(void *dev, srt_comm_id_t *id)
{
	srt_cuda_device_t *device = dev;
	const srt_nccl_library_t *nccl;
	failure_t failure;
	srt_cuda_scope_t scope;
	ncclUniqueId unique;
	ncclResult_t code;
	srt_status_t status = srt_nccl_library(device->host, &nccl);

	if (status != SRT_OK)
		return status;
	scope = srt_cuda_enter(device);
	code = nccl->ncclGetUniqueId(&unique);
	srt_cuda_leave(scope);
	if (code != ncclSuccess) {
		record_failure(NULL, nccl, "creating an id", code, &failure);
		return report_failure(device->host, &failure);
	}
	_Static_assert(sizeof(unique) <= SRT_COMM_ID_NBYTES, "an id fits the contract's type");
	memset(id, 0, sizeof(*id));
	memcpy(id->bytes, &unique, sizeof(unique));
	return SRT_OK;
}

static group_t *alloc_group(nccl_comm_t *c, size_t capacity)
{
	const srt_host_services_t *host = c->device->host;
	group_t *group = host->alloc(sizeof(*group) + capacity * sizeof(call_t));

	if (group != NULL)
		*group = (group_t){ .comm = c, .capacity = capacity };
	return group;
}

/* An abort may wait until peers abort too, so the lock is not held meanwhile. */
static void abort_comm(void *comm)
{
	nccl_comm_t *c = comm;
	srt_cuda_scope_t scope;
	ncclComm_t impl;

	pthread_mutex_lock(&c->lock);
	impl = c->impl;
	c->impl = NULL;
	pthread_mutex_unlock(&c->lock);
	if (impl == NULL)
		return;
	scope = srt_cuda_enter(c->device);
	c->nccl->ncclCommAbort(impl);
	srt_cuda_leave(scope);
}

static srt_status_t init_comm(void *dev, const srt_comm_id_t *id, int rank, int size, void **out)
{
	srt_cuda_device_t *device = dev;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	nccl_comm_t *c = device->host->alloc(sizeof(*c));
	srt_cuda_scope_t scope;
	ncclUniqueId unique;
	ncclResult_t code;

	if (c == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	*c = (nccl_comm_t){ .device = device };
	if (srt_nccl_library(device->host, &c->nccl) != SRT_OK) {
		device->host->free(c);
		return SRT_ERR_NOT_FOUND;
	}
	pthread_mutex_init(&c->lock, NULL);
	memcpy(&unique, id->bytes, sizeof(unique));
	config.blocking = 0;
	scope = srt_cuda_enter(device);
	code = c->nccl->ncclCommInitRankConfig(&c->impl, size, unique, rank, &config);
	srt_cuda_leave(scope);
	if (is_error(code) || c->impl == NULL) {
		record_failure(c, c->nccl, "joining (SHARDRT_COLLECTIVES=shm does not use NCCL)",
			       code, &c->failure);
		report_failure(device->host, &c->failure);
		abort_comm(c); /* a communicator may exist */
		pthread_mutex_destroy(&c->lock);
		device->host->free(c);
		return SRT_ERR_DEVICE;
	}
	*out = c;
	return SRT_OK;
}

static srt_status_t poll_comm(void *comm, int *pending)
{
	nccl_comm_t *c = comm;
	ncclResult_t state = ncclSuccess, code = ncclSuccess;
	srt_status_t status;

	*pending = 0;
	pthread_mutex_lock(&c->lock);
	if (c->impl != NULL && c->failure.status == SRT_OK) {
		code = c->nccl->ncclCommGetAsyncError(c->impl, &state);
		if (is_error(code) || is_error(state))
			record_failure(c, c->nccl, c->joined ? "asynchronous error" : "joining",
				       is_error(code) ? code : state, &c->failure);
	}
	/* A group that is still pending belongs to its stream. */
	*pending = !c->joined && state == ncclInProgress;
	status = report_failure(c->device->host, &c->failure);
	if (status == SRT_OK && !*pending)
		c->joined = true;
	pthread_mutex_unlock(&c->lock);
	return status;
}

/* A sleep lasts tens of microseconds, so this yields at first. */
static void pause_after(const struct timespec *since)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if ((now.tv_sec - since->tv_sec) * 1000000000 + now.tv_nsec - since->tv_nsec < YIELD_NS)
		sched_yield();
	else
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

/* Waits until the communicator's pending operations have completed, or it is aborted, at most
 * `seconds`. Returns whether they succeeded. */
static bool wait_idle(nccl_comm_t *c, time_t seconds)
{
	ncclResult_t state = ncclInProgress, code = ncclSuccess;
	struct timespec since, now;

	clock_gettime(CLOCK_MONOTONIC, &since);
	now = since;
	while (state == ncclInProgress && !is_error(code) && now.tv_sec - since.tv_sec <= seconds) {
		pause_after(&since);
		pthread_mutex_lock(&c->lock);
		state = ncclSuccess;
		if (c->impl != NULL)
			code = c->nccl->ncclCommGetAsyncError(c->impl, &state);
		pthread_mutex_unlock(&c->lock);
		clock_gettime(CLOCK_MONOTONIC, &now);
	}
	return state == ncclSuccess && !is_error(code);
}

/* Destroys a communicator that was not aborted. No group is pending, and all ranks call it. */
static void finalize_comm(nccl_comm_t *c)
{
	srt_cuda_scope_t scope = srt_cuda_enter(c->device);

	if (!is_error(c->nccl->ncclCommFinalize(c->impl)) && wait_idle(c, LEAVE_S)) {
		c->nccl->ncclCommDestroy(c->impl);
		c->impl = NULL;
	}
	srt_cuda_leave(scope);
}

static void destroy_comm(void *comm)
{
	nccl_comm_t *c = comm;

	if (c->impl != NULL)
		finalize_comm(c);
	abort_comm(c);
	pthread_mutex_destroy(&c->lock);
	c->device->host->free(c->group);
	c->device->host->free(c);
}

/* ---- groups, on the stream's worker --------------------------------------------------------- */

static ncclResult_t make_call(const nccl_comm_t *c, const call_t *call, CUstream queue)
{
	const srt_nccl_library_t *nccl = c->nccl;

	switch (call->kind) {
	case SEND:
		return nccl->ncclSend(call->src, call->count, call->type, call->peer, c->impl,
				      queue);
	case RECV:
		return nccl->ncclRecv(call->dst, call->count, call->type, call->peer, c->impl,
				      queue);
	case BROADCAST:
		return nccl->ncclBroadcast(call->src, call->dst, call->count, call->type,
					   call->peer, c->impl, queue);
	case ALL_GATHER:
		return nccl->ncclAllGather(call->src, call->dst, call->count, call->type, c->impl,
					   queue);
	case REDUCE_SCATTER:
		return nccl->ncclReduceScatter(call->src, call->dst, call->count, call->type,
					       ncclSum, c->impl, queue);
	case ALL_REDUCE:
		return nccl->ncclAllReduce(call->src, call->dst, call->count, call->type, ncclSum,
					   c->impl, queue);
	}
	return ncclInternalError;
}

/* Called with the lock held. Returns the first failure. A group that was begun is always ended. */
static ncclResult_t make_calls(const group_t *group, CUstream queue)
{
	const nccl_comm_t *c = group->comm;
	ncclResult_t code = c->nccl->ncclGroupStart(), ended;

	if (is_error(code))
		return code;
	for (size_t i = 0; i < group->ncalls && !is_error(code); i++)
		code = make_call(c, &group->calls[i], queue);
	ended = c->nccl->ncclGroupEnd();
	return is_error(code) ? code : ended;
}

/* The group is not on the stream, or only a part of it, so later work on the stream must not run.
 * poll() reports the failure, and the watchdog aborts. */
static void await_abort(nccl_comm_t *c)
{
	bool aborted = false;

	while (!aborted) {
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
		pthread_mutex_lock(&c->lock);
		aborted = c->impl == NULL;
		pthread_mutex_unlock(&c->lock);
	}
}

static srt_status_t run_group(void *s, void *g)
{
	srt_cuda_stream_t *stream = s;
	group_t *group = g;
	nccl_comm_t *c = group->comm;
	ncclResult_t code = ncclSuccess;

	pthread_mutex_lock(&c->lock);
	if (c->impl != NULL && c->failure.status == SRT_OK && stream != NULL) {
		code = make_calls(group, stream->queue);
		if (is_error(code))
			record_failure(c, c->nccl, "submitting a group", code, &c->failure);
	}
	pthread_mutex_unlock(&c->lock);
	/* NCCL connects peers at their first exchange. An abort ends the wait. */
	if (is_error(code) || (code == ncclInProgress && !wait_idle(c, INT_MAX)))
		await_abort(c);
	c->device->host->free(group);
	return SRT_OK;
}

/* ---- adding calls to a group ------------------------------------------------------------- */

static srt_status_t begin_group(void *comm)
{
	nccl_comm_t *c = comm;

	if (c->group == NULL)
		c->group = alloc_group(c, FIRST_CAPACITY);
	if (c->group == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	c->group->ncalls = 0;
	return SRT_OK;
}

static srt_status_t end_group(void *comm, void **group)
{
	nccl_comm_t *c = comm;

	if (c->group->ncalls == 0)
		return SRT_OK;
	*group = c->group;
	c->group = NULL; /* run_group() frees it */
	return SRT_OK;
}

static srt_status_t append_call(nccl_comm_t *c, call_t call)
{
	group_t *group = c->group;

	if (group->ncalls == group->capacity) {
		group = alloc_group(c, 2 * group->capacity);
		if (group == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		group->ncalls = c->group->ncalls;
		memcpy(group->calls, c->group->calls, group->ncalls * sizeof(call_t));
		c->device->host->free(c->group);
		c->group = group;
	}
	group->calls[group->ncalls++] = call;
	return SRT_OK;
}

static void *address_of(void *mem, size_t offset)
{
	/* The driver's address as the pointer that NCCL takes. */
	return (void *)(uintptr_t)(((srt_cuda_mem_t *)mem)->address + offset);
}

static srt_status_t append_send(void *comm, void *mem, size_t offset, size_t nbytes, int peer)
{
	return append_call(comm, (call_t){ .kind = SEND,
					   .src = address_of(mem, offset),
					   .count = nbytes,
					   .type = ncclUint8,
					   .peer = peer });
}

static srt_status_t append_recv(void *comm, void *mem, size_t offset, size_t nbytes, int peer)
{
	return append_call(comm, (call_t){ .kind = RECV,
					   .dst = address_of(mem, offset),
					   .count = nbytes,
					   .type = ncclUint8,
					   .peer = peer });
}

static srt_status_t append_broadcast(void *comm, void *mem, size_t offset, size_t nbytes, int root)
{
	return append_call(comm, (call_t){ .kind = BROADCAST,
					   .dst = address_of(mem, offset),
					   .src = address_of(mem, offset),
					   .count = nbytes,
					   .type = ncclUint8,
					   .peer = root });
}

static srt_status_t append_all_gather(void *comm, void *dst, size_t dst_offset, void *src,
				      size_t src_offset, size_t nbytes)
{
	return append_call(comm, (call_t){ .kind = ALL_GATHER,
					   .dst = address_of(dst, dst_offset),
					   .src = address_of(src, src_offset),
					   .count = nbytes,
					   .type = ncclUint8 });
}

static ncclDataType_t nccl_type_of(srt_dtype_t dtype)
{
	return dtype == SRT_F16 ? ncclFloat16 : dtype == SRT_BF16 ? ncclBfloat16 : ncclFloat32;
}

static srt_status_t append_reduce_scatter(void *comm, void *dst, size_t dst_offset, void *src,
					  size_t src_offset, size_t nelem, srt_dtype_t dtype)
{
	return append_call(comm, (call_t){ .kind = REDUCE_SCATTER,
					   .dst = address_of(dst, dst_offset),
					   .src = address_of(src, src_offset),
					   .count = nelem,
					   .type = nccl_type_of(dtype) });
}

static srt_status_t append_all_reduce(void *comm, void *mem, size_t offset, size_t nelem,
				      srt_dtype_t dtype)
{
	return append_call(comm, (call_t){ .kind = ALL_REDUCE,
					   .dst = address_of(mem, offset),
					   .src = address_of(mem, offset),
					   .count = nelem,
					   .type = nccl_type_of(dtype) });
}

const srt_backend_comm_ops_t srt_nccl_comm_ops = {
	.name = "nccl",
	.probe = probe_library,
	.make_id = make_id,
	.init = init_comm,
	.poll = poll_comm,
	.abort = abort_comm,
	.destroy = destroy_comm,
	.group_begin = begin_group,
	.group_end = end_group,
	.group_run = run_group,
	.send = append_send,
	.recv = append_recv,
	.broadcast = append_broadcast,
	.all_gather = append_all_gather,
	.reduce_scatter = append_reduce_scatter,
	.all_reduce = append_all_reduce,
};
