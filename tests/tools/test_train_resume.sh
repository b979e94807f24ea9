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
cases="--strategy=zero3,--dtype=fp16,--scaler,--flat=views
--strategy=zero2,--dtype=bf16,--offload=all,--accumulate=2
--strategy=zero1,--optimizer=adam,--accumulate=4"
case ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND} in
cpu) ;;
*) cases=$(echo "$cases" | sed -n 1p) steps=30 ;; # and no more
esac
[ -z "$SRT_TEST_LONG" ] || cases="$cases
--strategy=zero3
--strategy=zero2,--dtype=bf16
--strategy=zero3,--offload=all,--accumulate=2"
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
run 2 --steps 2 --lr 0.01 --checkpoint "$tmp/twin" # of the same model, text and seed
cp -r "$tmp/twin/step-0000000002" "$tmp/dir/"
run 2 --steps $((done + 20)) --checkpoint "$tmp/dir" --resume --save-every 5 --keep 2
[ -e "$tmp/dir/step-0000000001/manifest.json" ] && [ -e "$tmp/dir/step-0000000002/manifest.json" ] &&
	[ "$(ls "$tmp/dir" | grep -c '^step-')" = 4 ] || fail "not two checkpoints and those of other runs: $(ls "$tmp/dir")"
rm -r "$tmp/dir/step-0000000001" "$tmp/dir/step-0000000002"
# Reliability: a symbolic link `latest` that another user has planted | the file that it names is overwritten | the link
# is replaced
echo precious > "$tmp/victim"
ln -sf "$tmp/victim" "$tmp/dir/latest"
run 2 --steps $((done + 21)) --checkpoint "$tmp/dir" --resume
[ "$(cat "$tmp/victim")" = precious ] && [ ! -L "$tmp/dir/latest" ] || fail "the link 'latest' was followed"
# Reliability: the newest checkpoint is damaged, or a file of it is lost | status 2, as for wrong options; the older
# checkpoint was not used | the older one, with a warning that names the file; the damaged one stays, under another name
want=$(hash_in)
for damage in lost changed manifest; do
	last=$tmp/dir/$(cat "$tmp/dir/latest")
	file=$(ls "$last"/rank-*.safetensors | head -n 1)
	case $damage in
	lost) rm "$file" && words="${file##*/}: No such file" ;;
	changed)
		printf '\377\377\377\377' | dd of="$file" bs=1 seek=$(($(wc -c < "$file") - 4)) conv=notrunc 2> /dev/null
		words="${file##*/}: .* is damaged"
		;;
	manifest)
		printf x | dd of="$last/manifest.json" bs=1 seek=300 conv=notrunc 2> /dev/null
		words="manifest.json: its checksum is wrong"
		;;
	esac
	run 2 --steps $((done + 21)) --checkpoint "$tmp/dir" --resume --keep 2
	grep -q "warning: checkpoint $last is damaged and is not used: .*$words" "$tmp/err" &&
		grep -q "warning: going on from .*: steps $((done + 21)) to $((done + 21)) are trained again; .* is kept as" "$tmp/err" ||
		fail "$damage: no warnings"
	[ "$(hash_in)" = "$want" ] || fail "$damage: $(hash_in), not $want"
	[ -d "$last.damaged" ] && [ "$(ls "$tmp/dir" | grep -c '^step-[0-9]*$')" = 2 ] ||
		fail "$damage: not two checkpoints and the damaged one: $(ls "$tmp/dir")"
	rm -r "$last.damaged"
done
# Reliability: a folder or file of another program, or of another user, with the name of the next checkpoint | ended the
# training, after each restart again | the checkpoint has another name, with a warning
at=$(((done + 21) / 5 * 5))
between=$tmp/dir/$(printf 'step-%010d' $((at + 5))) end=$tmp/dir/$(printf 'step-%010d' $((at + 10)))
mkdir "$between"
echo other > "$between/.nfs01"
echo other > "$end"
# Reliability: a checkpoint that is removed has files of other programs | its folder stayed, without a word | a warning
echo other > "$last/notes.txt"
run 2 --steps $((at + 10)) --checkpoint "$tmp/dir" --resume --save-every 5 --keep 2
grep -q "the folder $last stays: .* such as 'notes.txt'" "$tmp/err" || fail "no word of the folder that stays"
[ "$(grep -c 'is there and is no checkpoint of this run: saving .*-2 instead' "$tmp/err")" = 2 ] || fail "no word of other names"
[ "$(cat "$tmp/dir/latest")" = "${end##*/}-2" ] || fail "'latest' is $(cat "$tmp/dir/latest")"
[ "$(cat "$between/.nfs01" "$last/notes.txt" "$end" | tr '\n' ' ')" = "other other other " ] ||
	fail "files of others are not there"
run 2 --steps $((at + 10)) --checkpoint "$tmp/dir" --resume
grep -q "^resumed from $end-2\$" "$tmp/out" || fail "not resumed from the other name"
# Reliability: all checkpoints are damaged, or the text is another one | shardrun did not start the job again: status 2 |
# status 1, and sentences that name the files and the remedy
tr a b < "$tmp/text" > "$tmp/other"
code=0
./shardrun -n 2 $train --text "$tmp/other" --checkpoint "$tmp/dir" --resume > "$tmp/out" 2> "$tmp/err" || code=$?
[ $code = 1 ] && grep -q "trains on another text than $tmp/other" "$tmp/err" || fail "another text: status $code"
code=0
./shardrun --restarts 1 -n 2 sh -c '[ "$SHARDRT_RESTART_COUNT" = 1 ] && exec "$@"' x $train --text "$tmp/missing" > "$tmp/out" \
	2> "$tmp/err" || code=$?
[ $code = 1 ] && grep -q "cannot open the text $tmp/missing: No such file" "$tmp/err" &&
	grep -q "no restart of --restarts 1 is left" "$tmp/err" || fail "a text that is gone at a restart: status $code"
for manifest in "$tmp/dir"/step-*/manifest.json; do
	printf x | dd of="$manifest" bs=1 seek=300 conv=notrunc 2> /dev/null
done
code=0
./shardrun --restarts 1 -n 2 $train --checkpoint "$tmp/dir" --resume > "$tmp/out" 2> "$tmp/err" || code=$?
[ $code = 1 ] && grep -q "no complete checkpoint of this run is left in $tmp/dir; damaged: step-.*restore the files" "$tmp/err" &&
	[ "$(grep -c 'manifest.json: its checksum is wrong' "$tmp/err")" = 4 ] && grep -q "starting the job again" "$tmp/err" ||
	fail "all are damaged: status $code"

# Reliability: a run goes on after a step that the scaler has skipped | a warning on each rank of a norm that is not finite |
# none: the norm is of a step that changed nothing
skipped="--dtype fp16 --scaler --init-scale 1e30 --checkpoint $tmp/skipped"
run 2 $skipped --steps 1
run 2 $skipped --steps 2 --resume
! grep "norm of the gradients" "$tmp/err" || fail "a warning after a step that was skipped"

# Reliability: the text becomes shorter, or is changed, while it is trained on | SIGBUS, and nothing was saved; or training
# went on with the new bytes, without a word | training ends on all ranks with a sentence, and is saved
#
# One rank sees the change, while checkpoints are being written.
for change in ': >' 'tr a b < "$tmp/text" >'; do
	rm -rf "$tmp/changed" "$tmp/log" "$tmp/model"
	cp "$tmp/text" "$tmp/text.0"
	cp "$tmp/text" "$tmp/text.1"
	./shardrun -k -n 2 sh -c 'exec "$@" --text "$0.$SHARDRT_RANK"' "$tmp/text" $train --steps 100000000 --save "$tmp/model" \
		--log "$tmp/log" --checkpoint "$tmp/changed" --save-every 1 > "$tmp/out" 2> "$tmp/err" &
	started
	await_of $started grep -q '"step": 3,' "$tmp/log" || fail "no third step"
	eval "$change \"\$tmp/text.1\""
	reap $started || fail "$change: goes on"
	[ $status = 1 ] || fail "$change: status $status"
	[ "$(grep -c "rank 1: the text $tmp/text.1 .* restore it; training ends after step [0-9]*\$" "$tmp/err")" = 1 ] ||
		fail "$change: not one sentence"
	step=$(sed -n 's/.*training ends after step //p' "$tmp/err")
	[ -s "$tmp/model" ] && [ "$(cat "$tmp/changed/latest")" = "$(printf 'step-%010d' "$step")" ] || fail "$change: not saved"
done

# Reliability: a token outside the vocabulary that a late step meets | ended the training | found before the first step
{
	printf '\210\330\064\001\001\000\000\000\000\020\000\000' # 4096 tokens
	head -c 1012 /dev/zero
	head -c 8000 /dev/zero
	printf '\054\001' # 300
	head -c 190 /dev/zero
} > "$tmp/tokens"
code=0
./shardrun -n 2 ./shardrt-train --tokens "$tmp/tokens" --vocab 256 --layers 1 --heads 2 --width 16 --context 16 --batch 2 \
	--steps 1 --checkpoint "$tmp/lost" > "$tmp/out" 2> "$tmp/err" || code=$?
[ $code = 2 ] && grep -q "token 4000 (at byte 9024 of the file) is 300, but the vocabulary has 0 .. 255" "$tmp/err" ||
	fail "a token outside the vocabulary: status $code"
