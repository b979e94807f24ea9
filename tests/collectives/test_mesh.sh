#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Meshes of all shapes, in each form of the backend; a rank that comes late to a split, or dies.
. "$srcdir/tests/harness/run_ranks.sh"
[ $most_ranks -ge 4 ] || most_ranks=4 most_staged=4 # it is short
for form in $forms $staged_forms; do
	use_form $form
	case $form in
	threads | default | loop) worlds="1 2 3 4 6" ;;
	*) worlds="4" ;;
	esac
	run_ranks "$worlds" tests/collectives/test_mesh
done
use_form "${forms%% *}"
run_ranks "3" tests/collectives/test_mesh late
out=$(./shardrun -k -n 3 tests/collectives/test_mesh die 2>&1)
code=$?
# The dying rank decides the exit status; the others must not have failed.
case $code.$out in
*FAIL*) code=1 ;;
esac
[ $code = 137 ] || { echo "FAIL: die: status $code: $out"; exit 1; }
