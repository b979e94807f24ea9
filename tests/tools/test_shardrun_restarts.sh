#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The launcher's restarts: when a job is started again and when not, with how many ranks, and what of an earlier start is
# left: no process, no descriptor, no address. test_train_restarts.sh has trainings.
. "$srcdir/tests/harness/wait.sh"
run=./shardrun
dir=$(mktemp -d) || exit 1
trap 'end_background; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export srcdir dir
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}
# expect STATUS WHAT COMMAND...: output in $dir/out, $dir/err
expect()
{
	want=$1 what=$2
	shift 2
	rm -f "$dir"/pid.* "$dir/starts"
	"$@" > "$dir/out" 2> "$dir/err" < /dev/null
	got=$?
	[ $got = "$want" ] || fail "$what: status $got, not $want: $(cat "$dir/err")"
}
has()
{
	grep -q -e "$2" "$dir/$1" || fail "$what: no \"$2\" in $1: $(cat "$dir/$1")"
}
# starts_were LIST: what rank 0 of each start has written
starts_were()
{
	[ "$(tr '\n' ' ' < "$dir/starts")" = "$1 " ] || fail "$what: the starts are $(tr '\n' ' ' < "$dir/starts"), not $1"
}

# refused WORDS OPTIONS...
refused()
{
	words=$1
	shift
	expect 2 "shardrun $*" $run "$@" true
	has err "^shardrun: .*$words"
	[ "$(wc -l < "$dir/err")" = 1 ] || fail "shardrun $*: more than one line"
}
refused "must be a number from 0 to" -n 2 --restarts -1
refused "must be a number from 0 to" -n 2 --restarts 1x
refused "must be a number from 1 to 512" -n 2 -r 1 --min-ranks 0
refused "must be a number from 1 to" -n 2 -r 1 -m 1 --batch 0
refused "must be a time" -n 2 -r 1 -m 1 --window 0
refused "give only one of them" -n 2 --restarts 1 --keep-going
refused "restart-delay -1: must be a time in seconds, 0 or more" -n 2 -r 1 --restart-delay -1
refused "restart-delay needs --restarts" -n 2 -d 0
refused "min-ranks needs --restarts" -n 2 --min-ranks 1
refused "min-ranks 3 is more than the 2 ranks" -n 2 -r 1 -m 3
refused "batch needs --min-ranks" -n 2 -r 1 --batch 2
refused "window needs --min-ranks" -n 2 -r 1 --window 2
refused "the 3 ranks of -n do not divide --batch 8" -n 3 -r 1 -m 1 --batch 8

# Precedes the commands of a rank.
rank='. "$srcdir/tests/harness/wait.sh"
start=$SHARDRT_RESTART_COUNT me=$SHARDRT_RANK
[ $me != 0 ] || echo $SHARDRT_WORLD_SIZE >> "$dir/starts"
'
# A job that fails twice. All ranks of a start are gone, with what they left, before the next one. Each start has another
# address, and the arguments are the same.
expect 0 "three starts" $run -p -g 100 -n 3 -d 0 --restarts 5 sh -c "$rank"'
	[ "$1 $2" = "one two  words" ] || exit 50
	echo "rank $me of $SHARDRT_WORLD_SIZE, start $start, at $SHARDRT_BOOTSTRAP"
	sleep 600 & echo $! > "$dir/pid.child.$start.$me"
	for pid in $(cat "$dir"/pid.*.$((start - 1)).* 2> /dev/null); do
		await gone $pid || { echo "$pid is left"; exit 51; }
	done
	[ $start = 0 ] || [ -e "$dir/pid.ended.$((start - 1)).2" ] || exit 52
	trap "echo $$ > \"$dir/pid.ended.$start.$me\"; exit 9" TERM
	: > "$dir/pid.ready.$start.$me"
	case $start.$me in
	0.1) await test -e "$dir/pid.ready.0.2" && await test -e "$dir/pid.ready.0.0" && kill -9 $$ ;;
	1.0) await test -e "$dir/pid.ready.1.1" && await test -e "$dir/pid.ready.1.2"; exit 7 ;;
	2.*) exit 0 ;;
	esac
	wait' x one "two  words"
starts_were "3 3 3"
for start in 0 1 2; do
	for r in 0 1 2; do
		has out "^\[$r\] rank $r of 3, start $start, at unix:@shardrt-"
	done
	address=$(sed -n "s/.*start $start, at //p" "$dir/out" | sort -u)
	[ "$(echo "$address" | wc -l)" = 1 ] || fail "$what: more than one address in start $start: $address"
	[ "$(grep -c "$address" "$dir/out")" = 3 ] || fail "$what: an address is used again"
done
has err '^shardrun: rank 1 was killed by signal 9 (Killed): starting the job again with 3 ranks, 4 restarts left$'
has err '^shardrun: rank 0 exited with status 7: starting the job again with 3 ranks, 3 restarts left$'
[ "$(grep -c 'starting the job' "$dir/err")" = 2 ] || fail "$what: $(cat "$dir/err")"

# The last status, and no more starts than allowed.
expect 12 "no restarts left" $run -n 2 -d 0 -r 2 sh -c "$rank"'[ $me = 0 ] || exec sleep 600; exit $((10 + start))'
starts_were "2 2 2"
has err 'not started again: no restart of --restarts 2 is left'
expect 10 "restarts 0" $run -n 1 -r 0 sh -c "$rank"'exit 10'
starts_were 1
[ "$(wc -l < "$dir/err")" = 1 ] || fail "$what: $(cat "$dir/err")"
expect 5 "quiet" $run -q -n 2 -d 0 -r 2 -m 2 sh -c 'exit 5'
[ ! -s "$dir/err" ] || fail "$what: $(cat "$dir/err")"

# Reliability: a job that fails at each start | all --restarts are used up within a second | a delay before each start, which
# doubles
expect 5 "delays" $run -n 1 -r 3 -d 0.01 sh -c 'exit 5'
for left in 2:0.01 1:0.02 0:0.04; do
	has err "exited with status 5: starting the job again in ${left#*:} s with 1 rank, ${left%:*} restart"
done
what="TERM before a restart that is far away"
$run -n 1 -r 3 -d 100000 sh -c "$rank"'exit 5' > "$dir/out" 2> "$dir/err" < /dev/null &
started
await_of $started grep -q 'again in 100000 s' "$dir/err" || fail "$what: $(cat "$dir/err")"
kill -TERM $started
reap $started || fail "$what: does not end"
[ $status = 5 ] || fail "$what: status $status: $(cat "$dir/err")"

# What another start does not change.
for code in 2 126 127; do
	expect $code "status $code" $run -n 2 -d 0 -r 3 sh -c "$rank"'[ $me = 0 ] || exec sleep 600; exit '$code
	starts_were 2
	has err "not started again: exit status $code means"
done
expect 127 "not found" $run -n 2 -d 0 -r 3 ./no-such-program
has err 'not started again: exit status 127 means the program was not found'
! grep -q "starting the job" "$dir/err" || fail "$what: $(cat "$dir/err")"

# Fewer ranks. With this window any two failures are within it, or none.
always=100000000 never=0.000000001
fails="$rank"'[ $me = 0 ] || exec sleep 600; exit 3'
expect 3 "fewer ranks" $run -n 12 -d 0 -r 100 --min-ranks 3 --batch 24 -w $always sh -c "$fails"
starts_were "12 12 8 8 6 6 4 4 3 3"
has err 'exited with status 3: starting the job again with 8 ranks, 98 restarts left'
has err 'it failed twice within 1e+08 s with 3 ranks, and no smaller number from --min-ranks 3 on divides the batch of 24'
expect 3 "fewer ranks, no batch" $run -n 6 -d 0 -r 6 -m 1 -w $always sh -c "$fails"
starts_were "6 6 3 3 2 2 1"
has err 'starting the job again with 1 rank, 0 restarts left'
has err 'no restart of --restarts 6 is left'
expect 3 "no fewer ranks" $run -n 4 -d 0 -r 9 -m 3 -w $always sh -c "$fails"
starts_were "4 4"
expect 3 "the same ranks" $run -n 4 -d 0 -r 9 -m 4 -b 8 -w $always sh -c "$fails"
starts_were "4 4"
expect 3 "rare failures" $run -n 4 -d 0 -r 4 -m 1 -w $never sh -c "$fails"
starts_were "4 4 4 4 4"
expect 3 "no --min-ranks" $run -n 4 -d 0 -r 4 sh -c "$fails"
starts_were "4 4 4 4 4"
# All ranks of a smaller start know its size, and it may succeed.
expect 0 "a smaller start" $run -p -n 4 -d 0 -r 3 -m 2 -w $always sh -c "$rank"'
	[ $SHARDRT_WORLD_SIZE = 2 ] || exit 3
	echo "rank $me $SHARDRT_LOCAL_RANK of $SHARDRT_WORLD_SIZE $SHARDRT_LOCAL_SIZE"'
[ "$(sort "$dir/out" | tr '\n' '|')" = "[0] rank 0 0 of 2 2|[1] rank 1 1 of 2 2|" ] || fail "$what: $(cat "$dir/out")"

# Standard input: each start reads a file from where it was at the first one, and the rest of a pipe.
reads='[ $SHARDRT_RANK = 0 ] || exec sleep 600; read -r line; echo "$line"; exit $((2 - SHARDRT_RESTART_COUNT + 3))'
printf 'one\ntwo\nthree\nfour\n' > "$dir/lines"
what="standard input"
{ read -r _ && $run -q -n 2 -d 0 -r 2 sh -c "$reads"; } < "$dir/lines" > "$dir/out" 2> "$dir/err"
[ "$(tr '\n' ' ' < "$dir/out")" = "two two two " ] || fail "$what, a file: $(cat "$dir/out" "$dir/err")"
# shellcheck disable=SC2002
cat "$dir/lines" | $run -q -n 2 -d 0 -r 2 sh -c "$reads" > "$dir/out" 2> "$dir/err"
[ "$(tr '\n' ' ' < "$dir/out")" = "one two three " ] || fail "$what, a pipe: $(cat "$dir/out" "$dir/err")"

# Descriptors of shardrun. Some of a start may be open while a rank counts them.
expect 0 "descriptors" $run -n 1 -p -d 0 -r 20 sh -c 'echo "count: $(ls /proc/$PPID/fd | wc -l)"; [ $SHARDRT_RESTART_COUNT = 20 ]'
first=$(sed -n 's/.*count: //p' "$dir/out" | sed -n 1p) last=$(sed -n 's/.*count: //p' "$dir/out" | sed -n 21p)
[ "$last" -lt $((first + 10)) ] || fail "$what: $first in the first start, $last in the last one"

# Signals and the like. Each rank writes its pid, by start and rank, and what signal it got.
cat > "$dir/rank" <<'END'
start=$SHARDRT_RESTART_COUNT me=$SHARDRT_RANK
for s in TERM USR1; do
	trap "echo got $s in start $start; exit ${2:-9}" $s
done
[ $me != 0 ] || echo $SHARDRT_WORLD_SIZE >> "$1/starts"
echo $$ > "$1/new.$me" && mv "$1/new.$me" "$1/pid.$start.$me"
[ "$start.$me" != 0.0 ] || [ -n "$3" ] || exit 3
i=0
while [ $i -lt 6000 ]; do sleep .1; i=$((i + 1)); done
END
launch()
{
	rm -f "$dir"/pid.* "$dir/starts"
	"$@" > "$dir/out" 2> "$dir/err" < /dev/null &
	started
}
# in_start N: both ranks of this start run
in_start() { [ -e "$dir/pid.$1.0" ] && [ -e "$dir/pid.$1.1" ]; }
# ends STATUS: shardrun does, and no rank of any start is left
ends()
{
	reap $started || fail "$what: does not end: $(cat "$dir/err")"
	[ $status = "$1" ] || fail "$what: status $status, not $1: $(cat "$dir/err")"
	# shellcheck disable=SC2046
	await gone $(cat "$dir"/pid.*) || fail "$what: a rank is left"
}
bounded="$run --timeout 500 --grace 100 -n 2 -d 0 --restarts 5"

what="TERM after a restart"
launch $bounded sh "$dir/rank" "$dir"
await_of $started in_start 1 || fail "$what: not started again: $(cat "$dir/err")"
kill -TERM $started
ends 9
starts_were "2 2"
[ "$(grep -c "got TERM in start 1" "$dir/out")" = 2 ] || fail "$what: $(cat "$dir/out")"

# Also while the ranks of a start that has failed are being ended.
for signal in TERM USR1; do
	what="$signal before a restart"
	launch $bounded sh -c "$rank"'
		trap "" USR1
		echo $$ > "$dir/pid.$start.$me"
		trap ": > \"$dir/pid.ending\"; await test -e \"$dir/go\"; exit 8" TERM
		: > "$dir/pid.ready.$me"
		await test -e "$dir/pid.ready.1"
		[ $me = 1 ] || exit 3
		while :; do sleep .1; done'
	await_of $started test -e "$dir/pid.ending" || fail "$what: no rank is ended"
	kill -$signal $started
	: > "$dir/go"
	ends 3
	starts_were 2
	rm "$dir/pid.ending" "$dir/go"
done

# A signal that ends the job by its own rule, as shardrt-train does; another failure after such a signal.
for code in 138 9; do
	what="USR1, status $code"
	launch $bounded sh "$dir/rank" "$dir" $code wait
	await_of $started in_start 0 || fail "$what: no start"
	kill -USR1 $started
	if [ $code = 9 ]; then
		await_of $started in_start 1 || fail "$what: not started again: $(cat "$dir/err")"
		kill -TERM $started
	fi
	ends $code
	[ $code = 9 ] || starts_were 2
done

# A signal to a rank alone is a failure.
what="TERM of a rank"
launch $bounded sh "$dir/rank" "$dir" 143 wait
await_of $started in_start 0 || fail "$what: no start"
kill -TERM "$(cat "$dir/pid.0.1")"
await_of $started in_start 1 || fail "$what: not started again: $(cat "$dir/err")"
kill -TERM $started
ends 143

# A rank that is stopped is ended, and so is one that ignores TERM.
what="a stopped rank"
launch $run --grace 0.2 -n 3 -d 0 -r 1 sh -c "$rank"'
	echo $$ > "$dir/pid.$start.$me"
	[ $start = 0 ] || exit 0
	trap "" TERM
	case $me in
	0)
		await test -s "$dir/pid.0.1" && await test -e "$dir/pid.ready" &&
			await grep -q "State:.T" "/proc/$(cat "$dir/pid.0.1")/status" && exit 3
		;;
	1) kill -STOP $$ ;;
	2) : > "$dir/pid.ready" ;;
	esac
	while :; do sleep .1; done'
ends 0
starts_were "3 3"
has err 'rank 2 did not end within 0.2 s: killed'

# shardrun itself is stopped while a rank fails: it goes on when it is continued.
for signal in STOP TSTP; do
	what="$signal of shardrun"
	launch $bounded sh "$dir/rank" "$dir" 9 wait
	await_of $started in_start 0 || fail "$what: no start"
	kill -$signal $started
	await grep -q "State:.T" /proc/$started/status || fail "$what: not stopped"
	kill -KILL "$(cat "$dir/pid.0.0")"
	kill -CONT $started
	await_of $started in_start 1 || fail "$what: not started again: $(cat "$dir/err")"
	kill -TERM $started
	ends 9
	starts_were "2 2"
done

what="kill -9 of shardrun after a restart"
launch $bounded sh "$dir/rank" "$dir"
await_of $started in_start 1 || fail "$what: not started again: $(cat "$dir/err")"
kill -9 $started
ends 137

# The timeout is that of all starts together: with one for each, this would go on for days.
what="timeout"
launch $run -t 1 -n 2 -d 0 -r 1000000 sh -c 'sleep .1; exit 7'
reap $started || fail "$what: goes on"
case $status in 124 | 7) ;; *) fail "$what: status $status" ;; esac
has err "the job has run for 1 s"

# Output that is not read keeps shardrun from nothing, and that of a start which has failed is not lost.
mkfifo "$dir/fifo"
what="a stalled reader"
exec 3<> "$dir/fifo"
rm -f "$dir"/pid.*
$run -p -g 0.3 -d 0 -r 5 -n 1 -t 500 sh -c 'echo $$ > "$dir/pid.0"; seq 200000; exit 3' > "$dir/fifo" 2> "$dir/err" 3<&- &
started
await_of $started test -s "$dir/pid.0" || fail "$what: no start"
kill -TERM $started
ends 143
exec 3<&-
what="a reader that reads late"
$run -p -q -d 0 -r 1 -n 1 -t 500 sh -c 'n=$((SHARDRT_RESTART_COUNT * 100000)); seq $((n + 1)) $((n + 100000)); exit 3' \
	> "$dir/fifo" 2> "$dir/err" &
started
{ sleep 1; cat; } < "$dir/fifo" > "$dir/out"
reap $started
[ $status = 3 ] || fail "$what: status $status"
seq 200000 | sed 's/^/[0] /' | cmp -s - "$dir/out" || fail "$what: output is lost or mixed"
exit $failed
