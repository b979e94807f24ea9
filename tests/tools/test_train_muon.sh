#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Training with --optimizer muon: one hash at 1, 2 and 4 ranks with tree accumulation, with every strategy, flat, with offload,
# resumed from checkpoints on other ranks, on every device. The hashes are in hash_matrix.def. What is refused.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
grep -q '^#define HAVE_XXHASH 1' config.h || skip "built without libxxhash"
tmp=tests/train_muon.$SHARDRT_BACKEND.tmp
rm -rf "$tmp" && mkdir -p "$tmp" || exit 1
trap 'rm -rf "$tmp"' EXIT
i=0
while [ $i -lt 200 ]; do
	echo "line $i of the text has the number $((i * 7919 % 10007))"
	i=$((i + 1))
done > "$tmp/text"
failures=0 runs=0
train="./shardrt-train --text $tmp/text --layers 2 --heads 2 --width 24 --context 16 --batch 8 --steps 4 --eval-every 0
	--optimizer muon --accumulate-mode tree --micro-batches 4 --hash"

# run RANKS OPTIONS...: the hash
run()
{
	n=$1
	shift
	./shardrun -n "$n" $train $type "$@" > "$tmp/out" 2>&1
	sed -n 's/^hash: numerics [0-9]* exact, xxh3-128 //p' "$tmp/out"
}

# same LABEL RANKS OPTIONS...: a run has the hash of hash_matrix.def
same()
{
	label=$1
	shift
	hash=$(run "$@")
	runs=$((runs + 1))
	[ "$hash" = "$reference" ] && return
	echo "FAIL: $precision, $label: '$hash', not '$reference'"
	[ -n "$hash" ] || tail -n 5 "$tmp/out"
	failures=$((failures + 1))
}

for form in $forms; do
	use_form $form
	for precision in fp32 bf16; do
		type=
		[ $precision = fp32 ] || type="--dtype $precision"
		reference=$(sed -n "s/^muon 0 $precision //p" "$srcdir/tests/tools/hash_matrix.def")
		same "zero3 on 2 ranks" 2 --strategy zero3
		case $SRT_TEST_LONG.$precision.$SHARDRT_BACKEND.$form in 1.* | .fp32.cpu.threads) ;; *) continue ;; esac
		same "1 rank" 1
		same "4 ranks, hybrid" 4 --strategy hybrid --mesh replicate=2,shard=2
		for strategy in ddp zero1 zero2; do same $strategy 2 --strategy $strategy; done
		same "flat" 4 --strategy zero3 --flat padded
		same "offload" 2 --strategy zero3 --offload all
		same "three threads" 1 --threads 3
		rm -rf "$tmp/dir"
		same "checkpoints" 2 --strategy zero3 --checkpoint "$tmp/dir" --save-every 2 --keep 9
		rm -rf "$tmp/dir/step-0000000004" && echo step-0000000002 > "$tmp/dir/latest"
		same "resumed" 4 --strategy zero2 --checkpoint "$tmp/dir" --resume
		grep -q "^resumed from $tmp/dir/step-0000000002" "$tmp/out" || {
			cat "$tmp/out"
			failures=$((failures + 1))
		}
		# A longer run has the learning rates that its options give, also that of the matrices.
		rm -rf "$tmp/other" && cp -r "$tmp/dir" "$tmp/other"
		longer=$(run 1 --checkpoint "$tmp/dir" --resume --steps 6)
		other=$(run 1 --checkpoint "$tmp/other" --resume --steps 6 --muon-lr 0.5)
		[ -n "$longer" ] && [ -n "$other" ] && [ "$longer" != "$other" ] || {
			echo "FAIL: a longer run with another --muon-lr: '$longer' and '$other'"
			failures=$((failures + 1))
		}
	done
done

# refused WORDS OPTIONS...: with a sentence, and status 2
refused()
{
	words=$1 code=0
	shift
	./shardrun -n 1 $train "$@" > "$tmp/out" 2>&1 || code=$?
	[ $code = 2 ] && grep -q -e "$words" "$tmp/out" && return
	cat "$tmp/out"
	echo "FAIL: $*: status $code, or not refused with '$words'"
	failures=$((failures + 1))
}
refused "muon needs parameters in fp32" --pure --dtype bf16 --reduce-dtype fp32
refused "which --lora and --adapter freeze" --lora r=4
refused "muon is not for tensor parallelism" --mesh dp=1,tp=2
refused "muon-adjust is for --optimizer muon" --optimizer adamw --muon-adjust spectral
other=$(run 1 --muon-adjust match-rms-adamw)
case "$other" in "" | "$reference") failures=$((failures + 1)) && cat "$tmp/out" ;; esac
echo "$runs runs, $failures failed"
[ $failures = 0 ]
