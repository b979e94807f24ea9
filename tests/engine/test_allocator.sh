#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# An engine in memory of the program, on 1 to 3 ranks; on several only where ranks do not map each other's memory.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "1 2 3" tests/engine/test_allocator
done
