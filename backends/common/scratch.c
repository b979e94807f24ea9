/* SPDX-License-Identifier: BSD-3-Clause */
/* Scratch of a stream; see scratch.h. */
#include "backends/common/scratch.h"

#include "base/base.h"

static srt_status_t add_block(srt_scratch_t *scratch, size_t nbytes)
{
	srt_scratch_owner_t *owner = scratch->owner;
	srt_scratch_block_t *block = owner->host->alloc(sizeof(*block));
	srt_status_t status;

	if (block == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	*block = (srt_scratch_block_t){ .older = scratch->newest, .nbytes = nbytes };
	status = owner->mem->alloc(owner->device, SRT_MEM_DEVICE, nbytes,
				   "scratch of matrix products and attention", &block->mem);
	if (status != SRT_OK) {
		owner->host->free(block);
		return status;
	}
	scratch->newest = block;
	atomic_fetch_add(&owner->nbytes, nbytes);
	atomic_fetch_add(&owner->nallocations, 1);
	return SRT_OK;
}

srt_status_t srt_scratch_provide(srt_scratch_t *scratch, size_t nbytes)
{
	const srt_scratch_block_t *newest = scratch->newest;

	if (!nbytes || (newest != NULL && newest->nbytes >= nbytes))
		return SRT_OK;
	/* Older blocks remain, so their number must stay small. */
	if (newest != NULL && nbytes < newest->nbytes + newest->nbytes / 2)
		nbytes = newest->nbytes + newest->nbytes / 2;
	return add_block(scratch, nbytes);
}

srt_status_t srt_scratch_reserve(srt_scratch_t *scratch, size_t nbytes)
{
	if (!nbytes || (scratch->newest != NULL && scratch->newest->nbytes >= nbytes))
		return SRT_OK;
	srt_scratch_free(scratch);
	return add_block(scratch, nbytes);
}

void srt_scratch_free(srt_scratch_t *scratch)
{
	srt_scratch_owner_t *owner = scratch->owner;

	while (scratch->newest != NULL) {
		srt_scratch_block_t *block = scratch->newest;

		scratch->newest = block->older;
		owner->mem->free(owner->device, block->mem);
		atomic_fetch_sub(&owner->nbytes, block->nbytes);
		owner->host->free(block);
	}
}
