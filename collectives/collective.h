/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside of a collective, and the table that an algorithm is.
 *
 * All algorithms run on shared memory of one node: a rank's source buffer is mapped by its peers.
 * A start puts on the stream: a host function that publishes the source, host functions that wait
 * for the peers' publications, the transfer as device work, a host function that releases. So it is
 * ordered with everything else on the stream, of whatever kind the stream is.
 */
#ifndef SRT_COLLECTIVES_COLLECTIVE_H
#define SRT_COLLECTIVES_COLLECTIVE_H

#include "collectives/comm.h"
#include "collectives/shm/control.h"

/* Starts of one collective that may be under way at a time; more wait for the oldest. */
#define SRT_COLL_NSTARTS 16u

/* A run of bytes that one rank owns; neighbours that touch on both sides are one run. */
typedef struct srt_run {
	size_t full_offset, shard_offset; /* bytes from the views */
	size_t nbytes;
} srt_run_t;

typedef struct srt_runs {
	const srt_run_t *runs;
	size_t nruns;
} srt_runs_t;

typedef struct srt_coll_start srt_coll_start_t;

/* A start and a peer: the argument of a host function that waits for one rank. */
typedef struct srt_coll_wait {
	srt_coll_start_t *start;
	int peer;
} srt_coll_wait_t;

/* One start under way. */
struct srt_coll_start {
	srt_coll_t *coll;
	uint32_t epoch;        /* start of this collective, from 1 */
	uint32_t number;       /* start of the communicator */
	atomic_uint npending;  /* host functions on streams that still refer to this */
	srt_coll_wait_t *wait; /* [size] */
};

typedef struct srt_coll_algorithm {
	const char *name; /* "all-gather", for messages */
	bool reduces;     /* takes an epilogue, needs a floating-point dtype */
	bool has_buffers; /* false: a barrier */
	/* The buffer that peers read. */
	enum { SRT_SOURCE_NONE, SRT_SOURCE_FULL, SRT_SOURCE_SHARD } source;
	/* Whether `reader` reads `owner`'s source (two different ranks). */
	bool (*reads)(const srt_coll_t *coll, int reader, int owner);
	/* async. Puts a start on the stream. */
	srt_status_t (*start)(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			      srt_stream_t *stream);
} srt_coll_algorithm_t;

struct srt_coll {
	struct srt_coll *next; /* in comm->colls */
	srt_comm_t *comm;
	const srt_coll_algorithm_t *algorithm;
	srt_coll_kind_t kind;
	char *name;
	uint32_t id; /* the same on all ranks, from 1 */
	srt_dtype_t dtype;
	size_t elem_nbytes;
	int root;
	srt_view_t full, shard;
	srt_runs_t *owner; /* [size]; one allocation with its runs */
	srt_export_t *own;
	srt_import_t **imports; /* [size] */
	srt_view_t *source;     /* [size] every rank's source, mapped here; buffer NULL = none */
	srt_buffer_t *scratch;  /* partial sums of more than 8 ranks, or NULL */
	srt_shm_memory_t *memory;
	srt_shm_word_t *words; /* [size][SRT_SHM_NWORDS] or NULL for a single rank */
	uint32_t epoch;        /* of the last start */
	srt_coll_start_t starts[SRT_COLL_NSTARTS];
	srt_coll_wait_t *waits; /* [SRT_COLL_NSTARTS][size] */
};

extern const srt_coll_algorithm_t srt_coll_all_gather, srt_coll_reduce_scatter, srt_coll_all_reduce,
	srt_coll_broadcast, srt_coll_barrier;

/* The table's entry or NULL. */
const srt_coll_algorithm_t *srt_coll_algorithm(srt_coll_kind_t kind);

static inline bool srt_coll_owns(const srt_coll_t *coll, int rank)
{
	return coll->owner[rank].nruns > 0;
}

static inline srt_shm_word_t *srt_coll_word(const srt_coll_t *coll, int rank, srt_shm_word_id_t id)
{
	return &coll->words[(size_t)rank * SRT_SHM_NWORDS + id];
}

/* ---- check.c: the collective as all ranks must describe it --------------------------------- */

/* This rank's description by itself: sizes, views, dtype. */
srt_status_t srt_coll_validate(const srt_comm_t *comm, const srt_coll_desc_t *desc);
/*
 * Collective: takes this rank's verdict on its own description and compares all of them. On success
 * source_offset[r] is where rank r's source begins in its buffer, in bytes.
 */
srt_status_t srt_coll_compare(srt_comm_t *comm, const srt_coll_desc_t *desc, srt_status_t status,
			      size_t *source_offset);

/* ---- shm/steps.c: what algorithms are made of; all async, in the stream's order ------------ */

/* This rank's word becomes the start's epoch. */
srt_status_t srt_step_publish(srt_coll_start_t *start, srt_stream_t *stream);
srt_status_t srt_step_publish2(srt_coll_start_t *start, srt_stream_t *stream);
srt_status_t srt_step_release(srt_coll_start_t *start, srt_stream_t *stream);
/* Wait for one peer's word. */
srt_status_t srt_step_await(srt_coll_start_t *start, int peer, srt_stream_t *stream);
srt_status_t srt_step_await2(srt_coll_start_t *start, int peer, srt_stream_t *stream);
/* Wait for all peers' publish. */
srt_status_t srt_step_await_all(srt_coll_start_t *start, srt_stream_t *stream);
/* Wait for the release of all who read this rank's source. */
srt_status_t srt_step_fence(srt_coll_start_t *start, srt_stream_t *stream);

/* Copies the runs of `owner` from its `source` view (laid out like full or like shard) to full. */
srt_status_t srt_step_copy(srt_coll_t *coll, int owner, srt_stream_t *stream);
/* dst (laid out like full or like shard) = the tree sum of all ranks' full over this rank's
 * runs. */
srt_status_t srt_step_reduce(srt_coll_t *coll, const srt_view_t *dst,
			     const srt_coll_epilogue_t *epilogue, srt_stream_t *stream);
/* Bytes of scratch that srt_step_reduce() needs for so many ranks. */
size_t srt_step_reduce_scratch(int nranks, size_t elem_nbytes);

#endif
