/* SPDX-License-Identifier: BSD-3-Clause */
/* Guards: see backends/guard.h. Lists are short and their locks are held for a few instructions; no
 * two of them at a time. */
#include "backends/guard.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_NBYTES 512

struct srt_guard {
	atomic_int nrefs;
	_Atomic uint32_t passed;
	pthread_mutex_t lock; /* of whoever fails it */
	/* What follows is written before it, once. */
	atomic_bool failed;
	uint32_t first;
	srt_status_t status;
	char text[TEXT_NBYTES];
};

/* a comes at b or after it. */
static bool reaches(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) >= 0;
}

srt_status_t srt_guard_create(srt_guard_t **out)
{
	srt_guard_t *guard = srt_calloc(1, sizeof(*guard), "a communicator");

	if (guard == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	atomic_init(&guard->nrefs, 1);
	pthread_mutex_init(&guard->lock, NULL);
	*out = guard;
	return SRT_OK;
}

void srt_guard_drop(srt_guard_t *guard)
{
	if (guard == NULL || atomic_fetch_sub(&guard->nrefs, 1) != 1)
		return;
	pthread_mutex_destroy(&guard->lock);
	free(guard);
}

void srt_guard_pass(srt_guard_t *guard, uint32_t number)
{
	atomic_store(&guard->passed, number);
}

void srt_guard_fail(srt_guard_t *guard, uint32_t first, srt_status_t status, const char *text)
{
	pthread_mutex_lock(&guard->lock);
	if (!atomic_load(&guard->failed)) {
		guard->first = first;
		guard->status = status;
		snprintf(guard->text, sizeof(guard->text), "%s", text);
		atomic_store(&guard->failed, true);
	}
	pthread_mutex_unlock(&guard->lock);
}

/* ---- lists ------------------------------------------------------------------------------ */

void srt_guards_init(srt_guards_t *guards)
{
	guards->n = 0;
	pthread_mutex_init(&guards->lock, NULL);
}

void srt_guards_clear(srt_guards_t *guards)
{
	pthread_mutex_lock(&guards->lock);
	while (guards->n > 0)
		srt_guard_drop(guards->at[--guards->n].guard);
	pthread_mutex_unlock(&guards->lock);
}

void srt_guards_free(srt_guards_t *guards)
{
	srt_guards_clear(guards);
	pthread_mutex_destroy(&guards->lock);
}

/* Under the lock: drops what has passed. */
static void prune(srt_guards_t *guards)
{
	int n = 0;

	for (int i = 0; i < guards->n; i++) {
		srt_guard_t *guard = guards->at[i].guard;

		if (reaches(atomic_load(&guard->passed), guards->at[i].number))
			srt_guard_drop(guard);
		else
			guards->at[n++] = guards->at[i];
	}
	guards->n = n;
}

srt_status_t srt_guards_add(srt_guards_t *guards, srt_guard_t *guard, uint32_t number)
{
	srt_status_t status = SRT_OK;
	int i = 0;

	pthread_mutex_lock(&guards->lock);
	prune(guards);
	while (i < guards->n && guards->at[i].guard != guard)
		i++;
	if (i < guards->n) {
		if (reaches(number, guards->at[i].number))
			guards->at[i].number = number;
	} else if (i == SRT_NGUARDS) {
		status = srt_fail(SRT_ERR_UNSUPPORTED,
				  "a stream waits for collectives of more than %d communicators "
				  "at a time",
				  SRT_NGUARDS);
	} else {
		atomic_fetch_add(&guard->nrefs, 1);
		guards->at[i].guard = guard;
		guards->at[i].number = number;
		guards->n++;
	}
	pthread_mutex_unlock(&guards->lock);
	return status;
}

srt_status_t srt_guards_join(srt_guards_t *guards, srt_guards_t *from)
{
	srt_guards_t held = { .n = 0 };
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&from->lock);
	prune(from);
	for (; held.n < from->n; held.n++) {
		held.at[held.n] = from->at[held.n];
		atomic_fetch_add(&held.at[held.n].guard->nrefs, 1);
	}
	pthread_mutex_unlock(&from->lock);
	for (int i = 0; i < held.n; i++) {
		if (status == SRT_OK)
			status = srt_guards_add(guards, held.at[i].guard, held.at[i].number);
		srt_guard_drop(held.at[i].guard);
	}
	return status;
}

bool srt_guards_have(srt_guards_t *guards, const srt_guard_t *guard, uint32_t number)
{
	bool found = false;

	pthread_mutex_lock(&guards->lock);
	for (int i = 0; i < guards->n; i++)
		found = found ||
			(guards->at[i].guard == guard && reaches(guards->at[i].number, number));
	pthread_mutex_unlock(&guards->lock);
	return found;
}

srt_status_t srt_guards_check(srt_guards_t *guards)
{
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&guards->lock);
	for (int i = 0; i < guards->n && status == SRT_OK; i++) {
		const srt_guard_t *guard = guards->at[i].guard;

		if (atomic_load(&guard->failed) && reaches(guards->at[i].number, guard->first))
			status = srt_fail(guard->status, "%s", guard->text);
	}
	pthread_mutex_unlock(&guards->lock);
	return status;
}
