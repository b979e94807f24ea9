/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The updates of Muon's matrices, orthogonalised on their owners (layout/matrices.c):
 *
 *     updates of shards -> send-recv -> whole matrices of the owner, iterated there -> send-recv
 *     -> updates of shards
 *
 * A rank sends each element of its shards to one owner, in its own replica, and gets it back from
 * it; an owner sends an element to all replicas. Nothing else is sent. A matrix has one owner, and
 * no sum depends on where it came from: the bits are those of one rank.
 *
 * With offload the updates are on the host: they are copied to the device, and all of this is done
 * on its copy stream.
 */
#include <stdlib.h>

#include "collectives/comm.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"
#include "runtime/engine/step/step.h"

/* ---- created ----------------------------------------------------------------------------- */

/* The messages of both directions. */
typedef struct messages {
	srt_coll_message_t *gather, *scatter;
	size_t ngather, nscatter;
} messages_t;

/* The messages of the shards that a rank has. offsets: where it has their updates. */
static void add_messages(const srt_engine_t *engine, int rank, const size_t *offsets, messages_t *m)
{
	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *param = engine->params[i];
		const int owner = param->matrix.owner;
		size_t whole, nelem;
		int64_t first;

		if (owner < 0)
			continue;
		nelem = (size_t)srt_shard_range(param, rank, engine->world, &first);
		whole = param->matrix.owned + (size_t)first;
		if (nelem == 0)
			continue;
		if (rank == srt_shard_rank(engine, owner, srt_shard_index(engine, rank)))
			m->gather[m->ngather++] = (srt_coll_message_t){ .from = rank,
									.to = owner,
									.full_offset = offsets[i],
									.shard_offset = whole,
									.nelem = nelem };
		m->scatter[m->nscatter++] = (srt_coll_message_t){ .from = owner,
								  .to = rank,
								  .full_offset = whole,
								  .shard_offset = offsets[i],
								  .nelem = nelem };
	}
}

static srt_status_t create_coll(srt_engine_t *engine, const char *name, srt_buffer_t *full,
				srt_buffer_t *shard, const srt_coll_message_t *messages, size_t n,
				srt_coll_t **coll)
{
	const srt_coll_desc_t desc = { .size = sizeof(desc),
				       .kind = SRT_COLL_SEND_RECV,
				       .name = name,
				       .dtype = SRT_BF16,
				       .full = srt_view(full, 0, SRT_BF16),
				       .shard = srt_view(shard, 0, SRT_BF16),
				       .messages = messages,
				       .nmessages = n };

	return srt_coll_create(engine->comm, &desc, coll);
}

srt_status_t srt_matrices_create(srt_engine_t *engine)
{
	static const char what[] = "messages of matrices";
	const size_t n = engine->nparams * (size_t)engine->world;
	const srt_storage_t *storage = &engine->storage;
	messages_t m = { 0 };
	size_t *offsets;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (!srt_optim_has_muon(engine->optim) || engine->world == 1)
		return SRT_OK;
	offsets = srt_comm_calloc(engine->comm, engine->nparams, sizeof(*offsets), what);
	m.gather = srt_comm_calloc(engine->comm, n, sizeof(*m.gather), what);
	m.scatter = srt_comm_calloc(engine->comm, n, sizeof(*m.scatter), what);
	if (offsets != NULL && m.gather != NULL && m.scatter != NULL) {
		for (int r = 0; r < engine->world; r++) {
			srt_matrices_updates(engine, r, engine->world, offsets);
			add_messages(engine, r, offsets, &m);
		}
		status = create_coll(engine, "updates of matrices", storage->updates,
				     storage->matrices, m.gather, m.ngather,
				     &engine->matrices.gather);
	}
	if (status == SRT_OK)
		status = create_coll(engine, "orthogonal updates", storage->matrices,
				     storage->updates, m.scatter, m.nscatter,
				     &engine->matrices.scatter);
	free(offsets);
	free(m.gather);
	free(m.scatter);
	return status;
}

/* ---- in a step --------------------------------------------------------------------------- */

/* The matrices of this rank. */
static srt_status_t iterate(const srt_engine_t *engine, srt_stream_t *stream)
{
	const bool alone = engine->world == 1;
	const srt_view_t work = srt_view(engine->storage.matrix_work, 0, SRT_U8);
	srt_buffer_t *buffer = alone ? engine->storage.updates : engine->storage.matrices;

	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *param = engine->params[i];
		const size_t at = alone ? param->matrix.update : param->matrix.owned;

		if (param->matrix.owner == engine->rank)
			SRT_TRY(srt_muon_orthogonalise(&engine->optim->groups[param->group],
						       param->shape[0], param->shape[1],
						       srt_view(buffer, at * sizeof(uint16_t),
								SRT_BF16),
						       work, stream));
	}
	return SRT_OK;
}

static srt_status_t orthogonalise(srt_engine_t *engine, srt_stream_t *stream)
{
	srt_coll_t *gather = engine->matrices.gather, *scatter = engine->matrices.scatter;

	if (engine->world == 1)
		return iterate(engine, stream);
	/* Edge: the peers' last reading of this rank's matrices -> the new ones. */
	SRT_TRY(srt_coll_wait_readers(scatter, stream));
	SRT_TRY(srt_coll_start(gather, NULL, stream));
	SRT_TRY(iterate(engine, stream));
	/* Edge: the owners' reading of this rank's updates -> what came of them. */
	SRT_TRY(srt_coll_wait_readers(gather, stream));
	return srt_coll_start(scatter, NULL, stream);
}

srt_status_t srt_matrices_orthogonalise(void *owner, srt_stream_t *home)
{
	srt_engine_t *engine = owner;
	const srt_storage_t *s = &engine->storage;
	const size_t nbytes = engine->memory.matrices.updates;
	srt_stream_t *stream = engine->home.copy_stream;

	if (engine->home.stream == NULL)
		return orthogonalise(engine, home);
	/* Edge: the updates, written by the host -> their copy. */
	SRT_TRY(srt_order_streams(engine, home, stream));
	SRT_TRY(srt_buffer_copy(s->updates, 0, s->updates_alias, 0, nbytes, stream));
	SRT_TRY(orthogonalise(engine, stream));
	SRT_TRY(srt_buffer_copy(s->updates_alias, 0, s->updates, 0, nbytes, stream));
	/* Edge: the copy -> the host's use of it. */
	return srt_order_streams(engine, stream, home);
}

srt_view_t srt_matrices_update(const srt_param_t *param)
{
	const srt_engine_t *engine = param->unit->engine;
	srt_buffer_t *home = engine->storage.updates_home;

	if (!srt_param_is_matrix(param))
		return (srt_view_t){ 0 };
	return srt_view(home != NULL ? home : engine->storage.updates,
			param->matrix.update * sizeof(uint16_t), SRT_BF16);
}
