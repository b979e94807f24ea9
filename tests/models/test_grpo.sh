#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# examples/grpo: answers are drawn with the bits of training in every step, and the parameters have one hash, on every
# device, at 1, 2 and 4 ranks, with every strategy. In check-long the steps of the example itself learn to add.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
grep -q '^#define HAVE_XXHASH 1' config.h || skip "built without libxxhash"
out=tests/grpo.$SHARDRT_BACKEND.tmp
trap 'rm -f "$out"' EXIT

# same WORLD STRATEGY STEPS SUPERVISED_STEPS HASH
same()
{
	./shardrun -n "$1" examples/grpo "$3" "$4" "$2" > "$out" 2>&1 || { cat "$out" && exit 1; }
	grep -qx 'KL of the drawing policy: 0 in every step' "$out" || { cat "$out" && exit 1; }
	[ "$(sed -n 's/^hash: //p' "$out")" = "$5" ] ||
		{ cat "$out" && echo "FAIL: $2 on $1 ranks does not have the hash $5" && exit 1; }
}

short=a2fc50a5cb6e2d0b506599697fe04cdf long=d3f16da48b6b5d63db497d6515861502
for form in $forms; do
	use_form "$form"
	same 1 ddp 2 1 $short
	same 2 zero3 2 1 $short
	[ "$SHARDRT_BACKEND" = cpu ] || continue
	same 4 zero2 2 1 $short
	same 2 zero1 2 1 $short
	break # the streams' kind changes no bit: tests/tools/test_train_streams.sh
done
[ -n "$SRT_TEST_LONG" ] || exit 0
for world in 1 2 4; do
	same $world zero3 50 150 $long
done
[ "$SHARDRT_BACKEND" = cpu ] || exit 0
./shardrun -n 2 examples/grpo > "$out" || { cat "$out" && exit 1; }
cat "$out"
awk '/^step/ { reward = $NF } END { exit !(reward >= 0.9) }' "$out" || { echo "FAIL: it did not learn" && exit 1; }
