/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flight recorder: one mode per run, run by test_flight.sh, which reads the files that the
 * ranks write. Also the records by themselves, and the handler of SIGUSR1.
 */
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "collectives/collective.h"
#include "tests/harness/job.h"
#include "tests/harness/options.h"

static void sleep_briefly(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static srt_coll_t *make_barrier(srt_comm_t *comm, const char *name)
{
	const srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				       .kind = SRT_COLL_BARRIER,
				       .name = name };
	srt_coll_t *coll = NULL;

	CHECK_OK_OR_DIE(srt_coll_create(comm, &desc, &coll));
	return coll;
}

/* An all-gather of 10 elements of each rank. */
static srt_coll_t *make_gather(job_t *job, const char *name, srt_buffer_t *full,
			       srt_buffer_t *shard)
{
	srt_coll_t *coll = NULL;

	CHECK_OK_OR_DIE(srt_coll_create_gather(job->world, srt_view(shard, 0, SRT_F32),
					       srt_view(full, 0, SRT_F32), 10, name, &coll));
	return coll;
}

/* ---- the records ---------------------------------------------------------------------------- */

static void check_calls(void)
{
	const uint32_t n = SRT_FLIGHT_NCALLS + 44;
	srt_flight_t *f = srt_flight_create();
	srt_flight_state_t state;
	srt_flight_call_t call;
	char name[200];

	CHECK_OR_DIE(f != NULL);
	CHECK_INT(srt_flight_first(f), 0);
	CHECK_INT(srt_flight_ncalls(f), 0);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (uint32_t i = 0; i < n; i++)
		CHECK_INT(srt_flight_begin(f, "broadcast", SRT_F16, 1 + i, 8 * i, name), i);
	CHECK_INT(srt_flight_ncalls(f), n);
	CHECK_INT(srt_flight_first(f), n - SRT_FLIGHT_NCALLS);
	/* A call that the ring no longer has: its entry is that of a later one, which goes on. */
	srt_flight_end(f, 3, SRT_FLIGHT_FAILED);
	CHECK(!srt_flight_read_call(f, 3, &call, &state));
	CHECK(srt_flight_read_call(f, 3 + SRT_FLIGHT_NCALLS, &call, &state));
	CHECK_INT(state, SRT_FLIGHT_RUNNING);
	CHECK_INT(call.number, 4 + SRT_FLIGHT_NCALLS);
	CHECK_STR(call.kind, "broadcast");
	CHECK_INT(call.dtype, SRT_F16);
	CHECK_INT(call.nbytes, 8 * (3 + SRT_FLIGHT_NCALLS));
	CHECK_INT(strlen(call.name), SRT_FLIGHT_NAME - 1);
	/* The first end counts. */
	srt_flight_end(f, n - 1, SRT_FLIGHT_FAILED);
	srt_flight_end(f, n - 1, SRT_FLIGHT_COMPLETE);
	CHECK(srt_flight_read_call(f, n - 1, &call, &state));
	CHECK_INT(state, SRT_FLIGHT_FAILED);
	CHECK(call.began_s > 0 && call.began_s <= srt_now_s());
	srt_flight_destroy(f);
}

static void check_waits(void)
{
	srt_flight_t *f = srt_flight_create();
	srt_flight_wait_t wait = { .number = 7, .why = SRT_FLIGHT_READERS }, read;
	int slots[SRT_FLIGHT_NWAITS];
	bool failed;

	CHECK_OR_DIE(f != NULL);
	for (int r = 0; r < SRT_FLIGHT_NRANKS + 5; r++)
		srt_flight_wait_add(&wait, 2 * r);
	for (size_t i = 0; i < SRT_FLIGHT_NWAITS; i++) {
		CHECK(!srt_flight_read_wait(f, i, &read, &failed));
		slots[i] = srt_flight_wait(f, -1, &wait, "a wait");
		CHECK_INT(slots[i], i);
	}
	CHECK_INT(srt_flight_wait(f, -1, &wait, "one too many"), -1);
	srt_flight_wait_end(f, -1, true);
	wait.number = 8;
	CHECK_INT(srt_flight_wait(f, slots[2], &wait, "the same wait"), slots[2]);
	CHECK(srt_flight_read_wait(f, (size_t)slots[2], &read, &failed));
	CHECK_INT(read.number, 8);
	CHECK_STR(read.name, "the same wait");
	CHECK_INT(read.nranks, SRT_FLIGHT_NRANKS + 5);
	CHECK_INT(read.ranks[SRT_FLIGHT_NRANKS - 1], 2 * (SRT_FLIGHT_NRANKS - 1));
	CHECK(!failed);
	srt_flight_wait_end(f, slots[2], true);
	CHECK(srt_flight_read_wait(f, (size_t)slots[2], &read, &failed));
	CHECK(failed);
	srt_flight_wait_end(f, slots[3], false);
	CHECK(!srt_flight_read_wait(f, (size_t)slots[3], &read, &failed));
	CHECK_INT(srt_flight_wait(f, -1, &wait, "the next one"), slots[3]);
	srt_flight_destroy(f);
}

/* ---- files ---------------------------------------------------------------------------------- */

static atomic_bool running;

/* Lets the recorder read while the starts write. */
static void *send_signals(void *arg)
{
	while (atomic_load(&running)) {
		kill(getpid(), SIGUSR1);
		sleep_briefly();
	}
	return arg;
}

/* Whether the file of this rank was begun after `since`, with its last start complete. */
static bool has_last_start(const job_t *job, uint32_t number, double since)
{
	static char text[1 << 18];
	char path[4096], words[64];
	const char *found;
	FILE *file;

	snprintf(path, sizeof(path), "%s/rank-%d.json", srt_config_string("SHARDRT_FLIGHT"),
		 job->rank);
	file = fopen(path, "r");
	if (file == NULL)
		return false;
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	found = strstr(text, "\"monotonic_us\": ");
	if (found == NULL || strtod(found + strlen("\"monotonic_us\": "), NULL) <= since * 1e6)
		return false;
	snprintf(words, sizeof(words), "\"number\": %u, \"kind\": \"barrier\"", (unsigned)number);
	found = strstr(text, words);
	return found != NULL && strstr(found, "\"complete\"") != NULL;
}

/* More starts than the ring has, with signals; then the last file has the last of them. The name
 * has what JSON and terminals do not take. */
static void run_ring(job_t *job)
{
	srt_coll_t *coll = make_barrier(job->world, "ring \"\\\n\033[31m \xff\xc3\xa9");
	pthread_t thread;
	double since;

	atomic_store(&running, true);
	CHECK_INT(pthread_create(&thread, NULL, send_signals, NULL), 0);
	for (int i = 0; i < 3000; i++)
		CHECK_OK_OR_DIE(srt_coll_start(coll, NULL, job->stream));
	CHECK_OK_OR_DIE(srt_stream_sync(job->stream));
	since = srt_now_s();
	atomic_store(&running, false);
	pthread_join(thread, NULL);
	/* A file that was begun earlier may be the next one. */
	do {
		kill(getpid(), SIGUSR1);
		sleep_briefly();
	} while (!has_last_start(job, 3000, since));
	/* Without cleaning up: a signal may be handled after that, which writes the file again. */
	_exit(check_done());
}

static volatile sig_atomic_t nsignals;

static void count_signal(int number)
{
	(void)number;
	nsignals++;
}

/* The handler of the program stays; without one the library's is there while a job is. */
static void check_handler(void)
{
	struct sigaction action = { .sa_handler = count_signal }, present;
	srt_bootstrap_t *b;

	CHECK_OK_OR_DIE(srt_bootstrap_join(CONTEXT(.bootstrap = "", .timeout_s = 0), &b));
	CHECK_INT(sigaction(SIGUSR1, NULL, &present), 0);
	CHECK(present.sa_handler != SIG_DFL);
	srt_bootstrap_leave(b);
	CHECK_INT(sigaction(SIGUSR1, NULL, &present), 0);
	CHECK(present.sa_handler == SIG_DFL);
	sigemptyset(&action.sa_mask);
	CHECK_INT(sigaction(SIGUSR1, &action, NULL), 0);
	CHECK_OK_OR_DIE(srt_bootstrap_join(CONTEXT(.bootstrap = "", .timeout_s = 0), &b));
	raise(SIGUSR1);
	CHECK_INT(nsignals, 1);
	srt_bootstrap_leave(b);
	raise(SIGUSR1);
	CHECK_INT(nsignals, 2);
	signal(SIGUSR1, SIG_DFL);
}

/* ---- ranks that wait ------------------------------------------------------------------------ */

static void await_poison(const srt_comm_t *comm)
{
	while (!srt_comm_poisoned(comm))
		sleep_briefly();
	CHECK(srt_comm_fail(comm, 0, "waiting") != SRT_OK);
}

/* Waits until the ranks from `first` to before the last one wait in a collective, not in its
 * creation. */
static void await_waits(const job_t *job, int first)
{
	char text[SRT_WAIT_TEXT];

	for (int r = first; r < job->size - 1; r++) {
		do {
			sleep_briefly();
			srt_wait_read(job->world, r, text);
		} while (strstr(text, "of \"block 7\"") == NULL ||
			 strstr(text, "creating") != NULL);
	}
}

/* The last rank does not start what the others start. Rank 0 starts last. */
static void run_missing(job_t *job, srt_coll_t *gather)
{
	job_set_timeout(job, 0.2);
	if (job->rank == 0)
		await_waits(job, 1);
	if (job->rank == job->size - 1)
		await_poison(job->world);
	else
		CHECK_STATUS(job_start_and_wait(gather, job->stream), SRT_ERR_TIMEOUT);
}

static void run_mismatch(job_t *job)
{
	srt_coll_t *a = make_barrier(job->world, "unit a"), *b = make_barrier(job->world, "unit b");

	CHECK_OK(job_start_and_wait(a, job->stream));
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	CHECK_STATUS(job_start_and_wait(job->rank == job->size - 1 ? b : a, job->stream),
		     SRT_ERR_MISMATCH);
	srt_coll_destroy(b);
	srt_coll_destroy(a);
}

/* The last rank is killed, or stops until the test has seen the files of the others. */
static void run_gone(job_t *job, srt_coll_t *gather, int signal)
{
	if (job->rank == job->size - 1) {
		await_waits(job, 0);
		kill(getpid(), signal);
	}
	CHECK_STATUS(job_start_and_wait(gather, job->stream),
		     signal == SIGSTOP ? SRT_OK : SRT_ERR_PEER_DEAD);
}

/* The last rank exchanges data, the others are in a collective: a cycle, until the test ends it. */
static void run_cycle(job_t *job, srt_coll_t *gather)
{
	char all[64];

	if (job->rank == job->size - 1)
		(void)srt_comm_oob_allgather_for(job->world, "saving \"model\"", "x", 1, all);
	else
		(void)job_start_and_wait(gather, job->stream);
}

/* A group of the first and the last rank, in which the last one is late; the test ends it. */
static void run_groups(job_t *job)
{
	const int ranks[2] = { 0, job->size - 1 };
	srt_comm_t *pair = NULL;
	srt_coll_t *barrier, *all = make_barrier(job->world, "all");

	CHECK_OK_OR_DIE(srt_comm_create_group(job->world, ranks, 2, "pair", &pair));
	for (int i = 0; i < 300; i++)
		CHECK_OK(srt_coll_start(all, NULL, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	if (pair == NULL)
		(void)job_start_and_wait(all, job->stream);
	barrier = make_barrier(pair, "two");
	CHECK_OK(job_start_and_wait(barrier, job->stream));
	while (job->rank != 0)
		sleep_briefly();
	(void)job_start_and_wait(barrier, job->stream);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	float *full_host, *shard_host;
	job_t job;

	if (strcmp(mode, "records") == 0) {
		check_calls();
		check_waits();
		check_handler();
		return check_done();
	}
	job_open(&job);
	srt_buffer_t *full = job_buffer(&job, 10 * (size_t)job.size, "full", &full_host);
	srt_buffer_t *shard = job_buffer(&job, 10, "shard", &shard_host);
	srt_coll_t *gather = make_gather(&job, "block 7", full, shard);
	printf("pid %d %ld\n", job.rank, (long)getpid()); /* it handles signals */
	fflush(stdout);

	if (strcmp(mode, "ring") == 0)
		run_ring(&job);
	else if (strcmp(mode, "missing") == 0)
		run_missing(&job, gather);
	else if (strcmp(mode, "mismatch") == 0)
		run_mismatch(&job);
	else if (strcmp(mode, "killed") == 0)
		run_gone(&job, gather, SIGKILL);
	else if (strcmp(mode, "stopped") == 0)
		run_gone(&job, gather, SIGSTOP);
	else if (strcmp(mode, "cycle") == 0)
		run_cycle(&job, gather);
	else if (strcmp(mode, "groups") == 0)
		run_groups(&job);
	else
		CHECK_MSG(0, "no such mode: %s", mode);
	srt_coll_destroy(gather);
	job_drop(shard, shard_host);
	job_drop(full, full_host);
	job_close(&job);
	return check_done();
}
