#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Tests of the engine, the scaler, the collectives, meshes, tensor parallelism and offload on the backend "late",
# which runs commands in unlucky orders.
# `make check-late` runs all device tests on it. With the argument "long": more seeds.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_BACKEND=late SHARDRT_THREADS=1 SHARDRT_NUMERICS=exact
export SHARDRT_BACKEND SHARDRT_THREADS SHARDRT_NUMERICS
[ -e tests/fakes/backend_late/.libs/shardrt_backend_late.so ] || skip "the build makes no shared modules"
dir=tests/engine/test_orders.dir
mkdir -p $dir || exit 1
trap 'rm -rf $dir' EXIT
use_form default
[ $most_ranks -ge 4 ] || most_ranks=4 # the least with shards and replicas
for seed in ${1:+1} 2 ${1:+3 4 5 6 7 8}; do
	TOY_SEED=$seed
	export TOY_SEED
	run_ranks "1 2" tests/engine/test_engine_values
	run_ranks "1 2" tests/engine/test_engine_streams
	run_ranks "1 2" tests/engine/test_scaler_engine
	run_ranks "1 2" tests/engine/test_unit_buffers $dir
	run_ranks "1 2" tests/collectives/test_collectives
	run_ranks "1 2" tests/engine/test_checkpoint
	[ $seed != 2 ] || continue
	run_ranks "2" tests/engine/test_engine_types
	run_ranks "2" tests/models/test_tape_sums
	run_ranks "2" tests/models/test_tape_vocab
	run_ranks "2" tests/models/test_scaler_parity
	run_ranks "2 4" tests/engine/test_offload
	run_ranks "4" tests/engine/test_hybrid short
	run_ranks "4" tests/engine/test_hybrid_errors
	run_ranks "4" tests/engine/test_reshard
	run_ranks "4" tests/engine/test_cells
	run_ranks "4" tests/collectives/test_mesh
done
