#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrt-train in fp32, bf16 and fp16, with parameters in fp32 and in the dtype itself: the memory is what
# shardrt-info plans; the loss falls; saved parameters are of the stored dtype, load again with the same
# hash and generate the same text under any strategy. The first steps of a large scale are skipped: the
# log counts them, and they are not taken for divergence.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
tmp=$PWD/tests/train_precision.tmp
rm -rf "$tmp"
mkdir -p "$tmp" || exit 1
trap 'rm -rf "$tmp"' EXIT
failures=0

bad()
{
	echo "FAIL: $*"
	failures=$((failures + 1))
}

has() { grep -q "^#define HAVE_$1 1" config.h; }

text=$tmp/text
i=0
while [ $i -lt 60 ]; do
	echo "$i little words make line $i of the text that the test trains on"
	i=$((i + 1))
done > "$text"
small="--text $text --layers 1 --heads 2 --width 16 --context 16 --batch 6 --lr 1e-2"

# last KEY LOG: of the last step
last() { sed -n 's/.*"'"$1"'": \([-0-9.e+]*\).*/\1/p' "$2" | tail -n 1; }

# train OPTIONS...: to $tmp/out, $tmp/log and $tmp/model
train()
{
	hash=
	has XXHASH && hash=--hash
	./shardrun -n 2 ./shardrt-train $small --steps 8 --warmup 2 --eval-every 0 $hash --save "$tmp/model" \
		--log "$tmp/log" "$@" > "$tmp/out" 2>&1 || bad "$*: status $?: $(cat "$tmp/out")"
	hash=$(grep '^hash' "$tmp/out")
	awk -v loss="$(last loss "$tmp/log")" 'BEGIN { exit !(loss > 1 && loss < 5.3) }' ||
		bad "$*: the last loss is $(last loss "$tmp/log")"
}

# Where saved parameters are loaded: numbers of ranks and strategies, in each combination on the cpu.
runs="1.ddp 3.zero3"
[ "$SHARDRT_BACKEND" != cpu ] || runs="1.ddp 1.zero3 3.ddp 3.zero3"

# check_file STORED OPTIONS...: dtype, hash and generated text of what was saved
check_file()
{
	stored=$1
	shift
	[ "$(head -c 4000 "$tmp/model" | tr ',' '\n' | grep -ao '"dtype":"[A-Z0-9]*"' | sort -u)" = \
		"\"dtype\":\"$stored\"" ] || bad "$*: not all tensors of the file are $stored"
	[ -n "$hash" ] || return 0
	[ "$(./shardrt-ckpt hash "$tmp/model" | sed -n 's/^parameters: //p')" = "${hash##*, }" ] ||
		bad "$*: the file has another hash than $hash"
	for run in $runs; do
		n=${run%.*} strategy=${run#*.}
		again=$(./shardrun -n $n ./shardrt-train --text "$text" --batch 3 --steps 0 --eval-every 1 \
			--strategy $strategy --init "$tmp/model" --hash "$@")
		[ "$(echo "$again" | grep '^hash')" = "$hash" ] ||
			bad "$*: loaded on $n ranks, $strategy: $again, not $hash"
		echo "$again" | sed -n 's/^step 0.* validation/validation/p' > "$tmp/loss.$n.$strategy"
		./shardrun -n $n ./shardrt-train --init "$tmp/model" --generate 20 --prompt lit \
			--strategy $strategy --seed 3 "$@" > "$tmp/text.$n.$strategy" ||
			bad "$*: generating on $n ranks, $strategy: status $?"
		cmp -s "$tmp/text.1.ddp" "$tmp/text.$n.$strategy" ||
			bad "$*: another text on $n ranks, $strategy"
		cmp -s "$tmp/loss.1.ddp" "$tmp/loss.$n.$strategy" ||
			bad "$*: another validation loss on $n ranks, $strategy"
	done
	[ "$(wc -c < "$tmp/text.1.ddp")" = 24 ] || bad "$*: text: $(cat "$tmp/text.1.ddp")"
	grep -q '^validation loss [0-9]' "$tmp/loss.1.ddp" || bad "$*: no validation loss"
}

train --dtype bf16 --strategy zero3
check_file F32 --dtype bf16
train --dtype bf16 --pure --strategy zero2
check_file BF16 --dtype bf16 --pure
status=0
./shardrt-train $small --init "$tmp/model" > "$tmp/out" 2>&1 || status=$?
[ $status = 2 ] && grep -q "is BF16 .*, but f32 .*: convert the file to the model's dtype" "$tmp/out" ||
	bad "a file of bf16 for fp32: status $status: $(cat "$tmp/out")"
train --dtype fp16 --pure --scaler sharded --init-scale 1024 --strategy zero3 --optimizer sgd --lr 0.5
check_file F16 --dtype fp16 --pure --scaler=sharded
train --dtype bf16 --reduce-dtype compute --scaler plain --strategy zero1

# 2^36: gradients are above 65504, the largest fp16 number, until the scale has been halved some times
train --dtype fp16 --scaler --init-scale 68719476736 --strategy ddp --steps 40
check_file F32 --dtype fp16
grep -q '^step 1/40 .*  scale 3.43597e+10, 1 skipped  ' "$tmp/out" || bad "progress: $(cat "$tmp/out")"
grep -q '^{"step": 1, .*"grad_norm": null, .*"scale": 3.43597384e+10, "skipped": 1}$' "$tmp/log" ||
	bad "the first step was not skipped: $(head -n 1 "$tmp/log")"
skipped=$(last skipped "$tmp/log") scale=$(last scale "$tmp/log")
awk -v n="$skipped" -v scale="$scale" 'BEGIN { want = 2 ^ (36 - n) / scale; exit !(n > 3 && n < 35 && want > 0.999 && want < 1.001) }' ||
	bad "$skipped steps were skipped, and the scale is $scale"
! grep -q diverged "$tmp/out" || bad "skipped steps are taken for divergence: $(cat "$tmp/out")"

# ---- a skipped step is taken for divergence if its parameters have no finite loss with any batch
status=0
./shardrun -n 2 ./shardrt-train $small --steps 70 --dtype bf16 --scaler --optimizer sgd --lr 1e6 --min-lr 1e6 --clip 0 \
	--warmup 0 --save "$tmp/none" > "$tmp/out" 2>&1 || status=$?
[ $status = 1 ] && grep -q 'warning: the loss is not finite since step [23]: ' "$tmp/out" &&
	[ ! -e "$tmp/none" ] || bad "parameters without a finite loss: status $status: $(cat "$tmp/out")"

# ---- memory: as shardrt-info plans it
if [ "$SHARDRT_BACKEND" = cpu ]; then
	export SHARDRT_THREADS=1 # scratch depends on it
	for strategy in ddp zero1 zero2 zero3 "zero3 --reshard never" "zero3 --flat padded"; do
		for dtype in fp32 bf16 "bf16 --reduce-dtype compute" "bf16 --pure" "fp16 --pure --reduce-dtype fp32"; do
			options="--preset nano --strategy $strategy --dtype $dtype"
			planned=$(./shardrt-info --plan $options -n 2 |
				awk '/total of the engine/ { print $5, $6 }
				     /micro-batches of 1 seq/ { one = 1 } one && / scratch of/ { one = 0; print $6, $7 }')
			case $dtype in fp16*) options="$options --scaler sharded" ;; esac
			taken=$(./shardrun -n 2 ./shardrt-train $options --text "$text" --batch 2 --steps 0 --eval-every 0 |
				sed -n 's/.* memory per rank: \(.*\) + .* + \(.*\) scratch/\1\n\2/p')
			[ -n "$taken" ] && [ "$planned" = "$taken" ] ||
				bad "$options: planned $planned, taken $taken"
		done
	done
fi

[ $failures = 0 ]
