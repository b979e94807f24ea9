#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrt-generate: models of bytes and of a tokenizer continue prompts, the same for every --batch, number of ranks and
# way to give the prompts; JSON, ends of a text; mistakes; outputs that fail.
. "$srcdir/tests/harness/run_ranks.sh"
tmp=tests/generate.$SHARDRT_BACKEND.tmp
rm -rf $tmp && mkdir -p $tmp/bytes $tmp/tokens || exit 1
trap 'rm -rf $tmp' EXIT
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

# train OPTIONS...: a small model of --text
train()
{
	./shardrt-train "$@" --text $tmp/text --batch 8 --context 32 --steps 60 --lr 0.02 --eval-every 0 > $tmp/out 2>&1 ||
		fail "$*: $(cat $tmp/out)"
}

# generate MODEL OPTIONS...: prints the output
generate()
{
	./shardrt-generate --quiet "$@" 2> $tmp/err || fail "$*: status $?, $(cat $tmp/err)"
	! grep -v '^toy device: ' $tmp/err > $tmp/said || fail "$*: $(cat $tmp/said)"
}

# refused STATUS WORDS OPTIONS...
refused()
{
	status=$1 words=$2
	shift 2
	./shardrt-generate "$@" > $tmp/out 2> $tmp/err < /dev/null
	code=$?
	[ $code = $status ] && [ ! -s $tmp/out ] && grep -q -e "$words" $tmp/err ||
		fail "$*: status $code, $(cat $tmp/out $tmp/err)"
}

# same FILE WANTED OPTIONS...
same() { cmp $1 $2 || fail "$*"; }

i=0
while [ $i -lt 100 ]; do
	printf 'abc \303\251 \342\202\254 xyz\n'
	i=$((i + 1))
done > $tmp/text

# ---- bytes
train --layers 1 --heads 2 --width 32 --save $tmp/model
model=$tmp/model
printf 'abc \303\251 \342\202\254 xyz\nabc' > $tmp/want
{ printf 'ab' && ./shardrt-generate $model --prompt ab --max-tokens 16 --quiet; } > $tmp/greedy
{ cat $tmp/want && echo; } | cmp - $tmp/greedy || fail "greedy: $(od -c $tmp/greedy)"
./shardrt-train --init $model --generate 16 --prompt ab --temperature 0 | cmp - $tmp/greedy || fail "--generate"
# A longer text than the context of 32 goes on from its last 16 bytes.
./shardrt-train --init $model --generate 80 --prompt ab --temperature 0 > $tmp/long
generate $model --prompt ab --max-tokens 30 > $tmp/part
{ printf ab && cat $tmp/part; } | head -c 32 > $tmp/want
head -c 32 $tmp/long | cmp - $tmp/want || fail "a long text begins with another text"
generate $model --prompt "$(head -c 32 $tmp/long | tail -c 16)" --max-tokens 16 | head -c 16 > $tmp/part
head -c 48 $tmp/long | tail -c 16 | cmp - $tmp/part || fail "a long text goes on with another text"
[ "$(wc -c < $tmp/long)" = 83 ] || fail "a long text: $(cat $tmp/long)"
generate $model --prompt ab --max-tokens 16 --greedy --context 18 > $tmp/again
tail -c +3 $tmp/greedy | cmp - $tmp/again || fail "greedy again: $(cat $tmp/again)"
[ "$(generate $model --prompt 'abc ' --max-tokens 100 | wc -c)" = 29 ] || fail "more than the context"
[ -z "$(generate $model --prompt ab --max-tokens 0)" ] || fail "no tokens"
generate $model --prompt 'abc ' --max-tokens 1 | od -An -tx1 | grep -q '^ c3 0a$' || fail "a part of a character"
./shardrt-generate $model --prompt ab --max-tokens 5 2>&1 > $tmp/out |
	grep -qE '^shardrt-generate: prefill 2 tokens, [0-9.]* tokens/s; decode 4 tokens, [0-9.]* tokens/s$' || fail "the speed"

# Prompts in files; drawn tokens, which other prompts, ranks and batches do not change.
printf 'a\nabc \303\251\nxyz\n\303\251\nz' > $tmp/prompts
printf '{"prompt": "a"}\n\n{"prompt": "abc \\u00e9", "id": 1}\n{"prompt": "xyz"}\n{"prompt": "\303\251"}\n{"prompt": "z"}\n' \
	> $tmp/prompts.jsonl
draw="--max-tokens 20 --temperature 1.5 --top-k 20 --top-p 0.95 --seed 7"
generate $model --prompts $tmp/prompts $draw > $tmp/drawn
[ "$(generate $model --prompts $tmp/prompts | wc -l)" -ge 5 ] || fail "lines of prompts"
generate $model --prompts - $draw < $tmp/prompts | cmp - $tmp/drawn || fail "prompts of the standard input"
generate $model --prompts $tmp/prompts $draw --seed 8 | cmp -s - $tmp/drawn && fail "another seed"
generate $model --prompts $tmp/prompts --json $draw > $tmp/json
if grep -q '^#define HAVE_JANSSON 1' config.h; then
	generate $model --prompts $tmp/prompts.jsonl $draw | cmp - $tmp/drawn || fail "JSON prompts"
	echo '{"prompt": 1}' > $tmp/bad.jsonl
	refused 2 "line 1 of $tmp/bad.jsonl is not {\"prompt\": \"...\"}" $model --prompts $tmp/bad.jsonl
	echo '{"prompt": "a"' > $tmp/bad.jsonl
	refused 2 "line 1 of $tmp/bad.jsonl is not JSON: " $model --prompts $tmp/bad.jsonl
else
	refused 2 "this build lacks jansson" $model --prompts $tmp/prompts.jsonl
fi
for batch in 1 3; do
	generate $model --prompts $tmp/prompts --json $draw --batch $batch > $tmp/again
	same $tmp/again $tmp/json "--batch $batch"
done
for n in 2 3; do
	[ -x ./shardrun ] && [ $n -le $most_ranks ] || continue
	./shardrun -n $n ./shardrt-generate $model --prompts $tmp/prompts --json $draw --quiet --batch 1 > $tmp/again || fail "$n ranks"
	same $tmp/again $tmp/json "$n ranks"
	./shardrun -n $n ./shardrt-generate $model --prompt ab --max-tokens 16 --quiet > $tmp/again || fail "$n ranks"
	tail -c +3 $tmp/greedy | cmp - $tmp/again || fail "one prompt on $n ranks"
	./shardrun -n $n ./shardrt-generate $model --prompts - > $tmp/out 2>&1 < $tmp/prompts
	[ $? = 2 ] && grep -q "^shardrt-generate: --prompts - is for one rank" $tmp/out || fail "$n ranks: $(cat $tmp/out)"
	cp $tmp/prompts $tmp/prompts.0 && echo other > $tmp/prompts.1 && cp $tmp/prompts $tmp/prompts.2
	./shardrun -n $n sh -c "exec ./shardrt-generate $model --prompts $tmp/prompts.\$SHARDRT_RANK" > $tmp/out 2>&1
	[ $? = 2 ] && grep -q "is another file on rank 1, .* than on rank 0" $tmp/out || fail "$n ranks: $(cat $tmp/out)"
done

# JSON: as many ids as log-probabilities, which are at most 0.
numbers='\[([-0-9.e]+(, [-0-9.e]+)*)?\]'
grep -cE "^\{\"index\": [0-4], \"prompt_ids\": $numbers, \"ids\": $numbers, \"logprobs\": $numbers, \"text\": \"([^\"]|\\\\\")*\", \"finish\": \"length\"\}\$" \
	$tmp/json | grep -qx 5 || fail "JSON: $(cat $tmp/json)"
sed 's/.*"ids": \[\(.*\)\], "logprobs": \[\(.*\)\], "text.*/\1:\2/' $tmp/json | awk -F: '
	{ n = split($1, ids, ", "); if (split($2, values, ", ") != n || n != 20) bad = 1
	  for (i = 1; i <= n; i++) if (values[i] > 0 || ids[i] < 0 || ids[i] > 255) bad = 1 }
	END { exit bad || NR != 5 }' || fail "ids and log-probabilities: $(cat $tmp/json)"
generate $model --json --prompt 'abc ' --max-tokens 1 | grep -q '"ids": \[195\].*"text": "\\*.*�", "finish": "length"' ||
	fail "JSON of a part of a character"
generate $model --json --prompt 'x' --max-tokens 3 | grep -qF '"ids": [121, 122, 10]' || fail "JSON of a line"
generate $model --json --prompt 'x' --max-tokens 3 | grep -qF '"text": "yz\n", "finish": "length"' || fail "JSON of a line"

# Ends of a text.
euro=$(printf '\342\202\254')
[ "$(generate $model --prompt a --stop xyz)" = "$(printf 'bc \303\251 \342\202\254 ')" ] || fail "--stop"
[ "$(generate $model --prompt a --stop nothing --stop "$euro" --stop ' xy')" = "$(printf 'bc \303\251 ')" ] || fail "three --stop"
generate $model --prompt a --stop "$euro" --json | grep -q '"finish": "stop"' || fail "--stop in JSON"
[ "$(generate $model --prompt a --stop 'c x' --stop 'xyzabc' --max-tokens 12 | wc -c)" = 13 ] || fail "--stop that is not met"

# ---- mistakes
refused 2 "there is no model: the name of a folder or file is missing" --prompt a
refused 2 "there is nothing to continue" $model
refused 2 "both given" $model --prompt a --prompts b
refused 2 "unknown option '--promt'" $model --promt a
refused 2 "unexpected argument 'more'" $model more --prompt a
refused 2 "top-p needs a number from 1e-06 to 1, not '1.5'" $model --prompt a --temperature 1 --top-p 1.5
refused 2 "top-k and --top-p need --temperature" $model --prompt a --top-k 4
refused 2 "one of them is to be left out" $model --prompt a --greedy --temperature 1
refused 2 "max-tokens needs a whole number" $model --prompt a --max-tokens many
refused 2 "stop must not be empty" $model --prompt a --stop ''
refused 2 "cannot read $tmp/none: No such file" $tmp/none --prompt a
refused 2 "cannot read --prompts $tmp/none: No such file" $model --prompts $tmp/none
refused 2 "prompts $tmp/empty has no prompt" $model --prompts "$(: > $tmp/empty && echo $tmp/empty)"
refused 2 "prompt is empty" $model --prompt ''
refused 2 "line 2 of $tmp/blank is empty" $model --prompts "$(printf 'a\n\nb\n' > $tmp/blank && echo $tmp/blank)"
refused 2 "prompt has 33 tokens, but the context is 32" $model --prompt 'abcdefghijabcdefghijabcdefghijabc'
refused 2 "prompt has 5 tokens, but the context is 4" $model --prompt abcde --context 4
refused 2 "context 40: the model in $model has 32 positions" $model --prompt a --context 40
refused 2 "safetensors\|header" $tmp/text --prompt a
[ "$(./shardrt-generate --version)" = "shardrt-generate $(./shardrt-info --version)" ] || fail "$(./shardrt-generate --version)"

# ---- outputs that fail
./shardrt-generate $model --prompt a --max-tokens 20 --quiet > /dev/full 2> $tmp/err
[ $? = 1 ] && grep -qx "shardrt-generate: standard output cannot be written" $tmp/err || fail "/dev/full: $(cat $tmp/err)"
for how in "--prompt a" "--prompts $tmp/prompts"; do
	# shellcheck disable=SC2086
	{ sh -c './shardrt-generate "$@"; echo $? > $0' $tmp/status $model $how --quiet 2> $tmp/err; } | head -c 0
	[ "$(cat $tmp/status)" != 0 ] || fail "a closed pipe: status 0"
done

# ---- folders of Hugging Face
if grep -q '^#define HAVE_JANSSON 1' config.h; then
	cat > $tmp/bytes/config.json << 'END'
{ "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
  "vocab_size": 256, "tie_word_embeddings": true, "eos_token_id": 120 }
END
	train --init $tmp/bytes --init-random --save $tmp/llama
	[ "$(generate $tmp/llama --prompt a)" = "$(printf 'bc \303\251 \342\202\254 ')" ] || fail "eos_token_id of config.json"
	generate $tmp/llama --prompt a --json | grep -q '120\], "logprobs.*"finish": "eos"' || fail "the end token in JSON"
	[ "$(generate $tmp/llama --prompt a --ignore-eos | wc -c)" = 64 ] || fail "--ignore-eos"
	echo '{ "eos_token_id": [7, 99] }' > $tmp/llama/generation_config.json
	[ "$(generate $tmp/llama --prompt a)" = b ] || fail "eos_token_id of generation_config.json"
	echo '{ "eos_token_id": "c" }' > $tmp/llama/generation_config.json
	refused 2 "$tmp/llama/generation_config.json: eos_token_id must be" $tmp/llama --prompt a
	rm $tmp/llama/generation_config.json
	refused 2 "has the sizes of the model in its config.json" $tmp/llama --prompt a --width 16
	for dtype in bf16 fp16; do
		[ "$(generate $tmp/llama --prompt a --dtype $dtype)" = "$(printf 'bc \303\251 \342\202\254 ')" ] || fail "$dtype"
	done
	sed 's/"vocab_size": 256/"vocab_size": 300/; s/, "eos.*120//' $tmp/bytes/config.json > $tmp/tokens/config.json
fi
if ./shardrt-info --features | grep -q '^Hugging Face tokenizers  *built'; then
	cp "$srcdir/tests/models/tokenizer.json" $tmp/tokens && chmod u+w $tmp/tokens/tokenizer.json
	train --init $tmp/tokens --init-random --save $tmp/trained
	generate $tmp/trained --prompt 'abc' --max-tokens 40 > $tmp/text.out
	[ "$(head -n 1 $tmp/text.out)" = "$(printf ' \303\251 \342\202\254 xyz')" ] ||
		fail "a tokenizer: $(cat $tmp/text.out)"
	printf 'abc\nxyz\n' > $tmp/prompts
	generate $tmp/trained --prompts $tmp/prompts --max-tokens 40 | head -n "$(wc -l < $tmp/text.out)" | cmp - $tmp/text.out ||
		fail "a tokenizer, two prompts"
	# The template adds a token at the beginning, which is enough of a prompt.
	generate $tmp/trained --prompt '' --max-tokens 2 --json | grep -qE '"prompt_ids": \[[0-9]+\], "ids"' || fail "an empty prompt"
	printf 'ab\377' > $tmp/prompts
	refused 2 "line 1 of $tmp/prompts: the text is not UTF-8: byte 2 is 0xff" $tmp/trained --prompts $tmp/prompts
	./shardrt-train --init $tmp/trained --generate 40 --prompt abc --temperature 0 > $tmp/out 2> $tmp/err
	{ printf abc && cat $tmp/text.out; } | cmp - $tmp/out || fail "--generate by a tokenizer: $(cat $tmp/out $tmp/err)"
	train --init $tmp/tokens --init-random --sample 40 --prompt abc --temperature 0
	tail -n "$(($(wc -l < $tmp/text.out)))" $tmp/out > $tmp/sample
	{ printf abc && cat $tmp/text.out; } | cmp - $tmp/sample || fail "--sample by a tokenizer: $(cat $tmp/out)"
	mv $tmp/trained/tokenizer.json $tmp/tokenizer.json
	refused 2 "there is no $tmp/trained/tokenizer.json, and the tokens of $tmp/trained are not bytes" $tmp/trained --prompt a
	generate $tmp/trained --prompt 'abc' --max-tokens 40 --tokenizer $tmp/tokenizer.json | cmp - $tmp/text.out || fail "--tokenizer"
	./shardrt-train --init $tmp/trained --generate 4 > $tmp/out 2>&1
	[ $? = 2 ] && grep -q "are not bytes, and there is no $tmp/trained/tokenizer.json" $tmp/out || fail "--generate: $(cat $tmp/out)"
fi
exit $failed
