#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Bad events while shardrt-train trains on two and three ranks: processes that are killed, stopped or hung up, a full
# disk, no file descriptors, output that nobody reads. Each job must end in time with a sentence that names the cause,
# and leave no process, no file, no shared memory and no socket. A line of each event has its time and the sentence.
. "$srcdir/tests/harness/wait.sh"
skip() { echo "SKIP: $*"; exit 77; }
[ -x ./shardrun ] || skip "shardrun was not built"
command -v pgrep > /dev/null || skip "no pgrep"
tmp=$(mktemp -d) || exit 1
trap 'end_background; umount "$tmp/disk" 2> /dev/null; rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
own_ms=0 # what an event waits for by itself
wait_s=300 # a rank under a sanitizer, on a busy machine, that saves
failed=0
SHARDRT_STAGING_BYTES=64k SHARDRT_THREADS=1 TMPDIR=$tmp/elsewhere
export SHARDRT_STAGING_BYTES SHARDRT_THREADS TMPDIR

fail()
{
	echo "FAIL: $event: $*: $(cat "$tmp/out" "$tmp/err")"
	failed=1
}

awk 'BEGIN { for (i = 0; i < 60; i++) print i, "little words make a line of the text" }' > "$tmp/text"
# Ends when it gets a signal. Its arguments tell its processes from others: shardrun, the guard, wrappers and ranks.
train="./shardrt-train --text $tmp/text --layers 1 --heads 2 --width 16 --context 16 --batch 6 --eval-every 0 \
	--steps 100000000 --log $tmp/log"
run="./shardrun --timeout 1000 --grace 200 -n"

printf '"$@"\n:\n' > "$tmp/wrapper"

# processes [NAME]: the job's, or those of a name
processes()
{
	for process in $(pgrep -f -- "$tmp/text"); do
		name=$(cat "/proc/$process/comm" 2> /dev/null)
		case $name in *"${1-}"*) [ "$process" = $$ ] || echo "$process" ;; esac
	done
}
rank_processes() { processes shardrt-trai; }
no_processes() { [ -z "$(processes)" ]; }

# begin EVENT COMMAND...: starts the job and waits for its third step
begin()
{
	event="$1 ($n ranks)"
	shift
	rm -rf "$tmp/save" "$tmp/elsewhere" "$tmp/log" "$tmp"/disk/*
	mkdir "$tmp/save" "$tmp/elsewhere"
	"$@" > "$tmp/out" 2> "$tmp/err" < /dev/null &
	started
	await_of $started grep -q '"step": 3,' "$tmp/log" || fail "no third step"
	sockets=
	for process in $(rank_processes); do
		sockets=$(tr '\0' '\n' < "/proc/$process/environ" | sed -n 's/^SHARDRT_BOOTSTRAP=unix://p')
	done
	begin_ms=$(date +%s%3N)
}

# An event after which nothing waits for a time limit ends its job well within this, except on a busy machine.
most_ms=$((10000 * ${SRT_PATIENCE:-10}))

# ends STATUS FILES [SENTENCE]: the job does in time; FILES are those that it may leave in $tmp/save and $tmp/elsewhere
ends()
{
	reap $started || fail "goes on"
	await no_processes || fail "left: $(ps -o pid,stat,args -p "$(processes | tr '\n' ',')0")"
	ms=$(($(date +%s%3N) - begin_ms))
	[ $ms -le $((most_ms + own_ms)) ] || fail "took $ms ms"
	[ $status = "$1" ] || fail "status $status, not $1"
	files=$(cd "$tmp" && find save disk elsewhere -mindepth 1 2> /dev/null |
		sed 's/train\.[^/]*/train.X/' | sort | tr '\n' ' ')
	[ "$files" = "$2" ] || fail "files: \"$files\", not \"$2\""
	[ -z "$sockets" ] || ! grep -qF "$sockets" /proc/net/unix || fail "left the socket $sockets"
	[ "$(in_shm)" = "$before" ] || fail "left in /dev/shm: $(in_shm)"
	sentence=
	[ -z "${3-}" ] || sentence=$(grep -h -m 1 -e "$3" "$tmp/err" "$tmp/out") || fail "no '$3'"
	echo "$event: $ms ms${sentence:+: $sentence}"
}
fill_disk() { head -c 2000000 /dev/zero > "$tmp/disk/filler" 2> /dev/null; }
in_shm() { ls /dev/shm 2> /dev/null | grep shardrt; }
before=$(in_shm)

# Reliability: a last save that fails everywhere | an empty folder was left | it is removed
#
# What is in the folders after a job that saved, and after one that saved elsewhere.
saved='save/model '
rescued='elsewhere/shardrt-train.X elsewhere/shardrt-train.X/model '
gone='shardrt-train: rank [0-9]: .*: rank [0-9] is gone'
# All waits of a job that starts on a busy machine must be shorter.
timeout_s=${SRT_PATIENCE:-10}
[ "$timeout_s" -ge 10 ] || timeout_s=10
timeout='shardrt-train: rank [0-9]: .*: rank [0-9] gave up after '$timeout_s' s (SHARDRT_TIMEOUT): rank'
worlds="2 3"
[ "$SRT_TEST_WORLDS" != largest ] || worlds=3
for n in $worlds; do
	model="--save $tmp/save/model"
	for keep in "" "-k"; do
		begin "kill -9 of a rank${keep:+, --keep-going}" $run $n $keep $train $model
		victim=$(rank_processes | sed -n '$p')
		kill -KILL "$victim"
		ends 137 "" 'rank [0-9] was killed by signal 9'
		[ -z "$keep" ] || [ "$(grep -c "$gone" "$tmp/err")" = $((n - 1)) ] || fail "not each survivor names the rank"
	done

	begin "kill -9 of shardrun" $run $n $train $model
	kill -KILL $started
	ends 137 ""
	# shellcheck disable=SC2016
	begin "kill -9 of shardrun, all in shells" sh -c '$1; echo "status $?"' x "$run $n sh $tmp/wrapper $train $model"
	kill -KILL "$(processes shardrun)"
	ends 0 "" 'status 137'

	begin "SIGSTOP and SIGCONT of a rank" $run $n $train $model
	victim=$(rank_processes | sed -n '$p')
	kill -STOP "$victim"
	sleep 1
	steps=$(wc -l < "$tmp/log")
	kill -CONT "$victim"
	goes_on() { [ "$(wc -l < "$tmp/log")" -gt "$((steps + 1))" ]; }
	await_of $started goes_on || fail "does not go on"
	kill -TERM $started
	ends 143 "$saved" 'ended by signal 15'

	if [ $n = 3 ]; then
		begin "SIGSTOP of a rank for ever" env SHARDRT_TIMEOUT=$timeout_s $run $n $train $model
		kill -STOP "$(rank_processes | sed -n '$p')"
		own_ms=$((1000 * timeout_s))
		ends 1 "" "$timeout"
		own_ms=0
	fi

	begin "SIGTERM of shardrun while a rank is stopped" $run $n $train $model
	kill -STOP "$(rank_processes | sed -n '$p')"
	kill -TERM $started
	ends 143 "$saved" 'ended by signal 15'

	begin "SIGHUP of a rank" $run $n $train $model
	kill -HUP "$(rank_processes | sed -n '$p')"
	ends 129 "$saved" 'ended by signal 1 '

	begin "a lost folder" $run $n $train $model
	rmdir "$tmp/save"
	kill -TERM $started
	ends 1 "$rescued" 'the parameters are in .*, not in --save: .*: No such file'

	if command -v prlimit > /dev/null; then
		begin "a limit of file sizes" $run $n $train $model
		for process in $(rank_processes); do
			prlimit --pid "$process" --fsize=1000
		done
		kill -TERM $started
		ends 1 "" 'the parameters are lost, .* cannot be written either: .*: File too large'
	fi

	mkdir "$tmp/disk"
	if mount -t tmpfs -o size=1m none "$tmp/disk" 2> /dev/null; then
		disk="--save $tmp/disk/model"
		begin "a full disk" $run $n $train $disk
		fill_disk
		kill -TERM $started
		ends 1 "disk/filler $rescued" 'the parameters are in .*, not in --save: .*: No space left on device'
		begin "a full disk, TMPDIR on it too" env TMPDIR="$tmp/disk" $run $n $train $disk
		fill_disk
		kill -TERM $started
		ends 1 "disk/filler " 'the parameters are lost, .* cannot be written either: .*: No space left on device'
		umount "$tmp/disk"
	else
		echo "skipped: a full disk, as no tmpfs can be mounted"
	fi
	rmdir "$tmp/disk"

	# Each number is enough for something more.
	for limit in 8 10 12 16 24 32; do
		event="ulimit -n $limit ($n ranks)" status=0
		(ulimit -n $limit && exec $run $n $train --steps 2) > "$tmp/out" 2> "$tmp/err" || status=$?
		[ $status = 0 ] || grep -q -e 'ulimit -n' -e 'Too many open files' "$tmp/err" || fail "status $status"
		echo "$event: status $status: $(sed 1q "$tmp/err")"
		[ $limit != 8 ] || grep -q 'ulimit -n' "$tmp/err" || fail "no remedy"
	done
done

n=2
# Reliability: a disk that is full, or read-only, while shardrt-train saves checkpoints | - | a warning; training goes on
# and saves when it can; the latest checkpoint loads
mkdir "$tmp/disk"
if [ ! -x tests/engine/test_checkpoint_sharded ]; then
	echo "skipped: checkpoints on a full disk need jansson and libxxhash"
elif mount -t tmpfs -o size=1m none "$tmp/disk" 2> /dev/null; then
	saves="--checkpoint $tmp/disk/run --save-every 1"
	not_saved() { grep -q "warning: step [0-9]* is not saved: .*$1" "$tmp/err"; }
	saved_more() { [ "$(cat "$tmp/disk/run/latest")" != "$latest" ]; }
	saves_again()
	{
		latest=$(cat "$tmp/disk/run/latest")
		await_of $started saved_more || fail "does not save again"
	}
	begin "a full disk, then a read-only one, of checkpoints" $run $n $train $saves
	# again and again, because checkpoints that are removed make room
	fill_more()
	{
		head -c 2000000 /dev/zero >> "$tmp/disk/filler" 2> /dev/null
		not_saved "No space left on device"
	}
	await_of $started fill_more || fail "no warning of a full disk"
	rm "$tmp/disk/filler"
	saves_again
	# refused while a file is open for writing
	read_only() { mount -o remount,ro "$tmp/disk" 2> /dev/null; }
	await_of $started read_only || fail "cannot be made read-only"
	await_of $started not_saved "Read-only file system" || fail "no warning of a read-only disk"
	mount -o remount,rw "$tmp/disk"
	saves_again
	kill -TERM $started
	reap $started || fail "goes on"
	[ $status = 143 ] || fail "status $status"
	await no_processes || fail "processes are left"
	echo "$event: $(grep -c 'is not saved' "$tmp/err") steps are not saved"
	latest=$(cat "$tmp/disk/run/latest")
	status=0
	$run $n $train $saves --resume --steps 1 > "$tmp/out" 2> "$tmp/err" || status=$?
	{ [ $status = 0 ] && grep -q "^resumed from $tmp/disk/run/$latest" "$tmp/out"; } || fail "status $status, not resumed"
	umount "$tmp/disk"
else
	echo "skipped: checkpoints on a full disk, as no tmpfs can be mounted"
fi
rmdir "$tmp/disk"

# A disk with room for two checkpoints and a half.
few="$train --steps 6 --checkpoint $tmp/disk/run --save-every 1"
few_status()
{
	status=0
	"$@" > "$tmp/out" 2> "$tmp/err" || status=$?
}
event="checkpoints on a small disk"
mkdir "$tmp/disk"
$run $n $few > "$tmp/out" 2> "$tmp/err" || :
kib=$(du -sk "$tmp/disk/run/step-0000000006" 2> /dev/null | cut -f 1)
rm -rf "$tmp/disk/run"
if [ -n "$kib" ] && mount -t tmpfs -o size=$((kib * 5 / 2))k none "$tmp/disk" 2> /dev/null; then
	# Reliability: no space for one more checkpoint than --keep has | each later save failed, the last one too | the
	# oldest one is removed first, with a warning
	few_status $run $n $few
	[ $status = 0 ] && [ "$(cat "$tmp/disk/run/latest")" = step-0000000006 ] || fail "status $status: $(ls "$tmp/disk/run")"
	grep -q "warning: there is no space for another checkpoint: removing .*/step-0000000001, the oldest of 2" "$tmp/err" ||
		fail "no word of the checkpoint that is removed"
	# Reliability: the last checkpoint cannot be written | lost | tried again for a minute, then saved to TMPDIR
	begin "a full disk at the last checkpoint" $run $n $train --checkpoint "$tmp/disk/run" --resume --keep 0
	fill_disk
	kill -TERM $started
	reap $started || fail "goes on"
	[ $status = 1 ] || fail "status $status"
	folder=$(sed -n 's/.*the last checkpoint is in \([^ ,]*\), not in --checkpoint .*: No space left on device$/\1/p' "$tmp/err" |
		sed 's/.*: //')
	few_status $run $n $train --steps 1 --checkpoint "${folder:-none}" --resume
	[ $status = 0 ] && grep -q "^resumed from $tmp/elsewhere/.*/step-" "$tmp/out" || fail "not resumed from '$folder'"
	rm -rf "$tmp/disk/run" "$tmp/disk/filler" "$folder"
	# Reliability: a folder in which no checkpoint can be saved: no permission, read-only, or no space for one | all
	# steps were trained, and lost | refused before the first step
	#
	# refused_folder STATUS WORDS COMMAND...
	refused_folder()
	{
		code=$1 words=$2
		shift 2
		few_status "$@"
		[ $status = "$code" ] && grep -q "cannot save to --checkpoint $tmp/disk/.*: $words" "$tmp/err" ||
			fail "not refused with '$words': status $status"
		! grep -q "^step" "$tmp/out" || fail "$words: trained"
	}
	head -c $((kib * 2048)) /dev/zero > "$tmp/disk/filler"
	refused_folder 1 "cannot allocate the space of a checkpoint (about [0-9]* bytes): No space left" $run $n $few
	rm "$tmp/disk/filler"
	mkdir -p "$tmp/disk/run"
	mount -o remount,ro "$tmp/disk"
	refused_folder 1 "cannot create a folder in it (about [0-9]* bytes): Read-only file system" $run $n $few
	mount -o remount,rw "$tmp/disk"
	chmod 755 "$tmp"
	if setpriv --reuid 65534 --clear-groups sh -c 'test -r "$1" && test -x ./shardrt-train' x "$tmp/text" 2> /dev/null; then
		chmod 555 "$tmp/disk/run"
		refused_folder 2 "cannot create a folder in it (about [0-9]* bytes): Permission denied" \
			setpriv --reuid 65534 --clear-groups ./shardrt-train --text "$tmp/text" --checkpoint "$tmp/disk/run"
	fi
	umount "$tmp/disk"
else
	echo "skipped: checkpoints on a small disk, as no tmpfs can be mounted"
fi
rm -rf "$tmp/disk"

# A pipe that is full.
mkfifo "$tmp/fifo"
exec 3<> "$tmp/fifo"
head -c 65536 /dev/zero >&3
# shellcheck disable=SC2016
begin "output that nobody reads" sh -c 'exec "$@" > "$0" 3>&-' "$tmp/fifo" ./shardrun -p -g 5 -n $n $train $model
kill -TERM $started
ends 143 "$saved" 'standard output is not read: [0-9]* bytes of output were dropped'
exit $failed
