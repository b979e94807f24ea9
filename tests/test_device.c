/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices, buffers and views on the CPU backend: what is described, counted, refused and said.
 * Memory of all kinds is zero, aligned and writable; peer memory is one memory in two mappings.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"
#include "backends/hostmem.h"
#include "tests/device.h"

static srt_status_t open_cpu(const srt_device_request_t *request, srt_device_t **device)
{
	return srt_device_open("cpu", request, SRT_NUMERICS_DEFAULT, device);
}

static void test_registry(void)
{
	srt_device_request_t request = { .local_size = 1, .threads = 1 };
	const srt_backend_t *backend = NULL;
	srt_device_t *device = NULL;

	CHECK_OK(srt_backend_lookup("auto", &backend));
	CHECK_STR(backend->name, "cpu");
	CHECK_OK(srt_backend_lookup(NULL, &backend));
	CHECK_OK(srt_backend_lookup("cpu", &backend));
	CHECK_STATUS(srt_device_open("cuda", &request, SRT_NUMERICS_DEFAULT, &device),
		     SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("not part of this build");
	CHECK_STATUS(srt_backend_lookup("xpu", &backend), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("opencl");
	CHECK_STATUS(srt_backend_lookup("tpu", &backend), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("there is no backend \"tpu\"");
	CHECK_STATUS(srt_backend_lookup("CPU", &backend), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_backend_add(srt_backend_cpu()), SRT_ERR_STATE);
	CHECK_STATUS(srt_backend_add(&(srt_backend_t){ .abi = 99, .name = "old" }),
		     SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("rebuild the backend");
	CHECK(!device);
}

static void test_open(void)
{
	srt_device_request_t request = { .selector = "0", .local_size = 1, .threads = 3 };
	srt_device_info_t info;
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
	srt_device_info_t info;
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

/* A sum whose last bit is wrong. */
static srt_status_t run_wrong(void *device, const srt_launch_t *launch, unsigned char *const *host,
			      const size_t *nbytes)
{
	srt_status_t status = srt_cpu_selftest_run(device, launch, host, nbytes);

	if (launch->kernel == SRT_K_BIAS_BACKWARD)
		host[0][0] ^= 1;
	return status;
}

static void test_selftest(srt_device_t *device)
{
	CHECK_OK(srt_cpu_selftest(device->impl, srt_cpu_selftest_run, 1));
	CHECK_STATUS(srt_cpu_selftest(device->impl, run_wrong, 1), SRT_ERR_DEVICE);
	CHECK_ERROR_HAS("kernel \"bias_backward\" gives other bits");
	CHECK_ERROR_HAS("refused in exact mode");
	CHECK_OK(srt_cpu_selftest(device->impl, run_wrong, 0));
}

static void test_binding(void)
{
	srt_device_request_t request = { .local_rank = 0, .local_size = 2, .threads = 4096 };
	cpu_set_t before, after;
	srt_device_t *device;

	CHECK_OR_DIE(!sched_getaffinity(0, sizeof(before), &before));
	request.threads = 1;
	CHECK_OK_OR_DIE(open_cpu(&request, &device));
	srt_device_close(device);
	CHECK_OR_DIE(!sched_getaffinity(0, sizeof(after), &after));
	CHECK(CPU_EQUAL(&before, &after));

	request.local_size = 100000;
	setenv("SHARDRT_BIND", "yes", 1);
	CHECK_STATUS(open_cpu(&request, &device), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("SHARDRT_BIND=yes, but");
	unsetenv("SHARDRT_BIND");
}

static void test_buffers(srt_device_t *device)
{
	static const size_t sizes[] = { 1, 63, 64, 4097, 3 << 20 };
	static const srt_mem_kind_t kinds[] = { SRT_MEM_DEVICE, SRT_MEM_PINNED, SRT_MEM_PEER };
	uint64_t made = srt_device_allocations(device);

	for (size_t k = 0; k < SRT_ARRAY_LEN(kinds); k++) {
		for (size_t i = 0; i < SRT_ARRAY_LEN(sizes); i++) {
			srt_buffer_t *b = NULL;
			unsigned char *p;
			size_t nonzero = 0;

			CHECK_OK_OR_DIE(srt_buffer_create(device, kinds[k], sizes[i], "x", &b));
			CHECK_INT(srt_buffer_nbytes(b), sizes[i]);
			CHECK_INT(srt_device_allocated(device), sizes[i]);
			CHECK_INT(srt_device_allocations(device), ++made);
			p = srt_buffer_host(b);
			CHECK_OR_DIE(p);
			CHECK_INT((uintptr_t)p % SRT_CPU_ALIGN, 0);
			for (size_t j = 0; j < sizes[i]; j++)
				nonzero += p[j] != 0;
			CHECK_INT(nonzero, 0);
			memset(p, 0xa5, sizes[i]);
			srt_buffer_destroy(b);
			CHECK_INT(srt_device_allocated(device), 0);
		}
	}
}

static void test_buffer_limits(srt_device_t *device)
{
	srt_memory_limit_t limit;
	srt_buffer_t *b = NULL;
	char words[64];

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, 0, "empty", &b));
	CHECK_INT(srt_buffer_nbytes(b), 0);
	CHECK(!srt_buffer_host(b));
	srt_buffer_destroy(b);
	srt_buffer_destroy(NULL);
	CHECK_INT(srt_device_allocated(device), 0);
	b = NULL;

	CHECK_STATUS(srt_buffer_create(device, SRT_MEM_DEVICE, SIZE_MAX, "all of it", &b),
		     SRT_ERR_OUT_OF_MEMORY);
	CHECK_ERROR_HAS("\"all of it\"");
	srt_memory_limit(&limit);
	CHECK(limit.available <= limit.limit);
	CHECK(limit.limit < SIZE_MAX);
	/* A memfd of this size would kill the process. */
	CHECK_STATUS(srt_buffer_create(device, SRT_MEM_PEER, limit.limit + 4096, "gradients", &b),
		     SRT_ERR_OUT_OF_MEMORY);
	CHECK_ERROR_HAS("\"gradients\"");
	snprintf(words, sizeof(words), "wants %zu bytes", limit.limit + 4096);
	CHECK_ERROR_HAS(words);
	snprintf(words, sizeof(words), "(%zu bytes)", limit.limit);
	CHECK_ERROR_HAS(words);
	CHECK_STATUS(srt_buffer_create(device, (srt_mem_kind_t)7, 8, "x", &b),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_buffer_create(NULL, SRT_MEM_DEVICE, 8, "x", &b), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_buffer_create(device, SRT_MEM_DEVICE, 8, NULL, NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK(!b);
	CHECK_INT(srt_device_allocated(device), 0);
}

static void test_views(srt_device_t *device)
{
	srt_buffer_t *b = test_buffer(device, 100, "weights");
	srt_view_t v = srt_view(b, 4, SRT_F32);

	CHECK_OK(srt_view_check(&v, 24, "x"));
	CHECK_OK(srt_view_check(&v, 0, "x"));
	CHECK_STATUS(srt_view_check(&v, 25, "x"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("do not fit into buffer \"weights\" of 100 bytes");
	CHECK_STATUS(srt_view_check(&v, SIZE_MAX, "x"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_view_check(&v, SIZE_MAX / 4, "x"), SRT_ERR_INVALID_ARGUMENT);
	v.offset = 6;
	CHECK_STATUS(srt_view_check(&v, 1, "x"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("not a multiple of 4");
	v = srt_view(b, 6, SRT_BF16);
	CHECK_OK(srt_view_check(&v, 47, "x"));
	v = srt_view(b, 100, SRT_F64);
	CHECK_STATUS(srt_view_check(&v, 0, "x"), SRT_ERR_INVALID_ARGUMENT);
	v = srt_view(b, 104, SRT_F64);
	CHECK_STATUS(srt_view_check(&v, 0, "x"), SRT_ERR_INVALID_ARGUMENT);
	v = srt_view(b, 0, (srt_dtype_t)77);
	CHECK_STATUS(srt_view_check(&v, 1, "x"), SRT_ERR_INVALID_ARGUMENT);
	v = srt_view(NULL, 0, SRT_F32);
	CHECK_STATUS(srt_view_check(&v, 0, "gamma"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("gamma is absent");
	srt_buffer_destroy(b);
}

static void test_copies(srt_device_t *device)
{
	srt_buffer_t *a = test_buffer(device, 100, "a"), *b = test_buffer(device, 100, "b");
	srt_stream_t *stream = test_stream(device, "copies");
	unsigned char in[100], out[100];

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (unsigned char)(i + 1);
	CHECK_OK(srt_copy_from_host(stream, a, 0, in, 100));
	CHECK_OK(srt_copy(stream, b, 10, a, 20, 80));
	CHECK_OK(srt_copy(stream, b, 0, b, 50, 50)); /* neighbours do not overlap */
	CHECK_OK(srt_zero(stream, b, 5, 5));
	CHECK_OK(srt_copy(stream, b, 100, a, 100, 0));
	CHECK_OK(srt_copy_to_host(stream, out, b, 0, 100));
	for (size_t i = 0; i < 40; i++)
		CHECK_INT(out[i], i >= 5 && i < 10 ? 0 : in[60 + i]);
	for (size_t i = 50; i < 90; i++)
		CHECK_INT(out[i], in[10 + i]);

	CHECK_STATUS(srt_copy(stream, b, 0, b, 49, 50), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("overlap");
	CHECK_STATUS(srt_copy(stream, b, 21, a, 0, 80), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("buffer \"b\"");
	CHECK_STATUS(srt_copy(stream, b, 0, a, SIZE_MAX, 2), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_copy_from_host(stream, b, 0, NULL, 1), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_copy_from_host(stream, b, 0, in, 101), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_copy_to_host(stream, out, b, 99, 2), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_copy_to_host(stream, NULL, b, 0, 2), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_zero(stream, b, 101, 0), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_zero(NULL, b, 0, 1), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_zero(stream, NULL, 0, 1), SRT_ERR_INVALID_ARGUMENT);
	/* Refused calls leave the stream alone. */
	CHECK_OK(srt_stream_sync(stream));
	srt_stream_destroy(stream);
	srt_buffer_destroy(a);
	srt_buffer_destroy(b);
}

static void test_two_devices(srt_device_t *device)
{
	srt_device_t *other = test_device(1, "inline");
	srt_buffer_t *b = test_buffer(other, 8, "foreign");
	srt_stream_t *stream = test_stream(device, "s");
	srt_event_t *event;

	CHECK_OK_OR_DIE(srt_event_create(other, &event));
	CHECK_STATUS(srt_zero(stream, b, 0, 8), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("different devices");
	CHECK_STATUS(srt_event_record(event, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_stream_wait_event(stream, event), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_event_record(NULL, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_event_sync(NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_stream_sync(NULL), SRT_ERR_INVALID_ARGUMENT);
	srt_event_destroy(event);
	srt_event_destroy(NULL);
	srt_stream_destroy(stream);
	srt_stream_destroy(NULL);
	srt_buffer_destroy(b);
	srt_device_close(other);
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
	CHECK_OR_DIE(p && q && p != q);
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

static void test_bad_handles(srt_device_t *device)
{
	srt_buffer_t *b = NULL;
	srt_mem_handle_t handle = { .fd = -1, .nbytes = 4096 };
	int fd = memfd_create("short", MFD_CLOEXEC);

	CHECK_OR_DIE(fd >= 0 && !ftruncate(fd, 100));
	CHECK_STATUS(srt_buffer_import(device, &handle, "m", &b), SRT_ERR_SYSTEM);
	handle.fd = fd;
	CHECK_STATUS(srt_buffer_import(device, &handle, "m", &b), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("memory \"m\" of a peer: it should hold 4096 bytes and holds 100");
	CHECK(!b);
	CHECK(fcntl(fd, F_GETFD) >= 0); /* not taken over on failure */
	close(fd);
	handle = (srt_mem_handle_t){ .fd = -1 };
	CHECK_OK_OR_DIE(srt_buffer_import(device, &handle, "empty shard", &b));
	CHECK_INT(srt_buffer_nbytes(b), 0);
	srt_buffer_destroy(b);
}

int main(void)
{
	srt_device_t *device = test_device(1, "inline");

	test_registry();
	test_open();
	test_isa();
	test_selftest(device);
	test_binding();
	test_buffers(device);
	test_buffer_limits(device);
	test_views(device);
	test_copies(device);
	test_two_devices(device);
	test_peer_memory(device);
	test_bad_handles(device);
	srt_device_close(device);
	return check_done();
}
