/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shardrun: runs a program as N ranks on this machine.
 *
 * One loop waits in poll() for a signalfd, the bootstrap's sockets and, with --prefix, the ranks'
 * pipes. It never waits for readers of its output: threads write (writer.h). Each rank has its own
 * process group: a Ctrl-C at the terminal reaches only shardrun, which passes it on once to each
 * group, so also to the children of wrappers. When a rank has ended, the rest of its group is
 * killed, so that nothing outlives the job. If shardrun itself is killed, a guard process kills all
 * groups (guard.h).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/shardrun/child.h"
#include "tools/shardrun/guard.h"
#include "tools/shardrun/options.h"
#include "tools/shardrun/output.h"
#include "tools/shardrun/restart.h"
#include "tools/shardrun/setup.h"
#include "base/clock.h"
#include "collectives/bootstrap/rendezvous.h"

#define NEVER 1e18
#define SETTLE_S 10.0

typedef struct {
	srt_launch_options_t options;
	srt_rendezvous_t *rendezvous;
	srt_launch_child_t *child;   /* [nranks] */
	srt_launch_output_t *output; /* [2 * nranks] with --prefix */
	struct pollfd *pollfds;
	srt_launch_writer_t *writer[2]; /* to standard output, to standard error; may be the same */
	int signals;                    /* signalfd */
	int wake;                       /* eventfd of the writers */
	int guard;
	sigset_t old_mask;
	int interrupts;     /* signals of the user to end the job */
	sigset_t reported;  /* USR1 and USR2, if they were passed on to the ranks ... */
	bool reported_late; /* ... or came after the failure of one */
	bool timed_out;
	double timeout_at;
	off_t stdin_at; /* where the standard input starts; -1 = it is not a file */
	srt_launch_restarts_t restarts;
	/* the present start of the job */
	int nranks, nrunning;
	int code;        /* of the first failure */
	int failed_rank; /* the first one */
	char failed_how[64];
	bool ending;  /* TERM was sent */
	bool killing; /* KILL was sent */
	double failed_at;
	double term_at, kill_at;
} launcher_t;

static const char *get_remedy(int err)
{
	return err == EMFILE ? "; raise the limit of open files (ulimit -n)" : "";
}

/* ---- ranks ---------------------------------------------------------------------------- */

static void signal_all(launcher_t *l, int signo)
{
	for (int r = 0; r < l->nranks; r++) {
		if (l->child[r].pid > 0)
			kill(-l->child[r].pid, signo);
	}
}

/* TERM now, KILL after the grace time. */
static void end_all(launcher_t *l)
{
	if (l->ending)
		return;
	l->ending = true;
	l->term_at = NEVER;
	l->kill_at = srt_awake_s() + l->options.grace_s;
	signal_all(l, SIGTERM);
	signal_all(l, SIGCONT); /* a stopped rank cannot end */
}

/* Whether a signal that shardrun did not send killed the rank. */
static bool was_killed_by_others(const launcher_t *l, int status)
{
	return WIFSIGNALED(status) && l->interrupts == 0 && !l->killing &&
	       !(l->ending && WTERMSIG(status) == SIGTERM);
}

static void store_cause(launcher_t *l, int rank, const char *how)
{
	l->code = srt_launch_child_code(l->child[rank].status);
	l->failed_rank = rank;
	snprintf(l->failed_how, sizeof(l->failed_how), "%s", how);
}

static void handle_failure(launcher_t *l, int rank, const char *how)
{
	int status = l->child[rank].status;

	/* The sockets of a killed rank close before it can be reaped, so that other ranks may be
	 * reaped first: a rank that was killed soon after the first failure is its cause. */
	if (l->code == 0) {
		store_cause(l, rank, how);
		l->failed_at = srt_awake_s();
	} else if (l->code < 128 && was_killed_by_others(l, status) &&
		   srt_awake_s() - l->failed_at < SETTLE_S) {
		store_cause(l, rank, how);
	} else if (l->ending) {
		return; /* shardrun ended it */
	}
	if (!l->options.quiet)
		srt_launch_say("rank %d %s", rank, how);
	if (l->options.keep_going || l->nrunning == 0)
		return;
	if (l->interrupts == 0) {
		if (!l->options.quiet)
			srt_launch_say("ending the other ranks (not with --keep-going)");
		end_all(l);
	} else if (l->term_at >= NEVER && !l->ending) {
		/* The user ends the job: ranks that save their work get the grace time. */
		l->term_at = srt_awake_s() + l->options.grace_s;
	}
}

/* Reaps the ranks that have ended. */
static void reap_ranks(launcher_t *l)
{
	for (int r = 0; r < l->nranks; r++) {
		srt_launch_child_t *child = &l->child[r];
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
		srt_rendezvous_rank_ended(l->rendezvous, r, how);
		if (child->status != 0)
			handle_failure(l, r, how);
	}
}

static int start_rank(launcher_t *l, int rank)
{
	const srt_launch_options_t *o = &l->options;
	const char *what;
	srt_launch_spec_t spec = {
		.argv = o->argv,
		.rank = rank,
		.size = l->nranks,
		.restart_count = l->restarts.count,
		.address = srt_rendezvous_address(l->rendezvous),
		.keep_stdin = rank == 0 && !isatty(STDIN_FILENO),
		.out_fd = -1,
		.err_fd = -1,
		.guard = l->guard,
		.mask = l->old_mask,
	};
	int err = 0;

	if (o->prefix) {
		int width = snprintf(NULL, 0, "%d", l->nranks - 1);
		srt_launch_output_t *out = &l->output[2 * rank];
		what = "make pipes for";
		spec.out_fd = srt_launch_output_open(&out[0], rank, width, l->writer[0]);
		spec.err_fd = srt_launch_output_open(&out[1], rank, width, l->writer[1]);
		if (spec.out_fd < 0 || spec.err_fd < 0)
			err = errno;
	}
	if (err == 0)
		err = srt_launch_child_start(&spec, &l->child[rank], &what);
	if (spec.out_fd >= 0)
		close(spec.out_fd);
	if (spec.err_fd >= 0)
		close(spec.err_fd);
	if (err != 0) {
		srt_launch_say("cannot %s %s: %s%s", what, o->argv[0], strerror(err),
			       get_remedy(err));
		return err == ENOENT ? SRT_LAUNCH_NOT_FOUND : SRT_LAUNCH_CANNOT_RUN;
	}
	l->nrunning++;
	return 0;
}

/* ---- the loop ------------------------------------------------------------------------- */

static void stop_and_continue(launcher_t *l)
{
	signal_all(l, SIGSTOP);
	raise(SIGSTOP); /* until the shell continues shardrun */
	signal_all(l, SIGCONT);
}

static void handle_signal(launcher_t *l, int signo)
{
	switch (signo) {
	case SIGCHLD:
		break; /* run_loop() reaps in each round */
	case SIGTSTP:
		stop_and_continue(l);
		break;
	case SIGINT:
	case SIGTERM:
	case SIGHUP:
	case SIGQUIT:
		if (++l->interrupts >= 3)
			signal_all(l, SIGKILL);
		else
			signal_all(l, signo);
		signal_all(l, SIGCONT); /* a stopped rank cannot end, and the others wait for it */
		break;
	case SIGUSR1:
	case SIGUSR2:
		sigaddset(&l->reported, signo);
		l->reported_late |= l->code != 0 || l->nrunning == 0;
		signal_all(l, signo);
		break;
	default:
		signal_all(l, signo);
		break;
	}
}

static void read_signals(launcher_t *l)
{
	struct signalfd_siginfo info;

	while (read(l->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		handle_signal(l, (int)info.ssi_signo);
}

static void check_deadlines(launcher_t *l)
{
	double now = srt_awake_s();

	if (now >= l->timeout_at) {
		l->timeout_at = NEVER;
		l->timed_out = true;
		if (!l->options.quiet)
			srt_launch_say("the job has run for %g s: ending it", l->options.timeout_s);
		if (l->code == 0)
			l->code = SRT_LAUNCH_TIMEOUT;
		end_all(l);
	}
	if (now >= l->term_at)
		end_all(l);
	if (now >= l->kill_at) {
		l->kill_at = NEVER;
		l->killing = true;
		for (int r = 0; r < l->nranks; r++) {
			if (l->child[r].pid > 0 && !l->options.quiet)
				srt_launch_say("rank %d did not end within %g s: killed", r,
					       l->options.grace_s);
		}
		signal_all(l, SIGKILL);
	}
}

static int get_next_deadline_ms(const launcher_t *l)
{
	double at = l->term_at;

	if (l->kill_at < at)
		at = l->kill_at;
	if (l->timeout_at < at)
		at = l->timeout_at;
	double ms = (at - srt_awake_s()) * 1000 + 1;
	if (at >= NEVER)
		return -1;
	return ms < 0 ? 0 : ms > SRT_AWAKE_SLICE_MS ? SRT_AWAKE_SLICE_MS : (int)ms;
}

static size_t count_outputs(const launcher_t *l)
{
	return l->options.prefix ? 2 * (size_t)l->nranks : 0;
}

static void wait_for_events(launcher_t *l, int timeout_ms)
{
	uint64_t count;
	size_t n = 0;

	l->pollfds[n++] = (struct pollfd){ .fd = l->signals, .events = POLLIN };
	l->pollfds[n++] = (struct pollfd){ .fd = l->wake, .events = POLLIN };
	for (size_t i = 0; i < count_outputs(l); i++) {
		if (l->output[i].fd >= 0 && srt_launch_output_ready(&l->output[i]))
			l->pollfds[n++] =
				(struct pollfd){ .fd = l->output[i].fd, .events = POLLIN };
	}
	n += srt_rendezvous_poll(l->rendezvous, l->pollfds + n, &timeout_ms);
	poll(l->pollfds, (nfds_t)n, timeout_ms);
	ssize_t ignored = read(l->wake, &count, sizeof(count));
	(void)ignored; /* the events themselves are looked at in each round */
}

static void run_loop(launcher_t *l)
{
	while (l->nrunning > 0) {
		wait_for_events(l, get_next_deadline_ms(l));
		read_signals(l);
		/* One chunk of each: a rank that writes without pause must not keep the loop. */
		for (size_t i = 0; i < count_outputs(l); i++)
			srt_launch_output_read(&l->output[i]);
		srt_rendezvous_step(l->rendezvous);
		reap_ranks(l);
		check_deadlines(l);
	}
}

/* ---- output after the end of the ranks ------------------------------------------------ */

/* Passes on what the pipes still have from before the end. Returns whether there is more. */
static bool empty_pipes(launcher_t *l)
{
	bool more = false;

	for (size_t i = 0; i < count_outputs(l); i++) {
		srt_launch_output_t *out = &l->output[i];

		if (!srt_launch_output_read(out))
			srt_launch_output_close(out);
		more = more || out->fd >= 0;
	}
	return more;
}

/* Waits until the pipes are empty and, at the end, until the readers have taken everything. After
 * the timeout, or if the user ends the job, a reader that takes nothing for the grace time is given
 * up. */
static void drain_output(launcher_t *l, bool at_end)
{
	static const char *const names[] = { "standard output", "standard error" };
	size_t nwritten[2] = { 0 };
	double progress_at[2] = { srt_awake_s(), srt_awake_s() };

	for (bool more = true; more;) {
		bool give_up = l->timed_out || l->interrupts > 0;

		more = empty_pipes(l);
		for (int k = 0; k < 2; k++) {
			size_t now_written,
				left = srt_launch_writer_left(l->writer[k], &now_written);

			if (left == 0 || now_written != nwritten[k])
				progress_at[k] = srt_awake_s();
			nwritten[k] = now_written;
			if (left > 0 && give_up &&
			    (l->interrupts >= 3 ||
			     srt_awake_s() - progress_at[k] >= l->options.grace_s)) {
				srt_launch_writer_drop(l->writer[k]);
				srt_launch_say("%s is not read: %zu bytes of output were dropped",
					       names[k], left);
				left = 0;
			}
			more = more || (at_end && left > 0);
		}
		if (more)
			wait_for_events(l, SRT_AWAKE_SLICE_MS);
		read_signals(l);
		srt_rendezvous_step(l->rendezvous); /* closes the sockets of ended ranks */
		check_deadlines(l);
	}
}

/* ---- starts --------------------------------------------------------------------------- */

/* Prepares a start of the job, at a new address: no process of an earlier start can join. */
static bool open_start(launcher_t *l, int nranks)
{
	srt_rendezvous_t *rendezvous = srt_rendezvous_open(nranks);

	if (rendezvous == NULL)
		return false;
	srt_rendezvous_close(l->rendezvous);
	l->rendezvous = rendezvous;
	l->nranks = nranks;
	l->code = 0;
	l->ending = l->killing = l->reported_late = false;
	sigemptyset(&l->reported);
	l->term_at = l->kill_at = NEVER;
	if (l->stdin_at >= 0)
		lseek(STDIN_FILENO, l->stdin_at, SEEK_SET);
	return true;
}

/* Whether the job ended because the user or the time limit has ended it. */
static bool was_ended(const launcher_t *l)
{
	return l->timed_out || l->interrupts > 0 || l->reported_late ||
	       (l->code > 128 && sigismember(&l->reported, l->code - 128) == 1);
}

/* The number of ranks of the next start after this one has ended, or 0. */
static int choose_next_ranks(launcher_t *l)
{
	char why[200];
	int next, left;

	if (l->code == 0 || l->options.restarts == 0 || was_ended(l))
		return 0;
	next = srt_launch_restart(&l->restarts, &l->options, l->nranks, l->code, l->failed_at, why,
				  sizeof(why));
	left = l->options.restarts - l->restarts.count;
	if (l->options.quiet)
		return next;
	if (next == 0)
		srt_launch_say("not started again: %s", why);
	else
		srt_launch_say(
			"rank %d %s: starting the job again with %d rank%s, %d restart%s left",
			l->failed_rank, l->failed_how, next, next == 1 ? "" : "s", left,
			left == 1 ? "" : "s");
	return next;
}

static void run_job(launcher_t *l)
{
	for (int r = 0; r < l->nranks; r++) {
		int code = start_rank(l, r);
		if (code != 0) {
			l->code = code;
			end_all(l);
			break;
		}
	}
	run_loop(l);
	drain_output(l, false);
}

static int launch_job(launcher_t *l)
{
	int next;

	if (l->options.timeout_s > 0)
		l->timeout_at = srt_awake_s() + l->options.timeout_s;
	run_job(l);
	while ((next = choose_next_ranks(l)) > 0) {
		if (!open_start(l, next)) {
			srt_launch_say("cannot start again: %s%s", strerror(errno),
				       get_remedy(errno));
			break;
		}
		run_job(l);
	}
	drain_output(l, true);
	return l->code;
}

int main(int argc, char **argv)
{
	launcher_t l = { .timeout_at = NEVER };
	int code = srt_launch_parse(argc, argv, &l.options);

	if (code >= 0)
		return code;
	code = SRT_LAUNCH_CANNOT_RUN;
	l.stdin_at = lseek(STDIN_FILENO, 0, SEEK_CUR);
	srt_launch_raise_file_limit();
	l.guard = srt_launch_guard_start();
	l.signals = srt_launch_open_signals(&l.old_mask);
	l.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	l.child = calloc((size_t)l.options.nranks, sizeof(*l.child));
	l.output = calloc(2 * (size_t)l.options.nranks, sizeof(*l.output));
	for (int i = 0; l.output != NULL && i < 2 * l.options.nranks; i++)
		l.output[i].fd = -1;
	if (open_start(&l, l.options.nranks))
		l.pollfds =
			calloc(2 + 2 * (size_t)l.nranks + srt_rendezvous_max_pollfds(l.rendezvous),
			       sizeof(*l.pollfds));
	if (l.guard < 0 || l.signals < 0 || l.child == NULL || l.output == NULL ||
	    l.pollfds == NULL || l.wake < 0 || !srt_launch_open_writers(l.writer, l.wake))
		srt_launch_say("cannot start: %s%s", strerror(errno), get_remedy(errno));
	else
		code = launch_job(&l);
	free(l.pollfds);
	free(l.output);
	free(l.child);
	srt_rendezvous_close(l.rendezvous);
	return code;
}
