#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrt-train --init and --tokens: bytes as tokens give the hash of the text; saved parameters are loaded with the
# same hash on every number of ranks, from files with the names of Hugging Face's GPT-2 and from checkpoints too; files
# that do not fit are refused by name. tests/tools/test_ckpt.sh compares with transformers.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
tmp=tests/train_init.$SHARDRT_BACKEND.tmp
rm -rf $tmp && mkdir -p $tmp || exit 1
trap 'rm -rf $tmp' EXIT
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

# words N...: 32-bit integers, little-endian
words()
{
	for word in "$@"; do
		printf "$(printf '\\%03o\\%03o\\%03o\\%03o' $((word & 255)) $((word >> 8 & 255)) $((word >> 16 & 255)) $((word >> 24 & 255)))"
	done
}

# header MAGIC VERSION COUNT
header()
{
	words "$@"
	head -c 1012 /dev/zero
}

# 3600 bytes, and the same as tokens.
i=0
while [ $i -lt 300 ]; do
	printf 'the %03d is\n' $((i * 7919 % 1000))
	i=$((i + 1))
done > $tmp/text
n=$(wc -c < $tmp/text)
header 20240520 1 $((n)) > $tmp/tokens
od -An -v -tu1 $tmp/text | awk '{ for (i = 1; i <= NF; i++) printf "\\%03o\\000", $i }' > $tmp/escapes
# shellcheck disable=SC2059
printf "$(cat $tmp/escapes)" >> $tmp/tokens

model="--layers 2 --heads 2 --width 24 --context 20"
run="--batch 6 --steps 4 --lr 0.01 --eval-every 0"
# hash RANKS OPTIONS...: prints the hash
hash()
{
	n=$1
	shift
	./shardrun -n "$n" ./shardrt-train "$@" --hash > $tmp/out 2>&1 || { cat $tmp/out >&2; return 1; }
	sed -n 's/^hash: numerics [0-9]* [a-z]*, xxh3-128 //p' $tmp/out
}

# refused WORDS OPTIONS...
refused()
{
	words=$1
	shift
	./shardrun -n 2 ./shardrt-train "$@" > $tmp/out 2>&1 && fail "$*: not refused"
	tr -d '\n' < $tmp/out | grep -q -e "$words" || fail "$*: not '$words', but $(cat $tmp/out)"
}

text=$(hash 2 $model $run --text $tmp/text --strategy zero3 --save $tmp/ours)
grep -q 'needs libxxhash' $tmp/out && skip "built without libxxhash"
[ -n "$text" ] || fail "no hash: $(cat $tmp/out)"
tokens=$(hash 2 $model $run --tokens $tmp/tokens)
[ "$tokens" = "$text" ] || fail "bytes as tokens: $tokens, not $text"
for n in 1 2 3; do
	[ $n -le $most_ranks ] || continue
	loaded=$(hash $n --init $tmp/ours --text $tmp/text --batch 6 --steps 0 --eval-every 0 --strategy zero3)
	[ "$loaded" = "$text" ] || fail "loaded on $n ranks: $loaded, not $text"
done
echo "hash of the text, of the tokens, loaded on 1 to 3 ranks: $text"

# The same parameters with the names of Hugging Face; a model without biases of qkv gets some, which are zero.
./shardrt-ckpt convert --to hf $tmp/ours $tmp/theirs > $tmp/out || fail "convert: $(cat $tmp/out)"
grep -q '"n_head": 2' $tmp/config.json || fail "config.json: $(cat $tmp/config.json)"
for n in 1 2 3; do
	[ $n -le $most_ranks ] || continue
	theirs=$(hash $n --init $tmp/theirs --text $tmp/text --batch 6 --steps 0 --eval-every 0 --strategy zero3 --flat views \
		--save $tmp/biased)
	[ -n "$first" ] || first=$theirs
	[ "$theirs" = "$first" ] || fail "a GPT-2 on $n ranks: $theirs, not $first"
done
cut=$(hash 2 --init $tmp/theirs --text $tmp/text --batch 6 --steps 0 --eval-every 0 --mesh tp=2)
[ "$cut" = "$first" ] || fail "a GPT-2 with tp=2: $cut, not $first"
./shardrt-ckpt diff $tmp/ours $tmp/biased > $tmp/out
grep -v "blocks\.[01]\.attn\.qkv\.bias: only in $tmp/biased" $tmp/out | grep -qx '2 of 28 tensors differ' ||
	fail "ours and what was loaded from theirs: $(cat $tmp/out)"
echo "hash of what is loaded from a GPT-2 of Hugging Face: $first"

# data FILE WORDS: prints the data of FILE as 16-bit numbers, WORDS to a line
data()
{
	begin=$(od -An -tu4 -N4 "$1" | tr -d ' ')
	tail -c +$((begin + 9)) "$1" | od -An -v -tx2 -w$((2 * $2))
}

# A GPT-2 in bf16, in a folder, is widened where parameters are fp32: zeros are added to each value.
hash 2 $model $run --text $tmp/text --pure --dtype bf16 --save $tmp/half > /dev/null
mkdir $tmp/folder
./shardrt-ckpt convert --to hf $tmp/half $tmp/folder/model.safetensors > $tmp/out || fail "convert: $(cat $tmp/out)"
steps="--text $tmp/text --batch 6 --steps 0 --eval-every 0"
hash 1 --init $tmp/folder $steps --pure --dtype bf16 --save $tmp/narrow > /dev/null
data $tmp/narrow/model.safetensors 1 | sed 's/^/ 0000/' > $tmp/want
for n in 1 2 3; do
	[ $n -le $most_ranks ] || continue
	hash $n --init $tmp/folder $steps --strategy zero3 --save $tmp/wide > /dev/null
	data $tmp/wide/model.safetensors 2 | cmp - $tmp/want || fail "a GPT-2 in bf16 on $n ranks"
done

# GPT-2 that do not fit.
init="--text $tmp/text --batch 6 --steps 0"
refused "tensor 'transformer.wpe.weight' is F32 \[20,24\] in .*, but f32 \[16,24\] in the model, which has it as 'wpe.weight'; without --layers, --width and --context the model has the sizes of the file" \
	$init --init $tmp/theirs --context 16
refused "tensor 'transformer.wte.weight' is F32 \[256,24\] in .*, but f32 \[256,48\] in the model" $init --init $tmp/theirs \
	--width 48
refused "gpt2-124m has 12 layers, 12 heads, width 768 and context 1024, but the model in --init $tmp/theirs has 2, 2, 24 and 20" \
	$init --init $tmp/theirs --preset gpt2-124m
refused "it has 28 tensors, but a model of 3 layers has" $init --init $tmp/theirs --layers 3
refused "the tokens of --init $tmp/theirs, a GPT-2 of Hugging Face, are not bytes" --init $tmp/theirs --generate 4
refused "heads is 3, but the model in --init $tmp/ours has 2 heads" $init --init $tmp/ours --heads 3
refused "config.json in the folder of $tmp/theirs has 2 heads, not 3" $init --init $tmp/theirs --heads 3
refused "no config.json" --text $tmp/text --batch 6 --init "$(mkdir $tmp/alone && cp $tmp/theirs $tmp/alone && echo $tmp/alone/theirs)"
for what in '"activation_function": "gelu"' '"layer_norm_epsilon": 1e-06' '"scale_attn_by_inverse_layer_idx": true' \
	'"scale_attn_weights" : false'; do
	echo "{ \"n_head\": 2, $what }" > $tmp/alone/config.json
	refused "config.json in the folder of $tmp/alone/theirs has" $init --init $tmp/alone/theirs
done

dd if=/dev/zero bs=65536 count=1 2> /dev/null | tr '\0' ' ' > $tmp/alone/config.json
refused "config.json has 65536 bytes or more" $init --init $tmp/alone/theirs
rm $tmp/alone/config.json && mkdir $tmp/alone/config.json
refused "cannot read $tmp/alone/config.json: Is a directory" $init --init $tmp/alone/theirs
rmdir $tmp/alone/config.json

# A head of zeros is added to the file; it is not used unless config.json says that the head is not tied.
begin=$(od -An -tu4 -N4 $tmp/theirs | tr -d ' ')
data=$(($(wc -c < $tmp/theirs) - 8 - begin))
json="{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[256,24],\"data_offsets\":[$data,$((data + 24576))]},$(
	head -c $((8 + begin)) $tmp/theirs | tail -c $((begin - 1)))"
{
	words ${#json} 0
	printf '%s' "$json"
	tail -c $data $tmp/theirs
	head -c 24576 /dev/zero
} > $tmp/alone/headed
for tied in "" true false; do
	echo "{ \"n_head\": 2${tied:+, \"tie_word_embeddings\": $tied} }" > $tmp/alone/config.json
	h=$(hash 2 --init $tmp/alone/headed --text $tmp/text --batch 6 --steps 0 --eval-every 0)
	case $tied.$h.$(grep -c "'lm_head.weight' is not used by the model" $tmp/out) in
	".$first.1" | "true.$first.1") ;;
	false.*.1 | false.$first.* | true.* | .*) fail "a head, tie_word_embeddings $tied: $h, $(cat $tmp/out)" ;;
	esac
done
refused "has a head that is not tied (tie_word_embeddings), but the file has no tensor 'lm_head.weight'" \
	$init --init $tmp/alone/theirs

# Tokens that do not fit. The checks of a header are those of tests/models/test_text.c.
refused "both given" $model $run --tokens $tmp/tokens --text $tmp/text
refused "tokens of --tokens are not bytes" $model $run --tokens $tmp/tokens --sample 3
refused "it is text, not a file of tokens" $model $run --tokens $tmp/text
header 20240520 1 3600000 > $tmp/short
refused "$tmp/short: its header has" $model $run --tokens $tmp/short
refused "cannot open the tokens $tmp/missing" $model $run --tokens $tmp/missing
refused "the tokens $tmp/tokens: token [0-9]* (at byte [0-9]* of the file) is 116, but the vocabulary has 0 .. 115" \
	$model $run --tokens $tmp/tokens --vocab 116 --steps 40
refused "the tokens $tmp/tokens: token [0-9]*" $model --batch 6 --steps 0 --eval-every 1 --tokens $tmp/tokens --vocab 100

# A run on tokens is resumed with its tokens only.
if grep -q '^#define HAVE_JANSSON 1' config.h; then
	tokens=$(hash 2 $model $run --tokens $tmp/tokens --checkpoint $tmp/run)
	[ "$tokens" = "$text" ] || fail "with checkpoints: $tokens, not $text"
	latest=$tmp/run/$(cat $tmp/run/latest)
	for n in 1 3; do
		[ $n -le $most_ranks ] || continue
		loaded=$(hash $n --init $tmp/run/ --text $tmp/text --batch 6 --steps 0 --eval-every 0 --strategy zero3 --flat views)
		[ "$loaded" = "$text" ] || fail "the folder of checkpoints on $n ranks: $loaded, not $text: $(cat $tmp/out)"
		[ "$(grep -c "^shardrt-train: the latest checkpoint in $tmp/run/ is $latest\$" $tmp/out)" = 1 ] ||
			fail "the latest checkpoint is not reported: $(cat $tmp/out)"
	done
	cut=$(hash 2 --init $latest --text $tmp/text --batch 6 --steps 0 --eval-every 0 --mesh tp=2)
	[ "$cut" = "$text" ] || fail "a checkpoint with tp=2: $cut, not $text"
	[ "$(./shardrt-ckpt hash $latest | sed -n 's/^parameters: xxh3-128 //p')" = "$text" ] || fail "$latest: another hash than $text"
	refused "'wpe.weight' is \[20,24\] in the checkpoint, but \[16,24\] in the engine" $init --init $tmp/run --context 16
	refused "the model in --init $latest has 2, 2, 24 and 20" $init --init $latest --preset gpt2-124m
	refused "$tmp/alone is no checkpoint (it has no manifest.json), and no complete checkpoint is in it: " $init --init $tmp/alone
	resumed=$(hash 1 $model $run --tokens $tmp/tokens --checkpoint $tmp/run --resume)
	[ "$resumed" = "$text" ] || fail "resumed after the last step: $resumed, not $text"
	head -c 4000 $tmp/tokens > $tmp/other && head -c $(($(wc -c < $tmp/tokens) - 4000)) /dev/zero >> $tmp/other
	refused "trains on another text than $tmp/other" $model $run --tokens $tmp/other --checkpoint $tmp/run --resume
fi

exit $failed
