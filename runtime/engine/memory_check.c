/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether the memory plans of all ranks fit the devices: before anything is allocated, the ranks
 * tell each other what they want and what their devices have left. Ranks of one memory want it
 * together. All come to the same verdict, so what does not fit is one error on all ranks; each
 * adds the rows of its own plan. Called by build.c.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "runtime/engine/engine.h"

#define GIB(nbytes) ((double)(nbytes) / 0x1p30)

/* What a rank wants and what its device says. Plain bytes, exchanged as they are. */
typedef struct room {
	uint64_t wanted;
	uint64_t later; /* kept free beside it */
	uint64_t left;  /* 0: not known */
	unsigned char memory_id[16];
	char device[96]; /* backend "name" */
} room_t;

/* Of all ranks of one memory. */
typedef struct need {
	size_t wanted, later, left;
	int nranks;
	char ranks[64]; /* "0, 1, 3" */
} need_t;

srt_status_t srt_room_fail(const srt_plan_t *plan, const char *why)
{
	return srt_fail(SRT_ERR_OUT_OF_MEMORY,
			"%s; the plan of this rank is %zu bytes of device memory: parameters %zu, "
			"gradients %zu, optimizer state %zu, whole parameters %zu, whole gradients "
			"%zu, staging %zu, activations %zu, scratch of matrix products and "
			"attention %zu",
			why, plan->rank_total, plan->param_shards, plan->grad_shards,
			plan->optimizer_state, plan->unsharded, plan->unsharded_grads,
			plan->staging, plan->activations, plan->scratch);
}

static void look(const srt_engine_t *engine, const srt_plan_t *plan, room_t *room)
{
	const srt_device_t *device = engine->device;
	size_t later = device->caps.later_nbytes + engine->comm->driver_overhead;

	room->wanted = plan->rank_total;
	room->later = later / 100 * (size_t)srt_config_int("SHARDRT_MEMORY_MARGIN");
	room->left = srt_device_available(engine->device);
	memcpy(room->memory_id, device->caps.memory_id, sizeof(room->memory_id));
	snprintf(room->device, sizeof(room->device), "%s \"%.70s\"", device->backend->name,
		 device->caps.name);
}

static bool is_same_memory(const room_t *a, const room_t *b)
{
	static const unsigned char unknown[sizeof(a->memory_id)];

	return a == b || (memcmp(a->memory_id, b->memory_id, sizeof(unknown)) == 0 &&
			  memcmp(a->memory_id, unknown, sizeof(unknown)) != 0);
}

static size_t sum(size_t a, uint64_t b)
{
	return b > SIZE_MAX - a ? SIZE_MAX : a + (size_t)b;
}

/* Of the memory of rank `rank`. What is left of it each has asked at another time: the least. */
static void add_up(const srt_engine_t *engine, const room_t *rooms, int rank, need_t *need)
{
	size_t used = 0;

	*need = (need_t){ .left = SIZE_MAX };
	for (int r = 0; r < engine->world; r++) {
		if (!is_same_memory(&rooms[r], &rooms[rank]))
			continue;
		need->wanted = sum(need->wanted, rooms[r].wanted);
		need->later = sum(need->later, rooms[r].later);
		if (rooms[r].left < need->left)
			need->left = (size_t)rooms[r].left;
		if (used < sizeof(need->ranks))
			used += (size_t)snprintf(need->ranks + used, sizeof(need->ranks) - used,
						 "%s%d", need->nranks > 0 ? ", " : "",
						 srt_comm_world_rank(engine->comm, r));
		need->nranks++;
	}
	if (used >= sizeof(need->ranks))
		memcpy(need->ranks + sizeof(need->ranks) - sizeof(" ..."), " ...", sizeof(" ..."));
}

static void describe(const need_t *need, const char *device, char *text, size_t nbytes)
{
	const size_t left = need->left > need->later ? need->left - need->later : 0;
	char later[128] = "";

	if (need->later > 0)
		snprintf(later, sizeof(later),
			 " beside %.2f GiB for what its driver and libraries may take later "
			 "(SHARDRT_MEMORY_MARGIN)",
			 GIB(need->later));
	if (need->nranks == 1)
		snprintf(text, nbytes,
			 "rank %s wants %.2f GiB of device memory, and %.2f GiB are left on %s%s: "
			 "use smaller micro-batches, a smaller model or more ranks",
			 need->ranks, GIB(need->wanted), GIB(left), device, later);
	else
		snprintf(text, nbytes,
			 "ranks %s share %s and want %.2f GiB of its memory together, and %.2f GiB "
			 "are left on it%s: use smaller micro-batches, a smaller model, or fewer "
			 "ranks on one device",
			 need->ranks, device, GIB(need->wanted), GIB(left), later);
}

srt_status_t srt_room_compare(srt_engine_t *engine, const srt_plan_t *plan)
{
	room_t *rooms = srt_calloc((size_t)engine->world + 1, sizeof(*rooms), "room of the ranks");
	room_t *mine = rooms + engine->world;
	srt_status_t status;
	char why[512];
	need_t need;

	if (rooms == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	look(engine, plan, mine);
	status = srt_comm_oob_allgather_for(engine->comm, "comparing the memory plans", mine,
					    sizeof(*mine), rooms);
	for (int r = 0; r < engine->world && status == SRT_OK; r++) {
		rooms[r].device[sizeof(rooms[r].device) - 1] = '\0';
		add_up(engine, rooms, r, &need);
		if (need.left == 0 || sum(need.wanted, need.later) <= need.left)
			continue;
		describe(&need, rooms[r].device, why, sizeof(why));
		status = srt_room_fail(plan, why);
	}
	free(rooms);
	return status;
}
