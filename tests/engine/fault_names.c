/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the sentence of a rank names the rank that failed, and the collective. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/fault_trial.h"

static bool has(const char *text, const char *format, int rank)
{
	char words[100];

	snprintf(words, sizeof(words), format, rank);
	return strstr(text, words) != NULL;
}

/* Whether rank r names a rank that a cut cable has taken from it, or says that UCX found no network
 * on its host. */
static bool names_far(const trial_t *t, const fault_record_t *records, int r)
{
	const char *text = records[r].error;

	for (int far = 0; far < t->size; far++) {
		if (records[far].host != records[r].host &&
		    (has(text, "rank %d has not answered", far) ||
		     has(text, "lost its connection to rank %d: UCX", far)))
			return true;
	}
	return has(text, "rank %d: UCX: ucp_worker_create", r);
}

/* Whether a list of ranks, "rank 1 did not join" or "ranks 0, 1 did not reach it", has this one. */
static bool is_missing(const char *text, int rank)
{
	const char *end = strstr(text, " did not "), *p = end;

	while (p != NULL && p > text && strchr("0123456789, ", p[-1]) != NULL)
		p--;
	while (p != NULL && p < end) {
		char *next;

		if (strtol(p, &next, 10) == rank && next > p)
			return true;
		p = next > p ? next + strspn(next, ", ") : end;
	}
	return false;
}

bool fault_has_not_joined(const trial_t *t, const fault_record_t *records, int r)
{
	const char *text = records[r].error;
	/* Rank 0 may have given up before this rank reached it. */
	const bool is_apart = t->fault == FAULT_CUT || t->victim == 0 || records[0].error_at != 0;

	if (records[t->victim].fault_call > 1)
		return false;
	for (int far = 0; t->fault == FAULT_CUT && far < t->size; far++) {
		if (records[far].host != records[r].host && is_missing(text, far))
			return true;
	}
	return (is_missing(text, t->victim) && strstr(text, "did not join") != NULL) ||
	       (is_apart && strstr(text, "no connection to rank 0") != NULL) ||
	       has(text, "rank %d, the first of its node, left before", t->victim) ||
	       has(text, "server of its node, process %d,", records[t->victim].pid);
}

/* Ranks of another node may only know on which node a rank is late: its others wait for it. */
static bool names_node(const trial_t *t, const fault_record_t *records, int r)
{
	const fault_record_t *victim = &records[t->victim];

	for (int near = 0; near < t->size; near++) {
		if (victim->host != records[r].host && records[near].host == victim->host &&
		    (is_missing(records[r].error, near) ||
		     has(records[r].error, "rank %d, or a rank that it waits for, did not", near)))
			return true;
	}
	return false;
}

static bool names_leaver(const char *text, int rank)
{
	return has(text, "rank %d left", rank) || has(text, "rank %d destroyed", rank) ||
	       has(text, "rank %d exited", rank) || has(text, "rank %d aborted", rank);
}

/* The other host may hear of a rank that ended because of the victim first: a relay tells of deaths
 * before goodbyes. */
static bool names_follower(const trial_t *t, const fault_record_t *records, int r)
{
	for (int near = 0; near < t->size; near++) {
		if (records[near].host != records[r].host &&
		    has(records[r].error, "rank %d is gone", near) &&
		    names_leaver(records[near].error, t->victim))
			return true;
	}
	return false;
}

static bool names_rank(const trial_t *t, const fault_record_t *records, int r)
{
	const char *text = records[r].error;
	const int rank = t->victim;

	if (fault_has_not_joined(t, records, r))
		return true;
	switch (t->fault) {
	case FAULT_CUT:
		return names_far(t, records, r);
	case FAULT_STOP:
		return names_node(t, records, r) || is_missing(text, rank) ||
		       has(text, "rank %d has not answered", rank) ||
		       has(text, "rank %d is stopped", rank);
	case FAULT_COMM_ABORT:
		return has(text, "rank %d aborted communicator", rank);
	case FAULT_LEAVE:
		return names_leaver(text, rank) || names_follower(t, records, r);
	default:
		return has(text, "rank %d is gone", rank) ||
		       has(text, "rank %d, which carried its messages, is gone", rank) ||
		       has(text, "rank %d left", rank) ||
		       has(text, "rank %d was killed by", rank) ||
		       has(text, "rank %d exited", rank);
	}
}

/* A call that starts collectives or waits for them. */
static bool is_of_collectives(const char *call)
{
	static const char *const calls[] = { "srt_coll_create",       "srt_coll_start",
					     "srt_coll_wait_readers", "srt_stream_sync",
					     "case_passes",           "srt_engine_step",
					     "srt_scaler_step" };

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (strcmp(call, calls[i]) == 0)
			return true;
	}
	return false;
}

/* The collective and its unit or tensor; or what a first step compares. */
static bool names_collective(const char *text)
{
	static const char *const kinds[] = { "all-gather", "reduce-scatter", "all-reduce",
					     "broadcast",  "barrier",        "all-to-all",
					     "send-recv" };
	char words[40];

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		snprintf(words, sizeof(words), "%s of \"", kinds[i]);
		if (strstr(text, words) != NULL)
			return true;
	}
	return strstr(text, "comparing the ") != NULL;
}

bool fault_goes_on(fault_t fault)
{
	return fault == FAULT_COMM_ABORT || fault == FAULT_CUT;
}

bool fault_is_named(const trial_t *t, const fault_record_t *records, int r)
{
	const bool must_name = r != t->victim || fault_goes_on(t->fault);

	return (!must_name || names_rank(t, records, r)) &&
	       (!is_of_collectives(records[r].error_call) || names_collective(records[r].error));
}
