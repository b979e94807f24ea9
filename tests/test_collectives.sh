#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Every collective at world sizes that are powers of two and not, above 8 (partial sums) and above
# the number of cores, on both kinds of streams.
. "$srcdir/tests/run_ranks.sh"
SHARDRT_CPU_STREAMS=inline
export SHARDRT_CPU_STREAMS
(run_ranks "1 2 3 5 8" tests/test_collectives) || exit $?
SHARDRT_CPU_STREAMS=threads
(run_ranks "1 2 4 9 17" tests/test_collectives) || exit $?
