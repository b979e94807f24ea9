#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Programs that write to their shards themselves, with and without SHARDRT_CHECK=1; in the backend's first form on more
# ranks, in the others on two.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
[ $most_ranks -lt 3 ] || [ $most_ranks -ge 4 ] || most_ranks=4 # the least with groups and with replicas of shards
ranks="1 2 3 4"
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_local_writes
	ranks=2
done
SHARDRT_CHECK=1 && export SHARDRT_CHECK
run_ranks 2 tests/engine/test_local_writes
