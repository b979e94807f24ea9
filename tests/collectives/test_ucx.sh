#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The transport ucx: the tests of collectives on it, over shared memory and over tcp, with slots so small that sums are
# cut into many rounds; trainings by it have the hash of the cpu's zero copy, also with ranks on devices of two kinds.
# On the cpu messages go from buffer to buffer, on other devices through host memory.
. "$srcdir/tests/harness/run_ranks.sh"
grep -q '^#define HAVE_UCX 1' config.h || skip "built without UCX"
SRT_TEST_COLLECTIVES=ucx
export SRT_TEST_COLLECTIVES
text=tests/ucx.$SHARDRT_BACKEND.tmp
. "$srcdir/tests/harness/transport.sh"
model="--layers 2 --heads 2 --width 24 --context 20 --batch 6 --steps 4"

# script NAME: a test of this folder, all of it
script()
{
	sh "$srcdir/tests/collectives/$1.sh" > "$text.out" 2>&1 || { fail "$1.sh:"; cat "$text.out"; }
}

ok()
{
	n=$1
	shift
	./shardrun -n "$n" "$@" || fail "$* on $n ranks"
}

use_form "${forms%% *}"
ok 3 tests/collectives/test_collectives
ok 2 tests/collectives/test_half_sums
ok 3 tests/collectives/test_staging
if [ "$SHARDRT_BACKEND" = cpu ] || [ -n "$SRT_TEST_LONG" ]; then
	ok 2 tests/collectives/test_collectives
	ok 3 tests/collectives/test_mismatch
	ok 3 tests/collectives/test_messages
	ok 3 tests/collectives/test_plain
	ok 4 tests/collectives/test_mesh
	dies 2
fi
if [ "$SHARDRT_BACKEND" = cpu ]; then
	script test_coll_order
	script test_kill
	ok 9 tests/collectives/test_collectives
	for mode in abort leave timeout; do ok 4 tests/collectives/test_peer_failures $mode; done
	dies 4 all-to-all
	unset SRT_TEST_COLLECTIVES && use_form threads
	ok 3 tests/collectives/test_ucx_nodes
	ok 4 tests/collectives/test_ucx_nodes
	SRT_TEST_COLLECTIVES=ucx && use_form threads
	UCX_TLS=tcp,self && export UCX_TLS
	ok 3 tests/collectives/test_collectives
	ok 3 tests/collectives/test_mismatch
	dies 3
	dies 2 all-to-all
	unset UCX_TLS
fi

ucx="env SHARDRT_COLLECTIVES=ucx"
for ranks in 2 3; do
	for options in "" "--dtype fp16 --scaler --init-scale 1048576"; do
		case $SHARDRT_BACKEND.$SRT_TEST_LONG.$ranks.$options in cpu.* | *.1.* | *.2.--* | *.3.) ;; *) continue ;; esac
		model="--layers 2 --heads 2 --width 24 --context 20 --batch 6 --steps 4 $options"
		reference=
		SHARDRT_BACKEND=cpu SHARDRT_COLLECTIVES=shm trained . env
		trained 'collectives by UCX' $ucx
		[ "$SHARDRT_BACKEND" = cpu ] ||
			trained 'collectives by UCX' $ucx sh "$srcdir/tests/harness/by_rank.sh" "$SHARDRT_BACKEND+cpu"
	done
done
trained 'collectives by UCX' $ucx UCX_TLS=tcp,self

if [ -n "$SRT_TEST_LONG" ]; then
	for name in collectives messages mesh mismatch staging peer_failures; do
		script test_$name
	done
	for n in 4 5 8; do
		ok $n tests/collectives/test_collectives
		UCX_TLS=tcp,self ok $n tests/collectives/test_collectives
	done
fi
rm -f "$text.out"
cell 3 "$(result)"
exit $failed
