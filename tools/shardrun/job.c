/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes of a job: see tools/shardrun/job.h. */
#include "tools/shardrun/job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/shardrun/guard.h"

#define SETTLE_S 10.0
/* A part kills its ranks at once or after the grace time. How much longer it may take to end. */
#define PART_S 10.0

const char *srt_launch_remedy(int err)
{
	return err == EMFILE ? "; raise the limit of open files (ulimit -n)" : "";
}

const char *srt_launch_name_child(const srt_launch_job_t *l, int child, char *text, size_t size)
{
	const srt_launch_options_t *o = &l->options;

	if (l->hosts.n > 0)
		snprintf(text, size, "the part on %s", l->hosts.host[child].name);
	else if (o->part_of != NULL)
		snprintf(text, size, "rank %d on %s", o->first + child, o->part_of);
	else
		snprintf(text, size, "rank %d", child);
	return text;
}

void srt_launch_signal_all(srt_launch_job_t *l, int signo)
{
	for (int i = 0; i < l->nchildren; i++) {
		if (l->child[i].pid <= 0)
			continue;
		if (l->hosts.n > 0)
			srt_launch_host_signal(&l->hosts.host[i], signo);
		else
			kill(-l->child[i].pid, signo);
	}
}

static void set_kill_time(srt_launch_job_t *l, double wait_s)
{
	l->kill_at = srt_awake_s() + wait_s;
	l->kill_wait_s = wait_s;
}

void srt_launch_kill_all(srt_launch_job_t *l)
{
	char name[SRT_LAUNCH_HOST + 32];

	l->kill_at = SRT_LAUNCH_NEVER;
	l->killing = true;
	for (int i = 0; i < l->nchildren; i++) {
		if (l->child[i].pid <= 0)
			continue;
		if (!l->options.quiet)
			srt_launch_say("%s did not end within %g s: killed",
				       srt_launch_name_child(l, i, name, sizeof(name)),
				       l->kill_wait_s);
		kill(-l->child[i].pid, SIGKILL);
	}
}

void srt_launch_kill_ranks(srt_launch_job_t *l)
{
	srt_launch_signal_all(l, SIGKILL);
	if (l->hosts.n > 0 && srt_awake_s() + PART_S < l->kill_at)
		set_kill_time(l, PART_S);
}

void srt_launch_end_all(srt_launch_job_t *l)
{
	if (l->ending)
		return;
	l->ending = true;
	l->term_at = SRT_LAUNCH_NEVER;
	if (l->hosts.n > 0) {
		set_kill_time(l, l->options.grace_s + PART_S);
		srt_launch_signal_all(l, SRT_LAUNCH_HOST_END);
		return;
	}
	set_kill_time(l, l->options.grace_s);
	srt_launch_signal_all(l, SIGTERM);
	srt_launch_signal_all(l, SIGCONT); /* a stopped rank cannot end */
}

/* An exit(-1) gives 255. */
static bool is_signal_code(int code)
{
	return code > 128 && code <= 128 + SIGRTMAX;
}

/* Whether a signal that shardrun did not send killed the rank, or a rank of the part. */
static bool was_killed_by_others(const srt_launch_job_t *l, int status)
{
	const int code = srt_launch_child_code(status);

	return (l->hosts.n > 0 ? is_signal_code(code) : WIFSIGNALED(status)) &&
	       l->interrupts == 0 && !l->killing && !(l->ending && code == 128 + SIGTERM);
}

/* How much later than the first failure a killed rank can be reaped. A part ends after its other
 * ranks, which get the grace time. */
static double get_settle_s(const srt_launch_job_t *l)
{
	return SETTLE_S + (l->hosts.n > 0 ? l->options.grace_s : 0);
}

static void store_cause(srt_launch_job_t *l, int child, const char *how)
{
	l->code = srt_launch_child_code(l->child[child].status);
	l->failed_child = child;
	snprintf(l->failed_how, sizeof(l->failed_how), "%s", how);
}

static void handle_failure(srt_launch_job_t *l, int child, const char *how)
{
	int status = l->child[child].status;
	char name[SRT_LAUNCH_HOST + 32];

	/* The sockets of a killed rank close before it can be reaped, so that other ranks may be
	 * reaped first: a rank that was killed soon after the first failure is its cause. */
	if (l->code == 0) {
		store_cause(l, child, how);
		l->failed_at = srt_awake_s();
	} else if (!is_signal_code(l->code) && was_killed_by_others(l, status) &&
		   srt_awake_s() - l->failed_at < get_settle_s(l)) {
		store_cause(l, child, how);
	} else if (l->ending) {
		return; /* shardrun ended it */
	}
	if (!l->options.quiet)
		srt_launch_say("%s %s", srt_launch_name_child(l, child, name, sizeof(name)), how);
	if (l->options.keep_going || l->nrunning == 0)
		return;
	if (l->interrupts == 0) {
		if (!l->options.quiet && !l->ending)
			srt_launch_say("ending the other %s (not with --keep-going)",
				       l->hosts.n > 0 ? "parts" : "ranks");
		srt_launch_end_all(l);
	} else if (l->term_at >= SRT_LAUNCH_NEVER && !l->ending) {
		/* The user ends the job: ranks that save their work get the grace time. */
		l->term_at = srt_awake_s() + l->options.grace_s;
	}
}

/* Starts another guard if the guard has been killed. */
static void watch_guard(srt_launch_job_t *l)
{
	if (l->guard_pid <= 0 || waitpid(l->guard_pid, NULL, WNOHANG) != l->guard_pid)
		return;
	close(l->guard);
	l->guard = -1;
	l->guard_pid = srt_launch_guard_start(&l->guard);
	if (l->guard_pid < 0) {
		srt_launch_say(
			"the guard was killed and cannot be started again: %s; if shardrun is "
			"killed, processes of ranks may be left",
			strerror(errno));
		return;
	}
	for (int i = 0; i < l->nchildren; i++) {
		if (l->child[i].pid > 0)
			srt_launch_guard_add(l->guard, l->child[i].pid);
	}
	if (!l->options.quiet)
		srt_launch_say("the guard was killed: another one was started");
}

void srt_launch_reap(srt_launch_job_t *l)
{
	watch_guard(l);
	for (int i = 0; i < l->nchildren; i++) {
		srt_launch_child_t *child = &l->child[i];
		siginfo_t info = { 0 };
		char how[64];

		if (child->pid <= 0 ||
		    waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
		    info.si_pid != child->pid)
			continue;
		/* Before reaping: until then the number of the process group cannot be reused. */
		kill(-child->pid, SIGKILL);
		srt_launch_guard_remove(l->guard, child->pid);
		while (waitpid(child->pid, &child->status, 0) < 0 && errno == EINTR)
			;
		child->pid = 0;
		l->nrunning--;
		srt_launch_child_describe(child->status, how, sizeof(how));
		if (l->rendezvous != NULL)
			srt_rendezvous_rank_ended(l->rendezvous, i, how);
		if (l->hosts.n > 0) {
			srt_launch_host_close(&l->hosts.host[i]);
			l->lost_part |= WIFSIGNALED(child->status) ||
					WEXITSTATUS(child->status) == SRT_LAUNCH_RSH_FAILED;
		}
		if (child->status != 0)
			handle_failure(l, i, how);
	}
}

/* What differs between a rank of this machine, a rank of a part, and the part of a host. */
static void set_kind(srt_launch_job_t *l, int child, srt_launch_spec_t *spec)
{
	const srt_launch_options_t *o = &l->options;

	spec->argv = o->argv;
	spec->rank = o->first + child;
	spec->size = l->nranks;
	spec->local_rank = child;
	spec->local_size = l->nchildren;
	if (l->hosts.n > 0) {
		spec->argv = l->hosts.host[child].argv;
		spec->rank = -1;
	} else if (o->part_of != NULL) {
		spec->size = o->world_size;
	} else {
		spec->address = srt_rendezvous_address(l->rendezvous);
		if (child == 0 && !isatty(STDIN_FILENO))
			spec->in_fd = STDIN_FILENO;
	}
}

size_t srt_launch_count_outputs(const srt_launch_job_t *l)
{
	const bool piped = l->options.prefix || l->hosts.n > 0 || l->options.part_of != NULL;

	return piped ? 2 * (size_t)l->nchildren : 0;
}

static int open_output(srt_launch_job_t *l, int child, srt_launch_spec_t *spec)
{
	int width = l->options.prefix ? snprintf(NULL, 0, "%d", spec->size - 1) : 0;
	int rank = l->options.prefix ? spec->rank : -1;
	srt_launch_output_t *out = &l->output[2 * child];

	spec->out_fd = srt_launch_output_open(&out[0], rank, width, l->writer[0]);
	spec->err_fd = srt_launch_output_open(&out[1], rank, width, l->writer[1]);
	return spec->out_fd < 0 || spec->err_fd < 0 ? errno : 0;
}

int srt_launch_start_child(srt_launch_job_t *l, int child)
{
	const char *what = "make pipes for";
	srt_launch_spec_t spec = {
		.restart_count = l->restarts.count,
		.in_fd = -1,
		.out_fd = -1,
		.err_fd = -1,
		.guard = l->guard,
		.mask = l->old_mask,
	};
	int err = 0;

	set_kind(l, child, &spec);
	if (srt_launch_count_outputs(l) > 0)
		err = open_output(l, child, &spec);
	if (err == 0 && l->hosts.n > 0) {
		spec.in_fd = srt_launch_host_open(&l->hosts, &l->hosts.host[child]);
		err = spec.in_fd < 0 ? errno : 0;
	}
	if (err == 0)
		err = srt_launch_child_start(&spec, &l->child[child], &what);
	if (spec.in_fd > STDIN_FILENO)
		close(spec.in_fd);
	if (spec.out_fd >= 0)
		close(spec.out_fd);
	if (spec.err_fd >= 0)
		close(spec.err_fd);
	if (err != 0) {
		srt_launch_say("cannot %s %s: %s%s", what, spec.argv[0], strerror(err),
			       srt_launch_remedy(err));
		return err == ENOENT ? SRT_LAUNCH_NOT_FOUND : SRT_LAUNCH_CANNOT_RUN;
	}
	l->nrunning++;
	return 0;
}
