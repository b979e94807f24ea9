#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# kill -9 of a random rank at random moments under --keep-going: every survivor prints an error that
# names the dead rank, the collective and the unit within 1 s (SRT_PATIENCE times as long: docs/testing.md) and
# exits by itself; nothing is left.
# SRT_KILLS: how often (3; 20 in make check-long). Seeded by SRT_SEED or the time; it is printed.
. "$srcdir/tests/harness/run_ranks.sh"
. "$srcdir/tests/harness/wait.sh"
kills=${SRT_KILLS:-3}
seed=${SRT_SEED:-$(date +%N | sed 's/^0*//')}
n=3
dir=$(mktemp -d) || exit 1
trap 'end_background; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
echo "seed $seed"
patience=10
[ -z "$SRT_TEST_LONG" ] || patience=1
limit_ms=$((1000 * ${SRT_PATIENCE:-$patience}))
random()
{
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	echo $((seed / 65536 % $1))
}
fail()
{
	echo "FAIL: kill $i of rank $victim after $delay ms: $*"
	cat "$dir/out" "$dir/err"
	exit 1
}

in_shm() { ls /dev/shm 2>/dev/null | grep shardrt; }
all_started() { [ "$(grep -c '^pid' "$dir/out")" -ge $n ]; }

before=$(in_shm)
i=0
while [ $i -lt "$kills" ]; do
	i=$((i + 1))
	victim=$(random $n)
	delay=$(random 400)
	case $((i % 3)) in
	0) use_form "${forms%% *}" ;;
	1) use_form "${forms##* }" ;;
	2) use_form "${staged_forms%% *}" ;;
	esac
	: >"$dir/out"
	./shardrun -k --timeout 400 -n $n tests/collectives/test_peer_failures loop \
		>"$dir/out" 2>"$dir/err" &
	started
	await_of $started all_started || fail "the ranks did not start"
	sleep "$(printf '0.%03d' "$delay")"
	pids=$(sed -n 's/^pid [0-9]* //p' "$dir/out")
	dies=$(sed -n "s/^pid $victim //p" "$dir/out")
	killed_at=$(date +%s%3N)
	kill -9 "$dies"
	reap $started || fail "shardrun does not end"
	[ $status = 137 ] || fail "shardrun's status is $status, not 137"
	grep -q "rank $victim was killed by signal 9" "$dir/err" || fail "shardrun does not say so"
	rank=0
	while [ $rank -lt $n ]; do
		if [ $rank != "$victim" ]; then
			line=$(grep "^survivor $rank at" "$dir/out") || fail "rank $rank is silent"
			case $line in
			*"rank $victim is gone"*) ;;
			*) fail "rank $rank does not name the dead" ;;
			esac
			echo "$line" | grep -Eq \
				'(all-gather|reduce-scatter|all-reduce|all-to-all|send-recv|broadcast|barrier) of "block [0-9]"' ||
				fail "rank $rank names no collective and unit"
			at=$(echo "$line" | sed 's/^survivor [0-9]* at \([0-9]*\)\.\([0-9]*\):.*/\1\2/')
			echo $((at - killed_at)) >> "$dir/times"
			[ $((at - killed_at)) -le $limit_ms ] ||
				fail "rank $rank took $((at - killed_at)) ms, not $limit_ms"
		fi
		rank=$((rank + 1))
	done
	for pid in $pids; do
		gone "$pid" || fail "process $pid is left"
	done
	[ "$(in_shm)" = "$before" ] || fail "something is left in /dev/shm: $(in_shm)"
done
echo "$kills deaths; time to the error of a survivor: $(sort -n "$dir/times" |
	awk '{ t[NR] = $1 } END { print "median " t[int((NR + 1) / 2)] " ms, worst " t[NR] " ms" }')"
cell $n pass
