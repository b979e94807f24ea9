#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# SmolLM2-135M, a published Llama, as transformers has it: perplexity of the first 20000 characters of a text, greedy
# tokens, and a folder that is saved and loaded again. Needs the model's folder, SRT_SMOLLM2, and the text: the recorded
# runs' folder has both a recipe (hf/smollm2.md) and the figures.
skip() { echo "SKIP: $*"; exit 77; }
[ -n "$SRT_SMOLLM2" ] || skip "SRT_SMOLLM2 does not name a folder of SmolLM2-135M"
text=$SRT_GOLDEN_DIR/../data/tinyshakespeare.txt
[ -f "$text" ] || skip "no tinyshakespeare.txt next to the recorded runs"
[ -x ./shardrun ] || skip "shardrun was not built"
work=tests/tools/test_smollm2_long.dir
rm -rf $work && mkdir $work || exit 1
trap 'rm -rf $work' EXIT
fail() { echo "FAIL: $*"; exit 1; }
head -c 20000 "$text" > $work/text

# perplexity WORLD MODEL: of windows of 512 tokens, on several ranks
perplexity()
{
	./shardrun -n "$1" ./shardrt-train --init "$2" --text $work/text --eval --context 512 --batch "$1" > $work/out ||
		{ cat $work/out; exit 1; }
	sed -n 's/.*perplexity \([0-9.]*\).*/\1/p' $work/out
}
for world in 1 2; do
	value=$(perplexity $world "$SRT_SMOLLM2") || fail "$value"
	echo "$world ranks: perplexity $value"
	echo "$value" | awk '{ exit !($1 > 41.8086 - 5e-4 && $1 < 41.8086 + 5e-4) }' || fail "transformers has 41.8086"
done

./shardrt-generate "$SRT_SMOLLM2" --prompt 'The capital of France is' --max-tokens 20 --ignore-eos --json > $work/out || exit 1
cat $work/out
grep -q '"ids": \[7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33, 40, 29, 32, 33, 29, 34, 34, 216\]' $work/out ||
	fail "transformers has other tokens"

# Two steps, saved in several files, on a part of the text: the saved folder has a lower perplexity.
./shardrun -n 2 ./shardrt-train --init "$SRT_SMOLLM2" --text $work/text --context 128 --batch 2 --steps 2 --lr 1e-5 \
	--eval-every 0 --save $work/saved --max-shard-size 200000000 > $work/out || { cat $work/out; exit 1; }
[ -f $work/saved/model.safetensors.index.json ] || fail "the saved folder is not in several files"
value=$(perplexity 2 $work/saved) || fail "$value"
echo "after 2 steps: perplexity $value"
echo "$value" | awk '{ exit !($1 > 30 && $1 < 41.8) }' || fail "training did not lower it"
