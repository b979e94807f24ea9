#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Wrong sums of gradients are found with SHARDRT_AUDIT=1: all cases in the backend's first form, some in the
# others. A run without wrong sums has the same bits with and without it.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1 SHARDRT_AUDIT=1
export SHARDRT_THREADS SHARDRT_AUDIT
[ $most_ranks -ge 4 ] || most_ranks=4 most_staged=4 # the least with shards and replicas
case $SHARDRT_BACKEND in cpu) ranks="1 2 3 4" cases= ;; *) ranks="1 2 4" cases=short ;; esac
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_audit $cases
	run_ranks "$ranks" tests/engine/test_audit_values
	ranks=2 cases=short
done
use_form "${forms%% *}"
for n in 2 4; do
	with=$(./shardrun -n $n tests/engine/test_audit clean) || exit 1
	without=$(SHARDRT_AUDIT=0 ./shardrun -n $n tests/engine/test_audit clean) || exit 1
	[ "$with" = "$without" ] || { echo "SHARDRT_AUDIT=1 changes bits on $n ranks: $with, not $without"; exit 1; }
done
# shellcheck disable=SC2016
out=$(./shardrun -n 2 sh -c 'SHARDRT_AUDIT=$SHARDRT_RANK exec tests/engine/test_audit clean' 2>&1) &&
	{ echo "ranks with and without SHARDRT_AUDIT should not build an engine"; exit 1; }
case $out in *"SHARDRT_AUDIT 0, "*"SHARDRT_AUDIT 1, "*) ;; *) echo "not the mismatch: $out"; exit 1 ;; esac
