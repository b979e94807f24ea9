/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The report of shardrt-info --flight: the failures, the last start of each rank on each
 * communicator, the first start in which the ranks differ, and which rank waits for which.
 *
 * Ranks that report the same are named in one line.
 */
#include "tools/info/flight_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/status.h>

/* Calls of a communicator that are compared. */
#define MAX_COMPARED 4096u

/* ---- ranks ---------------------------------------------------------------------------------- */

/* Appends to a text, which is cut if it is too long. */
static void append(char *text, size_t nbytes, const char *more)
{
	const size_t n = strlen(text);

	snprintf(text + n, nbytes - n, "%s", more);
}

void flight_list_ranks(const int *ranks, size_t n, char *list, size_t nbytes)
{
	size_t first = 0;

	append(list, nbytes, n == 1 ? "rank " : "ranks ");
	while (first < n) {
		size_t last = first;
		char item[64];

		while (last + 1 < n && ranks[last + 1] == ranks[last] + 1)
			last++;
		if (last < first + 2) /* two in a row are two items */
			last = first;
		snprintf(item, sizeof(item), "%s%d",
			 first == 0    ? "" :
			 last + 1 == n ? " and " :
					 ", ",
			 ranks[first]);
		append(list, nbytes, item);
		if (last > first) {
			snprintf(item, sizeof(item), " to %d", ranks[last]);
			append(list, nbytes, item);
		}
		first = last + 1;
	}
}

/* ---- communicators -------------------------------------------------------------------------- */

const flight_call_t *flight_last_start(const flight_member_t *m, bool completed)
{
	for (size_t i = m->comm->ncalls; i-- > 0;) {
		const flight_call_t *call = &m->comm->calls[i];

		if (!call->exchange && !(completed && (call->running || call->failed)))
			return call;
	}
	return NULL;
}

static const flight_call_t *find_call(const flight_member_t *m, bool exchange, uint32_t number)
{
	for (size_t i = m->comm->ncalls; i-- > 0;) {
		const flight_call_t *call = &m->comm->calls[i];

		if (call->exchange == exchange && call->number == number)
			return call;
	}
	return NULL;
}

bool flight_is_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* The range of numbers that the member's ring has. False: none. */
static bool find_range(const flight_member_t *m, bool exchange, uint32_t *first, uint32_t *last)
{
	bool found = false;

	for (size_t i = 0; i < m->comm->ncalls; i++) {
		const flight_call_t *call = &m->comm->calls[i];

		if (call->exchange != exchange)
			continue;
		if (!found)
			*first = call->number;
		*last = call->number;
		found = true;
	}
	return found;
}

/* The part of an exchange's name that is the same on all ranks: the first word, or the first three
 * if the second one is "the". */
static size_t operation_nbytes(const char *name)
{
	size_t n = strcspn(name, " ");

	if (strncmp(name + n, " the ", 5) == 0)
		n += 5 + strcspn(name + n + 5, " ");
	return n;
}

static bool is_same_call(const flight_call_t *a, const flight_call_t *b)
{
	const size_t n = operation_nbytes(a->name.text);

	if (a->exchange)
		return n == operation_nbytes(b->name.text) &&
		       memcmp(a->name.text, b->name.text, n) == 0;
	return strcmp(a->kind.text, b->kind.text) == 0 && strcmp(a->name.text, b->name.text) == 0;
}

static void describe_last(const flight_member_t *m, char *text, size_t nbytes)
{
	const flight_call_t *last = flight_last_start(m, false),
			    *complete = flight_last_start(m, true);
	size_t n;

	if (last == NULL) {
		snprintf(text, nbytes, "no start of a collective");
		return;
	}
	n = (size_t)snprintf(text, nbytes,
			     "start %" PRIu32 ", %s of \"%s\", %s, %" PRIu64 " bytes: %s",
			     last->number, last->kind.text, last->name.text, last->dtype.text,
			     last->nbytes,
			     last->running ? "not complete" :
			     last->failed  ? "failed" :
					     "complete");
	if (complete != NULL && complete != last && n < nbytes)
		snprintf(text + n, nbytes - n, "; complete: start %" PRIu32 ", %s of \"%s\"",
			 complete->number, complete->kind.text, complete->name.text);
}

static void describe_failure(const flight_member_t *m, char *text, size_t nbytes)
{
	text[0] = '\0';
	if (m->comm->has_failed)
		snprintf(text, nbytes, "failed: %s", m->comm->failure);
}

/* Prints a text for each rank, once for all ranks that have the same. Empty texts are left out. */
static void print_grouped(flight_job_t *job, const flight_member_t *members, size_t n,
			  void (*describe)(const flight_member_t *m, char *text, size_t nbytes))
{
	char text[1024], other[1024], list[256];

	for (size_t i = 0; i < n; i++)
		members[i].comm->is_printed = false;
	for (size_t i = 0; i < n; i++) {
		size_t count = 0;

		if (members[i].comm->is_printed)
			continue;
		describe(&members[i], text, sizeof(text));
		if (text[0] == '\0')
			continue;
		for (size_t k = i; k < n; k++) {
			if (members[k].comm->is_printed)
				continue;
			describe(&members[k], other, sizeof(other));
			if (strcmp(text, other) != 0)
				continue;
			members[k].comm->is_printed = true;
			job->list[count++] = members[k].file->rank;
		}
		list[0] = '\0';
		flight_list_ranks(job->list, count, list, sizeof(list));
		fprintf(job->out, "  %s: %s\n", list, text);
	}
}

/* Which ranks made this call and which did not, if they differ. */
static bool print_difference(flight_job_t *job, const flight_member_t *members, size_t n,
			     bool exchange, uint32_t number)
{
	const flight_call_t *first = NULL, *other = NULL;
	size_t nlate = 0;
	char list[256] = "";
	int rank = 0, other_rank = 0;

	for (size_t i = 0; i < n; i++) {
		const flight_call_t *call = find_call(&members[i], exchange, number);
		uint32_t from, last = 0;

		if (call == NULL && (!find_range(&members[i], exchange, &from, &last) ||
				     flight_is_before(last, number)))
			job->list[nlate++] = members[i].file->rank;
		if (call != NULL && first == NULL) {
			first = call;
			rank = members[i].file->rank;
		} else if (call != NULL && other == NULL && !is_same_call(first, call)) {
			other = call;
			other_rank = members[i].file->rank;
		}
	}
	if (first == NULL || (other == NULL && nlate == 0))
		return false;
	if (other != NULL) {
		fprintf(job->out,
			"  %s %" PRIu32
			" differs: rank %d called %s%s\"%s\", rank %d called %s%s\"%s\"\n",
			exchange ? "exchange" : "start", number, rank,
			exchange ? "" : first->kind.text, exchange ? "" : " of ", first->name.text,
			other_rank, exchange ? "" : other->kind.text, exchange ? "" : " of ",
			other->name.text);
		return true;
	}
	flight_list_ranks(job->list, nlate, list, sizeof(list));
	fprintf(job->out, "  %s did not reach %s %" PRIu32 ", %s%s\"%s\"\n", list,
		exchange ? "exchange" : "start", number, exchange ? "" : first->kind.text,
		exchange ? "" : " of ", first->name.text);
	return true;
}

/* The first call in which the ranks differ, of those that the rings of all ranks have. */
static void print_first_difference(flight_job_t *job, const flight_member_t *members, size_t n,
				   bool exchange)
{
	uint32_t begin = 0, end = 0;
	bool found = false;

	for (size_t i = 0; i < n; i++) {
		uint32_t first, last;

		if (!find_range(&members[i], exchange, &first, &last))
			continue;
		if (!found || flight_is_before(begin, first))
			begin = first;
		if (!found || flight_is_before(end, last))
			end = last;
		found = true;
	}
	/* A ring of another length than this library's is not compared in full. */
	if (found && flight_is_before(begin, end - MAX_COMPARED))
		begin = end - MAX_COMPARED;
	for (uint32_t number = begin; found && !flight_is_before(end, number); number++) {
		if (print_difference(job, members, n, exchange, number))
			return;
	}
}

/* The rank that the sentence of a death names: "rank 3 is gone: ..." */
static void print_death(flight_job_t *job, const flight_member_t *members, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int rank;

		if (!members[i].comm->has_failed ||
		    strcmp(members[i].comm->status.text, srt_status_string(SRT_ERR_PEER_DEAD)) !=
			    0 ||
		    sscanf(members[i].comm->failure, "rank %d ", &rank) != 1)
			continue;
		fprintf(job->out,
			"  rank %d ended first: its output and exit status have the cause\n", rank);
		return;
	}
}

static void print_comm(flight_job_t *job, const flight_member_t *members, size_t n)
{
	const flight_comm_t *comm = members[0].comm;
	char list[256] = "";

	flight_list_ranks(comm->ranks, comm->nranks, list, sizeof(list));
	fprintf(job->out, "communicator \"%s\" of %s\n", comm->name.text, list);
	print_grouped(job, members, n, describe_failure);
	print_death(job, members, n);
	print_grouped(job, members, n, describe_last);
	print_first_difference(job, members, n, false);
	print_first_difference(job, members, n, true);
}

/* ---- the job -------------------------------------------------------------------------------- */

static int compare_files(const void *a, const void *b)
{
	const flight_file_t *x = a, *y = b;

	return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The world first, then by id; then by rank. */
static int compare_members(const void *a, const void *b)
{
	const flight_member_t *x = a, *y = b;
	const int world = (strcmp(y->comm->name.text, "world") == 0) -
			  (strcmp(x->comm->name.text, "world") == 0);
	const int id = strcmp(x->comm->id.text, y->comm->id.text);

	return world != 0 ? world :
	       id != 0    ? id :
			    (x->file->rank > y->file->rank) - (x->file->rank < y->file->rank);
}

static int check_files(const flight_file_t *files, size_t n, char why[256])
{
	for (size_t i = 1; i < n; i++) {
		if (files[i].world_size != files[0].world_size ||
		    strcmp(files[i].job.text, files[0].job.text) != 0) {
			snprintf(why, 256, "%.100s and %.100s are of different jobs", files[0].path,
				 files[i].path);
			return -1;
		}
		if (files[i].rank == files[i - 1].rank) {
			snprintf(why, 256, "%.100s and %.100s are both of rank %d",
				 files[i - 1].path, files[i].path, files[i].rank);
			return -1;
		}
	}
	return 0;
}

static void print_ranks(flight_job_t *job)
{
	size_t nmissing = 0;
	char list[256];

	fprintf(job->out, "job of %d rank%s\n", job->world, job->world == 1 ? "" : "s");
	for (int by_signal = 0; by_signal < 2; by_signal++) {
		size_t n = 0;

		for (size_t i = 0; i < job->nfiles; i++) {
			if (job->files[i].by_signal == (by_signal == 1))
				job->list[n++] = job->files[i].rank;
		}
		list[0] = '\0';
		flight_list_ranks(job->list, n, list, sizeof(list));
		if (n > 0)
			fprintf(job->out, "  %s: written %s\n", list,
				by_signal ? "at SIGUSR1" : "because a communicator failed");
	}
	for (int r = 0; r < job->world; r++) {
		if (job->by_rank[r] == NULL)
			job->list[nmissing++] = r;
	}
	list[0] = '\0';
	flight_list_ranks(job->list, nmissing, list, sizeof(list));
	if (nmissing > 0)
		fprintf(job->out,
			"  no file of %s: killed, stopped, or without the signal or a failure\n",
			list);
}

/* The communicators' members, sorted. */
static size_t collect_members(flight_job_t *job)
{
	size_t n = 0;

	for (size_t i = 0; i < job->nfiles; i++) {
		for (size_t c = 0; c < job->files[i].ncomms; c++)
			job->members[n++] =
				(flight_member_t){ &job->files[i], &job->files[i].comms[c] };
	}
	if (n > 0)
		qsort(job->members, n, sizeof(*job->members), compare_members);
	return n;
}

static void print_report(flight_job_t *job)
{
	const size_t n = job->nmembers = collect_members(job);

	print_ranks(job);
	for (size_t i = 0; i < n;) {
		size_t k = i;

		while (k < n &&
		       strcmp(job->members[k].comm->id.text, job->members[i].comm->id.text) == 0)
			k++;
		print_comm(job, &job->members[i], k - i);
		i = k;
	}
}

int flight_report(flight_file_t *files, size_t nfiles, FILE *out, char why[256])
{
	flight_job_t job = { .files = files, .nfiles = nfiles, .out = out };
	size_t ncomms = 0;
	int status = -1;

	qsort(files, nfiles, sizeof(*files), compare_files);
	if (check_files(files, nfiles, why) != 0)
		return -1;
	for (size_t i = 0; i < nfiles; i++)
		ncomms += files[i].ncomms;
	job.world = files[0].world_size;
	job.by_rank = calloc((size_t)job.world, sizeof(*job.by_rank));
	job.list = calloc((size_t)job.world + ncomms, sizeof(*job.list));
	job.members = calloc(ncomms + 1, sizeof(*job.members));
	if (job.by_rank != NULL && job.list != NULL && job.members != NULL) {
		for (size_t i = 0; i < nfiles; i++)
			job.by_rank[files[i].rank] = &files[i];
		print_report(&job);
		status = flight_report_waits(&job);
	}
	if (status != 0)
		snprintf(why, 256, "out of memory");
	free(job.members);
	free(job.list);
	free(job.by_rank);
	return status;
}
