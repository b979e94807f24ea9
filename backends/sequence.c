/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sequences (include/shardrt/sequence.h): work that is remembered, compared and replayed.
 *
 * A sequence is as many stretches as there are cuts in it, and each remembers a few takes (take.h).
 * In a stretch the sequence follows a take: as long as what comes is what the take has next, it is
 * held back. At the cut the whole take is replayed (the second time it is recorded first). When
 * something else comes, what was held back is put on the stream, and the sequence learns: each
 * piece of work goes to the backend at once and into a new take.
 *
 * What a recording is compared by are the backend's memory objects. So the end of a buffer that was
 * used in a sequence makes all sequences of the device start anew (srt_sequence_buffer_gone()).
 */
#include <stdlib.h>

#include "backends/take.h"

/* A stretch that brought something new so often, with no replay between, is not followed any
 * more. */
#define MAX_STRANGE 12

struct srt_sequence {
	srt_device_t *device;
	char *name;
	bool begun;
	srt_stream_t *on; /* the stream whose sequence this is now, or NULL */

	uint64_t stream; /* number of the one that all takes are of */
	uint64_t gone;   /* device->gone, likewise */
	uint64_t clock;
	srt_stretch_t *stretches;
	size_t nstretches, room;

	/* of the present stretch */
	size_t at;
	size_t done;      /* pieces of work so far */
	srt_take_t *take; /* followed or learnt, or NULL */
	bool learning;    /* else `done` pieces of the take are held back */
	bool ignoring;    /* to its end */
};

/* ---- following and learning ---------------------------------------------------------------- */

static void forget(srt_sequence_t *s)
{
	for (size_t i = 0; i < s->nstretches; i++) {
		srt_stretch_forget(&s->stretches[i]);
		s->stretches[i].strange = 0;
		s->stretches[i].ignored = false;
	}
}

/* The present stretch, made if need be; NULL: no memory. */
static srt_stretch_t *present(srt_sequence_t *s)
{
	srt_stretch_t *stretches = srt_grow(s->stretches, s->at + 1, &s->room, sizeof(*stretches),
					    "the stretches of a sequence");

	if (!stretches)
		return NULL;
	s->stretches = stretches;
	if (s->at == s->nstretches)
		s->stretches[s->nstretches++] = (srt_stretch_t){ .ntakes = 0 };
	return &s->stretches[s->at];
}

static void start_stretch(srt_sequence_t *s)
{
	uint64_t gone = atomic_load(&s->device->gone);
	srt_stretch_t *stretch = present(s);

	if (s->gone != gone)
		forget(s);
	s->gone = gone;
	s->take = NULL;
	s->learning = false;
	s->ignoring = !stretch || stretch->ignored;
	/* What came last is what comes next, as a rule. */
	if (!s->ignoring)
		s->take = srt_stretch_last(stretch);
}

/* Another take that fits what is held back, and `work` behind it or its end. */
static srt_take_t *other_take(const srt_sequence_t *s, const srt_work_t *work)
{
	return srt_stretch_find(&s->stretches[s->at], s->take, s->done, work);
}

/* Puts what is held back on the stream; what follows is learnt. */
static srt_status_t start_learning(srt_sequence_t *s, srt_stream_t *stream)
{
	const srt_take_t *followed = s->take;
	srt_take_t *take = srt_take_new(s->device);
	bool enough = take != NULL;
	srt_status_t status = SRT_OK;

	for (size_t i = 0; i < s->done && enough; i++)
		enough = srt_take_add(take, &followed->pieces[i].work, followed->pieces[i].answer);
	if (s->done > 0)
		status = srt_take_issue(followed, s->done, stream);
	if (!enough) {
		srt_take_free(take);
		s->ignoring = true;
		return status;
	}
	srt_stretch_add(&s->stretches[s->at], take, followed);
	take->used = ++s->clock;
	s->take = take;
	s->learning = true;
	return status;
}

static void stop_learning(srt_sequence_t *s)
{
	srt_stretch_drop(&s->stretches[s->at], s->take);
	s->take = NULL;
	s->learning = false;
	s->ignoring = true;
}

static srt_status_t learn(srt_sequence_t *s, srt_stream_t *stream, const srt_work_t *work)
{
	srt_status_t status = srt_work_issue(stream, work);

	if ((status != SRT_OK && status != SRT_ERR_UNSUPPORTED) ||
	    !srt_take_add(s->take, work, status))
		stop_learning(s);
	return status;
}

static bool comes_next(const srt_sequence_t *s, const srt_work_t *work)
{
	return s->take && srt_take_has(s->take, s->done, work);
}

/* Each time another one. */
static bool varies(const srt_work_t *work)
{
	return work->kind == SRT_WORK_LAUNCH && work->u.launch.launch.kernel == SRT_K_DROPOUT;
}

srt_status_t srt_work_put(srt_stream_t *stream, const srt_work_t *work)
{
	srt_sequence_t *s = stream->sequence;
	srt_take_t *other;

	if (!s)
		return srt_work_issue(stream, work);
	if (varies(work)) {
		SRT_TRY(srt_sequence_cut(stream));
		return srt_work_issue(stream, work);
	}
	if (s->done == 0)
		start_stretch(s);
	if (!s->ignoring && !s->learning) {
		other = comes_next(s, work) ? s->take : other_take(s, work);
		if (other) {
			s->take = other;
			return other->pieces[s->done++].answer;
		}
		SRT_TRY(start_learning(s, stream));
	}
	s->done++;
	return s->learning ? learn(s, stream, work) : srt_work_issue(stream, work);
}

static srt_status_t play(srt_sequence_t *s, srt_take_t *take, srt_stream_t *stream)
{
	take->used = ++s->clock;
	s->stretches[s->at].strange = 0;
	return srt_take_play(take, s->name, stream);
}

/* The stretch has been learnt, or was new at its end. */
static void learnt(srt_sequence_t *s)
{
	srt_stretch_t *stretch = &s->stretches[s->at];

	if (++stretch->strange <= MAX_STRANGE)
		return;
	srt_log(SRT_LOG_DEBUG, "sequence \"%s\": stretch %zu is different each time", s->name,
		s->at);
	srt_stretch_forget(stretch);
	stretch->ignored = true;
}

srt_status_t srt_sequence_cut_now(srt_stream_t *stream)
{
	srt_sequence_t *s = stream->sequence;
	srt_status_t status = SRT_OK;
	srt_take_t *take = NULL;

	if (s->done == 0)
		return SRT_OK;
	if (!s->ignoring && !s->learning) {
		take = s->take->n == s->done ? s->take : other_take(s, NULL);
		status = take ? play(s, take, stream) : start_learning(s, stream);
	}
	if (s->learning)
		learnt(s);
	s->at++;
	s->done = 0;
	s->take = NULL;
	s->learning = false;
	return status;
}

/* ---- the public calls ---------------------------------------------------------------------- */

srt_status_t srt_sequence_create(srt_device_t *device, const char *name, srt_sequence_t **sequence)
{
	srt_sequence_t *s;

	if (!device || !sequence)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_sequence_create: %s is NULL",
				device ? "the result" : "device");
	s = srt_calloc(1, sizeof(*s), "a sequence");
	if (!s)
		return SRT_ERR_OUT_OF_MEMORY;
	s->name = srt_strdup(name ? name : "unnamed");
	if (!s->name) {
		free(s);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	s->device = device;
	*sequence = s;
	return SRT_OK;
}

void srt_sequence_destroy(srt_sequence_t *s)
{
	if (!s)
		return;
	if (s->on) {
		(void)srt_sequence_cut(s->on);
		s->on->sequence = NULL;
	}
	forget(s);
	free(s->stretches);
	free(s->name);
	free(s);
}

static bool can_replay(const srt_device_t *device)
{
	const srt_backend_work_ops_t *ops = device->backend->work;

	return ops->record_begin && ops->record_end && ops->replay && ops->recording_free &&
	       strcmp(srt_config_string("SHARDRT_GRAPHS"), "no") != 0;
}

srt_status_t srt_sequence_begin(srt_sequence_t *s, srt_stream_t *stream)
{
	if (!s || !stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_sequence_begin: %s is NULL",
				s ? "stream" : "sequence");
	if (s->device != stream->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_sequence_begin: sequence \"%s\" and stream \"%s\" belong to "
				"different devices",
				s->name, stream->name);
	if (s->begun)
		return srt_fail(SRT_ERR_STATE, "sequence \"%s\" is begun already", s->name);
	s->begun = true;
	if (stream->sequence || !can_replay(s->device))
		return SRT_OK;
	if (s->stream != stream->number)
		forget(s);
	s->stream = stream->number;
	s->at = s->done = 0;
	s->on = stream;
	stream->sequence = s;
	return SRT_OK;
}

srt_status_t srt_sequence_end(srt_sequence_t *s, srt_stream_t *stream)
{
	srt_status_t status = SRT_OK;

	if (!s || !stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_sequence_end: %s is NULL",
				s ? "stream" : "sequence");
	if (!s->begun || (s->on && s->on != stream))
		return srt_fail(SRT_ERR_STATE, "sequence \"%s\" is not begun on stream \"%s\"",
				s->name, stream->name);
	s->begun = false;
	if (s->on) {
		status = srt_sequence_cut(stream);
		stream->sequence = NULL;
		s->on = NULL;
	}
	return status;
}

void srt_sequence_stream_gone(srt_stream_t *stream)
{
	if (!stream->sequence)
		return;
	(void)srt_sequence_cut(stream);
	stream->sequence->on = NULL;
	stream->sequence = NULL;
}

uint64_t srt_device_replays(const srt_device_t *device)
{
	return device ? atomic_load_explicit(&device->nreplays, memory_order_relaxed) : 0;
}
