/* SPDX-License-Identifier: BSD-3-Clause */
/* What a program declares: options, units, parameters, buffers of units. */
#ifndef SRT_RUNTIME_ENGINE_DECLARE_DECLARE_H
#define SRT_RUNTIME_ENGINE_DECLARE_DECLARE_H

#include "runtime/engine/engine.h"

/* ---- options.c */
const char *srt_strategy_name(srt_strategy_t strategy);
/* A program's options, NULL: the defaults. @param[out] options their `optim` is NULL. @param[out]
 * optim the optimizer. */
srt_status_t srt_options_read(const srt_engine_options_t *given, srt_engine_options_t *options,
			      srt_optim_options_t *optim);
/* The dimensions of the options' mesh to shard over, to replicate over and for tensor parallelism;
 * -1: none. */
void srt_options_dims(const srt_engine_options_t *options, int *shard_dim, int *replicate_dim,
		      int *tensor_dim);
/* Optimizer states of a parameter. */
int srt_engine_count_states(const srt_engine_t *engine);

/* ---- unit.c, param.c */
void srt_unit_free(srt_unit_t *unit);
void srt_param_free(srt_param_t *param);

/* ---- buffers.c */
void srt_unit_buffer_free(srt_unit_buffer_t *buffer);
srt_unit_buffer_t *srt_buffers_find(const srt_engine_t *engine, const char *name);
srt_status_t srt_buffers_create_broadcast(srt_engine_t *engine);
srt_status_t srt_buffers_broadcast(srt_engine_t *engine, srt_stream_t *stream);

/* ---- precision.c */
/* Resolves the unit's policy with the dtype of its parameters. */
srt_status_t srt_unit_resolve(srt_unit_t *unit, srt_dtype_t stored);
/* Elements to which tensors of the unit are aligned, in arenas and slots. */
size_t srt_unit_align(const srt_unit_t *unit);

/* ---- cell.c: `index` is that of the cell, by coordinate in the tensor-parallel dimension */
int srt_cell_count(const srt_engine_t *engine);
/* Sets (outer, extent, inner) of the parameter by its shape and placement. */
void srt_cell_describe(srt_param_t *param);
int srt_cell_index(const srt_engine_t *engine, int rank);
void srt_cell_shape(const srt_param_t *param, int index, int64_t *shape);
int64_t srt_cell_nelem(const srt_param_t *param, int index);
/* Where a cell of one block begins in the dimension that is cut. */
int64_t srt_cell_offset(const srt_param_t *param, int index);
/* Element `at` of a cell is element *first of the whole tensor. Returns how many elements follow
 * each other in both from there, 0 for an empty cell. */
int64_t srt_cell_run(const srt_param_t *param, int index, int64_t at, int64_t *first);

/* ---- lookup.c */
/* The parameter needs values before a forward pass. */
void srt_param_expect_values(srt_param_t *param);
/* The parameter has got values. */
void srt_param_has_values(srt_param_t *param);
/* SRT_ERR_STATE, with the names, if parameters need values. */
srt_status_t srt_values_check(const srt_engine_t *engine);
/* SRT_ERR_STATE with the name of the public call unless the engine is built. */
srt_status_t srt_engine_require_built(const srt_engine_t *engine, const char *call);
/* SRT_ERR_STATE with the name of the public call if full parameters of a unit are summoned. */
srt_status_t srt_full_check(const srt_engine_t *engine, const char *call);

#endif
