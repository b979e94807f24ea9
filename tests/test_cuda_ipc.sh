#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Collectives of the cuda backend by CUDA IPC, without a GPU: ranks that share a device, and ranks with one
# each, read peers' memory where it lies, with the hash of the staged job and of the cpu's. Where the driver
# refuses or gives wrong bytes, where ranks are of different backends and where staging is asked for, they are
# staged, and the log says why. A rank that is killed is an error on the others. The driver (tests/fake_cuda/) ends a rank that
# frees what others have open, uses what was freed, or leaves something open.
SHARDRT_BACKEND=cuda
. "$srcdir/tests/run_ranks.sh"
here=$(pwd)
SHARDRT_CUDA_DRIVER=$here/tests/fake_cuda/.libs/libfake_cuda.so
grep -q '^#define HAVE_CUDA 1' config.h || skip "there is no CUDA module in this build"
[ -f "$SHARDRT_CUDA_DRIVER" ] && [ -f .libs/shardrt_backend_cuda.so ] || skip "no shared objects are built"
SHARDRT_MODULE_PATH=$here/.libs SHARDRT_CUDA_TUNED=portable SHARDRT_COLLECTIVES=shm
FAKE_CUDA_KERNELS=cpu FAKE_CUDA_DELAY_US=20 SHARDRT_NUMERICS=exact # not by cuBLASLt
export SHARDRT_CUDA_DRIVER SHARDRT_MODULE_PATH SHARDRT_CUDA_TUNED SHARDRT_COLLECTIVES
export FAKE_CUDA_KERNELS FAKE_CUDA_DELAY_US SHARDRT_NUMERICS
unset SHARDRT_DEVICE
text=tests/cuda_ipc.tmp
. "$srcdir/tests/transport.sh"
model="--layers 1 --heads 2 --width 16 --context 16 --batch 6 --steps 2"
[ -z "$SRT_TEST_LONG" ] || model="--preset nano --batch 6 --steps 10 --clip 0.5"
model="$model --strategy zero3"
staged='collectives are staged'
# not_staged COMMAND...: trained, and nothing of staging in the log
not_staged()
{
	trained . "$@"
	grep -q "$staged" "$text.err" && fail "$*, $ranks ranks: staged" && cat "$text.err"
}
for ranks in 2 3; do
	reference=
	SHARDRT_BACKEND=cpu trained . env
	not_staged env
	not_staged env FAKE_CUDA_DEVICES=$ranks
	trained "$staged.*SHARDRT_COLLECTIVES is staged" env SHARDRT_COLLECTIVES=staged
done
trained "$staged.*has no memory that peers can map" env SHARDRT_PEER_MEMORY=no
trained "$staged.*makes no IPC handle.*NOT_SUPPORTED" env FAKE_CUDA_IPC=1
trained "$staged.*does not map.*PEER_ACCESS_UNSUPPORTED" env FAKE_CUDA_IPC=2
trained "$staged.*on rank 0: its device's copy of rank 1's memory has other bytes" env FAKE_CUDA_IPC=3
trained "$staged.*on rank 0: what a kernel reads of rank 1's memory has other bytes" env FAKE_CUDA_IPC=4
trained "$staged.*on rank 1: .*makes no IPC handle" sh -c "$on_rank" sh 1 FAKE_CUDA_IPC=1
trained "$staged.*cannot map each other's memory" sh "$srcdir/tests/by_rank.sh" cpu+cuda
for n in 2 3; do
	for program in test_collectives test_coll_order test_staging test_engine; do
		./shardrun -n $n tests/$program > "$text.err" 2>&1 || { fail "$program on $n ranks"; cat "$text.err"; }
	done
	./shardrun -n $n tests/test_peer_failures abort || fail "abort on $n ranks"
	./shardrun -n $n tests/test_cuda_close || fail "closing during a capture on $n ranks"
	./shardrun -n $n tests/test_peer_failures hold || fail "hold on $n ranks"
	dies $n
done
cell 3 $(result)
exit $failed
