#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Options of shardrt-train for data, schedules and memory: several files of tokens, --val, --eval, --schedule, --decay and
# --recompute.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
tmp=tests/train_options.$SHARDRT_BACKEND.tmp
rm -rf $tmp && mkdir -p $tmp || exit 1
trap 'rm -rf $tmp' EXIT
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

i=0
while [ $i -lt 200 ]; do
	echo "line $((i * 7919 % 1000)) of $i"
	i=$((i + 1))
done > $tmp/text
model="--layers 1 --heads 2 --width 16 --context 16 --batch 6"

# train OPTIONS...: to $tmp/out
train()
{
	./shardrun -n 2 ./shardrt-train $model "$@" > $tmp/out 2>&1 || fail "$*: $(cat $tmp/out)"
}

# refused WORDS OPTIONS...
refused()
{
	words=$1
	shift
	./shardrun -n 2 ./shardrt-train $model "$@" > $tmp/out 2>&1 && fail "$*: not refused"
	grep -q -e "$words" $tmp/out || fail "$*: not '$words', but $(cat $tmp/out)"
}

# log KEY: the values of the log, in one line
log() { sed -n "s/.*\"$1\": \([^,}]*\).*/\1/p" $tmp/log | tr '\n' ' '; }

# ---- the first nine tenths of the text and the rest, as tokens of nanoGPT in three files
n=$(wc -c < $tmp/text)
od -An -v -tu1 $tmp/text | awk '{ for (i = 1; i <= NF; i++) printf "\\%03o\\000", $i }' > $tmp/escapes
# shellcheck disable=SC2059
printf "$(cat $tmp/escapes)" > $tmp/tokens
ntrain=$((n / 10 * 9 + n % 10 * 9 / 10))
head -c $((2 * ntrain)) $tmp/tokens > $tmp/train
head -c 700 $tmp/train > $tmp/part_0.bin
tail -c +701 $tmp/train > $tmp/part_1.bin
tail -c +$((2 * ntrain + 1)) $tmp/tokens > $tmp/val.bin
run="--steps 4 --warmup 1 --eval-every 2 --eval-batches 0 --log $tmp/log"
train --text $tmp/text $run
want=$(log loss)/$(log val_loss)
for data in "--tokens $tmp/tokens" "--tokens $tmp/part_*.bin --val $tmp/val.bin"; do
	rm $tmp/log
	set -f # the pattern is for the program
	# shellcheck disable=SC2086
	train $data --vocab 256 $run
	set +f
	got=$(log loss)/$(log val_loss)
	[ "$got" = "$want" ] || fail "$data: $got, not $want"
done
echo "losses of the text and of several files of its tokens: $want"

# ---- evaluation of all of a text: the mean of the losses of its windows, on every number of ranks
train --text $tmp/text --steps 2 --eval-every 0 --save $tmp/model
for n in 1 2 3; do
	[ $n -le $most_ranks ] || continue
	./shardrun -n $n ./shardrt-train --init $tmp/model --text $tmp/text --batch 6 --eval > $tmp/out 2>&1 ||
		fail "--eval on $n ranks: $(cat $tmp/out)"
	tail -n 1 $tmp/out > $tmp/eval.$n
	cmp -s $tmp/eval.1 $tmp/eval.$n || fail "--eval on $n ranks: $(cat $tmp/eval.$n), not $(cat $tmp/eval.1)"
done
# eval_of TEXT: the loss and the number of tokens
eval_of()
{
	./shardrun -n 1 ./shardrt-train --init $tmp/model --text "$1" --batch 6 --eval > $tmp/out 2>&1 || fail "$(cat $tmp/out)"
	sed -n 's/^loss \([0-9.]*\)  perplexity [0-9.]*  \([0-9]*\) tokens$/\1 \2/p' $tmp/out
}
nbytes=$(wc -c < $tmp/text)
awk -v ntokens=$((nbytes - (nbytes + 15) / 16)) '{
	if ($1 != "loss" || $3 != "perplexity" || $5 != ntokens || $2 < 4 || $2 > 7) exit 1
	ratio = exp($2) / $4
	if (ratio < 0.9999 || ratio > 1.0001) exit 1
}' $tmp/eval.1 || fail "--eval: $(cat $tmp/eval.1)"
echo "evaluation: $(cat $tmp/eval.1)"
# Each window of 16 tokens is evaluated as if it were alone.
head -c 32 $tmp/text > $tmp/two && head -c 16 $tmp/two > $tmp/one && tail -c 16 $tmp/two > $tmp/other || exit 1
echo "$(eval_of $tmp/two) $(eval_of $tmp/one) $(eval_of $tmp/other)" > $tmp/windows
awk '{ d = $1 - ($3 + $5) / 2; exit !($2 == 30 && $4 == 15 && $6 == 15 && d < 2e-6 && d > -2e-6) }' $tmp/windows ||
	fail "--eval of two windows and of each: $(cat $tmp/windows)"

# ---- schedules
run="--text $tmp/text --steps 10 --warmup 2 --lr 0.01 --min-lr 0.001 --eval-every 0 --log $tmp/log"
for schedule in "cosine:0.005 0.01 0.00966 0.00868 0.00722 0.0055 0.00378 0.00232 0.00134 0.001" \
	"linear:0.005 0.01 0.00887 0.00775 0.00663 0.0055 0.00438 0.00325 0.00213 0.001" \
	"stable --decay-steps 4:0.005 0.01 0.01 0.01 0.01 0.01 0.00775 0.0055 0.00325 0.001" \
	"constant:0.005 0.01 0.01 0.01 0.01 0.01 0.01 0.01 0.01 0.01"; do
	rm -f $tmp/log
	# shellcheck disable=SC2086
	train $run --schedule ${schedule%%:*}
	log lr | awk -v want="${schedule#*:}" '{
		n = split(want, values, " ")
		for (i = 1; i <= n; i++) if ($i < values[i] - 1e-5 || $i > values[i] + 1e-5) exit 1
		if (NF != n) exit 1
	}' || fail "--schedule ${schedule%%:*}: $(log lr)"
done

# ---- recomputation has the same bits in less memory, decay of all others
hash() { sed -n 's/^hash: .* xxh3-128 //p' $tmp/out; }
run="--text $tmp/text --layers 3 --steps 4 --eval-every 0 --hash"
train $run
if hash | grep -q .; then
	hash > $tmp/plain
	grep -o '[0-9.]* [KM]iB activations' $tmp/out > $tmp/memory
	train $run --recompute
	hash | cmp -s - $tmp/plain || fail "--recompute: $(hash), not $(cat $tmp/plain)"
	grep -o '[0-9.]* [KM]iB activations' $tmp/out | cmp -s - $tmp/memory && fail "--recompute takes $(cat $tmp/memory), too"
	train $run --decay matrices
	hash | cmp -s - $tmp/plain || fail "--decay matrices: $(hash), not $(cat $tmp/plain)"
	train $run --decay all
	hash | cmp -s - $tmp/plain && fail "--decay all has no effect"
fi

refused "decay-steps is for --schedule stable" --text $tmp/text --decay-steps 2
refused "are more than --steps 5" --text $tmp/text --schedule stable --steps 5 --warmup 2 --decay-steps 4
refused "eval does not train" --text $tmp/text --eval --val $tmp/rest
refused "eval does not train" --text $tmp/text --eval --save $tmp/x
refused "no file matches the pattern" --tokens "$tmp/none*.bin"
refused "cannot open the text $tmp/none" --text $tmp/text --val $tmp/none
refused "it is text, not a file of tokens as llm.c or nanoGPT writes it: --text" --tokens $tmp/text
exit $failed
