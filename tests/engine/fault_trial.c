/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a job of fault_job.c in which one rank fails, and checks what the other ranks report and
 * what is left.
 */
#include "tests/engine/fault_trial.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/check.h"

#define JOB "tests/engine/fault_job"
#define HANG_S 200 /* less than a rank waits for another one without a fault */
#define GONE_S 60
/* How much longer than SHARDRT_TIMEOUT ranks wait for other nodes, which know more. */
#define GRACE_S 3.5
/* How long a rank that leaves waits at most until its messages have gone, on each communicator. */
#define LEAVE_S (2 * 1.5)

const char *trial_describe(const worker_t *w)
{
	static char text[200];
	const trial_t *t = w->trial;

	snprintf(text, sizeof(text),
		 "trial %d (%d ranks, %s of rank %d, program %llu, %ld + %ld ns)", w->number,
		 t->size, fault_names[t->fault], t->victim, (unsigned long long)w->program,
		 t->moment, t->delay_ns);
	return text;
}

static void fail(worker_t *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(worker_t *w, const char *format, ...)
{
	char command[600], text[1200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	printf("FAIL: %s: %s\n", trial_describe(w), text);
	fflush(stdout);
	snprintf(command, sizeof(command), "cd %s && cat out; grep -hv '^point' rank-* | head -50",
		 w->dir);
	if (!w->failed && system(command) != 0)
		printf("no records\n");
	w->failed = true;
}

/* Nothing tells the other ranks of such a fault: they wait for a time. Only shardrun knows of a
 * rank that ends before it has joined. */
static bool waits_for_limits(const worker_t *w)
{
	const trial_t *t = w->trial;

	return t->fault == FAULT_STOP || t->fault == FAULT_CUT ||
	       (t->fault != FAULT_NONE && w->heartbeat_s != NULL && t->moment <= 1);
}

/* ---- a job --------------------------------------------------------------------------------- */

static void execute(worker_t *w, char **words)
{
	const int in = open("/dev/null", O_RDONLY);
	char path[500];
	int out;

	snprintf(path, sizeof(path), "%s/out", w->dir);
	out = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	CHECK_OR_DIE(in >= 0 && out >= 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* shardrun's guard then ends the ranks */
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	if (waits_for_limits(w)) {
		setenv("SHARDRT_TIMEOUT", w->timeout_s, 1);
		if (w->heartbeat_s != NULL)
			setenv("SHARDRT_HEARTBEAT", w->heartbeat_s, 1);
	}
	setenv("SHARDRT_CPU_STREAMS", w->program % 2 ? "threads" : "inline", 1);
	if (w->program / 2 % 2 && getenv("SHARDRT_COLLECTIVES") == NULL) {
		/* staged, through slots that cut everything into many rounds */
		setenv("SHARDRT_COLLECTIVES", "shm", 1);
		setenv("SHARDRT_PEER_MEMORY", "no", 1);
		setenv("SHARDRT_STAGING_BYTES", "1k", 1);
	}
	execvp(words[0], words);
	perror(words[0]);
	_exit(127);
}

/* The launcher, the job and its arguments as words. */
static pid_t start_job(worker_t *w)
{
	static char command[1200];
	const trial_t *t = w->trial;
	const char *n = strstr(w->launcher, "{n}");
	char *words[64], *rest = command;
	int nwords = 0;
	pid_t pid;

	CHECK_OR_DIE(n != NULL);
	snprintf(command, sizeof(command), "%.*s%d%s " JOB " run %s %llu", (int)(n - w->launcher),
		 w->launcher, t->size, n + 3, w->dir, (unsigned long long)w->program);
	if (t->fault != FAULT_NONE)
		snprintf(command + strlen(command), sizeof(command) - strlen(command),
			 " %d %s %ld %ld", t->victim, fault_names[t->fault], t->moment,
			 t->delay_ns);
	while (nwords < 63 && (words[nwords] = strtok_r(rest, " ", &rest)) != NULL)
		nwords++;
	words[nwords] = NULL;
	pid = fork();
	CHECK_OR_DIE(pid >= 0);
	if (pid == 0)
		execute(w, words);
	return pid;
}

static bool lives(int pid)
{
	return pid > 0 && kill(pid, 0) == 0;
}

static void read_records(worker_t *w, fault_record_t *records)
{
	for (int r = 0; r < w->trial->size; r++)
		fault_record_read(w->dir, r, &records[r]);
}

/* Continues a stopped rank when all others have ended. */
static void continue_rank(worker_t *w, const fault_record_t *records)
{
	const fault_record_t *victim = &records[w->trial->victim];

	if (victim->fault_at == 0)
		return;
	for (int r = 0; r < w->trial->size; r++) {
		if (r != w->trial->victim && (records[r].pid == 0 || lives(records[r].pid)))
			return;
	}
	kill(victim->pid, SIGCONT);
}

static void report_hang(worker_t *w, pid_t launcher, const fault_record_t *records)
{
	fail(w, "the job does not end");
	for (int r = 0; r < w->trial->size; r++) {
		if (!lives(records[r].pid))
			continue;
		printf("rank %d, process %d, is in call %ld, %s\n", r, records[r].pid,
		       records[r].ncalls, records[r].call);
		kill(records[r].pid, SIGKILL);
	}
	kill(launcher, SIGKILL);
}

/* Waits for the launcher. Returns its wait status. */
static int await_job(worker_t *w, pid_t launcher, fault_record_t *records)
{
	const long long end = fault_now_ns() + HANG_S * 1000000000LL;
	int status = 0;
	bool hung = false;
	pid_t got;

	while ((got = waitpid(launcher, &status, WNOHANG)) == 0) {
		usleep(2000);
		if (w->trial->fault == FAULT_STOP) {
			read_records(w, records);
			continue_rank(w, records);
		}
		if (!hung && fault_now_ns() > end) {
			read_records(w, records);
			report_hang(w, launcher, records);
			hung = true;
		}
	}
	CHECK_OR_DIE(got == launcher);
	return status;
}

/* ---- what is left ---------------------------------------------------------------------- */

/* Orphans of the job are children of this process (PR_SET_CHILD_SUBREAPER). */
static void check_processes(worker_t *w, const fault_record_t *records)
{
	const long long end = fault_now_ns() + GONE_S * 1000000000LL;
	char command[100];
	pid_t got;

	while ((got = waitpid(-1, NULL, WNOHANG)) >= 0) {
		if (got > 0)
			continue;
		if (fault_now_ns() > end) {
			fail(w, "processes are left");
			snprintf(command, sizeof(command), "ps -o pid,stat,args --ppid %d",
				 (int)getpid());
			CHECK_OR_DIE(system(command) == 0);
			break;
		}
		usleep(1000);
	}
	for (int r = 0; r < w->trial->size; r++) {
		if (lives(records[r].pid))
			fail(w, "process %d is left", records[r].pid);
	}
}

static void check_socket(worker_t *w, const char *address)
{
	const char *name = strchr(address, '@');
	FILE *f = fopen("/proc/net/unix", "r");
	char line[400];

	CHECK_OR_DIE(f != NULL);
	while (name != NULL && fgets(line, sizeof(line), f) != NULL) {
		if (strstr(line, name) != NULL)
			fail(w, "the socket %s is left", name);
	}
	fclose(f);
}

/* How many names in the folder of checkpoints have a text in them. */
static int count_saves(const worker_t *w, const char *text)
{
	const struct dirent *entry;
	char path[500];
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/saves", w->dir);
	dir = opendir(path);
	CHECK_OR_DIE(dir != NULL);
	while ((entry = readdir(dir)) != NULL)
		n += strstr(entry->d_name, text) != NULL;
	closedir(dir);
	return n;
}

/* The checkpoints: the latest one is the last that a rank knows to be saved, or a later one; and
 * another process removes what killed ones have left. */
static void check_saves(worker_t *w, const fault_record_t *records)
{
	char job[] = JOB, check[] = "check", *words[] = { job, check, w->dir, NULL };
	char path[500], line[500] = "";
	int nsaved = 0, latest = -1, status;
	const char *name;
	pid_t pid;
	FILE *f;

	/* Rank 0 removes its file when the save fails. The folder of a sharded one may stay: other
	 * ranks may still write to it. */
	if (count_saves(w, "safetensors.tmp-") > 0 && w->trial->victim != 0)
		fail(w, "a save that failed leaves its temporary file");
	for (int r = 0; r < w->trial->size; r++)
		nsaved = records[r].nsaved > nsaved ? records[r].nsaved : nsaved;
	if (nsaved == 0)
		return;
	snprintf(path, sizeof(path), "%s/out", w->dir);
	unlink(path);
	pid = fork();
	CHECK_OR_DIE(pid >= 0);
	if (pid == 0)
		execute(w, words);
	CHECK_OR_DIE(waitpid(pid, &status, 0) == pid);
	if (status != 0)
		fail(w, "the latest checkpoint cannot be loaded");
	f = fopen(path, "r");
	CHECK_OR_DIE(f != NULL);
	while (fgets(line, sizeof(line), f) != NULL) {
		name = strstr(line, "/saves/save-");
		latest = name != NULL ? atoi(name + strlen("/saves/save-")) : latest;
	}
	fclose(f);
	if (latest < nsaved - 1)
		fail(w, "the latest checkpoint is %d, but %d was saved", latest, nsaved - 1);
	if (count_saves(w, ".tmp-") + count_saves(w, ".replaced") > 0)
		fail(w, "the next save leaves temporary files");
}

/* ---- what the ranks report --------------------------------------------------------------- */

/* From the fault to an error. */
static double limit_ms(const worker_t *w)
{
	double wait_s = 0;

	if (waits_for_limits(w))
		wait_s = atof(w->timeout_s) + (w->heartbeat_s != NULL ? GRACE_S : 0);
	else if (w->trial->fault == FAULT_LEAVE)
		wait_s = LEAVE_S;
	return (wait_s + w->patience) * 1000;
}

/* UCX 1.13 sometimes calls abort() when a peer ends while it connects to it, or has closed. */
static bool ucx_has_failed(const worker_t *w)
{
	char command[600];

	snprintf(command, sizeof(command),
		 "grep -qs '\\(ucp_request\\|tcp_iface\\)\\.c.*Assertion' %s/out", w->dir);
	return w->heartbeat_s != NULL && system(command) == 0;
}

static void check_rank(worker_t *w, const fault_record_t *records, int r)
{
	trial_t *t = w->trial;
	const fault_record_t *victim = &records[t->victim], *record = &records[r];
	/* Messages of the victim that the others need may have been sent. */
	const bool may_be_done = victim->final > 0 && victim->fault_call >= victim->final;
	const bool must_name = r != t->victim || fault_goes_on(t->fault);
	double ms;

	if (record->error_at == 0) {
		if (!record->done && ucx_has_failed(w))
			printf("    rank %d was ended by an assertion of UCX\n", r);
		else if (!record->done)
			fail(w, "rank %d ended without an error in call %ld, %s", r, record->ncalls,
			     record->call);
		else if (!may_be_done)
			fail(w, "rank %d was done", r);
		return;
	}
	ms = (double)(record->error_at - victim->fault_at) / 1e6;
	if (r != t->victim && !fault_has_not_joined(t, records, r)) {
		t->is_far[t->nerrors] = record->host != victim->host;
		t->ms[t->nerrors++] = ms;
	}
	if (!fault_is_named(t, records, r)) {
		t->nunnamed++;
		fail(w, "rank %d does not name the rank and the collective: %s", r, record->error);
	}
	if (must_name && ms > limit_ms(w))
		fail(w, "rank %d has an error after %.0f ms only: %s", r, ms, record->error);
	if (r != t->victim)
		printf("    %s: %s\n", record->error_call, record->error);
}

static int expected_code(const trial_t *t)
{
	switch (t->fault) {
	case FAULT_KILL:
		return 128 + SIGKILL;
	case FAULT_ABORT:
		return 128 + SIGABRT;
	case FAULT_EXIT_3:
		return 3;
	default:
		return t->nerrors > 0 ? 3 : 0;
	}
}

static void check_trial(worker_t *w, int status, const fault_record_t *records)
{
	trial_t *t = w->trial;
	const fault_record_t *victim = &records[t->victim];
	const bool has_status = t->fault == FAULT_STOP || fault_goes_on(t->fault);
	const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

	t->was_late = victim->fault_at == 0;
	if (t->was_late && !victim->done)
		fail(w, "rank %d failed before its fault", t->victim);
	for (int r = 0; r < t->size; r++) {
		if (t->was_late ? !records[r].done : r != t->victim || has_status)
			check_rank(w, records, r);
	}
	if (strstr(w->launcher, "shardrun") == NULL || t->was_late)
		return;
	if (code != expected_code(t) && !(has_status && code == 3))
		fail(w, "shardrun's exit status is %d, not %d", code, expected_code(t));
}

void trial_run(worker_t *w)
{
	fault_record_t records[FAULT_MAX_RANKS] = { 0 };
	char path[500], command[500];
	int status;

	w->failed = false;
	w->trial->nerrors = w->trial->nunnamed = 0;
	snprintf(path, sizeof(path), "%s/saves", w->dir);
	CHECK_OR_DIE(mkdir(w->dir, 0700) == 0 && mkdir(path, 0700) == 0);
	status = await_job(w, start_job(w), records);
	read_records(w, records);
	check_processes(w, records);
	for (int r = 0; r < w->trial->size; r++)
		check_socket(w, records[r].address);
	if (w->trial->fault != FAULT_NONE) {
		check_trial(w, status, records);
		check_saves(w, records);
	} else {
		for (int r = 0; r < w->trial->size; r++) {
			if (status != 0 || !records[r].done)
				fail(w, "the program without a fault fails: rank %d", r);
			w->trace[r] = records[r];
		}
	}
	w->trial->passed = !w->failed;
	snprintf(command, sizeof(command), "rm -rf %s", w->dir);
	CHECK_OR_DIE(system(command) == 0);
}
