/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions and build options. */
#include "config.h"

#include <shardrt/version.h>

#define STRING(x) #x
#define STRING_OF(x) STRING(x)

#ifdef HAVE_OPENCL
#define OPENCL ", opencl (module)"
#else
#define OPENCL ""
#endif

#ifdef HAVE_CUDA
#define CUDA ", cuda (module)"
#else
#define CUDA ""
#endif

#ifdef HAVE_NCCL
#define NCCL_TRANSPORT ", nccl (loaded at run time)"
#else
#define NCCL_TRANSPORT ""
#endif

#ifdef HAVE_UCX
#define UCX_TRANSPORT ", ucx (loaded at run time)"
#else
#define UCX_TRANSPORT ""
#endif

#ifdef __clang__ /* its __VERSION__ has the name */
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

int srt_version(void)
{
	return SRT_VERSION;
}

const char *srt_version_string(void)
{
	return STRING_OF(SRT_VERSION_MAJOR) "." STRING_OF(SRT_VERSION_MINOR) "." STRING_OF(
		SRT_VERSION_PATCH);
}

int srt_numerics_version(void)
{
	return SRT_NUMERICS_VERSION;
}

const char *srt_build_info(void)
{
	return "host: " SRT_BUILD_HOST "\n"
	       "compiler: " COMPILER "\n"
	       "sanitizers: " SRT_BUILD_SANITIZER "\n"
	       "backends: cpu" OPENCL CUDA "\n"
	       "cpu kernels: " SRT_BUILD_ISAS "\n"
	       "collectives: shm, staged" NCCL_TRANSPORT UCX_TRANSPORT "\n";
}
