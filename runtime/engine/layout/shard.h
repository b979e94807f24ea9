/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which rank owns which elements of each cell (shard.c). All are pure functions of the declaration,
 * but srt_shard_owners*(), which allocate.
 */
#ifndef SRT_RUNTIME_ENGINE_LAYOUT_SHARD_H
#define SRT_RUNTIME_ENGINE_LAYOUT_SHARD_H

#include "runtime/engine/engine.h"

/* In a job of `world` ranks: those that a parameter is cut over, the copies of each shard, and both
 * together, whose gradients are averaged. */
int srt_shard_count(const srt_engine_t *engine, int world);
int srt_shard_replicas(const srt_engine_t *engine, int world);
int srt_shard_dp_size(const srt_engine_t *engine, int world);
/* Which shard a rank has; the rank of the rank's replica that has a shard. */
int srt_shard_index(const srt_engine_t *engine, int rank);
int srt_shard_rank(const srt_engine_t *engine, int rank, int index);
/* Which copy of its shard a rank has. */
int srt_shard_replica(const srt_engine_t *engine, int rank);
/* The lowest rank that has the same shard, of the same cell if `cells`. */
int srt_shard_first_copy(const srt_engine_t *engine, bool cells, int rank);
/* Which group of n ranks of comms.shard a rank is in, and its index there. */
int srt_shard_group(const srt_engine_t *engine, int rank, int n);
/* The ranks of a replica follow each other, so the tree of the ranks' sums has one for each. */
bool srt_shard_is_tree(const srt_engine_t *engine);
/* For a flat unit: elements of a shard, with padding; how many of them precede the parameter in
 * that of a rank. */
int64_t srt_shard_flat_chunk(const srt_unit_t *unit, int world);
int64_t srt_shard_flat_offset(const srt_param_t *param, int rank, int world);
/* A flat unit's shards are one run of elements in arenas: all its parameters are in one zone. */
bool srt_shard_is_contiguous(const srt_unit_t *unit);
/* Elements of the parameter's cell that a rank owns, one after another. Returns how many; *first is
 * the first one. */
int64_t srt_shard_range(const srt_param_t *param, int rank, int world, int64_t *first);
/* The part that the unit's shards are in. */
int srt_shard_part(const srt_unit_t *unit);
void srt_shard_layout(const srt_engine_t *engine, int rank, int world, size_t *offsets,
		      srt_layout_t *layout);
/* Lays out the unit's trainable shards alone, by parameter index in `offsets` unless that is NULL.
 * Returns their elements, with padding. */
size_t srt_shard_layout_unit(const srt_unit_t *unit, int rank, int world, size_t *offsets);
/* Lays out a unit's trainable parameters, then the frozen ones. Returns the elements of all. */
size_t srt_shard_layout_unit_all(const srt_unit_t *unit, int rank, int world, size_t *offsets);

/* At least the elements of all of the rank's replica: the same on its ranks. */
size_t srt_shard_most_nelem(const srt_unit_t *unit, int rank, int world);

/* Elements of the unit's unsharded layout that rank `index` of a group of n keeps. *first: the
 * first one; or NULL. */
size_t srt_shard_part_nelem(const srt_unit_t *unit, int n, int index, size_t *first);

/* Which elements each rank owns of a unit, for its collectives. */
typedef struct srt_owners {
	srt_coll_owner_t *owner; /* by rank */
	srt_coll_segment_t *segments;
} srt_owners_t;
srt_status_t srt_shard_owners(const srt_unit_t *unit, bool trainable_only, bool packed,
			      srt_owners_t *owners);
srt_status_t srt_shard_owners_in_place(const srt_unit_t *unit, srt_owners_t *owners);
srt_status_t srt_shard_owners_replicas(const srt_unit_t *unit, srt_owners_t *owners);
srt_status_t srt_shard_owners_group(const srt_unit_t *unit, srt_owners_t *owners);
void srt_owners_free(srt_owners_t *owners);

#endif
