/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads the driver, and reports its error codes. SHARDRT_CUDA_DRIVER names the library. The
 * driver's major version must be at least the toolkit's, so that it runs the code of nvcc. Called
 * by device.c through srt_cuda_driver().
 */
#include "backends/cuda/driver.h"

#include <stdarg.h>
#include <stdio.h>

#include "backends/cuda/library.h"

#define SENTENCE_NBYTES 768
/* Machine code runs on drivers of the same major version as the compiler's, and later ones. */
#define NEEDED_VERSION (CUDA_VERSION / 1000 * 1000)
/* The minimum driver for the toolkit: table "CUDA Toolkit and Minimum Required Driver Version" of
 * the toolkit's release notes. */
#if CUDA_VERSION / 1000 == 12
#define NEEDED_DRIVER ", that is driver 525 or newer"
#elif CUDA_VERSION / 1000 == 13
#define NEEDED_DRIVER ", that is driver 580 or newer"
#else
#define NEEDED_DRIVER ""
#endif

/* Formats a version: 12040 is 12.4. */
#define VERSION_FORMAT "%d.%d"
#define VERSION_ARGS(v) (v) / 1000, (v) % 1000 / 10

#define AS_TEXT_(name) #name
#define AS_TEXT(name) AS_TEXT_(name)

static const srt_cuda_library_function_t functions[] = {
#define ROW(name) { AS_TEXT(name), offsetof(srt_cuda_driver_t, name) },
	SRT_CUDA_FUNCTIONS(ROW)
#undef ROW
};

static srt_status_t initialise_driver(const srt_host_services_t *host, const char *path,
				      void *table)
{
	const srt_cuda_driver_t *drv = table;
	int version = 0;
	CUresult code = drv->cuDriverGetVersion(&version);

	if (code == CUDA_SUCCESS && version < NEEDED_VERSION)
		return host->fail(SRT_ERR_UNSUPPORTED,
				  "the CUDA driver (%s) is too old: it is for CUDA " VERSION_FORMAT
				  ", and this backend needs one for CUDA " VERSION_FORMAT
				  " or newer" NEEDED_DRIVER,
				  path, VERSION_ARGS(version), VERSION_ARGS(NEEDED_VERSION));
	if (code == CUDA_SUCCESS)
		code = drv->cuInit(0);
	if (code == CUDA_ERROR_NO_DEVICE)
		return host->fail(SRT_ERR_NOT_FOUND,
				  "the CUDA driver (%s) finds no device: see that nvidia-smi lists "
				  "one, and that CUDA_VISIBLE_DEVICES does not hide it",
				  path);
	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(host, drv, code, "the CUDA driver (%s) does not start", path);
}

srt_status_t srt_cuda_driver(const srt_host_services_t *host, const srt_cuda_driver_t **drv)
{
	static srt_cuda_driver_t driver;
	static srt_cuda_library_t library = {
		.what = "CUDA driver",
		.package = "NVIDIA's driver",
		.variable = "SHARDRT_CUDA_DRIVER",
		.standard = "libcuda.so.1",
		.functions = functions,
		.nfunctions = sizeof(functions) / sizeof(functions[0]),
		.table = &driver,
		.start = initialise_driver,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	srt_status_t status = srt_cuda_library_load(&library, host);

	if (status == SRT_OK)
		*drv = &driver;
	return status;
}

/* ---- codes ------------------------------------------------------------------------------- */

const char *srt_cuda_code_name(const srt_cuda_driver_t *drv, CUresult code)
{
	const char *name = NULL;

	return drv->cuGetErrorName(code, &name) == CUDA_SUCCESS && name != NULL ? name :
										  "an unknown code";
}

static const char *code_text(const srt_cuda_driver_t *drv, CUresult code)
{
	const char *text = NULL;

	return drv->cuGetErrorString(code, &text) == CUDA_SUCCESS && text != NULL ?
		       text :
		       "no text for it";
}

srt_status_t srt_cuda_fail(const srt_host_services_t *host, const srt_cuda_driver_t *drv,
			   CUresult code, const char *format, ...)
{
	char sentence[SENTENCE_NBYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	return host->fail(code == CUDA_ERROR_OUT_OF_MEMORY ? SRT_ERR_OUT_OF_MEMORY : SRT_ERR_DEVICE,
			  "%s: %s (%d), %s", sentence, srt_cuda_code_name(drv, code), (int)code,
			  code_text(drv, code));
}
