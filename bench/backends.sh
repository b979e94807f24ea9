#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/backends.sh TEXT [BACKEND...]: the time of a step on each backend and on the cpu (default:
# opencl), exact mode, 2 ranks of one thread, the char preset. The runs alternate, ROUNDS times each
# (default 3); printed are the median step, its quotient by the cpu's, launches a step, and whether
# the parameters at the end have the cpu's bits, without which it fails.
# Run it in the build folder; it takes a minute or two.
[ $# -ge 1 ] && [ -r "$1" ] || {
	echo "usage: $0 TEXT [BACKEND...]" >&2
	exit 2
}
text=$1
shift
[ $# -ge 1 ] || set -- opencl
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# run BACKEND: the steps after the first two, in seconds, are added to $dir/BACKEND.
run()
{
	SHARDRT_BACKEND=$1 ./shardrun -n 2 ./shardrt-train --text "$text" --preset char --batch 12 \
		--threads 1 --steps 8 --eval-every 0 --strategy zero3 --hash \
		--log "$dir/log" > "$dir/out" || exit 1
	sed -n 's/.*"step_s": *\([0-9.e+-]*\).*/\1/p' "$dir/log" | tail -n +3 >> "$dir/$1"
	sed -n 's/.*"launches": *\([0-9.e+-]*\).*/\1/p' "$dir/log" | tail -n 1 > "$dir/$1.launches"
	sed -n 's/^hash: //p' "$dir/out" > "$dir/$1.hash"
}
median()
{
	sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

round=0
while [ $round -lt "${ROUNDS:-3}" ]; do
	for backend in cpu "$@"; do
		run "$backend"
	done
	round=$((round + 1))
done
failed=0
cpu=$(median "$dir/cpu")
for backend in cpu "$@"; do
	same=yes
	cmp -s "$dir/cpu.hash" "$dir/$backend.hash" || same=NO failed=1
	median "$dir/$backend" | awk -v name="$backend" -v cpu="$cpu" -v same=$same \
		-v launches="$(cat "$dir/$backend.launches")" \
		'{ printf "%-8s %.0f ms a step, %.2f of cpu, %d launches, same bits: %s\n", name,
			$1 * 1e3, $1 / cpu, launches, same }'
done
exit $failed
