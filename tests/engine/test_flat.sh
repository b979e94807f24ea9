#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Flat units on 1 to 5 ranks in the backend's first form, on 2 in the others.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
ranks="1 2 3 5"
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_flat
	[ -n "$SRT_TEST_LONG" ] || ranks=2
done
