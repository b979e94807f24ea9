#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# --sequence-parallel: the hash of --tensor-parts without it where a rank has 128 * 2^j rows, over tp, strategies, data-parallel
# ranks, recomputation and precisions, for a GPT (LayerNorm, learned positions) and for decoders with RMSNorm; less memory
# for activations, as planned; and what it is refused for.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
grep -q '^#define HAVE_XXHASH 1' config.h || skip "built without libxxhash"
tmp=tests/sequence_parallel.$SHARDRT_BACKEND.tmp
rm -rf $tmp && mkdir -p $tmp || exit 1
trap 'rm -rf $tmp' EXIT
i=0
while [ $i -lt 400 ]; do
	echo "line $i of the text has the number $((i * 7919 % 10007)), and line $((i * i)) is not in it"
	i=$((i + 1))
done > $tmp/text
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

# train RANKS OPTIONS...: $tmp/out has the output. Two micro-batches of two sequences: 512 rows
train()
{
	n=$1
	shift
	./shardrun -n "$n" ./shardrt-train $model --text $tmp/text --batch 4 --micro-batches 2 --accumulate-mode tree \
		--steps 2 --clip 0.5 --lr 0.01 --eval-every 0 --tensor-parts 4 --hash "$@" > $tmp/out 2>&1
}

# same RANKS OPTIONS...: the hash of one rank, with these options but those of tensor parallelism
same()
{
	train "$@" || fail "$*: $(cat $tmp/out)"
	hash=$(grep '^hash' $tmp/out)
	[ "$hash" = "$alone" ] || fail "$model, $*: '$hash', not '$alone'"
}

# alone OPTIONS...: the hash of one rank
alone()
{
	train 1 "$@" || fail "$*: $(cat $tmp/out)"
	alone=$(grep '^hash' $tmp/out)
	[ -n "$alone" ] || fail "$*: no hash: $(cat $tmp/out)"
}

# refused WHY OPTIONS...
refused()
{
	why=$1
	shift
	train 2 --mesh tp=2 --sequence-parallel "$@" && fail "$* is not refused"
	grep -q "$why" $tmp/out || fail "$*: $(cat $tmp/out)"
}

rows="--sequence-parallel --mesh"
model="--layers 2 --heads 4 --width 32 --context 256"
use_form ${forms%% *}
alone
same 2 $rows tp=2 --strategy zero3
if [ $most_ranks -ge 4 ]; then
	same 4 $rows tp=4 --recompute
	same 4 $rows dp=2,tp=2 --strategy zero2 --flat views
fi
alone --dtype bf16
same 2 $rows tp=2 --dtype bf16
alone --dtype fp16 --scaler
same 2 $rows tp=2 --dtype fp16 --scaler --recompute
# A rank has 24 rows: other bits, the same ones on every strategy.
model="--layers 2 --heads 4 --width 32 --context 24"
alone
train 2 $rows tp=2 && alone2=$(grep '^hash' $tmp/out) || fail "24 rows: $(cat $tmp/out)"
[ "$alone2" != "$alone" ] || fail "24 rows of a rank have the hash of 48"
alone=$alone2
same 2 $rows tp=2 --strategy zero3 --recompute
refused "needs tensor parts" --tensor-parts 1
refused "adapters are not for sequence parallelism" --lora r=2
refused "rows cannot be divided among 2" --context 25 --batch 2 --micro-batches 2
if grep -q '^#define HAVE_JANSSON 1' config.h; then
	for name in olmo2_rows qwen3_rows; do
		model="--init $srcdir/tests/tools/decoders/$name.json --init-random"
		alone
		same 2 $rows tp=2 --strategy zero3
		same 2 $rows tp=2 --recompute --dtype fp32
	done
fi
# The activations of a rank: what is planned is what the trainer allocates, and less than without.
model="--layers 2 --heads 4 --width 32 --context 256"
activations()
{
	train 2 --mesh tp=2 "$@" || fail "$*: $(cat $tmp/out)"
	sed -n 's/.*memory per rank:.* + \([0-9.]* [KMG]iB\) activations.*/\1/p' $tmp/out
}
with=$(activations --sequence-parallel)
without=$(activations)
awk -v with="$with" -v without="$without" 'BEGIN {
	split(with, a); split(without, b)
	exit !(a[2] == b[2] && a[1] > 0 && a[1] < 0.9 * b[1]) }' ||
	fail "activations of a rank: $with with rows that are cut, $without without"
cell 2 "$([ $failed = 0 ] && echo pass || echo fail)"
exit $failed
