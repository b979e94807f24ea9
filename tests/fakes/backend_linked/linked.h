/* SPDX-License-Identifier: BSD-3-Clause */
/* The toy device with a library like NCCL for collectives; see backend.c. */
#ifndef SRT_TESTS_BACKEND_LINKED_LINKED_H
#define SRT_TESTS_BACKEND_LINKED_LINKED_H

#include "tests/fakes/backend_toy/toy.h"

extern const srt_backend_comm_ops_t linked_comm_ops;

#endif
