/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the parts of the report of shardrt-info --flight. */
#ifndef SRT_TOOLS_INFO_FLIGHT_REPORT_H
#define SRT_TOOLS_INFO_FLIGHT_REPORT_H

#include "tools/info/flight.h"

/* A rank of a communicator, that has a file. */
typedef struct flight_member {
	const flight_file_t *file;
	flight_comm_t *comm;
} flight_member_t;

typedef struct flight_job {
	flight_file_t *files; /* [nfiles], by rank */
	size_t nfiles;
	int world;
	const flight_file_t **by_rank; /* [world]; NULL: no file */
	flight_member_t *members;      /* [nmembers], by communicator and rank */
	size_t nmembers;
	int *list; /* scratch for the ranks of a line: [world + nmembers] */
	FILE *out;
} flight_job_t;

/* The latest start of the member, or the latest that has ended well. NULL: its ring has none. */
const flight_call_t *flight_last_start(const flight_member_t *m, bool completed);
/* Whether a number of a start or an exchange is before another one, modulo 2^32. */
bool flight_is_before(uint32_t a, uint32_t b);

/* Prints which ranks wait for which, cycles, and the ranks that do not wait. @return 0, or -1: no
 * memory. */
int flight_report_waits(flight_job_t *job);

#endif
