#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs that are killed and go on from their latest checkpoint end with the hash of a run that did not stop: in all
# dtypes, with a scaler, offload and accumulation; with the tree of micro-batches also at other numbers of ranks.
# Checkpoints that are damaged or of another run are refused.
. "$srcdir/tests/harness/run_ranks.sh"
. "$srcdir/tests/harness/wait.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
command -v pgrep > /dev/null || skip "no pgrep"
tmp=$(mktemp -d) || exit 1
trap 'end_background; rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
SHARDRT_THREADS=1
export SHARDRT_THREADS
awk 'BEGIN { for (i = 0; i < 60; i++) print i, "little words make a line of the text" }' > "$tmp/text"
train="./shardrt-train --text $tmp/text --layers 1 --heads 2 --width 16 --context 16 --batch 8 --eval-every 0 --clip 0.5 \
	--numerics exact --hash"
./shardrt-train --text "$tmp/text" --layers 1 --heads 1 --width 8 --context 8 --steps 1 --eval-every 0 --hash \
	--checkpoint "$tmp/try" > "$tmp/out" 2>&1 ||
	! grep -q "libxxhash" "$tmp/out" || skip "sharded checkpoints need jansson and libxxhash"

fail()
{
	echo "FAIL: $*"
	cat "$tmp/out" "$tmp/err"
	exit 1
}
hash_in() { sed -n 's/^hash: //p' "$tmp/out"; }
# check_saved HASH: the latest checkpoint has it
check_saved()
{
	saved=$(./shardrt-ckpt hash "$tmp/dir" 2> "$tmp/err" | sed -n 's/^parameters: xxh3-128 //p')
	[ "$saved" = "${1##* }" ] || fail "the parameters that were saved have the hash '$saved', not ${1##* }"
}
# run RANKS OPTIONS...: to the end
run()
{
	n=$1
	shift
	./shardrun -n "$n" $train "$@" > "$tmp/out" 2> "$tmp/err" || fail "$* on $n ranks: exit status $?"
}
saved_more() { [ "$(ls "$tmp/dir" | grep -c 'step-.*[05]$')" -gt 0 ] && [ "$(cat "$tmp/dir/latest")" != "$latest" ]; }
no_ranks() { ! pgrep -f -- "$tmp/text" > "$tmp/left"; }
# run_killed RANKS OPTIONS...: killed after it has saved
run_killed()
{
	n=$1
	shift
	latest=$(cat "$tmp/dir/latest" 2> /dev/null)
	./shardrun -n "$n" $train "$@" --checkpoint "$tmp/dir" --save-every 5 --resume > "$tmp/out" 2> "$tmp/err" &
	started
	await_of $started saved_more || fail "$* on $n ranks: has not saved"
	kill -KILL $started
	reap $started
	await no_ranks || fail "$* on $n ranks: ranks go on"
	[ $status = 137 ] || echo "$* on $n ranks: it had ended before it was killed"
}

# Reliability: a run that is killed | starts again from the first step | goes on from the latest checkpoint, with the
# same bits
steps=300 world=2
cases="--strategy=zero3
--strategy=zero2,--dtype=bf16
--strategy=zero3,--dtype=fp16,--scaler,--flat=views
--strategy=zero3,--offload=all,--accumulate=2
--strategy=zero1,--optimizer=adam,--accumulate=4"
case ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND} in
cpu) ;;
*) cases=$(echo "$cases" | sed -n 3p) steps=30 ;; # and no more
esac
for options in $cases; do
	options=$(echo "$options" | tr , ' ')
	rm -rf "$tmp/dir"
	run $world $options --steps $steps
	want=$(hash_in)
	run_killed $world $options --steps $steps
	run_killed $world $options --steps $steps
	run $world $options --steps $steps --checkpoint "$tmp/dir" --save-every 50 --keep 3 --resume
	grep -q "^resumed from $tmp/dir/step-" "$tmp/out" || fail "$options: not resumed"
	[ "$(hash_in)" = "$want" ] || fail "$options: $(hash_in), not $want"
	check_saved "$want"
	[ "$(ls "$tmp/dir" | grep -c '^step-')" -le 3 ] || fail "more than --keep checkpoints: $(ls "$tmp/dir")"
	cell "$world" pass
done

[ $steps = 300 ] || exit 0

# Started on 2 ranks, killed, resumed on 4, killed, resumed on 1.
tree="--accumulate-mode tree --micro-batches 8 --steps $steps"
rm -rf "$tmp/dir"
run 1 $tree
want=$(hash_in)
run_killed 2 $tree --strategy zero3
run_killed 4 $tree --strategy zero2
run 1 $tree --checkpoint "$tmp/dir" --resume
grep -q "^resumed from" "$tmp/out" || fail "the tree: not resumed"
[ "$(hash_in)" = "$want" ] || fail "the tree on other ranks: $(hash_in), not $want"
check_saved "$want"

# A run that has ended is loaded, and goes on if there are more steps.
run 2 $tree --checkpoint "$tmp/dir" --resume
[ "$(hash_in)" = "$want" ] || fail "a run that has ended: $(hash_in), not $want"

# A signal ends the run with a checkpoint.
# Reliability: a signal that was ignored when a job was started, as SIGHUP by nohup | ended launcher and ranks | stays
# ignored by both
latest=$(cat "$tmp/dir/latest")
(
	trap '' HUP
	exec ./shardrun -n 2 $train --checkpoint "$tmp/dir" --resume --steps 100000000 --log "$tmp/log" > "$tmp/out" 2> "$tmp/err"
) &
started
await_of $started grep -q "\"step\": $((steps + 3))," "$tmp/log" || fail "no step after the checkpoint"
kill -HUP $started $(pgrep -f -- "$tmp/text") || fail "the ranks are gone"
at=$(wc -l < "$tmp/log")
steps_more() { [ "$(wc -l < "$tmp/log")" -gt $((at + 3)) ]; }
await_of $started steps_more || fail "no step after a signal that was ignored at the start"

# refused WORDS RANKS OPTIONS...: with a sentence, and status 2
refused()
{
	words=$1 n=$2
	shift 2
	code=0
	./shardrun -n "$n" $train "$@" > "$tmp/refused" 2>&1 || code=$?
	[ $code = 2 ] && grep -q -e "$words" "$tmp/refused" && return
	cat "$tmp/refused"
	fail "$*: status $code, or not refused with '$words'"
}
# Reliability: two jobs that write checkpoints to one folder | each removes those of the other | the second one is
# refused
refused "another job writes checkpoints to" 2 --steps 5 --checkpoint "$tmp/dir" --resume
kill -TERM $started
reap $started || fail "goes on"
[ $status = 143 ] || fail "status $status after SIGTERM"
[ "$(cat "$tmp/dir/latest")" != "$latest" ] || fail "no checkpoint after a signal"

refused "has checkpoints of an earlier run: go on from the latest one with --resume" 1 --steps 5 --checkpoint "$tmp/dir"
refused "has --seed 1 and --batch 8: give the same options" 2 --checkpoint "$tmp/dir" --resume --seed 2
refused "has a model of layers=1 heads=2 width=16 .* but the options give layers=1 heads=4" 2 --checkpoint "$tmp/dir" \
	--resume --heads 4
refused "optimizer adamw, but the engine has sgd" 2 --checkpoint "$tmp/dir" --resume --optimizer sgd
refused "'wpe.weight' is \[16,16\] in the checkpoint, but" 2 --checkpoint "$tmp/dir" --resume --context 8
refused "resume needs --checkpoint DIR" 1 --resume
refused "cannot create --checkpoint" 1 --checkpoint "$tmp/no/such"
last=$tmp/dir/$(cat "$tmp/dir/latest")
# Reliability: the file `latest` of a folder of checkpoints is lost or damaged | a new run, which removes the checkpoints |
# the newest checkpoint of the run, with a warning; without --resume the run is refused
done=$(echo "${last##*/step-}" | sed 's/^0*//')
for damage in "rm" "cp /dev/null" "cp $tmp/text" "mv -f $tmp/outside"; do
	echo ../outside > "$tmp/outside"
	$damage "$tmp/dir/latest"
	refused "has checkpoints of an earlier run" 1 --steps 5 --checkpoint "$tmp/dir"
	run 2 --steps "$done" --checkpoint "$tmp/dir" --resume
	grep -q "^resumed from $last\$" "$tmp/out" && grep -q "warning: .*; going on from $last, the newest" "$tmp/err" ||
		fail "after $damage of the file 'latest'"
done
# Reliability: a checkpoint of another run in the folder | removed by --keep, which went by names | stays
cp -r "$tmp/try/step-0000000001" "$tmp/dir/"
run 2 --steps $((done + 20)) --checkpoint "$tmp/dir" --resume --save-every 5 --keep 2
[ -e "$tmp/dir/step-0000000001/manifest.json" ] && [ "$(ls "$tmp/dir" | grep -c '^step-')" = 3 ] ||
	fail "not two checkpoints and that of another run: $(ls "$tmp/dir")"
rm -r "$tmp/dir/step-0000000001"
# Reliability: a symbolic link `latest` that another user has planted | the file that it names is overwritten | the link
# is replaced
echo precious > "$tmp/victim"
ln -sf "$tmp/victim" "$tmp/dir/latest"
run 2 --steps $((done + 21)) --checkpoint "$tmp/dir" --resume
[ "$(cat "$tmp/victim")" = precious ] && [ ! -L "$tmp/dir/latest" ] || fail "the link 'latest' was followed"
last=$tmp/dir/$(cat "$tmp/dir/latest")
file=$(ls "$last"/rank-*.safetensors | head -n 1)
mv "$file" "$file.away"
refused "${file##*/}: No such file" 2 --checkpoint "$tmp/dir" --resume
mv "$file.away" "$file"
printf x | dd of="$last/manifest.json" bs=1 seek=300 conv=notrunc 2> /dev/null
refused "manifest.json: its checksum is wrong" 2 --checkpoint "$tmp/dir" --resume

# A token outside the vocabulary, which one rank finds while a checkpoint is being written: no rank waits for it.
{
	printf '\210\330\064\001\001\000\000\000\000\020\000\000' # 4096 tokens
	head -c 1012 /dev/zero
	head -c 4000 /dev/zero
	printf '\054\001' # 300
	head -c 4190 /dev/zero
} > "$tmp/tokens"
code=0
./shardrun -t 250 -k -n 2 ./shardrt-train --tokens "$tmp/tokens" --vocab 256 --layers 1 --heads 2 --width 16 --context 16 \
	--batch 2 --eval-every 0 --steps 100000 --checkpoint "$tmp/lost" --save-every 1 > "$tmp/out" 2> "$tmp/err" || code=$?
[ $code = 1 ] && grep -q "is 300, but the vocabulary" "$tmp/err" || fail "a token outside the vocabulary: exit status $code"
