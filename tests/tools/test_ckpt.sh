#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrt-ckpt: tensors listed, hashed and compared; a GPT converted to the names of Hugging Face and back without a
# changed bit. With Python: the transposes by value with safetensors and numpy; with transformers and torch, a random
# GPT-2 has the same loss there and here, in both directions.
skip() { echo "SKIP: $*"; exit 77; }
[ -x ./shardrun ] || skip "shardrun was not built"
tmp=tests/ckpt.tmp
rm -rf $tmp && mkdir -p $tmp || exit 1
. "$srcdir/tests/harness/wait.sh"
trap 'end_background; rm -rf $tmp' EXIT
trap 'exit 1' HUP INT TERM
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

# expect STATUS WORDS COMMAND...: the status, and the words in its output; "": there is none
expect()
{
	status=$1 words=$2
	shift 2
	"$@" > $tmp/out 2>&1
	got=$?
	[ $got = "$status" ] || fail "$*: status $got, not $status: $(cat $tmp/out)"
	[ -n "$words" ] || [ ! -s $tmp/out ] || fail "$*: $(cat $tmp/out)"
	[ -z "$words" ] || grep -q -e "$words" $tmp/out || fail "$*: not '$words', but $(cat $tmp/out)"
}

# train OPTIONS...
train()
{
	SHARDRT_BACKEND=cpu ./shardrun -n 2 ./shardrt-train --batch 4 "$@" > $tmp/train 2>&1 || fail "$*: $(cat $tmp/train)"
}

# safetensors HEADER: a file with this header and no data
safetensors()
{
	printf "$(printf '\\%03o\\%03o' $((${#1} & 255)) $((${#1} >> 8)))\0\0\0\0\0\0%s" "$1"
}

i=0
while [ $i -lt 300 ]; do
	echo "number $((i * 7919 % 1000))"
	i=$((i + 1))
done > $tmp/text
model="--text $tmp/text --preset gpt2-124m --layers 2 --heads 2 --width 24 --context 20 --eval-every 0"
hash=
grep -q '^#define HAVE_XXHASH 1' config.h && hash=--hash
train $model --steps 2 --save $tmp/a $hash
mv $tmp/train $tmp/trained
train $model --steps 3 --save $tmp/b

expect 0 '^28 tensors, 21120 elements, 84480 bytes$' ./shardrt-ckpt ls $tmp/a
expect 0 '^F32 *\[72,24\] *6912  blocks.1.attn.qkv.weight$' ./shardrt-ckpt ls $tmp/a
expect 1 '^wte.weight: [0-9]* of 6144 elements differ, by 0\.00[0-9]* at most$' ./shardrt-ckpt diff $tmp/a $tmp/b
expect 0 '' ./shardrt-ckpt diff $tmp/a $tmp/a

mkdir $tmp/hf
expect 0 'wrote .*: 28 tensors' ./shardrt-ckpt convert --to hf $tmp/a $tmp/hf/model.safetensors
expect 0 '^F32 *\[24,72\] *6912  transformer.h.1.attn.c_attn.weight$' ./shardrt-ckpt ls $tmp/hf/model.safetensors
expect 0 'wrote .*: 28 tensors' ./shardrt-ckpt convert --to shardrt $tmp/hf/model.safetensors $tmp/again
expect 0 '' ./shardrt-ckpt diff $tmp/a $tmp/again
expect 1 'blocks.0.attn.proj.bias: only in .*/a$' ./shardrt-ckpt diff $tmp/a $tmp/hf/model.safetensors
expect 1 'only in .*/model.safetensors$' ./shardrt-ckpt diff $tmp/a $tmp/hf/model.safetensors
if ./shardrt-ckpt hash $tmp/a > $tmp/hash 2>&1; then
	[ "$(sed -n '1s/ .*//p' $tmp/hash)" = "$(./shardrt-ckpt hash $tmp/again | sed -n '1s/ .*//p')" ] || fail "hashes differ"
	[ "$(sed -n '1s/ .*//p' $tmp/hash)" != "$(./shardrt-ckpt hash $tmp/b | sed -n '1s/ .*//p')" ] || fail "hashes are equal"
	trained=$(sed -n 's/^hash: numerics [0-9]* [a-z]*, /parameters: /p' $tmp/trained)
	[ -n "$trained" ] && [ "$(sed 1d $tmp/hash)" = "$trained" ] || fail "not '$trained', but $(cat $tmp/hash)"
	safetensors '{"count":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' > $tmp/claim
	expect 0 "^shardrt-ckpt: $tmp/claim: no hash of the parameters: .* 'count' has dtype U8" ./shardrt-ckpt hash $tmp/claim
	expect 0 "^[0-9a-f]*  $tmp/claim\$" ./shardrt-ckpt hash $tmp/claim
	! grep -q '^parameters' $tmp/out || fail "a hash of parameters that are not known: $(cat $tmp/out)"
else
	grep -q 'needs libxxhash' $tmp/hash || fail "hash: $(cat $tmp/hash)"
fi
expect 2 'has 2 heads, not 5' ./shardrt-ckpt convert --to shardrt --heads 5 $tmp/hf/model.safetensors $tmp/c
# Reliability: config.json and the tensors next to it are of different models | a model of what was found | an error with
# both sizes
for what in '"n_layer": 5' '"n_embd":48' '"n_positions" : 21' '"vocab_size": 50257' '"n_inner": 97'; do
	cp $tmp/hf/config.json $tmp/saved.json
	key=${what%%:*} key=$(echo $key | tr -d '" ')
	sed "s/\"$key\": [0-9]*/$what/" $tmp/saved.json > $tmp/hf/config.json
	expect 2 "config.json in the folder of $tmp/hf/model.safetensors has $key [0-9]*, but the tensors have [0-9]*: it is" \
		./shardrt-ckpt convert --to shardrt $tmp/hf/model.safetensors $tmp/c
	cp $tmp/hf/model.safetensors $tmp/theirs
	expect 2 "has $key [0-9]*, but" ./shardrt-ckpt convert --to hf $tmp/a $tmp/hf/model.safetensors
	cmp -s $tmp/theirs $tmp/hf/model.safetensors || fail "convert next to another config.json has written"
	mv $tmp/saved.json $tmp/hf/config.json
done
# a key of an object within it is another one
cp $tmp/hf/config.json $tmp/saved.json
{ printf '{"task": {"n_layer": 7, "a": "\\"n_layer\\": 8"}, ' && sed 1d $tmp/saved.json; } > $tmp/hf/config.json
expect 0 'wrote .*: 28 tensors' ./shardrt-ckpt convert --to shardrt $tmp/hf/model.safetensors $tmp/again
expect 0 '' ./shardrt-ckpt diff $tmp/a $tmp/again
echo '{}' > $tmp/hf/config.json
expect 0 'config.json was there and is unchanged' ./shardrt-ckpt convert --to hf $tmp/a $tmp/hf/model.safetensors
grep -qx '{}' $tmp/hf/config.json || fail "config.json was changed"

expect 2 'a command is missing' ./shardrt-ckpt
expect 2 "unknown command 'list'" ./shardrt-ckpt list $tmp/a
expect 2 'diff needs two files' ./shardrt-ckpt diff $tmp/a
expect 2 'convert needs --to' ./shardrt-ckpt convert $tmp/a $tmp/c
expect 2 'ls has no option --to' ./shardrt-ckpt ls --to hf $tmp/a
expect 2 'must be hf, shardrt or gguf' ./shardrt-ckpt convert --to onnx $tmp/a $tmp/c
expect 2 'whole number' ./shardrt-ckpt convert --to shardrt --heads 0 $tmp/a $tmp/c
expect 2 'cannot open .*missing: No such file' ./shardrt-ckpt ls $tmp/missing
expect 2 'safetensors file .*text: ' ./shardrt-ckpt hash $tmp/text
expect 2 'no tensor ln_f.weight' ./shardrt-ckpt convert --to shardrt $tmp/a $tmp/c
expect 2 'no model sizes in its metadata' ./shardrt-ckpt convert --to hf $tmp/hf/model.safetensors $tmp/c
expect 2 'cannot be divided among 5 heads' ./shardrt-ckpt convert --to shardrt --heads 5 $tmp/hf/model.safetensors $tmp/c

# Files that claim a model that they do not have; names that could drive a terminal.
sizes='heads=2 width=16 context=16 vocab=256 mult=4 tied=1 attn_bias=0'
for claim in "50000000:has 0 tensors, but a model of 50000000 layers" "999999999999999999:layers must be from 1"; do
	safetensors "{\"__metadata__\":{\"shardrt.gpt\":\"layers=${claim%%:*} $sizes\"}}" > $tmp/claim
	expect 2 "${claim#*:}" ./shardrt-ckpt convert --to hf $tmp/claim $tmp/c
done
# gpt2 SHAPE_OF_C_FC WIDTH: a GPT-2 without values
gpt2()
{
	shape='"dtype":"F32","data_offsets":[0,0],"shape":'
	safetensors "{\"ln_f.weight\":{${shape}[0]},\"wte.weight\":{${shape}[0,$2]},\"wpe.weight\":{${shape}[0,64]},\"h.0.mlp.c_fc.weight\":{${shape}$1}}" > $tmp/claim
}
gpt2 '[0,64]' 0
expect 2 'must be a multiple of the width, 0' ./shardrt-ckpt convert --to shardrt $tmp/claim $tmp/c
gpt2 '[0,100]' 64
expect 2 'must be a multiple of the width, 64' ./shardrt-ckpt convert --to shardrt $tmp/claim $tmp/c
gpt2 '[0,256]' 64
sed 's/"ln_f.weight"/"h.2.ln_1.weight":{"dtype":"F32","data_offsets":[0,0],"shape":[0]},&/' $tmp/claim | tail -c +9 > $tmp/other
safetensors "$(cat $tmp/other)" > $tmp/gap
expect 2 'has tensors of layer 2 (h.2), but no h.1.ln_1.weight: tensors are missing' ./shardrt-ckpt convert --to shardrt $tmp/gap $tmp/c
expect 2 'context must be from 1' ./shardrt-ckpt convert --to shardrt $tmp/claim $tmp/c
gpt2 '[0]' 64
expect 2 'has 1 dimensions, but a GPT-2 of Hugging Face has a matrix' ./shardrt-ckpt convert --to shardrt $tmp/claim $tmp/c

# Reliability: a file or folder of another program in the place of a safetensors file | "its header claims
# 2336927755350992246 bytes" | a sentence that says what it is and what to do
#
# other WORDS BYTES: a file that begins with these bytes
other()
{
	{ printf "$2"; cat $tmp/text; } > $tmp/other
	expect 2 "^shardrt-ckpt: safetensors file $tmp/other: it is $1" ./shardrt-ckpt ls $tmp/other
}
other 'no safetensors file, but a pointer of Git LFS.* git lfs pull' 'version https://git-lfs.github.com/spec/v1\noid'
other 'no safetensors file, but a zip archive, as torch.save() .*safetensors.torch.save_file()' 'PK\003\004\000\000\010\010'
other 'no safetensors file, but a pickle of Python' '\200\002\212\012l\374\234F\371'
other 'no safetensors file, but a GGUF file' 'GGUF\003\000\000\000'
other 'no safetensors file, but an HDF5 file' '\211HDF\r\n\032\n'
other 'no safetensors file, but a NumPy array' '\223NUMPY\001\000'
other 'no safetensors file, but compressed by gzip: unpack it' '\037\213\010\000'
other 'no safetensors file, but a page of HTML, which was downloaded' '<!DOCTYPE html>\n<html>'
other 'no safetensors file, but a file of tokens of llm.c: .*--tokens' '\210\330\064\001\001\000\000\000'
other 'no safetensors file, but the manifest of a checkpoint: name its folder' '{"shardrt_checkpoint":1,'
other 'no safetensors file, but JSON text' '{"n_layer": 12, '
other 'the index of a model of several files: call it model.safetensors.index.json' '{\n  "metadata": {"total_size": 548}, "weight_map": {'
printf GGUF > $tmp/other
expect 2 'but a GGUF file' ./shardrt-ckpt ls $tmp/other
printf '' > $tmp/other
expect 2 'it has 0 bytes, too few' ./shardrt-ckpt ls $tmp/other
mkdir $tmp/folder && : > $tmp/folder/model.safetensors.index.json
expect 2 'the index .*/folder/model.safetensors.index.json: byte 0 of the index' ./shardrt-ckpt ls $tmp/folder
: > $tmp/folder/model.safetensors
expect 2 'safetensors file .*/folder/model.safetensors: it has 0 bytes' ./shardrt-ckpt ls $tmp/folder
mv $tmp/folder/model.safetensors $tmp/folder/pytorch_model.bin && rm $tmp/folder/*.json
expect 2 'it has pytorch_model.bin: save its tensors' ./shardrt-ckpt ls $tmp/folder

# Dtypes and dimensions that no parameter has.
{ safetensors '{"x":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}' && printf ab; } > $tmp/packed
{ safetensors '{"x":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}' && printf ac; } > $tmp/other
expect 0 '^F4 *\[4\] *2  x$' ./shardrt-ckpt ls $tmp/packed
expect 1 '^x: 1 of 2 bytes differ$' ./shardrt-ckpt diff $tmp/packed $tmp/other
expect 2 "tensor 'x' of .* has dtype F4" ./shardrt-ckpt merge $tmp/packed $tmp/c
safetensors '{"x":{"dtype":"F32","shape":[0,1,1,1,1,1,1,1,1],"data_offsets":[0,0]}}' > $tmp/other
expect 2 "'x' has 9 dimensions, more than 8" ./shardrt-ckpt ls $tmp/other

safetensors '{"\u001b]0;owned\u0007\u009b1m":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' > $tmp/escapes
expect 0 '0  ?]0;owned???1m$' ./shardrt-ckpt ls $tmp/escapes
expect 1 '^?]0;owned???1m: only in' ./shardrt-ckpt diff $tmp/escapes $tmp/a
[ ! -e $tmp/c ] || fail "a conversion that failed left a file"

# Reliability: a signal to shardrt-ckpt while it writes | a temporary file of the full size stays | nothing stays, and the
# earlier file is there
#
# The source is a hole, so it takes no space, but time. A merge that was quicker than the signal is tried again.
nbytes=256000000
safetensors "{\"x\":{\"dtype\":\"U8\",\"shape\":[$nbytes],\"data_offsets\":[0,$nbytes]}}" > $tmp/large
truncate -s $(($(wc -c < $tmp/large) + nbytes)) $tmp/large
has_temporary() { [ -n "$(find $tmp -name 'merged.tmp-*')" ]; }
for signal in TERM HUP; do
	status=0 tries=0
	while [ $status = 0 ] && [ $tries -lt 20 ]; do
		cp $tmp/packed $tmp/merged
		./shardrt-ckpt merge $tmp/large $tmp/merged > $tmp/out 2>&1 & started
		await_of $started has_temporary
		kill -$signal $started 2> /dev/null
		reap $started
		tries=$((tries + 1))
	done
	[ $status -gt 128 ] ||
		fail "merge and SIG$signal: status $status after $tries tries: $(cat $tmp/out)"
	grep -q "stopped by signal .*: nothing was written to $tmp/merged" $tmp/out || fail "SIG$signal: $(cat $tmp/out)"
	! has_temporary || fail "SIG$signal: a temporary file is left"
	cmp -s $tmp/packed $tmp/merged || fail "SIG$signal: the earlier file has changed"
done
rm -f $tmp/large

python=${PYTHON:-python3}
if ! $python -c 'import numpy, safetensors.numpy' 2> /dev/null; then
	echo "skipped: transposes by value (no Python with numpy and safetensors; PYTHON names another one)"
	exit $failed
fi
$python - $tmp <<'END' || fail "values in Python"
import sys
from safetensors.numpy import load_file, save_file
import numpy

folder = sys.argv[1]
ours, theirs = load_file(folder + "/a"), load_file(folder + "/hf/model.safetensors")
names = {"ln1": "ln_1", "ln2": "ln_2", "attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj", "fc": "mlp.c_fc",
         "out": "mlp.c_proj"}
seen = 0
for name, value in ours.items():
    part, kind = name.rsplit(".", 1)
    if part.startswith("blocks."):
        _, block, part = part.split(".", 2)
        other = "transformer.h.%s.%s.%s" % (block, names[part], kind)
        if kind == "weight" and not part.startswith("ln"):
            value = value.T
    else:
        other = "transformer.%s.%s" % ({"lnf": "ln_f"}.get(part, part), kind)
    assert numpy.array_equal(value, theirs[other]), (name, other)
    seen += 1
assert seen == len(theirs) == 28, (seen, len(theirs))

# As the files of the first GPT-2: no prefix, and the mask of the attention.
old = {name.replace("transformer.", ""): value for name, value in theirs.items()}
for block in range(2):
    old["h.%d.attn.bias" % block] = numpy.tril(numpy.ones((1, 1, 20, 20), dtype=numpy.float32))
    old["h.%d.attn.masked_bias" % block] = numpy.array(-1e4, dtype=numpy.float32)
save_file(old, folder + "/old")
END
expect 0 'wrote .*: 28 tensors' ./shardrt-ckpt convert --to shardrt --heads 2 $tmp/old $tmp/again
expect 0 '' ./shardrt-ckpt diff $tmp/a $tmp/again
train --text $tmp/text --steps 0 --eval-every 0 --init $tmp/old --heads 2 --save $tmp/again --strategy zero3
expect 0 '' ./shardrt-ckpt diff $tmp/a $tmp/again
grep -q 'not used' $tmp/train && fail "the mask of the attention is reported: $(cat $tmp/train)"

if ! $python -c 'import torch, transformers' 2> /dev/null; then
	echo "skipped: the loss of transformers (no Python with torch and transformers; PYTHON names another one)"
	exit $failed
fi
rm $tmp/hf/config.json
expect 0 'wrote .*: 28 tensors' ./shardrt-ckpt convert --to hf $tmp/a $tmp/hf/model.safetensors
cat > $tmp/loss.py <<'END'
# FOLDER CONTEXT VOCABULARY: the loss of GPT2LMHeadModel over the windows of a validation; makes the model if the
# folder is not there. Writes the tokens to FOLDER/tokens.
import os, struct, sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel

folder, context, vocab = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(3)
if not os.path.exists(folder):
    model = GPT2LMHeadModel(GPT2Config(vocab_size=vocab, n_positions=context, n_embd=48, n_layer=3, n_head=4))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(folder)
model = GPT2LMHeadModel.from_pretrained(folder).eval()
n = 1003
tokens = torch.randint(0, vocab, (n,)).tolist()
with open(folder + "/tokens", "wb") as f:
    f.write(struct.pack("<256i", 20240520, 1, n, *[0] * 253) + struct.pack("<%dH" % n, *tokens))
tail, total = tokens[n // 10 * 9 + n % 10 * 9 // 10:], 0.0
with torch.no_grad():
    for at in range(0, len(tail) - 1, context):
        window = tail[at:at + context + 1]
        logits = model(torch.tensor([window[:-1]])).logits[0]
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(window[1:]), reduction="sum").item()
print(total / (len(tail) - 1))
END
# same_loss FOLDER CONTEXT VOCABULARY
same_loss()
{
	theirs=$($python $tmp/loss.py "$@" 2> $tmp/err) || { fail "loss.py: $(cat $tmp/err)"; return; }
	rm -f $tmp/log
	train --init "$1/model.safetensors" --tokens "$1/tokens" --steps 0 --eval-every 1 --log $tmp/log
	ours=$(sed -n 's/.*"val_loss": \([0-9.]*\).*/\1/p' $tmp/log)
	echo "$1: the loss is $theirs in transformers, $ours in shardrt-train"
	awk -v a="$theirs" -v b="$ours" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-4 && d > -1e-4) }' ||
		fail "the loss differs"
}
same_loss $tmp/hf 20 256
same_loss $tmp/random 16 211
exit $failed
