/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/engine/fault_record.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/harness/check.h"

const char *const fault_names[NFAULTS] = {
	[FAULT_NONE] = "none",
	[FAULT_KILL] = "SIGKILL",
	[FAULT_STOP] = "SIGSTOP",
	[FAULT_EXIT] = "exit(0)",
	[FAULT_EXIT_0] = "_exit(0)",
	[FAULT_EXIT_3] = "_exit(3)",
	[FAULT_ABORT] = "abort()",
	[FAULT_COMM_ABORT] = "srt_comm_abort()",
	[FAULT_LEAVE] = "srt_context_destroy()",
	[FAULT_CUT] = "cut",
};

long long fault_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void read_line(const char *line, fault_record_t *r)
{
	long long at;
	long call;
	int n = 0;

	if (sscanf(line, "pid %d", &r->pid) == 1 || sscanf(line, "host %d", &r->host) == 1 ||
	    sscanf(line, "address %127s", r->address) == 1)
		return;
	if (sscanf(line, "point %ld %lld %63s", &call, &at, r->call) == 3) {
		CHECK_OR_DIE(call == r->ncalls + 1 && call <= FAULT_MAX_CALLS);
		r->ncalls = call;
		r->call_at[call] = at;
	} else if (sscanf(line, "saved %d", &n) == 1) {
		r->nsaved = n + 1;
	} else if (sscanf(line, "error %lld %*d %63[^:]: %n", &r->error_at, r->error_call, &n) ==
		   2) {
		snprintf(r->error, sizeof(r->error), "%s", line + n);
	} else if (sscanf(line, "done %lld", &r->done_at) == 1) {
		r->done = true;
	} else {
		CHECK_OR_DIE(sscanf(line, "final %ld", &r->final) == 1 ||
			     sscanf(line, "fault %lld %ld", &r->fault_at, &r->fault_call) == 2);
	}
}

void fault_record_read(const char *folder, int rank, fault_record_t *record)
{
	char path[500], line[1200];
	FILE *f;

	memset(record, 0, sizeof(*record));
	snprintf(path, sizeof(path), "%s/rank-%d", folder, rank);
	f = fopen(path, "r");
	if (f == NULL)
		return;
	while (fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		read_line(line, record);
	}
	fclose(f);
}
