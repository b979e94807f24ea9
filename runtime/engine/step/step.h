/* SPDX-License-Identifier: BSD-3-Clause */
/* A step: parameters gathered, gradients reduced, shards stepped. */
#ifndef SRT_RUNTIME_ENGINE_STEP_STEP_H
#define SRT_RUNTIME_ENGINE_STEP_STEP_H

#include "runtime/engine/engine.h"

/* ---- writes.c: changes of values that the program makes itself */
/* From now on the program may change values between passes. */
srt_status_t srt_writes_allow(srt_engine_t *engine);
/* Values changed: later gathers have what work on `stream` wrote until now. */
srt_status_t srt_writes_take(srt_engine_t *engine, srt_stream_t *stream);
/* Before a forward pass or a read: srt_writes_take() if values may have changed. */
srt_status_t srt_writes_before_read(srt_engine_t *engine, srt_stream_t *stream);
/* At the end of a pass: later work on `stream` may write. */
srt_status_t srt_writes_end_pass(srt_engine_t *engine, srt_stream_t *stream);

/* ---- unshard.c */
srt_status_t srt_unshard_begin(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_unshard_end(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_unshard_prefetch(srt_unit_t *unit, bool backward);
/* Before the unit's shard changes: waits for all readers. */
srt_status_t srt_unshard_wait_shard_read(srt_unit_t *unit, srt_stream_t *stream);
/* Waits as srt_unshard_wait_shard_read(); no slot counts as gathered afterwards. */
srt_status_t srt_unshard_wait_readers(srt_unit_t *unit, srt_stream_t *stream);
/* After the shards or tables changed on `stream`: later gathers and steps read the new ones. */
srt_status_t srt_unshard_changed(srt_engine_t *engine, srt_stream_t *stream);
/* After a unit's use, only if engine->checks.on: no view of its parameters has values any more. */
srt_status_t srt_unshard_release(srt_unit_t *unit, srt_stream_t *stream);

/* ---- reduce.c */
srt_status_t srt_reduce_prepare(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_reduce_begin(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_reduce_end_microbatch(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_reduce_join(srt_engine_t *engine, srt_stream_t *stream);
/* y = x, or y += x, in y's dtype. */
srt_status_t srt_reduce_store(srt_view_t y, srt_view_t x, int64_t nelem, bool add,
			      srt_stream_t *stream);
srt_status_t srt_reduce_flags(srt_engine_t *engine, srt_stream_t *stream);
void srt_reduce_clear(srt_engine_t *engine);

/* ---- offload.c. Without offload nothing is copied. */
/* The tables, for copies of the device. */
srt_buffer_t *srt_tables_device(const srt_engine_t *engine);
/* Bytes of a table. */
typedef struct srt_table_range {
	size_t offset, nbytes; /* in staging and in storage.exchange */
} srt_table_range_t;
/* Before `home` writes what peers read in a collective of storage.exchange. */
srt_status_t srt_exchange_wait_readers(srt_engine_t *engine, srt_coll_t *coll, srt_stream_t *home);
/* Starts it with the bytes that `home` wrote; what it writes is for later work on `home`. */
srt_status_t srt_exchange_start(srt_engine_t *engine, srt_coll_t *coll, srt_table_range_t mine,
				srt_table_range_t all, srt_stream_t *home);
/* The unit's values -> its slot of uploaded shards, for later gathers or, without shards, of
 * unsharded parameters. */
srt_status_t srt_upload(srt_unit_t *unit);
/* Before the communication stream writes the unit's SRT_ROLE_REDUCED. */
srt_status_t srt_download_prepare(const srt_unit_t *unit);
/* After the communication stream wrote the unit's SRT_ROLE_REDUCED. */
srt_status_t srt_download(srt_unit_t *unit);
/* All reduced gradients that are on the device, after the work on `stream`. */
srt_status_t srt_download_arena(srt_engine_t *engine, srt_stream_t *stream);

/* ---- finish.c */
/* SRT_ERR_STATE with the name of the public call unless the backward passes of a step are done. */
srt_status_t srt_finish_check(const srt_engine_t *engine, const char *call);
/* An error unless the parameter has a reduced gradient, or none yet, that can be read. */
srt_status_t srt_finish_check_grad(const srt_param_t *param);
/* An error unless srt_engine_finish_backward() was called, with this stream. */
srt_status_t srt_finish_check_stream(const srt_engine_t *engine, const char *call,
				     const srt_stream_t *stream);
/* found_inf (1) of the step state, and where the device reads it. */
srt_view_t srt_found_inf(const srt_engine_t *engine);
srt_view_t srt_found_inf_device(const srt_engine_t *engine);
/* Unscales and checks all gradient shards by the scale of a step state (scaler.h). found_inf of the
 * engine's own step state becomes 1 if any rank found an infinity or NaN, else 0. */
srt_status_t srt_engine_unscale(srt_engine_t *engine, srt_view_t scale_state, srt_stream_t *stream);
/* The gradients of the step are reduced, and work on `stream` comes after. */
srt_status_t srt_finish_reductions(srt_engine_t *engine, srt_stream_t *stream);

/* ---- grad_norm.c */
/* The norm -> staging.norm; norm_sum.max is the maximum. */
srt_status_t srt_grad_norm_compute(srt_engine_t *engine, int p, srt_stream_t *stream);
/* found_inf of the step state becomes 1 if a gradient is not finite. */
srt_status_t srt_grad_norm_check_finite(srt_engine_t *engine, srt_stream_t *stream);
/* The elements between this rank's gradient shards become 0 again. Called after
 * whole parts are multiplied in place: 0 times infinity or NaN would stay there for ever, and in
 * the norm. */
srt_status_t srt_grads_clear_padding(const srt_engine_t *engine, srt_stream_t *stream);
/* This rank's gradient shards of a part. */
srt_view_t srt_part_grads(const srt_engine_t *engine, int part);

/* ---- optim.c */
srt_status_t srt_engine_optim_create(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_engine_optim_advance(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_engine_optim_step(srt_engine_t *engine, srt_stream_t *stream);
/* Rounds this rank's shard of a parameter, or all of a unit, to the compute dtype, where there is a
 * copy in it. */
srt_status_t srt_param_round(const srt_param_t *param, srt_stream_t *stream);
srt_status_t srt_unit_round(srt_unit_t *unit, srt_stream_t *stream);

/* ---- matrices.c */
/* At build, collective: the collectives of Muon's matrices. */
srt_status_t srt_matrices_create(srt_engine_t *engine);
/* srt_optim_owner_t.orthogonalise of an engine. Collective. */
srt_status_t srt_matrices_orthogonalise(void *owner, srt_stream_t *home);
/* Where the update of this rank's shard is; absent: the parameter is no matrix of Muon. */
srt_view_t srt_matrices_update(const srt_param_t *param);

/* ---- replicas.c */
/* Collective, blocking: SRT_ERR_MISMATCH on all ranks, with the first parameter, if a tensor that
 * several ranks have differs between them. */
srt_status_t srt_replicas_compare(srt_engine_t *engine, srt_stream_t *stream);
/* SRT_ERR_MISMATCH: the parameter differs between the ranks `first` and `rank`. */
srt_status_t srt_replicas_fail(const srt_engine_t *engine, const char *param, int first, int rank);

#endif
