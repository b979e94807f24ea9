#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrt-ckpt convert --to gguf: models of each family, in each dtype, with tokenizers; all values and keys by a plain
# reader of the format. What readers lack, folders that contradict themselves, a full disk and a signal. With Python: the
# readers of gguf, transformers and llama.cpp, by gguf_readers.py.
skip() { echo "SKIP: $*"; exit 77; }
grep -q "^#define HAVE_JANSSON 1" config.h || skip "needs jansson"
tmp=tests/gguf.tmp
rm -rf $tmp && mkdir -p $tmp || exit 1
. "$srcdir/tests/harness/wait.sh"
trap 'end_background; rm -rf $tmp' EXIT
trap 'exit 1' HUP INT TERM
failed=0
fail() { echo "FAIL: $*" && failed=1; }

# expect STATUS WORDS COMMAND...: the status, and the words in its output
expect()
{
	status=$1 words=$2
	shift 2
	"$@" > $tmp/out 2>&1
	got=$?
	[ $got = "$status" ] || fail "$*: status $got, not $status: $(cat $tmp/out)"
	grep -q -e "$words" $tmp/out || fail "$*: not '$words', but $(cat $tmp/out)"
}

# gguf OPTIONS... IN OUT
gguf() { ./shardrt-ckpt convert --to gguf "$@"; }

# check FOLDER FILE: all values; $tmp/keys gets the keys and tensors
check() { tests/tools/test_gguf "$2" "$1" > $tmp/keys 2> $tmp/out || fail "$2 of $1: $(cat $tmp/out)"; }

# has LINES...: those of $tmp/keys
has()
{
	for line; do
		grep -qxF -e "$line" $tmp/keys || fail "no '$line', but $(grep -F -e "${line%[ \[]*}" $tmp/keys)"
	done
}

# ---- models with a vocabulary of bytes, trained for two steps so that norms are not 1, nor biases 0
i=0
while [ $i -lt 100 ]; do
	printf 'the %03d is\n' $((i * 7919 % 1000))
	i=$((i + 1))
done > $tmp/text
sizes='"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
	"num_key_value_heads": 2, "max_position_embeddings": 64, "vocab_size": 256'

# make NAME KEYS [OPTIONS...]: a folder
make()
{
	folder=$tmp/$1
	mkdir -p $folder
	echo "{$2}" > $folder/config.json
	shift 2
	./shardrt-train --init $folder/config.json --init-random --text $tmp/text --batch 2 --context 20 --steps 2 --lr 0.1 \
		--eval-every 0 --save $folder "$@" > $tmp/out 2>&1 || fail "$folder: $(cat $tmp/out)"
}

export SHARDRT_BACKEND=cpu
make llama "\"model_type\": \"llama\", $sizes, \"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-05"
gguf $tmp/llama $tmp/file > $tmp/out || fail "llama: $(cat $tmp/out)"
grep -qx "wrote $tmp/file: 20 tensors, no tokenizer (--tokenizer FOLDER names one)" $tmp/out || fail "llama: $(cat $tmp/out)"
check $tmp/llama $tmp/file
has "general.architecture llama" "general.file_type 0" "general.quantization_version 2" "llama.vocab_size 256" \
	"llama.context_length 64" "llama.embedding_length 32" "llama.block_count 2" "llama.feed_forward_length 48" \
	"llama.attention.head_count 4" "llama.attention.head_count_kv 2" "llama.attention.key_length 8" \
	"llama.attention.value_length 8" "llama.attention.layer_norm_rms_epsilon 1e-05" "llama.rope.dimension_count 8" \
	"llama.rope.freq_base 10000" "tokenizer.ggml.model none" "tensor token_embd.weight F32 [32,256]" \
	"tensor blk.1.attn_k.weight F32 [32,16]" "tensor blk.1.ffn_down.weight F32 [48,32]" "tensor output_norm.weight F32 [32]"
grep -q 'output.weight' $tmp/keys && grep 'tensor output.weight' $tmp/keys && fail "a tied head was written"
for dtype in f16:F16:1 bf16:BF16:32 q8_0:Q8_0:7; do
	type=${dtype#*:}
	gguf --dtype ${dtype%%:*} $tmp/llama $tmp/file > $tmp/out || fail "$dtype: $(cat $tmp/out)"
	check $tmp/llama $tmp/file
	has "general.file_type ${type#*:}" "tensor token_embd.weight ${type%:*} [32,256]" "tensor blk.0.attn_norm.weight F32 [32]"
done
has "tensor blk.0.ffn_down.weight F16 [48,32]" "tensor blk.0.ffn_up.weight Q8_0 [32,48]"

# A checkpoint has the same tensors and keys; its parameters are as in memory.
if grep -q '^#define HAVE_XXHASH 1' config.h && [ -x ./shardrun ]; then
	for model in llama gpt2 gpt_neox; do
		case $model in
		llama) keys="\"model_type\": \"llama\", $sizes" ;;
		gpt2) keys='"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 256' ;;
		gpt_neox) keys="\"model_type\": \"gpt_neox\", $sizes" ;;
		esac
		make saved.$model "$keys" --checkpoint $tmp/run.$model
		gguf $tmp/saved.$model $tmp/file > $tmp/out && gguf $tmp/run.$model $tmp/other > $tmp/out 2>&1 &&
			cmp $tmp/file $tmp/other || fail "$model: a checkpoint: $(cat $tmp/out)"
	done
fi

make mistral "\"model_type\": \"mistral\", $sizes, \"head_dim\": 12, \"sliding_window\": 9"
expect 0 'context_length is 9, the window' gguf $tmp/mistral $tmp/file
check $tmp/mistral $tmp/file
has "general.architecture llama" "llama.context_length 9" "llama.attention.key_length 12" "llama.rope.dimension_count 12" \
	"tensor output.weight F32 [32,256]" "tensor blk.0.attn_q.weight F32 [32,48]"
make llama3 "\"model_type\": \"llama\", $sizes, \"attention_bias\": true, \"rope_parameters\": {\"rope_type\": \"llama3\",
	\"rope_theta\": 500000.0, \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,
	\"original_max_position_embeddings\": 32}"
expect 0 'wrote' gguf $tmp/llama3 $tmp/file
check $tmp/llama3 $tmp/file
has "llama.rope.freq_base 500000" "tensor rope_freqs.weight F32 [4]" "tensor blk.0.attn_q.bias F32 [32]"
make qwen2 "\"model_type\": \"qwen2\", $sizes, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}"
expect 0 'wrote' gguf $tmp/qwen2 $tmp/file
check $tmp/qwen2 $tmp/file
has "general.architecture qwen2" "qwen2.rope.scaling.type linear" "qwen2.rope.scaling.factor 4" \
	"tensor blk.1.attn_v.bias F32 [16]"
make qwen3 "\"model_type\": \"qwen3\", $sizes, \"head_dim\": 16"
expect 0 'wrote' gguf $tmp/qwen3 $tmp/file
check $tmp/qwen3 $tmp/file
has "general.architecture qwen3" "qwen3.attention.key_length 16" "tensor blk.1.attn_q_norm.weight F32 [16]"
make olmo2 "\"model_type\": \"olmo2\", $sizes, \"tie_word_embeddings\": true"
expect 0 'wrote' gguf $tmp/olmo2 $tmp/file
check $tmp/olmo2 $tmp/file
has "general.architecture olmo2" "tensor blk.1.attn_k_norm.weight F32 [16]" "tensor output.weight F32 [32,256]" \
	"tensor blk.1.post_attention_norm.weight F32 [32]" "tensor blk.1.post_ffw_norm.weight F32 [32]"
gemma="\"model_type\": \"gemma3_text\", $sizes, \"head_dim\": 8, \"sliding_window\": 7, \"rope_theta\": 20000"
make gemma3 "$gemma, \"query_pre_attn_scalar\": 8, \"sliding_window_pattern\": 2, \"final_logit_softcapping\": 30"
expect 0 'wrote' gguf $tmp/gemma3 $tmp/file
check $tmp/gemma3 $tmp/file
has "general.architecture gemma3" "gemma3.context_length 64" "gemma3.attention.sliding_window 7" \
	"gemma3.attention.sliding_window_pattern 2" "gemma3.rope.freq_base_swa 10000" "gemma3.rope.freq_base 20000" \
	"gemma3.final_logit_softcapping 30" "tensor blk.1.ffn_norm.weight F32 [32]" "tensor blk.1.attn_k_norm.weight F32 [8]"
make gpt_neox "\"model_type\": \"gpt_neox\", $sizes, \"rotary_pct\": 0.5, \"attention_bias\": false,
	\"use_parallel_residual\": false"
expect 0 'wrote' gguf $tmp/gpt_neox $tmp/file
check $tmp/gpt_neox $tmp/file
has "general.architecture gptneox" "gptneox.use_parallel_residual false" "gptneox.rope.dimension_count 4" \
	"gptneox.attention.layer_norm_epsilon 1e-05" "tensor blk.0.attn_qkv.weight F32 [32,96]" \
	"tensor blk.0.attn_qkv.bias F32 [96]" "tensor blk.0.ffn_up.bias F32 [48]"
make gpt2 '"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 256, "n_inner": 48'
expect 0 'wrote' gguf --dtype bf16 $tmp/gpt2 $tmp/file
check $tmp/gpt2 $tmp/file
has "general.architecture gpt2" "gpt2.context_length 64" "tensor position_embd.weight F32 [32,64]" \
	"tensor blk.1.ffn_up.weight BF16 [32,48]" "tensor blk.1.attn_output.bias F32 [32]"

# ---- recorded models: values that are all live, some files in bf16, several files in a folder
cases=$SRT_GOLDEN_DIR/hf/cases
recorded=0
for case in "$cases"/hf_*; do
	[ -f "$case/model/config.json" ] || continue
	recorded=$((recorded + 1))
	name=${case##*/}
	for dtype in "" "--dtype q8_0" "--dtype f16"; do
		# shellcheck disable=SC2086
		if gguf $dtype "$case/model" $tmp/file > $tmp/out 2>&1; then
			check "$case/model" $tmp/file
		else
			grep -q "config.json: '.*': readers of GGUF .*; it cannot be a GGUF file" $tmp/out || fail "$name: $(cat $tmp/out)"
		fi
	done
done
[ $recorded -gt 0 ] || echo "skipped: recorded models (SRT_GOLDEN_DIR has none)"

# ---- what readers lack, by its key
refuse()
{
	mkdir -p $tmp/refused
	cp "$tmp/$1/model.safetensors" $tmp/refused
	echo "{$2}" > $tmp/refused/config.json
	expect 2 "config.json: '$3': $4.*; it cannot be a GGUF file" gguf $tmp/refused $tmp/none
}
refuse llama "\"model_type\": \"llama\", $sizes, \"tie_word_embeddings\": true, \"hidden_act\": \"gelu\"" hidden_act \
	'readers of GGUF have silu'
refuse qwen3 "\"model_type\": \"qwen3\", $sizes, \"head_dim\": 16, \"attention_bias\": true" attention_bias \
	'readers of GGUF have no such bias'
refuse qwen2 "\"model_type\": \"qwen2\", $sizes, \"partial_rotary_factor\": 0.5" partial_rotary_factor 'readers of GGUF rotate'
refuse qwen2 "\"model_type\": \"qwen2\", $sizes, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0,
	\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 32}" rope_type 'readers of GGUF have'
refuse gemma3 "$gemma, \"query_pre_attn_scalar\": 9, \"sliding_window_pattern\": 2" query_pre_attn_scalar 'readers of GGUF divide'
refuse gemma3 "$gemma, \"query_pre_attn_scalar\": 8, \"layer_types\": [\"full_attention\", \"sliding_attention\"]" layer_types \
	'readers of GGUF know'
refuse gpt2 '"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 256, "n_inner": 48,
	"scale_attn_weights": false' scale_attn_weights 'readers of GGUF divide'

# ---- folders that contradict themselves, and wrong options
config() { echo "{\"model_type\": \"llama\", $1, \"tie_word_embeddings\": true}" > $tmp/refused/config.json; }
cp $tmp/llama/model.safetensors $tmp/refused
for change in '"intermediate_size": 48:"intermediate_size": 47:describes 47 by 32' \
	'"num_key_value_heads": 2:"num_key_value_heads": 4:describes 32 by 32' \
	'"num_hidden_layers": 2:"num_hidden_layers": 1:are of different models' \
	'"num_hidden_layers": 2:"num_hidden_layers": 1000000000:has 20 tensors, but a model of 1000000000 layers' \
	'"vocab_size": 256:"vocab_size": 255:are of different models'; do
	old=$(echo "$change" | cut -d: -f1-2) new=$(echo "$change" | cut -d: -f3-4) words=$(echo "$change" | cut -d: -f5)
	config "$(echo "$sizes" | sed "s/$old/$new/")"
	expect 2 "$words" gguf $tmp/refused $tmp/none
done
config "$sizes, \"attention_bias\": true"
expect 2 'has 20 tensors, but a model of 2 layers has 28' gguf $tmp/refused $tmp/none
head -c 3000 $tmp/llama/model.safetensors > $tmp/refused/model.safetensors
expect 2 'safetensors file .*refused/model.safetensors: ' gguf $tmp/refused $tmp/none
cp $tmp/llama/model.safetensors $tmp/refused/weights
expect 2 'needs a folder of Hugging Face' gguf $tmp/refused/weights $tmp/none
expect 2 '--dtype must be f32, f16, bf16 or q8_0' gguf --dtype q4_0 $tmp/llama $tmp/none
expect 2 'must be f32' gguf --dtype 'f16 bf16' $tmp/llama $tmp/none
expect 2 'are for convert --to gguf' ./shardrt-ckpt convert --to hf --dtype f16 $tmp/llama $tmp/none
expect 2 'is no folder that has a tokenizer.json' gguf --tokenizer $tmp/llama $tmp/llama $tmp/none
: > $tmp/llama/tokenizer.model
expect 2 'tokenizer.model is not read' gguf $tmp/llama $tmp/none
rm $tmp/llama/tokenizer.model

# Values that a type does not have: 65520 rounds to infinity in F16, nothing that is infinite has a scale.
safetensors()
{
	printf "$(printf '\\%03o\\%03o' $((${#1} & 255)) $((${#1} >> 8)))\0\0\0\0\0\0%s" "$1"
}
cp $tmp/llama/config.json $tmp/refused
offset=$(($(od -An -tu4 -N4 $tmp/llama/model.safetensors) + 8))
large() # BYTES: the first four values of the file
{
	cp $tmp/llama/model.safetensors $tmp/refused
	printf "$1" | dd of=$tmp/refused/model.safetensors bs=1 seek=$offset conv=notrunc 2> /dev/null
}
large '\000\360\177\107' # 65520
expect 2 "has values near 65520, which F16 cannot have: choose --dtype bf16 or f32" gguf --dtype f16 $tmp/refused $tmp/none
expect 0 'wrote' gguf --dtype q8_0 $tmp/refused $tmp/file
check $tmp/refused $tmp/file
large '\000\357\177\107' # 65519
expect 0 'wrote' gguf --dtype f16 $tmp/refused $tmp/file
check $tmp/refused $tmp/file
large '\000\000\200\177' # infinity
expect 2 "near inf, which Q8_0 cannot have" gguf --dtype q8_0 $tmp/refused $tmp/none
expect 0 'wrote' gguf --dtype f16 $tmp/refused $tmp/file
large '\100\124\011\113' # 9e6 / 127 is infinite in F16
expect 2 "near 9e+06, which Q8_0 cannot have" gguf --dtype q8_0 $tmp/refused $tmp/none
large '\000\000\376\102\000\000\000\077\000\000\300\077\000\000\040\300' # 127, 0.5, 1.5, -2.5: ties of Q8_0
expect 0 'wrote' gguf --dtype q8_0 $tmp/refused $tmp/file
check $tmp/refused $tmp/file
# ties of F16 and BF16, subnormal numbers of float and of F16
large '\000\020\200\077\000\060\200\077\001\000\000\000\000\000\100\063'
for dtype in f16 bf16 q8_0; do
	expect 0 'wrote' gguf --dtype $dtype $tmp/refused $tmp/file
	check $tmp/refused $tmp/file
done
[ ! -e $tmp/none ] || fail "a conversion that failed left a file"

# ---- a full disk and a signal leave the earlier file
echo earlier > $tmp/file
(trap '' XFSZ && ulimit -f 8 && exec ./shardrt-ckpt convert --to gguf $tmp/llama $tmp/file) > $tmp/out 2>&1
[ $? = 2 ] && grep -q "file.tmp-.*: File too large" $tmp/out || fail "a full disk: $(cat $tmp/out)"
expect 2 'is not a regular file' gguf $tmp/llama /dev/full
has_temporary() { [ -n "$(find $tmp -name 'file.tmp-*')" ]; }
nbytes=$((256 * 4 * 262144)) # a hole of 256 MiB for the embedding
header="{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[262144,256],\"data_offsets\":[0,$nbytes]}"
at=$nbytes
for tensor in norm:256 layers.0.input_layernorm:256 layers.0.post_attention_layernorm:256 layers.0.self_attn.q_proj:256,256 \
	layers.0.self_attn.k_proj:256,256 layers.0.self_attn.v_proj:256,256 layers.0.self_attn.o_proj:256,256 \
	layers.0.mlp.gate_proj:256,256 layers.0.mlp.up_proj:256,256 layers.0.mlp.down_proj:256,256; do
	case $tensor in *,*) n=262144 ;; *) n=1024 ;; esac
	header="$header,\"model.${tensor%:*}.weight\":{\"dtype\":\"F32\",\"shape\":[${tensor#*:}],\"data_offsets\":[$at,$((at + n))]}"
	at=$((at + n))
done
mkdir $tmp/large
safetensors "$header}" > $tmp/large/model.safetensors
truncate -s $(($(wc -c < $tmp/large/model.safetensors) + at)) $tmp/large/model.safetensors
echo '{"model_type": "llama", "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2,
	"max_position_embeddings": 64, "vocab_size": 262144, "tie_word_embeddings": true}' > $tmp/large/config.json
status=0 tries=0
while [ $status = 0 ] && [ $tries -lt 20 ]; do
	echo earlier > $tmp/file
	./shardrt-ckpt convert --to gguf --dtype q8_0 $tmp/large $tmp/file > $tmp/out 2>&1 & started
	await_of $started has_temporary
	kill -TERM $started 2> /dev/null
	reap $started
	tries=$((tries + 1))
done
[ $status -gt 128 ] || fail "SIGTERM: status $status: $(cat $tmp/out)"
! has_temporary || fail "SIGTERM: a temporary file is left"
[ "$(cat $tmp/file)" = earlier ] || fail "the earlier file has changed"
rm -rf $tmp/large

# ---- tokenizers
if ! ./shardrt-info --features | grep -q '^Hugging Face tokenizers  *built'; then
	expect 2 'configure again' gguf --tokenizer "$srcdir/tests/models" $tmp/llama $tmp/none
	echo "skipped: tokenizers need jansson, PCRE2 and utf8proc"
	exit $failed
fi
# with FOLDER KIND PRE: the folder's tokenizer in a file of a model with more tokens than it has
with()
{
	vocab=$(sed 's/"ids": \[[0-9, ]*\]//g' $1/tokenizer.json | tr ',{}' '\n\n\n' |
		sed -n 's/.*: *\([0-9][0-9]*\)$/\1/p' | sort -n | tail -n 1)
	echo "{\"model_type\": \"llama\", $sizes, \"bos_token_id\": 1, \"pad_token_id\": 2}" | sed "s/256/$((vocab + 3))/; s/: 2,/: 1,/; s/: 32,/: 8,/" \
		> $1/config.json
	./shardrt-train --init $1/config.json --init-random --text $tmp/text --batch 1 --context 20 --steps 0 --eval-every 0 \
		--save $1 > $tmp/out 2>&1 || fail "$1: $(cat $tmp/out)"
	expect 0 'wrote .* tensors$' gguf $1 $tmp/file
	check $1 $tmp/file
	has "tokenizer.ggml.model $2" "tokenizer.ggml.pre $3" "tokenizer.ggml.tokens [$((vocab + 3))]" \
		"tokenizer.ggml.token_type [$((vocab + 3))]"
}
mkdir $tmp/words
cp "$srcdir/tests/models/tokenizer.json" $tmp/words && chmod u+w $tmp/words/tokenizer.json || exit 1
echo '{"model_max_length": 1000000000000000019884624838656, "bos_token": "<|begin|>", "eos_token": {"content": "<|endoftext|>"},
	"chat_template": [{"name": "tools", "template": "no"}, {"name": "default", "template": "{{ messages }}"}]}' \
	> $tmp/words/tokenizer_config.json
with $tmp/words gpt2 dbrx
has "tokenizer.ggml.bos_token_id 0" "tokenizer.ggml.eos_token_id 1" "tokenizer.ggml.add_bos_token true" \
	"tokenizer.ggml.add_eos_token false" "tokenizer.ggml.padding_token_id 2" "tokenizer.chat_template {{ messages }}"
echo '{"add_bos_token": false, "eos_token": "<|endoftext|>"}' > $tmp/words/tokenizer_config.json
printf 'a template' > $tmp/words/chat_template.jinja
expect 0 'wrote' gguf $tmp/words $tmp/file
check $tmp/words $tmp/file
has "tokenizer.ggml.bos_token_id 0" "tokenizer.ggml.add_bos_token false" "tokenizer.chat_template a template"
expect 2 'the tokenizer has ids up to [0-9]*, but the model has a vocabulary of 256' gguf --tokenizer $tmp/words $tmp/llama $tmp/none

# change EXPRESSION WORDS: of tokenizer.json
cp $tmp/words/tokenizer.json $tmp/kept
change()
{
	sed "$1" $tmp/kept > $tmp/words/tokenizer.json
	expect 2 "words/tokenizer.json: $2" gguf $tmp/words $tmp/none
}
change 's/{1,3}/{1,4}/' 'readers of GGUF know no tokenizer whose pre_tokenizer is {"type":"Sequence"'
change 's/"NFC"/"NFKC"/' 'readers of GGUF know no tokenizer whose normalizer is {"type":"NFKC"}'
change 's/"add_prefix_space": false/"add_prefix_space": true/' 'readers of GGUF know no tokenizer whose pre_tokenizer'
change 's/"byte_fallback": false/"byte_fallback": true/' 'readers of GGUF know no tokenizer whose normalizer'
change 's/"Isolated"/"Removed"/' 'readers of GGUF know no tokenizer whose pre_tokenizer'
change 's/"model"/"modell"/' 'tokenizer.json has the key'
sed 's/"ignore_merges": false/"ignore_merges": true/' $tmp/kept > $tmp/words/tokenizer.json
expect 0 'wrote' gguf $tmp/words $tmp/file
check $tmp/words $tmp/file
has "tokenizer.ggml.pre llama-bpe"
cp $tmp/kept $tmp/words/tokenizer.json
echo '{"bos_token": "a"}' > $tmp/words/tokenizer_config.json
expect 2 'post_processor adds tokens that are not the bos_token' gguf $tmp/words $tmp/none
echo '{' > $tmp/words/tokenizer_config.json
expect 2 'tokenizer_config.json: line [0-9]*: it is not a JSON object' gguf $tmp/words $tmp/none
echo '{}' > $tmp/words/tokenizer_config.json
printf 'a\377' > $tmp/words/chat_template.jinja
expect 2 'chat_template.jinja is not UTF-8' gguf $tmp/words $tmp/none
rm $tmp/words/chat_template.jinja
[ ! -e $tmp/none ] || fail "a conversion that failed left a file"
for kind in 1:gpt2:smollm 2:gpt2:llama-bpe 3:llama:default 4:gpt2:qwen2 5:gpt2:gpt-2; do
	number=${kind%%:*} kind=${kind#*:}
	[ -f "$cases/tokenizer_$number/tokenizer.json" ] || { echo "skipped: tokenizer_$number is not there" && continue; }
	mkdir $tmp/tokenizer_$number
	cp "$cases/tokenizer_$number/tokenizer.json" $tmp/tokenizer_$number
	with $tmp/tokenizer_$number ${kind%:*} ${kind#*:}
	[ $number != 3 ] || has "tokenizer.ggml.add_space_prefix true" "tokenizer.ggml.unknown_token_id 0" "tokenizer.ggml.add_bos_token true"
done

# ---- other readers
python=${PYTHON:-python3}
if ! $python -c 'import gguf, numpy' 2> /dev/null; then
	echo "skipped: other readers (no Python with gguf; PYTHON names another one)"
	exit $failed
fi
$python "$srcdir/tests/tools/gguf_readers.py" ./shardrt-ckpt $tmp "$cases" || fail "other readers"
exit $failed
