#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrt-train on answers: losses and gradients at one, two and three ranks and in other rows, one hash of all strategies
# with the tree of micro-batches, and of a run that goes on within an epoch; validation; files with lines that are not
# examples; chats under templates, as --sft-show prints them.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
for package in JANSSON XXHASH; do
	grep -q "^#define HAVE_$package 1" config.h || skip "needs jansson and xxhash"
done
tmp=tests/train_sft.$SHARDRT_BACKEND.tmp
rm -rf $tmp && mkdir -p $tmp/model || exit 1
trap 'rm -rf $tmp' EXIT
SHARDRT_THREADS=1
export SHARDRT_THREADS
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

# 90 sums; every seventh answer is long
awk 'BEGIN {
	for (i = 0; i < 90; i++)
		printf "{\"prompt\": \"%d+%d=\", \"completion\": \"%d%s\"}\n", i, 3 * i, 4 * i, i % 7 ? "" : ", as it was before"
}' > $tmp/pairs
sizes="--layers 1 --heads 2 --width 16 --context 48"
run="--sft $tmp/pairs $sizes --batch 12 --numerics exact"

# train RANKS OPTIONS...: the output is in $tmp/out
train()
{
	n=$1
	shift
	./shardrun -n "$n" ./shardrt-train "$@" > $tmp/out 2> $tmp/err || fail "$* on $n ranks: status $?, $(cat $tmp/out $tmp/err)"
}
hash() { sed -n 's/^hash: numerics [0-9]* [a-z]*, xxh3-128 //p' $tmp/out; }
# near A B: they differ by 1e-6 at most
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d <= 1e-6 && d >= -1e-6) }'; }
number() { sed -n "s/.*\"$1\": \([-0-9.e]*\).*/\1/p" $tmp/log | sed -n "${2:-1}p"; }

# ---- worlds, rows and micro-batches: one step of all examples; this SGD changes a parameter by its gradient
cat > $tmp/gpt2.json << 'END'
{
  "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
  "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 96, "vocab_size": 256, "bos_token_id": 0, "eos_token_id": 0
}
END
mkdir $tmp/gpt2 && mv $tmp/gpt2.json $tmp/gpt2/config.json
answers() { sed 's/.*"completion": "\(.*\)"}/\1/' "$1" | awk '{ n += length($0) + 1 } END { print n }'; }
step="--init $tmp/gpt2 --init-random --sft $tmp/pairs --numerics exact --steps 1 --optimizer sgd --lr 1 --min-lr 1 \
	--schedule constant --warmup 0 --clip 0 --weight-decay 0 --strategy zero3 --log $tmp/log"
i=0
for how in "1 --context 48 --batch 24" "2 --context 48 --batch 24 --accumulate 2" "3 --context 48 --batch 24" "2 --context 96 --batch 14" \
	"1 --context 32 --batch 90 --accumulate 5"; do
	i=$((i + 1))
	rm -f $tmp/log
	train $how $step --save $tmp/step.$i
	[ $i != 1 ] || { loss=$(number loss) norm=$(number grad_norm); }
	near "$(number loss)" "$loss" || fail "$how: loss $(number loss), not $loss"
	near "$(number grad_norm)" "$norm" || fail "$how: norm $(number grad_norm), not $norm"
	./shardrt-ckpt diff $tmp/step.1 $tmp/step.$i > $tmp/out 2>&1
	awk '/ differ, by / { sub(/.*differ, by /, ""); n++; bad += !($1 <= 1e-6) } END { exit bad || n == 0 }' $tmp/out ||
		[ ! -s $tmp/out ] || fail "$how: gradients $(cat $tmp/out)"
done

# ---- with the same micro-batches: one hash; an epoch has four steps, so the run goes on within one
tree="$run --accumulate-mode tree --micro-batches 4 --lr 0.01 --steps 9 --hash"
train 1 $tree --checkpoint $tmp/dir --save-every 6
want=$(hash)
[ -n "$want" ] || fail "no hash"
for how in "1 --strategy zero3 --flat views" "2 --strategy ddp" "2 --strategy zero3" "4 --strategy zero2" "2 --mesh dp=1,tp=2"; do
	train $how $tree
	case $how in
	*tp=*) ;; # sums over tensor-parallel ranks have their own bits
	*) [ "$(hash)" = "$want" ] || fail "$how: $(hash), not $want" ;;
	esac
done
SHARDRT_BACKEND=cpu train 1 $tree
[ "$(hash)" = "$want" ] || fail "on the cpu $(hash), not $want"
rm -r $tmp/dir/step-0000000009 || fail "no checkpoint"
echo step-0000000006 > $tmp/dir/latest
train 2 $tree --checkpoint $tmp/dir --resume
grep -q '^resumed from' $tmp/out || fail "not resumed: $(cat $tmp/out)"
[ "$(hash)" = "$want" ] || fail "resumed: $(hash), not $want"
sed 's/"0+0="/"0+0 ="/' $tmp/pairs > $tmp/other
./shardrt-train $tree --sft $tmp/other --checkpoint $tmp/dir --resume > $tmp/out 2>&1 && fail "resumed with other examples"
grep -q "trains on another text than $tmp/other" $tmp/out || fail "$(cat $tmp/out)"

# ---- validation is the mean over the answers of all examples, whatever ranks and rows
head -n 31 $tmp/pairs > $tmp/val
train 1 $run --steps 2 --val $tmp/val --eval-every 2 --eval-batches 0 --log $tmp/log --save $tmp/saved
want=$(number val_loss)
train 2 --init $tmp/saved --sft $tmp/val --eval --batch 2
got=$(sed -n 's/^loss \([0-9.]*\) .* \([0-9]*\) tokens$/\1/p' $tmp/out)
near "$got" "$(printf '%.6f' "$want")" || fail "--eval $got, but validated $want"
answers=$(answers $tmp/val)
grep -q " $answers tokens\$" $tmp/out || fail "not $answers answer tokens: $(cat $tmp/out)"
grep -q "$tmp/val: 31 examples of [0-9]* bytes, $answers of them of answers, in [0-9]* rows of 48" $tmp/err || fail "$(cat $tmp/err)"

# ---- lines that are not examples
refused()
{
	words=$1
	shift
	./shardrun -n 2 ./shardrt-train $sizes --steps 1 --batch 2 "$@" > $tmp/out 2>&1
	code=$?
	[ $code = 2 ] && grep -q -e "$words" $tmp/out || fail "$*: status $code, $(cat $tmp/out)"
}
awk '{ print } NR % 3 == 0 { print "{\"prompt\": \"a\"}" } END { print "{}" }' $tmp/pairs > $tmp/bad
refused "$tmp/bad: 31 of 121 lines are not examples to train on (the first 20 are above): correct" --sft $tmp/bad
grep -q "$tmp/bad, line 4: the example has no \"completion\"\$" $tmp/out || fail "$(cat $tmp/out)"
[ "$(grep -c ", line " $tmp/out)" = 20 ] || fail "not 20 lines: $(cat $tmp/out)"
train 1 $run --steps 3 --hash
want=$(hash)
train 2 $run --steps 3 --hash --sft $tmp/bad --sft-skip-bad
grep -q "warning: $tmp/bad: 31 of 121 lines are left out" $tmp/err || fail "$(cat $tmp/err)"
train 1 $run --steps 3 --hash --sft $tmp/bad --sft-skip-bad
[ "$(hash)" = "$want" ] || fail "with lines left out $(hash), not $want"
refused "cannot open the examples $tmp/none" --sft $tmp/none
refused "possible are chatml, llama3, mistral, gemma, zephyr. Jinja templates are not run" --sft $tmp/pairs --template alpaca
refused "needs a tokenizer.json" --sft $tmp/pairs --template chatml
refused "sft and --text are both given" --sft $tmp/pairs --text $tmp/pairs
refused "sft-show prints examples" --init $tmp/saved --sft $tmp/pairs --sft-show 1 --generate 3
refused "need --sft FILE" --text $tmp/pairs --sft-show 3

# ---- chats
sizes=
if ./shardrt-info --features | grep -q '^Hugging Face tokenizers  *built'; then
	cat > $tmp/model/config.json << 'END'
{
  "architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
  "max_position_embeddings": 96, "vocab_size": 1002, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "eos_token_id": [1, 0]
}
END
	token='{"content": "<|im_NAME|>", "id": ID, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},'
	awk -v token="$token" '{ print } /"added_tokens": \[/ {
		for (i = 0; i < 2; i++) {
			t = token
			sub(/ID/, 1000 + i, t)
			sub(/NAME/, i ? "end" : "start", t)
			print t
		}
	}' "$srcdir/tests/models/tokenizer.json" > $tmp/model/tokenizer.json
	cat > $tmp/chats << 'END'
{"messages": [{"role": "user", "content": "Hi<|im_end|>"}, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}
{"prompt": "a", "completion": "b"}
END
	cat > $tmp/want << 'END'
example 1, line 1: 74 tokens, 8 of them of answers, between >>> and <<<
<|im_start|>user
Hi<|im_end|><|im_end|>
<|im_start|>assistant
>>>Hello<|im_end|><<<
<|im_start|>user
x<|im_end|>
<|im_start|>assistant
>>>y<|im_end|><<<
END
	chats="--init $tmp/model --init-random --sft $tmp/chats --batch 4"
	train 2 $chats --template chatml --sft-show 1 --checkpoint $tmp/none
	sed -n '/^example 1/,/^tokens/{/^tokens/!p;}' $tmp/out | sed 's/: [0-9]* tokens, [0-9]* of/: N tokens, M of/' > $tmp/shown
	sed 's/: [0-9]* tokens, [0-9]* of/: N tokens, M of/' $tmp/want | cmp - $tmp/shown || fail "$(cat $tmp/out)"
	[ "$(grep -c '^  *1000  <|im_start|>$' $tmp/out)" = 4 ] || fail "not four messages begin: $(cat $tmp/out)"
	[ "$(grep -c '^\* *1001  <|im_end|>$' $tmp/out)" = 2 ] || fail "not two answers end: $(cat $tmp/out)"
	[ "$(grep -c '1001  <|im_end|>$' $tmp/out)" = 4 ] || fail "a text of a user ends a message: $(cat $tmp/out)"
	[ ! -e $tmp/none ] || fail "--sft-show has made a folder"
	train 2 $chats --template chatml --steps 2 --hash --strategy zero3
	want=$(hash)
	train 1 $chats --template chatml --steps 2 --hash
	[ -n "$want" ] || fail "no hash of chats"
	refused "line 1: it has messages, which need a template" $chats
	refused "the template llama3 has the token <|start_header_id|>, which the tokenizer does not" $chats --template llama3
	refused "the template mistral needs a token of the beginning of a text" $chats --template mistral
	# without a template a completion ends with the token of the end, and a prompt begins as the tokenizer has it
	sed -n 2p $tmp/chats > $tmp/one
	train 1 $chats --sft $tmp/one --sft-show 5
	sed -n '/^[* ] /p' $tmp/out | awk '{ print $NF }' | tr '\n' ' ' > $tmp/shown
	[ "$(cat $tmp/shown)" = "<|begin|> a b <|endoftext|> " ] || fail "$(cat $tmp/out)"
	echo '{"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|begin|>", "model_max_length": 1000000000000000019884624838656}' > $tmp/model/tokenizer_config.json
	train 1 $chats --sft $tmp/one --sft-show 5
	grep -q '^\* *1001  <|im_end|>$' $tmp/out || fail "$(cat $tmp/out)"
	train 1 $chats --template mistral --sft-show 1
	grep -q '^<|begin|>\[INST\] Hi<|im_end|>\[/INST\]>>> Hello<|im_end|><<<\[INST\] x\[/INST\]>>> y<|im_end|><<<$' $tmp/out ||
		fail "$(cat $tmp/out)"
	echo '{"eos_token": ' > $tmp/model/tokenizer_config.json
	refused "$tmp/model/tokenizer_config.json, line" $chats --template chatml
	rm $tmp/model/tokenizer_config.json && mkfifo $tmp/model/tokenizer_config.json
	refused "$tmp/model/tokenizer_config.json is not a file of at most" $chats --template chatml
else
	echo "skipped: chats, as tokenizers need jansson, PCRE2 and utf8proc"
fi

exit $failed
