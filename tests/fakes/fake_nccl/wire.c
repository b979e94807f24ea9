/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared memory as the wires between devices: see wire.h. */
#include "tests/fakes/fake_nccl/wire.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x57495245u
#define CHUNK ((size_t)32768)

/* From one rank to another: at most one chunk, full while produced > consumed. */
typedef struct box {
	_Alignas(64) _Atomic uint64_t produced;
	_Alignas(64) _Atomic uint64_t consumed;
	uint64_t total, at, nbytes; /* of the message, of the chunk in it */
	unsigned char data[CHUNK];
} box_t;

typedef struct hall {
	_Atomic uint32_t joined;
	_Atomic int32_t pid[WIRE_MAX_RANKS];
	_Atomic uint32_t left[WIRE_MAX_RANKS];
	unsigned char who[WIRE_MAX_RANKS][16];
	box_t box[WIRE_MAX_RANKS][WIRE_MAX_RANKS]; /* [from][to] */
} hall_t;

typedef struct id {
	uint32_t magic;
	int32_t pid, fd;
} id_t_;

struct wire {
	hall_t *hall;
	int fd; /* of who made the id, else -1 */
	int rank, size;
};

bool wire_make_id(unsigned char id[WIRE_ID_NBYTES])
{
	id_t_ made = { .magic = MAGIC, .pid = (int32_t)getpid() };

	made.fd = memfd_create("wire", MFD_CLOEXEC);
	if (made.fd < 0 || ftruncate(made.fd, sizeof(hall_t)) != 0)
		return false;
	memset(id, 0, WIRE_ID_NBYTES);
	memcpy(id, &made, sizeof(made));
	return true;
}

wire_t *wire_open(const unsigned char id[WIRE_ID_NBYTES], int rank, int size,
		  const unsigned char who[16])
{
	char path[64];
	id_t_ made;
	wire_t *wire;
	bool mine;
	int fd;

	memcpy(&made, id, sizeof(made));
	if (made.magic != MAGIC || size > WIRE_MAX_RANKS)
		return NULL;
	mine = made.pid == (int32_t)getpid();
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)made.pid, (int)made.fd);
	fd = mine ? made.fd : open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	wire = calloc(1, sizeof(*wire));
	if (wire == NULL)
		return NULL;
	*wire = (wire_t){ .fd = mine ? fd : -1, .rank = rank, .size = size };
	wire->hall = mmap(NULL, sizeof(hall_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!mine)
		close(fd);
	if (wire->hall == MAP_FAILED) {
		free(wire);
		return NULL;
	}
	memcpy(wire->hall->who[rank], who, 16);
	atomic_store(&wire->hall->pid[rank], (int32_t)getpid());
	atomic_fetch_add(&wire->hall->joined, 1);
	return wire;
}

bool wire_joined(const wire_t *wire)
{
	return atomic_load(&wire->hall->joined) >= (uint32_t)wire->size;
}

void wire_leave(wire_t *wire)
{
	atomic_store(&wire->hall->left[wire->rank], 1);
}

bool wire_all_left(const wire_t *wire)
{
	for (int r = 0; r < wire->size && wire_joined(wire); r++) {
		const pid_t pid = (pid_t)atomic_load(&wire->hall->pid[r]);

		if (!atomic_load(&wire->hall->left[r]) && kill(pid, 0) == 0)
			return false;
	}
	return true;
}

int wire_twin(const wire_t *wire, int rank)
{
	for (int r = 0; r < rank; r++) {
		if (memcmp(wire->hall->who[r], wire->hall->who[rank], 16) == 0)
			return r;
	}
	return -1;
}

void wire_close(wire_t *wire)
{
	if (wire == NULL)
		return;
	munmap(wire->hall, sizeof(hall_t));
	if (wire->fd >= 0)
		close(wire->fd);
	free(wire);
}

/* ---- moving ------------------------------------------------------------------------------ */

typedef struct part {
	bool send;
	int peer;
	unsigned char *bytes;
	size_t nbytes, done;
} part_t;

/* Whether a chunk could be moved. */
static bool step(wire_t *wire, part_t *p)
{
	box_t *box = p->send ? &wire->hall->box[wire->rank][p->peer] :
			       &wire->hall->box[p->peer][wire->rank];
	uint64_t consumed = atomic_load_explicit(&box->consumed, memory_order_acquire);
	uint64_t produced = atomic_load_explicit(&box->produced, memory_order_acquire);
	size_t n = p->nbytes - p->done < CHUNK ? p->nbytes - p->done : CHUNK;

	if (p->send) {
		if (produced != consumed)
			return false;
		box->total = p->nbytes;
		box->at = p->done;
		box->nbytes = n;
		memcpy(box->data, p->bytes + p->done, n);
		atomic_store_explicit(&box->produced, produced + 1, memory_order_release);
	} else {
		/* Another message than the one that is waited for: nobody will ever take it. */
		if (produced == consumed || box->total != p->nbytes || box->at != p->done)
			return false;
		memcpy(p->bytes + p->done, box->data, n);
		atomic_store_explicit(&box->consumed, consumed + 1, memory_order_release);
	}
	p->done += n;
	return true;
}

static bool any_dead(const wire_t *wire)
{
	for (int r = 0; r < wire->size; r++) {
		if (kill((pid_t)atomic_load(&wire->hall->pid[r]), 0) != 0)
			return true;
	}
	return false;
}

static bool move(wire_t *wire, part_t *parts, size_t n, const atomic_bool *stop)
{
	int idle = 0;

	for (size_t left = n; left > 0;) {
		bool busy[2][WIRE_MAX_RANKS] = { { false } }, moved = false;

		left = 0;
		for (size_t i = 0; i < n; i++) {
			part_t *p = &parts[i];

			/* Messages of a pair keep their order. */
			if (p->done < p->nbytes && !busy[p->send][p->peer])
				moved = step(wire, p) || moved;
			if (p->done < p->nbytes) {
				busy[p->send][p->peer] = true;
				left++;
			}
		}
		if (atomic_load(stop) ||
		    (idle > 4 && getenv("FAKE_NCCL_P2P") != NULL && any_dead(wire)))
			return false;
		idle = moved ? 0 : idle + 1;
		if (idle > 4)
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
		else if (idle > 0)
			sched_yield();
	}
	return true;
}

/* ---- groups ------------------------------------------------------------------------------ */

static void add(part_t *parts, size_t *n, bool send, int peer, const unsigned char *bytes,
		size_t nbytes)
{
	parts[(*n)++] = (part_t){ .send = send,
				  .peer = peer,
				  .bytes = (unsigned char *)(uintptr_t)bytes,
				  .nbytes = nbytes };
}

/* Everybody's part of a sum; this rank's own is where it is. */
static unsigned char *part_of(const wire_t *wire, const wire_call_t *c, unsigned char *scratch,
			      int rank)
{
	if (rank != wire->rank)
		return scratch + (size_t)rank * c->nbytes;
	return (unsigned char *)(uintptr_t)c->src +
	       (c->kind == WIRE_SCATTER ? (size_t)rank * c->nbytes : 0);
}

static void expand(const wire_t *wire, const wire_call_t *c, unsigned char *scratch, part_t *parts,
		   size_t *n)
{
	int me = wire->rank;

	if (c->kind == WIRE_SEND || c->kind == WIRE_RECV) {
		bool send = c->kind == WIRE_SEND;

		add(parts, n, send, c->peer, send ? c->src : c->dst, c->nbytes);
		return;
	}
	for (int r = 0; r < wire->size; r++) {
		size_t theirs = c->kind == WIRE_SCATTER ? (size_t)r * c->nbytes : 0;

		if (r == me)
			continue;
		if (c->kind != WIRE_BCAST || c->peer == me)
			add(parts, n, true, r, c->src + theirs, c->nbytes);
		if (c->kind == WIRE_GATHER)
			add(parts, n, false, r, c->dst + (size_t)r * c->nbytes, c->nbytes);
		else if (c->kind == WIRE_BCAST && c->peer == r)
			add(parts, n, false, r, c->dst, c->nbytes);
		else if (c->kind != WIRE_BCAST)
			add(parts, n, false, r, part_of(wire, c, scratch, r), c->nbytes);
	}
}

/* What remains on this rank: copies, and sums in falling order of ranks, which is not the tree. */
static void finish(const wire_t *wire, const wire_call_t *c, unsigned char *scratch)
{
	int me = wire->rank;

	if (c->kind == WIRE_GATHER && c->dst + (size_t)me * c->nbytes != c->src)
		memcpy(c->dst + (size_t)me * c->nbytes, c->src, c->nbytes);
	if (c->kind == WIRE_BCAST && c->peer == me && c->dst != c->src)
		memcpy(c->dst, c->src, c->nbytes);
	if (c->kind != WIRE_SCATTER && c->kind != WIRE_REDUCE)
		return;
	for (size_t i = 0; i < c->nbytes / sizeof(float); i++) {
		float sum = 0;

		for (int r = wire->size - 1; r >= 0; r--) {
			float x;

			memcpy(&x, part_of(wire, c, scratch, r) + i * sizeof(x), sizeof(x));
			sum = r == wire->size - 1 ? x : sum + x;
		}
		memcpy(c->dst + i * sizeof(sum), &sum, sizeof(sum));
	}
}

bool wire_run(wire_t *wire, const wire_call_t *calls, size_t ncalls, const atomic_bool *stop)
{
	size_t nparts = 0, at = 0, nbytes = 0;
	size_t most = 2 * ncalls * WIRE_MAX_RANKS;
	part_t *parts = calloc(most + 1, sizeof(*parts));
	unsigned char *scratch;
	bool done;

	for (size_t i = 0; i < ncalls; i++)
		if (calls[i].kind == WIRE_SCATTER || calls[i].kind == WIRE_REDUCE)
			nbytes += calls[i].nbytes * (size_t)wire->size;
	scratch = malloc(nbytes + 1);
	if (parts == NULL || scratch == NULL)
		abort();
	for (size_t i = 0; i < ncalls; i++) {
		expand(wire, &calls[i], scratch + at, parts, &nparts);
		if (calls[i].kind == WIRE_SCATTER || calls[i].kind == WIRE_REDUCE)
			at += calls[i].nbytes * (size_t)wire->size;
	}
	done = move(wire, parts, nparts, stop);
	at = 0;
	for (size_t i = 0; done && i < ncalls; i++) {
		finish(wire, &calls[i], scratch + at);
		if (calls[i].kind == WIRE_SCATTER || calls[i].kind == WIRE_REDUCE)
			at += calls[i].nbytes * (size_t)wire->size;
	}
	free(scratch);
	free(parts);
	return done;
}
