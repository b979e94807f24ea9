/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The start-up probe of peer memory: kernels of this device and a "peer" (another mapping of the
 * same pages) exchange bytes in turns as in peer.c, several times in the same region, while kernels
 * write next to it. If a round fails, the device does not have peer memory. Called by device.c
 * after the kernels have passed their self-test.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/common/host_memory.h"
#include "backends/opencl/opencl.h"

#define NELEM ((size_t)1 << 14)
#define FIRST ((size_t)1000) /* the region that is exchanged; not at a page's edge */
#define REGION ((size_t)9000)
#define NROUNDS 4
#define NBYTES (NELEM * sizeof(float))

typedef struct probe {
	srt_ocl_device_t *device;
	srt_ocl_stream_t *stream;
	srt_ocl_mem_t *scratch;  /* device memory */
	srt_ocl_mem_t *own;      /* peer memory of this device, ... */
	srt_hostmem_t own_peer;  /* ... and the peer's view of it */
	srt_hostmem_t theirs;    /* memory of the peer, ... */
	srt_ocl_mem_t *imported; /* ... and this device's view of it */
	float words[NELEM];
} probe_t;

static float make_word(size_t i, int round)
{
	return (float)((i * 7919 + (size_t)round * 104729) % 1000003);
}

static void write_words(float *to, size_t nelem, int round)
{
	for (size_t i = 0; i < nelem; i++)
		to[i] = make_word(i, round);
}

static bool check_words(const float *from, size_t nelem, int round)
{
	for (size_t i = 0; i < nelem; i++)
		if (from[i] != make_word(i, round))
			return false;
	return true;
}

/* dst = src, by a kernel; offsets and sizes in elements. */
static srt_status_t run_kernel(probe_t *p, srt_ocl_mem_t *dst, size_t to, srt_ocl_mem_t *src,
			       size_t from, size_t nelem)
{
	srt_k_elem_t args = { .nelem = (int64_t)nelem, .value = 1.0f };
	srt_command_t command = {
		.kind = SRT_COMMAND_KERNEL,
		.kernel = SRT_K_SCALE,
		.dtype = SRT_F32,
		.nbindings = 2,
		.args_nbytes = sizeof(args),
		.ngroups = srt_kernel_grid(SRT_K_SCALE, &args),
		.bindings = { { dst, to * sizeof(float) }, { src, from * sizeof(float) } },
	};

	memcpy(command.args, &args, sizeof(args));
	return srt_ocl_submit(p->stream, &command);
}

static srt_status_t begin_turn(probe_t *p, srt_ocl_mem_t *mem)
{
	return srt_ocl_submit(p->stream, &(srt_command_t){
						 .kind = SRT_COMMAND_PEER_BEGIN,
						 .nbindings = 1,
						 .bindings = { { mem, FIRST * sizeof(float) } },
						 .bytes.nbytes = REGION * sizeof(float),
					 });
}

/* This device writes, the peer reads. */
static srt_status_t round_own(probe_t *p, int round, bool *good)
{
	srt_status_t status;

	write_words(p->words, REGION, round);
	status = srt_selftest_write(&p->device->selftest, p->stream, p->scratch, 0, p->words,
				    REGION * sizeof(float));
	if (status == SRT_OK)
		status = run_kernel(p, p->own, FIRST, p->scratch, 0, REGION);
	if (status == SRT_OK)
		status = begin_turn(p, p->own);
	if (status == SRT_OK) /* next to the region, while the peer reads */
		status = run_kernel(p, p->own, FIRST + REGION, p->scratch, 0,
				    NELEM - FIRST - REGION);
	if (status == SRT_OK)
		status = srt_ocl_stream_ops.sync(p->stream, 0);
	if (status == SRT_OK)
		*good = *good &&
			check_words((const float *)(void *)p->own_peer.addr + FIRST, REGION, round);
	return status;
}

/* The peer writes, this device reads. */
static srt_status_t round_imported(probe_t *p, int round, bool *good)
{
	srt_status_t status;

	write_words((float *)(void *)p->theirs.addr + FIRST, REGION, round);
	status = begin_turn(p, p->imported);
	if (status == SRT_OK)
		status = run_kernel(p, p->scratch, 0, p->imported, FIRST, REGION);
	if (status == SRT_OK)
		status = srt_selftest_read(&p->device->selftest, p->stream, p->words, p->scratch,
					   REGION * sizeof(float));
	if (status == SRT_OK)
		*good = *good && check_words(p->words, REGION, round);
	return status;
}

static srt_status_t run_rounds(probe_t *p, bool *good)
{
	srt_status_t status = SRT_OK;

	*good = true;
	for (int round = 0; round < NROUNDS && *good && status == SRT_OK; round++) {
		status = round_own(p, round, good);
		if (status == SRT_OK)
			status = round_imported(p, NROUNDS + round, good);
	}
	return status;
}

/* A handle with a duplicated descriptor for an importer, which owns it. */
static srt_mem_handle_t handle_of(int fd)
{
	return (srt_mem_handle_t){ .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0), .nbytes = NBYTES };
}

static srt_status_t make_memory(probe_t *p)
{
	const srt_backend_mem_ops_t *mem = &srt_ocl_mem_ops;
	const srt_host_services_t *host = p->device->host;
	srt_mem_handle_t handle;
	srt_status_t status;
	void *made = NULL;

	status = mem->alloc(p->device, SRT_MEM_DEVICE, NBYTES, "peer probe", &made);
	p->scratch = made;
	if (status != SRT_OK)
		return status;
	made = NULL;
	status = mem->alloc(p->device, SRT_MEM_PEER, NBYTES, "peer probe", &made);
	p->own = made;
	if (status != SRT_OK)
		return status;
	handle = handle_of(p->own->fd);
	status = srt_hostmem_import(host, &handle, PROT_READ | PROT_WRITE, &p->own_peer);
	if (status != SRT_OK)
		goto close_fd;
	close(handle.fd);
	status = srt_hostmem_create(host, NBYTES, "peer probe", &p->theirs);
	if (status != SRT_OK)
		return status;
	handle = handle_of(p->theirs.fd);
	made = NULL;
	status = srt_ocl_peer_import(p->device, &handle, &made);
	p->imported = made;
	if (status == SRT_OK)
		return SRT_OK;

close_fd:
	if (handle.fd >= 0)
		close(handle.fd);
	return status;
}

static void free_memory(probe_t *p)
{
	const srt_backend_mem_ops_t *mem = &srt_ocl_mem_ops;
	srt_ocl_mem_t *all[] = { p->scratch, p->own, p->imported };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i] != NULL)
			mem->free(p->device, all[i]);
	if (p->own_peer.addr != NULL)
		srt_hostmem_free(&p->own_peer);
	if (p->theirs.addr != NULL)
		srt_hostmem_free(&p->theirs);
}

srt_status_t srt_ocl_peer_probe(srt_ocl_device_t *device)
{
	const srt_host_services_t *host = device->host;
	srt_status_t status;
	bool good = false;
	void *stream;
	probe_t *p;

	device->peer_memory = false;
	/* With separate device memory, peers would read over the bus: staging is faster. */
	if (!device->unified_memory)
		return SRT_OK;
	p = host->alloc(sizeof(*p));
	if (p == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(p, 0, sizeof(*p));
	p->device = device;
	status = srt_ocl_stream_ops.create(device, 0, "probe", &stream);
	if (status != SRT_OK)
		goto free_probe;
	p->stream = stream;
	status = make_memory(p);
	if (status == SRT_OK)
		status = run_rounds(p, &good);
	srt_ocl_stream_ops.destroy(stream);
	free_memory(p);
	device->peer_memory = status == SRT_OK && good;
	if (!device->peer_memory)
		host->log(SRT_LOG_INFO, "device \"%s\": memory cannot be shared with peers (%s)",
			  device->name,
			  status == SRT_OK ? "they see other bytes" : host->last_error());
	status = SRT_OK;

free_probe:
	host->free(p);
	return status;
}
