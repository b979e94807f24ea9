#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The files of the flight recorder, and what shardrt-info --flight reports of them: a rank that is missing, calls
# something else, is killed or stopped, a cycle, two communicators, more starts than the ring has; malformed files.
. "$srcdir/tests/harness/run_ranks.sh"
. "$srcdir/tests/harness/wait.sh"
grep -q '^#define HAVE_JANSSON 1' config.h || skip "shardrt-info --flight needs jansson"
dir=$(mktemp -d) || exit 1
trap 'end_background; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
failed=0
n=3
[ $n -le $most_ranks ] || n=2
last=$((n - 1)) others="rank 0 waits"
[ $n = 2 ] || others="ranks 0 and 1 wait"
export SHARDRT_FLIGHT="$dir/files"
program=tests/collectives/test_flight
fail()
{
	echo "FAIL: $form: $*"
	cat "$dir/out" "$dir/err" "$dir/report" 2> /dev/null
	failed=1
}

# run STATUS RANKS MODE: a job that ends by itself
run()
{
	rm -rf "$SHARDRT_FLIGHT"
	run_as_is "$@"
}
run_as_is()
{
	./shardrun -k --timeout 250 -n "$2" $program "$3" > "$dir/out" 2> "$dir/err"
	got=$?
	[ $got = "$1" ] || fail "$3: status $got, not $1"
}

# start MODE: a job that waits
start()
{
	rm -rf "$SHARDRT_FLIGHT"
	: > "$dir/out"
	./shardrun -k --timeout 250 -n $n $program "$1" > "$dir/out" 2> "$dir/err" &
	started
	await_of $started printed || fail "the ranks of $1 did not start"
}

report() { ./shardrt-info --flight "$SHARDRT_FLIGHT" > "$dir/report" 2>&1; }
# has WORDS...: each is in the report
has()
{
	for words in "$@"; do
		grep -qF -e "$words" "$dir/report" || return 1
	done
}
expect()
{
	report || fail "no report"
	for words in "$@"; do
		has "$words" || fail "the report lacks: $words"
	done
}
# asks PIDS WORDS...: sends the signal, and reads what the ranks have written at this or the last one
asks()
{
	# shellcheck disable=SC2086
	kill -USR1 $1
	shift
	report && has "$@"
}
printed() { [ "$(grep -c '^pid' "$dir/out")" -ge $n ]; }
ended() { kill -TERM $started && reap $started; }

check_waits()
{
	run 0 $n missing
	expect "wait" "in all-gather of \"block 7\" (start 1 of \"world\") for rank $last, for" \
		"rank $last did not reach start 1, all-gather of \"block 7\"" \
		"rank $last waits for no other rank" "did not reach it" "rank $last: no start of a collective"
	run 0 $n mismatch
	expect "start 2 differs: rank" "called barrier of \"unit a\", rank $last called barrier of \"unit b\"" \
		"start 1, barrier of \"unit a\""
	run 137 $n killed
	expect "no file of rank $last: killed" "rank $last ended first" "start 1, all-gather of \"block 7\""
	cell $n "$([ $failed = 0 ] && echo pass || echo fail)"
}

check_signals()
{
	start stopped
	pids=$(sed -n "/^pid $last /d; s/^pid [0-9]* //p" "$dir/out" | tr '\n' ' ')
	await_of $started asks "$pids" "$others in all-gather of \"block 7\" (start 1 of \"world\") for rank $last" \
		"no file of rank $last: killed, stopped" "written at SIGUSR1" || fail "stopped: no report"
	kill -CONT "$(sed -n "s/^pid $last //p" "$dir/out")"
	reap $started || fail "a stopped rank was continued: no end"
	[ $status = 0 ] || fail "stopped: status $status"

	start cycle # shardrun passes the signal on
	await_of $started asks $started "rank $last waits in 'saving \"model\"' (exchange" \
		"$others in all-gather of \"block 7\"" "cycle: rank 0 waits for rank $last, which waits for rank 0" ||
		fail "cycle: no report"
	ended
	start groups
	await_of $started asks $started "communicator \"pair\" of ranks 0 and $last" \
		"rank 0 waits in barrier of \"two\" (start 2 of \"pair\") for rank $last" \
		"rank $last did not reach start 2, barrier of \"two\"" "rank $last waits for no other rank" ||
		fail "groups: no report"
	ended
}

# refused STATUS WORDS ARGUMENTS...
refused()
{
	want=$1 words=$2
	shift 2
	./shardrt-info --flight "$@" > "$dir/report" 2>&1
	got=$?
	[ $got = "$want" ] && has "$words" || fail "--flight $*: status $got, no \"$words\""
}

check_files()
{
	for ranks in 1 2; do
		run 0 $ranks ring
		[ "$(grep -c '"kind": "barrier".*"complete"' "$SHARDRT_FLIGHT/rank-0.json")" = 256 ] ||
			fail "the ring has $(grep -c '"kind": "barrier"' "$SHARDRT_FLIGHT/rank-0.json") starts"
		expect 'start 3000, barrier of "ring "\??[31m ?é"' "no rank waits for another one"
	done
	first=$SHARDRT_FLIGHT/rank-0.json second=$SHARDRT_FLIGHT/rank-1.json
	nbytes=$(wc -c < "$first")
	for size in 0 1 100 $((nbytes / 2)) $((nbytes - 4)); do
		head -c $size "$first" > "$dir/cut.json"
		refused 1 "cut.json: line" "$dir/cut.json" "$second"
	done
	cp "$first" "$dir/rank-7.json"
	refused 1 "are both of rank 0" "$dir/rank-7.json" "$SHARDRT_FLIGHT"
	edit() { sed "$1" "$second" > "$dir/edited.json"; }
	edit '1s/"shardrt_flight": 1/"shardrt_flight": 2/'
	refused 1 "edited.json: version 2 of the format; this program reads version 1" "$first" "$dir/edited.json"
	edit '1s/"job": "[^"]*"/"job": "0"/'
	refused 1 "are of different jobs" "$first" "$dir/edited.json"
	edit '1s/"rank": 1/"rank": 2/'
	refused 1 'the value of "rank" is missing or malformed' "$dir/edited.json"
	echo '{"a": 1}' > "$dir/edited.json"
	refused 1 "not a file of the flight recorder" "$dir/edited.json"
	# small parts of a long file, which would take many times its length of memory
	{ printf '{"a":[' && yes '{},' | head -n 100000 && echo '{}]}'; } > "$dir/edited.json"
	refused 1 "it has too many objects" "$dir/edited.json"
	mkdir "$dir/none"
	refused 1 "has no files rank-N.json" "$dir/none"
	refused 1 "No such file" "$dir/nothing"
	refused 2 "--flight needs files or folders"
	refused 0 "no file of rank 0" "$second"

	run 0 1 records
	[ ! -e "$SHARDRT_FLIGHT/rank-0.json" ] || fail "a file for a signal that the program handles"
	# A folder that cannot be used ends no job; a restart has a folder of the restart.
	rm -rf "$SHARDRT_FLIGHT"
	: > "$SHARDRT_FLIGHT"
	run_as_is 0 $n missing
	rm -rf "$SHARDRT_FLIGHT"
	SHARDRT_RESTART_COUNT=3 $program records > "$dir/out" 2>&1 || fail "restart"
	[ -d "$SHARDRT_FLIGHT/restart-3" ] || fail "no folder of a restart"
}

use_form "${forms%% *}"
check_waits
check_signals
check_files
use_form "${staged_forms%% *}"
check_waits
exit $failed
