#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
. "$srcdir/tests/run_ranks.sh"
(SHARDRT_CPU_STREAMS=inline && export SHARDRT_CPU_STREAMS &&
	run_ranks "1 2 4" tests/test_coll_order) || exit $?
(SHARDRT_CPU_STREAMS=threads && export SHARDRT_CPU_STREAMS &&
	run_ranks "1 2 5" tests/test_coll_order) || exit $?
