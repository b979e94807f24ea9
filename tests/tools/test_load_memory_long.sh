#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A folder of 2 GB in several files, loaded by 4 ranks: the memory of a rank is at most 64 MiB above its shards, and it
# reads at most 5 % more than these. The folder is a Llama of random bytes.
skip() { echo "SKIP: $*"; exit 77; }
[ -x ./shardrun ] || skip "shardrun was not built"
grep -q '^#define HAVE_JANSSON 1' config.h || skip "a folder of Hugging Face needs jansson"
ranks=4 wide=2048 ffn=5632 vocab=32000 layers=8
[ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -ge 3000000 ] || skip "the file system of $(pwd) has less than 3 GB of room"
[ "$(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo)" -ge 4000000 ] || skip "less than 4 GB of memory are free"
work=$(pwd)/tests/tools/test_load_memory_long.dir
rm -rf "$work" && mkdir -p "$work/model" || exit 1
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL: $*"; exit 1; }

# ---- the folder
# byte N I: byte I of a number, as printf takes it
byte() { printf '\\%03o' $(($1 >> 8 * $2 & 255)); }

# write_file NAME: a file of random tensors; each line of the input has a name and one or two sizes
write_file()
{
	awk -v name="$1" '{
		n = 4 * $2 * (NF > 2 ? $3 : 1)
		header = header sprintf(",\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%.0f,%.0f]}", $1,
			NF > 2 ? $2 "," $3 : $2, at, at + n)
		at += n
		printf ",\"%s\":\"%s\"", $1, name > "/dev/stderr"
	} END { printf "{%s}", substr(header, 2) }' > "$work/header" 2>> "$work/index"
	nbytes=$(sed 's/.*,\([0-9]*\)\]}}$/\1/' "$work/header") n=$(wc -c < "$work/header")
	{
		printf "$(byte $n 0)$(byte $n 1)$(byte $n 2)$(byte $n 3)\0\0\0\0"
		cat "$work/header"
		head -c "$nbytes" /dev/urandom
	} > "$work/model/$1"
}

layer=0
while [ $layer -lt $layers ]; do
	{
		for name in q k v o; do echo "model.layers.$layer.self_attn.${name}_proj.weight $wide $wide"; done
		for name in gate up; do echo "model.layers.$layer.mlp.${name}_proj.weight $ffn $wide"; done
		echo "model.layers.$layer.mlp.down_proj.weight $wide $ffn"
		for name in input post_attention; do echo "model.layers.$layer.${name}_layernorm.weight $wide"; done
	} | write_file layer-$layer.safetensors
	layer=$((layer + 1))
done
write_file others.safetensors << END
model.embed_tokens.weight $vocab $wide
lm_head.weight $vocab $wide
model.norm.weight $wide
END
printf '{"weight_map":{%s}}' "$(cut -c 2- "$work/index")" > "$work/model/model.safetensors.index.json"
cat > "$work/model/config.json" << END
{"model_type": "llama", "vocab_size": $vocab, "hidden_size": $wide, "intermediate_size": $ffn, "num_hidden_layers": $layers,
 "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 2048, "hidden_act": "silu",
 "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false}
END

# ---- loading
./shardrun -n $ranks bench/bench_load "$work/model" > "$work/out" || { cat "$work/out"; exit 1; }
cat "$work/out"
total=$(du -sb "$work/model" | cut -f 1)
# One line for each rank: {"load": S, "read": N, "shards": N, "peak": N, ...
tr -d ',' < "$work/out" | awk -v ranks=$ranks -v total="$total" '{
	read = $4; shards = $6; peak = $8; sum += shards
	if (peak > shards + 64 * 1048576) fail("the peak of a rank is " (peak - shards) / 1048576 " MiB above its shards")
	if (read > 1.05 * shards) fail("a rank has read " read / shards " of its shards")
}
function fail(why) { print "FAIL: " why; bad = 1 }
END {
	if (NR != ranks || sum < 0.999 * total || sum > total) fail(NR " ranks with " sum " bytes; the folder has " total)
	exit bad
}'
