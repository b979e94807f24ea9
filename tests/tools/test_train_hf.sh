#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrt-train on folders of Hugging Face: a config.json alone and --init-random, --save to a folder, in several files and
# other dtypes, into the folder of --init too; what is loaded again has the hash of what was saved. Checkpoints of such
# runs: resumed, started from and converted. Texts that are encoded.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
for package in JANSSON XXHASH; do
	grep -q "^#define HAVE_$package 1" config.h || skip "needs jansson and xxhash"
done
tmp=tests/train_hf.$SHARDRT_BACKEND.tmp
rm -rf $tmp && mkdir -p $tmp/llama $tmp/gpt2 $tmp/gpt_neox || exit 1
trap 'umount $tmp/disk 2> /dev/null; rm -rf $tmp' EXIT
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

cat > $tmp/llama/config.json << 'END'
{
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
  "vocab_size": 256, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": true,
  "torch_dtype" : "bfloat16"
}
END
cat > $tmp/gpt2/config.json << 'END'
{
  "architectures": ["GPT2LMHeadModel"],
  "model_type": "gpt2",
  "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 256,
  "bos_token_id": 0, "eos_token_id": 0
}
END
cat > $tmp/gpt_neox/config.json << 'END'
{
  "architectures": ["GPTNeoXForCausalLM"],
  "model_type": "gpt_neox",
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "max_position_embeddings": 64, "vocab_size": 256, "rotary_pct": 0.5,
  "dtype": null, "bos_token_id": 0, "eos_token_id": 0
}
END
i=0
while [ $i -lt 300 ]; do
	printf 'the %03d is\n' $((i * 7919 % 1000))
	i=$((i + 1))
done > $tmp/text
run="--text $tmp/text --batch 6 --context 20 --eval-every 0"

# hash RANKS OPTIONS...: prints the hash
hash()
{
	n=$1
	shift
	./shardrun -n "$n" ./shardrt-train $run "$@" --hash > $tmp/out 2>&1 || { cat $tmp/out >&2; return 1; }
	sed -n 's/^hash: numerics [0-9]* [a-z]*, xxh3-128 //p' $tmp/out
}

# refused WORDS OPTIONS...
refused()
{
	words=$1
	shift
	./shardrun -n 1 ./shardrt-train $run --steps 0 "$@" > $tmp/out 2>&1
	code=$?
	[ $code = 2 ] && grep -q -e "$words" $tmp/out || fail "$*: status $code, $(cat $tmp/out)"
}

# The dtype in a saved config.json, whose other lines are those of the folder.
check_config()
{
	grep -qE "\"(torch_)?dtype\" ?: \"$2\"" $tmp/saved/config.json || fail "$1: $(cat $tmp/saved/config.json)"
	grep -v dtype $tmp/saved/config.json > $tmp/config
	grep -v dtype $tmp/$1/config.json | cmp -s - $tmp/config || fail "$1: $(cat $tmp/saved/config.json)"
}

for model in llama gpt2 gpt_neox; do
	rm -rf $tmp/saved $tmp/shards
	echo '{"eos_token_id": 0}' > $tmp/$model/generation_config.json
	echo '#version: 0.2' > $tmp/$model/merges.txt
	trained=$(hash 2 --init $tmp/$model --init-random --steps 4 --lr 0.01 --strategy zero3 --save $tmp/saved)
	other=$(hash 2 --init $tmp/$model/config.json --init-random --steps 4 --lr 0.01 --save $tmp/shards --max-shard-size 16k)
	[ -n "$trained" ] || fail "$model: no hash"
	[ "$other" = "$trained" ] || fail "$model: replicated $other, not $trained"
	check_config $model float32
	for file in generation_config.json merges.txt; do
		cmp $tmp/$model/$file $tmp/saved/$file || fail "$model: $file"
	done
	[ "$(ls $tmp/shards/model-*-of-*.safetensors | wc -l)" -gt 3 ] || fail "$model: $(ls $tmp/shards)"
	./shardrt-ckpt diff $tmp/saved $tmp/shards > $tmp/out || fail "$model: $(cat $tmp/out)"
	for folder in saved shards; do
		loaded=$(hash 2 --init $tmp/$folder --steps 0 --save $tmp/$folder)
		[ "$loaded" = "$trained" ] || fail "$model: $folder is loaded with $loaded, not $trained"
	done
	./shardrt-ckpt diff $tmp/saved $tmp/shards > $tmp/out || fail "$model, saved again: $(cat $tmp/out)"
	[ ! -e $tmp/shards/model.safetensors.index.json ] || fail "$model: $(ls $tmp/shards)"
	# Rounded to bf16 by the save, and by a load of what was saved so.
	rounded=$(hash 2 --init $tmp/saved --steps 0 --save $tmp/saved --save-dtype bf16)
	[ "$rounded" = "$trained" ] || fail "$model: a save in bf16 has changed the parameters"
	check_config $model bfloat16
	loaded=$(hash 1 --init $tmp/saved --steps 0 --pure --dtype bf16)
	[ -n "$loaded" ] && [ "$(hash 2 --init $tmp/shards --steps 0 --pure --dtype bf16)" = "$loaded" ] ||
		fail "$model: in bf16"
	echo "$model: $trained"

	# A checkpoint has config.json: it is converted to the folder that --save writes, and is enough to go on from.
	long="--steps 4 --lr 0.01 --strategy zero3 --checkpoint $tmp/run.$model --save-every 2"
	for steps in 2 4; do
		resumed=$(hash 2 --init $tmp/$model --init-random $long --resume --save $tmp/again)
		[ $steps = 4 ] || rm -r $tmp/run.$model/step-0000000004 || fail "$model: no checkpoint of step 4"
		[ $steps = 4 ] || echo step-0000000002 > $tmp/run.$model/latest
	done
	grep -q "^resumed from $tmp/run.$model/step-0000000002\$" $tmp/out || fail "$model: not resumed: $(cat $tmp/out)"
	[ "$resumed" = "$trained" ] || fail "$model: resumed $resumed, not $trained"
	rm -rf $tmp/converted
	./shardrt-ckpt convert --to hf $tmp/run.$model $tmp/converted > $tmp/out 2>&1 || fail "$model: $(cat $tmp/out)"
	./shardrt-ckpt diff $tmp/converted $tmp/again > $tmp/out || fail "$model, converted: $(cat $tmp/out)"
	cmp $tmp/converted/config.json $tmp/again/config.json || fail "$model: another config.json"
	loaded=$(hash 2 --init $tmp/run.$model --steps 0 --save $tmp/converted)
	[ "$loaded" = "$trained" ] || fail "$model: the checkpoint is loaded with $loaded, not $trained"
	./shardrt-ckpt diff $tmp/converted $tmp/again > $tmp/out || fail "$model, from the checkpoint: $(cat $tmp/out)"
	cmp $tmp/converted/config.json $tmp/again/config.json || fail "$model: another config.json from the checkpoint"
done

# A text is encoded by the tokenizer of the folder, as shardrt-tokens encodes it.
mkdir $tmp/tokens
sed 's/"vocab_size": 256/"vocab_size": 1000/' $tmp/llama/config.json > $tmp/tokens/config.json
refused "there is no $tmp/tokens/tokenizer.json to encode it by, and the vocabulary of 1000 is not one of bytes" \
	--init $tmp/tokens --init-random
cp "$srcdir/tests/models/tokenizer.json" $tmp/tokens/tokenizer.json
if ./shardrt-info --features | grep -q '^Hugging Face tokenizers  *built'; then
	./shardrt-tokens encode --tokenizer $tmp/tokens $tmp/text $tmp/text.bin > $tmp/out || fail "$(cat $tmp/out)"
	train="--init $tmp/tokens --init-random --steps 4 --lr 0.01 --eval-every 2"
	encoded=$(hash 2 $train --save $tmp/tokens.out)
	tokens=$(run="--tokens $tmp/text.bin --batch 6 --context 20" && hash 2 $train)
	[ -n "$encoded" ] && [ "$encoded" = "$tokens" ] || fail "encoded $encoded, not $tokens"
	cmp $tmp/tokens/tokenizer.json $tmp/tokens.out/tokenizer.json || fail "no tokenizer.json"
	loaded=$(hash 1 --init $tmp/tokens.out --steps 1 --val $tmp/text)
	[ -n "$loaded" ] || fail "no hash"
	printf 'ab\377' > $tmp/bytes
	refused "the text $tmp/bytes: the text is not UTF-8: byte 2 is 0xff" --init $tmp/tokens.out --text $tmp/bytes
	sed 's/"vocab_size": 1000/"vocab_size": 257/' $tmp/tokens/config.json > $tmp/config
	cp $tmp/config $tmp/tokens/config.json
	refused "the vocabulary has 0 .. 256" --init $tmp/tokens --init-random
else
	echo "skipped: tokenizers need jansson, PCRE2 and utf8proc"
fi

# What does not fit.
mkdir $tmp/empty
refused "config.json: without weights it is for shardrt-train --init-random" --init "$tmp/llama"
refused "$tmp/empty/config.json: No such file" --init $tmp/empty --init-random
refused "init-random needs --init FOLDER" --init-random
refused "it exists and is no folder; a model of Hugging Face is saved to a folder" --init $tmp/saved --save $tmp/text
refused "are for a model of Hugging Face" --save $tmp/file --save-dtype bf16
refused "need --save FOLDER" --init $tmp/saved --save-dtype bf16
refused "needs a number of bytes, also with suffix k, m or g, from 1 on, not '3x'" --max-shard-size 3x
refused "cannot write --save $tmp/none/folder" --init $tmp/saved --save $tmp/none/folder

# Saves in between: a run that is killed leaves a folder that is complete.
rm -rf $tmp/saved
./shardrun -n 2 ./shardrt-train $run --init $tmp/gpt_neox --init-random --steps 100000 --save-every 2 --save $tmp/saved > $tmp/out 2>&1 &
job=$!
for _ in $(seq 600); do
	[ -e $tmp/saved/merges.txt ] && break
	sleep 0.1
done
kill -KILL $job
wait $job 2> /dev/null
[ -n "$(hash 1 --init $tmp/saved --steps 0)" ] || fail "after a kill: $(ls $tmp/saved)"

# A disk that is full at the last save: the folder is in TMPDIR.
mkdir $tmp/disk
if mount -t tmpfs -o size=1m none $tmp/disk 2> /dev/null; then
	TMPDIR=$PWD/$tmp ./shardrun -n 2 ./shardrt-train $run --init $tmp/gpt_neox --init-random --steps 100000 --save $tmp/disk/model \
		> $tmp/out 2>&1 &
	job=$!
	for _ in $(seq 600); do
		grep -q '^step' $tmp/out && break
		sleep 0.1
	done
	dd if=/dev/zero of=$tmp/disk/filler bs=1k 2> /dev/null
	./shardrun -n 1 ./shardrt-train $run --init $tmp/saved --steps 0 --save $tmp/disk/other > $tmp/refused 2>&1
	grep -q "cannot create a file of [0-9]* bytes in it: No space left on device" $tmp/refused || fail "$(cat $tmp/refused)"
	kill -TERM $job
	wait $job
	folder=$(sed -n 's/.*the parameters are in \(.*\), not in --save: .*/\1/p' $tmp/out)
	[ -n "$folder" ] && [ -n "$(hash 1 --init "$folder" --steps 0)" ] || fail "a full disk: $(cat $tmp/out)"
	umount $tmp/disk
else
	echo "skipped: a full disk, as no tmpfs can be mounted"
fi

exit $failed
