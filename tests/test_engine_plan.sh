#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The engine's memory plan and allocations, on 1 to 4 ranks, with both kinds of CPU streams.
. "$srcdir/tests/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
for SHARDRT_CPU_STREAMS in inline threads; do
	export SHARDRT_CPU_STREAMS
	run_ranks "1 2 3 4" tests/test_engine_plan
done
# Many ranks need scratch for sums.
SHARDRT_CPU_STREAMS=inline
run_ranks "9" tests/test_engine_plan
