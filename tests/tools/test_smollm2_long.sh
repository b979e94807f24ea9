#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# SmolLM2-135M, a published Llama, as transformers has it: perplexity of the first 20000 characters of a text, greedy
# tokens, the losses of 20 steps, a GGUF file, and a folder that is saved and loaded again. Needs the model's folder, SRT_SMOLLM2, and the text: the
# recorded runs' folder has both a recipe (hf/smollm2.md) and the figures.
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

# ---- twenty steps on the first 512 tokens, in two rows. The losses of transformers 5.24, PyTorch 2.15, trained in fp32, are
# those of
#
#     model = AutoModelForCausalLM.from_pretrained("smollm2", dtype=torch.float32)
#     ids = AutoTokenizer.from_pretrained("smollm2")(open("text").read(), add_special_tokens=False).input_ids
#     rows = torch.tensor(ids[:512]).reshape(2, 256)
#     adamw = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0)
#     for step in range(20):
#         out = model(input_ids=rows, labels=rows)
#         logits = out.logits[:, :-1].detach().double().flatten(0, 1)
#         print(f"{torch.nn.functional.cross_entropy(logits, rows[:, 1:].flatten()).item():.10g}")
#         out.loss.backward(); adamw.step(); adamw.zero_grad()
#
# The loss is computed in double from the model's logits, because torch's cross-entropy in fp32 is itself off by 4.7e-6: of
# the same logits of step 1 it is 3.814005852, in double 3.814023774.
losses="3.814023774 3.697260072 3.590845666 3.49385384 3.405234464 3.323512102 3.24715901 3.174845062 3.105377529 3.037744392 \
	2.97125621 2.90546581 2.84005352 2.774770234 2.709423509 2.643904168 2.578250685 2.512618491 2.447092723 2.381688071"
./shardrt-tokens encode --tokenizer "$SRT_SMOLLM2" $work/text $work/tokens > $work/out || { cat $work/out; exit 1; }
# 1024 bytes of a head, then tokens of 16 bits
tail -c +1025 $work/tokens | head -c 1024 | od -An -v -tu2 -w512 |
	sed 's/ *\([0-9][0-9]*\)/,\1/g; s/^,\(.*\)/{"input_ids": [\1]}/' > $work/rows
[ "$(wc -l < $work/rows)" = 2 ] || fail "not two rows: $(cat $work/rows)"
./shardrun -n 2 ./shardrt-train --init "$SRT_SMOLLM2" --sft $work/rows --context 256 --batch 2 --steps 20 --lr 1e-5 \
	--schedule constant --warmup 0 --beta2 0.999 --weight-decay 0 --clip 0 --strategy zero3 --numerics exact \
	--log $work/log > $work/out || { cat $work/out; exit 1; }
sed 's/.*"loss": \([-0-9.e]*\).*/\1/' $work/log | awk -v losses="$losses" 'BEGIN { n = split(losses, want) } {
	d = $1 / want[NR] - 1
	print "step " NR ": loss " $1 ", transformers " want[NR] ", relative difference " d
	bad += !(d < 1e-5 && d > -1e-5)
} END { exit bad || NR != n || n != 20 }' || fail "the losses of 20 steps"

# As a GGUF file: llama.cpp has the same perplexity, if Python has it; F32 and, with what rounding does, Q8_0.
python=${PYTHON:-python3}
if $python -c 'import llama_cpp, numpy' 2> /dev/null; then
	for type in f32:41.8085:1e-3 q8_0:41.8085:0.5; do
		dtype=${type%%:*} type=${type#*:}
		./shardrt-ckpt convert --to gguf --dtype $dtype "$SRT_SMOLLM2" $work/gguf > $work/out || { cat $work/out; exit 1; }
		value=$($python "$srcdir/tests/tools/gguf_readers.py" perplexity $work/gguf $work/text | sed -n 's/^perplexity //p')
		echo "llama.cpp, $dtype: perplexity $value"
		echo "$value" | awk -v want="${type%:*}" -v most="${type#*:}" '{ exit !($1 > want - most && $1 < want + most) }' ||
			fail "it is ${type%:*} here"
	done
else
	echo "skipped: llama.cpp (no Python with llama_cpp; PYTHON names another one)"
fi

# Two steps, saved in several files, on a part of the text: the saved folder has a lower perplexity.
./shardrun -n 2 ./shardrt-train --init "$SRT_SMOLLM2" --text $work/text --context 128 --batch 2 --steps 2 --lr 1e-5 \
	--eval-every 0 --save $work/saved --max-shard-size 200000000 > $work/out || { cat $work/out; exit 1; }
[ -f $work/saved/model.safetensors.index.json ] || fail "the saved folder is not in several files"
value=$(perplexity 2 $work/saved) || fail "$value"
echo "after 2 steps: perplexity $value"
echo "$value" | awk '{ exit !($1 > 30 && $1 < 41.8) }' || fail "training did not lower it"
