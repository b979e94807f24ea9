/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See pmix.h. Data goes from rank 0 to the others by a put, a fence that collects, and a get, which
 * every server supports. The fence is asynchronous, so that this side has a deadline: servers
 * need not support PMIX_TIMEOUT.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "collectives/bootstrap/pmix.h"

#include "base/base.h"
#include "collectives/bootstrap/bootstrap.h"

/* Adds to the last error that this rank cannot go on without PMIx. */
static srt_status_t refuse(srt_status_t status)
{
	return srt_fail_prefix(status,
			       "PMIX_RANK=%s: this process was started by mpirun or srun, and PMIx "
			       "cannot be used; start the ranks with shardrun, or set "
			       "SHARDRT_BOOTSTRAP=none for a job of one rank: ",
			       srt_config_foreign("PMIX_RANK"));
}

#ifdef HAVE_PMIX

#include <dlfcn.h>
#include <inttypes.h>
#include <pmix.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libpmix.so.2"

/* The functions that are called. Values are made and freed without the library's macros, which call
 * more. */
#define FUNCTIONS(F)                                                                               \
	F(Init)                                                                                    \
	F(Finalize)                                                                                \
	F(Put)                                                                                     \
	F(Commit)                                                                                  \
	F(Fence_nb)                                                                                \
	F(Get)                                                                                     \
	F(Error_string)

#define DECLARE(name) __typeof__(&PMIx_##name) name;

static struct {
	pthread_mutex_t lock; /* protects the rest, which does not change once `pid` is set */
	pid_t pid;            /* the process that is connected; 0 = none */
	pmix_proc_t self;
	FUNCTIONS(DECLARE)
} pmix = { .lock = PTHREAD_MUTEX_INITIALIZER };

static srt_status_t load_library(void)
{
	const struct {
		const char *name;
		void *slot;
	} functions[] = {
#define ENTRY(name) { "PMIx_" #name, &pmix.name },
		FUNCTIONS(ENTRY)
	};
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

	if (library == NULL)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"there is no PMIx: %s; install PMIx (Debian: libpmix2)", dlerror());
	for (size_t i = 0; i < SRT_ARRAY_LEN(functions); i++) {
		void *address = dlsym(library, functions[i].name);

		if (address == NULL)
			return srt_fail(SRT_ERR_UNSUPPORTED,
					"%s has no function %s; install PMIx 3 or newer", LIBRARY,
					functions[i].name);
		memcpy(functions[i].slot, &address, sizeof(address));
	}
	return SRT_OK;
}

static srt_status_t fail_call(const char *what, pmix_status_t status)
{
	return srt_fail(SRT_ERR_SYSTEM,
			"rank %s: %s of PMIx failed: %s; SHARDRT_BOOTSTRAP=none runs each process "
			"as a job of one rank",
			srt_config_foreign("PMIX_RANK"), what, pmix.Error_string(status));
}

/* mpirun takes a process that exits without this for a failure. Not in a child of fork(). */
static void disconnect(void)
{
	if (pmix.pid == getpid())
		pmix.Finalize(NULL, 0);
}

static srt_status_t connect_server(void)
{
	pmix_status_t status;

	if (pmix.pid != 0 && pmix.pid != getpid())
		return srt_fail(
			SRT_ERR_UNSUPPORTED,
			"this process was made by fork() of a rank, whose connection to PMIx "
			"it cannot use; set SHARDRT_BOOTSTRAP=none to run it alone");
	if (pmix.pid != 0)
		return SRT_OK;
	status = load_library();
	if (status != SRT_OK)
		return refuse(status);
	status = pmix.Init(&pmix.self, NULL, 0);
	if (status != PMIX_SUCCESS)
		return fail_call("PMIx_Init()", status);
	pmix.pid = getpid();
	if (atexit(disconnect) != 0)
		return srt_fail(SRT_ERR_OUT_OF_MEMORY, "atexit() has no memory left");
	return SRT_OK;
}

/* A number that the server has about the job (PMIX_RANK_WILDCARD) or a rank. */
static srt_status_t get_number(pmix_rank_t rank, const char *key, int *number)
{
	pmix_proc_t whose = pmix.self;
	pmix_value_t *value = NULL;
	pmix_status_t status;

	whose.rank = rank;
	status = pmix.Get(&whose, key, NULL, 0, &value);
	if (status != PMIX_SUCCESS)
		return fail_call(key, status);
	*number = -1;
	if (value->type == PMIX_UINT32 && value->data.uint32 < INT32_MAX)
		*number = (int)value->data.uint32;
	else if (value->type == PMIX_UINT16)
		*number = value->data.uint16;
	free(value);
	return *number >= 0 ? SRT_OK : fail_call(key, PMIX_ERR_TYPE_MISMATCH);
}

/* ---- share ------------------------------------------------------------------------------ */

/* A fence, held by the caller and by the server's answer. */
typedef struct fence {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int nholders;
	bool done;
	pmix_status_t status;
} fence_t;

static void release_fence(fence_t *fence)
{
	bool last;

	pthread_mutex_lock(&fence->mutex);
	last = --fence->nholders == 0;
	pthread_mutex_unlock(&fence->mutex);
	if (!last)
		return;
	pthread_cond_destroy(&fence->changed);
	pthread_mutex_destroy(&fence->mutex);
	free(fence);
}

static void end_fence(pmix_status_t status, void *arg)
{
	fence_t *fence = arg;

	pthread_mutex_lock(&fence->mutex);
	fence->done = true;
	fence->status = status;
	pthread_cond_broadcast(&fence->changed);
	pthread_mutex_unlock(&fence->mutex);
	release_fence(fence);
}

static fence_t *make_fence(void)
{
	fence_t *fence = srt_calloc(1, sizeof(*fence), "a fence");

	if (fence == NULL)
		return NULL;
	fence->nholders = 2;
	pthread_mutex_init(&fence->mutex, NULL);
	srt_cond_init(&fence->changed);
	return fence;
}

/* Waits until all ranks of the job have called it; data that was put before is then theirs. */
static srt_status_t wait_for_all(double timeout_s)
{
	const double deadline = srt_awake_s() + timeout_s;
	pmix_info_t collect = { .value = { .type = PMIX_BOOL, .data.flag = true } };
	srt_status_t status = SRT_OK;
	fence_t *fence = make_fence();
	pmix_status_t started;

	if (fence == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	strcpy(collect.key, PMIX_COLLECT_DATA);
	started = pmix.Fence_nb(NULL, 0, &collect, 1, end_fence, fence);
	if (started != PMIX_SUCCESS) /* then nothing else calls it */
		end_fence(started == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : started, fence);
	pthread_mutex_lock(&fence->mutex);
	while (!fence->done && srt_awake_s() < deadline)
		srt_cond_wait_s(&fence->changed, &fence->mutex, SRT_AWAKE_SLICE_MS / 1e3);
	if (!fence->done)
		status = srt_fail(SRT_ERR_TIMEOUT,
				  "rank %s: not all ranks of the job joined within %g s",
				  srt_config_foreign("PMIX_RANK"), timeout_s);
	else if (fence->status != PMIX_SUCCESS)
		status = fail_call("a fence", fence->status);
	pthread_mutex_unlock(&fence->mutex);
	release_fence(fence);
	return status;
}

static srt_status_t put(const char *key, void *data, size_t nbytes)
{
	pmix_value_t value = { .type = PMIX_BYTE_OBJECT, .data.bo = { data, nbytes } };
	pmix_status_t status = pmix.Put(PMIX_GLOBAL, key, &value);

	if (status == PMIX_SUCCESS)
		status = pmix.Commit();
	return status == PMIX_SUCCESS ? SRT_OK : fail_call("PMIx_Put()", status);
}

static srt_status_t get(const char *key, void *data, size_t nbytes)
{
	pmix_proc_t first = pmix.self;
	pmix_value_t *value = NULL;
	pmix_status_t status;

	first.rank = 0;
	status = pmix.Get(&first, key, NULL, 0, &value);
	if (status != PMIX_SUCCESS)
		return fail_call("PMIx_Get()", status);
	if (value->type != PMIX_BYTE_OBJECT)
		status = PMIX_ERR_TYPE_MISMATCH;
	else if (value->data.bo.size != nbytes)
		status = PMIX_ERR_BAD_PARAM;
	else
		memcpy(data, value->data.bo.bytes, nbytes);
	if (value->type == PMIX_BYTE_OBJECT)
		free(value->data.bo.bytes);
	free(value);
	return status == PMIX_SUCCESS ? SRT_OK : fail_call("PMIx_Get()", status);
}

static srt_status_t share(const srt_place_t *place, uint32_t generation, void *data, size_t nbytes,
			  double timeout_s)
{
	char key[32];

	snprintf(key, sizeof(key), "shardrt.%" PRIu32, generation);
	if (place->rank == 0)
		SRT_TRY(put(key, data, nbytes));
	SRT_TRY(wait_for_all(timeout_s));
	return place->rank == 0 ? SRT_OK : get(key, data, nbytes);
}

srt_status_t srt_pmix_find(srt_place_t *place)
{
	const char *server;
	srt_status_t status;
	uint64_t hash;

	pthread_mutex_lock(&pmix.lock);
	status = connect_server();
	pthread_mutex_unlock(&pmix.lock);
	if (status != SRT_OK)
		return status;
	SRT_TRY(get_number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, &place->world_size));
	SRT_TRY(get_number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, &place->local_size));
	SRT_TRY(get_number(pmix.self.rank, PMIX_LOCAL_RANK, &place->local_rank));
	place->launcher = "PMIx";
	place->rank = (int)pmix.self.rank;
	/* The namespace is the server's name of the job, and may be used by another mpirun. */
	hash = srt_hash64(0, pmix.self.nspace, strlen(pmix.self.nspace));
	server = srt_config_foreign("PMIX_SERVER_URI2");
	if (place->local_size == place->world_size && server != NULL)
		hash = srt_hash64(hash, server, strlen(server));
	snprintf(place->job, sizeof(place->job), "pmix-%016" PRIx64, hash);
	place->share = share;
	return SRT_OK;
}

srt_status_t srt_bootstrap_probe_pmix(void)
{
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&pmix.lock);
	if (pmix.pid == 0) /* else it is loaded, and in use */
		status = load_library();
	pthread_mutex_unlock(&pmix.lock);
	return status;
}

#else

srt_status_t srt_pmix_find(srt_place_t *place)
{
	(void)place;
	return refuse(srt_bootstrap_probe_pmix());
}

srt_status_t srt_bootstrap_probe_pmix(void)
{
	return srt_fail(SRT_ERR_UNSUPPORTED, "this library was built without PMIx; configure it "
					     "--with-pmix (Debian: libpmix-dev)");
}

#endif
