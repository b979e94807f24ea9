/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libfake_nccl.so: an NCCL that needs no GPU, over the fake driver (tests/fakes/fake_cuda/) or
 * any other that SHARDRT_CUDA_DRIVER names. The operations of a group run on the stream, in its
 * order, as a host function of the driver, and moves bytes through shared memory (wire.h). As
 * in NCCL:
 *
 *     - communicators are nonblocking: joining goes on until all have joined, and a group goes on
 *       for a while before a thread of the library puts it on the stream; until then only
 *       ncclCommGetAsyncError and ncclCommAbort may be called
 *     - ncclCommFinalize is over when all ranks have come to it; ncclCommDestroy comes after it
 *     - ranks whose calls do not fit together hang; an abort ends that, for its rank alone. It
 *       returns when what precedes its groups on the stream has ended, and all peers have
 *       aborted too or are dead
 *     - two ranks of one place on the PCI bus, also slices of a GPU, are refused, unless
 *       NCCL_MULTI_RANK_GPU_ENABLE is 1
 *
 * What a caller does wrong ends the process with a sentence: calls out of their order, in a group
 * of two streams, of a communicator that is aborted or not ready, wrong ranks. The environment:
 *
 *     FAKE_NCCL_FAIL=K     the K-th call that can fail fails, with ncclInternalError
 *     FAKE_NCCL_HANG=N     the N-th group never ends
 *     FAKE_NCCL_BREAK=N    the N-th group never ends, and ncclCommGetAsyncError reports it
 *     FAKE_NCCL_CONNECT=N  the N-th group never connects: it is not put on the stream
 *     FAKE_NCCL_P2P=1      a rank's death is a fault on the others' devices, which read its memory
 *     FAKE_NCCL_SPOIL=1    the first group brings other bytes
 *     FAKE_NCCL_VERSION=N  what ncclGetVersion says
 *     FAKE_NCCL_LEAKS=1    communicators that live at the end of the process are a complaint
 *     FAKE_NCCL_LOG=FILE   the names of all calls are appended to it
 */
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/fake_cuda/fake_cuda.h"
#include "tests/fakes/fake_nccl/calls.h"

#define MAX_CALLS 1024
#define ABORT_MS 30000

static struct {
	pthread_mutex_t lock;
	CUresult (*launch_host)(CUstream, CUhostFn, void *);
	CUresult (*bus)(char *, int, CUdevice);
	CUresult (*count)(int *);
	CUresult (*push)(CUcontext);
	CUresult (*pop)(CUcontext *);
	void (*set)(const char *, long); /* of the fake driver, or NULL */
	long ncalls, live;
	FILE *log;
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct ncclComm {
	wire_t *wire;
	int rank, size;
	_Atomic int refs; /* the caller's, and of each group on a stream */
	atomic_bool stop;
	/* Under fake.lock. */
	ncclResult_t state;
	char error[128];
	long ngroups;
	bool joining, is_held, finalizing;
	CUstream stream;
	size_t ncalls;
	wire_call_t calls[MAX_CALLS + 1];
};

typedef struct group {
	ncclComm_t comm;
	CUcontext context;
	CUstream stream;
	long number;
	size_t ncalls;
	wire_call_t calls[];
} group_t;

/* The thread's group. */
static _Thread_local int depth;
static _Thread_local ncclComm_t grouped; /* one communicator at a time is all that is used */

void fake_nccl_complain(const char *sentence)
{
	fprintf(stderr, "fake NCCL: %s\n", sentence);
	abort();
}

static long number_of(const char *name)
{
	const char *text = getenv(name);

	return text != NULL ? strtol(text, NULL, 10) : 0;
}

static void find_driver(void)
{
	const char *path = getenv("SHARDRT_CUDA_DRIVER");
	void *driver = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *found[5], *api;

	if (driver == NULL)
		fake_nccl_complain("the driver is not loaded");
	found[0] = dlsym(driver, "cuLaunchHostFunc");
	found[1] = dlsym(driver, "cuDeviceGetPCIBusId");
	found[2] = dlsym(driver, "cuDeviceGetCount");
	found[3] = dlsym(driver, "cuCtxPushCurrent_v2");
	found[4] = dlsym(driver, "cuCtxPopCurrent_v2");
	api = dlsym(driver, FAKE_CUDA_API_SYMBOL);
	for (int i = 0; i < 5; i++) {
		if (found[i] == NULL)
			fake_nccl_complain("the driver lacks a function");
	}
	if (api != NULL) {
		fake_cuda_api_fn *get;

		memcpy(&get, &api, sizeof(api));
		fake.set = get()->set;
	}
	memcpy(&fake.launch_host, &found[0], sizeof(found[0]));
	memcpy(&fake.bus, &found[1], sizeof(found[1]));
	memcpy(&fake.count, &found[2], sizeof(found[2]));
	memcpy(&fake.push, &found[3], sizeof(found[3]));
	memcpy(&fake.pop, &found[4], sizeof(found[4]));
}

/* Every call begins with it. Takes the lock. */
static void enter(const char *name)
{
	const char *path = getenv("FAKE_NCCL_LOG");

	pthread_mutex_lock(&fake.lock);
	if (fake.launch_host == NULL)
		find_driver();
	if (path != NULL && fake.log == NULL)
		fake.log = fopen(path, "a");
	if (fake.log != NULL) {
		fprintf(fake.log, "%s\n", name);
		fflush(fake.log);
	}
}

/* Enters a call. True: it is this call's turn to fail. */
static bool enter_or_fail(const char *name)
{
	enter(name);
	return ++fake.ncalls == number_of("FAKE_NCCL_FAIL");
}

static ncclResult_t leave(ncclResult_t result)
{
	pthread_mutex_unlock(&fake.lock);
	return result;
}

static void unref(ncclComm_t comm)
{
	if (atomic_fetch_sub(&comm->refs, 1) != 1)
		return;
	wire_close(comm->wire);
	free(comm);
}

static ncclResult_t fail(ncclComm_t comm, ncclResult_t code, const char *text)
{
	comm->state = code;
	snprintf(comm->error, sizeof(comm->error), "%s", text);
	return code;
}

/* ---- joining ------------------------------------------------------------------------------ */

ncclResult_t ncclGetVersion(int *version)
{
	*version = getenv("FAKE_NCCL_VERSION") != NULL ? (int)number_of("FAKE_NCCL_VERSION") :
							 NCCL_VERSION_CODE;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
	static const char *const texts[] = { "no error",
					     "unhandled cuda error",
					     "unhandled system error",
					     "internal error",
					     "invalid argument",
					     "invalid usage",
					     "remote process exited or there was a network error",
					     "NCCL operation in progress" };

	return (unsigned)result < sizeof(texts) / sizeof(texts[0]) ? texts[result] : "unknown";
}

const char *ncclGetLastError(ncclComm_t comm)
{
	return comm != NULL ? comm->error : "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	_Static_assert(sizeof(*id) == WIRE_ID_NBYTES, "one of them must grow");
	if (enter_or_fail("ncclGetUniqueId"))
		return leave(ncclInternalError);
	return leave(wire_make_id((unsigned char *)id->internal) ? ncclSuccess : ncclSystemError);
}

/* The ranks of a node are spread over the devices (backends/cuda/choose.c). */
static void device_of(unsigned char who[16])
{
	int n = 1;

	memset(who, 0, 16);
	fake.count(&n);
	if (fake.bus((char *)who, 16, (CUdevice)(number_of("SHARDRT_LOCAL_RANK") % n)) !=
	    CUDA_SUCCESS)
		fake_nccl_complain("no device");
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	unsigned char who[16];
	ncclComm_t comm;

	if (enter_or_fail("ncclCommInitRankConfig"))
		return leave(ncclInternalError);
	if (config == NULL || config->blocking != 0)
		fake_nccl_complain("a communicator that blocks");
	if (rank < 0 || rank >= size || depth > 0)
		fake_nccl_complain("init of a wrong rank or in a group");
	comm = calloc(1, sizeof(*comm));
	if (comm == NULL)
		return leave(ncclSystemError);
	device_of(who);
	comm->wire = wire_open((const unsigned char *)id.internal, rank, size, who);
	if (comm->wire == NULL) {
		free(comm);
		return leave(ncclSystemError);
	}
	comm->rank = rank;
	comm->size = size;
	comm->joining = true;
	comm->state = ncclInProgress;
	atomic_store(&comm->refs, 1);
	fake.live++;
	*out = comm;
	return leave(ncclInProgress);
}

static void go_on_joining(ncclComm_t comm)
{
	if (!wire_joined(comm->wire))
		return;
	comm->joining = false;
	comm->state = ncclSuccess;
	if (!number_of("NCCL_MULTI_RANK_GPU_ENABLE") && wire_twin(comm->wire, comm->rank) >= 0)
		fail(comm, ncclInvalidUsage, "Duplicate GPU detected");
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	enter("ncclCommAbort");
	if (comm == NULL)
		fake_nccl_complain("abort of no communicator");
	atomic_store(&comm->stop, true);
	fake.live--;
	wire_leave(comm->wire);
	leave(ncclSuccess);
	for (int ms = 0; atomic_load(&comm->refs) > 1 || !wire_all_left(comm->wire); ms++) {
		if (ms > ABORT_MS)
			fake_nccl_complain(
				"an abort that does not end: not all ranks abort, or what precedes "
				"it on its stream does not end");
		usleep(1000);
	}
	unref(comm);
	return ncclSuccess;
}

/* ---- groups ------------------------------------------------------------------------------- */

/* On the driver's thread. */
static void run_group(void *arg)
{
	group_t *group = arg;
	ncclComm_t comm = group->comm;
	bool done = atomic_load(&comm->stop) ||
		    wire_run(comm->wire, group->calls, group->ncalls, &comm->stop);

	if (!done && !atomic_load(&comm->stop) && fake.set != NULL)
		fake.set("fault", CUDA_ERROR_ILLEGAL_ADDRESS);
	if (group->number == 1 && number_of("FAKE_NCCL_SPOIL"))
		memset(group->calls[0].dst, 0, 4);
	unref(comm);
	free(group);
}

/* A thread of the library: peers connect, then the group goes into the stream. */
static void *launch_group(void *arg)
{
	group_t *group = arg;
	ncclComm_t comm = group->comm;
	CUcontext context;
	CUresult code = CUDA_SUCCESS;

	do
		usleep(50);
	while (group->number == number_of("FAKE_NCCL_CONNECT") && !atomic_load(&comm->stop));
	atomic_fetch_add(&comm->refs, 1); /* of run_group() */
	fake.push(group->context);
	if (!atomic_load(&comm->stop))
		code = fake.launch_host(group->stream, run_group, group);
	else
		run_group(group);
	fake.pop(&context);
	pthread_mutex_lock(&fake.lock);
	comm->is_held = false;
	if (code != CUDA_SUCCESS)
		fail(comm, ncclUnhandledCudaError, "the driver refuses");
	else if (comm->state == ncclInProgress)
		comm->state = ncclSuccess;
	pthread_mutex_unlock(&fake.lock);
	if (code != CUDA_SUCCESS) {
		unref(comm);
		free(group);
	}
	unref(comm);
	return NULL;
}

static ncclResult_t start_group(ncclComm_t comm)
{
	size_t nbytes = comm->ncalls * sizeof(*comm->calls);
	group_t *group = malloc(sizeof(*group) + nbytes);
	pthread_t thread;

	if (group == NULL)
		return fail(comm, ncclSystemError, "out of memory");
	*group = (group_t){ .comm = comm,
			    .stream = comm->stream,
			    .number = comm->ngroups,
			    .ncalls = comm->ncalls };
	memcpy(group->calls, comm->calls, nbytes);
	fake.pop(&group->context);
	fake.push(group->context);
	comm->is_held = true;
	comm->ncalls = 0;
	if (comm->state == ncclSuccess)
		comm->state = ncclInProgress;
	atomic_fetch_add(&comm->refs, 1);
	if (pthread_create(&thread, NULL, launch_group, group) != 0)
		fake_nccl_complain("no thread");
	pthread_detach(thread);
	return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
	enter("ncclCommGetAsyncError");
	if (comm == NULL)
		fake_nccl_complain("no communicator is asked for its errors");
	if (comm->joining)
		go_on_joining(comm);
	if (comm->finalizing && wire_all_left(comm->wire))
		comm->state = ncclSuccess;
	*state = comm->state;
	return leave(ncclSuccess);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	if (enter_or_fail("ncclCommFinalize"))
		return leave(ncclInternalError);
	if (comm == NULL || comm->joining || comm->is_held || comm->finalizing)
		fake_nccl_complain("the end of a communicator that is not ready");
	comm->finalizing = true;
	comm->state = ncclInProgress;
	wire_leave(comm->wire);
	return leave(ncclInProgress);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	enter("ncclCommDestroy");
	if (comm == NULL || !comm->finalizing || comm->state != ncclSuccess)
		fake_nccl_complain("a communicator is destroyed that is not finalized");
	fake.live--;
	leave(ncclSuccess);
	unref(comm);
	return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
	if (enter_or_fail("ncclGroupStart"))
		return leave(ncclInternalError);
	if (depth++ > 0)
		fake_nccl_complain("a group in a group");
	grouped = NULL;
	return leave(ncclSuccess);
}

/* Ranks that hang: a message that nobody sends. */
static void sabotage(ncclComm_t comm)
{
	comm->ngroups++;
	if (comm->ngroups == number_of("FAKE_NCCL_BREAK"))
		fail(comm, ncclRemoteError, "the link is broken");
	if (comm->ngroups == number_of("FAKE_NCCL_HANG") || comm->state == ncclRemoteError)
		comm->calls[comm->ncalls++] =
			(wire_call_t){ .kind = WIRE_RECV,
				       .dst = (unsigned char *)comm->error,
				       .nbytes = 1,
				       .peer = (comm->rank + 1) % comm->size };
}

ncclResult_t ncclGroupEnd(void)
{
	ncclComm_t comm = grouped;
	bool fails = enter_or_fail("ncclGroupEnd");

	if (depth-- != 1)
		fake_nccl_complain("the end of a group that did not begin");
	grouped = NULL;
	if (comm == NULL)
		return leave(fails ? ncclInternalError : ncclSuccess);
	if (fails) {
		comm->ncalls = 0;
		return leave(fail(comm, ncclInternalError, "fails on purpose"));
	}
	sabotage(comm);
	return leave(start_group(comm));
}

static size_t size_of(ncclDataType_t type)
{
	switch (type) {
	case ncclUint8:
		return 1;
	case ncclFloat32:
		return sizeof(float);
	default:
		fake_nccl_complain("an element type that is not used");
		return 0;
	}
}

ncclResult_t fake_nccl_add_call(const char *name, ncclComm_t comm, CUstream stream,
				ncclDataType_t type, wire_call_t call)
{
	if (enter_or_fail(name))
		return leave(ncclInternalError);
	if (depth != 1)
		fake_nccl_complain("a call outside of a group");
	if (comm == NULL || comm->joining || comm->is_held)
		fake_nccl_complain("a call of a communicator that is not ready");
	if (grouped != NULL && (grouped != comm || comm->stream != stream))
		fake_nccl_complain("two communicators or streams in one group");
	if (call.peer < 0 || call.peer >= comm->size || call.nbytes == 0)
		fake_nccl_complain("a peer or a size that cannot be");
	if ((call.kind == WIRE_SEND || call.kind == WIRE_RECV) && call.peer == comm->rank)
		fake_nccl_complain("a message to itself");
	if (grouped == NULL)
		comm->ncalls = 0;
	grouped = comm;
	comm->stream = stream;
	if (comm->ncalls == MAX_CALLS)
		fake_nccl_complain("more calls in a group than this library can take");
	call.nbytes *= size_of(type);
	comm->calls[comm->ncalls++] = call;
	return leave(ncclSuccess);
}

__attribute__((destructor)) static void check_leaks(void)
{
	long live;

	/* A program that gives up still has its watcher. */
	pthread_mutex_lock(&fake.lock);
	live = fake.live;
	pthread_mutex_unlock(&fake.lock);
	if (live != 0 && number_of("FAKE_NCCL_LEAKS")) {
		fprintf(stderr, "fake NCCL: %ld communicators are left\n", live);
		_exit(99);
	}
}
