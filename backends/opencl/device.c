/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An OpenCL device: a context with this device only, the form of the kernels (lanes as work-items
 * or as a loop), the options of its programs. All are chosen once, at open; srt_device_open() tests
 * the kernels before it returns the device.
 */
#include <shardrt/version.h>
#include <stdio.h>
#include <string.h>

#include "backends/common/host_memory.h"
#include "backends/opencl/tuned.h"
#include "base/base.h"
#include "base/fpenv.h"

/* ---- what the device is ------------------------------------------------------------------ */

static srt_status_t device_probe(const srt_host_services_t *host, int *ndevices)
{
	return srt_candidates_probe(&srt_ocl_candidates, host, ndevices);
}

static srt_status_t device_describe(const srt_host_services_t *host, int number,
				    srt_device_description_t *description)
{
	return srt_candidates_describe(&srt_ocl_candidates, host, number, description);
}

static void choose_lanes(srt_ocl_device_t *device)
{
	const char *wanted = device->host->config("SHARDRT_OPENCL_LANES");
	size_t group = 0;

	clGetDeviceInfo(device->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(group), &group, NULL);
	if (strcmp(wanted, "auto") == 0)
		device->lanes_as_loop = (device->type & CL_DEVICE_TYPE_CPU) != 0;
	else
		device->lanes_as_loop = strcmp(wanted, "loop") == 0;
	if (!device->lanes_as_loop && group < SRT_K_LANES)
		device->lanes_as_loop = true;
}

static void choose_options(srt_ocl_device_t *device)
{
	cl_device_fp_config fp = 0;

	clGetDeviceInfo(device->id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(fp), &fp, NULL);
	/* Without the flag some compilers do not round division correctly; if the compiler does not
	 * support the flag, the self-test decides. */
	snprintf(device->options, sizeof(device->options), "-cl-std=CL1.2%s%s",
		 fp & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT ?
			 " -cl-fp32-correctly-rounded-divide-sqrt" :
			 "",
		 device->lanes_as_loop ? " -DLANES_AS_LOOP" : "");
}

/* The bits of exact mode need correct rounding and subnormals. The selftest would find other bits
 * later, and could not say why. */
static srt_status_t check_exact(const srt_ocl_device_t *device)
{
	cl_device_fp_config fp = 0;

	clGetDeviceInfo(device->id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(fp), &fp, NULL);
	if ((fp & CL_FP_DENORM) && (fp & CL_FP_ROUND_TO_NEAREST))
		return SRT_OK;
	return device->host->fail(SRT_ERR_UNSUPPORTED,
				  "OpenCL device \"%s\" has no %s in single precision, which "
				  "exact numerics need; use another device or driver, or "
				  "SHARDRT_NUMERICS=fast",
				  device->name,
				  fp & CL_FP_DENORM ? "rounding to nearest" : "subnormals");
}

static void read_properties(srt_ocl_device_t *device)
{
	cl_bool unified = CL_FALSE;

	clGetDeviceInfo(device->id, CL_DEVICE_PLATFORM, sizeof(device->platform), &device->platform,
			NULL);
	clGetDeviceInfo(device->id, CL_DEVICE_TYPE, sizeof(device->type), &device->type, NULL);
	clGetDeviceInfo(device->id, CL_DEVICE_NAME, sizeof(device->name) - 1, device->name, NULL);
	clGetDeviceInfo(device->id, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof(unified), &unified, NULL);
	device->unified_memory = unified;
	clGetDeviceInfo(device->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(device->max_alloc),
			&device->max_alloc, NULL);
	choose_lanes(device);
	choose_options(device);
}

static void fill_caps(const srt_ocl_device_t *device, srt_backend_caps_t *caps)
{
	srt_memory_limit_t limit;
	cl_ulong nbytes = 0;
	cl_uint units = 0;

	clGetDeviceInfo(device->id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(nbytes), &nbytes, NULL);
	*caps = (srt_backend_caps_t){
		.async_streams = 1,
		.peer_memory = device->peer_memory,
		.peer_begin = device->peer_memory,
		.peer_kind = SRT_HOSTMEM_KIND,
		.mem_nbytes = (size_t)nbytes,
	};
	snprintf(caps->name, sizeof(caps->name), "%s", device->name);
	if (device->unified_memory) {
		srt_memory_limit(&limit);
		memcpy(caps->memory_id, limit.id, sizeof(limit.id));
	}
	if (device->type & CL_DEVICE_TYPE_CPU) {
		clGetDeviceInfo(device->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units,
				NULL);
		caps->threads = (int)units;
	}
}

/* ---- asynchronous errors ----------------------------------------------------------------- */

/* Called by the driver, from any thread. */
static void CL_CALLBACK log_notice(const char *text, const void *data, size_t nbytes, void *user)
{
	srt_ocl_device_t *device = user;

	(void)data;
	(void)nbytes;
	device->host->log(SRT_LOG_WARN, "OpenCL device \"%s\": %s", device->name, text);
}

/* ---- open and close ---------------------------------------------------------------------- */

static void device_close(void *dev)
{
	srt_ocl_device_t *device = dev;

	srt_ocl_programs_free(device);
	if (device->queue != NULL)
		clReleaseCommandQueue(device->queue);
	if (device->context != NULL)
		clReleaseContext(device->context);
	if (device->holds_id)
		clReleaseDevice(device->id);
	srt_selftest_destroy(&device->selftest);
	pthread_mutex_destroy(&device->lock);
	device->host->free(device);
}

/* A driver without any partition leaves clCreateSubDevices() out of its table, and the loader would
 * jump to address 0. */
static bool has_partition_by_counts(cl_device_id id)
{
	cl_device_partition_property all[16] = { 0 };
	size_t nbytes = 0;

	if (clGetDeviceInfo(id, CL_DEVICE_PARTITION_PROPERTIES, sizeof(all), all, &nbytes) !=
	    CL_SUCCESS)
		return false;
	for (size_t i = 0; i < nbytes / sizeof(all[0]); i++) {
		if (all[i] == CL_DEVICE_PARTITION_BY_COUNTS)
			return true;
	}
	return false;
}

/* The ranks of a CPU share its cores: replaces the device by a sub-device with this rank's number
 * of threads, if the driver supports it and its environment does not set the number. */
static void limit_threads(srt_ocl_device_t *device, const srt_device_request_t *request)
{
	const srt_host_services_t *host = device->host;
	int threads = request->threads;
	cl_device_partition_property counts[] = { CL_DEVICE_PARTITION_BY_COUNTS, 0,
						  CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0 };
	cl_uint units = 0;
	cl_device_id part;
	cl_int code;

	if (!(device->type & CL_DEVICE_TYPE_CPU))
		return;
	if (threads == 0)
		threads = srt_ocl_rank_threads(host);
	clGetDeviceInfo(device->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL);
	if ((cl_uint)threads >= units)
		return;
	if (!has_partition_by_counts(device->id)) {
		host->log(SRT_LOG_DEBUG,
			  "OpenCL device \"%s\" cannot be limited to %d threads: its driver has no "
			  "partition by counts",
			  device->name, threads);
		return;
	}
	counts[1] = threads;
	code = clCreateSubDevices(device->id, counts, 1, &part, NULL);
	if (code == CL_SUCCESS) {
		device->id = part;
		device->holds_id = true;
		return;
	}
	host->log(SRT_LOG_DEBUG, "OpenCL device \"%s\" cannot be limited to %d threads: %s",
		  device->name, threads, srt_ocl_code_name(code));
}

static void mark_stream(void *s)
{
	srt_ocl_stream_t *stream = s;

	stream->is_selftest = true;
}

static void force_form(void *device_impl, int tile, int cut)
{
	srt_ocl_device_t *device = device_impl;
	bool fits = !tile || srt_gpu_kernels[tile - 1].nitems <= device->tuning.width;

	device->tuning.tile = fits ? tile : 0;
	device->tuning.cut = cut;
}

/* The key of a passed self-test in the cache: all texts of kernels, the digests, and the form. */
static void selftest_key(const srt_ocl_device_t *device, char key[SRT_OCL_KEY_NBYTES])
{
	char options[2 * SRT_OCL_OPTIONS_NBYTES];
	uint64_t hash =
		srt_ocl_hash(srt_kernel_selftest_digests, sizeof(srt_kernel_selftest_digests));

	for (const srt_ocl_source_t *s = srt_ocl_sources; s->name != NULL; s++)
		hash = hash * 31 + srt_ocl_hash(s->text, strlen(s->text));
	snprintf(options, sizeof(options), "%s %s form %d width %d, library %d", device->options,
		 device->tuning.options, (int)device->tuning.form, device->tuning.width,
		 SRT_VERSION);
	srt_ocl_key(device, "self-test", hash, options, key);
}

/* If the driver's compiler fails on a tuned kernel, or the kernel computes other bits, the device
 * uses the portable ones. */
static srt_status_t test_kernels(srt_ocl_device_t *device)
{
	srt_selftest_t *t = &device->selftest;

	SRT_TRY(srt_selftest_all(t, SRT_F32));
	if (device->tuning.form == SRT_OCL_PORTABLE)
		return SRT_OK;
	SRT_TRY(srt_selftest_tuned(t, SRT_F32));
	if (!srt_selftest_has_tuned(t, SRT_F32))
		device->tuning.form = SRT_OCL_PORTABLE;
	return SRT_OK;
}

/* If the kernels of the processor have passed in an earlier process, the device does not run all of
 * them again: it would load every program. A GPU is tested at each start: another one has the same
 * name. Only exact mode reports each failure, so only its passes are kept. */
static srt_status_t run_selftest(srt_ocl_device_t *device)
{
	const srt_ocl_form_t form = device->tuning.form;
	const bool tiled = form == SRT_OCL_TILED, is_cpu = device->type & CL_DEVICE_TYPE_CPU;
	srt_selftest_t *t = &device->selftest;
	char key[SRT_OCL_KEY_NBYTES];
	unsigned char *kept;
	size_t nbytes;

	snprintf(t->what, sizeof(t->what), "OpenCL device \"%s\"", device->name);
	t->takes_mask = tiled;
	/* A device of CPU type has this form only in tests, which have other cases. */
	t->ntiles = tiled && !is_cpu ? SRT_GPU_TILE_COUNT : 0;
	if (!is_cpu || t->is_off)
		return test_kernels(device);
	selftest_key(device, key);
	kept = srt_ocl_cache_load(device->host, key, &nbytes);
	if (kept != NULL) {
		device->host->free(kept);
		device->host->log(SRT_LOG_DEBUG, "opencl: the self-test has passed before");
		atomic_store(&t->tuned[SRT_F32], form == SRT_OCL_PORTABLE ? 0 : 1);
		return SRT_OK;
	}
	SRT_TRY(test_kernels(device));
	if (t->exact && device->tuning.form == form)
		srt_ocl_cache_store(device->host, key, (const unsigned char *)"passed", 6);
	return SRT_OK;
}

/* Chooses a device and makes a context with it. */
static srt_status_t open_chosen(srt_ocl_device_t *device, const srt_device_request_t *request)
{
	const srt_host_services_t *host = device->host;
	cl_context_properties properties[] = { CL_CONTEXT_PLATFORM, 0, 0 };
	srt_candidate_t chosen;
	srt_status_t status;
	cl_int code;

	status = srt_candidates_choose(&srt_ocl_candidates, host, request, &chosen);
	if (status != SRT_OK)
		return status;
	device->id = chosen.id;
	clGetDeviceInfo(device->id, CL_DEVICE_TYPE, sizeof(device->type), &device->type, NULL);
	limit_threads(device, request);
	properties[1] = (cl_context_properties)chosen.platform;
	device->context = clCreateContext(properties, 1, &device->id, log_notice, device, &code);
	if (code == CL_SUCCESS)
		return SRT_OK;
	device->context = NULL;
	return srt_ocl_fail(host, code, "opening OpenCL device \"%s\" failed", chosen.name);
}

static srt_status_t device_setup(srt_ocl_device_t *device, const srt_device_request_t *request)
{
	const srt_host_services_t *host = device->host;
	srt_status_t status = request->native != NULL ?
				      srt_ocl_use_native(device, request->native) :
				      open_chosen(device, request);
	cl_int code;

	if (status != SRT_OK)
		return status;
	read_properties(device);
	if (request->exact) {
		status = check_exact(device);
		if (status != SRT_OK)
			return status;
	}
	device->queue = clCreateCommandQueue(device->context, device->id, 0, &code);
	if (code != CL_SUCCESS)
		return srt_ocl_fail(host, code, "a queue of OpenCL device \"%s\"", device->name);
	status = srt_ocl_tuning_choose(device);
	if (status != SRT_OK)
		return status;
	device->selftest.exact = request->exact != 0;
	status = run_selftest(device);
	if (status != SRT_OK)
		return status;
	return srt_ocl_peer_probe(device);
}

static srt_status_t device_open(const srt_host_services_t *host,
				const srt_device_request_t *request, void **out,
				srt_backend_caps_t *caps)
{
	srt_ocl_device_t *device = host->alloc(sizeof(*device));
	srt_status_t status;
	srt_fpenv_t env;

	if (device == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(device, 0, sizeof(*device));
	device->host = host;
	pthread_mutex_init(&device->lock, NULL);
	device->scratch = (srt_scratch_owner_t){
		.host = host,
		.mem = &srt_ocl_mem_ops,
		.device = device,
	};
	device->selftest = (srt_selftest_t){
		.host = host,
		.mem = &srt_ocl_mem_ops,
		.stream = &srt_ocl_stream_ops,
		.device = device,
		.mark_stream = mark_stream,
		.remedy = "another driver or SHARDRT_OPENCL_LANES",
		.variable = "SHARDRT_OPENCL_TUNED",
		.force = force_form,
	};
	srt_selftest_init(&device->selftest);
	env = srt_fpenv_enter();
	status = device_setup(device, request);
	srt_fpenv_leave(env);
	if (status != SRT_OK) {
		device_close(device);
		return status;
	}
	host->log(SRT_LOG_DEBUG,
		  "opencl: \"%s\": lanes as %s, %d programs compiled and %d read from the cache in "
		  "%.0f ms",
		  device->name, device->lanes_as_loop ? "a loop" : "work-items", device->ncompiled,
		  device->nfrom_cache, device->build_s * 1e3);
	fill_caps(device, caps);
	*out = device;
	return SRT_OK;
}

const srt_backend_device_ops_t srt_ocl_device_ops = {
	.probe = device_probe,
	.describe = device_describe,
	.open = device_open,
	.close = device_close,
	.native = srt_ocl_device_native,
};
