#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Initial distributions on 1 to 4 ranks; in the backend's first form on all of them, in the others on two.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
ranks="1 2 3 4"
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_init
	ranks=2
done
