#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Collectives of the cuda backend by NCCL, without a GPU: over a fake driver (tests/fakes/fake_cuda/) and a
# fake NCCL (tests/fakes/fake_nccl/), and staged, with the same results. Then each call of NCCL failing in
# turn, a group that hangs, a link that breaks, a library that is missing or too old.
SHARDRT_BACKEND=cuda
. "$srcdir/tests/harness/run_ranks.sh"
grep -q '^#define HAVE_NCCL 1' config.h || skip "built without NCCL"
here=$(pwd)
SHARDRT_CUDA_DRIVER=$here/tests/fakes/fake_cuda/.libs/libfake_cuda.so
SHARDRT_NCCL_LIBRARY=$here/tests/fakes/fake_nccl/.libs/libfake_nccl.so
[ -f "$SHARDRT_CUDA_DRIVER" ] && [ -f "$SHARDRT_NCCL_LIBRARY" ] || skip "no shared objects are built"
SHARDRT_STAGING_BYTES=1k # some rounds of each sum
FAKE_CUDA_KERNELS=cpu SHARDRT_CUDA_TUNED=portable FAKE_CUDA_DELAY_US=20 FAKE_CUDA_DEVICES=8
export SHARDRT_CUDA_DRIVER SHARDRT_NCCL_LIBRARY SHARDRT_STAGING_BYTES
export FAKE_CUDA_KERNELS SHARDRT_CUDA_TUNED FAKE_CUDA_DELAY_US FAKE_CUDA_DEVICES
unset SHARDRT_DEVICE
text=tests/nccl.tmp
. "$srcdir/tests/harness/transport.sh"
# ok RANKS COMMAND...: succeeds with NCCL
ok()
{
	n=$1
	shift
	FAKE_NCCL_LEAKS=1 SHARDRT_COLLECTIVES=nccl ./shardrun -n "$n" "$@" || fail "$* on $n ranks"
}

worlds=2 calls="1 2 4 9"
[ -z "$SRT_TEST_LONG" ] || worlds="2 3 4" calls=$(seq 1 60)
for n in $worlds; do
	ok $n tests/collectives/test_collectives
	ok $n tests/collectives/test_half_sums
	[ -z "$SRT_TEST_LONG" ] || ok $n tests/collectives/test_mismatch
	ok $n tests/collectives/test_peer_failures abort
	ok $n tests/collectives/test_peer_failures timeout
	dies $n
	FAKE_NCCL_P2P=1 dies $n
done
ok 3 tests/collectives/test_coll_order
ok 3 tests/collectives/test_nccl_transport sums
ok 1 tests/collectives/test_nccl_transport ops
ok 2 tests/collectives/test_nccl_transport many
ok 2 tests/collectives/test_nccl_order last
ok 4 tests/collectives/test_messages
ok 3 tests/collectives/test_mesh
ok 4 env SHARDRT_NUMERICS=exact tests/engine/test_hybrid short # groups are staged
ok 3 tests/collectives/test_nccl_order abort
ok 2 env SHARDRT_NUMERICS=exact tests/engine/test_engine_plan check # not by cuBLASLt
# staged, of ranks that share a device
SHARDRT_COLLECTIVES=staged FAKE_CUDA_DEVICES=1 ./shardrun -n 3 tests/collectives/test_coll_order || fail "staged"

gpt="--layers 1 --heads 2 --width 16 --context 16 --batch 6 --steps 2"
[ -z "$SRT_TEST_LONG" ] || gpt="--preset nano --batch 6 --steps 10 --clip 0.5"
ranks=3 model="$gpt --numerics exact --strategy zero3"
SHARDRT_BACKEND=cpu trained . env
trained 'collectives by nccl' env
trained 'ranks 0 and 1 share device' env FAKE_CUDA_DEVICES=1
trained 'ranks 0 and 1 share device' env FAKE_CUDA_MIG=1
trained 'are staged' env FAKE_CUDA_DEVICES=1 SHARDRT_COLLECTIVES=staged
trained 'has no memory that peers can map' env SHARDRT_COLLECTIVES=shm
trained 'there is no NCCL' env SHARDRT_NCCL_LIBRARY=/nonexistent/libnccl.so.2
trained 'is NCCL 2.22.3; 2.23.4 or newer' env FAKE_NCCL_VERSION=22203
# NCCL whose first collective fails: joining fails, or the first group, or its bytes are wrong
slow="env SHARDRT_TIMEOUT=$((2 * ${SRT_PATIENCE:-10}))" # NCCL has half of it
for fault in FAIL=2 FAIL=4 CONNECT=1 HANG=1 BREAK=1; do
	trained 'are staged, as nccl cannot be used' $slow sh -c "$on_rank" sh 1 FAKE_NCCL_$fault
done
trained 'are staged, as nccl cannot be used' sh -c "$on_rank" sh 1 FAKE_NCCL_SPOIL=1
model="$gpt --numerics exact --strategy ddp"
trained 'collectives by nccl' env

# refused WORDS COMMAND...: no communicator
refused()
{
	words=$1
	shift
	out=$(SHARDRT_COLLECTIVES=nccl ./shardrun -n 2 "$@" tests/collectives/test_nccl_transport sums 2>&1) && fail "$* works"
	case $out in *"$words"*) ;; *) fail "$*: no \"$words\" in $out" ;; esac
}
refused 'Duplicate GPU' env FAKE_CUDA_DEVICES=1
refused 'Duplicate GPU' env FAKE_CUDA_MIG=1
refused 'there is no NCCL' env SHARDRT_NCCL_LIBRARY=/nonexistent/libnccl.so.2
refused 'has no function ncclGetVersion' env SHARDRT_NCCL_LIBRARY="$SHARDRT_CUDA_DRIVER"
ok 2 env FAKE_CUDA_DEVICES=1 NCCL_MULTI_RANK_GPU_ENABLE=1 tests/collectives/test_nccl_transport sums

# What hangs or fails in NCCL is an error on all ranks that names collective and unit.
ok 2 sh -c "$on_rank" sh 1 FAKE_NCCL_HANG=4 tests/collectives/test_nccl_transport hangs 'all-reduce of "block 7"' 'SHARDRT_TIMEOUT'
ok 2 sh -c "$on_rank" sh 1 FAKE_NCCL_BREAK=4 \
	tests/collectives/test_nccl_transport fails 'all-reduce of "block 7"' 'rank 1: ' 'NCCL: asynchronous error' 'the link is broken'
# A queue that is full, of a stream or of the driver, does not delay an abort.
ok 2 sh -c "$on_rank" sh 1 FAKE_NCCL_CONNECT=2 tests/collectives/test_nccl_transport full 'all-reduce of "block 7"' 'SHARDRT_TIMEOUT'
ok 2 sh -c "$on_rank" sh 1 FAKE_NCCL_HANG=2 tests/collectives/test_nccl_transport blocked 'all-reduce of "block 7"' 'SHARDRT_TIMEOUT'
ok 2 tests/collectives/test_nccl_transport idle
for k in $calls; do
	out=$(SHARDRT_TIMEOUT=60 SHARDRT_COLLECTIVES=nccl ./shardrun -k -n 2 sh -c "$on_rank" sh 1 FAKE_NCCL_FAIL=$k \
		tests/collectives/test_nccl_transport sums 2>&1)
	code=$?
	case $code,$out in
	1,*"internal error"*"internal error"*) ;; # both report it
	*) fail "call $k fails: exit status $code: $out" ;;
	esac
	case $out in *"fake NCCL"* | *SHARDRT_TIMEOUT*) fail "call $k fails: $out" ;; esac
done
cell 2 $(result)
exit $failed
