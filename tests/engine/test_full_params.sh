#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Full parameters on demand on 1 to 4 ranks, with meshes; in the other forms on two. Then with SHARDRT_CHECK=1.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
[ $most_ranks -ge 4 ] || most_ranks=4
ranks="1 2 3 4"
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_full_params
	ranks=2
done
SHARDRT_CHECK=1 && export SHARDRT_CHECK
run_ranks 2 tests/engine/test_full_params
