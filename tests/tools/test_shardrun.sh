#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The launcher: exit statuses, options, signals, reaping, prefixes, output, no process left.
. "$srcdir/tests/harness/wait.sh"
run=./shardrun
dir=$(mktemp -d) || exit 1
trap 'end_background; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
# Precedes the commands of a rank that waits for another.
rank_waits='. "$srcdir/tests/harness/wait.sh"; dir=$1
'
export srcdir
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
	"$@" >"$dir/out" 2>"$dir/err" </dev/null
	got=$?
	[ $got = "$want" ] || fail "$what: status $got, not $want: $(cat "$dir/err")"
}
has()
{
	grep -q -e "$2" "$dir/$1" || fail "$what: no \"$2\" in $1: $(cat "$dir/$1")"
}

# options
for bad in "" "-n" "-n 0 true" "-n x true" "-n 2x true" "-n 513 true" "-n 2" "-n 2 -z true" \
	"--ranks=-1 true" "-n 2 --timeout 0 true" "-n 2 -t 1s true" "-n 2 --grace= true" "true"; do
	# shellcheck disable=SC2086
	expect 2 "shardrun $bad" $run $bad
	has err '^shardrun: '
	[ "$(wc -l <"$dir/err")" = 1 ] || fail "shardrun $bad: more than one line"
done
expect 0 --help $run --help
for option in ranks prefix keep-going timeout grace quiet help version; do
	has out "--$option"
done
expect 0 --version $run --version
has out '^shardrun (libshardrt) [0-9]'

# statuses
expect 0 "all well" $run -n 3 true
expect 7 "status 7" $run -n 3 sh -c '[ $SHARDRT_RANK = 1 ] && exit 7; sleep 60'
has err 'rank 1 exited with status 7'
expect 137 "killed" $run -n 2 sh -c '[ $SHARDRT_RANK = 0 ] && kill -9 $$; sleep 60'
has err 'rank 0 was killed by signal 9 (Killed)'
expect 127 "not found" $run -n 2 ./no-such-program
has err 'cannot run ./no-such-program: No such file or directory'
expect 126 "not executable" $run -n 2 "$dir"
expect 0 "options of the program" $run -n 1 sh -c '[ "$1" = --prefix ]' x --prefix
expect 5 "quiet" $run -q -n 1 sh -c 'exit 5'
[ ! -s "$dir/err" ] || fail "quiet is not"

# A rank that is started without standard files has them, and so has shardrun.
what="closed descriptors"
$run -n 1 sh -c 'ls -l /proc/$$/fd /proc/$PPID/fd >"$1"' x "$dir/files" <&- >&- 2>&- || fail "$what: status $?"
[ "$(grep -c ' [012] -> /dev/null$' "$dir/files")" -ge 5 ] || fail "$what: $(cat "$dir/files")" # ls writes to one

# Reliability: a launcher whose parent ignores SIGCHLD, which is inherited | never ended, not even by -t | ends
what="SIGCHLD is ignored"
if command -v perl >/dev/null; then # shells and timeout undo it
	perl -e '$SIG{CHLD} = "IGNORE"; exec @ARGV' $run -n 2 sh -c 'exit 7' >"$dir/out" 2>"$dir/err" </dev/null &
	started
	reap $started || fail "$what: does not end"
	[ $status = 7 ] || fail "$what: status $status, not 7: $(cat "$dir/err")"
else
	echo "no perl: $what: not tried"
fi

# the first failure counts; --keep-going leaves the others to themselves
expect 3 "keep going" $run --keep-going -n 3 sh -c "$rank_waits"'
	[ $SHARDRT_RANK != 1 ] || { echo $$ >"$dir/new"; mv "$dir/new" "$dir/first"; exit 3; }
	await test -e "$dir/first" && pid=$(cat "$dir/first")
	await test ! -e "/proc/$pid" # reaped
	[ $SHARDRT_RANK = 2 ] || exit 4
	echo alive' x "$dir"
has out alive
has err 'rank 0 exited with status 4'

# the environment
expect 0 "environment" $run -n 3 sh -c \
	'echo $SHARDRT_RANK $SHARDRT_LOCAL_RANK $SHARDRT_WORLD_SIZE $SHARDRT_LOCAL_SIZE $SHARDRT_BOOTSTRAP'
for r in 0 1 2; do
	has out "^$r $r 3 3 unix:@shardrt-[0-9a-f]\{32\}\$"
done

# deadlines and grace
expect 124 "timeout" $run -n 2 --timeout 0.3 sleep 60
has err 'the job has run for 0.3 s'
expect 1 "grace" $run -n 2 --grace 0.3 sh -c "$rank_waits"'
	trap "" TERM
	[ $SHARDRT_RANK = 1 ] || { await test -e "$dir/ignores"; exit 1; }
	: >"$dir/ignores"
	while :; do sleep 1; done' x "$dir"
has err 'rank 1 did not end within 0.3 s: killed'

# output: bytes as they are, in both ways
head -c 300000 /dev/urandom >"$dir/bytes"
expect 0 "bytes" $run -n 1 cat "$dir/bytes"
cmp -s "$dir/bytes" "$dir/out" || fail "output is changed"
expect 0 "prefix" $run -n 2 -p sh -c 'printf "a\nb\n\nlast"; echo oops >&2'
[ "$(sort "$dir/out" | tr '\n' '|')" = '[0] |[0] a|[0] b|[0] last|[1] |[1] a|[1] b|[1] last|' ] ||
	fail "prefix: $(cat "$dir/out")"
has err '^\[1\] oops$'
expect 0 "long lines" $run -n 1 -p sh -c 'head -c 100000 /dev/zero | tr "\0" x; echo; echo y'
[ "$(wc -c <"$dir/out")" = 100011 ] || fail "long lines: $(wc -c <"$dir/out") bytes"
expect 0 "many lines" $run -n 4 -p seq 20000
seq 20000 >"$dir/seq"
for r in 0 1 2 3; do
	sed -n "s/^\[$r\] //p" "$dir/out" | cmp -s - "$dir/seq" || fail "many lines of rank $r"
done

# standard input: rank 0's
got=$(echo hello | $run -n 2 sh -c 'read x; echo "$SHARDRT_RANK:$x"' | sort | tr '\n' ' ')
[ "$got" = "0:hello 1: " ] || fail "standard input: $got"

# What a rank does on a signal: it writes which, and ends with 9; without one it outlives all waits here.
cat >"$dir/rank" <<'END'
for s in INT TERM HUP USR1 USR2 QUIT; do
	trap "echo got $s; exit 9" $s
done
echo $$ >>"$1/pids"
i=0
while [ $i -lt 6000 ]; do sleep .1; i=$((i + 1)); done
END
# It ends by itself in any case, and ends no rank because that is slow.
bounded="$run --timeout 500 --grace 100"
both_there() { [ "$(wc -l <"$dir/pids")" -ge 2 ]; }
launch()
{
	: >"$dir/pids"
	"$@" >"$dir/out" 2>"$dir/err" </dev/null &
	started
	await_of $started both_there || fail "$what: the ranks do not start"
}
all_gone()
{
	# shellcheck disable=SC2046
	await gone $(cat "$dir/pids") && return
	for pid in $(cat "$dir/pids"); do
		! lives "$pid" || { fail "$what: process $pid is left" && kill -KILL "$pid"; }
	done
}
# ends STATUS: the launcher does, and nothing is left
ends()
{
	reap $started || fail "$what: does not end"
	[ $status = "$1" ] || fail "$what: status $status, not $1"
	all_gone
}
# Under nohup a shell cannot take HUP back, so the ranks here could not answer it.
signals="TERM HUP USR1 USR2"
sh -c 'kill -HUP $$; exit 3'
if [ $? = 3 ]; then
	echo "HUP is ignored here (nohup): not tried"
	signals="TERM USR1 USR2"
fi
for signal in $signals; do
	what="signal $signal"
	# The first rank that ends so has the other ended by TERM, whose trap may come before the signal's own.
	case $signal in USR*) keep=-k ;; *) keep= ;; esac
	launch $bounded $keep -n 2 sh "$dir/rank" "$dir"
	kill -$signal $started
	ends 9
	[ "$(grep -c "got $signal" "$dir/out")" = 2 ] || fail "$what: $(cat "$dir/out")"
done

# Ctrl-C: the terminal's signal goes to the foreground group; ranks get it once each. (A shell
# without job control starts background jobs with INT ignored: ask for a separate group.)
if command -v setsid >/dev/null && command -v perl >/dev/null; then
	what="Ctrl-C"
	launch setsid perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' $bounded -n 2 sh "$dir/rank" "$dir"
	kill -INT -- -$started 2>/dev/null || kill -INT $started
	ends 9
	[ "$(grep -c "got INT" "$dir/out")" = 2 ] || fail "$what: $(cat "$dir/out")"
fi

# Reliability: the end of a job in which a rank is stopped | waits for that rank, up to 600 s | `shardrun` continues it
#
# A rank that is stopped is continued, so that it gets the signal.
what="TERM of a stopped rank"
launch $run --timeout 500 --grace 500 -n 2 sh "$dir/rank" "$dir"
kill -STOP "$(sed 1q "$dir/pids")"
kill -TERM $started
ends 9
[ "$(grep -c "got TERM" "$dir/out")" = 2 ] || fail "$what: $(cat "$dir/out")"

# Three times: ranks that do not care are killed. Of two signals that are pending one is seen: as often as it takes.
what="three times TERM"
launch $bounded -n 2 sh -c 'trap "" TERM; echo $$ >>"$1/pids"; while :; do sleep 1; done' x "$dir"
gone_by_term() { gone $started || { kill -TERM $started; sleep .1; false; }; }
await gone_by_term || fail "$what: goes on"
ends 137

# The launcher itself is killed: nothing stays.
what="kill -9 of shardrun"
launch $bounded -n 2 sh "$dir/rank" "$dir"
kill -9 $started
ends 137

# Reliability: `kill -9` of `shardrun` | programs in wrappers went on | a guard kills them
#
# Wrappers are killed with what they run, also when shardrun was stopped.
for stop in "" -STOP; do
	what="kill -9 of shardrun with wrappers${stop:+, stopped}"
	# shellcheck disable=SC2016
	launch $bounded -n 2 sh -c 'sh -c "echo \$\$ >>\$1/pids; exec sleep 600" x "$1"; :' x "$dir"
	[ -z "$stop" ] || kill $stop $started
	kill -9 $started
	ends 137
done

# Reliability: the guard is killed, and shardrun later | programs in wrappers went on | shardrun starts another guard
guards()
{
	for stat in /proc/[0-9]*/stat; do
		read -r pid name _ parent _ <"$stat" && [ "$name $parent" = "(srt-guard) $started" ] && echo "$pid"
	done 2>/dev/null
}
what="kill -9 of the guard"
# shellcheck disable=SC2016
launch $bounded -n 2 sh -c 'sh -c "echo \$\$ >>\$1/pids; exec sleep 600" x "$1"; :' x "$dir"
kill -9 "$(guards)"
await grep -q 'the guard was killed: another one was started' "$dir/err" || fail "$what: $(cat "$dir/err")"
[ -n "$(guards)" ] || fail "$what: there is no guard"
kill -9 $started
ends 137

# Reliability: output of ranks that nobody reads | no signal or time limit worked | all work; the rest of the
# output is dropped
#
# A reader that does not read, and a rank that floods it, keep shardrun from nothing.
mkfifo "$dir/fifo"
# stalled OPTIONS...: a job whose output fills the pipe, which stays open and is never read
stalled()
{
	exec 3<>"$dir/fifo"
	: >"$dir/pids"
	# shellcheck disable=SC2016
	$run -p -g 0.3 "$@" -n 1 sh -c 'echo $$ >>"$1/pids"
		head -c 2000000 /dev/zero | tr "\0" "$2"; : >"$1/full"' x "$dir" "$fill" \
		>"$dir/fifo" 2>"$dir/err" 3<&- </dev/null &
	started
}
for fill in x '\n'; do
	what="a stalled reader and --timeout"
	stalled -t 0.5
	ends 124
	exec 3<&-
	has err 'bytes of output were dropped'
	what="a stalled reader and TERM"
	stalled
	await_of $started test -s "$dir/pids" || fail "$what: does not start"
	kill -TERM $started
	ends 143
	exec 3<&-
done
what="a stalled reader of both"
exec 3<>"$dir/fifo"
$run -p -g 0.3 -t 0.5 -n 2 yes >"$dir/fifo" 2>&1 3<&- </dev/null &
started
: >"$dir/pids"
ends 124
exec 3<&-
what="a slow reader"
$run -p -g 0.3 -n 1 seq 100000 >"$dir/fifo" 2>"$dir/err" </dev/null &
started
{ sleep 1; cat; } <"$dir/fifo" >"$dir/out"
reap $started && [ $status = 0 ] || fail "$what: status $status"
[ "$(tail -n 1 "$dir/out")" = "[0] 100000" ] || fail "$what: $(tail -n 1 "$dir/out")"
expect 124 "a flood" $run -p -t 0.5 -n 2 sh -c '[ $SHARDRT_RANK = 1 ] || exec yes; sleep 600'

# What a rank leaves running ends with it.
what="orphans"
: >"$dir/pids"
expect 0 "$what" $run -n 2 sh -c 'sleep 600 & echo $! >>"$1/pids"' x "$dir"
both_there || fail "$what: $(cat "$dir/pids")"
all_gone

# A rank that has ended is reaped while others run on.
what="reaping"
rm -f "$dir/first"
launch $bounded -n 2 sh -c "$rank_waits"'
	echo $$ >>"$dir/pids"
	[ $SHARDRT_RANK = 1 ] || { echo $$ >"$dir/new"; mv "$dir/new" "$dir/first"; exit 0; }
	wait_s=300
	await test -e "$dir/seen"' x "$dir"
await test -e "$dir/first" && pid=$(cat "$dir/first")
await test ! -e "/proc/$pid" || fail "$what: rank 0: $(grep State: "/proc/$pid/status")"
: >"$dir/seen"
ends 0
exit $failed
