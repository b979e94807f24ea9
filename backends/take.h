/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What sequences remember (sequence.c alone uses it):
 *
 *     take        work between two cuts as it came once: all pieces of it, and its recording
 *     stretch     one place of a sequence; a few takes, since e.g. micro-batches take turns
 *
 * Pieces are compared as bytes (work.h).
 */
#ifndef SRT_BACKENDS_TAKE_H
#define SRT_BACKENDS_TAKE_H

#include "backends/work.h"

#define SRT_MAX_TAKES 4 /* of a stretch */

typedef struct srt_piece_of_work {
	srt_work_t work;
	srt_status_t answer; /* OK or UNSUPPORTED */
} srt_piece_of_work_t;

typedef struct srt_take {
	const srt_device_t *device;
	srt_piece_of_work_t *pieces;
	size_t n, room;
	void *recording; /* the backend's, or NULL */
	bool plain;      /* could not be recorded */
	uint64_t used;   /* when */
} srt_take_t;

/* An empty one; NULL: no memory. */
srt_take_t *srt_take_new(const srt_device_t *device);
void srt_take_free(srt_take_t *take);
/* false: no memory. */
bool srt_take_add(srt_take_t *take, const srt_work_t *work, srt_status_t answer);
/* Whether its piece `at` is this work. */
bool srt_take_has(const srt_take_t *take, size_t at, const srt_work_t *work);
/* Puts the first n pieces on the stream, one by one. */
srt_status_t srt_take_issue(const srt_take_t *take, size_t n, srt_stream_t *stream);
/* Puts all of it on the stream: by its recording, which is made first if there is none. What cannot
 * be recorded goes piece by piece, now and later. The name is for the log. */
srt_status_t srt_take_play(srt_take_t *take, const char *name, srt_stream_t *stream);

typedef struct srt_stretch {
	srt_take_t *takes[SRT_MAX_TAKES];
	int ntakes;
	int strange; /* times in a row that something new came */
	bool ignored;
} srt_stretch_t;

/* Takes `take` over; the one that was used longest ago makes room, but not `keep`. */
void srt_stretch_add(srt_stretch_t *stretch, srt_take_t *take, const srt_take_t *keep);
void srt_stretch_drop(srt_stretch_t *stretch, srt_take_t *take);
void srt_stretch_forget(srt_stretch_t *stretch);
/* The one that came last, or NULL. */
srt_take_t *srt_stretch_last(const srt_stretch_t *stretch);
/* A take that has the first n pieces of `begin` (NULL: n is 0) and goes on with `work`, or ends
 * there if that is NULL; or NULL. */
srt_take_t *srt_stretch_find(const srt_stretch_t *stretch, const srt_take_t *begin, size_t n,
			     const srt_work_t *work);

#endif
