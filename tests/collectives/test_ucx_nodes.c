/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which transport the ranks choose if they are on several nodes: ranks of even and of odd number
 * are told that they are, and which placements make a hierarchy. Run by test_ucx.sh on three ranks
 * and more.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/collective.h"
#include "collectives/transports/hierarchy/hierarchy.h"
#include "tests/harness/job.h"

#define MAX_WORLD 64

/* Creates a group of the ranks 0, step, 2 step ... */
static srt_status_t create(job_t *job, int step, srt_comm_t **out)
{
	int ranks[MAX_WORLD], n = 0;

	for (int r = 0; r < job->size; r += step)
		ranks[n++] = r;
	return srt_comm_create_group(job->world, ranks, n, "group", out);
}

static void set_collectives(const char *text)
{
	setenv("SHARDRT_COLLECTIVES", text, 1);
}

static void create_world(job_t *job)
{
	CHECK_OK_OR_DIE(srt_comm_create_world(job->bootstrap, job->device, &job->world));
}

/* A world for which all ranks get the same error. Leaves one that UCX connects. */
static void check_refused(job_t *job, const char *collectives, srt_status_t status,
			  const char *words)
{
	char mine[512] = "", all[MAX_WORLD][512];

	srt_comm_destroy(job->world);
	set_collectives(collectives);
	CHECK_STATUS(srt_comm_create_world(job->bootstrap, job->device, &job->world), status);
	CHECK_ERROR_HAS(words);
	snprintf(mine, sizeof(mine), "%s", srt_error_last());
	set_collectives("ucx");
	create_world(job);
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, mine, sizeof(mine), all));
	for (int r = 0; r < job->size; r++)
		CHECK_STR(all[r], all[0]);
}

static void check_transport(job_t *job, int step, const srt_transport_t *transport)
{
	srt_comm_t *comm = NULL;
	srt_buffer_t *buffer;
	srt_coll_t *coll = NULL;
	job_t of_group = *job;
	float *host;

	CHECK_OK_OR_DIE(create(job, step, &comm));
	if (comm == NULL)
		return;
	CHECK_STR(comm->transport->name, transport->name);
	CHECK(srt_comm_spans_nodes(comm) == (transport == &srt_transport_ucx));
	CHECK((comm->shm == NULL) == (transport == &srt_transport_ucx));
	of_group.world = comm;
	buffer = job_buffer(&of_group, (size_t)comm->size + 1, "all", &host);
	CHECK_OK_OR_DIE(srt_op_fill(srt_view(buffer, 0, SRT_F32), (float)(100 + comm->rank), 1,
				    job->stream));
	CHECK_OK_OR_DIE(srt_coll_create_gather(comm, srt_view(buffer, 0, SRT_F32),
					       srt_view(buffer, sizeof(float), SRT_F32), 1,
					       "gather", &coll));
	CHECK_OK_OR_DIE(srt_coll_start(coll, NULL, job->stream));
	CHECK_OK_OR_DIE(srt_coll_wait_readers(coll, job->stream));
	job_get(job, host, buffer);
	for (int r = 0; r < comm->size; r++)
		CHECK(host[1 + r] == (float)(100 + r));
	srt_coll_destroy(coll);
	job_drop(buffer, host);
	srt_comm_destroy(comm);
}

/* How ranks may be placed on nodes, and whether this makes a hierarchy. Four ranks. */
static void check_hierarchy(job_t *job)
{
	static const struct {
		uint16_t node_of[4];
		bool fits, sums;
		int member[4];
	} cases[] = {
		{ { 0, 0, 1, 1 }, true, true, { 0, 1, 2, 3 } },
		{ { 1, 1, 0, 0 }, true, true, { 0, 1, 2, 3 } },
		{ { 0, 1, 0, 1 }, true, false, { 0, 2, 1, 3 } },
		{ { 0, 1, 1, 0 }, true, false, { 0, 3, 1, 2 } },
		{ { 0, 0, 0, 1 }, .fits = false },
		{ { 0, 0, 1, 2 }, .fits = false },
		{ { 0, 1, 1, 1 }, .fits = false },
		{ { 0, 1, 2, 2 }, .fits = false },
		{ { 0, 1, 2, 3 }, .fits = false },
	};
	uint16_t *node_of = job->bootstrap->node_of, before[4];
	srt_comm_t *comm;

	if (job->size != 4)
		return;
	memcpy(before, node_of, sizeof(before));
	for (size_t c = 0; c < SRT_ARRAY_LEN(cases); c++) {
		memcpy(node_of, cases[c].node_of, sizeof(cases[c].node_of));
		CHECK_OK_OR_DIE(create(job, 1, &comm));
		CHECK((comm->hierarchy != NULL) == cases[c].fits);
		if (cases[c].fits && comm->hierarchy != NULL) {
			CHECK(comm->hierarchy->sums == cases[c].sums);
			CHECK(memcmp(comm->hierarchy->member, cases[c].member,
				     sizeof(cases[c].member)) == 0);
		}
		srt_comm_destroy(comm);
	}
	memcpy(node_of, before, sizeof(before));
}

int main(void)
{
	const srt_transport_t *on_node;
	srt_bootstrap_t *b;
	job_t job;

	job_open(&job);
	CHECK_OR_DIE(job.size > 2 && job.size <= MAX_WORLD);
	on_node = job.world->transport;
	srt_comm_destroy(job.world);
	b = job.bootstrap;
	b->node_of = calloc((size_t)job.size, sizeof(*b->node_of));
	CHECK_OR_DIE(b->node_of != NULL);
	for (int r = 0; r < job.size; r++)
		b->node_of[r] = r % 2;
	create_world(&job);
	check_transport(&job, 1, &srt_transport_ucx);
	check_transport(&job, 2, on_node);
	check_hierarchy(&job);
	check_refused(&job, "shm", SRT_ERR_UNSUPPORTED, "ranks 0 and 1 are on different nodes");
	check_refused(&job, "staged", SRT_ERR_UNSUPPORTED, "SHARDRT_COLLECTIVES=staged (rank 0)");
	check_refused(&job, "nccl", SRT_ERR_UNSUPPORTED, "only ucx connects those");
	check_refused(&job, job.rank == 1 ? "ucx" : "shm", SRT_ERR_MISMATCH,
		      "is ucx on rank 1 and shm on rank 0");
	check_transport(&job, 1, &srt_transport_ucx);
	job_close(&job);
	return check_done();
}
