/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory check: do the memory plans of all ranks fit their devices? Before anything is
 * allocated the ranks exchange the bytes that they need and the bytes that their devices have free.
 * The needs of ranks that share a memory are added. All ranks compute the same result from the same
 * table, so a plan that does not fit is an error on all ranks; each rank's message has the rows of
 * that rank's plan. Called by build.c.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "runtime/engine/build/build.h"
#include "base/bytes.h"

#define GIB(nbytes) ((double)(nbytes) / 0x1p30)

/* What one rank needs of a memory, its device's or the host's, and what that has. */
typedef struct rank_need {
	uint64_t needed;
	uint64_t margin;    /* part of the free memory that must stay free: driver overhead */
	uint64_t available; /* 0: not known */
	unsigned char memory_id[16];
	char device[96]; /* backend "name" */
} rank_need_t;

/* The memory of one rank: of its device, then of its host device. Exchanged as plain bytes. */
enum { NPLACES = 2 };

/* The sum over all ranks that share one memory. */
typedef struct shared_need {
	size_t needed, margin, available;
	int nranks;
	char ranks[64]; /* "0, 1, 3" */
} shared_need_t;

srt_status_t srt_memory_check_fail(const srt_plan_t *plan, const char *why)
{
	return srt_fail(
		SRT_ERR_OUT_OF_MEMORY,
		"%s; the plan of this rank is %s of device memory: parameters %s, gradients %s, "
		"optimizer state %s, buffers %s, unsharded parameters %s, unsharded gradients %s, "
		"staging %s, activations %s, scratch of matrix products and attention %s; on the "
		"host %s",
		why, srt_bytes(plan->rank_total).text, srt_bytes(plan->param_shards).text,
		srt_bytes(plan->grad_shards).text, srt_bytes(plan->optimizer_state).text,
		srt_bytes(plan->buffers).text, srt_bytes(plan->unsharded).text,
		srt_bytes(plan->unsharded_grads).text, srt_bytes(plan->staging).text,
		srt_bytes(plan->activations).text, srt_bytes(plan->scratch).text,
		srt_bytes(plan->host_total).text);
}

static void measure_need(srt_device_t *device, size_t needed, size_t overhead, rank_need_t *need)
{
	need->needed = needed;
	need->margin = overhead / 100 * (size_t)srt_config_int("SHARDRT_MEMORY_MARGIN");
	need->available = srt_device_available(device);
	memcpy(need->memory_id, device->caps.memory_id, sizeof(need->memory_id));
	snprintf(need->device, sizeof(need->device), "%s \"%.70s\"", device->backend->name,
		 device->caps.name);
}

static bool is_same_memory(const rank_need_t *a, const rank_need_t *b)
{
	static const unsigned char unknown[sizeof(a->memory_id)];

	return a == b || (memcmp(a->memory_id, b->memory_id, sizeof(unknown)) == 0 &&
			  memcmp(a->memory_id, unknown, sizeof(unknown)) != 0);
}

static size_t add_saturated(size_t a, uint64_t b)
{
	return b > SIZE_MAX - a ? SIZE_MAX : a + (size_t)b;
}

/*
 * Adds the needs of all ranks that share the memory of rank `rank`. Each rank asked its device at
 * another time, so the smallest answer counts as available.
 */
static void add_needs(const srt_engine_t *engine, const rank_need_t *needs, int place,
		      shared_need_t *sum)
{
	size_t used = 0;
	int last = -1;

	*sum = (shared_need_t){ .available = SIZE_MAX };
	for (int i = 0; i < NPLACES * engine->world; i++) {
		const int r = i / NPLACES;

		if (!is_same_memory(&needs[i], &needs[place]) || needs[i].device[0] == '\0')
			continue;
		sum->needed = add_saturated(sum->needed, needs[i].needed);
		sum->margin = add_saturated(sum->margin, needs[i].margin);
		if (needs[i].available < sum->available)
			sum->available = (size_t)needs[i].available;
		if (r == last)
			continue;
		last = r;
		if (used < sizeof(sum->ranks))
			used += (size_t)snprintf(sum->ranks + used, sizeof(sum->ranks) - used,
						 "%s%d", sum->nranks > 0 ? ", " : "",
						 srt_comm_world_rank(engine->comm, r));
		sum->nranks++;
	}
	if (used >= sizeof(sum->ranks))
		memcpy(sum->ranks + sizeof(sum->ranks) - sizeof(" ..."), " ...", sizeof(" ..."));
}

static void describe_need(const shared_need_t *need, const char *device, char *text, size_t nbytes)
{
	const size_t free_nbytes =
		need->available > need->margin ? need->available - need->margin : 0;
	char margin[128] = "";

	if (need->margin > 0)
		snprintf(margin, sizeof(margin),
			 " besides %.2f GiB reserved for its driver and libraries "
			 "(SHARDRT_MEMORY_MARGIN)",
			 GIB(need->margin));
	if (need->nranks == 1)
		snprintf(text, nbytes,
			 "rank %s needs %.2f GiB of device memory but only %.2f GiB is free on "
			 "%s%s: use smaller micro-batches, a smaller model or more ranks",
			 need->ranks, GIB(need->needed), GIB(free_nbytes), device, margin);
	else
		snprintf(text, nbytes,
			 "ranks %s share %s and together need %.2f GiB of its memory but only "
			 "%.2f GiB is free%s: use smaller micro-batches, a smaller model, or fewer "
			 "ranks on one device",
			 need->ranks, device, GIB(need->needed), GIB(free_nbytes), margin);
}

srt_status_t srt_memory_check(srt_engine_t *engine, const srt_plan_t *plan)
{
	const size_t nplaces = NPLACES * (size_t)engine->world;
	rank_need_t *needs = srt_comm_calloc(engine->comm, nplaces + NPLACES, sizeof(*needs),
					     "comparing the memory plans");
	rank_need_t *mine = needs + nplaces;
	srt_status_t status;
	char why[512];
	shared_need_t sum;

	if (needs == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	measure_need(engine->device, plan->rank_total,
		     engine->device->caps.driver_overhead + engine->comm->driver_overhead,
		     &mine[0]);
	if (plan->host_total > 0)
		measure_need(engine->home.device, plan->host_total, 0, &mine[1]);
	status = srt_comm_oob_allgather_for(engine->comm, "comparing the memory plans", mine,
					    NPLACES * sizeof(*mine), needs);
	for (size_t i = 0; i < nplaces && status == SRT_OK; i++) {
		needs[i].device[sizeof(needs[i].device) - 1] = '\0';
		if (needs[i].device[0] == '\0') /* nothing is offloaded */
			continue;
		add_needs(engine, needs, (int)i, &sum);
		if (sum.available == 0 || add_saturated(sum.needed, sum.margin) <= sum.available)
			continue;
		describe_need(&sum, needs[i].device, why, sizeof(why));
		status = srt_memory_check_fail(plan, why);
	}
	free(needs);
	return status;
}
