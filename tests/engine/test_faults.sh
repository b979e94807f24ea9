#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank is killed, stopped, ends or aborts at a random moment of a whole program: while ranks join, in each kind of
# collective, in steps, saves, loads and at the end. Each other rank must end by itself with an error that names that
# rank and, from a collective, the collective and the unit; nothing of the job is left, and the latest checkpoint loads.
# tests/engine/fault_job.c is the program, tests/engine/fault_trials.c runs it. `make check` tries 20 moments on the
# cpu, `make check-long` 300 on the cpu and 60 on other backends.
#
# SRT_FAULT_SEED, SRT_FAULT_TRIALS, SRT_FAULT_WORKERS (trials at a time): other ones. SRT_FAULT_LAUNCHER: another command
# that starts {n} ranks, which go on when one of them fails.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
trials=20 seed=5
if [ -n "$SRT_TEST_LONG" ]; then
	trials=300 seed=$(date +%s)
	[ "$SHARDRT_BACKEND" = cpu ] || trials=60
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
# All waits of a job that starts on a busy machine must be shorter.
timeout_s=$((${SRT_PATIENCE:-10} < 5 ? 5 : ${SRT_PATIENCE:-10}))
SHARDRT_THREADS=1 SRT_FAULT_TIMEOUT=${SRT_FAULT_TIMEOUT:-$timeout_s}
SRT_FAULT_LAUNCHER=${SRT_FAULT_LAUNCHER:-./shardrun --keep-going -n '{n}'}
# LeakSanitizer stops all threads by ptrace() at the end; ranks that were stopped and continued sometimes did not end
# with it. Other tests look for leaks.
ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
export SHARDRT_THREADS SRT_FAULT_TIMEOUT SRT_FAULT_LAUNCHER ASAN_OPTIONS
in_shm() { ls /dev/shm 2> /dev/null | grep shardrt; }
before=$(in_shm)
seed=${SRT_FAULT_SEED:-$seed} trials=${SRT_FAULT_TRIALS:-$trials}
echo "seed $seed, SHARDRT_TIMEOUT $SRT_FAULT_TIMEOUT s with SIGSTOP"
tests/engine/fault_trials "$dir" "$seed" "$trials" "${SRT_FAULT_WORKERS:-4}" || exit 1
[ "$(in_shm)" = "$before" ] || { echo "FAIL: left in /dev/shm: $(in_shm)"; exit 1; }
