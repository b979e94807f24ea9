#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The model of docs/scaling.md: the messages, bytes, exchanges and connections of each rank of the first node are
# those of a real run. Its ranks share this host and are told that they are on several nodes.
grep -q '^#define HAVE_UCX 1' config.h || { echo "SKIP: built without UCX"; exit 77; }
grep -q '^#define HAVE_SODIUM 1' config.h || { echo "SKIP: built without libsodium"; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
SHARDRT_TIMEOUT=300 SHARDRT_STAGING_BYTES=64k
export SHARDRT_TIMEOUT SHARDRT_STAGING_BYTES

# same RANKS NODE [--flat]
same()
{
	bench/scale --counts --model nano --node "$2" $3 "$1" >"$dir/model" 2>&1 || { cat "$dir/model"; exit 1; }
	SHARDRT_COLLECTIVES=${3:+ucx} ./shardrun -n "$1" bench/scale --rank --model nano --node "$2" >"$dir/real" 2>&1 ||
		{ cat "$dir/real"; exit 1; }
	n=$2
	[ "$n" -le "$1" ] || n=$1
	for r in $(seq 0 $((n - 1))); do
		grep "^rank $r:" "$dir/model" >"$dir/a"
		grep "^rank $r:" "$dir/real" >"$dir/b"
		grep -q "data near.* of [1-9].* far .*control near [1-9]" "$dir/a" && cmp -s "$dir/a" "$dir/b" && continue
		echo "FAIL: $1 ranks, nodes of $2: the model, then the real run:"
		cat "$dir/a" "$dir/b"
		exit 1
	done
}

same 2 8 --flat
same 3 8 --flat
same 8 2 --flat
same 5 2 # not hierarchical: nodes of different sizes
same 6 3 # sums are not hierarchical
same 8 2
