#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank aborts, comes too late, leaves, exits or is killed: the others get an error that names it.
. "$srcdir/tests/harness/run_ranks.sh"
[ "$SHARDRT_BACKEND" != cpu ] || most_ranks=512 # ranks that see the death, and ranks that hear of it
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

for form in $forms $staged_forms; do
	use_form $form
	for n in 2 4; do
		[ $n -le $most_ranks ] || continue
		before=$failed
		for mode in abort leave timeout; do
			./shardrun -n $n tests/collectives/test_peer_failures $mode || fail "$mode, $n, $form"
		done
		# The dying rank decides the exit status; the others must not have failed.
		for mode in die exit fork "die all-to-all"; do
			# shellcheck disable=SC2086
			out=$(./shardrun -k -n $n tests/collectives/test_peer_failures $mode 2>&1)
			code=$?
			want=$([ "$mode" = exit ] && echo 0 || echo 137)
			[ $code = "$want" ] || fail "$mode, $n, $form: status $code: $out"
			case $out in
			*FAIL*) fail "$mode, $n, $form: $out" ;;
			esac
		done
		cell $n "$([ $failed = $before ] && echo pass || echo fail)"
	done
done
# Not staged: one start is then more than the stream's queue may hold while it is blocked.
case $SHARDRT_BACKEND in
cpu) use_form threads ;; # inline has nothing in flight
*) use_form "${forms%% *}" ;;
esac
for mode in ring stopped; do
	# With a limit: who is stopped stays so if the process that continues it is lost.
	./shardrun --timeout 250 -n 2 tests/collectives/test_peer_failures $mode || fail "$mode"
done
out=$(./shardrun -k -n 3 tests/collectives/test_peer_failures cause 2>&1)
code=$?
case $code,$out in 137,*FAIL*) fail "cause: $out" ;; 137,*) ;; *) fail "cause: status $code: $out" ;; esac
./shardrun --timeout 250 -n 3 tests/collectives/test_peer_failures chain || fail chain
exit $failed
