/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU backend: what is described, counted, refused and said. Memory of all kinds has an aligned
 * host address; peer memory is one memory in two mappings. What holds on any device is in
 * test_buffers.c.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/common/host_memory.h"
#include "backends/cpu/cpu.h"
#include "tests/harness/device.h"

static srt_status_t open_cpu(const srt_device_request_t *request, srt_device_t **device)
{
	return srt_device_open("cpu", request, SRT_NUMERICS_DEFAULT, device);
}

static void test_registry(void)
{
	const srt_backend_t *backend = NULL;

	CHECK_OK(srt_backend_lookup("auto", &backend));
	CHECK_OK(srt_backend_lookup(NULL, &backend));
	CHECK_OK(srt_backend_lookup("cpu", &backend));
	CHECK_STATUS(srt_backend_lookup("tpu", &backend), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("there is no backend \"tpu\"");
	CHECK_STATUS(srt_backend_lookup("CPU", &backend), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_backend_lookup("../cpu", &backend), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("cannot be the name");
	CHECK_STATUS(srt_backend_add(srt_backend_cpu()), SRT_ERR_STATE);
	CHECK_STATUS(srt_backend_add(&(srt_backend_t){ .abi = 99, .name = "old" }),
		     SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("rebuild the backend");
}

static void test_open(void)
{
	srt_device_request_t request = { .selector = "0", .local_size = 1, .threads = 3 };
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;
	srt_device_t *device = NULL;

	CHECK_OK_OR_DIE(open_cpu(&request, &device));
	CHECK_OK(srt_device_get_info(device, &info));
	CHECK_STR(info.backend, "cpu");
	CHECK(info.name[0]);
	CHECK(info.isa[0]);
	CHECK_INT(info.threads, 3);
	CHECK_INT(info.host_memory, 1);
	CHECK(info.mem_nbytes > 0);
	CHECK_INT(device->numerics, SRT_NUMERICS_EXACT);
	CHECK_STATUS(srt_device_get_info(device, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_device_get_info(NULL, &info), SRT_ERR_INVALID_ARGUMENT);
	srt_device_close(device);
	srt_device_close(NULL);

	/* More ranks than cores: still a thread each. */
	request = (srt_device_request_t){ .local_rank = 999, .local_size = 1000 };
	CHECK_OK_OR_DIE(open_cpu(&request, &device));
	CHECK_OK(srt_device_get_info(device, &info));
	CHECK_INT(info.threads, 1);
	CHECK_INT(info.async_streams, 0);
	srt_device_close(device);

	request = (srt_device_request_t){ .selector = "1", .local_size = 1 };
	CHECK_STATUS(open_cpu(&request, &device), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("SHARDRT_DEVICE=1");
}

/* Each set that the processor has can be forced; one that it lacks is an error that says so. */
static void test_isa(void)
{
	srt_device_request_t request = { .local_size = 1, .threads = 1 };
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;
	srt_device_t *device;

	for (int i = 0; i < SRT_ISA_COUNT; i++) {
		const char *isa = srt_cpu_isa_name(i);

		setenv("SHARDRT_CPU_ISA", isa, 1);
		if (!srt_cpu_isa_usable(i)) {
			CHECK_STATUS(open_cpu(&request, &device), SRT_ERR_UNSUPPORTED);
			CHECK_ERROR_HAS(isa);
			CHECK_ERROR_HAS("does not have these instructions");
			continue;
		}
		CHECK_OK_OR_DIE(open_cpu(&request, &device));
		CHECK_OK(srt_device_get_info(device, &info));
		CHECK_STR(info.isa, isa);
		srt_device_close(device);
	}
	unsetenv("SHARDRT_CPU_ISA");
}

static void test_binding(void)
{
	srt_device_request_t request = { .local_rank = 0, .local_size = 2, .threads = 4096 };
	cpu_set_t before, bound, after;
	srt_device_t *device;

	CHECK_OR_DIE(!sched_getaffinity(0, sizeof(before), &before));
	request.threads = 1;
	setenv("SHARDRT_BIND", "yes", 1);
	if (open_cpu(&request, &device) == SRT_OK) {
		CHECK_OR_DIE(!sched_getaffinity(0, sizeof(bound), &bound));
		CHECK(CPU_COUNT(&bound) > 0 && CPU_COUNT(&bound) < CPU_COUNT(&before));
		CPU_AND(&after, &bound, &before);
		CHECK(CPU_EQUAL(&after, &bound));
		srt_device_close(device);
		CHECK_OR_DIE(!sched_getaffinity(0, sizeof(after), &after));
		CHECK(CPU_EQUAL(&before, &after));
	} else {
		CHECK_ERROR_HAS("option bind or SHARDRT_BIND is yes, but");
	}

	request.local_size = 100000;
	CHECK_STATUS(open_cpu(&request, &device), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("option bind or SHARDRT_BIND is yes, but");
	setenv("SHARDRT_BIND", "auto", 1);
	CHECK_OK_OR_DIE(open_cpu(&request, &device));
	CHECK_OR_DIE(!sched_getaffinity(0, sizeof(after), &after));
	CHECK(CPU_EQUAL(&before, &after));
	srt_device_close(device);
	/* the option is before the variable */
	request.bind = "yes";
	CHECK_STATUS(open_cpu(&request, &device), SRT_ERR_UNSUPPORTED);
	setenv("SHARDRT_BIND", "yes", 1);
	request.bind = "no";
	CHECK_OK_OR_DIE(open_cpu(&request, &device));
	srt_device_close(device);
	unsetenv("SHARDRT_BIND");
}

static void test_host_addresses(srt_device_t *device)
{
	static const srt_mem_kind_t kinds[] = { SRT_MEM_DEVICE, SRT_MEM_PINNED, SRT_MEM_PEER };
	srt_stream_t *stream = test_stream(device, "s");
	unsigned char byte = 0;

	for (size_t k = 0; k < SRT_ARRAY_LEN(kinds); k++) {
		srt_buffer_t *b;
		unsigned char *p;

		CHECK_OK_OR_DIE(srt_buffer_create(device, kinds[k], 4097, "x", &b));
		p = srt_buffer_host(b);
		CHECK_OR_DIE(p);
		CHECK_INT((uintptr_t)p % SRT_CPU_ALIGN, 0);
		CHECK(srt_view_host(srt_view(b, 4096, SRT_U8)) == p + 4096);
		CHECK(srt_view_host(srt_view(b, 4098, SRT_U8)) == NULL);
		p[4096] = 0xa5;
		CHECK_OK(srt_buffer_copy_to_host(&byte, b, 4096, 1, stream));
		CHECK_INT(byte, 0xa5);
		srt_buffer_destroy(b);
	}
	srt_stream_destroy(stream);
}

static void test_buffer_limits(srt_device_t *device)
{
	srt_memory_limit_t limit;
	srt_buffer_t *b = NULL;
	char words[64];

	srt_memory_limit(&limit);
	CHECK(limit.available <= limit.limit);
	CHECK(limit.limit < SIZE_MAX);
	/* A memfd of this size would kill the process. */
	CHECK_STATUS(srt_buffer_create(device, SRT_MEM_PEER, limit.limit + 4096, "gradients", &b),
		     SRT_ERR_OUT_OF_MEMORY);
	CHECK_ERROR_HAS("\"gradients\"");
	snprintf(words, sizeof(words), "(%zu bytes)", limit.limit + 4096);
	CHECK_ERROR_HAS(words);
	snprintf(words, sizeof(words), "(%zu bytes)", limit.limit);
	CHECK_ERROR_HAS(words);
	CHECK(b == NULL);
	CHECK_INT(srt_device_allocated(device), 0);
}

static void test_peer_memory(srt_device_t *device)
{
	srt_buffer_t *mine, *theirs = NULL, *plain;
	srt_mem_handle_t handle;
	float *p, *q;

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_PEER, 10000, "flat", &mine));
	CHECK_OK_OR_DIE(srt_buffer_export(mine, &handle));
	CHECK_INT(handle.nbytes, 10000);
	CHECK(handle.fd >= 0);
	CHECK(ftruncate(handle.fd, 0) < 0); /* sealed: nobody can cut it away */
	handle.fd = dup(handle.fd);
	CHECK_OK_OR_DIE(srt_buffer_import(device, &handle, "flat of rank 1", &theirs));
	CHECK_INT(srt_buffer_nbytes(theirs), 10000);
	CHECK_INT(srt_device_allocated(device), 10000); /* theirs is not counted */
	p = srt_buffer_host(mine);
	q = srt_buffer_host(theirs);
	CHECK_OR_DIE(p != NULL && q != NULL && p != q);
	p[17] = 42.0f;
	CHECK(q[17] == 42.0f);
	CHECK_STATUS(srt_buffer_export(theirs, &handle), SRT_ERR_INVALID_ARGUMENT);
	/* The mapping lives on without the owner's. */
	srt_buffer_destroy(mine);
	CHECK(q[17] == 42.0f);
	srt_buffer_destroy(theirs);
	CHECK_INT(srt_device_allocated(device), 0);

	plain = test_buffer(device, 64, "private");
	CHECK_STATUS(srt_buffer_export(plain, &handle), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("\"private\" is not peer-visible");
	srt_buffer_destroy(plain);
}

/*
 * Reliability: memory of a peer that is too short or not sealed | SIGBUS when it is read | refused
 * when it is mapped
 */
static void test_bad_handles(srt_device_t *device)
{
	srt_buffer_t *b = NULL;
	srt_mem_handle_t handle = { .fd = -1, .nbytes = 4096 };
	int fd = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK_OR_DIE(fd >= 0 && !ftruncate(fd, 100));
	CHECK_STATUS(srt_buffer_import(device, &handle, "m", &b), SRT_ERR_INVALID_ARGUMENT);
	handle.fd = fd;
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) == 0);
	CHECK_STATUS(srt_buffer_import(device, &handle, "m", &b), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("memory \"m\" of a peer: the descriptor is not sealed memory of at least "
			"4.0 KiB (4096 bytes)");
	CHECK(!ftruncate(unsealed, 4096));
	handle.fd = unsealed;
	CHECK_STATUS(srt_buffer_import(device, &handle, "m", &b), SRT_ERR_INVALID_ARGUMENT);
	close(unsealed);
	CHECK(b == NULL);
	CHECK(fcntl(fd, F_GETFD) >= 0); /* not taken over on failure */
	close(fd);
	handle = (srt_mem_handle_t){ .fd = -1 };
	CHECK_OK_OR_DIE(srt_buffer_import(device, &handle, "empty shard", &b));
	CHECK_INT(srt_buffer_nbytes(b), 0);
	srt_buffer_destroy(b);
}

/*
 * Calls that succeed leave the last error as it was, whatever they tried.
 *
 * Reliability: the last error after a call that succeeded | a sentence of another call | unchanged
 */
static void test_no_stale_error(void)
{
	srt_backend_info_t info = SRT_BACKEND_INFO_INIT;
	const srt_backend_t *backend;

	CHECK_STATUS(srt_stream_sync(NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("srt_stream_sync: stream is NULL");
	for (size_t i = 0; i < srt_backend_count(); i++)
		CHECK_OK(srt_backend_get_info(i, &info));
	CHECK_OK(srt_backend_lookup("auto", &backend));
	CHECK_ERROR_HAS("srt_stream_sync: stream is NULL");
	srt_device_close(test_cpu_device(1, "inline"));
	CHECK_ERROR_HAS("srt_stream_sync: stream is NULL");
}

int main(void)
{
	srt_device_t *device = test_cpu_device(1, "inline");

	test_no_stale_error();
	test_registry();
	test_open();
	test_isa();
	test_binding();
	test_host_addresses(device);
	test_buffer_limits(device);
	test_peer_memory(device);
	test_bad_handles(device);
	srt_device_close(device);
	return check_done();
}
