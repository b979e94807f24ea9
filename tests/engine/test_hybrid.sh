#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Engines on meshes of all shapes: all cases in one form, some in the others, on the other backends and on two nodes.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
[ $most_ranks -ge 4 ] || most_ranks=4 most_staged=4 # the least with shards and replicas
for form in $forms ${staged_forms%% *}; do
	use_form $form
	case $form$SRT_TEST_LONG in
	*?1) run_ranks "2 3 4 6" tests/engine/test_hybrid ;;
	threads)
		run_ranks "3 4" tests/engine/test_hybrid
		run_ranks "6" tests/engine/test_hybrid short
		;;
	*) run_ranks "4" tests/engine/test_hybrid short ;;
	esac
done
for form in ${staged_forms%% *} ${forms%% *}; do
	use_form $form
	run_nodes tests/engine/test_hybrid short
done
run_ranks "4" tests/engine/test_hybrid_errors
SRT_TEST_OFFLOAD=all && export SRT_TEST_OFFLOAD
run_ranks "4" tests/engine/test_hybrid short
