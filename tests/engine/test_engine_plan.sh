#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The engine's memory plan and allocations on 1 to 4 ranks in the backend's first form, on 2 and 3 in the others.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
ranks="1 2 3 4"
for form in $forms $staged_forms; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_engine_plan
	[ -n "$SRT_TEST_LONG" ] || ranks="2 3"
done
# A device for each rank, and devices that some ranks share; and no margin.
if [ "$SRT_BACKEND_NAME" = fakecuda ]; then
	for n in 2 3; do
		FAKE_CUDA_DEVICES=2 ./shardrun -n $n tests/engine/test_engine_plan check || exit 1
	done
	SHARDRT_MEMORY_MARGIN=0 ./shardrun -n 1 tests/engine/test_engine_plan check || exit 1
fi
# Many ranks need scratch for sums.
use_form "${forms%% *}"
[ "$SHARDRT_BACKEND" != cpu ] || most_ranks=512
run_ranks "9" tests/engine/test_engine_plan
