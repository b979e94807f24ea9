#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The engine's steps on 1 to 5 ranks, with both kinds of CPU streams.
. "$srcdir/tests/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
for SHARDRT_CPU_STREAMS in inline threads; do
	export SHARDRT_CPU_STREAMS
	run_ranks "1 2 3 4 5" tests/test_engine
	run_ranks "1 2 3 4 5" tests/test_engine_values
done
