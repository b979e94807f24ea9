#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank aborts, comes too late, leaves, exits or is killed: the others get an error that names it.
. "$srcdir/tests/run_ranks.sh"
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

for streams in inline threads; do
	SHARDRT_CPU_STREAMS=$streams
	export SHARDRT_CPU_STREAMS
	for n in 2 4; do
		for mode in abort leave; do
			./shardrun -n $n tests/test_peer_failures $mode || fail "$mode, $n, $streams"
		done
		SHARDRT_TIMEOUT=0.7 ./shardrun -n $n tests/test_peer_failures timeout ||
			fail "timeout, $n, $streams"
		# The dying rank decides the exit status; the others must not have failed.
		for mode in die exit; do
			out=$(./shardrun -k -n $n tests/test_peer_failures $mode 2>&1)
			code=$?
			want=$([ $mode = die ] && echo 137 || echo 0)
			[ $code = "$want" ] || fail "$mode, $n, $streams: status $code: $out"
			case $out in
			*FAIL*) fail "$mode, $n, $streams: $out" ;;
			esac
		done
	done
done
SHARDRT_TIMEOUT=1 SHARDRT_CPU_STREAMS=threads ./shardrun -n 2 tests/test_peer_failures ring ||
	fail "ring"
exit $failed
