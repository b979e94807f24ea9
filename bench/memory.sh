#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The memory of training compared with the plan: run in the build folder,
#
#     bench/memory.sh TEXT RANKS [OPTION of shardrt-train...]
#
# starts a training on this text, reads the PSS of the ranks from /proc until it ends, and prints the plan's line of
# the trainer and the most PSS of a rank, the mean over the ranks, in MiB. PSS counts a page that several processes
# map in parts.
[ $# -ge 2 ] || { sed -n '4,10s/^# \{0,1\}//p' "$0"; exit 2; }
text=$1 ranks=$2
shift 2
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
./shardrun -n "$ranks" ./shardrt-train --text "$text" --eval-every 0 "$@" > "$out" 2>&1 &
job=$!
most=0
while kill -0 $job 2> /dev/null; do
	# the trainers that the launcher started: its pid is the fourth field of their stat
	pss=$(for stat in /proc/[0-9]*/stat; do
		pid=${stat#/proc/} && pid=${pid%/stat}
		[ "$(sed -n 's/.*(shardrt-train) . \([0-9]*\) .*/\1/p' "$stat" 2> /dev/null)" = $job ] &&
			sed -n 's/^Pss: *\([0-9]*\) kB/\1/p' "/proc/$pid/smaps_rollup" 2> /dev/null
	done | awk '{ sum += $1; n++ } END { print n == '"$ranks"' ? int(sum / n) : 0 }')
	[ "$pss" -gt $most ] && most=$pss
	sleep 0.2
done
wait $job || { cat "$out"; exit 1; }
grep 'memory per rank' "$out"
awk "BEGIN { printf \"PSS of a rank, at most: %.1f MiB\n\", $most / 1024 }"
