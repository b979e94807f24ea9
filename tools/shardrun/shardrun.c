/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shardrun: runs a program as N ranks on this machine, or on several hosts (hosts.h).
 *
 * One loop waits in poll() for a signalfd, the bootstrap's sockets and, with --prefix or --hosts,
 * the ranks' pipes. It never waits for readers of its output: threads write (writer.h). Each rank
 * has its own process group: a Ctrl-C at the terminal reaches only shardrun, which passes it on
 * once to each group, so also to the children of wrappers. When a rank has ended, the rest of its
 * group is killed, so that nothing outlives the job. If shardrun itself is killed, a guard process
 * kills all groups (guard.h).
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

#include "base/clock.h"
#include "tools/descriptors.h"
#include "tools/shardrun/guard.h"
#include "tools/shardrun/job.h"
#include "tools/shardrun/setup.h"

/* How much longer than the grace time ranks of a lost connection may run. */
#define LOST_S 5.0

/* ---- the loop ------------------------------------------------------------------------- */

static void stop_and_continue(srt_launch_job_t *l)
{
	srt_launch_signal_all(l, SIGSTOP);
	raise(SIGSTOP); /* until the shell continues shardrun */
	srt_launch_signal_all(l, SIGCONT);
}

static void handle_signal(srt_launch_job_t *l, int signo)
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
			srt_launch_kill_ranks(l);
		else
			srt_launch_signal_all(l, signo);
		/* A stopped rank cannot end, and the others wait for it. */
		srt_launch_signal_all(l, SIGCONT);
		break;
	case SIGUSR1:
	case SIGUSR2:
		sigaddset(&l->reported, signo);
		l->reported_late |= l->code != 0 || l->nrunning == 0;
		srt_launch_signal_all(l, signo);
		break;
	default:
		srt_launch_signal_all(l, signo);
		break;
	}
}

static void read_signals(srt_launch_job_t *l)
{
	struct signalfd_siginfo info;

	while (read(l->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		handle_signal(l, (int)info.ssi_signo);
}

/* For a part: signals that shardrun passes on, and its end or that of the connection. */
static void read_control(srt_launch_job_t *l)
{
	struct pollfd ready = { .fd = l->control, .events = POLLIN };
	unsigned char signo;

	while (l->control >= 0 && poll(&ready, 1, 0) > 0) {
		if (read(l->control, &signo, 1) != 1) {
			l->control = -1;
		} else if (signo != SRT_LAUNCH_HOST_END) {
			handle_signal(l, signo);
			continue;
		}
		/* A rank that is killed by somebody else can still be the cause. */
		if (l->code == 0) {
			l->code = 1;
			l->failed_at = srt_awake_s();
		}
		srt_launch_end_all(l);
	}
}

static void check_deadlines(srt_launch_job_t *l)
{
	double now = srt_awake_s();

	if (now >= l->timeout_at) {
		l->timeout_at = SRT_LAUNCH_NEVER;
		l->timed_out = true;
		if (!l->options.quiet)
			srt_launch_say("the job has run for %g s: ending it", l->options.timeout_s);
		if (l->code == 0)
			l->code = SRT_LAUNCH_TIMEOUT;
		srt_launch_end_all(l);
	}
	if (now >= l->term_at)
		srt_launch_end_all(l);
	if (now >= l->kill_at)
		srt_launch_kill_all(l);
}

static int get_next_deadline_ms(const srt_launch_job_t *l)
{
	double at = l->term_at;

	if (l->kill_at < at)
		at = l->kill_at;
	if (l->timeout_at < at)
		at = l->timeout_at;
	double ms = (at - srt_awake_s()) * 1000 + 1;
	if (at >= SRT_LAUNCH_NEVER)
		return -1;
	return ms < 0 ? 0 : ms > SRT_AWAKE_SLICE_MS ? SRT_AWAKE_SLICE_MS : (int)ms;
}

static void wait_for_events(srt_launch_job_t *l, int timeout_ms)
{
	uint64_t count;
	size_t n = 0;

	l->pollfds[n++] = (struct pollfd){ .fd = l->signals, .events = POLLIN };
	l->pollfds[n++] = (struct pollfd){ .fd = l->wake, .events = POLLIN };
	l->pollfds[n++] = (struct pollfd){ .fd = l->control, .events = POLLIN };
	for (size_t i = 0; i < srt_launch_count_outputs(l); i++) {
		if (l->output[i].fd >= 0 && srt_launch_output_ready(&l->output[i]))
			l->pollfds[n++] =
				(struct pollfd){ .fd = l->output[i].fd, .events = POLLIN };
	}
	if (l->rendezvous != NULL)
		n += srt_rendezvous_poll(l->rendezvous, l->pollfds + n, &timeout_ms);
	poll(l->pollfds, (nfds_t)n, timeout_ms);
	ssize_t ignored = read(l->wake, &count, sizeof(count));
	(void)ignored; /* the events themselves are looked at in each round */
}

static void step_rendezvous(srt_launch_job_t *l)
{
	if (l->rendezvous != NULL)
		srt_rendezvous_step(l->rendezvous);
}

static void run_loop(srt_launch_job_t *l)
{
	while (l->nrunning > 0) {
		wait_for_events(l, get_next_deadline_ms(l));
		read_signals(l);
		read_control(l);
		/* One chunk of each: a rank that writes without pause must not keep the loop. */
		for (size_t i = 0; i < srt_launch_count_outputs(l); i++)
			srt_launch_output_read(&l->output[i]);
		step_rendezvous(l);
		srt_launch_reap(l);
		check_deadlines(l);
	}
}

/* ---- output after the end of the ranks ------------------------------------------------ */

/* Passes on what the pipes still have from before the end. Returns whether there is more. */
static bool empty_pipes(srt_launch_job_t *l)
{
	bool more = false;

	for (size_t i = 0; i < srt_launch_count_outputs(l); i++) {
		srt_launch_output_t *out = &l->output[i];

		if (!srt_launch_output_read(out))
			srt_launch_output_close(out);
		more = more || out->fd >= 0;
	}
	return more;
}

/* Whether output that nobody takes may be dropped. */
static bool is_given_up(const srt_launch_job_t *l)
{
	return l->timed_out || l->interrupts > 0 || (l->options.part_of != NULL && l->control < 0);
}

/* Waits until the pipes are empty and, at the end, until the readers have taken everything. After
 * the timeout, if the user ends the job, or if the connection of a part is lost, a reader that
 * takes nothing for the grace time is given up. */
static void drain_output(srt_launch_job_t *l, bool at_end)
{
	static const char *const names[] = { "standard output", "standard error" };
	size_t nwritten[2] = { 0 };
	double progress_at[2] = { srt_awake_s(), srt_awake_s() };

	for (bool more = true; more;) {
		const bool give_up = is_given_up(l);

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
		read_control(l);
		step_rendezvous(l); /* closes the sockets of ended ranks */
		check_deadlines(l);
	}
}

/* ---- starts --------------------------------------------------------------------------- */

/* Prepares a start of the job, at a new address: no process of an earlier start can join. */
static bool open_start(srt_launch_job_t *l, int nranks)
{
	srt_rendezvous_t *rendezvous = NULL;

	if (l->hosts.n > 0) {
		if (!srt_launch_hosts_open_start(&l->hosts, l->restarts.count))
			return false;
	} else if (l->options.part_of == NULL) {
		rendezvous = srt_rendezvous_open(nranks);
		if (rendezvous == NULL)
			return false;
	}
	srt_rendezvous_close(l->rendezvous);
	l->rendezvous = rendezvous;
	l->nranks = nranks;
	l->nchildren = l->hosts.n > 0 ? l->hosts.n : nranks;
	l->code = 0;
	l->ending = l->killing = l->reported_late = l->lost_part = false;
	sigemptyset(&l->reported);
	l->term_at = l->kill_at = SRT_LAUNCH_NEVER;
	if (l->stdin_at >= 0)
		lseek(STDIN_FILENO, l->stdin_at, SEEK_SET);
	return true;
}

/* Whether the job ended because the user or the time limit has ended it. */
static bool was_ended(const srt_launch_job_t *l)
{
	return l->timed_out || l->interrupts > 0 || l->reported_late ||
	       (l->code > 128 && sigismember(&l->reported, l->code - 128) == 1);
}

/* The number of ranks of the next start after this one has ended, or 0. */
static int choose_next_ranks(srt_launch_job_t *l)
{
	char why[200], name[SRT_LAUNCH_HOST + 32], delay[32] = "";
	int next, left;

	if (l->code == 0 || l->options.restarts == 0 || was_ended(l))
		return 0;
	next = srt_launch_restart(&l->restarts, &l->options, l->nranks, l->code, l->failed_at, why,
				  sizeof(why));
	left = l->options.restarts - l->restarts.count;
	if (l->options.quiet)
		return next;
	if (l->restarts.delay_s > 0)
		snprintf(delay, sizeof(delay), " in %g s", l->restarts.delay_s);
	if (next == 0)
		srt_launch_say("not started again: %s", why);
	else
		srt_launch_say("%s %s: starting the job again%s with %d rank%s, %d restart%s left",
			       srt_launch_name_child(l, l->failed_child, name, sizeof(name)),
			       l->failed_how, delay, next, next == 1 ? "" : "s", left,
			       left == 1 ? "" : "s");
	return next;
}

/* Waits for the delay of the next start, until the user or the time limit ends the job. The ranks
 * of a part whose remote shell failed get TERM and KILL there, out of sight of this shardrun: they
 * must not meet those of the next start. */
static void await_restart(srt_launch_job_t *l)
{
	const double lost_s = l->lost_part ? l->options.grace_s + LOST_S : 0;
	const double delay_s = l->restarts.delay_s, now = srt_awake_s();
	const double end = now + (lost_s > delay_s ? lost_s : delay_s);

	if (lost_s > delay_s && !l->options.quiet)
		srt_launch_say("waiting for %g s: ranks of a lost connection may still run",
			       lost_s);
	while (srt_awake_s() < end && !was_ended(l)) {
		wait_for_events(l, SRT_AWAKE_SLICE_MS);
		read_signals(l);
		check_deadlines(l);
	}
}

static void run_job(srt_launch_job_t *l)
{
	l->restarts.started_at_s = srt_awake_s();
	for (int i = 0; i < l->nchildren; i++) {
		int code = srt_launch_start_child(l, i);
		if (code != 0) {
			l->code = code;
			srt_launch_end_all(l);
			break;
		}
	}
	run_loop(l);
	drain_output(l, false);
}

static int launch_job(srt_launch_job_t *l)
{
	int next;

	if (l->options.timeout_s > 0)
		l->timeout_at = srt_awake_s() + l->options.timeout_s;
	run_job(l);
	while ((next = choose_next_ranks(l)) > 0) {
		await_restart(l);
		if (was_ended(l))
			break;
		if (!open_start(l, next)) {
			srt_launch_say("cannot start again: %s%s", strerror(errno),
				       srt_launch_remedy(errno));
			break;
		}
		run_job(l);
	}
	drain_output(l, true);
	return l->code;
}

/* What all starts have in common. Returns false with errno set. */
static bool open_job(srt_launch_job_t *l)
{
	const size_t n = (size_t)(l->hosts.n > 0 ? l->hosts.n : l->options.nranks);
	size_t nfds = 3 + 2 * n;

	l->stdin_at = lseek(STDIN_FILENO, 0, SEEK_CUR);
	srt_launch_raise_file_limit();
	l->guard_pid = srt_launch_guard_start(&l->guard);
	l->signals = srt_launch_open_signals(&l->old_mask);
	l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	l->control = l->options.part_of != NULL ? STDIN_FILENO : -1;
	l->child = calloc(n, sizeof(*l->child));
	l->output = calloc(2 * n, sizeof(*l->output));
	for (size_t i = 0; l->output != NULL && i < 2 * n; i++)
		l->output[i].fd = -1;
	if (!open_start(l, l->options.nranks))
		return false;
	if (l->rendezvous != NULL)
		nfds += srt_rendezvous_max_pollfds(l->rendezvous);
	l->pollfds = calloc(nfds, sizeof(*l->pollfds));
	return l->guard_pid > 0 && l->signals >= 0 && l->wake >= 0 && l->child != NULL &&
	       l->output != NULL && l->pollfds != NULL &&
	       srt_launch_open_writers(l->writer, l->wake);
}

int main(int argc, char **argv)
{
	srt_launch_job_t l = { .timeout_at = SRT_LAUNCH_NEVER };
	int code;

	tool_open_standard_files();
	code = srt_launch_parse(argc, argv, &l.options);
	if (code >= 0)
		return code;
	if (l.options.hosts != NULL && !srt_launch_hosts_parse(&l.options, &l.hosts))
		code = SRT_LAUNCH_USAGE;
	else if (l.options.part_of != NULL && !srt_launch_part_open())
		code = 1;
	else if (open_job(&l))
		code = launch_job(&l);
	else {
		srt_launch_say("cannot start: %s%s", strerror(errno), srt_launch_remedy(errno));
		code = SRT_LAUNCH_CANNOT_RUN;
	}
	free(l.pollfds);
	free(l.output);
	free(l.child);
	srt_rendezvous_close(l.rendezvous);
	srt_launch_hosts_free(&l.hosts);
	return code;
}
