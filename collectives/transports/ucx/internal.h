/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of the UCX transport (ucx.h). */
#ifndef SRT_COLLECTIVES_TRANSPORTS_UCX_INTERNAL_H
#define SRT_COLLECTIVES_TRANSPORTS_UCX_INTERNAL_H

#include <pthread.h>

#include "collectives/collective.h"
#include "collectives/transports/staged/bounce.h"
#include "collectives/transports/ucx/library.h"
#include "collectives/transports/ucx/ucx.h"

/* Seconds that a failed message, or one of a rank that has left, waits for the news that a rank has
 * died, or for what arrives late. */
#define SRT_UCX_GRACE_S 1.0
/* Most ranks of a communicator: tags have 14 bits for the sender. */
#define SRT_UCX_MAX_RANKS (1 << 14)

/* A set of ranks of a communicator, a bit each. */
typedef struct srt_ucx_ranks {
	uint64_t bits[SRT_UCX_MAX_RANKS / 64];
} srt_ucx_ranks_t;

static inline void srt_ucx_ranks_add(srt_ucx_ranks_t *ranks, int rank)
{
	ranks->bits[rank / 64] |= UINT64_C(1) << rank % 64;
}

static inline bool srt_ucx_ranks_has(const srt_ucx_ranks_t *ranks, int rank)
{
	return ranks->bits[rank / 64] >> rank % 64 & 1;
}

/* ---- objects ------------------------------------------------------------------------------ */

/* The connection to a rank of the world; created with the first message to it. */
typedef struct srt_ucx_endpoint {
	void *address; /* of the rank's worker, or NULL */
	size_t address_nbytes;
	ucp_ep_h ep;          /* or NULL */
	ucs_status_t failure; /* UCX has reported that it is lost, and why */
	uint32_t nsyncing;    /* pending synchronous sends */
	size_t ahead_nbytes;  /* of one-way sends that were not synchronous, since those */
} srt_ucx_endpoint_t;

typedef struct srt_ucx_comm srt_ucx_comm_t;
typedef struct srt_ucx_slots srt_ucx_slots_t;

/* What UCX may still use after a message was given up. */
typedef struct srt_ucx_kept {
	srt_buffer_t *full, *shard; /* or NULL */
	srt_ucx_slots_t *slots;     /* or NULL */
} srt_ucx_kept_t;

/* A message that was posted; in the list of its start until it is complete. */
typedef struct srt_ucx_op {
	struct srt_ucx_op *next, *previous;
	struct srt_ucx_worker *worker;
	srt_coll_start_t *start; /* NULL: given up, see srt_ucx_give_up() */
	srt_ucx_kept_t kept;     /* of a message that was given up */
	void *request;           /* UCX's; NULL while it is posted */
	int peer;                /* in the communicator */
	bool is_send, is_sync;
	uint32_t round;
	int phase; /* index */
	size_t nbytes;
	uint32_t *nusers; /* of its send slot, or NULL */
	ucp_dt_iov_t *iov;
	size_t niov, iov_capacity;
} srt_ucx_op_t;

/* The transport_data of a start: its messages in flight. Protected by the worker's mutex. */
typedef struct srt_ucx_start {
	srt_ucx_op_t *ops;       /* posted and not complete */
	uint32_t nposted;        /* rounds whose receives are posted */
	uint32_t nrecvs[2];      /* pending receives, by round % 2 */
	uint32_t nsends[2];      /* pending sends, by round % 2 */
	uint32_t phase_sends[2]; /* pending sends, by phase */
	uint32_t npublished;     /* rounds that this rank has published */
	uint32_t npublish;       /* and those that it publishes, up to the last one */
	int failed_rank;         /* the peer of the first message that failed, -1 = none */
	bool failed_send;
	const char *failure; /* UCX's reason */
	bool is_broken;      /* a receive has failed or was cancelled: its bytes did not come */
	double failed_since;
} srt_ucx_start_t;

/* What a rank that waits for long tells a late one (order.c). */
typedef struct srt_ucx_told {
	uint32_t number; /* of the communicator */
	uint32_t rank;   /* in it */
	uint32_t start, coll;
} srt_ucx_told_t;

typedef struct srt_ucx_worker {
	const srt_ucx_library_t *ucx;
	srt_bootstrap_t *bootstrap;
	ucp_context_h context;
	bool shares_memory; /* UCX_TLS allows that ranks of a node are connected by it */
	ucp_address_t *address;
	size_t address_nbytes;
	int efd;

	atomic_int nlocking;   /* threads that wait for the mutex */
	pthread_mutex_t mutex; /* of all below, and of all calls of UCX */
	pthread_cond_t changed;
	ucp_worker_h worker;
	srt_ucx_endpoint_t *endpoints; /* [world_size] */
	srt_ucx_comm_t *comms;         /* linked list */
	uint32_t next_number;          /* of a communicator */
	srt_ucx_op_t *free_ops;
	srt_ucx_op_t *given_up; /* linked by next; freed with the worker */
	uint32_t nsends;        /* pending, of all communicators */
	srt_ucx_told_t *told;   /* [told_length] a ring: UCX reads them until they are sent */
	uint32_t told_length, ntold;
	int nwaiting;            /* threads in waits */
	_Atomic uint32_t nwaits; /* waits so far that did not end at once */
	bool driving;            /* one of them sleeps until the worker has events */
	uint64_t nevents;        /* messages completed, and other news for waits */
	pthread_t thread;        /* drives if none of them does */
	uint32_t nbusy;          /* times in a row that the worker could not be armed */
	bool has_thread, stopping;
	bool thread_sleeps; /* on thread_cond */
	bool thread_polls;  /* on efd */
	pthread_cond_t thread_cond;
} srt_ucx_worker_t;

/* The transport_data of a communicator. */
struct srt_ucx_comm {
	srt_ucx_comm_t *next; /* in worker->comms */
	srt_comm_t *comm;
	srt_ucx_worker_t *worker;
	uint32_t number; /* in tags: the same on all ranks, unique in each process */
	bool direct;     /* this rank's device memory is accessed by the host */
	bool all_direct; /* every rank's is */
	srt_ucx_slots_t *slots[SRT_NBOUNCE]; /* NULL = not in use */
	size_t slot_nbytes;
	double differs_since; /* when this rank saw that starts differ; 0: it did not */
};

/* ---- endpoints.c --------------------------------------------------------------------------- */

/* Around all calls of UCX. What UCX logs meanwhile goes to this library's log. */
void srt_ucx_lock(srt_ucx_worker_t *worker);
void srt_ucx_unlock(srt_ucx_worker_t *worker);
/* The endpoint of a rank of the world. Called with the mutex held. */
ucs_status_t srt_ucx_endpoint(srt_ucx_worker_t *worker, int world_rank, ucp_ep_h *ep);
/* Ends the connection to a rank: its pending messages complete with a failure. Called with the
 * mutex held. */
void srt_ucx_close_endpoint(srt_ucx_worker_t *worker, int world_rank);

/* ---- worker.c ------------------------------------------------------------------------------ */

/* The process's worker of this bootstrap, created by the first call. */
srt_status_t srt_ucx_worker_acquire(srt_bootstrap_t *bootstrap, srt_ucx_worker_t **worker);

/* ---- drive.c ------------------------------------------------------------------------------- */

/* What a wait of a start waits for. */
typedef enum srt_ucx_event {
	SRT_UCX_RECEIVED,   /* the receives of round `value` */
	SRT_UCX_SENT,       /* the sends of the rounds of the parity of `value` */
	SRT_UCX_PHASE_SENT, /* the sends of phase `value` */
	SRT_UCX_ALL_SENT,   /* all sends of the start */
	SRT_UCX_RELEASED,   /* `value` rounds of the slots have been released by this rank */
	SRT_UCX_PUBLISHED,  /* `value` rounds of the slots have been published by this rank */
	SRT_UCX_SLOT_SENT,  /* the sends from the send slot of round `value` of the slots */
} srt_ucx_event_t;

/* Blocks until the event. Fails with the communicator's poison, which it sets if a message fails,
 * if a rank has left, if the ranks started different collectives, or at the deadline. */
srt_status_t srt_ucx_wait(srt_coll_start_t *start, srt_ucx_event_t event, uint32_t value);
/* Slot of srt_transport_t. */
void srt_ucx_await_start(srt_coll_start_t *start);
/* Whether it has happened. Does not block. */
bool srt_ucx_happened(const srt_coll_start_t *start, srt_ucx_event_t event, uint32_t value);
/* Drives the worker until *pending is 0, or at most `seconds`. Called with the mutex held. */
void srt_ucx_drive_for(srt_ucx_worker_t *worker, const uint32_t *pending, double seconds);
/* Something has changed that a wait may be for. Called with the mutex held. */
void srt_ucx_notify(srt_ucx_worker_t *worker);
/* Makes progress until there is none. Returns whether there was any. Called with the mutex held. */
bool srt_ucx_progress(srt_ucx_worker_t *worker);
/* Sleeps until the worker has events, at most `seconds`; returns whether it has. Called with the
 * mutex held, and without it while it sleeps. */
bool srt_ucx_sleep(srt_ucx_worker_t *worker, double seconds);

/* ---- thread.c ------------------------------------------------------------------------------ */

/* Starts and stops the worker's thread. */
srt_status_t srt_ucx_thread_start(srt_ucx_worker_t *worker);
void srt_ucx_thread_stop(srt_ucx_worker_t *worker);
/* Messages were posted by a thread that does not wait for them. Called with the mutex held. */
void srt_ucx_thread_wake(srt_ucx_worker_t *worker);

/* ---- messages.c ---------------------------------------------------------------------------- */

/* Part of a message in host memory. */
typedef struct srt_ucx_part {
	void *address;
	size_t nbytes;
} srt_ucx_part_t;

/* A message of a round. All functions are called with the mutex held. */
srt_ucx_op_t *srt_ucx_op_begin(srt_coll_start_t *start, uint32_t round, int peer, bool is_send);
bool srt_ucx_op_add(srt_ucx_op_t *op, void *address, size_t nbytes);
/* Posts it. Failures are those of the start. one_way: a send to a rank that sends nothing back. */
void srt_ucx_op_post(srt_ucx_op_t *op, bool one_way);
/* Adds the peers of a start's pending sends and receives, or of one of them. */
void srt_ucx_add_peers(const srt_coll_start_t *start, bool sends, bool receives,
		       srt_ucx_ranks_t *peers);
/* Cancels what can be cancelled of a start's messages. */
void srt_ucx_cancel(srt_coll_start_t *start);
/* The start no longer waits for its messages. UCX may complete them only when the worker is
 * destroyed: a receive, half of which has come from a rank that then stopped or died. Its buffers
 * are kept until then; memory of the program (srt_buffer_wrap()) cannot be. */
void srt_ucx_give_up(srt_coll_start_t *start);
/* Releases what was kept for messages that were given up; the worker has been destroyed. */
void srt_ucx_release_kept(srt_ucx_worker_t *worker);
/* Receives and drops the messages of a communicator that no start expects; NULL: all. */
void srt_ucx_drop_messages(srt_ucx_worker_t *worker, const srt_ucx_comm_t *comm);

/* ---- order.c ------------------------------------------------------------------------------- */

/* Slots of srt_transport_t. */
bool srt_ucx_compare(srt_comm_t *comm, uint32_t start);
void srt_ucx_tell(const srt_coll_start_t *start, const srt_comm_t *part);
bool srt_ucx_may_report(srt_comm_t *comm, uint32_t start, int one, int other);
/* The handler of these messages; arg: the worker. */
ucs_status_t srt_ucx_handle_told(void *arg, const void *header, size_t header_nbytes, void *data,
				 size_t nbytes, const ucp_am_recv_param_t *param);

/* ---- slots.c ------------------------------------------------------------------------------- */

/* The transport_data of a collective, or NULL: host memory that chunks are received in and sent
 * from. As bounce buffers, a communicator has at most two sets, and a set's rounds use its slots
 * alternately in the order of starts. */
struct srt_ucx_slots {
	srt_ucx_comm_t *comm; /* NULL: kept, and no longer the communicator's */
	srt_bounce_kind_t kind;
	int nusers;
	size_t slot_nbytes;
	unsigned char *memory; /* host memory of all slots, or NULL: they are in `received` */
	size_t memory_nbytes;
	srt_buffer_t *received; /* SRT_STAGING_NSLOTS slots for receives */
	srt_buffer_t *sent;     /* and for sends; NULL: sends are direct */
	srt_buffer_t *scratch;  /* the peers' parts of a round on the device, for a sum; or NULL */
	unsigned char *received_host, *sent_host;
	uint32_t nrounds;                    /* of all starts so far */
	uint32_t nreleased, npublished;      /* of them */
	uint32_t nusing[SRT_STAGING_NSLOTS]; /* pending sends, by send slot */
};

srt_status_t srt_ucx_slots_acquire(srt_ucx_comm_t *comm, srt_bounce_kind_t kind,
				   srt_ucx_slots_t **slots);
/* Another release is to come, perhaps after the end of the communicator. NULL is allowed. */
void srt_ucx_slots_keep(srt_ucx_slots_t *slots);
/* NULL is allowed. */
void srt_ucx_slots_release(srt_ucx_slots_t *slots);
/* Bytes that a rank allocates for a set. */
size_t srt_ucx_slots_nbytes(int nranks, srt_bounce_kind_t kind, bool direct);

/* ---- rounds.c: slots of srt_transport_t ------------------------------------------------------ */

size_t srt_ucx_round_nbytes(const srt_coll_t *coll, srt_phase_t phase);
srt_status_t srt_ucx_run_action(srt_coll_start_t *start, srt_action_t action, uint32_t round);
bool srt_ucx_is_idle(const srt_coll_start_t *start, srt_action_t action, uint32_t round);
/* Bytes from the start of the round's receive slot to the part of a peer; and of its send slot. */
size_t srt_ucx_received_at(const srt_coll_start_t *start, uint32_t round, int peer);
size_t srt_ucx_sent_at(const srt_coll_start_t *start, uint32_t round, int peer);

static inline srt_ucx_comm_t *srt_ucx_comm_of(const srt_comm_t *comm)
{
	return comm->transport_data;
}

static inline srt_ucx_worker_t *srt_ucx_worker_of(const srt_comm_t *comm)
{
	return srt_ucx_comm_of(comm)->worker;
}

static inline srt_ucx_slots_t *srt_ucx_slots_of(const srt_coll_t *coll)
{
	return coll->transport_data;
}

static inline srt_ucx_start_t *srt_ucx_start_of(const srt_coll_start_t *start)
{
	return start->transport_data;
}

#endif
