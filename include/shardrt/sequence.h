/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sequences: work that is put on a stream again and again.
 *
 *     srt_sequence_begin(sequence, stream);
 *     ...                                   all that a forward pass puts on the stream
 *     srt_sequence_end(sequence, stream);
 *
 * What stands between the two means what it means without them, also when it is different from the
 * last time: every piece of work is compared with what came before, with all its places and
 * arguments. Where the device can record work (CUDA graphs), what comes a second time is recorded,
 * and from then on put on the device as a whole: one call of the driver in the place of one for
 * each kernel. Results have the same bits. On other devices, and with SHARDRT_GRAPHS=no, the two
 * calls do nothing.
 *
 * Recordings are cut at what cannot be in one: waits for events and records of them, copies from
 * and to the host, collectives, dropout (whose seed is another one each time). So a step of many
 * units is several recordings. Two or three kernels between two cuts are put one by one.
 *
 * When: work that is expected is held back until the next cut or srt_sequence_end(), so a failure
 * to put it on the stream may be returned by a later call than without a sequence.
 */
#ifndef SHARDRT_SEQUENCE_H
#define SHARDRT_SEQUENCE_H

#include <shardrt/device.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What is remembered of work that comes again. Opaque. */
typedef struct srt_sequence srt_sequence_t;

/**
 * Makes an empty sequence.
 * @param name copied, for messages.
 * @param[out] sequence owned by the caller, set on success only; destroyed before its device.
 */
SRT_API srt_status_t srt_sequence_create(srt_device_t *device, const char *name,
					 srt_sequence_t **sequence);

/**
 * Frees a sequence and its recordings; work that was put on streams goes on. Not while the stream
 * that it is begun on is used by another thread. NULL is allowed.
 */
SRT_API void srt_sequence_destroy(srt_sequence_t *sequence);

/**
 * From here to srt_sequence_end() the sequence watches what is put on the stream. Of sequences
 * that are begun inside each other the first does the work, the others do nothing. On another
 * stream than last, or when a buffer that it uses was freed, it starts anew.
 * A sequence and the stream belong to one thread at a time.
 * @return SRT_ERR_STATE if it is begun already, SRT_ERR_INVALID_ARGUMENT for a stream of another
 *         device.
 */
SRT_API srt_status_t srt_sequence_begin(srt_sequence_t *sequence, srt_stream_t *stream);

/**
 * Ends it, to be called after failures too. All work is on the stream then.
 * @return the failure to put held work there; SRT_ERR_STATE if it is not begun.
 */
SRT_API srt_status_t srt_sequence_end(srt_sequence_t *sequence, srt_stream_t *stream);

/** Recordings put on the device's streams so far. Thread-safe. */
SRT_API uint64_t srt_device_replays(const srt_device_t *device);

#ifdef __cplusplus
}
#endif
#endif
