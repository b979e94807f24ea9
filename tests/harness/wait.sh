# SPDX-License-Identifier: BSD-3-Clause
#
# To be sourced by a test script that starts something in the background:
#
#     . "$srcdir/tests/harness/wait.sh"
#     trap 'end_background; rm -rf "$dir"' EXIT             however it ends, nothing of it goes on
#     trap 'exit 1' HUP INT TERM
#     ./shardrun -n 2 ... & started
#     await_of $started grep -q ready "$dir/out" || fail    waits for what happens, not for a time
#     kill -TERM $started                                   that a busy machine may not keep
#     reap $started || fail                                 its exit status is in $status
wait_s=120 # what is tried does not depend on it: a wait that is over has failed

# now: sets $now to whole seconds of a clock that nobody sets
now()
{
	read -r now _ < /proc/uptime
	now=${now%%.*}
}

# await COMMAND...: until it succeeds; 1 if it does not within wait_s
await()
{
	now
	end=$((now + wait_s))
	while ! "$@" 2> /dev/null; do
		[ $now -lt $end ] || return 1
		sleep 0.02
		now
	done
}

# lives PID: it runs; one that has ended and waits for its parent, which kill -0 still finds, does not
lives()
{
	{ read -r stat < "/proc/$1/stat"; } 2> /dev/null || return 1
	case ${stat##*)} in
	" Z "* | " X "*) return 1 ;;
	esac
}

# gone PID...: none of them runs
gone()
{
	for process in "$@"; do
		! lives "$process" || return 1
	done
}

# await_of PID COMMAND...: the same for what that process does; not longer than it lives
await_of()
{
	whose=$1
	shift
	await has_or_ended "$@" && "$@" 2> /dev/null
}
has_or_ended() { "$@" || gone "$whose"; }

background=
# started: the command that was put into the background just now; its process is $started
started()
{
	started=$!
	background="$background $started"
}

# reap PID: waits for one that was started; its exit status is in $status. One that does not end is killed,
# and gives 1.
reap()
{
	late=0 status=0
	await gone "$1" || { late=1 && kill -KILL "$1"; }
	wait "$1" 2> /dev/null || status=$?
	left=
	for process in $background; do
		[ "$process" = "$1" ] || left="$left $process"
	done
	background=$left
	return $late
}

# end_background: kills what was started and not reaped. Ranks end with their shardrun.
end_background()
{
	for process in $background; do
		kill -KILL "$process" 2> /dev/null
	done
	background=
}
