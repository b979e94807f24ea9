#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Missing waits between streams are found, on the backend "late": one of each kind, or with the argument "long" all.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_BACKEND=late SHARDRT_THREADS=1 SHARDRT_NUMERICS=exact
export SHARDRT_BACKEND SHARDRT_THREADS SHARDRT_NUMERICS
[ -e tests/fakes/backend_late/.libs/shardrt_backend_late.so ] || skip "the build makes no shared modules"
use_form default
TOY_SEED=1
export TOY_SEED
run_ranks "1 2" tests/engine/test_missing_edges ${1:+all}
