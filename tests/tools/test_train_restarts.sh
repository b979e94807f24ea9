#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Trainings under `shardrun --restarts` in which a random rank is killed at a random step, again and again, end with the
# hash of a training that was not disturbed: in all dtypes, with a scaler, offload and accumulation; with the tree of
# micro-batches also when the restarts have fewer ranks.
# SRT_KILLS: how often in each training (2, in one mode; 10 in make check-long, in all modes). Seeded by SRT_SEED or the
# time; it is printed.
. "$srcdir/tests/harness/run_ranks.sh"
. "$srcdir/tests/harness/wait.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
kills=${SRT_KILLS:-2}
seed=${SRT_SEED:-$(date +%N | sed 's/^0*//')}
dir=$(mktemp -d) || exit 1
trap 'end_background; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
echo "seed $seed"
SHARDRT_THREADS=1
export SHARDRT_THREADS dir
awk 'BEGIN { for (i = 0; i < 60; i++) print i, "little words make a line of the text" }' > "$dir/text"
mkfifo "$dir/log"
# The pipe of the log holds less than 400 lines, and each start may be ahead of this script by them: no run ends too early.
last_kill=100
[ $kills -le 2 ] || last_kill=300
steps_with() { echo $((last_kill + 400 * ($1 + 1))); }
train="./shardrt-train --text $dir/text --layers 1 --heads 2 --width 16 --context 16 --batch 8 --eval-every 0 --clip 0.5 \
	--numerics exact --hash"
./shardrt-train --text "$dir/text" --layers 1 --heads 1 --width 8 --context 8 --steps 1 --eval-every 0 --hash \
	--checkpoint "$dir/try" > "$dir/out" 2>&1 ||
	! grep -q "libxxhash" "$dir/out" || skip "sharded checkpoints need jansson and libxxhash"

random()
{
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	number=$((seed / 65536 % $1))
}
fail()
{
	echo "FAIL: $options: $*"
	cat "$dir/out" "$dir/err"
	exit 1
}
hash_in() { sed -n 's/^hash: //p' "$dir/out"; }

# Each rank writes its pid, by start and rank, before it becomes the trainer; rank 0 also writes to the log that a start
# begins, and with how many ranks.
cat > "$dir/rank" <<'END'
echo $$ > "$dir/new.$SHARDRT_RANK"
mv "$dir/new.$SHARDRT_RANK" "$dir/pid.$SHARDRT_RESTART_COUNT.$SHARDRT_RANK"
[ "$SHARDRT_RANK" != 0 ] || echo "start $SHARDRT_WORLD_SIZE" > "$dir/log"
exec "$@"
END

# run_killed KILLS RANKS OPTIONS...: KILLS times, a random rank is killed when the log has a random step. The log is a
# pipe, so the training cannot be far ahead of this script. $worlds: the ranks of each start.
run_killed()
{
	times=$1 n=$2
	shift 2
	rm -rf "$dir/run" "$dir"/pid.*
	(exec 4> "$dir/log" && exec ./shardrun -n "$n" -d 0 --restarts "$times" "$@" --checkpoint "$dir/run" --save-every 5 \
		--resume --log "$dir/log") > "$dir/out" 2> "$dir/err" &
	started
	exec 3< "$dir/log"
	worlds= killed=0 at_steps=
	while [ $killed -lt "$times" ]; do
		while read -r word world <&3 && [ "$word" != start ]; do :; done
		[ "$word" = start ] || fail "ended after $killed kills"
		random $((2 * last_kill / times)) && lines=$((number + 1))
		random "$world" && victim=$number
		while read -r _ step _ <&3; do
			step=${step%,} lines=$((lines - 1))
			[ $lines -gt 0 ] && [ "$step" -lt $last_kill ] || break
		done
		[ -n "$step" ] || fail "ended after $killed kills"
		kill -KILL "$(cat "$dir/pid.$killed.$victim")"
		killed=$((killed + 1)) worlds="$worlds $world" at_steps="$at_steps $step:$victim"
	done
	while read -r word world <&3; do
		[ "$word" != start ] || worlds="$worlds $world"
	done
	exec 3<&-
	echo "$options: killed at step:rank$at_steps"
	{ reap $started && [ $status = 0 ]; } || fail "exit status $status"
	[ "$(grep -c 'was killed by signal 9 (Killed): starting the job again with' "$dir/err")" = "$times" ] ||
		fail "not killed $times times"
	grep -q "^resumed from $dir/run/step-" "$dir/out" || fail "not resumed"
	[ "$(hash_in)" = "$want" ] || fail "$(hash_in), not $want"
}
# run RANKS: without kills; the hash is in $want
run()
{
	./shardrun -n "$1" $train $options > "$dir/out" 2> "$dir/err" || fail "exit status $?"
	want=$(hash_in)
}

# Reliability: a rank that is killed during a long run | the job ends | `shardrun --restarts` goes on from the latest
# checkpoint, with the same bits
modes="--strategy=zero3
--strategy=zero2,--dtype=bf16
--strategy=zero3,--dtype=fp16,--scaler,--flat=views
--strategy=zero3,--offload=all,--accumulate=2
--strategy=zero1,--optimizer=adam,--accumulate=4"
[ $kills -gt 2 ] || modes=$(echo "$modes" | sed -n 3p)
for options in $modes; do
	options="$(echo "$options" | tr , ' ') --steps $(steps_with $kills)"
	run 2
	run_killed $kills 2 sh "$dir/rank" $train $options
done
cell 2 pass

# Two failures with 4 ranks, and two with 2.
options="--strategy zero3 --accumulate-mode tree --micro-batches 8 --steps $(steps_with 4)"
run 1
run_killed 4 4 --min-ranks 1 --window 100000000 sh "$dir/rank" $train $options
[ "$worlds" = " 4 4 2 2 1" ] || fail "the starts had$worlds ranks"
cell 4 pass
