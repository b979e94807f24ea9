/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library like NCCL for collectives between toy devices, of the least help that the contract
 * allows: what init() begins is over only some polls later, a group waits for its peers for ever
 * unless it is aborted, an abort says nothing to anybody. Faults by environment:
 *
 *     LINKED_DEVICE=N   the device's number; two ranks of one are refused (default: one each)
 *     LINKED_ABSENT=1   the library is not there
 *     LINKED_REFUSE=1   init fails
 *     LINKED_HANG=N     the N-th group of this rank never ends
 *     LINKED_BREAK=N    from the N-th group on, poll reports a failure and groups never end
 *     LINKED_FAIL=N     the N-th group_end fails
 */
#include "tests/fakes/backend_linked/linked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/fake_nccl/wire.h"

#define MAX_CALLS 4096

typedef struct linked_comm {
	toy_device_t *device;
	wire_t *wire;
	atomic_bool aborted;
	int rank, size;
	long ngroups;
	bool in_group;
	atomic_bool broken;
	size_t ncalls;
	wire_call_t calls[MAX_CALLS];
} linked_comm_t;

static long number_of(const char *name)
{
	const char *text = getenv(name);

	return text != NULL ? strtol(text, NULL, 10) : 0;
}

static void device_id(unsigned char id[16])
{
	long number = getenv("LINKED_DEVICE") != NULL ? number_of("LINKED_DEVICE") : (long)getpid();

	memset(id, 0, 16);
	memcpy(id, &number, sizeof(number));
}

static srt_status_t probe(void *dev, srt_comm_description_t *description)
{
	toy_device_t *device = dev;

	if (number_of("LINKED_ABSENT"))
		return device->host->fail(SRT_ERR_UNSUPPORTED, "the library \"linked\" is missing");
	*description = (srt_comm_description_t){ .library = "linked 1", .version = 1 };
	device_id(description->device_id);
	return SRT_OK;
}

static srt_status_t make_id(void *dev, srt_comm_id_t *id)
{
	toy_device_t *device = dev;

	if (!wire_make_id(id->bytes))
		return device->host->fail(SRT_ERR_SYSTEM, "linked: no id");
	return SRT_OK;
}

static srt_status_t init(void *dev, const srt_comm_id_t *id, int rank, int size, void **out)
{
	toy_device_t *device = dev;
	linked_comm_t *c = device->host->alloc(sizeof(*c));
	unsigned char who[16];

	if (c == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(c, 0, sizeof(*c));
	c->device = device;
	c->rank = rank;
	c->size = size;
	device_id(who);
	if (!number_of("LINKED_REFUSE"))
		c->wire = wire_open(id->bytes, rank, size, who);
	if (c->wire == NULL) {
		device->host->free(c);
		return device->host->fail(SRT_ERR_DEVICE, "linked: cannot join");
	}
	*out = c;
	return SRT_OK;
}

typedef struct group {
	linked_comm_t *comm;
	size_t ncalls;
	wire_call_t calls[];
} group_t;

static srt_status_t group_run(void *stream, void *g)
{
	group_t *group = g;
	linked_comm_t *c = group->comm;

	/* Cut short or not: the stream goes on. */
	if (stream != NULL && !atomic_load(&c->aborted))
		wire_run(c->wire, group->calls, group->ncalls, &c->aborted);
	c->device->host->free(group);
	return SRT_OK;
}

static srt_status_t take_group(linked_comm_t *c, void **out)
{
	const size_t nbytes = c->ncalls * sizeof(*c->calls);
	group_t *group;

	if (c->ncalls == 0)
		return SRT_OK;
	group = c->device->host->alloc(sizeof(*group) + nbytes);
	if (group == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	group->comm = c;
	group->ncalls = c->ncalls;
	memcpy(group->calls, c->calls, nbytes);
	*out = group;
	return SRT_OK;
}

static srt_status_t poll_comm(void *comm, int *pending)
{
	linked_comm_t *c = comm;
	int twin;

	*pending = !wire_joined(c->wire);
	if (*pending)
		return SRT_OK;
	twin = wire_twin(c->wire, c->rank);
	if (twin >= 0)
		return c->device->host->fail(SRT_ERR_DEVICE,
					     "linked: ranks %d and %d are on one device", twin,
					     c->rank);
	if (c->broken)
		return c->device->host->fail(SRT_ERR_DEVICE, "linked: the link is broken");
	return SRT_OK;
}

static void abort_comm(void *comm)
{
	linked_comm_t *c = comm;

	atomic_store(&c->aborted, true);
}

static void destroy(void *comm)
{
	linked_comm_t *c = comm;

	wire_close(c->wire);
	c->device->host->free(c);
}

static srt_status_t group_begin(void *comm)
{
	linked_comm_t *c = comm;

	if (c->in_group)
		return c->device->host->fail(SRT_ERR_STATE, "linked: a group in a group");
	c->in_group = true;
	c->ncalls = 0;
	return SRT_OK;
}

static srt_status_t group_end(void *comm, void **group)
{
	linked_comm_t *c = comm;

	c->in_group = false;
	c->ngroups++;
	if (c->ngroups == number_of("LINKED_FAIL"))
		return c->device->host->fail(SRT_ERR_DEVICE, "linked: group_end fails on purpose");
	c->broken = number_of("LINKED_BREAK") && c->ngroups >= number_of("LINKED_BREAK");
	if (c->ncalls > 0 && (c->broken || c->ngroups == number_of("LINKED_HANG")))
		c->calls[c->ncalls++] = (wire_call_t){ .kind = WIRE_RECV, /* no rank sends */
						       .dst = c->calls[0].dst,
						       .nbytes = 1,
						       .peer = (c->rank + 1) % c->size };
	return take_group(c, group);
}

static srt_status_t call(linked_comm_t *c, wire_call_t call)
{
	if (!c->in_group || c->ncalls + 1 == MAX_CALLS || call.nbytes == 0)
		return c->device->host->fail(SRT_ERR_STATE, "linked: a call that cannot be");
	c->calls[c->ncalls++] = call;
	return SRT_OK;
}

static unsigned char *at(void *mem, size_t offset)
{
	return ((toy_mem_t *)mem)->bytes + offset;
}

static srt_status_t send(void *comm, void *mem, size_t offset, size_t nbytes, int peer)
{
	return call(comm, (wire_call_t){ .kind = WIRE_SEND,
					 .src = at(mem, offset),
					 .nbytes = nbytes,
					 .peer = peer });
}

static srt_status_t recv(void *comm, void *mem, size_t offset, size_t nbytes, int peer)
{
	return call(comm, (wire_call_t){ .kind = WIRE_RECV,
					 .dst = at(mem, offset),
					 .nbytes = nbytes,
					 .peer = peer });
}

static srt_status_t broadcast(void *comm, void *mem, size_t offset, size_t nbytes, int root)
{
	return call(comm, (wire_call_t){ .kind = WIRE_BCAST,
					 .dst = at(mem, offset),
					 .src = at(mem, offset),
					 .nbytes = nbytes,
					 .peer = root });
}

static srt_status_t all_gather(void *comm, void *dst, size_t dst_offset, void *src,
			       size_t src_offset, size_t nbytes)
{
	return call(comm, (wire_call_t){ .kind = WIRE_GATHER,
					 .dst = at(dst, dst_offset),
					 .src = at(src, src_offset),
					 .nbytes = nbytes });
}

static srt_status_t reduce_scatter(void *comm, void *dst, size_t dst_offset, void *src,
				   size_t src_offset, size_t nelem, srt_dtype_t dtype)
{
	linked_comm_t *c = comm;

	if (dtype != SRT_F32)
		return c->device->host->fail(SRT_ERR_UNSUPPORTED, "linked: sums of floats only");
	return call(c, (wire_call_t){ .kind = WIRE_SCATTER,
				      .dst = at(dst, dst_offset),
				      .src = at(src, src_offset),
				      .nbytes = nelem * sizeof(float) });
}

static srt_status_t all_reduce(void *comm, void *mem, size_t offset, size_t nelem,
			       srt_dtype_t dtype)
{
	linked_comm_t *c = comm;

	if (dtype != SRT_F32)
		return c->device->host->fail(SRT_ERR_UNSUPPORTED, "linked: sums of floats only");
	return call(c, (wire_call_t){ .kind = WIRE_REDUCE,
				      .dst = at(mem, offset),
				      .src = at(mem, offset),
				      .nbytes = nelem * sizeof(float) });
}

const srt_backend_comm_ops_t linked_comm_ops = {
	.name = "linked",
	.probe = probe,
	.make_id = make_id,
	.init = init,
	.poll = poll_comm,
	.abort = abort_comm,
	.destroy = destroy,
	.group_begin = group_begin,
	.group_end = group_end,
	.group_run = group_run,
	.send = send,
	.recv = recv,
	.broadcast = broadcast,
	.all_gather = all_gather,
	.reduce_scatter = reduce_scatter,
	.all_reduce = all_reduce,
};
