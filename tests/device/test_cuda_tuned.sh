#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The tuned kernels of GPUs as CUDA text, on the fake driver, which finds races and stray accesses: when the
# device is opened each shape of tiles is compared with the portable kernels, and small products and attention
# of all types have the CPU's bits; with "long" all cases of test_tuned. SHARDRT_CUDA_TUNED=tiled makes a
# difference an error.
. "$srcdir/tests/harness/run_ranks.sh"
grep -q '^#define HAVE_CUDA 1' config.h || skip "built without CUDA"
SHARDRT_BACKEND=cuda SHARDRT_CUDA_TUNED=tiled SHARDRT_CUDA_DRIVER=${PWD}/tests/fakes/fake_cuda/.libs/libfake_cuda.so
export SHARDRT_BACKEND SHARDRT_CUDA_TUNED SHARDRT_CUDA_DRIVER
unset SHARDRT_DEVICE
[ "${1:-short}" != long ] || exec tests/kernels/test_tuned
exec tests/kernels/test_tuned tiny
