/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The OpenCL backend: which device is chosen, the environment variables of its driver, what
 * its errors say, that a device with other bits is refused, and the cache's rules.
 */
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/device/opencl.h"

static srt_ocl_device_t *impl(srt_device_t *device)
{
	return device->impl;
}

/* ---- what a driver may lack -------------------------------------------------------------- */

static cl_device_info hidden; /* this property is empty */
static int nparts;            /* calls of clCreateSubDevices() */

/* These replace the loader's functions for the backend, which is linked in here. */
cl_int clGetDeviceInfo(cl_device_id id, cl_device_info what, size_t size, void *value, size_t *n)
{
	cl_int (*real)(cl_device_id, cl_device_info, size_t, void *, size_t *);

	*(void **)&real = dlsym(RTLD_NEXT, "clGetDeviceInfo");
	if (what != hidden || what == 0)
		return real(id, what, size, value, n);
	memset(value, 0, size);
	if (n != NULL)
		*n = size;
	return CL_SUCCESS;
}

cl_int clCreateSubDevices(cl_device_id id, const cl_device_partition_property *properties,
			  cl_uint n, cl_device_id *parts, cl_uint *nall)
{
	cl_int (*real)(cl_device_id, const cl_device_partition_property *, cl_uint, cl_device_id *,
		       cl_uint *);

	*(void **)&real = dlsym(RTLD_NEXT, "clCreateSubDevices");
	nparts++;
	return real(id, properties, n, parts, nall);
}

/* Reliability: a driver that lacks what exact mode needs | SIGSEGV | a sentence that names it */
static void test_lacking(void)
{
	static const struct {
		cl_device_info what;
		srt_status_t status;
		const char *words;
	} cases[] = {
		{ CL_DEVICE_DOUBLE_FP_CONFIG, SRT_ERR_NOT_FOUND, "no double precision" },
		{ CL_DEVICE_EXTENSIONS, SRT_ERR_NOT_FOUND, "no 64-bit atomics" },
		{ CL_DEVICE_SINGLE_FP_CONFIG, SRT_ERR_UNSUPPORTED,
		  "no subnormals in single precision" },
	};
	srt_device_request_t request = {
		.selector = "0:0", .local_size = 1, .threads = 1, .exact = 1
	};
	srt_device_t *device = NULL;

	for (size_t i = 0; i < SRT_ARRAY_LEN(cases); i++) {
		hidden = cases[i].what;
		CHECK_STATUS(test_open_device("opencl", "0:0", 0, &device), cases[i].status);
		CHECK_ERROR_HAS(cases[i].words);
		CHECK(device == NULL);
	}
	/* A driver without partitions has no such function. */
	nparts = 0;
	hidden = CL_DEVICE_PARTITION_PROPERTIES;
	CHECK_OK(srt_device_open("opencl", &request, SRT_NUMERICS_EXACT, &device));
	CHECK_INT(nparts, 0);
	srt_device_close(device);
	hidden = 0;
}

/* ---- choosing --------------------------------------------------------------------------- */

static void expect_refused(const char *selector, srt_status_t status, const char *words)
{
	srt_device_t *device = NULL;

	CHECK_STATUS(test_open_device("opencl", selector, 0, &device), status);
	CHECK_ERROR_HAS(words);
	CHECK_ERROR_HAS("(0:0, ");
	CHECK_ERROR_HAS(selector);
	CHECK(device == NULL);
}

static void expect_taken(const char *selector, const char *name)
{
	srt_device_t *device = NULL;

	CHECK_OK_OR_DIE(test_open_device("opencl", selector, 0, &device));
	CHECK_STR(device->caps.name, name);
	srt_device_close(device);
}

static void test_choice(const char *name)
{
	char part[16];

	expect_taken("0:0", name);
	expect_taken("0", name);
	expect_taken(name, name);
	/* Part of the name, in the other case. */
	snprintf(part, sizeof(part), "%.15s", name);
	for (char *c = part; *c; c++)
		*c = *c >= 'a' && *c <= 'z' ? (char)(*c - 32) : *c;
	expect_taken(part, name);
	expect_refused("9:0", SRT_ERR_NOT_FOUND, "matches no OpenCL device");
	expect_refused("99", SRT_ERR_NOT_FOUND, "matches no OpenCL device");
	expect_refused("no such device", SRT_ERR_NOT_FOUND, "matches no OpenCL device");
}

/* SHARDRT_BACKEND=auto never takes a CPU. */
static void test_accelerators(void)
{
	srt_device_request_t request = { .selector = "cpu", .local_size = 1, .accelerator = 1 };
	srt_candidate_t chosen;

	CHECK_STATUS(srt_candidates_choose(&srt_ocl_candidates, srt_host_services(), &request,
					   &chosen),
		     SRT_ERR_NOT_FOUND);
}

/* With two devices of one driver; run by test_opencl.sh where there is a way to have them. */
static int test_two(void)
{
	srt_candidate_t *all, first, second;
	srt_device_request_t request = { .selector = "", .local_size = 2 };
	const srt_host_services_t *host = srt_host_services();
	int n;

	CHECK_OK_OR_DIE(srt_ocl_candidates.list(host, &all, &n));
	if (n < 2 || !strcmp(all[0].name, all[1].name))
		CHECK_SKIP("%d OpenCL devices", n);
	CHECK_OK(srt_candidates_choose(&srt_ocl_candidates, host, &request, &first));
	request.local_rank = 1;
	CHECK_OK(srt_candidates_choose(&srt_ocl_candidates, host, &request, &second));
	CHECK(first.id != second.id); /* spread */
	request.selector = "1";
	CHECK_OK(srt_candidates_choose(&srt_ocl_candidates, host, &request, &second));
	CHECK_STR(second.name, all[1].name);
	request.selector = all[0].detail;
	CHECK_STATUS(srt_candidates_choose(&srt_ocl_candidates, host, &request, &second),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("may mean several");
	CHECK_ERROR_HAS(all[1].name);
	host->free(all);
	return check_done();
}

/* ---- the environment -------------------------------------------------------------------- */

static void test_environment(void)
{
	CHECK_STR(getenv("POCL_MAX_PTHREAD_COUNT"), "2");
	CHECK_STR(getenv("POCL_SIGFPE_HANDLER"), "1"); /* the user's own stays */
	CHECK(getenv("POCL_CACHE_DIR") != NULL &&
	      strstr(getenv("POCL_CACHE_DIR"), "/pocl/") != NULL);
}

/* ---- errors ----------------------------------------------------------------------------- */

static void test_codes(void)
{
	CHECK_STR(srt_ocl_code_name(CL_OUT_OF_RESOURCES), "CL_OUT_OF_RESOURCES");
	CHECK_STR(srt_ocl_code_name(-1001), "CL_PLATFORM_NOT_FOUND_KHR");
	CHECK_STR(srt_ocl_code_name(-5555), "an unknown code");
	CHECK_STATUS(srt_ocl_fail(srt_host_services(), CL_MEM_OBJECT_ALLOCATION_FAILURE, "a %s",
				  "b"),
		     SRT_ERR_OUT_OF_MEMORY);
	CHECK_STR(srt_error_last(), "a b: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)");
}

static void test_out_of_memory(srt_device_t *device)
{
	static const srt_mem_kind_t kinds[] = { SRT_MEM_DEVICE, SRT_MEM_PINNED, SRT_MEM_PEER };
	cl_ulong most = impl(device)->max_alloc;
	srt_buffer_t *b = NULL;

	for (size_t k = 0; k < SRT_ARRAY_LEN(kinds); k++) {
		CHECK_STATUS(srt_buffer_create(device, kinds[k], SIZE_MAX / 4, "the heap", &b),
			     SRT_ERR_OUT_OF_MEMORY);
		CHECK_ERROR_HAS("the heap");
		CHECK_ERROR_HAS("4611686018427387903");
	}
	/* What the driver refuses, whatever memory the machine has. */
	impl(device)->max_alloc = 1000;
	CHECK_STATUS(srt_buffer_create(device, SRT_MEM_DEVICE, 1001, "the stack", &b),
		     SRT_ERR_OUT_OF_MEMORY);
	CHECK_ERROR_HAS("the stack");
	CHECK_ERROR_HAS("allows 1000 bytes in one buffer");
	impl(device)->max_alloc = most;
	CHECK(b == NULL);
	CHECK_INT(srt_device_allocated(device), 0);
}

static void test_build_failure(srt_device_t *device)
{
	cl_program program;

	CHECK_STATUS(srt_ocl_program(impl(device), "random", "-DK_DTYPE=wrong-word", &program),
		     SRT_ERR_DEVICE);
	CHECK_ERROR_HAS("CL_BUILD_PROGRAM_FAILURE");
	CHECK_ERROR_HAS("kernels of \"random\"");
	CHECK_ERROR_HAS("error");
	CHECK_ERROR_HAS("kernels/random.k:"); /* the compiler's log, with our own lines */
	CHECK_STATUS(srt_ocl_program(impl(device), "no such", "", &program), SRT_ERR_UNSUPPORTED);
}

/* The source with a number of GELU changed, in the place of the newest program of it. */
static void spoil_gelu(srt_ocl_device_t *device)
{
	srt_ocl_program_t *p = device->programs + device->nprograms - 1;
	char options[sizeof(device->options) + sizeof(p->options) + 1];
	const char *text;
	char *spoiled, *number;
	cl_int code;

	while (strcmp(p->source->name, "elementwise") != 0)
		CHECK_OR_DIE(--p >= device->programs);
	spoiled = srt_strdup(p->source->text);
	number = spoiled != NULL ? strstr(spoiled, "k_gelu_tanh(float") : NULL;
	number = number != NULL ? strstr(number, "1.0f") : NULL;
	CHECK_OR_DIE(number != NULL);
	number[2] = '6';
	text = spoiled;
	snprintf(options, sizeof(options), "%s %s", device->options, p->options);
	clReleaseProgram(p->program);
	p->program = clCreateProgramWithSource(device->context, 1, &text, NULL, &code);
	CHECK_INT(code, CL_SUCCESS);
	CHECK_INT(clBuildProgram(p->program, 1, &device->id, options, NULL, NULL), 0);
	free(spoiled);
}

static void test_other_bits(srt_device_t *device)
{
	srt_selftest_t *t = &impl(device)->selftest;

	CHECK_OK(srt_selftest_all(t, SRT_F32));
	spoil_gelu(impl(device));
	CHECK_STATUS(srt_selftest_all(t, SRT_F32), SRT_ERR_DEVICE);
	CHECK_ERROR_HAS("kernel \"gelu_tanh\" gives other bits than version");
	t->exact = false;
	CHECK_OK(srt_selftest_all(t, SRT_F32)); /* only logged */
	t->exact = true;
	srt_ocl_programs_free(impl(device));
	CHECK_OK(srt_selftest_all(t, SRT_F32));
}

/* A 16-bit kernel is tried by its first launch, which fails if it is wrong; others go on. */
static void test_other_bits_16(srt_dtype_t dtype)
{
	srt_device_t *device;
	srt_stream_t *stream;
	srt_buffer_t *buffer;
	srt_view_t x;

	CHECK_OK_OR_DIE(test_open_device("opencl", "0:0", 0, &device));
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "halves", &stream));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, 64, "halves", &buffer));
	x = srt_view(buffer, 0, dtype);
	CHECK_OK(srt_op_fill(x, 1.0f, 16, stream));
	CHECK_OK(srt_stream_sync(stream));
	spoil_gelu(impl(device));
	for (int again = 0; again < 2; again++) {
		srt_stream_t *s;

		CHECK_OK_OR_DIE(srt_stream_create(device, 0, "refused", &s));
		CHECK_OK(srt_op_gelu_tanh(x, x, 16, s));
		CHECK_STATUS(srt_stream_sync(s), SRT_ERR_DEVICE);
		CHECK_ERROR_HAS("kernel \"gelu_tanh\" gives other bits than version");
		srt_stream_destroy(s);
	}
	CHECK_OK(srt_op_relu(x, x, 16, stream));
	CHECK_OK(srt_stream_sync(stream));
	impl(device)->selftest.exact = false;
	CHECK_OK(srt_op_gelu_tanh(x, x, 16, stream)); /* only logged */
	CHECK_OK(srt_stream_sync(stream));
	srt_buffer_destroy(buffer);
	srt_stream_destroy(stream);
	srt_device_close(device);
}

/* All kernels in 16 bits, for tests/device/test_oclgrind.sh: opening the device has run those in
 * f32. */
static int test_halves(void)
{
	srt_device_t *device;

	CHECK_OK_OR_DIE(test_open_device("opencl", "0:0", 0, &device));
	for (srt_dtype_t dtype = SRT_F16; dtype <= SRT_BF16; dtype++)
		for (int k = 0; k < SRT_K_COUNT; k++)
			if (srt_kernel_has((srt_kernel_id_t)k, dtype))
				CHECK_OK(srt_selftest_kernel(&impl(device)->selftest,
							     (srt_kernel_id_t)k, dtype));
	srt_device_close(device);
	return check_done();
}

/* ---- the cache -------------------------------------------------------------------------- */

static void test_cache(void)
{
	const srt_host_services_t *host = srt_host_services();
	static const unsigned char binary[] = "0123456789";
	char path[512], *file, *moved;
	unsigned char *got;
	size_t nbytes;
	FILE *f;

	CHECK(srt_ocl_cache_load(host, "test key", &nbytes) == NULL);
	srt_ocl_cache_store(host, "test key", binary, sizeof(binary));
	got = srt_ocl_cache_load(host, "test key", &nbytes);
	CHECK_OR_DIE(got != NULL);
	CHECK_INT(nbytes, sizeof(binary));
	CHECK(!memcmp(got, binary, sizeof(binary)));
	host->free(got);

	CHECK(host->cache_folder("opencl", path, sizeof(path)));
	file = srt_asprintf("%s/%016llx.bin", path,
			    (unsigned long long)srt_ocl_hash("test key", strlen("test key")));
	CHECK_OR_DIE(file != NULL && (f = fopen(file, "r+b")) != NULL);
	/* A flipped byte of the binary, then of the key, then a file cut off. */
	CHECK(!fseek(f, -3, SEEK_END) && fputc('x', f) == 'x' && !fflush(f));
	CHECK(srt_ocl_cache_load(host, "test key", &nbytes) == NULL);
	CHECK(!fseek(f, -3, SEEK_END) && fputc('8', f) == '8' && !fflush(f));
	got = srt_ocl_cache_load(host, "test key", &nbytes);
	CHECK(got != NULL);
	host->free(got);
	CHECK(!fseek(f, -12, SEEK_END) && fputc('Y', f) == 'Y' && !fflush(f));
	CHECK(srt_ocl_cache_load(host, "test key", &nbytes) == NULL);
	CHECK(!fseek(f, -12, SEEK_END) && fputc('y', f) == 'y' && !fflush(f));
	for (long size = 0; size < 40; size += 13) {
		CHECK(!ftruncate(fileno(f), size));
		CHECK(srt_ocl_cache_load(host, "test key", &nbytes) == NULL);
	}
	fclose(f);
	srt_ocl_cache_store(host, "test key", binary, sizeof(binary)); /* replaced */
	got = srt_ocl_cache_load(host, "test key", &nbytes);
	CHECK(got != NULL);
	host->free(got);
	/* One that others may write to, and a link. */
	CHECK(!chmod(file, 0620) && srt_ocl_cache_load(host, "test key", &nbytes) == NULL);
	CHECK(!chmod(file, 0602) && srt_ocl_cache_load(host, "test key", &nbytes) == NULL);
	CHECK(!chmod(file, 0600));
	moved = srt_asprintf("%s.moved", file);
	CHECK_OR_DIE(moved != NULL && !rename(file, moved) && !symlink(moved, file));
	CHECK(srt_ocl_cache_load(host, "test key", &nbytes) == NULL);
	CHECK(!unlink(file) && !unlink(moved));
	free(moved);
	free(file);
}

int main(int argc, char **argv)
{
	srt_device_t *device;
	char name[SRT_OCL_NAME_NBYTES];

	setenv("SHARDRT_THREADS", "2", 1);
	setenv("POCL_SIGFPE_HANDLER", "1", 1);
	opencl_add();
	if (argc > 1 && !strcmp(argv[1], "two"))
		return test_two();
	if (argc > 1 && !strcmp(argv[1], "halves"))
		return test_halves();
	test_environment();
	test_codes();
	test_cache();
	CHECK_OK_OR_DIE(test_open_device("opencl", "0:0", 0, &device));
	snprintf(name, sizeof(name), "%s", device->caps.name);
	test_out_of_memory(device);
	test_build_failure(device);
	test_other_bits(device);
	srt_device_close(device);
	test_other_bits_16(SRT_F16);
	test_other_bits_16(SRT_BF16);
	test_lacking();
	test_choice(name);
	test_accelerators();
	return check_done();
}
