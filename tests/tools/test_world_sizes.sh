#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# With the tree of micro-batches a training run has one hash on 1, 2, 4 and 8 ranks, in each dtype and
# with each strategy; with sums in the order of the micro-batches it has not. Wrong numbers are refused.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
text=tests/world_sizes.$SHARDRT_BACKEND.tmp
trap 'rm -f "$text" "$text".*' EXIT
cat "$srcdir"/include/shardrt/*.h > "$text"
model="--layers 2 --heads 2 --width 24 --context 20 --batch 16 --steps 3 --clip 0.5 --threads 1"
tree="--accumulate-mode tree --micro-batches 8"
worlds="1 2 4"
case $SHARDRT_BACKEND in cpu | opencl) worlds="1 2 4 8" ;; esac

./shardrt-train --text "$text" $model --hash > "$text.out" 2>&1 ||
	! grep -q "needs libxxhash" "$text.out" || skip "built without libxxhash"

# hash_of RANKS OPTIONS...
hash_of()
{
	n=$1
	shift
	./shardrun -n "$n" ./shardrt-train --text "$text" $model --eval-every 0 --hash "$@" \
		2> "$text.err" > "$text.out" || { cat "$text.err" >&2; exit 1; }
	sed -n 's/^hash: //p' "$text.out"
}

for dtype in "fp32" "bf16" "fp16 --scaler"; do
	reference=$(hash_of 1 --dtype $dtype $tree --strategy ddp) || exit 1
	for n in $worlds; do
		for strategy in ddp zero3; do
			case $SHARDRT_BACKEND.$n.$strategy.$SRT_TEST_LONG in opencl.8.ddp.) continue ;; esac # 2 s each
			hash=$(hash_of "$n" --dtype $dtype $tree --strategy $strategy) || exit 1
			[ "$hash" = "$reference" ] && continue
			echo "FAIL: $dtype, $strategy on $n ranks: '$hash', not '$reference'"
			exit 1
		done
	done
	cell "$dtype" pass
done
one=$(hash_of 1 --accumulate-mode last --accumulate 8) || exit 1
two=$(hash_of 2 --accumulate-mode last --accumulate 4) || exit 1
[ "$one" != "$two" ] || { echo "FAIL: sums in order have the bits of the tree"; exit 1; }

# refused RANKS WORDS OPTIONS...
refused()
{
	n=$1 words=$2
	shift 2
	./shardrun -n "$n" ./shardrt-train --text "$text" $model --eval-every 0 "$@" \
		> "$text.out" 2>&1 && { echo "FAIL: $* was not refused"; exit 1; }
	grep -q -e "$words" "$text.out" && return
	echo "FAIL: $* is not refused with '$words':"
	cat "$text.out"
	exit 1
}
refused 3 "runs on 1, 2, 4 ... 8 ranks, not on 3" $tree
refused 1 "must be a power of two that divides" --accumulate-mode tree --micro-batches 6
refused 1 "needs --micro-batches" --accumulate-mode tree
refused 1 "is for --accumulate-mode tree" --micro-batches 8
refused 1 "cannot be given with" $tree --accumulate 2
refused 1 "reduced in fp32" $tree --dtype bf16 --reduce-dtype compute
cell refusals pass
