/* SPDX-License-Identifier: BSD-3-Clause */
/* Which tensors there are, where they are in memory, and on which stream work on them is done. */
#ifndef SRT_RUNTIME_ENGINE_LAYOUT_LAYOUT_H
#define SRT_RUNTIME_ENGINE_LAYOUT_LAYOUT_H

#include "runtime/engine/engine.h"

/* ---- roles.c */
bool srt_roles_sharded(const srt_engine_t *engine, int world);
/* The sums over ranks are made within a replica first, then over the replicas. */
bool srt_roles_hybrid(const srt_engine_t *engine, int world);
/* Unreduced gradients are added up over the micro-batches of a step. */
bool srt_roles_defer(const srt_engine_t *engine);
/* The unit's gradients are added up unreduced, because one rank has nothing to reduce: in GRAD
 * unless that is offloaded. */
bool srt_roles_add_unreduced(const srt_unit_t *unit, int world);
/* Unreduced gradients are added up pairwise. */
bool srt_roles_tree(const srt_engine_t *engine);
/* The unit's gradients are summed from other memory than they are written to. */
bool srt_roles_sums_apart(const srt_unit_t *unit);
size_t srt_roles_count_sums(const srt_engine_t *engine);
/* Ranks of the groups that the unit is resharded to; 0: none. */
int srt_roles_group(const srt_unit_t *unit, int world);
/* Ranks of the groups of all units that are resharded to groups. */
int srt_roles_groups(const srt_engine_t *engine, int world);
bool srt_roles_keep_grads(const srt_unit_t *unit);
bool srt_role_is_shared(srt_role_kind_t kind);
/* Some tensors are in host memory. */
bool srt_roles_offload(const srt_engine_t *engine);
/* With offload, tensors of the role are in host memory. */
bool srt_role_is_home(srt_role_kind_t kind);
/* The gradients that are stepped. */
srt_role_kind_t srt_role_stepped(const srt_engine_t *engine);
srt_role_t srt_role(const srt_unit_t *unit, srt_role_kind_t kind, int world);
srt_role_kind_t srt_role_summed(const srt_unit_t *unit, int world);
srt_role_kind_t srt_role_gathered(const srt_unit_t *unit);

/* ---- flow.c */
/* Sets unit->flow. */
srt_status_t srt_unit_flow_resolve(srt_unit_t *unit);

/* ---- state8.c: optimizer states in 8 bits, whose arenas have no parts. SRT_ROLE_STATE and the
 * next one have codes, or floats where the states stay fp32, the third one has absmax. */
/* Where a rank's states of a parameter begin, in bytes of their arenas. */
typedef struct srt_state8_place {
	size_t state, absmax;
} srt_state8_place_t;
/* Sets places, unless that is NULL, by index of the parameter, and the bytes of the three arenas;
 * nothing without such states. */
void srt_state8_layout(const srt_engine_t *engine, int rank, int world, srt_state8_place_t *places,
		       size_t nbytes[3]);
/* Elements of a row of the parameter. */
int64_t srt_state8_row(const srt_param_t *param);
/* The states of the parameter are codes. */
bool srt_state8_is_coded(const srt_param_t *param);
/* State k of this rank's shard; 2: its absmax, absent without codes. */
srt_view_t srt_state8_view(const srt_param_t *param, int k);
/* Bytes of it. */
size_t srt_state8_nbytes(const srt_param_t *param, int k);
/* SRT_ERR_UNSUPPORTED, naming it, for a parameter whose states cannot be in 8 bits. */
srt_status_t srt_state8_check(const srt_engine_t *engine, int world);

/* ---- part.c */
/* This rank's shard, packed from the whole tensor in host memory. */
typedef struct srt_packed {
	const void *elements;
	void *owned; /* to be freed; NULL: they are in the tensor */
} srt_packed_t;
srt_status_t srt_shard_pack(const srt_param_t *param, const void *whole, srt_packed_t *packed);
/* This rank's shard of the parameter in the arena of a role (STATE + k: of a state). */
srt_view_t srt_param_shard_view(const srt_param_t *param, int arena);
/* This rank's shard as srt_param_shard_view(), for copies of the device. */
srt_view_t srt_param_device_view(const srt_param_t *param, int arena);
/* SRT_ERR_INVALID_ARGUMENT with the name of the public call unless the unit is flat. */
srt_status_t srt_unit_require_flat(const srt_unit_t *unit, const char *call);

/* ---- home.c. Without offload the home stream is the caller's. */
/* Edge: the work on `from` until now -> the work on `to` from now on. */
srt_status_t srt_order_streams(srt_engine_t *engine, srt_stream_t *from, srt_stream_t *to);
/* *home: the stream for work on the owned values, after the present work of `stream`. */
srt_status_t srt_home_enter(srt_engine_t *engine, srt_stream_t *stream, srt_stream_t **home);
/* Work on the owned values is done: later work of `stream` comes after it. */
srt_status_t srt_home_leave(srt_engine_t *engine, srt_stream_t *stream);

/* ---- slots.c */
/* ring: slots of a size class at one depth; 0: one slot a unit. To be freed. */
srt_status_t srt_slot_map_plan(const srt_engine_t *engine, srt_slot_kind_t kind, int rank,
			       int world, int ring, srt_slot_map_t *map);
void srt_slot_map_free(srt_slot_map_t *map);

/* ---- staging.c */
void srt_staging_plan(const srt_engine_t *engine, int world, srt_staging_t *staging);

/* ---- matrices.c */
/* The parameter is stepped by Muon. */
bool srt_param_is_matrix(const srt_param_t *param);
/* Bytes of the updates of a rank; offsets: by parameter index, in elements, or NULL. */
size_t srt_matrices_updates(const srt_engine_t *engine, int rank, int world, size_t *offsets);
/* The memory for Muon; refuses parameters that it cannot step. */
srt_status_t srt_matrices_plan(const srt_engine_t *engine, int rank, int world,
			       srt_matrices_plan_t *plan);
/* Sets `matrix` of all parameters. */
srt_status_t srt_matrices_place(srt_engine_t *engine);

/* ---- plan.c */
srt_status_t srt_memory_plan(const srt_engine_t *engine, int rank, int world, srt_memory_t *memory);
void srt_memory_free(srt_memory_t *memory);

#endif
