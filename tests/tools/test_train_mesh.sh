#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Tensor parallelism in shardrt-train: one hash for tp=2 over strategies, data-parallel ranks and backends, in each
# precision, and with a vocabulary that the ranks do not divide; losses, validation and generated text as without it. The
# same of a Gemma 3: norms of heads, whose weights have a part of their gradient on each rank; and of an OLMo 2: norms over
# the heads of all ranks.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
hash=2351bf8914ff8af501f4e64e51c7824b
tmp=tests/train_mesh.$SHARDRT_BACKEND.tmp
rm -rf $tmp && mkdir -p $tmp || exit 1
trap 'rm -rf $tmp' EXIT
i=0
while [ $i -lt 400 ]; do
	echo "line $i of the text has the number $((i * 7919 % 10007)), and line $((i * i)) is not in it"
	i=$((i + 1))
done > $tmp/text
model="--text $tmp/text --layers 2 --heads 2 --width 24 --context 20 --batch 8 --steps 20 --clip 0.5 --lr 0.01"
micro="--micro-batches 4 --accumulate-mode tree"
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

# train RANKS OPTIONS...: $tmp/out has the output, $tmp/log the steps
train()
{
	n=$1
	shift
	rm -f $tmp/log # with --init steps are added to it
	./shardrun -n "$n" ./shardrt-train $model $micro --eval-every 20 --eval-batches 3 --log $tmp/log "$@" \
		> $tmp/out 2>&1 || fail "$* on $n ranks: $(cat $tmp/out)"
}

# losses: of the steps and of the validation
losses()
{
	grep -o '"\(val_\)*loss": *[0-9.e+-]*' $tmp/log | sed 's/.*: *//'
}

# sample: the generated text, after the last step
sample()
{
	sed '1,/^step 20/d; /^hash/d' $tmp/out
}

# cut RANKS OPTIONS...: has the hash
cut_has_hash()
{
	train "$@" --hash --sample 20
	grep -q xxhash $tmp/out && skip "built without libxxhash"
	got=$(sed -n 's/^hash: numerics [0-9]* exact, xxh3-128 //p' $tmp/out)
	[ "$got" = $hash ] || fail "$*: the hash is '$got', not $hash"
	tail -n 2 $tmp/out > $tmp/end
	[ -e $tmp/end1 ] || { mv $tmp/end $tmp/end1 && losses > $tmp/cut; return; }
	losses | cmp - $tmp/cut || fail "$*: other losses than with dp=1"
}

# differ_by MOST WHOLE CUT: the losses of two files
differ_by()
{
	paste $2 $3 | awk -v limit=$1 '
		{ off = ($1 - $2) / $1; if (off < 0) off = -off; if (off > most) most = off }
		END { printf "the losses of %d steps differ by %.1e at most\n", NR, most; exit !(NR == 21 && most <= limit) }' ||
		fail "tp=2 has other losses: $(paste $2 $3)"
}

# also HASH MOST OPTIONS...: these options have the hash, and the losses and the text without tp
also()
{
	want=$1 most=$2
	shift 2
	train 2 "$@" --mesh tp=2 --hash
	grep -q "xxh3-128 $want\$" $tmp/out || fail "$*: the hash is not $want: $(tail -n 1 $tmp/out)"
	losses > $tmp/also
	sample > $tmp/sample
	train 1 "$@"
	losses > $tmp/alone
	differ_by $most $tmp/alone $tmp/also
	sample | cmp - $tmp/sample || fail "$*: another text with tp=2: $(cat $tmp/sample)"
}

SHARDRT_NUMERICS=exact && export SHARDRT_NUMERICS
train 1 --hash
grep -q $hash $tmp/out && fail "the hash without tp is that with tp=2"
losses > $tmp/whole
for form in $forms; do
	use_form $form
	for strategy in ddp zero1 zero2 zero3; do
		cut_has_hash 2 --strategy $strategy --mesh dp=1,tp=2
	done
done
use_form ${forms%% *}
cut_has_hash 2 --strategy zero3 --mesh tp=2
also 26a670a329d1719dc9acca7933a5790f 1e-5 --vocab 257
also cd240ebf77764d02a5d77c525fcfd1be 2e-3 --dtype bf16
also 794a382e4cce3eeb16fc3f32e94c36f2 2e-4 --dtype fp16 --scaler
if [ $most_ranks -ge 8 ]; then
	for strategy in ddp zero1 zero2 zero3; do
		cut_has_hash 4 --strategy $strategy --mesh dp=2,tp=2
	done
	cut_has_hash 4 --strategy zero3 --mesh tp=2,dp=2
	cut_has_hash 8 --strategy hybrid --mesh replicate=2,shard=2,tp=2
	cut_has_hash 8 --strategy zero3 --mesh shard=4,tp=2
	(export SHARDRT_PEER_MEMORY=no SHARDRT_COLLECTIVES=shm
	cut_has_hash 4 --strategy zero3 --mesh dp=2,tp=2
	exit $failed) || failed=1
fi
# Reliability: the norm of cut gradients | its tables had memory for one cell, so with 3 shards of 2 cells it was
# sometimes NaN | memory for all cells
for strategy in ddp zero3; do
	[ $most_ranks -ge 6 ] || continue
	./shardrun -n 6 ./shardrt-train $model --heads 4 --width 32 --batch 12 --steps 40 --clip 1 --lr 1e-3 --seed 3 \
		--strategy $strategy --mesh dp=3,tp=2 --eval-every 0 --hash > $tmp/out 2>&1 ||
		fail "$strategy on 6 ranks: $(cat $tmp/out)"
	grep '^hash' $tmp/out >> $tmp/hashes
done
[ ! -e $tmp/hashes ] || [ "$(sort -u $tmp/hashes | wc -l)" = 1 ] || fail "dp=3,tp=2: $(cat $tmp/hashes)"
if grep -q '^#define HAVE_JANSSON 1' config.h; then
	model="--init $srcdir/tests/tools/decoders/gemma3.json --init-random --text $tmp/text --batch 8 --steps 20"
	model="$model --clip 0.5 --lr 0.01"
	also c7b816707af601515d7aecc82528cb91 1e-5 --strategy ddp --recompute
	also c065fa1b335bf3fd6cbef267c7702f4b 1e-2 --dtype bf16
	also 04235c76c2526fab26b767e835f715f5 2e-4 --dtype fp16 --scaler
	[ $most_ranks -lt 8 ] || {
		train 4 --mesh dp=2,tp=2 --hash
		grep -q c7b816707af601515d7aecc82528cb91 $tmp/out || fail "Gemma 3, dp=2,tp=2: $(tail -n 1 $tmp/out)"
	}
	# the sum over tp is of each micro-batch, whether it is reduced or added to those before it
	micro="--accumulate 4"
	also 100284c52d27d46789818122262b43a0 1e-5 --accumulate-mode every --strategy zero2
	also 100284c52d27d46789818122262b43a0 1e-5 --accumulate-mode last --strategy zero3 --flat views
	model="--init $srcdir/tests/tools/decoders/olmo2.json --init-random --text $tmp/text --batch 8 --steps 20"
	model="$model --clip 0.5 --lr 0.01"
	micro="--micro-batches 4 --accumulate-mode tree"
	also d93a9ecd4d34174e621e70379b2e77e6 1e-5 --strategy ddp --recompute --sample 20
	also 9dfe4b80d1a69548a1d99afc9d587d35 1e-2 --dtype bf16
	[ $most_ranks -lt 8 ] || {
		train 4 --mesh dp=2,tp=2 --hash
		grep -q d93a9ecd4d34174e621e70379b2e77e6 $tmp/out || fail "OLMo 2, dp=2,tp=2: $(tail -n 1 $tmp/out)"
	}
fi
cell 2 "$([ $failed = 0 ] && echo pass || echo fail)"
differ_by 1e-5 $tmp/whole $tmp/cut
exit $failed
