/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of a small and a large buffer; see bench.h. */
#include <stdio.h>
#include <stdlib.h>

#include "models/try.h"
#include "tools/info/bench.h"

static srt_status_t start_collective(bench_t *b, void *arg)
{
	SRT_TRY(srt_coll_start(arg, NULL, b->stream));
	return srt_coll_wait_readers(arg, b->stream);
}

/* Bytes that a rank reads and writes at least: nbytes, and the result, a part of them in a
 * reduce-scatter. */
static double least_bytes(srt_coll_kind_t kind, double nbytes, double n)
{
	return nbytes + (kind == SRT_COLL_REDUCE_SCATTER ? nbytes / n : nbytes);
}

/* A small buffer stays in caches, and its time is that of messages: without a limit. */
static srt_status_t measure_kind(bench_t *b, srt_coll_desc_t *desc, const char *name, size_t nbytes)
{
	const double moved = least_bytes(desc->kind, (double)nbytes, b->ranks.world);
	const bool is_large = nbytes >= 1u << 20;
	srt_coll_t *coll;
	srt_status_t status;
	char text[48];

	snprintf(text, sizeof(text), "%s, %zu %s", name, nbytes >> (is_large ? 20 : 10),
		 is_large ? "MiB" : "KiB");
	SRT_TRY(srt_coll_create(b->ranks.comm, desc, &coll));
	status = bench_measure(b,
			       &(bench_row_t){ text, start_collective, coll, moved, false,
					       is_large ? b->copy : 0.0, 0.6 },
			       NULL);
	srt_coll_destroy(coll);
	return status;
}

typedef struct sides {
	srt_buffer_t *full, *shard;
	srt_coll_segment_t *segments; /* [ranks], as owners */
	srt_coll_owner_t *owners;
} sides_t;

static srt_status_t run_size(bench_t *b, size_t nbytes, sides_t *s)
{
	const size_t n = (size_t)b->ranks.world, each = nbytes / sizeof(float) / n;
	const srt_mem_kind_t kind = srt_comm_mem_kind(b->ranks.comm);
	srt_coll_desc_t desc = { .size = sizeof(desc), .name = "bench", .dtype = SRT_F32 };

	s->segments = calloc(n, sizeof(*s->segments));
	s->owners = calloc(n, sizeof(*s->owners));
	if (s->segments == NULL || s->owners == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no memory for %zu ranks", n);
	for (size_t r = 0; r < n; r++) {
		s->segments[r] = (srt_coll_segment_t){ r * each, 0, each };
		s->owners[r] = (srt_coll_owner_t){ &s->segments[r], 1 };
	}
	SRT_TRY(srt_buffer_create(b->device, kind, nbytes, "full", &s->full));
	SRT_TRY(srt_buffer_create(b->device, kind, nbytes / n, "shard", &s->shard));
	desc.owners = s->owners;
	desc.full = srt_view(s->full, 0, SRT_F32);
	desc.shard = srt_view(s->shard, 0, SRT_F32);
	desc.kind = SRT_COLL_ALL_GATHER;
	SRT_TRY(measure_kind(b, &desc, "all-gather", nbytes));
	desc.kind = SRT_COLL_REDUCE_SCATTER;
	SRT_TRY(measure_kind(b, &desc, "reduce-scatter", nbytes));
	desc.kind = SRT_COLL_ALL_REDUCE; /* in place: of zeros, which do not grow */
	return measure_kind(b, &desc, "all-reduce", nbytes);
}

static srt_status_t measure_size(bench_t *b, size_t nbytes)
{
	sides_t s = { .full = NULL };
	const srt_status_t status = run_size(b, nbytes, &s);

	srt_buffer_destroy(s.shard);
	srt_buffer_destroy(s.full);
	free(s.owners);
	free(s.segments);
	return status;
}

srt_status_t bench_collectives(bench_t *b)
{
	if (b->ranks.world == 1)
		return SRT_OK;
	SRT_TRY(measure_size(b, 64u << 10));
	return measure_size(b, 64u << 20);
}
