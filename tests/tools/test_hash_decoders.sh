#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# One hash for the training of a Llama and of a Qwen3 (shared heads of keys, norms of heads, windows, a tied head) in each
# precision: on every device, with each strategy, flat, with offload, replicas of shards, recomputation, numbers of threads and
# instruction sets. The hashes are in hash_matrix.def. In make check each of these is compared with one run, on other
# devices than the cpu a model in one precision, in check-long all of them with each other.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
grep -q '^#define HAVE_JANSSON 1' config.h || skip "built without jansson"
grep -q '^#define HAVE_XXHASH 1' config.h || skip "built without libxxhash"
text=tests/hash_decoders.$SHARDRT_BACKEND.tmp
trap 'rm -f "$text" "$text.out"' EXIT
i=0
while [ $i -lt 200 ]; do
	echo "line $i of the text has the number $((i * 7919 % 10007))"
	i=$((i + 1))
done > "$text"
failures=0 runs=0

# same LABEL OPTIONS...: a run on two ranks has the hash of hash_matrix.def
same()
{
	label=$1
	shift
	case $precision in
	fp32) type= ;;
	bf16) type="--dtype bf16" ;;
	fp16) type="--dtype fp16 --scaler --init-scale 4194304" ;;
	esac
	./shardrun -n 2 ./shardrt-train --init "$srcdir/tests/tools/decoders/$model.json" --init-random --text "$text" \
		--batch 4 --steps 3 --clip 0.5 --eval-every 0 --hash $type "$@" > "$text.out" 2>&1
	hash=$(sed -n 's/^hash: numerics [0-9]* exact, xxh3-128 //p' "$text.out")
	runs=$((runs + 1))
	[ "$hash" = "$reference" ] && return
	echo "FAIL: $model, $precision, $label: '$hash', not '$reference'"
	[ -n "$hash" ] || tail -n 5 "$text.out"
	failures=$((failures + 1))
}

for form in $forms; do
	use_form $form
	for model in llama qwen3; do
		for precision in fp32 bf16 fp16; do
			reference=$(sed -n "s/^$model 2 $precision //p" "$srcdir/tests/tools/hash_matrix.def")
			case $SRT_TEST_LONG.$SHARDRT_BACKEND.$model.$precision in
			1.* | .cpu.* | .*.llama.fp32 | .*.qwen3.bf16) ;;
			*) continue ;;
			esac
			same "zero3" --strategy zero3
			case $SRT_TEST_LONG.$precision.$SHARDRT_BACKEND in 1.* | .fp32.cpu) ;; *) continue ;; esac
			for strategy in ddp zero1 zero2; do same $strategy --strategy $strategy; done
			same "replicas" --strategy hybrid --mesh replicate=2,shard=1
			same "flat" --strategy zero3 --flat views
			same "offload" --strategy zero3 --offload all
			same "recomputation" --strategy zero3 --recompute
			same "three threads" --strategy zero3 --threads 3
			[ "$SHARDRT_BACKEND" = cpu ] || continue
			for isa in baseline avx2; do
				[ $isa = baseline ] || grep -q '^#define HAVE_AVX2 1' config.h || continue
				[ $isa = baseline ] || grep -qw avx2 /proc/cpuinfo || continue
				case $SRT_TEST_LONG.$isa.$model in .baseline.llama) continue ;; esac # it takes ten times as long
				export SHARDRT_CPU_ISA=$isa
				same $isa --strategy zero3
			done
			unset SHARDRT_CPU_ISA
		done
	done
	# test_train_streams.sh has the other kind of streams
	[ -n "$SRT_TEST_LONG" ] || [ "$SHARDRT_BACKEND" != cpu ] || break
done
echo "$runs runs, $failures failed"
[ $failures = 0 ]
