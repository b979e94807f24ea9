#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The engine's memory plan and allocations, on 1 to 4 ranks, in each form of the backend.
. "$srcdir/tests/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
for form in $forms $staged_forms; do
	use_form $form
	run_ranks "1 2 3 4" tests/test_engine_plan
done
# Many ranks need scratch for sums.
use_form "${forms%% *}"
run_ranks "9" tests/test_engine_plan
