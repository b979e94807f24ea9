/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/harness/job.h"
#include "tests/harness/options.h"

void job_pretend_nodes(srt_bootstrap_t *b)
{
	const char *counts = getenv("SRT_TEST_NODES");
	int node = 0, count = 0, n = 0; /* n: ranks on the node so far */

	if (counts == NULL)
		return;
	b->node_of = calloc((size_t)b->world_size, sizeof(*b->node_of));
	CHECK_OR_DIE(b->node_of != NULL);
	for (int r = 0; r < b->world_size; r++) {
		if (n == count) {
			char *rest;
			const int next = (int)strtol(counts, &rest, 10);

			count = rest > counts ? next : count;
			counts = rest;
			node += r > 0;
			n = 0;
		}
		CHECK_OR_DIE(count > 0);
		b->node_of[r] = (uint16_t)node;
		n++;
	}
}

void job_open(job_t *job)
{
	srt_device_request_t request = { .selector = srt_config_string("SHARDRT_DEVICE"),
					 .threads = 1,
					 .exact = 1 };

	CHECK_OK_OR_DIE(srt_config_check_all());
	CHECK_OK_OR_DIE(
		srt_bootstrap_join(CONTEXT(.bootstrap = NULL, .timeout_s = 0), &job->bootstrap));
	job->rank = srt_bootstrap_rank(job->bootstrap);
	job->size = srt_bootstrap_world_size(job->bootstrap);
	job_pretend_nodes(job->bootstrap);
	request.local_rank = srt_bootstrap_local_rank(job->bootstrap);
	request.local_size = srt_bootstrap_local_size(job->bootstrap);
	CHECK_OK_OR_DIE(
		srt_device_open(test_backend(), &request, SRT_NUMERICS_EXACT, &job->device));
	CHECK_OK_OR_DIE(srt_comm_create_world(job->bootstrap, job->device, &job->world));
	CHECK((job->world->hierarchy != NULL) == (getenv("SRT_TEST_NODES") != NULL));
	CHECK_OK_OR_DIE(srt_stream_create(job->device, 0, "test", &job->stream));
}

void job_go_last(job_t *job, int rank)
{
	bool to[64] = { false }, from[64] = { false };

	to[rank] = job->rank != rank;
	for (int r = 0; r < job->size; r++)
		from[r] = job->rank == rank && r != rank;
	CHECK_OK_OR_DIE(srt_comm_exchange_fds(job->world, "waiting for the others", to, NULL, 0, -1,
					      from, NULL, NULL));
}

void job_set_timeout(job_t *job, double timeout_s)
{
	job_go_last(job, 0);
	if (job->rank == 0)
		job->bootstrap->timeout_s = timeout_s;
}

void job_close(job_t *job)
{
	srt_stream_destroy(job->stream);
	srt_comm_destroy(job->world);
	srt_device_close(job->device);
	srt_bootstrap_leave(job->bootstrap);
}

srt_buffer_t *job_buffer(job_t *job, size_t nelem, const char *name, float **host)
{
	srt_buffer_t *b;

	CHECK_OK_OR_DIE(srt_buffer_create(job->device, srt_comm_mem_kind(job->world),
					  nelem * sizeof(float), name, &b));
	*host = calloc(nelem + 1, sizeof(float));
	CHECK_OR_DIE(*host != NULL);
	return b;
}

void job_put(job_t *job, srt_buffer_t *buffer, const float *host)
{
	test_put(job->stream, buffer, 0, host, srt_buffer_nbytes(buffer));
}

void job_get(job_t *job, float *host, srt_buffer_t *buffer)
{
	test_get(job->stream, host, buffer, 0, srt_buffer_nbytes(buffer));
}

void job_drop(srt_buffer_t *buffer, float *host)
{
	srt_buffer_destroy(buffer);
	free(host);
}

srt_comm_t *job_group_of_all(job_t *job, const char *name)
{
	int ranks[64];
	srt_comm_t *comm = NULL;

	for (int r = 0; r < job->size; r++)
		ranks[r] = r;
	CHECK_OK_OR_DIE(srt_comm_create_group(job->world, ranks, job->size, name, &comm));
	/* Nobody poisons it while others still make it. */
	CHECK_OK_OR_DIE(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
	return comm;
}

srt_status_t job_start_and_wait(srt_coll_t *coll, srt_stream_t *stream)
{
	SRT_TRY(srt_coll_start(coll, NULL, stream));
	return srt_stream_sync(stream);
}

uint64_t job_noise(uint64_t seed, uint64_t i)
{
	uint64_t z = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xd1342543de82ef95);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}
