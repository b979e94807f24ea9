/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses the transport of a communicator. All its ranks make the same choice, from the
 * capabilities of all their devices. Ranks may run on devices of different kinds.
 *
 * The capabilities are gathered once, when the world is created. So the choice for a group of its
 * ranks is a function of these ranks, which is known before the group exists (plan.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collective.h"
#include "collectives/transports/hierarchy/hierarchy.h"
#include "collectives/transports/staged/bounce.h"
#include "collectives/transports/ucx/ucx.h"

/* A rank's device and configuration, as all ranks see it. */
typedef struct srt_capabilities {
	int32_t peer_memory;
	int32_t wraps_host;
	int32_t host_memory;
	int32_t fast;        /* numerics */
	int32_t preference;  /* SHARDRT_COLLECTIVES, a preference_t */
	int32_t has_table;   /* the backend has a table of collectives */
	int32_t has_library; /* its library is usable: the fields below are set */
	int32_t has_ucx;
	uint32_t library_version;
	unsigned char device_id[16];
	uint64_t driver_overhead;
	uint64_t slot_nbytes;
	char device[64];
	char peer_kind[16];
	char library_name[16];
	char reason[192]; /* why it is not usable */
	char ucx_reason[192];
} capabilities_t;

typedef enum preference {
	PREFER_AUTO,
	PREFER_SHM,
	PREFER_STAGED,
	PREFER_NCCL,
	PREFER_UCX,
	NPREFERENCES,
} preference_t;

static const char *const preference_names[] = { "auto", "shm", "staged", "nccl", "ucx" };

static const capabilities_t *of_rank(const srt_comm_t *comm, int rank)
{
	return &comm->bootstrap->capabilities[comm->world_rank[rank]];
}

/* The lowest rank whose preference is in the set of bits, or -1. */
static int find_preference(const srt_comm_t *comm, unsigned set)
{
	for (int r = 0; r < comm->size; r++) {
		if ((set >> of_rank(comm, r)->preference & 1) != 0)
			return r;
	}
	return -1;
}

/* Fails if a rank prefers `preference` and another one something in the set of bits. */
static srt_status_t check_preferences(const srt_comm_t *comm, preference_t preference, unsigned set)
{
	const int requested_by = find_preference(comm, 1u << preference);
	const int refused_by = find_preference(comm, set);

	if (requested_by < 0 || refused_by < 0)
		return SRT_OK;
	return srt_fail(SRT_ERR_MISMATCH,
			"communicator \"%s\": SHARDRT_COLLECTIVES is %s on rank %d and %s on rank "
			"%d; set the same everywhere",
			comm->name, preference_names[preference], comm->world_rank[requested_by],
			preference_names[of_rank(comm, refused_by)->preference],
			comm->world_rank[refused_by]);
}

/* ---- nccl ---------------------------------------------------------------------------------- */

/* Why the ranks cannot use NCCL together; "": they can. */
static void explain_not_nccl(const srt_comm_t *comm, char *why, size_t n)
{
	why[0] = '\0';
	for (int r = 0; r < comm->size; r++) {
		const capabilities_t *a = of_rank(comm, 0), *b = of_rank(comm, r);
		int rank = comm->world_rank[r];

		if (!b->has_library)
			snprintf(why, n, "device %s of rank %d: %s", b->device, rank, b->reason);
		else if (strcmp(a->library_name, b->library_name) != 0 ||
			 a->library_version != b->library_version)
			snprintf(why, n, "rank %d has %s %u, rank %d has %s %u",
				 comm->world_rank[0], a->library_name, (unsigned)a->library_version,
				 rank, b->library_name, (unsigned)b->library_version);
		for (int q = 0; q < r && why[0] == '\0'; q++) {
			/* With SHARDRT_COLLECTIVES=nccl, NCCL decides whether this works. */
			if (b->preference != PREFER_NCCL &&
			    memcmp(of_rank(comm, q)->device_id, b->device_id,
				   sizeof(b->device_id)) == 0)
				snprintf(why, n, "ranks %d and %d share device %s",
					 comm->world_rank[q], rank, b->device);
		}
		if (why[0] != '\0')
			return;
	}
}

static srt_status_t choose_nccl(srt_comm_t *comm)
{
	char why[320];
	const unsigned others = 1u << PREFER_SHM | 1u << PREFER_STAGED;
	const int requested_by = find_preference(comm, 1u << PREFER_NCCL);
	const int refused_by = find_preference(comm, others);

	SRT_TRY(check_preferences(comm, PREFER_NCCL, others));
	if (refused_by >= 0 || !comm->is_world)
		return SRT_OK;
	explain_not_nccl(comm, why, sizeof(why));
	if (why[0] != '\0' && requested_by >= 0)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"communicator \"%s\": SHARDRT_COLLECTIVES=nccl cannot be used: %s",
				comm->name, why);
	if (why[0] != '\0') {
		srt_log(SRT_LOG_DEBUG, "communicator \"%s\": NCCL is not used: %s", comm->name,
			why);
		return SRT_OK;
	}
	comm->transport = &srt_transport_nccl;
	comm->fast = true;
	comm->may_stage = requested_by < 0;
	comm->driver_overhead = (size_t)of_rank(comm, comm->rank)->driver_overhead;
	for (int r = 0; r < comm->size; r++) {
		comm->fast = comm->fast && of_rank(comm, r)->fast;
		comm->may_stage = comm->may_stage && of_rank(comm, r)->wraps_host;
	}
	return SRT_OK;
}

/* ---- staged, zero copy ----------------------------------------------------------------------- */

/* Why collectives must be staged; "": they need not be. */
static void explain_staged(const srt_comm_t *comm, char *why, size_t n)
{
	why[0] = '\0';
	for (int r = 0; r < comm->size && why[0] == '\0'; r++) {
		const capabilities_t *a = of_rank(comm, 0), *b = of_rank(comm, r);
		const int rank = comm->world_rank[r];

		if (!comm->is_world && b->has_table && b->preference != PREFER_SHM)
			snprintf(why, n,
				 "device %s of rank %d uses NCCL, which serves only the world",
				 b->device, rank);
		else if (b->preference == PREFER_STAGED)
			snprintf(why, n, "SHARDRT_COLLECTIVES is staged on rank %d", rank);
		else if (!b->peer_memory)
			snprintf(why, n, "device %s of rank %d has no memory that peers can map",
				 b->device, rank);
		else if (strcmp(b->peer_kind, a->peer_kind) != 0)
			snprintf(why, n,
				 "device %s of rank %d and device %s of rank %d cannot map each "
				 "other's memory",
				 a->device, comm->world_rank[0], b->device, rank);
	}
}

/* Checks that all ranks can stage. */
static srt_status_t check_staging(const srt_comm_t *comm, const char *why)
{
	for (int r = 0; r < comm->size; r++) {
		if (!of_rank(comm, r)->wraps_host)
			return srt_fail(
				SRT_ERR_UNSUPPORTED,
				"communicator \"%s\": the collectives must be staged (%s), but "
				"device %s of rank %d cannot copy to and from shared host memory",
				comm->name, why, of_rank(comm, r)->device, comm->world_rank[r]);
	}
	return SRT_OK;
}

static srt_status_t check_slots(const srt_comm_t *comm)
{
	for (int r = 1; r < comm->size; r++) {
		const capabilities_t *a = of_rank(comm, 0), *b = of_rank(comm, r);

		if (a->slot_nbytes != b->slot_nbytes)
			return srt_fail(
				SRT_ERR_MISMATCH,
				"communicator \"%s\": SHARDRT_STAGING_BYTES makes slots of %llu "
				"bytes on rank %d and of %llu on rank %d; set the same everywhere",
				comm->name, (unsigned long long)a->slot_nbytes, comm->world_rank[0],
				(unsigned long long)b->slot_nbytes, comm->world_rank[r]);
	}
	return SRT_OK;
}

/* ---- ucx ------------------------------------------------------------------------------------- */

/* The ranks are on several nodes, and something else than UCX was asked for. */
static srt_status_t fail_nodes(const srt_comm_t *comm, int refused_by)
{
	int other = 1;

	while (srt_comm_same_node(comm, 0, other))
		other++;
	return srt_fail(
		SRT_ERR_UNSUPPORTED,
		"communicator \"%s\": SHARDRT_COLLECTIVES=%s (rank %d) cannot be used: ranks "
		"%d and %d are on different nodes, or threads of one process, and only ucx "
		"connects those; set it to auto or ucx",
		comm->name, preference_names[of_rank(comm, refused_by)->preference],
		comm->world_rank[refused_by], comm->world_rank[0], comm->world_rank[other]);
}

/* Fails if a rank cannot use UCX. */
static srt_status_t check_ucx(const srt_comm_t *comm)
{
	for (int r = 0; r < comm->size; r++) {
		const capabilities_t *a = of_rank(comm, r);
		const int rank = comm->world_rank[r];

		if (!a->has_ucx)
			return srt_fail(
				SRT_ERR_UNSUPPORTED,
				"communicator \"%s\": its collectives need UCX (%s), which rank "
				"%d cannot use: %s",
				comm->name,
				srt_comm_spans_nodes(comm) ? "its ranks are on several nodes" :
							     "SHARDRT_COLLECTIVES=ucx",
				rank, a->ucx_reason);
		if (!a->host_memory && !a->wraps_host)
			return srt_fail(
				SRT_ERR_UNSUPPORTED,
				"communicator \"%s\": device %s of rank %d cannot copy to and "
				"from host memory, from which UCX sends",
				comm->name, a->device, rank);
	}
	return SRT_OK;
}

static srt_status_t choose_ucx(srt_comm_t *comm)
{
	const unsigned others = 1u << PREFER_SHM | 1u << PREFER_STAGED | 1u << PREFER_NCCL;
	const int refused_by = find_preference(comm, others);
	const bool spans_nodes = srt_comm_spans_nodes(comm);

	SRT_TRY(check_preferences(comm, PREFER_UCX, others));
	if (!spans_nodes && find_preference(comm, 1u << PREFER_UCX) < 0)
		return SRT_OK;
	if (refused_by >= 0)
		return fail_nodes(comm, refused_by);
	SRT_TRY(check_ucx(comm));
	comm->transport = &srt_transport_ucx;
	/* SHARDRT_COLLECTIVES=ucx: all messages by UCX. */
	comm->may_stage_nodes = find_preference(comm, 1u << PREFER_UCX) < 0;
	return check_slots(comm);
}

srt_status_t srt_comm_choose_transport(srt_comm_t *comm)
{
	char why[512];

	if (comm->size == 1)
		return SRT_OK;
	SRT_TRY(choose_ucx(comm));
	if (comm->transport == &srt_transport_ucx)
		return SRT_OK;
	SRT_TRY(choose_nccl(comm));
	if (comm->transport == &srt_transport_nccl)
		return check_slots(comm);
	explain_staged(comm, why, sizeof(why));
	comm->transport = why[0] != '\0' ? &srt_transport_staged : &srt_transport_zero_copy;
	if (why[0] == '\0')
		return SRT_OK;
	SRT_TRY(check_slots(comm));
	return check_staging(comm, why);
}

void srt_comm_log_transport(const srt_comm_t *comm)
{
	char why[512];

	if (comm->size == 1 || comm->transport != &srt_transport_staged)
		return;
	explain_staged(comm, why, sizeof(why));
	srt_log(SRT_LOG_INFO, "communicator \"%s\": collectives are staged: %s", comm->name, why);
}

/* ---- capabilities ---------------------------------------------------------------------------- */

static preference_t get_preference(void)
{
	const char *text = srt_config_string("SHARDRT_COLLECTIVES");

	for (int w = 0; w < NPREFERENCES; w++) {
		if (strcmp(text, preference_names[w]) == 0)
			return (preference_t)w;
	}
	return PREFER_AUTO;
}

/* Loads UCX if it may be needed. */
static void probe_ucx(const srt_comm_t *comm, capabilities_t *mine)
{
	if (mine->preference != PREFER_UCX && !srt_comm_spans_nodes(comm))
		snprintf(mine->ucx_reason, sizeof(mine->ucx_reason),
			 "SHARDRT_COLLECTIVES is not ucx on this rank; set the same everywhere");
	else if (srt_ucx_probe() != SRT_OK)
		snprintf(mine->ucx_reason, sizeof(mine->ucx_reason), "%.191s", srt_error_last());
	else
		mine->has_ucx = 1;
}

/* Probes this rank's library for collectives. */
static void probe_nccl(const srt_device_t *device, capabilities_t *mine)
{
	const srt_backend_comm_ops_t *ops = device->backend->comm;
	srt_comm_description_t description = { 0 };

	if (ops == NULL) {
		snprintf(mine->reason, sizeof(mine->reason),
			 "backend %s has no library for collectives", device->backend->name);
		return;
	}
	snprintf(mine->library_name, sizeof(mine->library_name), "%s", ops->name);
	mine->has_table = 1;
	if (mine->preference != PREFER_AUTO && mine->preference != PREFER_NCCL)
		return;
	mine->has_library = ops->probe(device->impl, &description) == SRT_OK;
	if (!mine->has_library)
		snprintf(mine->reason, sizeof(mine->reason), "%.191s", srt_error_last());
	mine->library_version = description.version;
	memcpy(mine->device_id, description.device_id, sizeof(mine->device_id));
	mine->driver_overhead = description.driver_overhead;
}

srt_status_t srt_comm_gather_capabilities(srt_comm_t *world)
{
	static const char what[] = "comparing devices";
	const srt_device_t *device = world->device;
	capabilities_t mine = {
		.peer_memory = device->caps.peer_memory,
		.host_memory = device->caps.host_memory,
		.preference = get_preference(),
		.wraps_host = device->backend->mem->wrap_host != NULL,
		.fast = device->numerics == SRT_NUMERICS_FAST,
		.slot_nbytes = srt_staging_slot_nbytes(2),
	};
	capabilities_t *all;
	srt_status_t status;

	if (world->size == 1)
		return SRT_OK;
	snprintf(mine.device, sizeof(mine.device), "%.63s", device->caps.name);
	snprintf(mine.peer_kind, sizeof(mine.peer_kind), "%.15s", device->caps.peer_kind);
	probe_nccl(device, &mine);
	probe_ucx(world, &mine);
	all = srt_comm_calloc(world, (size_t)world->size, sizeof(*all), what);
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(world, what, &mine, sizeof(mine), all);
	for (int r = 0; r < world->size; r++) {
		all[r].device[sizeof(all[r].device) - 1] = '\0';
		all[r].peer_kind[sizeof(all[r].peer_kind) - 1] = '\0';
		all[r].library_name[sizeof(all[r].library_name) - 1] = '\0';
		all[r].reason[sizeof(all[r].reason) - 1] = '\0';
		all[r].ucx_reason[sizeof(all[r].ucx_reason) - 1] = '\0';
		if (all[r].preference < 0 || all[r].preference >= NPREFERENCES)
			all[r].preference = PREFER_AUTO;
	}
	free(world->bootstrap->capabilities);
	world->bootstrap->capabilities = all;
	return status;
}

const srt_transport_t *srt_coll_transport(const srt_comm_t *comm,
					  const srt_coll_algorithm_t *algorithm)
{
	/* A collective that moves no bytes between ranks needs only flags, if there are any. */
	if (comm->size == 1 || (!algorithm->has_buffers && !comm->transport->spans_nodes))
		return &srt_transport_zero_copy;
	if (comm->hierarchy != NULL && algorithm->has_buffers && !algorithm->has_pairs &&
	    (!algorithm->reduces || comm->hierarchy->sums))
		return comm->hierarchy->transport;
	return comm->transport;
}

bool srt_comm_zero_copy(const srt_comm_t *comm)
{
	return comm->size > 1 && comm->transport->maps_sources;
}

srt_mem_kind_t srt_comm_mem_kind(const srt_comm_t *comm)
{
	if (comm != NULL && comm->hierarchy != NULL)
		comm = comm->hierarchy->local;
	return comm != NULL && srt_comm_zero_copy(comm) ? SRT_MEM_PEER : SRT_MEM_DEVICE;
}

const char *srt_comm_transport(const srt_comm_t *comm)
{
	if (comm == NULL)
		return "";
	if (comm->size == 1)
		return "none";
	return comm->hierarchy != NULL ? comm->hierarchy->transport->name : comm->transport->name;
}

srt_mem_kind_t srt_comm_gathered_kind(const srt_comm_t *comm)
{
	return comm != NULL && comm->hierarchy != NULL ? srt_comm_mem_kind(comm) : SRT_MEM_DEVICE;
}
