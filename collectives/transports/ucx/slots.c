/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots: see internal.h. */
#include <stdlib.h>
#include <sys/mman.h>

#include "collectives/transports/ucx/internal.h"

/* Slots that a rank needs: for receives, for sends, and on the device for a sum. */
static size_t count_slots(srt_bounce_kind_t kind, bool direct)
{
	if (direct)
		return kind == SRT_BOUNCE_SUM ? SRT_STAGING_NSLOTS : 0;
	return 2 * SRT_STAGING_NSLOTS + (kind == SRT_BOUNCE_SUM);
}

size_t srt_ucx_slots_nbytes(int nranks, srt_bounce_kind_t kind, bool direct)
{
	return count_slots(kind, direct) * srt_staging_slot_nbytes(nranks);
}

static void leave_comm(srt_ucx_slots_t *slots)
{
	if (slots->comm != NULL && slots->comm->slots[slots->kind] == slots)
		slots->comm->slots[slots->kind] = NULL;
	slots->comm = NULL;
}

void srt_ucx_slots_keep(srt_ucx_slots_t *slots)
{
	if (slots == NULL)
		return;
	slots->nusers++;
	leave_comm(slots);
}

void srt_ucx_slots_release(srt_ucx_slots_t *slots)
{
	if (slots == NULL || --slots->nusers > 0)
		return;
	leave_comm(slots);
	srt_buffer_destroy(slots->scratch);
	srt_buffer_destroy(slots->sent);
	srt_buffer_destroy(slots->received);
	if (slots->memory != NULL)
		munmap(slots->memory, slots->memory_nbytes);
	free(slots);
}

/* Host memory that the device copies from and to. */
static srt_status_t create_staging(srt_ucx_slots_t *slots, srt_device_t *device)
{
	const size_t half = SRT_STAGING_NSLOTS * slots->slot_nbytes;
	const size_t page = 65536; /* a multiple of each page size */
	const size_t each = srt_align_up(half, page);
	void *memory = mmap(NULL, 2 * each, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		return srt_fail(SRT_ERR_OUT_OF_MEMORY, "no memory for the slots of collectives");
	slots->memory = memory;
	slots->memory_nbytes = 2 * each;
	slots->received_host = slots->memory;
	slots->sent_host = slots->memory + each;
	SRT_TRY(srt_buffer_wrap_host(device, slots->received_host, half, true,
				     "received parts of collectives", &slots->received));
	SRT_TRY(srt_buffer_wrap_host(device, slots->sent_host, half, true,
				     "sent parts of collectives", &slots->sent));
	if (slots->kind != SRT_BOUNCE_SUM)
		return SRT_OK;
	return srt_buffer_create(device, SRT_MEM_DEVICE, slots->slot_nbytes,
				 "parts of a staged sum", &slots->scratch);
}

static srt_status_t create_memory(srt_ucx_slots_t *slots)
{
	srt_device_t *device = slots->comm->comm->device;

	if (!slots->comm->direct)
		return create_staging(slots, device);
	SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, SRT_STAGING_NSLOTS * slots->slot_nbytes,
				  "received parts of sums", &slots->received));
	slots->received_host = srt_buffer_host(slots->received);
	return SRT_OK;
}

srt_status_t srt_ucx_slots_acquire(srt_ucx_comm_t *comm, srt_bounce_kind_t kind,
				   srt_ucx_slots_t **out)
{
	srt_ucx_slots_t *slots = comm->slots[kind];
	srt_status_t status;

	if (count_slots(kind, comm->direct) == 0)
		return SRT_OK;
	if (slots != NULL) {
		slots->nusers++;
		*out = slots;
		return SRT_OK;
	}
	slots = srt_calloc(1, sizeof(*slots), "slots of collectives");
	if (slots == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	slots->comm = comm;
	slots->kind = kind;
	slots->nusers = 1;
	slots->slot_nbytes = comm->slot_nbytes;
	status = create_memory(slots);
	if (status != SRT_OK) {
		srt_ucx_slots_release(slots);
		return status;
	}
	comm->slots[kind] = slots;
	*out = slots;
	return SRT_OK;
}
