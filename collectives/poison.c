/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Poison: the failure of a communicator. A wait has failed, a rank has died, or a rank has aborted
 * it. The first reason is kept, and every pending and later wait returns it. All ranks report the
 * same message, so it names world ranks and never "this rank".
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comm.h"
#include "collectives/flight/flight.h"

static void set_own_poison(srt_comm_t *comm, srt_status_t status, const char *text)
{
	snprintf(comm->poison_text, sizeof(comm->poison_text), "%s", text);
	atomic_store_explicit(&comm->poison, status, memory_order_release);
}

/* Also of the parts of its hierarchy. Called with bootstrap->mutex held. Returns true if this is
 * the first poison. */
static bool set_poison(srt_comm_t *comm, srt_status_t status, const char *text)
{
	if (comm->parent != NULL)
		comm = comm->parent;
	if (srt_comm_poisoned(comm))
		return false;
	set_own_poison(comm, status, text);
	for (srt_comm_t *part = comm->bootstrap->comms; part != NULL; part = part->next) {
		if (part->parent == comm)
			set_own_poison(part, status, text);
	}
	return true;
}

/* The first reason why this rank leaves, which its farewell tells. Called with b->mutex held. */
static void record_failure(srt_bootstrap_t *b, srt_status_t status, const char *text)
{
	if (b->failure != SRT_OK)
		return;
	b->failure = status;
	snprintf(b->failure_text, sizeof(b->failure_text), "%s", text);
}

/* Called with b->mutex held. */
static void record_cause(srt_bootstrap_t *b, const char *text)
{
	if (b->cause_text[0] == '\0')
		snprintf(b->cause_text, sizeof(b->cause_text), "%s", text);
}

/* Adds to the sentence of a rank's end what may have caused it. Called with b->mutex held. */
static void add_cause(const srt_bootstrap_t *b, char text[SRT_CONTROL_TEXT])
{
	const size_t n = strlen(text);

	if (b->cause_text[0] != '\0' && strstr(text, b->cause_text) == NULL)
		snprintf(text + n, SRT_CONTROL_TEXT - n, "; an earlier failure: %s", b->cause_text);
}

/* To all ranks of the job; what `sender` has sent, to the other ranks of this node. They must know
 * before this process can end because of it, so before it is visible here. Called with b->mutex
 * held. */
static void send_abort_to_all(srt_bootstrap_t *b, int sender, uint64_t tag, uint32_t seq,
			      srt_status_t status, const char *text)
{
	if (b->control != NULL)
		srt_control_send_abort(b->control, sender, tag, seq, status, text);
}

void srt_comm_poison(srt_comm_t *comm, srt_status_t status, bool notify, const char *format, ...)
{
	srt_bootstrap_t *b = comm->bootstrap;
	char text[SRT_CONTROL_TEXT];
	va_list args;
	bool first;

	if (comm->parent != NULL)
		comm = comm->parent;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	pthread_mutex_lock(&b->mutex);
	if (notify && !srt_comm_poisoned(comm))
		send_abort_to_all(b, b->rank, comm->id, 0, status, text);
	first = set_poison(comm, status, text);
	if (first && comm->is_world)
		record_failure(b, status, text);
	if (first) {
		record_cause(b, text);
		srt_flight_request(b);
	}
	pthread_mutex_unlock(&b->mutex);
	if (!first)
		return;
	srt_log(SRT_LOG_ERROR, "rank %d: communicator \"%s\" failed: %s", b->rank, comm->name,
		text);
	if (b->control != NULL)
		srt_control_wake(b->control);
	srt_flight_flush(b);
}

void srt_comm_poison_dead(srt_comm_t *comm, int world_rank)
{
	srt_bootstrap_t *b = comm->bootstrap;
	char text[SRT_CONTROL_TEXT];

	snprintf(text, sizeof(text), SRT_COMM_DEATH_FORMAT, world_rank);
	pthread_mutex_lock(&b->mutex);
	add_cause(b, text);
	pthread_mutex_unlock(&b->mutex);
	srt_comm_poison(comm, SRT_ERR_PEER_DEAD, false, "%s", text);
}

void srt_comm_poison_closed(srt_comm_t *comm, const char *what)
{
	srt_bootstrap_t *b = comm->bootstrap;
	char text[SRT_CONTROL_TEXT];

	snprintf(text, sizeof(text), "rank %d destroyed %s", b->rank, what);
	pthread_mutex_lock(&b->mutex);
	set_poison(comm, SRT_ERR_STATE, text);
	pthread_mutex_unlock(&b->mutex);
}

bool srt_comm_await_poison(const srt_comm_t *comm, double seconds)
{
	const double since = srt_awake_s();

	while (!srt_comm_poisoned(comm) && srt_awake_s() - since < seconds)
		usleep(1000);
	return srt_comm_poisoned(comm);
}

void srt_comm_poison_left(srt_comm_t *comm, int rank)
{
	srt_bootstrap_t *b = comm->bootstrap;
	srt_status_t status;
	char text[SRT_CONTROL_TEXT];

	/* It may have told why before this communicator existed. */
	pthread_mutex_lock(&b->mutex);
	status = b->failure;
	snprintf(text, sizeof(text), "%s", b->failure_text);
	if (status == SRT_OK) {
		status = SRT_ERR_PEER_DEAD;
		snprintf(text, sizeof(text), "rank %d left the job before it took part",
			 comm->world_rank[rank]);
		add_cause(b, text);
	}
	pthread_mutex_unlock(&b->mutex);
	srt_comm_poison(comm, status, true, "%s", text);
}

void srt_comm_give_up(srt_comm_t *comm, uint32_t seq)
{
	srt_bootstrap_t *b = comm->bootstrap;

	if (atomic_load(&comm->poison) != SRT_ERR_PEER_DEAD || comm->has_told)
		return;
	comm->has_told = true;
	pthread_mutex_lock(&b->mutex);
	send_abort_to_all(b, b->rank, comm->id, seq, SRT_ERR_PEER_DEAD, comm->poison_text);
	pthread_mutex_unlock(&b->mutex);
}

srt_status_t srt_comm_fail(const srt_comm_t *comm, double waited_s, const char *format, ...)
{
	srt_status_t status = (srt_status_t)atomic_load(&((srt_comm_t *)(uintptr_t)comm)->poison);
	char doing[256], waited[48] = "", stopped[160] = "";
	va_list args;

	srt_flight_flush(comm->bootstrap);
	va_start(args, format);
	vsnprintf(doing, sizeof(doing), format, args);
	va_end(args);
	if (waited_s > 0)
		snprintf(waited, sizeof(waited), " (waited %.3g s)", waited_s);
	/* A rank of another node may have given up first, which does not know. */
	if (status == SRT_ERR_TIMEOUT && strstr(comm->poison_text, "is stopped") == NULL)
		srt_wait_list_stopped(comm, stopped, sizeof(stopped));
	return srt_fail(status, "rank %d: %s: %s%s%s", comm->world_rank[comm->rank], doing,
			comm->poison_text, stopped, waited);
}

void srt_bootstrap_poison_child(srt_bootstrap_t *b)
{
	char text[SRT_CONTROL_TEXT];

	snprintf(text, sizeof(text),
		 "this process is a child by fork() of rank %d, and cannot take part in its job: "
		 "make the call in the rank itself, or start another program by exec()",
		 b->rank);
	b->is_child = true;
	pthread_mutex_lock(&b->mutex);
	for (srt_comm_t *comm = b->comms; comm != NULL; comm = comm->next)
		set_own_poison(comm, SRT_ERR_STATE, text);
	pthread_mutex_unlock(&b->mutex);
}

static bool has_world_rank(const srt_comm_t *comm, int world_rank)
{
	for (int r = 0; r < comm->size; r++) {
		if (comm->world_rank[r] == world_rank)
			return true;
	}
	return false;
}

/* Poisons this process's communicators that have the rank. Called with bootstrap->mutex held.
 * Returns whether one was not poisoned before. */
static bool poison_rank(srt_bootstrap_t *b, int world_rank, srt_status_t status, const char *text)
{
	bool is_new = false;

	record_failure(b, status, text);
	record_cause(b, text);
	for (srt_comm_t *comm = b->comms; comm != NULL; comm = comm->next) {
		if (has_world_rank(comm, world_rank))
			is_new = set_poison(comm, status, text) || is_new;
	}
	if (is_new)
		srt_flight_request(b);
	return is_new;
}

srt_status_t srt_bootstrap_fail(srt_bootstrap_t *b, const char *what, srt_status_t status,
				const char *message)
{
	char text[SRT_CONTROL_TEXT];
	bool is_new;

	if (b->world_size == 1)
		return status;
	snprintf(text, sizeof(text), "%s failed on rank %d: %s", what, b->rank, message);
	pthread_mutex_lock(&b->mutex);
	send_abort_to_all(b, b->rank, SRT_CONTROL_TAG_RANK | (uint64_t)b->rank, 0, status, text);
	is_new = poison_rank(b, b->rank, status, text);
	pthread_mutex_unlock(&b->mutex);
	if (is_new)
		srt_log(SRT_LOG_ERROR, "rank %d: the job failed: %s", b->rank, text);
	srt_control_wake(b->control);
	srt_flight_flush(b);
	return srt_fail(status, "%s", text);
}

srt_status_t srt_comm_fail_alone(srt_comm_t *comm, const char *what, srt_status_t status,
				 const char *message)
{
	if (comm->size == 1 || srt_comm_poisoned(comm))
		return status;
	return srt_bootstrap_fail(comm->bootstrap, what, status, message);
}

srt_status_t srt_comm_share_failure(srt_comm_t *comm, const char *what, srt_stream_t *stream,
				    srt_status_t status)
{
	if (status == SRT_OK || srt_stream_check(stream) == SRT_OK)
		return status;
	return srt_comm_fail_alone(comm, what, status, srt_error_last());
}

void *srt_comm_calloc(srt_comm_t *comm, size_t n, size_t size, const char *what)
{
	void *p = srt_calloc(n, size, what);

	if (p == NULL)
		srt_comm_fail_alone(comm, what, SRT_ERR_OUT_OF_MEMORY, srt_error_last());
	return p;
}

/* The status and message of a notice; false if it poisons nothing (a rank left in order). */
static bool describe_notice(const srt_control_notice_t *notice, srt_status_t *status, char *text,
			    size_t n)
{
	*status = notice->status;
	switch (notice->what) {
	case SRT_CONTROL_NOTICE_DEAD:
		snprintf(text, n, SRT_COMM_DEATH_FORMAT, notice->rank);
		return true;
	case SRT_CONTROL_NOTICE_ABORT:
		snprintf(text, n, "%s", notice->text);
		return true;
	case SRT_CONTROL_NOTICE_LEFT:
		/* A rank that left because another died reports the dead rank. */
		snprintf(text, n, "%s", notice->text);
		return notice->status != SRT_OK;
	}
	return false;
}

void srt_bootstrap_handle_notice(void *arg, const srt_control_notice_t *notice)
{
	srt_bootstrap_t *b = arg;
	/* Another rank saw a death before this one did, or a rank cannot go on. */
	const bool of_rank = notice->what == SRT_CONTROL_NOTICE_ABORT &&
			     (notice->tag & SRT_CONTROL_TAG_RANK) != 0;
	const int rank = of_rank ? (int)(notice->tag & ~SRT_CONTROL_TAG_RANK) : notice->rank;
	const srt_control_notice_t death = { .what = SRT_CONTROL_NOTICE_DEAD,
					     .rank = rank,
					     .status = SRT_ERR_PEER_DEAD };
	char text[SRT_CONTROL_TEXT];
	bool is_new = false;
	srt_status_t status;

	if (of_rank && notice->text[0] == '\0')
		notice = &death;
	if (!describe_notice(notice, &status, text, sizeof(text)) || status == SRT_OK)
		return;
	pthread_mutex_lock(&b->mutex);
	if (notice->what == SRT_CONTROL_NOTICE_DEAD || (of_rank && status == SRT_ERR_PEER_DEAD))
		add_cause(b, text);
	if (notice->what == SRT_CONTROL_NOTICE_ABORT && b->comms != NULL &&
	    b->cause_text[0] == '\0')
		send_abort_to_all(b, notice->rank, notice->tag, notice->seq, status, text);
	record_cause(b, text);
	if (notice->what != SRT_CONTROL_NOTICE_ABORT || of_rank)
		is_new = poison_rank(b, rank, status, text);
	for (srt_comm_t *comm = b->comms; comm != NULL; comm = comm->next) {
		if (notice->what != SRT_CONTROL_NOTICE_ABORT || comm->id != notice->tag)
			continue;
		if (notice->seq < atomic_load(&comm->given_up))
			atomic_store(&comm->given_up, notice->seq);
		is_new = set_poison(comm, status, text);
		if (comm->is_world)
			record_failure(b, status, text);
		if (is_new)
			srt_flight_request(b);
	}
	pthread_mutex_unlock(&b->mutex);
	srt_flight_flush(b);
	if (is_new)
		srt_log(SRT_LOG_ERROR, "rank %d: the job failed: %s", b->rank, text);
	/* b->control is not set while the thread starts; then no thread waits. */
}

void srt_comm_enlist(srt_comm_t *comm)
{
	srt_bootstrap_t *b = comm->bootstrap;

	pthread_mutex_lock(&b->mutex);
	comm->next = b->comms;
	b->comms = comm;
	if (comm->parent != NULL && srt_comm_poisoned(comm->parent))
		set_own_poison(comm, (srt_status_t)atomic_load(&comm->parent->poison),
			       comm->parent->poison_text);
	pthread_mutex_unlock(&b->mutex);
}

void srt_comm_delist(srt_comm_t *comm)
{
	srt_bootstrap_t *b = comm->bootstrap;

	pthread_mutex_lock(&b->mutex);
	for (srt_comm_t **link = &b->comms; *link != NULL; link = &(*link)->next) {
		if (*link == comm) {
			*link = comm->next;
			break;
		}
	}
	pthread_mutex_unlock(&b->mutex);
}

void srt_comm_abort(srt_comm_t *comm, const char *reason)
{
	if (comm == NULL)
		return;
	srt_comm_poison(comm, SRT_ERR_ABORTED, true, "rank %d aborted communicator \"%s\": %s",
			comm->world_rank[comm->rank], comm->name,
			reason != NULL ? reason : "no reason given");
}
