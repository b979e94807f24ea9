/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the toy device. What makes it a device's is that only pinned memory gives its address
 * away; there is no memory that peers can map, so collectives between ranks are staged through
 * memory that the library lends (wrap_host).
 */
#include <string.h>

#include "tests/fakes/backend_toy/toy.h"

static srt_status_t mem_alloc(void *dev, srt_mem_kind_t kind, size_t nbytes, const char *name,
			      void **out)
{
	toy_device_t *device = dev;
	toy_mem_t *mem = device->host->alloc(sizeof(*mem));
	unsigned char *bytes = device->host->alloc(nbytes);

	if (mem == NULL || bytes == NULL) {
		device->host->free(mem);
		device->host->free(bytes);
		return device->host->fail(SRT_ERR_OUT_OF_MEMORY,
					  "\"%s\": no %zu bytes of memory on the toy device", name,
					  nbytes);
	}
	memset(bytes, 0, nbytes);
	*mem = (toy_mem_t){
		.bytes = bytes, .nbytes = nbytes, .pinned = kind == SRT_MEM_PINNED, .owned = true
	};
	*out = mem;
	return SRT_OK;
}

static void mem_free(void *dev, void *m)
{
	toy_device_t *device = dev;
	toy_mem_t *mem = m;

	if (mem->owned) {
		/* A late reader notices: as floats these are NaN. */
		memset(mem->bytes, 0xff, mem->nbytes);
		device->host->free(mem->bytes);
	}
	device->host->free(mem);
}

static void *mem_host(void *device, void *m)
{
	toy_mem_t *mem = m;

	(void)device;
	return mem->pinned ? mem->bytes : NULL;
}

static srt_status_t mem_wrap_host(void *dev, void *host, size_t nbytes, const char *name,
				  void **out)
{
	toy_device_t *device = dev;
	toy_mem_t *mem = device->host->alloc(sizeof(*mem));

	(void)name;
	if (mem == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	*mem = (toy_mem_t){ .bytes = host, .nbytes = nbytes, .pinned = true };
	*out = mem;
	return SRT_OK;
}

const srt_backend_mem_ops_t toy_mem_ops = {
	.alloc = mem_alloc,
	.free = mem_free,
	.host = mem_host,
	.wrap_host = mem_wrap_host,
};
