#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Collectives of the cuda backend by CUDA IPC, without a GPU: ranks that share a device, and ranks with one
# each, read peers' memory where it lies, with the hash of the staged job and of the cpu's. Where the driver
# refuses, where ranks are of different backends and where staging is asked for, they are staged, and the
# log says why. A rank that is killed is an error on the others. The driver (tests/fake_cuda/) ends a rank that
# frees what others have open, uses what was freed, or leaves something open.
SHARDRT_BACKEND=cuda
. "$srcdir/tests/run_ranks.sh"
here=$(pwd)
SHARDRT_CUDA_DRIVER=$here/tests/fake_cuda/.libs/libfake_cuda.so
[ -f "$SHARDRT_CUDA_DRIVER" ] && [ -f .libs/shardrt_backend_cuda.so ] || skip "no shared objects are built"
SHARDRT_MODULE_PATH=$here/.libs SHARDRT_CUDA_TUNED=portable SHARDRT_COLLECTIVES=shm
FAKE_CUDA_KERNELS=cpu FAKE_CUDA_DELAY_US=20 SHARDRT_NUMERICS=exact # not by cuBLASLt
export SHARDRT_CUDA_DRIVER SHARDRT_MODULE_PATH SHARDRT_CUDA_TUNED SHARDRT_COLLECTIVES
export FAKE_CUDA_KERNELS FAKE_CUDA_DELAY_US SHARDRT_NUMERICS
unset SHARDRT_DEVICE
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}
text=tests/cuda_ipc.tmp
trap 'rm -f "$text" "$text.err"' EXIT
cat "$srcdir"/include/shardrt/*.h > "$text"
model="--layers 1 --heads 2 --width 16 --context 16 --batch 6 --steps 2"
[ -z "$SRT_TEST_LONG" ] || model="--preset nano --batch 6 --steps 10 --clip 0.5"
staged='collectives are staged'
# trained RANKS WORDS COMMAND...: the log has the words, "" = nothing of staging; the hash is the cpu's
trained()
{
	n=$1 words=$2
	shift 2
	hash=$(SHARDRT_LOG=info ./shardrun -n "$n" "$@" ./shardrt-train --text "$text" $model --eval-every 0 \
		--numerics exact --hash --strategy zero3 2> "$text.err" | sed -n 's/^hash: //p')
	grep -q "xxhash" "$text.err" && return # built without it
	[ -n "$hash" ] && [ "$hash" = "$reference" ] || fail "$*, $n ranks: '$hash', not '$reference'"
	if [ -z "$words" ]; then
		grep -q "$staged" "$text.err" && fail "$*, $n ranks: staged" && cat "$text.err"
		return
	fi
	grep "$staged" "$text.err" | grep -q "$words" || { fail "no \"$words\" with $*:"; cat "$text.err"; }
}
for n in 2 3; do
	reference=$(SHARDRT_BACKEND=cpu ./shardrun -n $n ./shardrt-train --text "$text" $model --eval-every 0 \
		--numerics exact --hash --strategy zero3 2> "$text.err" | sed -n 's/^hash: //p')
	trained $n '' env
	trained $n '' env FAKE_CUDA_DEVICES=$n
	trained $n 'SHARDRT_COLLECTIVES is staged' env SHARDRT_COLLECTIVES=staged
done
trained 3 'has no memory that peers can map' env SHARDRT_PEER_MEMORY=no
trained 3 'makes no IPC handle.*NOT_SUPPORTED' env FAKE_CUDA_IPC=1
trained 3 'does not map.*PEER_ACCESS_UNSUPPORTED' env FAKE_CUDA_IPC=2
on_rank='[ "$SHARDRT_RANK" != 1 ] || export "$0"; exec "$@"'
trained 3 'on rank 1: .*makes no IPC handle' sh -c "$on_rank" FAKE_CUDA_IPC=1
trained 3 "cannot map each other's memory" sh "$srcdir/tests/by_rank.sh" cpu+cuda
for n in 2 3; do
	for program in test_collectives test_coll_order test_staging test_engine; do
		./shardrun -n $n tests/$program > "$text.err" 2>&1 || { fail "$program on $n ranks"; cat "$text.err"; }
	done
	./shardrun -n $n tests/test_peer_failures abort || fail "abort on $n ranks"
	out=$(./shardrun -k -n $n tests/test_peer_failures die 2>&1)
	[ $? = 137 ] || fail "die on $n ranks: $out"
	case $out in *FAIL* | *expected* | *"fake_cuda:"*) fail "die on $n ranks: $out" ;; esac
done
cell 3 "$([ $failed = 0 ] && echo pass || echo fail)"
exit $failed
