#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Optimizer states in 8 bits on 1 to 4 ranks in the backend's first form, on 2 in the others.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
ranks="1 2 4"
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_state8 "$tmp/checkpoint"
	[ -n "$SRT_TEST_LONG" ] || ranks=2
done
