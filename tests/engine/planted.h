/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plants a wrong element in the gradients that an engine reduces. For programs that are linked with
 * --wrap=srt_coll_start,--wrap=srt_event_record.
 */
#ifndef SRT_TESTS_ENGINE_PLANTED_H
#define SRT_TESTS_ENGINE_PLANTED_H

#include "tests/engine/engine_case.h"

typedef enum where {
	BEFORE_SUM,   /* a part, after it was projected */
	AFTER_SUM,    /* what a collective stored: over all ranks or those of a replica ... */
	AFTER_SECOND, /* ... or over the replicas */
	AFTER_STORE,  /* the gradient shard */
} where_t;

typedef enum change {
	ADD,      /* `delta` */
	EXCHANGE, /* with the next element, which differs */
	SET,      /* to `delta` */
} change_t;

extern struct planted_fault {
	const srt_param_t *param; /* NULL: none */
	where_t where;
	change_t change;
	int rank, micro;
	int64_t element; /* of the view */
	float delta;
	bool planted;
} fault;

#endif
