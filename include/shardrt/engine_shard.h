/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which part of a parameter each rank owns (<shardrt/engine.h>).
 */
#ifndef SHARDRT_ENGINE_SHARD_H
#define SHARDRT_ENGINE_SHARD_H

#include <stdint.h>

#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The part of a parameter that a rank owns: elements that follow each other in what the rank
 * computes with (srt_param_cell()), and, where they are one, a box of the unsharded tensor.
 */
typedef struct srt_part {
	int ndim; /* of the parameter */
	/* The box, of the unsharded tensor; zeros with is_flat. One without elements begins where
	 * it would if there were any. */
	int64_t offset[SRT_MAX_DIMS], size[SRT_MAX_DIMS];
	/* 0: a box. 1: a range of elements only, of a parameter that is cut in blocks
	 * (srt_placement_t.nblocks). */
	int is_flat;
	int64_t first, nelem; /* elements first .. first + nelem - 1 of the rank's, row-major */
	uint64_t reserved[4]; /* written as zero */
} srt_part_t;

/**
 * Which part of a parameter a rank of the engine owns; with ddp all that the rank computes with.
 * Local; allowed before and after srt_engine_build().
 * @param rank 0 .. world_size - 1.
 * @param[out] part set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for a rank outside the range.
 */
SRT_API srt_status_t srt_param_part(const srt_param_t *param, int rank, srt_part_t *part);

#ifdef __cplusplus
}
#endif
#endif
