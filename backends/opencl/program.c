/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs: source text and options -> built program, once per device, from the cache (cache.c)
 * or by the driver's compiler; and kernel objects, once per stream. The numbers of compiled and of
 * cached programs are logged: a second start compiles none.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backends/opencl/opencl.h"

#define LOG_NBYTES 600 /* of a compiler's log in an error; the first errors matter */

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void srt_ocl_key(const srt_ocl_device_t *device, const char *name, uint64_t hash,
		 const char *options, char key[SRT_OCL_KEY_NBYTES])
{
	char driver[512] = "", version[512] = "", platform[512] = "", platform_version[512] = "";

	clGetDeviceInfo(device->id, CL_DRIVER_VERSION, sizeof(driver) - 1, driver, NULL);
	clGetDeviceInfo(device->id, CL_DEVICE_VERSION, sizeof(version) - 1, version, NULL);
	clGetPlatformInfo(device->platform, CL_PLATFORM_NAME, sizeof(platform) - 1, platform, NULL);
	clGetPlatformInfo(device->platform, CL_PLATFORM_VERSION, sizeof(platform_version) - 1,
			  platform_version, NULL);
	snprintf(key, SRT_OCL_KEY_NBYTES, "%s\n%016llx\n%s\n%s\n%s\n%s\n%s\n%s\n", name,
		 (unsigned long long)hash, options, device->name, driver, version, platform,
		 platform_version);
}

/* ---- building --------------------------------------------------------------------------- */

/* The program of a cached binary, or NULL. */
static cl_program load_cached(srt_ocl_device_t *device, const char *key, const char *options)
{
	const srt_host_services_t *host = device->host;
	const unsigned char *binary;
	unsigned char *loaded;
	cl_program program;
	cl_int code, state;
	size_t nbytes;

	loaded = srt_ocl_cache_load(host, key, &nbytes);
	if (loaded == NULL)
		return NULL;
	binary = loaded;
	program = clCreateProgramWithBinary(device->context, 1, &device->id, &nbytes, &binary,
					    &state, &code);
	host->free(loaded);
	if (code == CL_SUCCESS) {
		code = clBuildProgram(program, 1, &device->id, options, NULL, NULL);
		if (code == CL_SUCCESS)
			return program;
		clReleaseProgram(program);
	}
	host->log(SRT_LOG_DEBUG, "cache: the driver refuses a cached binary (%s): compiling anew",
		  srt_ocl_code_name(code));
	return NULL;
}

static void store_cached(srt_ocl_device_t *device, const char *key, cl_program program)
{
	unsigned char *binary;
	size_t nbytes = 0;
	cl_int code;

	code = clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(nbytes), &nbytes, NULL);
	if (code != CL_SUCCESS || !nbytes)
		return;
	binary = device->host->alloc(nbytes);
	if (binary == NULL)
		return;
	code = clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary), &binary, NULL);
	if (code == CL_SUCCESS)
		srt_ocl_cache_store(device->host, key, binary, nbytes);
	device->host->free(binary);
}

static srt_status_t report_build_failure(srt_ocl_device_t *device, const srt_ocl_source_t *source,
					 cl_program program, cl_int code)
{
	const srt_host_services_t *host = device->host;
	size_t nbytes = 0;
	char *log = NULL;

	clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &nbytes);
	if (nbytes)
		log = host->alloc(nbytes + 1);
	if (log != NULL) {
		log[0] = '\0';
		clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, nbytes, log, NULL);
		log[nbytes] = '\0';
	}
	host->fail(SRT_ERR_DEVICE,
		   "the compiler of device \"%s\" refuses the kernels of \"%s\": %s (%d); its log: "
		   "%.*s%s",
		   device->name, source->name, srt_ocl_code_name(code), code, LOG_NBYTES,
		   log != NULL ? log : "", nbytes > LOG_NBYTES ? " ..." : "");
	host->free(log);
	return SRT_ERR_DEVICE;
}

static srt_status_t build_from_source(srt_ocl_device_t *device, const srt_ocl_source_t *source,
				      const char *options, cl_program *out)
{
	const srt_host_services_t *host = device->host;
	const char *text = source->text;
	srt_status_t status;
	cl_program program;
	cl_int code;

	program = clCreateProgramWithSource(device->context, 1, &text, NULL, &code);
	if (code != CL_SUCCESS)
		return srt_ocl_fail(host, code, "making the program \"%s\" failed", source->name);
	code = clBuildProgram(program, 1, &device->id, options, NULL, NULL);
	if (code == CL_SUCCESS) {
		*out = program;
		return SRT_OK;
	}
	status = report_build_failure(device, source, program, code);
	clReleaseProgram(program);
	return status;
}

/* Builds a program that was not in the cache, unless another process has stored it meanwhile. */
static srt_status_t compile_source(srt_ocl_device_t *device, const srt_ocl_source_t *source,
				   const char *options, const char *key, bool *cached,
				   cl_program *out)
{
	srt_status_t status = SRT_OK;
	int lock = srt_ocl_cache_lock(device->host, key);

	*out = load_cached(device, key, options);
	*cached = *out != NULL;
	if (!*cached)
		status = build_from_source(device, source, options, out);
	if (!*cached && status == SRT_OK)
		store_cached(device, key, *out);
	srt_ocl_cache_unlock(lock);
	return status;
}

/* Under the device's lock. */
static srt_status_t build_program(srt_ocl_device_t *device, const srt_ocl_source_t *source,
				  const char *own_options, srt_ocl_program_t *slot)
{
	char key[SRT_OCL_KEY_NBYTES], options[2 * SRT_OCL_OPTIONS_NBYTES];
	double start = now_s(), took;
	srt_status_t status;
	bool cached;

	snprintf(options, sizeof(options), "%s %s", device->options, own_options);
	srt_ocl_key(device, source->name, srt_ocl_hash(source->text, strlen(source->text)), options,
		    key);
	slot->program = load_cached(device, key, options);
	cached = slot->program != NULL;
	if (!cached) {
		status = compile_source(device, source, options, key, &cached, &slot->program);
		if (status != SRT_OK)
			return status;
	}
	slot->source = source;
	snprintf(slot->options, sizeof(slot->options), "%s", own_options);
	took = now_s() - start;
	device->build_s += took;
	*(cached ? &device->nfrom_cache : &device->ncompiled) += 1;
	device->host->log(SRT_LOG_DEBUG, "opencl: program \"%s\" %s in %.0f ms", source->name,
			  cached ? "read from the cache" : "compiled", took * 1e3);
	return SRT_OK;
}

static const srt_ocl_source_t *find_source(const char *name)
{
	const srt_ocl_source_t *s = srt_ocl_sources;

	while (s->name != NULL && strcmp(s->name, name) != 0)
		s++;
	return s->name != NULL ? s : NULL;
}

/* Under the device's lock. */
static srt_status_t find_or_build(srt_ocl_device_t *device, const char *name, const char *options,
				  cl_program *program)
{
	const srt_ocl_source_t *source = find_source(name);
	srt_ocl_program_t *slot = device->programs;
	srt_status_t status;

	for (; slot < device->programs + device->nprograms; slot++)
		if (slot->source == source && strcmp(slot->options, options) == 0)
			goto found;
	if (source == NULL || device->nprograms == SRT_OCL_MAX_PROGRAMS ||
	    strlen(options) >= sizeof(slot->options))
		return device->host->fail(SRT_ERR_UNSUPPORTED,
					  "the opencl backend has no program \"%s\" with \"%s\"",
					  name, options);
	status = build_program(device, source, options, slot);
	if (status != SRT_OK)
		return status;
	device->nprograms++;
found:
	*program = slot->program;
	return SRT_OK;
}

srt_status_t srt_ocl_program(srt_ocl_device_t *device, const char *source, const char *options,
			     cl_program *program)
{
	srt_status_t status;

	pthread_mutex_lock(&device->lock);
	status = find_or_build(device, source, options, program);
	pthread_mutex_unlock(&device->lock);
	return status;
}

srt_status_t srt_ocl_stream_kernel(srt_ocl_stream_t *stream, int slot, const char *source,
				   const char *options, const char *name, cl_kernel *kernel)
{
	srt_ocl_device_t *device = stream->device;
	srt_status_t status;
	cl_program program;
	cl_int code;

	*kernel = stream->kernels[slot];
	if (*kernel != NULL)
		return SRT_OK;
	status = srt_ocl_program(device, source, options, &program);
	if (status != SRT_OK)
		return status;
	*kernel = clCreateKernel(program, name, &code);
	if (code != CL_SUCCESS)
		return srt_ocl_fail(device->host, code, "kernel \"%s\" of the program \"%s\"", name,
				    source);
	stream->kernels[slot] = *kernel;
	return SRT_OK;
}

void srt_ocl_programs_free(srt_ocl_device_t *device)
{
	for (int i = 0; i < device->nprograms; i++)
		clReleaseProgram(device->programs[i].program);
	device->nprograms = 0;
}
