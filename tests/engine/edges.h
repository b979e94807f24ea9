/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The waits of streams for events, as the library makes them in a part of a program, and a wait
 * that is left out. A program that uses this links with --wrap for the functions in edges.c.
 *
 * A wait has a kind, which names the waiting stream and the event, and a class: whether other waits
 * of the run order the same work (vector clocks). Calls come from one thread.
 */
#ifndef SRT_TESTS_EDGES_H
#define SRT_TESTS_EDGES_H

#include "runtime/engine/engine.h"
#include "runtime/scaler/scaler.h"

#define EDGES_MAX 1024
#define EDGES_MAX_KINDS 64

typedef enum edge_class {
	EDGE_SINGLE,  /* no other wait orders the same work */
	EDGE_IMPLIED, /* earlier waits do */
	EDGE_EARLY,   /* a later wait does, and the stream has no command between the two */
	EDGE_NCLASSES,
} edge_class_t;

typedef struct edge {
	int kind;
	edge_class_t class;
} edge_t;

/* The waits since edges_clear(), of a part that left out none. */
extern struct edges {
	edge_t of[EDGES_MAX];
	int n;
	char kinds[EDGES_MAX_KINDS][64];
	int nkinds;
} edges;

void edges_clear(void);
/* From here on wait `skipped` is left out; -1: none, and the waits are listed anew. */
void edges_begin(const srt_engine_t *engine, const srt_scaler_t *scaler, int skipped);
void edges_end(void);
/* srt_stream_wait_event() for an edge of the program: not listed, never left out. */
srt_status_t edges_wait(srt_stream_t *stream, srt_event_t *event);

#endif
