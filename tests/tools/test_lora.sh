#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Training of LoRA adapters: one hash on every device, with each strategy, flat, with offload, recomputation and resumed, of
# a base in fp32 and in bf16 (hash_matrix.def); one over numbers of ranks with the tree; tensor parallelism. Adapters are
# saved, loaded, merged and generated with; folders that do not fit are refused. PEFT reads what was saved, where python3
# has it. In make check each variant runs on one device, in check-long on all.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
for package in JANSSON XXHASH; do
	grep -q "^#define HAVE_$package 1" config.h || skip "needs jansson and xxhash"
done
tmp=tests/lora.$SHARDRT_BACKEND.tmp
rm -rf $tmp && mkdir -p $tmp || exit 1
trap 'rm -rf $tmp' EXIT
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

i=0
while [ $i -lt 200 ]; do
	echo "line $i of the text has the number $((i * 7919 % 10007))"
	i=$((i + 1))
done > $tmp/text
run="--text $tmp/text --batch 4 --context 32 --eval-every 0"
./shardrt-train $run --init "$srcdir/tests/tools/decoders/llama.json" --init-random --steps 0 --save $tmp/base > $tmp/out 2>&1 ||
	{ cat $tmp/out && exit 1; }
train="$run --init $tmp/base --steps 3 --lr 0.01 --clip 0.5 --schedule constant"

# hash RANKS OPTIONS...: prints the hash
hash()
{
	n=$1
	shift
	./shardrun -n "$n" ./shardrt-train $train "$@" --hash > $tmp/out 2>&1 || { tail -n 5 $tmp/out >&2; return 1; }
	sed -n 's/^hash: numerics [0-9]* exact, xxh3-128 //p' $tmp/out
}

# same LABEL OPTIONS...: the hash of two ranks is that of hash_matrix.def
same()
{
	label=$1
	shift
	got=$(hash 2 $lora "$@")
	[ "$got" = "$reference" ] || fail "$base, $label: '$got', not '$reference'"
}

seen=
for form in $forms; do
	use_form $form
	for base in fp32 bf16 compute; do
		case $base in
		fp32) lora="--lora r=4,alpha=8" ;;
		bf16) lora="--lora r=4,alpha=8 --base-dtype bf16" ;;
		compute) lora="--lora r=4,alpha=8,rslora,targets=q_proj+v_proj+down_proj --base-dtype bf16 --dtype bf16" ;;
		esac
		reference=$(sed -n "s/^lora 2 $base //p" "$srcdir/tests/tools/hash_matrix.def")
		same zero3 --strategy zero3
		case $SRT_TEST_LONG.$base.$SHARDRT_BACKEND.$seen in 1.* | .bf16.cpu.) ;; *) continue ;; esac
		for strategy in ddp zero1 zero2; do same $strategy --strategy $strategy; done
		same replicas --strategy hybrid --mesh replicate=2,shard=1
		same flat --strategy zero3 --flat views
		same padded --strategy zero2 --flat padded
		same offload --strategy zero3 --offload all
		same recomputation --strategy zero3 --recompute
		same kept --strategy zero3 --reshard never --threads 2
	done
	seen=1
	for base in bf16 int8; do
		tree="--lora r=4 --base-dtype $base --accumulate-mode tree --micro-batches 4"
		one=$(hash 1 $tree)
		for n in 2 4; do
			[ $n = 2 ] || [ -n "$SRT_TEST_LONG" ] || continue
			other=$(hash $n $tree --strategy zero3)
			[ -n "$one" ] && [ "$other" = "$one" ] || fail "tree, $base: $other on $n ranks, not $one"
		done
	done
done
[ "$SHARDRT_BACKEND" = cpu ] || exit $failed

# ---- resumed, with another strategy and flat units
lora="--lora r=4,alpha=8 --base-dtype bf16"
whole=$(hash 2 $lora --steps 4 --strategy zero3 --save $tmp/adapter)
hash 2 $lora --steps 2 --strategy zero3 --checkpoint $tmp/run > $tmp/half
resumed=$(hash 2 $lora --steps 4 --strategy zero2 --flat views --checkpoint $tmp/run --resume --save $tmp/again)
grep -q "^resumed from $tmp/run/step-0000000002\$" $tmp/out || fail "not resumed: $(cat $tmp/out)"
[ -n "$whole" ] && [ "$resumed" = "$whole" ] || fail "resumed: $resumed, not $whole"
cmp $tmp/adapter/adapter_model.safetensors $tmp/again/adapter_model.safetensors || fail "another adapter after a resumption"

# ---- saved, loaded, merged
loaded=$(hash 4 --base-dtype bf16 --adapter $tmp/adapter --steps 0 --strategy zero3)
[ "$loaded" = "$whole" ] || fail "the saved adapter is loaded with $loaded, not $whole"
./shardrt-ckpt ls $tmp/adapter/adapter_model.safetensors | grep -q "$(printf 'F32 .*base_model.model.model.layers.3.mlp.down_proj.lora_B.weight')" ||
	fail "$(./shardrt-ckpt ls $tmp/adapter/adapter_model.safetensors | head -n 3)"
grep -q '"target_modules": \["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"\]' $tmp/adapter/adapter_config.json ||
	fail "$(cat $tmp/adapter/adapter_config.json)"
./shardrt-ckpt merge-lora $tmp/base $tmp/adapter $tmp/merged > $tmp/out 2>&1 || fail "merge-lora: $(cat $tmp/out)"
loss() { ./shardrt-train --text $tmp/text --batch 4 --context 32 --eval "$@" 2>&1 | sed -n 's/^loss \([0-9.]*\) .*/\1/p'; }
base_loss=$(loss --init $tmp/base) adapter_loss=$(loss --init $tmp/base --adapter $tmp/adapter) merged_loss=$(loss --init $tmp/merged)
echo "loss $base_loss, with the adapter $adapter_loss, merged $merged_loss"
awk "BEGIN { exit !($base_loss - $adapter_loss > 0.1 && $adapter_loss - $merged_loss < 1e-5 && $merged_loss - $adapter_loss < 1e-5) }" ||
	fail "losses"
generate="--prompt line --max-tokens 8 --quiet --json"
./shardrt-generate $tmp/base --adapter $tmp/adapter $generate | sed 's/.*"ids": \(\[[^]]*\]\).*/\1/' > $tmp/with
./shardrt-generate $tmp/merged $generate | sed 's/.*"ids": \(\[[^]]*\]\).*/\1/' > $tmp/merged.ids
[ -s $tmp/with ] && cmp $tmp/with $tmp/merged.ids || fail "generated: $(cat $tmp/with $tmp/merged.ids)"
# of a base in 16 bits: the sum in fp32, rounded once; with an adapter that changes nothing, the base
hash 1 --lora r=2 --steps 0 --save $tmp/nothing > $tmp/out
for dtype in bf16 f16; do
	rm -rf $tmp/base16 $tmp/base32 $tmp/merged16 $tmp/rounded
	hash 1 --steps 0 --save $tmp/base16 --save-dtype $dtype > $tmp/out
	hash 1 --init $tmp/base16 --steps 0 --save $tmp/base32 > $tmp/out
	./shardrt-ckpt merge-lora $tmp/base16 $tmp/adapter $tmp/merged16 > $tmp/out 2>&1 || fail "merge-lora: $(cat $tmp/out)"
	./shardrt-ckpt merge-lora $tmp/base32 $tmp/adapter $tmp/merged > $tmp/out 2>&1 || fail "merge-lora: $(cat $tmp/out)"
	hash 1 --init $tmp/merged --steps 0 --save $tmp/rounded --save-dtype $dtype > $tmp/out
	./shardrt-ckpt diff $tmp/merged16 $tmp/rounded > $tmp/out || fail "$dtype, merged: $(head -n 3 $tmp/out)"
	./shardrt-ckpt merge-lora $tmp/base16 $tmp/nothing $tmp/merged16 > $tmp/out 2>&1 || fail "merge-lora: $(cat $tmp/out)"
	./shardrt-ckpt diff $tmp/merged16 $tmp/base16 > $tmp/out || fail "$dtype, nothing: $(head -n 3 $tmp/out)"
done
tp=$(hash 2 --lora r=4 --mesh tp=2)
[ -n "$tp" ] || fail "tensor parallelism"

# ---- PEFT reads the folder, with the loss that was trained to
cat > $tmp/load.py << 'END'
import sys
try:
    import torch, transformers, peft
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(0)
base, adapter, text, want = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
model = peft.PeftModel.from_pretrained(model, adapter).eval()
data, n = torch.tensor(list(open(text, "rb").read())), 32
with torch.no_grad():
    end, total, count = len(data) // n * n, 0, 0
    for x in (data[:end].view(-1, n), data[end:][None]):  # windows, in which each token but the first is predicted
        logits, targets = model(input_ids=x).logits[:, :-1].flatten(0, 1), x[:, 1:].flatten()
        total += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
        count += len(targets)
    loss = total / count
print(f"PEFT {peft.__version__}: loss {loss:.6f}, here {want}")
sys.exit(abs(loss - want) > 1e-5)
END
if command -v python3 > /dev/null; then
	python3 $tmp/load.py $tmp/base $tmp/adapter $tmp/text $adapter_loss 2> $tmp/err || fail "PEFT: $(tail -n 3 $tmp/err)"
fi

# ---- what does not fit
# refused WORDS COMMAND...
refused()
{
	words=$1
	shift
	"$@" > $tmp/out 2>&1
	code=$?
	[ $code = 2 ] && grep -qF -e "$words" $tmp/out || fail "$*: status $code, $(cat $tmp/out)"
}
start="./shardrt-train $run --init $tmp/base --steps 0"
refused "r must be a whole number" $start --lora r=1.5
refused "alpha must be a number above 0" $start --lora alpha=0
refused "--lora takes r=N" $start --lora rank=4
refused "targets and match are both given" $start --lora targets=q_proj,match=.*
refused "target 'foo' matches no module" $start --lora targets=q_proj+foo
refused "only the Linear layers" $start --lora targets=lm_head
refused "are both given" $start --lora r=4 --adapter $tmp/adapter
refused "--base-dtype needs --lora" $start --base-dtype bf16
refused "merge-lora writes the model" $start --lora r=4 --save $tmp/x --save-dtype bf16
refused "it exists and is no folder; adapters are saved to a folder" $start --lora r=4 --save $tmp/text
refused "is a checkpoint of a run that trains adapters" $start --init $tmp/run
refused "lora r=4 alpha=8 modules=28, but the options give" ./shardrt-train $train $lora --lora r=4,alpha=16 --checkpoint $tmp/run --resume
refused "alpha=8 modules=4" ./shardrt-train $train $lora --lora r=4,alpha=8,targets=q_proj --checkpoint $tmp/run --resume
refused "No such file" $start --adapter $tmp/text.none
refused "merge-lora needs three folders" ./shardrt-ckpt merge-lora $tmp/base $tmp/adapter
refused "are one folder" ./shardrt-ckpt merge-lora $tmp/base $tmp/adapter $tmp/base

# spoiled WORDS SED: the folder of adapters with a changed adapter_config.json; trained, generated with and merged
spoiled()
{
	mkdir -p $tmp/spoiled
	cp $tmp/adapter/adapter_model.safetensors $tmp/spoiled/
	sed "$2" $tmp/adapter/adapter_config.json > $tmp/spoiled/adapter_config.json
	refused "$1" $start --adapter $tmp/spoiled
	refused "$1" ./shardrt-generate $tmp/base --adapter $tmp/spoiled --prompt x
	refused "$1" ./shardrt-ckpt merge-lora $tmp/base $tmp/spoiled $tmp/spoiled.out
	[ ! -e $tmp/spoiled.out/config.json ] && [ ! -e $tmp/spoiled.out/model.safetensors ] || fail "$1: it was merged"
}
spoiled "'use_dora' is true" 's/"use_dora": false/"use_dora": true/'
spoiled "'modules_to_save' is [\"lm_head\"]" 's/"modules_to_save": null/"modules_to_save": ["lm_head"]/'
spoiled "'bias' is \"all\"" 's/"bias": "none"/"bias": "all"/'
spoiled "'r' is 0" 's/"r": 4/"r": 0/'
spoiled "lora_A.weight'" 's/"r": 4/"r": 5/'
exit $failed
