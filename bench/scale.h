/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of bench/scale: see scale.c. */
#ifndef SRT_BENCH_SCALE_H
#define SRT_BENCH_SCALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shardrt/models/families.h>

#define SCALE_MAX_OPS 256

/* What a rank sends to ranks of its node [0] and of other nodes [1]. */
typedef struct scale_count {
	uint64_t messages[2], bytes[2];
	uint64_t rounds; /* of data; of the control channel: exchanges */
} scale_count_t;

/* A call of a step: what it sends, and what is computed after it. */
typedef struct scale_op {
	enum { SCALE_FORWARD, SCALE_BACKWARD, SCALE_REDUCE, SCALE_STEP } kind;
	double nparams; /* of the unit */
	scale_count_t data;
} scale_op_t;

/* What a rank of the sample has seen. */
typedef struct scale_record {
	double join_s, build_s;
	scale_count_t control; /* until the engine is built */
	uint64_t connections;  /* of UCX, after a step */
	size_t plan,
		tables; /* bytes: of the memory plan, and of what the library allocates apart */
	int nops;
	scale_op_t ops[SCALE_MAX_OPS];
} scale_record_t;

/* ---- scale_links.c: what is sent, counted; in a model also answered ------------------------- */

/* is_model: nothing is sent to ranks without a process here. node: ranks of a node; 0: as they
 * are. Before a context is created. */
void scale_links_begin(bool is_model, int node);
scale_count_t scale_links_data(void);
scale_count_t scale_links_control(void);
uint64_t scale_links_connections(void);

/* ---- scale_rank.c --------------------------------------------------------------------------- */

/* Joins, builds the model with zero3 and AdamW, runs a step without compute. Ends the process if
 * something fails. */
void scale_rank_run(const srt_decoder_config_t *config, scale_record_t *record);

/* ---- scale_nodes.c -------------------------------------------------------------------------- */

/* Joins rank 0 at the port for all nodes but the first, and keeps their connections open until the
 * ranks of the first node have left. */
void scale_nodes_run(int world, int node, int port);

#endif
