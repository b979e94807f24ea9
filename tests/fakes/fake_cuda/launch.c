/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Modules, functions and launches. Any image that starts as a fatbin does is a module of all
 * kernels that are compiled in: nothing here can read machine code. Kernels run one at a time,
 * their blocks one after the other in an order that differs by seed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu.h"
#include "tests/fakes/fake_cuda/fake.h"
#include "tests/fakes/fake_cuda/fiber.h"

#define FATBIN_MAGIC 0xba55ed50u
#define PARAM_ALIGN 16u

static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;

/* ---- modules ------------------------------------------------------------------------------- */
CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	fake_entry_t call = { .name = "cuModuleLoadData" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	uint32_t magic = 0;
	size_t n = (size_t)(__stop_fake_kernels - __start_fake_kernels);
	CUmodule module;

	if (status == CUDA_SUCCESS)
		memcpy(&magic, image, sizeof(magic));
	if (status == CUDA_SUCCESS && magic != FATBIN_MAGIC)
		status = CUDA_ERROR_INVALID_IMAGE;
	if (status == CUDA_SUCCESS && fake.capability < 80)
		status = CUDA_ERROR_NO_BINARY_FOR_GPU;
	if (status != CUDA_SUCCESS)
		return fake_leave(&call, status);
	fake_wait_context(fake_current());
	module = calloc(1, sizeof(*module) + n * sizeof(module->functions[0]));
	if (module == NULL)
		abort();
	for (const fake_kernel_t *const *k = __start_fake_kernels; k < __stop_fake_kernels; k++)
		if (*k != NULL)
			module->functions[module->nfunctions++] = (struct CUfunc_st){ *k, module };
	fake_object_add(module, FAKE_MODULE, fake_current());
	for (n = 0; fake.modules[n] != NULL; n++)
		if (n + 1 == FAKE_MAX_MODULES)
			abort();
	fake.modules[n] = module;
	*out = module;
	return fake_leave(&call, CUDA_SUCCESS);
}

void fake_module_free(CUmodule module)
{
	for (int i = 0; i < FAKE_MAX_MODULES; i++)
		if (fake.modules[i] == module)
			fake.modules[i] = NULL;
	fake_object_remove(module);
	free(module);
}

CUresult cuModuleUnload(CUmodule module)
{
	fake_entry_t call = { .name = "cuModuleUnload" };
	CUresult status = fake_enter(&call, FAKE_CURRENT);

	if (fake_live(module, FAKE_MODULE, call.name) == CUDA_SUCCESS)
		fake_module_free(module);
	return fake_leave(&call, status);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
	fake_entry_t call = { .name = "cuModuleGetFunction" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS)
		status = fake_live(module, FAKE_MODULE, call.name);
	if (status != CUDA_SUCCESS)
		return fake_leave(&call, status);
	for (size_t i = 0; i < module->nfunctions; i++)
		if (!strcmp(module->functions[i].kernel->name, name)) {
			*out = &module->functions[i];
			return fake_leave(&call, CUDA_SUCCESS);
		}
	return fake_leave(&call, CUDA_ERROR_NOT_FOUND);
}

static int max_threads(const fake_kernel_t *kernel)
{
	const bool fewer = fake.block_threads && fake.block_threads < kernel->max_threads;

	return fewer ? fake.block_threads : kernel->max_threads;
}

CUresult cuFuncGetAttribute(int *out, CUfunction_attribute attribute, CUfunction f)
{
	fake_entry_t call = { .name = "cuFuncGetAttribute" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);

	if (status != CUDA_SUCCESS)
		return fake_leave(&call, status);
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*out = max_threads(f->kernel);
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*out = 32;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*out = fake.capability;
		break;
	default:
		*out = 0;
	}
	return fake_leave(&call, CUDA_SUCCESS);
}

/* ---- launches ------------------------------------------------------------------------------ */
/* The launch as an operation holds copies of the parameters, each at a separate address. */
static CUresult copy_params(const fake_kernel_t *k, unsigned char *to, void **params)
{
	size_t at = 0;

	for (int i = 0; i < k->nparams; i++) {
		if (at + k->sizes[i] > FAKE_MAX_PARAMS)
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(to + at, params[i], k->sizes[i]);
		at = (at + k->sizes[i] + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
	}
	return CUDA_SUCCESS;
}

static void find_params(const fake_kernel_t *k, const unsigned char *from, void **params)
{
	size_t at = 0;

	for (int i = 0; i < k->nparams; i++) {
		params[i] = (void *)(uintptr_t)(from + at);
		at = (at + k->sizes[i] + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
	}
}

/* The places of a kernel of the dialect: pointers to live memory, and offsets within it. */
static bool check_places(CUcontext ctx, const fake_kernel_t *k, void **params)
{
	for (int i = 0; i < k->nplaces; i++) {
		uintptr_t base;
		unsigned long long offset;
		char what[128];

		memcpy(&base, params[2 * i], sizeof(base));
		memcpy(&offset, params[2 * i + 1], sizeof(offset));
		snprintf(what, sizeof(what), "kernel \"%s\", place %d", k->name, i);
		if (base && !fake_check_range(what, ctx, base, offset, false))
			return false;
	}
	return true;
}

static CUresult check_shape(CUfunction f, const fake_op_t *op)
{
	const unsigned *g = op->u.launch.grid, *b = op->u.launch.block;
	unsigned nthreads = b[0] * b[1] * b[2];

	if (!g[0] || !g[1] || !g[2] || !nthreads || g[0] > 0x7fffffffu || g[1] > 65535 ||
	    g[2] > 65535 || b[0] > 1024 || b[1] > 1024 || b[2] > 64 || nthreads > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (nthreads > (unsigned)max_threads(f->kernel))
		return CUDA_ERROR_INVALID_VALUE;
	if (f->kernel->must_threads && !fake.block_threads &&
	    nthreads != (unsigned)f->kernel->max_threads)
		fake_complain("kernel \"%s\" is launched with %u threads a block, it is for %d",
			      f->kernel->name, nthreads, f->kernel->max_threads);
	return CUDA_SUCCESS;
}

/* A function of a module that is loaded. */
static CUresult check_function(CUfunction f)
{
	for (fake_object_t *o = fake.objects; o != NULL; o = o->next) {
		CUmodule m = (CUmodule)(void *)o;

		if (o->type == FAKE_MODULE && f >= m->functions && f < m->functions + m->nfunctions)
			return CUDA_SUCCESS;
	}
	fake_complain("cuLaunchKernel: %p is no function of a loaded module", (void *)f);
	return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
			unsigned by, unsigned bz, unsigned shared_nbytes, CUstream stream,
			void **params, void **extra)
{
	fake_entry_t call = { .name = "cuLaunchKernel", .has_stream = true, .stream = stream };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	void *places[FAKE_MAX_KERNEL_PARAMS];
	fake_op_t *op;

	if (status == CUDA_SUCCESS)
		status = check_function(f);
	if (status == CUDA_SUCCESS &&
	    (extra != NULL || shared_nbytes || f->module->object.ctx != stream->object.ctx))
		status = CUDA_ERROR_INVALID_HANDLE;
	if (status != CUDA_SUCCESS)
		return fake_leave(&call, status);
	call.kernel = f->kernel->name;
	op = fake_op_new(FAKE_LAUNCH, f->kernel->name, 0);
	op->u.launch.kernel = f->kernel;
	memcpy(op->u.launch.grid, (unsigned[]){ gx, gy, gz }, sizeof(op->u.launch.grid));
	memcpy(op->u.launch.block, (unsigned[]){ bx, by, bz }, sizeof(op->u.launch.block));
	status = check_shape(f, op);
	if (status == CUDA_SUCCESS)
		status = copy_params(f->kernel, op->u.launch.params, params);
	find_params(f->kernel, op->u.launch.params, places);
	if (status == CUDA_SUCCESS && !check_places(fake_current(), f->kernel, places))
		status = CUDA_ERROR_INVALID_VALUE;
	if (status == CUDA_SUCCESS)
		fake_put(stream, op);
	else
		free(op);
	return fake_leave(&call, status);
}

/* ---- running one --------------------------------------------------------------------------- */
/* "k_softmax_bf16" -> the form for the processor, or NULL. */
static srt_kernel_cpu_fn *cpu_form(const char *name)
{
	const char *dtype = strrchr(name, '_');
	srt_cpu_isa_t isa = SRT_ISA_BASELINE;

	for (int i = 0; i < SRT_ISA_COUNT; i++)
		if (srt_cpu_isa_usable((srt_cpu_isa_t)i))
			isa = (srt_cpu_isa_t)i;
	for (int d = SRT_F32; dtype != NULL && d <= SRT_BF16; d++)
		for (int k = 0; k < SRT_K_COUNT; k++) {
			const char *stem = srt_kernel_info((srt_kernel_id_t)k)->name;

			if (!strcmp(dtype + 1, srt_kernel_dtype_name((srt_dtype_t)d)) &&
			    !strncmp(name, "k_", 2) && strlen(stem) == (size_t)(dtype - name - 2) &&
			    !strncmp(name + 2, stem, strlen(stem)))
				return srt_kernel_cpu((srt_kernel_id_t)k, (srt_dtype_t)d, isa);
		}
	return NULL;
}

static void run_cpu(srt_kernel_cpu_fn *run, const fake_kernel_t *k, void **params, int64_t ngroups)
{
	unsigned char *places[SRT_COMMAND_MAX_BINDINGS] = { 0 };

	for (int i = 0; i < k->nplaces; i++) {
		unsigned long long offset;

		memcpy(&places[i], params[2 * i], sizeof(places[i]));
		memcpy(&offset, params[2 * i + 1], sizeof(offset));
		if (places[i] != NULL)
			places[i] += offset;
	}
	run(places, params[2 * k->nplaces], 0, ngroups);
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	return b ? gcd(b, a % b) : a;
}

/* All blocks, from a random one on with a random step that passes through all. */
static void run_text(const fake_op_t *op, void **params)
{
	const fake_kernel_t *k = op->u.launch.kernel;
	const unsigned *g = op->u.launch.grid, *b = op->u.launch.block;
	uint64_t n = (uint64_t)g[0] * g[1] * g[2], step, at;
	uint32_t random = fake.seed;

	step = n > 2 ? fake_random(&random) % n : 1;
	while (gcd(step, n) != 1)
		step++;
	at = fake_random(&random) % n;
	fake_grid_dim = (fake_dim_t){ g[0], g[1], g[2] };
	fake_block_dim = (fake_dim_t){ b[0], b[1], b[2] };
	for (uint64_t i = 0; i < n; i++, at = (at + step) % n) {
		fake_block_idx = (fake_dim_t){ (unsigned)(at % g[0]), (unsigned)(at / g[0] % g[1]),
					       (unsigned)(at / g[0] / g[1]) };
		fake_who.block = (uint32_t)at + 1;
		if (!fake_block_run(k, params, &random))
			return;
	}
}

void fake_run_launch(CUcontext ctx, fake_lane_t *lane, const fake_op_t *op)
{
	const fake_kernel_t *k = op->u.launch.kernel;
	srt_kernel_cpu_fn *cpu = fake.cpu_kernels && k->nplaces ? cpu_form(k->name) : NULL;
	void *params[FAKE_MAX_KERNEL_PARAMS];
	bool ok;

	find_params(k, op->u.launch.params, params);
	fake_lock();
	ok = check_places(ctx, k, params); /* freed since, perhaps */
	fake_unlock();
	if (!ok)
		return;
	if (cpu != NULL) {
		run_cpu(cpu, k, params, (int64_t)op->u.launch.grid[0]);
		return;
	}
	pthread_mutex_lock(&running);
	fake_access_begin(ctx, k);
	run_text(op, params);
	fake_access_end(lane);
	pthread_mutex_unlock(&running);
}
