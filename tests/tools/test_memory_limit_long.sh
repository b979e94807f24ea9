#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A model whose unsharded parameters, gradients and moments are three times the memory limit of a rank's cgroup: it is
# initialised in the shards of 4 ranks, trains ten steps within the plan, and is saved. With ddp it is refused.
#
# Reliability: ranks in a cgroup each, with limits | one limit had to be enough for all, so jobs were refused | each rank
# has its own limit
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
[ "$(id -u)" = 0 ] || skip "not root: no cgroups can be made"

# The memory controller of this process: version 2, or 1.
group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup) limit=memory.max peak=memory.peak
if ! grep -qw memory "$group/cgroup.subtree_control" 2> /dev/null; then
	group=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
	limit=memory.limit_in_bytes peak=memory.max_usage_in_bytes
fi
group=$group/shardrt-test-$$
mkdir "$group" 2> /dev/null || skip "no cgroup can be made in $(dirname "$group")"
tmp=$(pwd)/tests/memory_limit.tmp
rm -rf "$tmp" && mkdir -p "$tmp" || exit 1
trap 'rmdir "$group"/rank? "$group"; rm -rf "$tmp"' EXIT
[ $limit = memory.limit_in_bytes ] || echo +memory > "$group/cgroup.subtree_control" || exit 1
for rank in 0 1 2 3; do
	mkdir "$group/rank$rank" || exit 1
done
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

i=0
while [ $i -lt 400 ]; do
	echo "line $i of the text has the number $((i * 7919 % 10007))"
	i=$((i + 1))
done > "$tmp/text"
model="--layers 50 --heads 4 --width 256 --context 32"
nparams=$((50 * (12 * 256 * 256 + 13 * 256) + 2 * 256 * 256 + 32 * 256 + 2 * 256))
nbytes=$((16 * nparams / 3))

# train STRATEGY OPTIONS...: each rank in its cgroup, whose peak begins anew
train()
{
	strategy=$1
	shift
	for rank in 0 1 2 3; do
		echo $nbytes > "$group/rank$rank/$limit" || exit 1
		echo 0 > "$group/rank$rank/$peak" 2> /dev/null # version 2: from Linux 6.12 on
	done
	./shardrun -n 4 sh -c 'echo $$ > '"$group"'/rank$SHARDRT_RANK/cgroup.procs && exec "$@"' sh \
		./shardrt-train --text "$tmp/text" $model --batch 4 --steps 10 --eval-every 0 --threads 1 \
		--strategy $strategy "$@" > "$tmp/out" 2>&1
}

train zero3 || fail "zero3 in $nbytes bytes a rank: $(cat "$tmp/out")"
most=$(cat "$group"/rank?/$peak | sort -n | tail -n 1)
# "memory per rank: A + B activations + C scratch", in MiB or KiB
plan=$(sed -n 's/.*memory per rank: //p' "$tmp/out" | awk '{
	for (i = 1; i < NF; i++) {
		if ($(i + 1) ~ /^MiB/) sum += $i * 1048576
		if ($(i + 1) ~ /^KiB/) sum += $i * 1024
	}
	printf "%d", sum
}')
echo "$nparams parameters, limit $nbytes bytes, plan $plan, peak of a rank $most"
[ "${plan:-0}" -gt $((nbytes / 2)) ] || fail "no plan in $(cat "$tmp/out")"
[ "${most:-0}" -le $((plan + 48 * 1048576)) ] || fail "the peak is more than 48 MiB above the plan"
train zero3 --save "$tmp/model.safetensors" || fail "saving: $(cat "$tmp/out")"
[ -s "$tmp/model.safetensors" ] || fail "nothing is saved"
train ddp && fail "ddp fits $nbytes bytes"
grep -q "needs .* GiB" "$tmp/out" || fail "no sentence: $(cat "$tmp/out")"
[ $failed = 0 ]
