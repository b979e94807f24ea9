#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Reliability: a call that is refused on all ranks, in a program that ends at once | some ranks say that another one is gone |
# each rank has the cause
#
# tests/engine/test_refused.c on four ranks, with late messages by seeds, and without. `make check-long` has 100 jobs of each
# call, and jobs over two hosts.
export SHARDRT_THREADS=1 SHARDRT_BACKEND=cpu SHARDRT_STAGING_BYTES=64k
program=tests/engine/test_refused
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n=4 failed=0

# try MODE WORDS SEED: the words are in what each rank says
try()
{
	# shellcheck disable=SC2086
	out=$(./shardrun -k -n $n $program "$1" "$dir" $3 2>&1) || { echo "FAIL: $1, seed $3: $out"; failed=1; }
	[ "$(echo "$out" | grep -c "^rank .: .*$2")" = $n ] || { echo "FAIL: $1, seed $3: not $2 on all ranks: $out"; failed=1; }
}

if [ -n "$SRT_TEST_LONG" ]; then
	seeds="$(seq 10) $(yes none | head -90)"
else
	seeds="1 2 none"
fi
for seed in $seeds; do
	[ "$seed" != none ] || seed=
	try build 'on rank 1' "$seed"
	for mode in load save resume checkpoint; do
		try $mode "cannot .*$dir/missing/file\\|built without" "$seed"
	done
	try hash done "$seed"
done

# Over two hosts the reason comes from rank 0, and from the first rank of the node.
on_hosts()
(
	. "$srcdir/tests/harness/hosts.sh"
	for needed in UCX SODIUM; do
		grep -q "^#define HAVE_$needed 1" config.h || { echo "not tested: two hosts without $needed"; exit 0; }
	done
	can_make_hosts || { echo "not tested: two hosts: $no_hosts"; exit 0; }
	UCX_TLS=tcp,self
	export UCX_TLS
	for port in $(seq 29600 29619); do
		for mode in build load; do
			start_ranks "2 2" $program $mode "$dir" "$((port % 2))"
			reap_ranks || fail "$mode on two hosts: no end"
			[ "$(cat "$dir"/[0-3] | grep -c "^rank .: .*\(on rank 1\|cannot .*/missing/file\)")" = 4 ] ||
				fail "$mode on two hosts: not the cause on all ranks"
		done
	done
)
[ -z "$SRT_TEST_LONG" ] || on_hosts || failed=1
exit $failed
