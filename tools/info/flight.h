/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shardrt-info --flight: reads the files of the flight recorder, and reports which rank waits for
 * which.
 */
#ifndef SRT_TOOLS_INFO_FLIGHT_H
#define SRT_TOOLS_INFO_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define FLIGHT_VERSION 1
/* Ranks that a wait lists. */
#define FLIGHT_NRANKS 16

/* A text of a file, cut, without characters that could drive a terminal. */
typedef struct flight_text {
	char text[96];
} flight_text_t;

typedef struct flight_call {
	uint32_t number;
	bool exchange; /* else a start of a collective */
	bool running, failed;
	flight_text_t kind, name, dtype;
	uint64_t nbytes;
	int64_t began_us;
} flight_call_t;

typedef struct flight_wait {
	uint32_t number;
	bool exchange;
	enum { FLIGHT_FOR_DATA, FLIGHT_FOR_READERS, FLIGHT_FOR_ITSELF } why;
	flight_text_t kind, name;
	int64_t since_us;
	int64_t nranks; /* that it is for */
	int nlisted;
	int ranks[FLIGHT_NRANKS];
} flight_wait_t;

typedef struct flight_comm {
	flight_text_t id, name;
	int *ranks;
	size_t nranks;
	bool has_failed;
	flight_text_t status;
	char failure[512];
	flight_wait_t *waits;
	size_t nwaits;
	flight_call_t *calls; /* in the order in which they began; without torn ones */
	size_t ncalls;
	bool is_printed; /* of the report */
} flight_comm_t;

typedef struct flight_file {
	char path[512];
	flight_text_t job, host;
	bool by_signal; /* else because of a failure */
	int rank, world_size;
	int64_t pid;
	int64_t monotonic_us; /* when it was written; calls and waits have the same clock */
	flight_comm_t *comms;
	size_t ncomms;
} flight_file_t;

/**
 * Parses a file. @return 0; or -1 with the reason in `why`, and nothing to clear.
 * @param file its path is not changed.
 */
int flight_parse(const char *text, size_t nbytes, flight_file_t *file, char why[256]);

/** Frees what flight_parse() has allocated. */
void flight_clear(flight_file_t *file);

/**
 * Checks that the files are of one job and of different ranks, sorts them by rank, and prints the
 * report. @return 0; or -1 with the reason in `why`.
 */
int flight_report(flight_file_t *files, size_t nfiles, FILE *out, char why[256]);

/** Adds a list of numbers to a text that is cut if it is too long: "0, 1 and 3 to 7". */
void flight_list_ranks(const int *ranks, size_t n, char *list, size_t nbytes);

#endif
