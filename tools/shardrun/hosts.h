/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job on several hosts (shardrun --hosts). On each host a remote shell starts a shardrun of the
 * host's ranks, the part (shardrun --part). Its standard input comes from here:
 *
 *     NAME=VALUE lines, then an empty line    the ranks' environment, with the job's token
 *     bytes                                   numbers of signals, which the part passes on
 *     byte 0, or end                          ends the ranks: TERM, and KILL after the grace time
 *
 * So the token is on no command line, and a part ends when its connection is lost. The ranks meet
 * by TCP at rank 0, on the first host. Used by tools/shardrun/job.c and shardrun.c.
 */
#ifndef SRT_TOOLS_SHARDRUN_HOSTS_H
#define SRT_TOOLS_SHARDRUN_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/shardrun/options.h"

/* Longest name of a host in DNS, after the name of a user. */
#define SRT_LAUNCH_HOST 300
/* In the place of a signal: the part ends its ranks. */
#define SRT_LAUNCH_HOST_END 0
/* The exit status of ssh if it cannot connect, or loses the connection. */
#define SRT_LAUNCH_RSH_FAILED 255

typedef struct srt_launch_host {
	char name[SRT_LAUNCH_HOST]; /* [USER@]HOST, as the remote shell takes it */
	int first, nranks;
	int in;        /* writing end of the part's standard input, -1 = closed */
	char *argv[7]; /* runs the part; [2] and [5] are allocated */
} srt_launch_host_t;

typedef struct srt_launch_hosts {
	int n;
	srt_launch_host_t *host; /* [n] */
	char *header;            /* of the present start, up to the empty line */
	size_t nbytes;
} srt_launch_hosts_t;

/* Reads "a,b" or "a:3,b:1" of o->hosts; sets o->nranks if it is 0. Prints an error. */
bool srt_launch_hosts_parse(srt_launch_options_t *o, srt_launch_hosts_t *hosts);
/* Chooses the port and the token of a start. Returns false with errno set. */
bool srt_launch_hosts_open_start(srt_launch_hosts_t *hosts, int restart_count);
void srt_launch_hosts_free(srt_launch_hosts_t *hosts);

/* Makes the pipe and writes the header to it. Returns the reading end, or -1 with errno set. */
int srt_launch_host_open(const srt_launch_hosts_t *hosts, srt_launch_host_t *host);
void srt_launch_host_signal(const srt_launch_host_t *host, int signo);
/* Closes the pipe: the part, if it still runs, ends its ranks. */
void srt_launch_host_close(srt_launch_host_t *host);

/* For a part: reads the header into the environment. Prints an error. */
bool srt_launch_part_open(void);

#endif
