#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The gradient scaler on 1 to 4 ranks, in each form of the backend.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
for form in $forms ${staged_forms##* }; do
	use_form $form
	run_ranks "1 2 4" tests/engine/test_scaler
	run_ranks "1 2 3 4" tests/engine/test_scaler_engine
done
