/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every call of a save that changes files, one after the other: the process is killed before it, or
 * it fails. The linker passes these calls to this program. Afterwards the latest checkpoint is the
 * complete earlier one or the complete new one. Run by test_checkpoint_sharded.sh.
 *
 *     test_checkpoint_killed kill FOLDER SEED RANK N   saves; killed before a call of the rank
 *     test_checkpoint_killed check PARENT              loads the latest one
 *     test_checkpoint_killed fail PARENT               all calls, on all ranks, fail in turn
 *     test_checkpoint_killed reshard KIND N FROM TO    srt_checkpoint_reshard() for 3 ranks; KIND
 *                                                      kill, fail or short: what call N does
 *     test_checkpoint_killed slow PARENT               saves and loads for longer than a time limit
 *     test_checkpoint_killed slow-kill PARENT          the last rank writes as long, and is killed
 *     test_checkpoint_killed abort PARENT              rank 0 aborts while rank 1 writes its file
 *     test_checkpoint_killed loop FOLDER SEED          saves 20 times, while another job does
 *
 * SRT_TEST_EXCHANGE=no: no file system can exchange two folders, and `kill` counts from that on.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/engine/engine_case.h"

/* ---- calls ------------------------------------------------------------------------------- */

typedef enum event { EVENT_NONE, EVENT_KILL, EVENT_FAIL, EVENT_SHORT } event_t;
static bool no_exchange, exchanges; /* exchanges: counted from this call on */
static _Thread_local bool is_snapshot_refused;
static size_t snapshot_nbytes;
static unsigned slow_s; /* the next write and the next read take this long */
static bool slow_dies;
static const char *removal_marker; /* made when a new file waits until its folder is removed */

static pthread_t caller; /* whose calls are counted */
static event_t event;
static long event_at, ncalls;

static bool is_due(void)
{
	if (event == EVENT_NONE || (no_exchange && event == EVENT_KILL && !exchanges) ||
	    !pthread_equal(pthread_self(), caller) || ++ncalls != event_at)
		return false;
	if (event == EVENT_KILL)
		kill(getpid(), SIGKILL);
	return true;
}

static int fails(int error)
{
	const bool due = is_due() && event == EVENT_FAIL;

	errno = due ? error : errno;
	return due;
}

/* X(name, errno, parameters, arguments): calls that return 0 or -1. */
#define CALLS(X)                                                                                   \
	X(fsync, EIO, (int fd), (fd))                                                              \
	X(rename, EIO, (const char *from, const char *to), (from, to))                             \
	X(mkdir, ENOSPC, (const char *path, mode_t mode), (path, mode))                            \
	X(rmdir, EIO, (const char *path), (path))                                                  \
	X(unlink, EIO, (const char *path), (path))                                                 \
	X(unlinkat, EIO, (int fd, const char *path, int flags), (fd, path, flags))                 \
	X(fallocate, ENOSPC, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))

#define WRAP(name, error, parameters, arguments)                                                   \
	int __real_##name parameters;                                                              \
	int __wrap_##name parameters;                                                              \
	int __wrap_##name parameters                                                               \
	{                                                                                          \
		return fails(error) ? -1 : __real_##name arguments;                                \
	}
CALLS(WRAP)

int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
	if (no_exchange) {
		exchanges = true;
		errno = EINVAL;
		return -1;
	}
	return fails(EIO) ? -1 : __real_renameat2(a, from, b, to, flags);
}

/* Longer than SHARDRT_TIMEOUT, once. */
static void take_long(bool dies)
{
	const unsigned s = slow_s;

	slow_s = 0;
	if (s > 0)
		sleep(s);
	if (s > 0 && dies)
		kill(getpid(), SIGKILL);
}

void *__real_malloc(size_t nbytes);
void *__wrap_malloc(size_t nbytes);
void *__wrap_malloc(size_t nbytes)
{
	if (!is_snapshot_refused || nbytes != snapshot_nbytes)
		return __real_malloc(nbytes);
	is_snapshot_refused = false;
	return NULL;
}

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
	take_long(false);
	return __real_pread(fd, p, n, at);
}

/* A write fails, or writes a part. */
#define WRAP_WRITE(name, parameters, arguments)                                                    \
	ssize_t __real_##name parameters;                                                          \
	ssize_t __wrap_##name parameters;                                                          \
	ssize_t __wrap_##name parameters                                                           \
	{                                                                                          \
		const bool due = is_due();                                                         \
                                                                                                   \
		take_long(slow_dies);                                                              \
		if (due && event == EVENT_FAIL) {                                                  \
			errno = ENOSPC;                                                            \
			return -1;                                                                 \
		}                                                                                  \
		n = due && n > 1 ? n / 2 : n;                                                      \
		return __real_##name arguments;                                                    \
	}
WRAP_WRITE(write, (int fd, const void *p, size_t n), (fd, p, n))
WRAP_WRITE(pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))

static void nap_while(const char *path, bool exists)
{
	while ((access(path, F_OK) == 0) == exists)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	va_start(args, flags);
	if (flags & O_CREAT)
		mode = va_arg(args, mode_t);
	va_end(args);
	if ((flags & O_CREAT) != 0 && removal_marker != NULL) {
		char folder[512];

		close(__real_open(removal_marker, O_CREAT | O_WRONLY, 0600));
		snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path), path);
		nap_while(folder, true);
	}
	if ((flags & O_CREAT) != 0 && fails(ENOSPC))
		return -1;
	return __real_open(path, flags, mode);
}

/* ---- a save ------------------------------------------------------------------------------ */

#define NPARAMS 2
#define NROWS 37

static srt_context_t *context;
static srt_stream_t *stream;
static srt_engine_t *engine;
static srt_param_t *param[NPARAMS];

static void declare(void)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0.1f);
	const int64_t shape[] = { NROWS, 3 };
	srt_unit_t *root;
	char name[] = "a";

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &root));
	for (int i = 0; i < NPARAMS; i++, name[0]++)
		CHECK_OK_OR_DIE(srt_param_create(root, name, SRT_F32, 2, shape, NULL, &param[i]));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
}

static void fill(uint64_t seed)
{
	for (int i = 0; i < NPARAMS; i++)
		CHECK_OK_OR_DIE(srt_param_init_normal(param[i], seed, 0.0f, 1.0f, stream));
}

static srt_status_t save(const char *folder, uint64_t seed)
{
	const srt_checkpoint_entry_t entry = { sizeof(srt_checkpoint_entry_t), "seed", &seed,
					       sizeof(seed) };
	const srt_checkpoint_options_t options = { .size = sizeof(srt_checkpoint_options_t),
						   .entries = &entry,
						   .nentries = 1 };

	return srt_checkpoint_save(engine, folder, &options, stream);
}

/* The latest one is complete, and of one of its saves. Returns its seed. */
static uint64_t check_latest(const char *parent)
{
	uint64_t seed = 0;
	const srt_checkpoint_entry_t entry = { sizeof(srt_checkpoint_entry_t), "seed", &seed,
					       sizeof(seed) };
	const srt_checkpoint_options_t options = { .size = sizeof(srt_checkpoint_options_t),
						   .entries = &entry,
						   .nentries = 1 };
	float got[NPARAMS][NROWS * 3], want[NPARAMS][NROWS * 3];
	char folder[256];

	CHECK_OK_OR_DIE(srt_checkpoint_latest(parent, folder, sizeof(folder)));
	fill(0);
	CHECK_OK_OR_DIE(srt_checkpoint_load(engine, folder, &options, stream));
	for (int i = 0; i < NPARAMS; i++)
		CHECK_OK_OR_DIE(srt_param_get(param[i], SRT_PARAM_VALUE, got[i], stream));
	fill(seed);
	for (int i = 0; i < NPARAMS; i++)
		CHECK_OK_OR_DIE(srt_param_get(param[i], SRT_PARAM_VALUE, want[i], stream));
	CHECK_BITS(got[0], want[0], NPARAMS * NROWS * 3);
	return seed;
}

static void arm(event_t what, long at)
{
	caller = pthread_self();
	ncalls = 0;
	event_at = at;
	event = what;
}

/* Calls fail on one rank, one after the other, until none is left. Returns how many. */
static long fail_in_turn(const char *parent, int rank, event_t what, const char *name,
			 uint64_t *seed)
{
	const bool is_mine = srt_context_rank(context) == rank;
	char folder[256];
	long n = 0;

	snprintf(folder, sizeof(folder), "%s/%s", parent, name);
	for (int last = 0; !last; n++) {
		const uint64_t before = *seed;
		int mine, all[16];
		srt_status_t status;
		uint64_t found;

		fill(++*seed);
		arm(is_mine ? what : EVENT_NONE, n + 1);
		status = save(folder, *seed);
		mine = is_mine && ncalls < event_at; /* there was no such call */
		event = EVENT_NONE;
		CHECK_OK_OR_DIE(srt_comm_oob_allgather(srt_context_world(context), &mine,
						       sizeof(mine), all));
		last = all[rank];
		CHECK_MSG(status == SRT_OK || (status == SRT_ERR_IO && what == EVENT_FAIL),
			  "call %ld of rank %d: status %d, %s", n + 1, rank, (int)status,
			  srt_error_last());
		found = check_latest(parent);
		if (status == SRT_OK)
			CHECK_INT(found, *seed);
		else if (found != *seed)
			CHECK_INT(found, before);
		*seed = found;
		CHECK_MSG(!last || status == SRT_OK, "a save without a failure: %s",
			  srt_error_last());
	}
	return n - 1;
}

/*
 * Reliability: no memory on one rank for the copy of its shards that is written during the next
 * steps | the training ended | all ranks write at once, with a warning
 */
static void test_no_snapshot(const char *parent)
{
	const uint64_t seed = 100;
	const srt_checkpoint_entry_t entry = { sizeof(srt_checkpoint_entry_t), "seed",
					       (void *)(uintptr_t)&seed, sizeof(seed) };
	const srt_checkpoint_options_t options = { .size = sizeof(srt_checkpoint_options_t),
						   .entries = &entry,
						   .nentries = 1 };
	srt_checkpoint_write_t *write;
	char folder[256];

	snprintf(folder, sizeof(folder), "%s/one", parent);
	for (int r = 0; r < srt_context_world_size(context); r++) {
		fill(seed);
		snapshot_nbytes = 1;
		for (int i = 0; i < NPARAMS; i++)
			snapshot_nbytes += (size_t)param[i]->shard.nelem * sizeof(float);
		is_snapshot_refused = srt_context_rank(context) == r;
		CHECK_OK_OR_DIE(
			srt_checkpoint_save_begin(engine, folder, &options, &write, stream));
		CHECK(!is_snapshot_refused); /* it was asked for */
		CHECK(srt_checkpoint_save_done(write));
		fill(seed + 1);
		CHECK_OK(srt_checkpoint_save_end(write));
		CHECK_INT(check_latest(parent), seed);
	}
}

static void test_failures(const char *parent)
{
	long n = 0;
	uint64_t seed = 1;
	char folder[256];

	snprintf(folder, sizeof(folder), "%s/one", parent);
	fill(seed);
	CHECK_OK_OR_DIE(save(folder, seed));
	test_no_snapshot(parent);
	fill(seed);
	CHECK_OK_OR_DIE(save(folder, seed));
	for (int r = 0; r < srt_context_world_size(context); r++) {
		n += fail_in_turn(parent, r, EVENT_FAIL, "one", &seed); /* it is replaced */
		n += fail_in_turn(parent, r, EVENT_FAIL, "two", &seed);
		n += fail_in_turn(parent, r, EVENT_SHORT, "two", &seed);
	}
	if (srt_context_rank(context) == 0)
		printf("%ld calls that failed\n", n);
	CHECK(n > 40);
}

/* Prints whether it has made call n, and succeeded. */
static void reshard(const char *kind, long n, const char *from, const char *to)
{
	srt_status_t status;

	arm(strcmp(kind, "kill") == 0 ? EVENT_KILL :
	    strcmp(kind, "fail") == 0 ? EVENT_FAIL :
					EVENT_SHORT,
	    n);
	status = srt_checkpoint_reshard(from, 3, to);
	event = EVENT_NONE;
	CHECK_MSG(status == SRT_OK || (status == SRT_ERR_IO && strcmp(kind, "fail") == 0),
		  "status %d, %s", (int)status, srt_error_last());
	printf("%s, %s\n", ncalls < n ? "end" : "made", status == SRT_OK ? "success" : "failure");
}

/*
 * Reliability: a rank that writes or reads a checkpoint for longer than SHARDRT_TIMEOUT | the other
 * ranks gave up | they wait, as long as it is alive
 */
static void test_slow(const char *parent, bool dies)
{
	const int last = srt_context_world_size(context) - 1;
	const unsigned s = 1 + (unsigned)strtoul(getenv("SHARDRT_TIMEOUT"), NULL, 10);
	srt_checkpoint_write_t *write;
	char folder[256];

	snprintf(folder, sizeof(folder), "%s/one", parent);
	slow_dies = dies;
	if (srt_context_rank(context) == last)
		slow_s = s;
	if (dies) {
		CHECK_STATUS(save(folder, 7), SRT_ERR_PEER_DEAD);
		printf("%s\n", srt_error_last());
		return;
	}
	fill(7);
	CHECK_OK_OR_DIE(srt_checkpoint_save_begin(engine, folder, NULL, &write, stream));
	CHECK_OK_OR_DIE(srt_checkpoint_save_end(write));
	if (srt_context_rank(context) == last)
		slow_s = s;
	CHECK_OK(srt_checkpoint_load(engine, folder, NULL, stream));
	CHECK_INT(slow_s, 0);
}

static void *abort_at_marker(void *marker)
{
	nap_while(marker, false);
	srt_comm_abort(srt_context_world(context), "a fault of the test");
	return NULL;
}

/* Reliability: a rank that fails while another one writes its file of a checkpoint | the other rank
 * says that its file cannot be opened | it names the rank that failed */
static void test_abort(const char *parent)
{
	const bool aborts = srt_context_rank(context) == 0;
	pthread_t thread;
	srt_status_t status;
	char folder[256], marker[256];

	snprintf(folder, sizeof(folder), "%s/aborted", parent);
	snprintf(marker, sizeof(marker), "%s/marker", parent);
	if (aborts)
		CHECK_OR_DIE(pthread_create(&thread, NULL, abort_at_marker, marker) == 0);
	else
		removal_marker = marker;
	fill(7);
	status = srt_checkpoint_save(engine, folder, NULL, stream); /* rank 0 removes the folder */
	CHECK_MSG(status != SRT_OK &&
			  strstr(srt_error_last(), "rank 0 aborted communicator") != NULL,
		  "status %d: %s", (int)status, srt_error_last());
	removal_marker = NULL;
	if (aborts)
		pthread_join(thread, NULL);
}

static void test_loop(const char *folder, uint64_t seed)
{
	for (int i = 0; i < 20; i++) {
		srt_status_t status;

		fill(seed);
		status = save(folder, seed);
		CHECK_MSG(status == SRT_OK || status == SRT_ERR_IO ||
				  status == SRT_ERR_INVALID_ARGUMENT, /* absent for a moment */
			  "status %d: %s", (int)status, srt_error_last());
	}
}

int main(int argc, char **argv)
{
	const char *exchange = getenv("SRT_TEST_EXCHANGE");

	CHECK_OR_DIE(argc >= 3);
	no_exchange = exchange != NULL && strcmp(exchange, "no") == 0;
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	declare();
	if (strcmp(argv[1], "fail") == 0) {
		test_failures(argv[2]);
	} else if (strncmp(argv[1], "slow", 4) == 0) {
		test_slow(argv[2], strcmp(argv[1], "slow-kill") == 0);
	} else if (strcmp(argv[1], "abort") == 0) {
		test_abort(argv[2]);
	} else if (strcmp(argv[1], "loop") == 0) {
		CHECK_OR_DIE(argc == 4);
		test_loop(argv[2], strtoull(argv[3], NULL, 10));
	} else if (strcmp(argv[1], "check") == 0) {
		const uint64_t seed = check_latest(argv[2]);

		if (srt_context_rank(context) == 0)
			printf("seed %llu\n", (unsigned long long)seed);
	} else if (strcmp(argv[1], "reshard") == 0) {
		CHECK_OR_DIE(argc == 6);
		reshard(argv[2], atol(argv[3]), argv[4], argv[5]);
	} else {
		CHECK_OR_DIE(argc == 6);
		fill(strtoull(argv[3], NULL, 10));
		if (srt_context_rank(context) == atoi(argv[4]))
			arm(EVENT_KILL, atol(argv[5]));
		CHECK_OK(save(argv[2], strtoull(argv[3], NULL, 10)));
		event = EVENT_NONE;
	}
	CHECK_OK(srt_stream_sync(stream));
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
