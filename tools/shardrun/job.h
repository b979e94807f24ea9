/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The job that shardrun runs, and its processes: how they are started, told to end, and reaped.
 * A process is a rank; with --hosts it is a remote shell, which runs the ranks of one host
 * (hosts.h). Used by tools/shardrun/shardrun.c.
 */
#ifndef SRT_TOOLS_SHARDRUN_JOB_H
#define SRT_TOOLS_SHARDRUN_JOB_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "collectives/bootstrap/rendezvous.h"
#include "tools/shardrun/child.h"
#include "tools/shardrun/hosts.h"
#include "tools/shardrun/options.h"
#include "tools/shardrun/output.h"
#include "tools/shardrun/restart.h"

#define SRT_LAUNCH_NEVER 1e18

typedef struct srt_launch_job {
	srt_launch_options_t options;
	srt_launch_hosts_t hosts;     /* n = 0: all ranks are on this machine */
	srt_rendezvous_t *rendezvous; /* NULL: the ranks meet at rank 0 */
	srt_launch_child_t *child;    /* [nchildren] */
	srt_launch_output_t *output;  /* [2 * nchildren], see srt_launch_count_outputs() */
	struct pollfd *pollfds;
	srt_launch_writer_t *writer[2]; /* to standard output, to standard error; may be the same */
	int signals;                    /* signalfd */
	int wake;                       /* eventfd of the writers */
	int guard;       /* where groups are reported, see guard.h; -1 = there is no guard */
	pid_t guard_pid; /* its process */
	int control;     /* of --part: where signals come from; -1 = none, or its end has come */
	sigset_t old_mask;
	int interrupts;     /* signals of the user to end the job */
	sigset_t reported;  /* USR1 and USR2, if they were passed on to the ranks ... */
	bool reported_late; /* ... or came after the failure of one */
	bool timed_out;
	double timeout_at;
	off_t stdin_at; /* where the standard input starts; -1 = it is not a file */
	srt_launch_restarts_t restarts;
	/* the present start of the job */
	int nranks, nchildren, nrunning;
	int code;         /* of the first failure */
	int failed_child; /* the first one */
	char failed_how[64];
	bool ending;  /* TERM was sent */
	bool killing; /* KILL was sent */
	double failed_at;
	double term_at, kill_at;
	double kill_wait_s; /* up to kill_at */
	bool lost_part;     /* the remote shell of a part failed: ranks may still run there */
} srt_launch_job_t;

/* What to do about an error, or "". */
const char *srt_launch_remedy(int err);

/* "rank 3", "rank 3 on HOST", "the part on HOST". */
const char *srt_launch_name_child(const srt_launch_job_t *l, int child, char *text, size_t size);

/* To the ranks; with hosts to the parts, which pass it on. */
void srt_launch_signal_all(srt_launch_job_t *l, int signo);
/* Kills the ranks; parts that have not ended soon after that are killed, too. */
void srt_launch_kill_ranks(srt_launch_job_t *l);
/* Kills the processes that have not ended in time. */
void srt_launch_kill_all(srt_launch_job_t *l);
/* TERM now, KILL after the grace time. */
void srt_launch_end_all(srt_launch_job_t *l);
/* The number of pipes that the present start has. A rank of another host writes to one even without
 * --prefix: it must not die of SIGPIPE when its connection is lost. */
size_t srt_launch_count_outputs(const srt_launch_job_t *l);
/* Starts one process. Returns 0, or the exit status of shardrun after a message. */
int srt_launch_start_child(srt_launch_job_t *l, int child);
/* Reaps the processes that have ended. The first failure ends the others. */
void srt_launch_reap(srt_launch_job_t *l);

#endif
