#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# All orders of destroying are safe; an engine that is destroyed waits for no rank.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=2
export SHARDRT_THREADS
dir=tests/engine/test_lifetimes.dir
rm -rf $dir
mkdir $dir || exit 1
trap 'rm -rf $dir' EXIT
for form in $forms ${staged_forms%% *}; do
	use_form $form
	[ ! -e tests/engine/test_checkpoint_sharded ] || run_ranks "1 2" tests/engine/test_lifetimes save
	run_ranks "1 2" tests/engine/test_lifetimes orders
	run_ranks "1 2" tests/engine/test_lifetimes fork
	run_ranks 2 tests/engine/test_fork
	case $form in threads) most_ranks=512 && run_ranks 8 tests/engine/test_lifetimes files ;; esac
	case $form in *inline) continue ;; esac # nothing is in flight
	run_ranks "2 3" tests/engine/test_lifetimes late
	out=$(./shardrun --keep-going -n 3 tests/engine/test_lifetimes die 2>&1)
	n=$(echo "$out" | grep -c 'rank [01] survives')
	[ "$n" = 2 ] || { echo "$form: 2 ranks should survive rank 2; $n did: $out"; exit 1; }
done
