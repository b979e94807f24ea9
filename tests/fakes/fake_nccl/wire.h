/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replaces the wires between devices in tests: processes of one machine move bytes through
 * one piece of shared memory, a mailbox for each ordered pair of ranks. As with NCCL, nothing is
 * sent but the number of bytes: ranks whose calls do not fit together wait for ever, until each of
 * them is told to stop.
 *
 * Used by tests/fakes/backend_linked/ (a toy device with a library like NCCL) and by
 * tests/fakes/fake_nccl/.
 */
#ifndef SRT_TESTS_FAKE_NCCL_WIRE_H
#define SRT_TESTS_FAKE_NCCL_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define WIRE_ID_NBYTES 128
#define WIRE_MAX_RANKS 8

typedef struct wire wire_t;

typedef struct wire_call {
	enum {
		WIRE_SEND,    /* src, nbytes to peer */
		WIRE_RECV,    /* dst, nbytes from peer */
		WIRE_BCAST,   /* src of the root (peer) to everybody's dst */
		WIRE_GATHER,  /* everybody's src to dst + rank * nbytes */
		WIRE_SCATTER, /* the sum of everybody's src + rank * nbytes to dst, floats */
		WIRE_REDUCE,  /* the sum of everybody's src to dst, floats */
	} kind;
	unsigned char *dst;
	const unsigned char *src;
	size_t nbytes;
	int peer;
} wire_call_t;

/* A new id; false: the system refused. */
bool wire_make_id(unsigned char id[WIRE_ID_NBYTES]);
/* Joins as a rank. `who` names this rank's device. NULL: no such id. */
wire_t *wire_open(const unsigned char id[WIRE_ID_NBYTES], int rank, int size,
		  const unsigned char who[16]);
/* Whether all ranks have joined. */
bool wire_joined(const wire_t *wire);
/* This rank has aborted; whether all have, or are dead: at once, before all have joined. */
void wire_leave(wire_t *wire);
bool wire_all_left(const wire_t *wire);
/* A rank below `rank` that has the same device, or -1. When all have joined. */
int wire_twin(const wire_t *wire, int rank);
/* Does the calls of one group at once. False: *stop was set before the end, or with
 * FAKE_NCCL_P2P a rank has died, whose memory the device was reading. */
bool wire_run(wire_t *wire, const wire_call_t *calls, size_t ncalls, const atomic_bool *stop);
void wire_close(wire_t *wire);

#endif
