/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which part of a parameter each rank owns, and the flat parameters of units (<shardrt/engine.h>).
 */
#ifndef SHARDRT_ENGINE_SHARD_H
#define SHARDRT_ENGINE_SHARD_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The part of a parameter that a rank owns: elements that follow each other in what the rank
 * computes with (srt_param_partition()), and, where they are one, a box of the unsharded tensor.
 * Does not grow.
 */
typedef struct srt_part {
	int ndim; /* of the parameter */
	/* The box, of the unsharded tensor; zeros with is_flat. One without elements begins where
	 * it would if there were any. */
	int64_t offset[SRT_MAX_DIMS], size[SRT_MAX_DIMS];
	/* 0: a box. 1: a range of elements only, of a parameter in a flat unit or one that is cut
	 * in blocks (srt_placement_t.nblocks). */
	int is_flat;
	int64_t first, nelem; /* elements first .. first + nelem - 1 of the rank's, row-major */
	int64_t shard_offset; /* flat units: where they begin in the shard of srt_unit_local() */
} srt_part_t;

/**
 * Which part of a parameter a rank of the engine owns; with ddp all that the rank computes with.
 * Local; allowed before and after srt_engine_build().
 * @param rank 0 .. world_size - 1.
 * @param[out] part set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for a rank outside the range.
 */
SRT_API srt_status_t srt_param_part(const srt_param_t *param, int rank, srt_part_t *part);

/** The flat parameter of a unit, in elements, as a rank has it. */
typedef struct srt_flat_sizes {
	size_t size;         /* sizeof(srt_flat_sizes_t) */
	int64_t flat_nelem;  /* of the whole; SRT_FLAT_VIEWS: with padding */
	int64_t shard_nelem; /* of each rank's shard, with padding */
	int64_t padding;     /* of this rank's shard, what is past the end of the whole */
} srt_flat_sizes_t;

/** To be filled. */
#define SRT_FLAT_SIZES_INIT                                                                        \
	{                                                                                          \
		.size = sizeof(srt_flat_sizes_t)                                                   \
	}

/**
 * The sizes of a unit's flat parameter (srt_unit_options_t.flat). With ddp its shard is the whole.
 * Local; allowed before and after srt_engine_build().
 * @param rank 0 .. world_size - 1.
 * @param[out] sizes its size by SRT_FLAT_SIZES_INIT; set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for a unit that is not flat or a rank outside the range.
 */
SRT_API srt_status_t srt_unit_flat_sizes(const srt_unit_t *unit, int rank, srt_flat_sizes_t *sizes);

/**
 * As srt_param_local(), this rank's shard of the unit's flat parameter: shard_nelem elements of
 * srt_flat_sizes_t, those of each parameter from srt_part_t.shard_offset on. What aligns and pads
 * them is zero, and must stay zero. For programs that step, average or exchange a unit as one
 * tensor.
 * @return the view; buffer NULL, with srt_last_error(), as srt_param_local(); and for a unit that
 *         is not flat, has no parameters, or whose parameters are apart in memory: frozen and
 *         trainable ones, or ones that are cut over a mesh (srt_placement_t) and others.
 */
SRT_API srt_view_t srt_unit_local(srt_unit_t *unit, srt_param_what_t what);

#ifdef __cplusplus
}
#endif
#endif
