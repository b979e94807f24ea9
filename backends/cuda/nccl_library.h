/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL, libnccl.so.2, loaded at run time: a table of pointers to the functions in use. nccl.h is
 * included only for its types, and nothing is linked. Without the library, collectives between CUDA
 * devices are staged through host memory. Part of the CUDA module (backends/cuda/).
 */
#ifndef SRT_BACKENDS_CUDA_NCCL_LIBRARY_H
#define SRT_BACKENDS_CUDA_NCCL_LIBRARY_H

#include <nccl.h>

#include "backends/cuda/cuda.h"

#define SRT_NCCL_FUNCTIONS(F)                                                                      \
	F(ncclGetVersion)                                                                          \
	F(ncclGetErrorString)                                                                      \
	F(ncclGetLastError)                                                                        \
	F(ncclGetUniqueId)                                                                         \
	F(ncclCommInitRankConfig)                                                                  \
	F(ncclCommGetAsyncError)                                                                   \
	F(ncclCommFinalize)                                                                        \
	F(ncclCommDestroy)                                                                         \
	F(ncclCommAbort)                                                                           \
	F(ncclGroupStart)                                                                          \
	F(ncclGroupEnd)                                                                            \
	F(ncclSend)                                                                                \
	F(ncclRecv)                                                                                \
	F(ncclBroadcast)                                                                           \
	F(ncclAllGather)                                                                           \
	F(ncclReduceScatter)                                                                       \
	F(ncclAllReduce)

typedef struct srt_nccl_library {
#define MEMBER(name) __typeof__(name) *name;
	SRT_NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
	int version; /* 22809 is 2.28.9 */
} srt_nccl_library_t;

/* The library, loaded by the first call that succeeds. Thread-safe. */
srt_status_t srt_nccl_library(const srt_host_services_t *host, const srt_nccl_library_t **library);

#endif
