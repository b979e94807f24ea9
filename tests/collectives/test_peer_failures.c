/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the others see when a rank aborts, comes too late, leaves or dies: one mode per run, run by
 * test_peer_failures.sh. The last rank is the one that misbehaves. "MODE all-to-all": in an
 * all-to-all, else in an all-gather.
 *
 * Mode "loop" is the victim of test_kill.sh: collectives of all kinds without end; a survivor
 * prints its error and the time, and exits with status 3.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collectives/collective.h"
#include "collectives/transports/hierarchy/hierarchy.h"
#include "collectives/transports/nccl/nccl.h"
#include "tests/harness/job.h"

#define N 1000

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static srt_coll_t *make(job_t *job, srt_comm_t *comm, srt_coll_kind_t kind, srt_buffer_t *full,
			srt_buffer_t *shard, const char *name)
{
	static srt_coll_segment_t segments[64];
	static srt_coll_owner_t owners[64];
	srt_coll_t *coll = NULL;
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = kind,
		.name = name,
		.dtype = SRT_F32,
		.full = srt_view(full, 0, SRT_F32),
		.shard = srt_view(shard, 0, SRT_F32),
		.owners = owners,
		.split = N / (size_t)job->size, /* of an all-to-all */
	};

	for (int r = 0; r < job->size; r++) {
		segments[r] = (srt_coll_segment_t){ (size_t)r * N, 0, N };
		owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
	}
	return srt_coll_create(comm, &desc, &coll) == SRT_OK ? coll : NULL;
}

/* The kind of what the last rank never starts. */
static srt_coll_kind_t kind = SRT_COLL_ALL_GATHER;
static const char *unit = "all-gather of \"block 7\"";

/*
 * A failure that every rank but the last must see in a collective that the last never starts.
 *
 * Reliability: a call that fails on a rank which also hears of the death of another one | names
 * only the death | names its own failure
 */
static void expect(job_t *job, srt_coll_t *gather, srt_status_t status, const char *words,
		   double within_s)
{
	char who[32];
	double start = srt_now_s();

	snprintf(who, sizeof(who), "rank %d", job->size - 1);
	CHECK_STATUS(job_start_and_wait(gather, job->stream), status);
	CHECK_WITHIN(within_s, start);
	CHECK_ERROR_HAS(words);
	CHECK_ERROR_HAS(who);
	CHECK_ERROR_HAS(unit);
	CHECK_STATUS(srt_comm_status_consensus(job->world, "checking",
					       srt_fail(SRT_ERR_IO, "no space")),
		     SRT_ERR_IO);
	CHECK_ERROR_HAS("no space");
	/* Later calls fail at once and say why. */
	start = srt_now_s();
	CHECK_STATUS(srt_coll_start(gather, NULL, job->stream), status);
	CHECK_ERROR_HAS(words);
	CHECK_STATUS(srt_coll_wait_readers(gather, job->stream), status);
	CHECK_STATUS(srt_comm_oob_allgather(job->world, NULL, 0, NULL), status);
	CHECK_WITHIN(0.5, start);
}

/* Waits until the rank is in its first start on the communicator: who waits there for others as
 * well does not name it. */
static void await_rank(const srt_coll_t *coll, int rank)
{
	srt_shm_flag_t *flags =
		coll->transport == &srt_transport_nccl ? srt_nccl_of(coll)->progress : coll->flags;
	uint32_t id;

	/* With ucx a rank that waits for long tells the late ranks. */
	while (flags == NULL && !srt_start_log_read(coll->comm, rank, 1, &id)) {
		(void)coll->comm->transport->compare(coll->comm, 1);
		sleep_ms(1);
	}
	if (flags == NULL)
		return;
	while (!srt_shm_flag_reached(srt_shm_flag_of(flags, rank, SRT_SHM_PUBLISH), 1))
		sleep_ms(1);
}

static void *abort_later(void *comm)
{
	sleep_ms(100);
	srt_comm_abort(comm, "the user asked for it");
	return NULL;
}

static void run_abort(job_t *job, srt_coll_t *gather)
{
	pthread_t thread;

	if (job->rank < job->size - 1) {
		expect(job, gather, SRT_ERR_ABORTED, "the user asked for it", 5);
		return;
	}
	/* The rank that aborts also waits, and that wait ends too. */
	CHECK_INT(pthread_create(&thread, NULL, abort_later, job->world), 0);
	int all[64];
	CHECK_STATUS(srt_comm_oob_allgather(job->world, &job->rank, sizeof(int), all),
		     SRT_ERR_ABORTED);
	CHECK_ERROR_HAS("the user asked for it");
	pthread_join(thread, NULL);
}

static char long_wait[512];

static void keep_wait(srt_log_level_t level, const char *message, void *arg)
{
	(void)level;
	(void)arg;
	if (strstr(message, " has waited ") != NULL)
		snprintf(long_wait, sizeof(long_wait), "%s", message);
}

/*
 * Rank 0's deadline is short, and only the last rank is missing. In a hierarchy it is the rank that
 * waits for the last one across nodes. No rank dies.
 *
 * Reliability: a rank that does not come, with NCCL | silence for 600 s | after 10 s a warning that
 * names it
 */
static void run_timeout(job_t *job, srt_coll_t *gather)
{
	const double short_s = 0.3;
	const int judge = gather->transport->runs_stages ?
				  job->size - 1 - gather->comm->hierarchy->nlocal :
				  0;
	char words[48];
	double start;

	snprintf(words, sizeof(words), "rank %d gave up after", judge);
	for (int r = 1; job->rank == 0 && r < job->size - 1 && !gather->transport->runs_stages; r++)
		await_rank(gather, r);
	if (job->rank == judge) {
		srt_log_set(keep_wait, SRT_LOG_WARN, NULL);
		job->bootstrap->timeout_s = short_s;
	}
	start = srt_now_s();
	if (job->rank < job->size - 1) {
		expect(job, gather, SRT_ERR_TIMEOUT, words, 5);
		srt_log_set(NULL, SRT_LOG_WARN, NULL);
		CHECK_MSG(job->rank != judge || strstr(long_wait, unit) != NULL, "no warning of %s",
			  unit);
		CHECK(job->rank != judge || srt_now_s() - start >= short_s);
		CHECK_ERROR_HAS("did not reach it");
		return;
	}
	while (!srt_comm_poisoned(job->world))
		sleep_ms(10);
	/* The late rank is told who gave up. */
	CHECK_STATUS(srt_coll_start(gather, NULL, job->stream), SRT_ERR_TIMEOUT);
	CHECK_ERROR_HAS(words);
	CHECK_ERROR_HAS("did not reach it");
}

/* All stand still for longer than rank 0's deadline, while it waits for the last rank in a
 * collective and in an exchange: no rank is late. */
static void run_stopped(job_t *job, srt_coll_t *gather)
{
	pid_t pids[64], own = getpid(), child;

	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, &own, sizeof(own), pids));
	job_set_timeout(job, 5);
	if (job->rank == job->size - 1) {
		await_rank(gather, 0);
		sleep_ms(100); /* and it is in the exchange */
		child = fork();
		CHECK_OR_DIE(child >= 0);
		for (int r = 0; child == 0 && r < job->size; r++)
			kill(pids[r], SIGSTOP);
		if (child == 0) {
			sleep_ms(6000);
			for (int r = 0; r < job->size; r++) {
				if (r == job->size - 1)
					sleep_ms(200); /* the others look at their clocks */
				kill(pids[r], SIGCONT);
			}
			_exit(0);
		}
		CHECK_INT(waitpid(child, NULL, 0), child);
	}
	CHECK_OK(srt_coll_start(gather, NULL, job->stream));
	CHECK_OK(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	CHECK_OK(srt_stream_sync(job->stream));
}

/* A collective of all ranks but the last: rank 0 waits in it, the one before the last does not
 * start it. */
static srt_coll_t *make_without_last(job_t *job, srt_comm_t **group, srt_buffer_t *full,
				     srt_buffer_t *shard)
{
	int ranks[64];

	for (int r = 0; r < job->size - 1; r++)
		ranks[r] = r;
	CHECK_OK_OR_DIE(
		srt_comm_create_group(job->world, ranks, job->size - 1, "without last", group));
	return *group != NULL ? make(job, *group, kind, full, shard, "block 7") : NULL;
}

/*
 * The last rank is killed, the one before it then exits, and the others wait for that one in a
 * group without the last rank.
 *
 * Reliability: a rank that ends because another rank has failed, in a group without that one | the
 * others of the group name the rank that ended | they also name the first failure of the job
 */
static void run_cause(job_t *job, srt_coll_t *gather)
{
	char first[64], last[64];

	snprintf(first, sizeof(first), "earlier failure: rank %d is gone", job->size - 1);
	snprintf(last, sizeof(last), "rank %d is gone", job->size - 2);
	if (job->rank == job->size - 1) {
		kill(getpid(), SIGKILL);
	} else if (job->rank == job->size - 2) {
		while (!srt_comm_poisoned(job->world))
			sleep_ms(1);
		_exit(0);
	}
	CHECK_STATUS(job_start_and_wait(gather, job->stream), SRT_ERR_PEER_DEAD);
	CHECK_ERROR_HAS(unit);
	CHECK_ERROR_HAS(last);
	CHECK_ERROR_HAS(first);
}

static bool is_stopped(pid_t pid)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	CHECK_OR_DIE(f != NULL);
	CHECK_INT(fscanf(f, "%*d %*[^)]) %c", &state), 1);
	fclose(f);
	return state == 'T';
}

/*
 * The last rank is stopped, the one before it waits for it, and rank 0, whose deadline is short,
 * waits for that one.
 *
 * Reliability: a rank that is stopped, and ranks that wait for ranks that wait for it | the first
 * one that gives up names only the ranks that it waits for | it also names the stopped rank
 */
static void run_chain(job_t *job, srt_coll_t *of_all, srt_coll_t *without_last)
{
	char stopped[64];
	pid_t pids[64], own = getpid();

	snprintf(stopped, sizeof(stopped), "rank %d is stopped", job->size - 1);
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, &own, sizeof(own), pids));
	while (job->rank == job->size - 1 && !srt_comm_poisoned(job->world))
		sleep_ms(1);
	if (job->rank > 0) {
		CHECK_STATUS(job_start_and_wait(of_all, job->stream), SRT_ERR_ABORTED);
		return;
	}
	await_rank(of_all, job->size - 2);
	kill(pids[job->size - 1], SIGSTOP);
	while (!is_stopped(pids[job->size - 1]))
		sleep_ms(1);
	job->bootstrap->timeout_s = 0.3;
	CHECK_STATUS(job_start_and_wait(without_last, job->stream), SRT_ERR_TIMEOUT);
	CHECK_ERROR_HAS(unit);
	CHECK_ERROR_HAS(stopped);
	srt_comm_abort(job->world, "the end of the test");
	kill(pids[job->size - 1], SIGCONT);
}

/* Makes more starts than the ring has, on a stream that is blocked. */
static srt_status_t stand_still(void *arg)
{
	while (!atomic_load((atomic_bool *)arg))
		sleep_ms(1);
	return SRT_OK;
}

static void run_ring(job_t *job, srt_coll_t *gather)
{
	const double usual_s = job->bootstrap->timeout_s;
	atomic_bool go = false;
	srt_status_t status = SRT_OK;
	int nstarts = 0;
	double start;

	if (job->stream->device->caps.async_streams == 0)
		CHECK_SKIP("inline streams have nothing in flight");
	CHECK_OK(srt_stream_host_fn(job->stream, stand_still, &go));
	job->bootstrap->timeout_s = 0.3; /* of the start that finds no room */
	start = srt_now_s();
	while (status == SRT_OK && nstarts < 1000) {
		status = srt_coll_start(gather, NULL, job->stream);
		nstarts += status == SRT_OK;
	}
	CHECK_INT(status, SRT_ERR_STATE);
	CHECK(srt_now_s() - start >= job->bootstrap->timeout_s);
	CHECK_INT(nstarts, 16);
	CHECK_ERROR_HAS("block 7");
	job->bootstrap->timeout_s = usual_s; /* of those that wait for the other ranks' */
	atomic_store(&go, true);
	CHECK_OK(srt_stream_sync(job->stream));
}

/* ---- the loop ------------------------------------------------------------------------- */

static int survivor(const job_t *job)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	printf("survivor %d at %lld.%03ld: %s: %s\n", job->rank, (long long)t.tv_sec,
	       t.tv_nsec / 1000000, srt_status_string(SRT_ERR_PEER_DEAD), srt_error_last());
	fflush(stdout);
	return 3;
}

static int run_loop(job_t *job, srt_buffer_t *full, srt_buffer_t *shard)
{
	static const srt_coll_kind_t kinds[] = { SRT_COLL_ALL_GATHER, SRT_COLL_REDUCE_SCATTER,
						 SRT_COLL_ALL_REDUCE, SRT_COLL_BROADCAST,
						 SRT_COLL_BARRIER,    SRT_COLL_ALL_TO_ALL };
	const int nkinds = (int)SRT_ARRAY_LEN(kinds);

	printf("pid %d %d\n", job->rank, (int)getpid());
	fflush(stdout);
	for (int round = 0;; round++) {
		srt_coll_t *colls[SRT_ARRAY_LEN(kinds)];
		char name[32];

		for (int k = 0; k < nkinds; k++) {
			snprintf(name, sizeof(name), "block %d", round % 10);
			colls[k] = make(job, job->world, kinds[k], full, shard, name);
			if (colls[k] == NULL)
				return survivor(job);
		}
		for (int i = 0; i < 200; i++) {
			srt_coll_t *c = colls[job_noise(round, (uint64_t)i) % nkinds];
			/* Computing, elsewhere than in a collective. */
			if (job_noise((uint64_t)job->rank, (uint64_t)i) % 50 == 0)
				sleep_ms(2);
			if (srt_coll_wait_readers(c, job->stream) != SRT_OK ||
			    srt_coll_start(c, NULL, job->stream) != SRT_OK ||
			    (i % 10 == 0 && srt_stream_sync(job->stream) != SRT_OK))
				return survivor(job);
		}
		if (srt_stream_sync(job->stream) != SRT_OK)
			return survivor(job);
		for (int k = 0; k < nkinds; k++)
			srt_coll_destroy(colls[k]);
	}
}

/* The last rank has a child that destroys the context, as destructors at exit do, and lives on. The
 * other ranks must not take that for the rank's end, but see its death though the child lives. */
static void run_fork(job_t *job, srt_coll_t *gather)
{
	pid_t pids[64], child = 0;
	int ready[2];
	char byte = 0;

	if (job->rank == job->size - 1) {
		CHECK_OR_DIE(pipe(ready) == 0);
		child = fork();
		CHECK_OR_DIE(child >= 0);
		if (child == 0) {
			srt_coll_destroy(gather);
			srt_stream_destroy(job->stream);
			srt_comm_destroy(job->world);
			srt_device_close(job->device);
			setsid(); /* shardrun does not end it with the rank */
			CHECK_OR_DIE(write(ready[1], &byte, 1) == 1);
			alarm(250); /* if nobody ends it */
			pause();
			_exit(0);
		}
		CHECK_INT(read(ready[0], &byte, 1), 1);
	}
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, &child, sizeof(child), pids));
	if (child > 0) {
		await_rank(gather, 0);
		kill(getpid(), SIGKILL);
	}
	expect(job, gather, SRT_ERR_PEER_DEAD, "was killed or crashed", 10);
	/* Others hear of the death from this rank or by themselves. */
	if (job->rank == 0)
		kill(pids[job->size - 1], SIGKILL);
}

/*
 * Reliability: a rank that exits without srt_context_destroy() | called "killed or crashed" | the
 * other ranks name both causes
 */
int main(int argc, char **argv)
{
	const char *mode = argc >= 2 ? argv[1] : "";
	float *full_host, *shard_host;
	job_t job;
	srt_comm_t *group = NULL;
	int last, code = -1;

	if (argc == 3 && strcmp(argv[2], "all-to-all") == 0) {
		kind = SRT_COLL_ALL_TO_ALL;
		unit = "all-to-all of \"block 7\"";
	}
	job_open(&job);
	last = job.rank == job.size - 1;
	srt_buffer_t *full = job_buffer(&job, (size_t)job.size * N, "full", &full_host);
	srt_buffer_t *shard = job_buffer(&job, N, "shard", &shard_host);
	srt_coll_t *without_last = NULL,
		   *gather = make(&job, job.world, kind, full, shard, "block 7");
	CHECK_OR_DIE(gather != NULL);
	if (strcmp(mode, "cause") == 0 || strcmp(mode, "chain") == 0)
		without_last = make_without_last(&job, &group, full, shard);
	job_go_last(&job, job.size - 1);

	if (strcmp(mode, "loop") == 0)
		code = run_loop(&job, full, shard);
	else if (strcmp(mode, "abort") == 0)
		run_abort(&job, gather);
	else if (strcmp(mode, "timeout") == 0)
		run_timeout(&job, gather);
	else if (strcmp(mode, "ring") == 0)
		run_ring(&job, gather);
	else if (strcmp(mode, "stopped") == 0)
		run_stopped(&job, gather);
	else if (strcmp(mode, "cause") == 0)
		run_cause(&job, without_last);
	else if (strcmp(mode, "chain") == 0)
		run_chain(&job, gather, without_last);
	else if (strcmp(mode, "fork") == 0)
		run_fork(&job, gather);
	else if (strcmp(mode, "leave") == 0 && !last)
		expect(&job, gather, SRT_ERR_PEER_DEAD, "left the job", 5);
	else if (strcmp(mode, "die") == 0 && !last)
		expect(&job, gather, SRT_ERR_PEER_DEAD, "was killed or crashed", 1);
	else if (strcmp(mode, "exit") == 0 && !last)
		expect(&job, gather, SRT_ERR_PEER_DEAD, "exited without", 1);
	else if (strcmp(mode, "die") == 0)
		kill(getpid(), SIGKILL);
	else if (strcmp(mode, "exit") == 0)
		exit(0);
	else if (strcmp(mode, "leave") != 0)
		CHECK_MSG(0, "no such mode: %s", mode);
	else
		CHECK(last);
	if (code >= 0)
		return code; /* without cleaning up: as a program that gives up does */
	srt_coll_destroy(without_last);
	srt_coll_destroy(gather);
	srt_comm_destroy(group);
	job_drop(shard, shard_host);
	job_drop(full, full_host);
	job_close(&job);
	return check_done();
}
