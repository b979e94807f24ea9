#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Parameters cut over a mesh of 2 to 8 ranks; in the backend's first form on more ranks, in the others on two. And on
# two nodes.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
ranks="2 3 4 6 8"
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_cells
	ranks=2
done
use_form "${forms%% *}"
[ "$SHARDRT_BACKEND" != cpu ] || most_ranks=512
run_nodes tests/engine/test_cells
