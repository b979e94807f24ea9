#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Fault trials (test_faults.sh) of jobs whose ranks are on two hosts, which are network namespaces: the ranks that carry
# messages between them and rank 0 fail too, and the cable is cut. `make check` tries 11 moments, `make check-long` 60.
#
# SRT_FAULT_SEED, SRT_FAULT_TRIALS, SRT_FAULT_WORKERS: as there.
. "$srcdir/tests/harness/hosts.sh"
. "$srcdir/tests/harness/run_ranks.sh"
./shardrt-info | grep -q "collectives: .*ucx" || skip "built without UCX"
grep -q '^#define HAVE_SODIUM 1' config.h || skip "built without libsodium"
trials=11 seed=5
[ -z "$SRT_TEST_LONG" ] || trials=60 seed=$(date +%s)
workers=${SRT_FAULT_WORKERS:-3}
for worker in $(seq 0 $((workers - 1))); do
	make_hosts $worker
done
timeout_s=$((2 * (${SRT_PATIENCE:-10} < 3 ? 3 : ${SRT_PATIENCE:-10})))
SRT_FAULT_TIMEOUT=${SRT_FAULT_TIMEOUT:-$timeout_s}
SHARDRT_THREADS=1 SRT_FAULT_HEARTBEAT=$((SRT_FAULT_TIMEOUT / 2)) SRT_FAULT_HOSTS=srt$$
SRT_FAULT_LAUNCHER="${CONFIG_SHELL:-/bin/sh} $srcdir/tests/engine/fault_hosts.sh {n}"
# UCX would also use the memory that the namespaces share, as they are on one machine.
UCX_TLS=tcp,self SHARDRT_COLLECTIVES=auto
# See test_faults.sh.
ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
export SHARDRT_THREADS SRT_FAULT_TIMEOUT SRT_FAULT_HEARTBEAT SRT_FAULT_HOSTS SRT_FAULT_LAUNCHER
export UCX_TLS SHARDRT_COLLECTIVES ASAN_OPTIONS
seed=${SRT_FAULT_SEED:-$seed} trials=${SRT_FAULT_TRIALS:-$trials}
echo "seed $seed, SHARDRT_TIMEOUT $SRT_FAULT_TIMEOUT s and SHARDRT_HEARTBEAT $SRT_FAULT_HEARTBEAT s with SIGSTOP and a cut"
tests/engine/fault_trials "$dir" "$seed" "$trials" "$workers" || exit 1
