#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The transport nccl with a replacement of NCCL (tests/fakes/backend_linked/): the
# same tests and the same hash as with the other transports; which ranks use it; what happens when it
# refuses, fails or hangs.
SHARDRT_BACKEND=linked
. "$srcdir/tests/harness/run_ranks.sh"
[ -f tests/fakes/backend_linked/.libs/shardrt_backend_linked.so ] || skip "no shared objects are built"
SHARDRT_STAGING_BYTES=1k # some rounds of each sum
export SHARDRT_STAGING_BYTES
text=tests/linked.tmp
. "$srcdir/tests/harness/transport.sh"
# ok RANKS COMMAND...: succeeds with this library
ok()
{
	n=$1
	shift
	SHARDRT_COLLECTIVES=nccl ./shardrun -n "$n" "$@" || fail "$* on $n ranks"
}

worlds="2 3"
[ -z "$SRT_TEST_LONG" ] || worlds="2 3 4 5 8"
for n in $worlds; do
	ok $n tests/collectives/test_collectives
	ok $n tests/collectives/test_coll_order
	ok $n tests/collectives/test_mismatch
	ok $n tests/collectives/test_nccl_transport sums
	ok $n tests/collectives/test_nccl_transport many
	for late in last others nobody; do ok $n tests/collectives/test_nccl_order $late; done
	ok $n tests/collectives/test_peer_failures abort
	ok $n tests/collectives/test_peer_failures leave
	ok $n tests/collectives/test_peer_failures timeout
	dies $n
done
dies 2 all-to-all
ok 1 tests/collectives/test_nccl_transport ops
ok 3 tests/collectives/test_messages
ok 2 tests/collectives/test_nccl_order ahead
ok 3 tests/collectives/test_nccl_order abort
ok 3 tests/engine/test_engine zero3

# auto uses it only if all ranks have it and a device each. The log shows the choice.
ranks=2 model="--layers 1 --heads 2 --width 16 --context 16 --batch 8 --steps 2"
SHARDRT_BACKEND=cpu trained . env
trained 'collectives by linked' env
trained 'collectives by linked' env SHARDRT_COLLECTIVES=nccl
trained 'are staged' env SHARDRT_COLLECTIVES=shm
trained 'ranks 0 and 1 share device' env LINKED_DEVICE=0
trained 'the library "linked" is missing' sh -c "$on_rank" sh 1 LINKED_ABSENT=1
trained 'are staged, as linked cannot be used' sh -c "$on_rank" sh 1 LINKED_REFUSE=1
trained 'are staged, as linked cannot be used' sh -c "$on_rank" sh 1 LINKED_FAIL=1
trained 'are staged, as linked cannot be used' sh -c "$on_rank" sh 1 LINKED_BREAK=1
trained 'backend cpu has no library' sh "$srcdir/tests/harness/by_rank.sh" linked+cpu

# refused WORDS COMMAND...: no communicator
refused()
{
	words=$1
	shift
	out=$(./shardrun -n 2 "$@" tests/collectives/test_nccl_transport sums 2>&1) && fail "$* works"
	case $out in *"$words"*) ;; *) fail "$*: no \"$words\" in $out" ;; esac
}
refused 'is missing' env SHARDRT_COLLECTIVES=nccl LINKED_ABSENT=1
refused 'ranks 0 and 1 are on one device' env SHARDRT_COLLECTIVES=nccl LINKED_DEVICE=0
SHARDRT_COLLECTIVES=nccl refused 'cannot join' sh -c "$on_rank" sh 1 LINKED_REFUSE=1
refused 'is nccl on rank 0 and shm on rank 1' \
	sh -c "[ \$SHARDRT_RANK = 1 ] && SHARDRT_COLLECTIVES=shm || SHARDRT_COLLECTIVES=nccl
		export SHARDRT_COLLECTIVES; exec \"\$@\"" sh

# What hangs or fails in the library is an error on all ranks that names rank, collective and unit.
for n in 2 3; do
	ok $n sh -c "$on_rank" sh 1 LINKED_HANG=4 \
		tests/collectives/test_nccl_transport hangs 'all-reduce of "block 7"' 'SHARDRT_TIMEOUT'
	ok $n sh -c "$on_rank" sh 1 LINKED_BREAK=4 \
		tests/collectives/test_nccl_transport fails 'all-reduce of "block 7"' 'rank 1' 'the link is broken'
	ok $n sh -c "$on_rank" sh 1 LINKED_FAIL=4 \
		tests/collectives/test_nccl_transport fails 'all-reduce of "block 7"' 'rank 1' 'fails on purpose'
done
cell 2 $(result)
exit $failed
