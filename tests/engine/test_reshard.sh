#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Resharding to groups of ranks: all cases on 4, 6 and 8 ranks of the cpu, some in its other forms and on the
# other backends, and on two nodes.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
[ $most_ranks -ge 4 ] || most_ranks=4 most_staged=4 # the least with several groups
for form in $forms ${staged_forms%% *}; do
	use_form $form
	case $form in
	threads) run_ranks "4 6 8" tests/engine/test_reshard ;;
	*) run_ranks 4 tests/engine/test_reshard short ;;
	esac
done
for form in ${staged_forms%% *} ${forms%% *}; do
	use_form $form
	run_nodes tests/engine/test_reshard short
done
[ "$SHARDRT_BACKEND" != cpu ] || SHARDRT_CHECK=1 run_ranks 4 tests/engine/test_reshard short
