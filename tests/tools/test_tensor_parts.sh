#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# With --tensor-parts 4 one hash for a training over numbers of tensor-parallel ranks (1, 2, 4), of data-parallel ranks
# (1, 2; with the tree of micro-batches), strategies, backends and jobs of two of them, in each precision: of a GPT, whose
# vocabulary the parts do not divide, a Llama, an OLMo 2 (norms over all heads), a Qwen3 (norms of heads) and adapters of the
# Llama. The hashes are in hash_matrix.def, so instruction sets and machines have them, too. A checkpoint of one rank goes
# on as dp=2,tp=2; with other parts it goes on with a warning. Activations are what shardrt-info plans. Parts that do not
# fit are refused.
#
#     test_tensor_parts.sh           each value of each axis
#     test_tensor_parts.sh long      the product (make check-long)
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
grep -q '^#define HAVE_XXHASH 1' config.h || skip "built without libxxhash"
models="gpt llama olmo2 qwen3 lora"
grep -q '^#define HAVE_JANSSON 1' config.h || models=gpt
case $SHARDRT_BACKEND in cpu | opencl | cuda) ;; *) models=gpt ;; esac # the others' operations are those of the cpu
length=${1:-short}
tmp=tests/tensor_parts.$length.$SHARDRT_BACKEND.tmp
rm -rf $tmp && mkdir -p $tmp || exit 1
trap 'rm -rf $tmp' EXIT
i=0
while [ $i -lt 200 ]; do
	echo "line $i of the text has the number $((i * 7919 % 10007))"
	i=$((i + 1))
done > $tmp/text
decoders=$srcdir/tests/tools/decoders
SHARDRT_NUMERICS=exact && export SHARDRT_NUMERICS
failures=0 runs=0 by_rank=
fail()
{
	echo "FAIL: $*"
	failures=$((failures + 1))
}

# train RANKS MODEL OPTIONS...: $tmp/out has the output
train()
{
	n=$1
	case $2 in
	gpt) model="--layers 2 --heads 4 --width 24 --context 20 --vocab 257" ;;
	lora) model="--init $decoders/llama_parts.json --init-random --lora r=2" ;;
	*) model="--init $decoders/$2_parts.json --init-random" ;;
	esac
	shift 2
	runs=$((runs + 1))
	./shardrun -n "$n" $by_rank ./shardrt-train $model --text $tmp/text --batch 8 --micro-batches 4 --accumulate-mode tree \
		--clip 0.5 --lr 0.01 --schedule constant --warmup 0 --steps 4 --eval-every 0 --hash "$@" > $tmp/out 2>&1
}

# with_parts DP TP MODEL PRECISION STRATEGY [OPTIONS...]: has the hash, if it is one of the models
with_parts()
{
	dp=$1 tp=$2 name=$3 precision=$4 strategy=$5
	case " $models " in *" $name "*) ;; *) return ;; esac
	shift 5
	case $name in olmo2) scale=16384 ;; lora) scale=4194304 ;; *) scale=524288 ;; esac
	case $precision in
	fp32) type= ;;
	bf16) type="--dtype bf16" ;;
	fp16) type="--dtype fp16 --scaler --init-scale $scale" ;; # too large for the first steps
	esac
	case $strategy in hybrid) mesh=replicate=$dp,shard=1,tp=$tp ;; *) mesh=dp=$dp,tp=$tp ;; esac
	want=$(sed -n "s/^parts-$name 0 $precision //p" "$srcdir/tests/tools/hash_matrix.def")
	train $((dp * tp)) $name $type --strategy $strategy --mesh $mesh --tensor-parts 4 "$@" ||
		fail "$name: $(tail -n 5 $tmp/out)"
	got=$(sed -n 's/^hash: numerics [0-9]* exact, 4 tensor parts, xxh3-128 //p' $tmp/out)
	got="$got$(sed -n 's/^step .*\( [0-9]* skipped\) .*/\1/p' $tmp/out | tail -n 1)"
	[ "$got" = "$want" ] ||
		fail "$name, $precision, $strategy, $mesh $* ${by_rank##* }: the hash is '$got', not '$want'"
}

# product STRATEGY...: dp x tp x strategies of all models in all precisions
product()
{
	strategies=$*
	for name in $models; do
		for precision in fp32 bf16 fp16; do
			for strategy in $strategies; do
				for dp in 1 2; do
					for tp in 1 2 4; do
						with_parts $dp $tp $name $precision $strategy
					done
				done
			done
		done
	done
}

# instruction_sets: all but the processor's own
instruction_sets()
{
	for isa in baseline avx2; do
		[ $isa = baseline ] || grep -q '^#define HAVE_AVX2 1' config.h || continue
		[ $isa = baseline ] || grep -qw avx2 /proc/cpuinfo || continue
		export SHARDRT_CPU_ISA=$isa
		for precision in $*; do with_parts 1 2 gpt $precision zero3; done
	done
	unset SHARDRT_CPU_ISA
}

# mixed COMMAND...: in jobs of the cpu and this backend, each of them first
mixed()
{
	for mix in "cpu+$SHARDRT_BACKEND" "$SHARDRT_BACKEND+cpu"; do
		by_rank="sh $srcdir/tests/harness/by_rank.sh $mix"
		"$@"
	done
	by_rank=
}

if [ $length = long ]; then
	use_form ${forms%% *}
	product zero3 ddp hybrid
	if [ "$SHARDRT_BACKEND" = cpu ]; then instruction_sets fp32 bf16 fp16; else mixed product zero3; fi
	cell 8 "$([ $failures = 0 ] && echo pass || echo fail)"
	echo "$runs runs, $failures failed"
	[ $failures = 0 ]
	exit
fi

# ---- each value of each axis ------------------------------------------------------------------
use_form ${forms%% *}
for name in $models; do
	case $SHARDRT_BACKEND.$name in # the precisions take turns on other backends
	cpu.*) ;;
	*.gpt | *.olmo2 | *.lora) with_parts 1 2 $name fp32 zero3 && continue ;;
	*) with_parts 1 2 $name bf16 zero3 && continue ;;
	esac
	with_parts 1 2 $name fp32 zero3
	with_parts 1 2 $name bf16 zero3
done
with_parts 1 2 gpt fp16 ddp --recompute
with_parts 1 4 olmo2 fp32 ddp
with_parts 2 2 gpt fp32 hybrid
if [ "$SHARDRT_BACKEND" != cpu ]; then
	with_parts 1 1 gpt fp32 zero3
	mixed with_parts 1 2 qwen3 fp32 zero3
	cell 4 "$([ $failures = 0 ] && echo pass || echo fail)"
	exit $((failures > 0))
fi
for name in $models; do
	with_parts 1 1 $name fp32 zero3
	with_parts 1 1 $name bf16 ddp
	with_parts 1 2 $name fp16 zero3
done
for precision in fp32 bf16 fp16; do with_parts 1 4 gpt $precision zero3; done
with_parts 2 1 gpt fp16 hybrid
with_parts 2 2 qwen3 bf16 ddp
with_parts 2 4 llama fp16 zero3 --flat views
instruction_sets bf16
(
	use_form staged-${forms%% *} && failures=0
	with_parts 1 2 qwen3 fp32 zero3
	[ $failures = 0 ]
) || failures=$((failures + 1))

# planned TP: activations as shardrt-info plans them are those that ranks allocate
planned()
{
	set -- --preset nano --mesh dp=1,tp=$1 --tensor-parts 4
	plan=$(./shardrt-info --plan "$@" | awk '$1 == "activations" && !n++ { print $2, $3 }')
	taken=$(./shardrun -n $tp ./shardrt-train "$@" --text $tmp/text --batch 1 --steps 0 --eval-every 0 |
		sed -n 's/.* + \(.*\) activations.*/\1/p')
	[ -n "$plan" ] && [ "$plan" = "$taken" ] || fail "$*: planned $plan, taken $taken"
}

for tp in 1 2; do planned $tp; done

# one part is none
for tp in 1 2; do
	train $tp gpt --mesh tp=$tp && grep '^hash' $tmp/out > $tmp/none
	train $tp gpt --mesh tp=$tp --tensor-parts 1 && grep '^hash' $tmp/out > $tmp/one
	[ -s $tmp/one ] && cmp -s $tmp/none $tmp/one && ! grep -q parts $tmp/one ||
		fail "--tensor-parts 1, tp=$tp: $(cat $tmp/none $tmp/one)"
done

# refused RANKS MODEL WORDS OPTIONS...
refused()
{
	n=$1 name=$2 words=$3
	shift 3
	! train $n $name "$@" && grep -qF -- "$words" $tmp/out && ! grep -q '^step' $tmp/out ||
		fail "$*: not refused with '$words': $(cat $tmp/out)"
}

refused 1 gpt "3 tensor parts for 1 tensor-parallel ranks: must be 1 (none), or a power of two up to 8" --tensor-parts 3
refused 4 gpt "2 tensor parts for 4 tensor-parallel ranks" --tensor-parts 2 --mesh tp=4
refused 3 gpt "4 tensor parts for 3 tensor-parallel ranks" --tensor-parts 4 --mesh tp=3
refused 1 gpt "4 heads of queries cannot be divided among 8 tensor parts" --tensor-parts 8
refused 1 gpt "--tensor-parts needs a whole number from 1 to 8" --tensor-parts 9

# resumes PARTS: what a run on one rank has saved after two of four steps, on four ranks
resumes()
{
	train 1 gpt --tensor-parts 4 --checkpoint $tmp/dir --save-every 2 --steps 2 || fail "$(cat $tmp/out)"
	train 4 gpt --tensor-parts $1 --checkpoint $tmp/dir --resume --mesh dp=2,tp=2 || fail "$(cat $tmp/out)"
	rm -rf $tmp/dir
}

if [ "$models" != gpt ]; then
	refused 1 llama "4 heads of keys and values cannot be divided among 8 tensor parts" --tensor-parts 8
	sed 's/\("intermediate_size": \)[0-9]*/\142/' $decoders/llama_parts.json > $tmp/narrow_parts.json
	decoders=$tmp refused 1 narrow "a feed-forward width of 42 cannot be divided among 4 tensor parts" --tensor-parts 4
	resumes 4
	want=$(sed -n "s/^parts-gpt 0 fp32 //p" "$srcdir/tests/tools/hash_matrix.def")
	grep -q "xxh3-128 $want\$" $tmp/out || fail "tp=1 goes on as dp=2,tp=2: not $want: $(cat $tmp/out)"
	! grep -q 'other bits' $tmp/out || fail "the same parts: $(cat $tmp/out)"
	resumes 2
	grep -q 'has --tensor-parts 4, this one 2: from here on its results have other bits' $tmp/out ||
		fail "other parts: $(cat $tmp/out)"
	grep -q '^hash.* 2 tensor parts, ' $tmp/out || fail "other parts do not go on: $(cat $tmp/out)"
fi
cell 8 "$([ $failures = 0 ] && echo pass || echo fail)"
echo "$runs runs, $failures failed"
[ $failures = 0 ]
