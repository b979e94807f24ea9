/* SPDX-License-Identifier: BSD-3-Clause */
/* What nccl.c and calls.c share. */
#ifndef SRT_TESTS_FAKE_NCCL_CALLS_H
#define SRT_TESTS_FAKE_NCCL_CALLS_H

#include <nccl.h>

#include "tests/fakes/fake_nccl/wire.h"

/* Ends the process with a sentence about the caller's mistake. */
void fake_nccl_complain(const char *sentence);

/* Adds a call to the thread's group; call.nbytes counts elements. */
ncclResult_t fake_nccl_add_call(const char *name, ncclComm_t comm, cudaStream_t stream,
				ncclDataType_t type, wire_call_t call);

#endif
