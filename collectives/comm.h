/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of a communicator, whose state is in comm_state.h. Included by the files of
 * collectives/; other code uses <shardrt/coll.h>.
 */
#ifndef SRT_COLLECTIVES_COMM_H
#define SRT_COLLECTIVES_COMM_H

#include "collectives/comm_state.h"

/* ---- comm.c ---------------------------------------------------------------------------- */

#define SRT_COMM_WORLD_ID UINT64_C(0x776f726c64)

/* Collective over its ranks: creates a communicator, chooses its transport and connects its shared
 * memory. parent: of whose hierarchy it becomes a part, or NULL. id: the same on all its ranks,
 * different from other communicators'. world_ranks: [size]; NULL = 0, 1, 2 ... */
srt_status_t srt_comm_connect(srt_bootstrap_t *bootstrap, srt_device_t *device, srt_comm_t *parent,
			      uint64_t id, int rank, int size, const int *world_ranks,
			      const char *name, srt_comm_t **out);
/* Keeps the object until the matching srt_comm_release(). Thread-safe. */
void srt_comm_hold(srt_comm_t *comm);
void srt_comm_release(srt_comm_t *comm);
/* Local: ends the collectives' work and poisons this rank's communicator, as "rank 0 destroyed
 * `what`". */
void srt_comm_close(srt_comm_t *comm, const char *what);
/* A wait of the collective for other ranks ends within bootstrap->close_s and poisons all ranks as
 * "rank 0 destroyed `what`". Local, does not block. NULL is allowed. Implemented in coll.c. */
void srt_coll_close(struct srt_coll *coll, const char *what);

/* Whether UCX can be used; it is loaded. SRT_ERR_UNSUPPORTED or SRT_ERR_NOT_FOUND: the last error
 * is the reason. Implemented in transports/ucx/. */
srt_status_t srt_ucx_probe(void);

/* ---- poison.c ------------------------------------------------------------------------- */

/* How a world rank died: only its launcher knows more. */
#define SRT_COMM_DEATH_FORMAT                                                                      \
	"rank %d is gone: its process exited without srt_context_destroy(), was killed or crashed"

/* Poisons the communicator unless it is poisoned already. notify: poisons the other ranks with the
 * same message. */
void srt_comm_poison(srt_comm_t *comm, srt_status_t status, bool notify, const char *format, ...)
	SRT_PRINTF(4, 5);
/* Poisons: a rank of it has died. Does not notify other ranks. */
void srt_comm_poison_dead(srt_comm_t *comm, int world_rank);
/* Poisons this rank's communicator only, without a log message. */
void srt_comm_poison_closed(srt_comm_t *comm, const char *what);
/* Called after a failure that a rank's death may have caused. Waits at most `seconds` for the
 * progress thread to poison the communicator. Returns whether it is poisoned. */
bool srt_comm_await_poison(const srt_comm_t *comm, double seconds);
/* Poisons all ranks: a wait for `rank` cannot complete, as the rank has left the job in order. */
void srt_comm_poison_left(srt_comm_t *comm, int rank);
/* srt_bootstrap_fail(), unless the communicator is poisoned already. */
srt_status_t srt_comm_fail_alone(srt_comm_t *comm, const char *what, srt_status_t status,
				 const char *message);
/* The status of a call that used the stream. If the stream or its device has failed, this rank
 * cannot go on: srt_comm_fail_alone(). Any other failure is the same on all ranks. */
srt_status_t srt_comm_share_failure(srt_comm_t *comm, const char *what, srt_stream_t *stream,
				    srt_status_t status);
/* srt_calloc() that fails with srt_comm_fail_alone(). */
void *srt_comm_calloc(srt_comm_t *comm, size_t n, size_t size, const char *what);
/* A communicator that is poisoned because a rank has ended: tells the others, which may still wait
 * for the rest of an earlier exchange, that this rank takes part in exchange `seq` no more. */
void srt_comm_give_up(srt_comm_t *comm, uint32_t seq);
/* Fails with the poison's message, what this rank was doing and, if > 0, how long it waited. */
srt_status_t srt_comm_fail(const srt_comm_t *comm, double waited_s, const char *format, ...)
	SRT_PRINTF(3, 4);
/* Adds it to, or removes it from, the communicators that are poisoned when a rank dies. A part of a
 * hierarchy has the poison that its parent has. */
void srt_comm_enlist(srt_comm_t *comm);
void srt_comm_delist(srt_comm_t *comm);

/* ---- bootstrap/oob.c: blocking, collective; `what` is for messages -------------------------- */

/* Whether two ranks are on one node. Local. */
bool srt_comm_same_node(const srt_comm_t *comm, int a, int b);
/* Whether its ranks are on more than one node. Local. */
bool srt_comm_spans_nodes(const srt_comm_t *comm);

/* srt_comm_oob_allgather() with `what`. */
srt_status_t srt_comm_oob_allgather_for(srt_comm_t *comm, const char *what, const void *send,
					size_t nbytes, void *recv);
/*
 * Sends nbytes (at most SRT_CONTROL_MAX_PAYLOAD) and a descriptor (fd -1 = none) to each rank with
 * to[r]. Receives the same from each rank with from[r], into recv + r * nbytes and fds[r] (-1 =
 * none came). All ranks call it with tables that match. The caller owns the received descriptors.
 */
srt_status_t srt_comm_exchange_fds(srt_comm_t *comm, const char *what, const bool *to,
				   const void *send, size_t nbytes, int fd, const bool *from,
				   void *recv, int *fds);
/*
 * Returns SRT_OK on all ranks if `status` is SRT_OK on all ranks. Else all ranks return the status
 * and the message (the last error) of the lowest rank that failed. If the communicator fails, a
 * rank that had failed by itself returns its own.
 */
srt_status_t srt_comm_status_consensus(srt_comm_t *comm, const char *what, srt_status_t status);

/* ---- shm/waits.c: waits for other ranks that take long ------------------------------------- */

/* How long a wait may take without a warning: 10 s, or half of SHARDRT_TIMEOUT. */
double srt_wait_warn_s(const srt_comm_t *comm);
/* Shares what this rank waits for; "": nothing. */
void srt_wait_publish(srt_comm_t *comm, const char *what);
/* What a rank of the communicator waits for. */
void srt_wait_read(const srt_comm_t *comm, int rank, char text[SRT_WAIT_TEXT]);
/* What a rank that gives up waiting adds: "; rank 1 is stopped (SIGSTOP or a debugger)" for each
 * rank of the job on this node. A rank that waits for a stopped one is late, too. */
void srt_wait_list_stopped(const srt_comm_t *comm, char *text, size_t size);
/* Logs that this rank has waited for `what`, and what the other ranks wait for. */
void srt_wait_warn(const srt_comm_t *comm, const char *what, double waited_s);

/* ---- transports/table.c ---------------------------------------------------------------- */

/* Collective: sets bootstrap->capabilities. */
srt_status_t srt_comm_gather_capabilities(srt_comm_t *world);
/* Sets comm->transport, from its ranks and their capabilities alone. Local. */
srt_status_t srt_comm_choose_transport(srt_comm_t *comm);
/* Whether collectives read the peers' source buffers themselves. */
bool srt_comm_zero_copy(const srt_comm_t *comm);

/* The kind of memory of the full layout of all-gathers: peers read it too if the collective is
 * hierarchical, which needs this kind. */
srt_mem_kind_t srt_comm_gathered_kind(const srt_comm_t *comm);

/* Collective: an all-gather of `nelem` elements of each rank, in the order of ranks. */
srt_status_t srt_coll_create_gather(srt_comm_t *comm, srt_view_t local, srt_view_t all,
				    size_t nelem, const char *name, srt_coll_t **out);

/* Memory that collectives need in addition to their buffers, in bytes. */
typedef struct srt_coll_memory {
	size_t scratch;     /* that a rank allocates */
	size_t mapped;      /* bounce buffers of the other ranks, that it maps */
	bool maps_sources;  /* it also maps the other ranks' source buffers */
	bool maps_full;     /* and what they gather: srt_comm_gathered_kind() */
	bool maps_messages; /* and what messages are sent from */
} srt_coll_memory_t;

/* The collectives of a communicator, as far as their memory depends on them. */
typedef struct srt_coll_uses {
	bool copies;      /* some copy: gathers, broadcasts */
	bool messages;    /* some sends and receives, which have no stages */
	bool sums;        /* some sum, on whichever rank */
	size_t nsums;     /* that sum bytes which this rank owns */
	bool all_reduces; /* sums are all-reduces */
	bool is_split;    /* the communicator has only some of the job's ranks */
} srt_coll_uses_t;

/* ---- plan.c ---------------------------------------------------------------------------- */

/*
 * The memory that the collectives of a communicator need on one of its ranks. It has `nranks` ranks
 * and is the parent, if that has as many, or a group of some of its ranks. Local.
 *
 * world_ranks: [nranks] its ranks, as of the world; world_ranks[rank] is the one to plan for. NULL:
 * they are unknown, as those of a job with another number of ranks than this one. They are then
 * planned with the parent's transport, without a hierarchy.
 */
srt_status_t srt_coll_plan(const srt_comm_t *parent, int *world_ranks, int nranks, int rank,
			   const srt_coll_uses_t *uses, srt_coll_memory_t *memory);

#endif
