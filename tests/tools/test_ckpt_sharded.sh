#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrt-ckpt on the folders of sharded checkpoints: all commands on those of the trainer, compared with the file of
# the same run, and on one with buffers, a scaler, frozen, tied and empty parameters; damaged ones; results that are
# killed while they are written.
[ -x ./shardrun ] || { echo "SKIP: shardrun was not built"; exit 77; }
[ -x tests/engine/test_checkpoint_sharded ] || { echo "SKIP: sharded checkpoints need jansson and libxxhash"; exit 77; }
tmp=tests/ckpt_sharded.tmp
rm -rf $tmp && mkdir -p $tmp || exit 1
trap 'rm -rf $tmp' EXIT
SHARDRT_THREADS=1 SHARDRT_BACKEND=cpu
export SHARDRT_THREADS SHARDRT_BACKEND
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
has() { grep -q -e "$1" $tmp/out || fail "not '$1', but $(cat $tmp/out)"; }
hash_of() { ./shardrt-ckpt hash "$@" | sed -n '1s/ .*//p'; }
params_of() { ./shardrt-ckpt hash "$@" 2> /dev/null | sed -n '2s/^parameters: xxh3-128 //p'; }
trained_hash() { sed -n 's/^hash: .* xxh3-128 //p' $tmp/train; }
# train OPTIONS...
train()
{
	./shardrun -n 3 ./shardrt-train --batch 6 --eval-every 0 --text $tmp/text "$@" > $tmp/train 2>&1 ||
		fail "$*: $(cat $tmp/train)"
}

# ---- a run of the trainer: the folder is the file
awk 'BEGIN { for (i = 0; i < 300; i++) print "number", i * 7919 % 1000 }' > $tmp/text
model="--preset gpt2-124m --layers 2 --heads 2 --width 24 --context 20 --strategy zero3 --flat views"
train $model --steps 4 --save-every 2 --checkpoint $tmp/run --keep 3 --save $tmp/plain --hash
trained=$(trained_hash)
last=$tmp/run/step-0000000004
expect 0 '' ./shardrt-ckpt diff $last $tmp/plain
expect 0 '' ./shardrt-ckpt diff $tmp/plain $last
expect 0 '' ./shardrt-ckpt diff --all $last $last/
expect 1 '^wte.weight: [0-9]* of 6144 elements differ, by 0\.00[0-9]* at most$' ./shardrt-ckpt diff $last $tmp/run/step-0000000002
expect 1 '^optimizer.state0.wte.weight: only in' ./shardrt-ckpt diff --all $last $tmp/plain
hash=$(hash_of $tmp/plain)
[ ${#hash} = 32 ] && [ "$(hash_of $last)" = "$hash" ] || fail "the hash of $last is not $hash"
expect 0 '^checkpoint [0-9a-f]* of 3 ranks in [0-9]* files, numerics version [0-9]* exact$' ./shardrt-ckpt ls $last
has '^optimizer adamw, group 0: 4 steps, learning rate '
has '^entry step: 8 bytes, as an integer 4$'
has "^entry shardrt.gpt: 256 bytes, 'layers=2 heads=2 "
has '^F32 *\[72,24\] *6912  parameter  *[1-9] blocks.1.attn.qkv.weight$'
has '^F32 *\[72,24\] *6912  state 1  *[1-9] optimizer.state1.blocks.1.attn.qkv.weight$'
has '^84 tensors, 63360 elements, 253440 bytes$'
expect 0 '^        \[[0-9]*,24\] at \[[1-9][0-9]*,0\] in rank-0000[12]-of-00003' ./shardrt-ckpt ls --boxes $last
expect 0 'step-0000000002: [0-9]* files, 84 tensors in [0-9]* boxes, 253440 bytes: 0 defects$' ./shardrt-ckpt verify $tmp/run $tmp/plain
has 'step-0000000004: .*: 0 defects$'
has '/plain: 28 tensors, 84480 bytes: 0 defects; only a checkpoint has hashes$'

expect 0 'wrote .*: 28 tensors' ./shardrt-ckpt convert --to hf $last $tmp/hf1
expect 0 'wrote .*: 28 tensors' ./shardrt-ckpt convert --to hf $tmp/plain $tmp/hf2
cmp $tmp/hf1 $tmp/hf2 || fail "convert of the folder differs"
expect 0 'wrote .*: 28 tensors' ./shardrt-ckpt merge $last $tmp/merged
expect 0 '' ./shardrt-ckpt diff $tmp/merged $tmp/plain
train --init $tmp/merged --steps 0 --save $tmp/again
expect 0 '' ./shardrt-ckpt diff $tmp/again $tmp/plain
expect 0 'wrote .*: 84 tensors' ./shardrt-ckpt merge --all $last $tmp/merged
[ "$(hash_of $tmp/merged)" = "$(hash_of --all $last)" ] || fail "the hash of all tensors changes with merge"
expect 0 'wrote .*: 84 tensors' ./shardrt-ckpt merge $tmp/merged $tmp/again
cmp $tmp/merged $tmp/again || fail "merge of a merged file differs"

# ---- the folder of --checkpoint is its latest checkpoint; the hash of the parameters is that of --hash
ln -s run $tmp/link && ln -s $(basename $last) $tmp/run/link || exit 1
for path in $tmp/plain $last $last/ $tmp/run $tmp/run/// $PWD/$tmp/run $tmp/link $tmp/run/link "--all $last" \
	$tmp/merged; do
	[ "$(params_of $path)" = "$trained" ] || fail "$path: the hash of the parameters is not $trained, but $(params_of $path)"
done
[ "$(cd $tmp/run && ../../../shardrt-ckpt hash . 2> err; cat err; rm err)" = "$hash  ./${last##*/}
parameters: xxh3-128 $trained
shardrt-ckpt: the latest checkpoint in . is ./${last##*/}" ] || fail "hash of the current folder"
[ "$(params_of $tmp/run/step-0000000002)" != "$trained" ] || fail "two checkpoints have one hash"
is_latest="^shardrt-ckpt: the latest checkpoint in $tmp/run is $last\$"
expect 0 "$is_latest" ./shardrt-ckpt ls $tmp/run
has '^checkpoint [0-9a-f]* of 3 ranks in '
expect 0 "$is_latest" ./shardrt-ckpt diff $tmp/run $tmp/plain
[ "$(wc -l < $tmp/out)" = 1 ] || fail "diff of the folder: $(cat $tmp/out)"
expect 1 "$is_latest" ./shardrt-ckpt diff $tmp/run/step-0000000002 $tmp/run
has '^wte.weight: '
expect 0 "$is_latest" ./shardrt-ckpt merge --all $tmp/run $tmp/again
cmp $tmp/merged $tmp/again || fail "merge of the folder differs"
expect 0 "$is_latest" ./shardrt-ckpt convert --to hf $tmp/run $tmp/hf2
cmp $tmp/hf1 $tmp/hf2 || fail "convert of the folder differs"
expect 0 "$is_latest" ./shardrt-ckpt reshard --ranks 2 $tmp/run $tmp/resharded
expect 0 '' ./shardrt-ckpt diff --all $tmp/resharded $last
rm -r $tmp/resharded
# the parameters alone, for another optimizer
train --init $tmp/run --steps 2 --optimizer sgd --strategy zero2 --hash
grep -q "^shardrt-train: the latest checkpoint in $tmp/run is $last\$" $tmp/train || fail "--init: $(cat $tmp/train)"
begun=$(trained_hash)
train --init $tmp/plain --steps 2 --optimizer sgd --hash
[ -n "$begun" ] && [ "$(trained_hash)" = "$begun" ] || fail "--init of the folder and of the file: $begun, $(cat $tmp/train)"

# each_refused WORDS FOLDER: by all commands that read it
each_refused()
{
	for command in ls hash "diff $tmp/plain" "merge --all" "reshard --ranks 2" "convert --to hf"; do
		case $command in ls | hash | diff*) set -- "$1" "$2" ;; *) set -- "$1" "$2" $tmp/none ;; esac
		expect 2 "^shardrt-ckpt: $1" ./shardrt-ckpt $command "$2" $3
	done
	expect 2 "^shardrt-train: --init: $1" ./shardrt-train --text $tmp/text --steps 0 --init "$2"
	[ ! -e $tmp/none ] || fail "$2: something was written"
}
folder=$tmp/unfinished
mkdir $folder || exit 1
nothing="$folder is no checkpoint (it has no manifest.json), and no complete checkpoint is in it: "
each_refused "$nothing" $folder
cp -r $last $folder/step-0000000004.tmp-0123456789abcdef && rm $folder/step-*/manifest.json
expect 2 "$nothing" ./shardrt-ckpt hash $folder/
expect 2 "$folder/step-.* is no checkpoint" ./shardrt-ckpt hash $folder/step-*
echo step-0000000004 > $folder/latest
each_refused "$folder/latest names the checkpoint 'step-0000000004', which is not there .*; name one of the checkpoints in" $folder
printf 'a\033b\n' > $folder/latest && cp -r $last "$folder/$(printf 'a\033b')" || exit 1
expect 2 "the name of the latest checkpoint in $folder has control characters" ./shardrt-ckpt hash $folder
# a save was killed while it replaced the latest one
echo step-0000000004 > $folder/latest && cp -r $last $folder/step-0000000004.replaced || exit 1
[ "$(params_of $folder)" = "$trained" ] || fail "FOLDER.replaced is not found: $(./shardrt-ckpt hash $folder 2>&1)"
expect 0 "wrote" ./shardrt-ckpt reshard --ranks 1 $folder $tmp/resharded
rm -r $tmp/resharded $folder $tmp/link $tmp/run/link

# a run goes on from another number of files with the same bits
for ranks in 1 7; do
	rm -rf $tmp/from && mkdir $tmp/from
	expect 0 "wrote .* for $ranks ranks" ./shardrt-ckpt reshard --ranks $ranks $last $tmp/from/step-0000000004
	[ ! -e $tmp/from/latest ] || fail "reshard has written 'latest'"
	echo step-0000000004 > $tmp/from/latest
	train $model --steps 6 --checkpoint $tmp/from --resume --save $tmp/resumed$ranks
	grep -q "resumed from" $tmp/train || fail "not resumed: $(cat $tmp/train)"
done
train $model --steps 6 --checkpoint $tmp/run --resume --save $tmp/whole
expect 0 '' ./shardrt-ckpt diff $tmp/whole $tmp/resumed1
expect 0 '' ./shardrt-ckpt diff $tmp/whole $tmp/resumed7

# ---- a folder with all kinds of tensors
whole=$tmp/engine.safetensors
./shardrun -n 3 tests/engine/test_checkpoint_sharded save $tmp/engine views $whole || fail "save"
all=$(hash_of --all $tmp/engine)
[ "$(hash_of $tmp/engine)" = "$(hash_of $whole)" ] || fail "buffers: the hash differs"
params=$(params_of $whole)
[ -n "$params" ] && [ "$(params_of $tmp/engine)" = "$params" ] || fail "buffers: the hash of the parameters differs"
for option in "" --all; do
	expect 0 wrote ./shardrt-ckpt merge $option $tmp/engine $tmp/merged
	[ "$(params_of $tmp/merged)" = "$params" ] || fail "merge $option: the hash of the parameters differs"
	expect 0 wrote ./shardrt-ckpt merge $tmp/merged $tmp/again
	cmp $tmp/merged $tmp/again || fail "merge of a merged file with buffers differs"
done
expect 0 '^scaler: scale 1024, growth tracker 5$' ./shardrt-ckpt ls $tmp/engine
has '^I64 *\[\]  *8  buffer  *1 b0.count$'
has '^F32 *\[0,3\]  *0  parameter  *0 b2.empty$'
has '^entry nothing: 0 bytes$'
for ranks in 1 2 3 40; do
	expect 0 "wrote" ./shardrt-ckpt reshard --ranks $ranks $tmp/engine $tmp/resharded
	expect 0 ": 0 defects" ./shardrt-ckpt verify $tmp/resharded
	expect 0 '' ./shardrt-ckpt diff --all $tmp/engine $tmp/resharded
	[ "$(hash_of --all $tmp/resharded)" = "$all" ] || fail "$ranks ranks: the hash differs"
done
[ ! -e $tmp/resharded/rank-00006-of-00040.safetensors ] || fail "a rank without rows has a file"
expect 0 "wrote" ./shardrt-ckpt reshard --ranks 2 $tmp/resharded $tmp/resharded # itself
[ "$(hash_of --all $tmp/resharded)" = "$all" ] || fail "a folder that is written to itself: the hash differs"
./shardrt-ckpt ls $tmp/resharded | sed '1d; s/\(parameter\|buffer\|state [0-9]\) *[0-9]*/\1/' > $tmp/a
./shardrt-ckpt ls $tmp/engine | sed '1d; s/\(parameter\|buffer\|state [0-9]\) *[0-9]*/\1/' > $tmp/b
cmp $tmp/a $tmp/b || fail "reshard has changed more than the boxes: $(diff $tmp/a $tmp/b)"

# ---- defects
# Reliability: a damaged checkpoint that nobody loads | not known until it is needed | `shardrt-ckpt verify` names each
# defect, its file and tensor
first=rank-00000-of-00002.safetensors second=rank-00001-of-00002.safetensors
mv $tmp/resharded $tmp/good
expect 0 wrote ./shardrt-ckpt reshard --ranks 2 $tmp/good $tmp/other
# damaged: a fresh copy
damaged()
{
	rm -rf $tmp/bad && cp -r $tmp/good $tmp/bad
}
# flip FILE OFFSET: all bits of a byte
flip()
{
	byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
	printf "$(printf '\\%03o' $((255 - byte)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2> /dev/null
}
size_of() { wc -c < "$1" | tr -d ' '; }
for file in $first $second manifest.json; do
	n=$(size_of $tmp/good/$file) at=0
	while [ $at -lt $n ]; do
		damaged
		flip $tmp/bad/$file $at
		./shardrt-ckpt verify $tmp/bad > $tmp/out 2>&1
		[ $? = 1 ] && grep -q "bad/$file" $tmp/out || fail "byte $at of $file: $(cat $tmp/out)"
		at=$((at + n / 11 + 1))
	done
done
damaged
flip $tmp/bad/$first $(($(size_of $tmp/bad/$first) - 1)) # the last bytes are of a buffer or parameter
flip $tmp/bad/$second $(($(size_of $tmp/bad/$second) - 1))
expect 1 "bad/$first: [a-z]* .*'[a-z0-9.]*' is damaged: bytes 0 to " ./shardrt-ckpt verify $tmp/bad
has "bad/$second: [a-z0-9 ]*'[a-z0-9.]*' is damaged: bytes 0 to "
has ' bytes: 2 defects$'
expect 2 "is damaged: bytes" ./shardrt-ckpt hash --all $tmp/bad
expect 2 "is damaged: bytes" ./shardrt-ckpt merge --all $tmp/bad $tmp/new
expect 2 "is damaged: bytes" ./shardrt-ckpt reshard --ranks 3 $tmp/bad $tmp/new
expect 2 "is damaged: bytes" ./shardrt-ckpt diff --all $tmp/bad $tmp/good
[ ! -e $tmp/new ] || fail "a damaged checkpoint was written again"
damaged
dd if=$tmp/good/$second of=$tmp/bad/$second bs=100 count=20 2> /dev/null
rm $tmp/bad/$first
expect 1 "cannot open .*bad/$first: No such file" ./shardrt-ckpt verify $tmp/bad $tmp/good
has "bad/$second: "
has 'bytes: 2 defects$'
has 'good: .*bytes: 0 defects$'
damaged
mv $tmp/bad/$first $tmp/c && mv $tmp/bad/$second $tmp/bad/$first && mv $tmp/c $tmp/bad/$second
expect 1 "bad/$first is not the file that this checkpoint was saved with" ./shardrt-ckpt verify $tmp/bad
has "bad/$second is not the file that this checkpoint was saved with"
damaged
cp $tmp/other/manifest.json $tmp/bad
expect 1 "bad/$first is not the file that this checkpoint" ./shardrt-ckpt verify $tmp/bad
has 'bytes: 2 defects$'
damaged
cp $tmp/other/$first $tmp/bad/rank-00002-of-00002.safetensors
expect 1 "bad/rank-00002-of-00002.safetensors is not a file of this checkpoint" ./shardrt-ckpt verify $tmp/bad
damaged
dd if=$tmp/good/manifest.json of=$tmp/bad/manifest.json bs=500 count=1 2> /dev/null
expect 1 'manifest.json: its checksum is wrong' ./shardrt-ckpt verify $tmp/bad
expect 2 'manifest.json: its checksum is wrong' ./shardrt-ckpt ls $tmp/bad
rm $tmp/bad/manifest.json
expect 2 'has no manifest.json of a checkpoint, nor a folder' ./shardrt-ckpt verify $tmp/bad
expect 2 'bad is no checkpoint (it has no manifest.json), and' ./shardrt-ckpt hash $tmp/bad
dd if=$tmp/plain of=$tmp/cut bs=1000 count=30 2> /dev/null
expect 1 'safetensors file .*cut: ' ./shardrt-ckpt verify $tmp/cut $tmp/plain
expect 2 'cannot open .*missing' ./shardrt-ckpt verify $tmp/missing $tmp/plain
has 'plain: .*: 0 defects'
rm -rf $tmp/bad && mkdir $tmp/bad && cp -r $tmp/good $tmp/bad/one && echo two > $tmp/bad/latest
expect 1 "bad/latest names the checkpoint 'two', which is not there" ./shardrt-ckpt verify $tmp/bad
has 'bad/one: .*: 0 defects$'

# ---- what is not complete has no name: the process is killed by SIGXFSZ, or its write fails
for blocks in 0 1 2 8; do
	rm -rf $tmp/new
	(ulimit -f $blocks && exec ./shardrt-ckpt merge --all $tmp/good $tmp/new) > $tmp/out 2>&1
	[ $? != 0 ] && [ ! -e $tmp/new ] || fail "merge with at most $blocks blocks: $(cat $tmp/out)"
	(ulimit -f $blocks && exec ./shardrt-ckpt reshard --ranks 3 $tmp/good $tmp/new) > $tmp/out 2>&1
	[ $? != 0 ] && [ ! -e $tmp/new ] || fail "reshard with at most $blocks blocks: $(cat $tmp/out)"
done
expect 0 wrote ./shardrt-ckpt merge $tmp/good $tmp/new && rm $tmp/new
expect 0 wrote ./shardrt-ckpt reshard --ranks 3 $tmp/good $tmp/new
left=$(find $tmp -name '*.tmp-*')
[ -z "$left" ] || fail "temporary files are left: $left"

# ---- arguments
expect 2 'reshard needs --ranks' ./shardrt-ckpt reshard $tmp/good $tmp/c
expect 2 '--ranks must be a whole number' ./shardrt-ckpt reshard --ranks 0 $tmp/good $tmp/c
expect 2 'nranks is 100000, not from 1' ./shardrt-ckpt reshard --ranks 100000 $tmp/good $tmp/c
expect 2 'cannot open .*plain/manifest.json' ./shardrt-ckpt reshard --ranks 2 $tmp/plain $tmp/c
expect 2 'is there and is not a checkpoint' ./shardrt-ckpt reshard --ranks 2 $tmp/good $tmp/plain
expect 2 'not a regular file' ./shardrt-ckpt merge $tmp/good $tmp/other
expect 2 'verify has no option --all' ./shardrt-ckpt verify --all $tmp/good
expect 2 'verify needs one file' ./shardrt-ckpt verify
expect 2 'no model sizes in its metadata' ./shardrt-ckpt convert --to hf $tmp/good $tmp/c
exit $failed
