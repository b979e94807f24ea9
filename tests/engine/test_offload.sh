#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Offload in the backend's first form on more ranks, in the others on two; with meshes on four.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
all=
[ "$SHARDRT_BACKEND" != cpu ] || all=all
ranks="1 2 3"
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_offload $all
	ranks=2 all=
done
use_form "${forms%% *}"
[ $most_ranks -ge 4 ] || most_ranks=4
run_ranks "4" tests/engine/test_offload
