#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What the engine refuses, on 1 to 3 ranks; a rank that dies, or whose stream fails, leaves the others with
# an error.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "1 2 3" tests/engine/test_engine_errors
	run_ranks "2 3" tests/engine/test_engine_ranks
	SHARDRT_CHECK=1 && export SHARDRT_CHECK
	run_ranks 2 tests/engine/test_engine_checks
	unset SHARDRT_CHECK
	run_ranks "1 2" tests/engine/test_engine_states
	out=$(./shardrun --keep-going -n 3 tests/engine/test_engine_errors die 2>&1)
	n=$(echo "$out" | grep -c 'survives: .*rank 2')
	for before in pass step hash "pass ddp" "hash ddp"; do
		# shellcheck disable=SC2086
		./shardrun -k -n 3 tests/engine/test_engine_ranks $before || exit 1
	done
	[ "$n" = 2 ] || { echo "2 ranks should survive rank 2 and say so; $n did: $out"; exit 1; }
done
