#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrt-info: docs/environment.md is what the table says, values and unknown variables are shown, plans
# for all presets and some worlds, bad options end with status 2 and one message.
#
# Reliability: `--flat` of shardrt-train and shardrt-info | was accepted and had no effect | the units are flat
failed=0
info=./shardrt-info
complain() { echo "FAIL: $*"; failed=1; }

# has STATUS WORDS COMMAND...: exit status, and words in the output.
has()
{
	status=$1 words=$2
	shift 2
	out=$("$@" 2>&1)
	got=$?
	[ $got = "$status" ] || complain "$*: exit status $got, expected $status: $out"
	case $out in
	*"$words"*) ;;
	*) complain "$*: lacks \"$words\": $out" ;;
	esac
}

# also WORDS: in the last command's output.
also()
{
	case $out in
	*"$1"*) ;;
	*) complain "lacks \"$1\": $out" ;;
	esac
}

for v in $(env | sed -n 's/^\(SHARDRT_[A-Z_]*\)=.*/\1/p'); do
	unset "$v"
done
$info --config-page > info.tmp 2>&1
cmp -s info.tmp "$srcdir/docs/environment.md" ||
	complain "docs/environment.md is not up to date: shardrt-info --config-page > docs/environment.md"
rm -f info.tmp

has 0 "libshardrt " $info
has 0 "cpu: " $info
has 0 "topology:" $info
has 0 "backends:" $info
has 0 "cpu: 1 device" $info
has 1 "no file shardrt_backend_tpu.so in" env SHARDRT_BACKEND=tpu $info
has 1 "tpu.so in /nowhere, ./none, $PWD/" \
	env SHARDRT_BACKEND=tpu SHARDRT_MODULE_PATH=/nowhere::./none $info
if grep -q '^#define HAVE_OPENCL 1' config.h; then
	has 0 "(module $PWD/.libs/shardrt_backend_opencl.so)" $info
	has 0 "(module .libs/shardrt_backend_opencl.so)" env SHARDRT_MODULE_PATH=.libs $info
fi
# Reliability: a driver that ends the process that asks it, and `shardrt-info` | ended it | a sentence, also if
# `SHARDRT_BACKEND` names the backend
module=tests/fakes/.libs/module_test.so
if [ -x .libs/shardrt-probe ] && [ -r $module ]; then
	mkdir -p info.tmp.d && ln -sf "$PWD/$module" info.tmp.d/shardrt_backend_opencl.so
	aborting="env SHARDRT_MODULE_PATH=info.tmp.d TEST_MODULE=aborts"
	has 0 "opencl: no device: its driver ended the process that asked for devices, by signal 6" $aborting $info
	has 1 'none: backend "opencl" has no usable device: its driver ended' $aborting SHARDRT_BACKEND=xpu $info
	has 1 'backend "opencl" has no usable device: its driver ended' $aborting SHARDRT_BACKEND=opencl $info --plan
	has 1 'none: its driver ended the process that opened it, by signal 6' \
		env SHARDRT_MODULE_PATH=info.tmp.d TEST_MODULE=dies SHARDRT_BACKEND=opencl $info
	has 0 "opencl: no device: its driver is not asked with SHARDRT_BACKEND=cpu" $aborting SHARDRT_BACKEND=cpu $info
	rm -r info.tmp.d
fi
has 0 "device:" $info --device
has 0 "cpu: " env SHARDRT_BACKEND=cpu $info -d
has 0 "Usage:" $info --help

# The table of features says what config.h and the devices say.
# feature STATE NAME
feature() { has 0 "$2$(printf "%$((26 - ${#2}))s" '')$1 " $info --features; }
# feature_of MACRO STATE NAME: missing without the macro
feature_of()
{
	if grep -q "^#define HAVE_$1 1" config.h; then feature "$2" "$3"; else feature missing "$3"; fi
}
feature_of HWLOC built "ranks bound to cores"
feature_of XXHASH built "hashes of parameters"
feature_of SODIUM built "jobs of several nodes"
if grep -q "^#define HAVE_JANSSON 1" config.h && grep -q "^#define HAVE_PCRE2 1" config.h; then
	feature_of UTF8PROC built "Hugging Face tokenizers"
else
	feature missing "Hugging Face tokenizers"
fi
feature_of UCX found "collectives between nodes"
feature_of PMIX found "ranks of mpirun and srun"
if $info | grep -q '^ *opencl: [1-9]'; then feature found "OpenCL devices"; else feature missing "OpenCL devices"; fi
grep -q "^#define HAVE_ONEDNN 1" config.h || feature missing "fast bf16 products"
has 0 "# NVIDIA GPUs: " env SHARDRT_CUDA_DRIVER=/nonexistent $info -f
has 0 "features:" $info
has 0 "SHARDRT_TIMEOUT=600" $info -c
has 0 "SHARDRT_TIMEOUT=5 s  (set)" env SHARDRT_TIMEOUT=5 $info -c
has 2 "SHARDRT_TIMEOUT=soon in the environment" env SHARDRT_TIMEOUT=soon $info -c
has 2 "SHARDRT_TIMEOUT=soon in the environment" env SHARDRT_TIMEOUT=soon $info
has 2 "SHARDRT_THREADS=x in the environment" env SHARDRT_THREADS=x $info --plan
has 2 "SHARDRT_LOG=loud" env SHARDRT_LOG=loud $info -c
has 2 "SHARDRT_LOG=loud" env SHARDRT_LOG=loud $info
has 0 "libshardrt" env SHARDRT_LOG=loud SHARDRT_THREADS=x $info --config-page
has 0 "did you mean SHARDRT_THREADS?" env SHARDRT_THREAD=2 $info --version
has 0 "SHARDRT_FOO is not a variable of libshardrt; shardrt-info -c" env SHARDRT_FOO=2 $info --version
has 0 "SHARDRT_QQQQQQQQQQQQ is not a variable" env SHARDRT_QQQQQQQQQQQQ=1 $info --version
# From here on no driver is asked for devices, which takes as long as all else: a plan is the same on each.
SHARDRT_BACKEND=cpu
export SHARDRT_BACKEND
for preset in nano char gpt2-124m; do
	for n in 1 2 3 5; do
		has 0 "total" $info --plan --preset $preset -n $n
		also "with micro-batches of 16 sequences"
		also "scratch of products and attention"
		if [ $n = 1 ]; then ranks="1 rank,"; else ranks="$n ranks,"; fi
		has 0 "on $ranks" $info --plan --preset $preset -n $n --strategy ddp
	done
done
model=$(mktemp -d)
cat > $model/config.json << 'END'
{ "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 64, "vocab_size": 256, "tie_word_embeddings": true }
END
if grep -q '^#define HAVE_JANSSON 1' config.h; then
	has 0 "23712 parameters, fp32, zero3 on 2 ranks" $info --plan --model $model -n 2
	has 0 "angles of positions                     2.0 KiB" $info --plan --model $model
	has 0 "angles of positions                       640 B" $info --plan --model $model/config.json --context 20
	has 0 "weight f32 (256, 32)" $info --tree --model $model
	has 2 "context 65: the model in $model has 64 positions" $info --plan --model $model --context 65
	has 2 "cannot open $model/none" $info --plan --model $model/none
fi
rm -r $model
has 0 "total" $info --plan --preset nano --context 32
has 2 "preset and --model are both given" $info --plan --preset nano --model $model
has 2 "model needs --plan or --tree" $info --model $model
has 0 "4 micro-batches" $info --plan --accumulate 4
has 2 "unknown preset \"giant\"" $info --plan --preset giant
has 2 "must be one of ddp|zero1|zero2|zero3|hybrid" $info --plan --strategy zero9
has 2 "must be one of fp32|bf16|fp16" $info --plan --dtype f16
has 2 "must be one of fp32|compute" $info --plan --reduce-dtype bf16
has 2 "must be one of auto, always, never, or a number of ranks" $info --plan --reshard yes
has 1 "must be a factor of the 4 ranks" $info --plan -n 4 --reshard 3
has 2 "must be one of no|views|padded" $info --plan --flat yes
has 0 "on 3 ranks" $info --plan -n 3 --flat padded --offload all
has 0 "every rank" $info --plan -n 3 --flat padded # without: the last rank has fewer rows
has 0 "rank 2" $info --plan -n 3
has 2 "--pure needs --dtype bf16 or fp16" $info --plan --pure
has 2 "--pure needs --plan or --tree" $info --pure
has 2 "--dtype needs --plan or --tree" $info --dtype bf16
for strategy in ddp zero1 zero2 zero3; do
	for dtype in fp32 bf16 fp16; do
		has 0 "parameters, $dtype, $strategy on 3 ranks" $info --plan -n 3 --strategy $strategy --dtype $dtype
	done
	has 0 "parameters, pure bf16, $strategy on" $info --plan --strategy $strategy --dtype bf16 --pure
done
has 0 "parameters, fp32, hybrid on 4 ranks" $info --plan --strategy hybrid --mesh replicate=2,shard=2
has 2 "needs NAME=N,NAME=N" $info --plan --strategy hybrid --mesh replicate=2,shard
has 2 "hybrid needs --mesh with replicate=R, and either shard=S or dp=S" $info --plan --strategy hybrid -n 4
has 2 "zero3 need --mesh with either shard=N or dp=N" $info --plan --mesh replicate=4
has 2 "-n and --mesh are both given" $info --plan --strategy hybrid --mesh replicate=2,shard=2 -n 4
has 2 "4 heads of queries cannot be divided among 3 tensor-parallel ranks" $info --plan --preset nano --mesh tp=3
has 2 "--mesh needs --plan" $info --mesh dp=2
has 2 "must be a whole number" $info --plan -n 0
has 2 "must be a whole number" $info --plan -n 2x
has 2 "must be a whole number" $info --plan -n 99999999999
has 2 "-n needs --plan" $info -n 2
has 2 "unexpected argument \"more\"" $info more
has 2 "lists the options" $info --bogus
if [ -c /dev/full ]; then
	for option in "" -c --plan; do
		$info $option > /dev/full 2> /dev/null && complain "shardrt-info $option: a full disk is success"
	done
fi

# Speeds: all rows are there, with positive numbers and sane shares, whatever the speeds are; causes that are known.
# bench RANKS THREADS [VARIABLE=VALUE...]
bench()
{
	ranks=$1 threads=$2
	shift 2
	has 0 "us      speed           share" env SHARDRT_BACKEND=cpu SHARDRT_THREADS="$threads" "$@" \
		./shardrun -n "$ranks" $info --bench --seconds 1
	rows=$(echo "$out" | awk '
		/^#/ || !/ G(FLOP|B)\/s / { next }
		{ low = sub(/  low$/, ""); share = $NF; speed = $(NF - 2); us = $(NF - 3) }
		!(speed > 0) || !(us == "-" || us > 0) || !(share == "-" || share > 0 && share < 100) || (low && share == "-") {
			print "bad"
		}
		{ sub(/, .*/, ""); sub(/  .*/, ""); count[$0]++ }
		END { for (name in count) print name ":" count[name] }' | LC_ALL=C sort | tr '\n' ' ')
}
peak='multiply-adds:2 '
[ "$(uname -m)" = x86_64 ] || $info | grep -q 'cpu kernels: .*neon' || peak=
# expect_rows BEFORE AFTER: no rows but the common ones and collectives, which sort before and after their neighbours.
# Products of mode fast are there, or the reason why not.
expect_rows()
{
	bf16='product bf16 fast:3 ' fp32='product fp32 fast:3 '
	case $out in *"# products in mode fast: none: "?*) bf16='' fp32='' ;; esac
	expected="$1copy:1 ${peak}product bf16 exact:3 ${bf16}product fp32 exact:3 ${fp32}read:1 $2training step:1 "
	[ "$rows" = "$expected" ] || complain "rows: $rows, expected: $expected: $out"
}
bench 1 2
expect_rows "" ""
case $out in
*"# collectives are measured with several ranks: shardrun -n 2"*) ;;
*) complain "one rank does not say how to measure collectives: $out" ;;
esac
isa=auto
if grep -q '^flags.* avx512dq' /proc/cpuinfo && $info | grep -q 'cpu kernels: .*avx2'; then isa=avx2; fi
bench 2 1 SHARDRT_PEER_MEMORY=no SHARDRT_CPU_ISA=$isa
expect_rows "all-gather:2 all-reduce:2 " "reduce-scatter:2 "
case $out in
*"# collectives are staged: SHARDRT_COLLECTIVES=auto, SHARDRT_PEER_MEMORY=no"*) ;;
*) complain "staged collectives are no cause: $out" ;;
esac
case $isa,$out in
auto,* | *"# SHARDRT_CPU_ISA=avx2: this processor has avx512"*) ;;
*) complain "an instruction set that is not used is no cause: $out" ;;
esac
# shellcheck disable=SC2016 # a rank expands it
has 2 "--bench needs ranks that are alike: rank 0 has cpu" env SHARDRT_BACKEND=cpu SHARDRT_THREADS=1 \
	./shardrun -n 2 sh -c 'exec "$0" --bench --seconds $((SHARDRT_RANK + 1))' $info
has 2 "--seconds needs --bench" $info --seconds 2
has 2 "must be a whole number in 1..3600" $info --bench --seconds 0
has 1 'backend "tpu"' env SHARDRT_BACKEND=tpu $info --bench

# The tree of modules, alone and with a plan; what deferred initial values save.
has 0 "    0 (Block), unit blocks.0" $info --tree
has 0 "weight f32 (384, 128), dimension 0 cut over tp in 3 blocks" $info --tree --mesh dp=2,tp=2
has 0 "weight bf16 (384, 128)" $info --tree --dtype bf16 --pure
has 0 "tied to wte.weight" $info --tree --plan
also "total of the engine"
has 0 "first make 328.2 MiB (344156160 bytes)" $info --plan --preset gpt2-124m -n 4
$info --tree | grep -q "total of the engine" && complain "--tree alone prints a plan"
$info --plan | grep -q "unit blocks.0" && complain "--plan alone prints a tree"

# A plan of one rank under ddp and under zero3 holds the same parameters; two ranks halve zero3's.
bytes_of() { $info --plan --preset nano -n "$1" --strategy "$2" | awk '/optimizer state/ { print $3 }'; }
one=$(bytes_of 1 zero3) two=$(bytes_of 2 zero3) ddp=$(bytes_of 2 ddp)
awk -v a="$one" -v b="$two" -v c="$ddp" 'BEGIN { exit !(a > 0 && b > 0.4 * a && b < 0.6 * a && c == a) }' ||
	complain "optimizer state: $one on one rank, $two on two, $ddp with ddp"

# Hybrid has the shards of zero3 on the ranks of a replica.
rows_of() { $info --plan --preset nano "$@" | awk '/(shards|state|unsharded .*)  / { print $1, $2, $3, $4 }'; }
hybrid=$(rows_of --strategy hybrid --mesh replicate=3,shard=2) zero3=$(rows_of --strategy zero3 -n 2)
[ -n "$zero3" ] && [ "$hybrid" = "$zero3" ] || complain "hybrid on 3 x 2: $hybrid, zero3 on 2: $zero3"

# Recomputation keeps fewer activations.
activations() { $info --plan --preset nano "$@" | awk '$1 == "activations" && !n++ { print $2, $3, $4 }'; }
all=$(activations) inputs=$(activations --recompute)
[ -n "$all" ] && [ -n "$inputs" ] && [ "$inputs" != "$all" ] || complain "activations: $all, with --recompute $inputs"

# Parameters that are stored in 16 bits have half the state; those that are cast have all of it.
state_of() { $info --plan --preset nano "$@" | awk '/optimizer state/ { print $3 }'; }
cast=$(state_of --dtype bf16) pure=$(state_of --dtype bf16 --pure)
awk -v a="$one" -v b="$cast" -v c="$pure" 'BEGIN { exit !(a > 0 && a == b && c > 0.48 * a && c < 0.52 * a) }' ||
	complain "optimizer state: $one in fp32, $cast with bf16, $pure with pure bf16"
exit $failed
