#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Matrices stepped by Muon in engines of all strategies, next to parameters of AdamW; the last form also on two nodes.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
[ $most_ranks -ge 4 ] || most_ranks=4 most_staged=4 # the least with shards and replicas
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "1 3 4" tests/engine/test_muon "$tmp/checkpoint"
done
run_nodes tests/engine/test_muon
