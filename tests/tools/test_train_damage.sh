#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Random damages of a folder of checkpoints: bytes, files, folders, links, names, the file `latest`, files of others. A run
# that goes on from it under `shardrun --restarts` ends with the hash of a run that was not disturbed, or with a sentence
# that names the folder and the remedy. Checkpoints of other runs stay, and so do damaged ones.
# SRT_DAMAGES: how many folders (10; 200 in make check-long). SRT_SEED repeats a run.
skip() { echo "SKIP: $*"; exit 77; }
[ -x ./shardrun ] || skip "shardrun was not built"
damages=${SRT_DAMAGES:-10}
seed=${SRT_SEED:-1}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
echo "seed $seed"
SHARDRT_THREADS=1 SHARDRT_NUMERICS=exact TMPDIR=$tmp
export SHARDRT_THREADS SHARDRT_NUMERICS TMPDIR
awk 'BEGIN { for (i = 0; i < 60; i++) print i, "little words make a line of the text" }' > "$tmp/text"
train="./shardrt-train --text $tmp/text --layers 1 --heads 1 --width 8 --context 8 --batch 4 --eval-every 0 --hash \
	--strategy zero3 --steps 24 --save-every 3"
run=$tmp/run

fail()
{
	echo "FAIL: damage $i, $what: $*"
	ls -lR "$run"
	cat "$tmp/out" "$tmp/err"
	exit 1
}
random()
{
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	number=$((seed / 65536 % ($1 > 0 ? $1 : 1)))
}
# pick FILE...: one of them is $picked
pick()
{
	random $#
	shift $number
	picked=$1
}
# byte FILE: changes one byte of it
byte()
{
	random "$(wc -c < "$1")"
	at=$number old=$(od -An -tu1 -j $number -N 1 "$1")
	random 255
	printf "\\$(printf %o $(((old + 1 + number) % 256)))" | dd of="$1" bs=1 seek=$at conv=notrunc 2> /dev/null
}
# damage: one of the kinds, to a random file or folder of the run
damage()
{
	pick "$run/step-0000000012" "$run/step-0000000015"
	folder=$picked
	pick "$folder"/*
	file=$picked
	random 26
	what="$what$number of ${file#"$run"/}; "
	[ -s "$file" ] && [ -f "$file" ] && [ -d "$folder" ] && [ ! -L "$folder" ] || return 0
	case $number in
	0 | 1 | 2) byte "$file" ;;
	3) byte "$folder/manifest.json" ;;
	4) random "$(wc -c < "$file")" && head -c $number "$file" > "$tmp/cut" && mv "$tmp/cut" "$file" ;;
	5) echo more >> "$file" ;;
	6) rm "$file" ;;
	7) rm "$file" && mkfifo "$file" ;;
	8) rm "$file" && mkdir "$file" ;;
	9) mv "$file" "$file.old" && ln -s "${file##*/}.old" "$file" ;;
	10) ln -sf /nowhere "$file" ;;
	11) cp "$run/step-0000000012/${file##*/}" "$run/step-0000000015/${file##*/}" ;;
	12) chmod 0 "$file" ;;
	13) rm -r "$folder" ;;
	14) mv "$folder" "$folder.moved" ;;
	15) mv "$folder" "$folder.moved" && ln -s "${folder##*/}.moved" "$folder" ;;
	16) mv "$folder" "$folder.moved" && ln -s /nowhere "$folder" ;;
	17) mv "$folder" "$folder.moved" && echo other > "$folder" ;;
	18) mv "$run/step-0000000012" "$run/x" && mv "$run/step-0000000015" "$run/step-0000000012" && mv "$run/x" "$run/step-0000000015" ;;
	19) echo other > "$folder/other" ;;
	20) mkdir "$run/step-0000000018" && echo other > "$run/step-0000000018/other" ;;
	21) rm "$run/latest" ;;
	22) true > "$run/latest" ;;
	23) echo step-0000000012 > "$run/latest" ;;
	24) rm "$run/latest" && mkdir "$run/latest" ;;
	25) head -c 100 "$file" > "$run/latest" ;;
	esac 2> /dev/null
}
hash_in() { sed -n 's/^hash: //p' "$tmp/out"; }
# Those of another run, one of which has the name of a checkpoint that the run passes.
others() { (cd "$run" && cksum other/* step-0000000021/*); }

# The folder of a run that was killed after step 15, and its hash after step 24.
i=0 what=none
./shardrun -n 2 $train --checkpoint "$tmp/base" --keep 0 > "$tmp/out" 2> "$tmp/err" || {
	! grep -q libxxhash "$tmp/err" || skip "sharded checkpoints need jansson and libxxhash"
	fail "not trained"
}
want=$(hash_in)
rm -r "$tmp/base"/step-000000000? "$tmp/base"/step-0000000018 "$tmp/base"/step-000000002?
echo step-0000000015 > "$tmp/base/latest"
./shardrun -n 2 $train --seed 2 --checkpoint "$tmp/other" --keep 0 > "$tmp/out" 2> "$tmp/err" || fail "the other run"
cp -r "$tmp/other/step-0000000018" "$tmp/base/other"
cp -r "$tmp/other/step-0000000021" "$tmp/base/"

# Reliability: random damages of a folder of checkpoints | ended the job, also where an older checkpoint was complete | the
# hash of an undisturbed run, or a sentence with the remedy; what the run has not written stays
run=$tmp/base
before=$(others)
run=$tmp/run
refused=0 older=0
while [ $i -lt "$damages" ]; do
	i=$((i + 1)) what=
	rm -rf "$run"
	cp -r "$tmp/base" "$run"
	random 3
	for _ in 1 $(seq $((number / 2))); do # two of each third folder
		damage
	done
	status=0
	./shardrun --restarts 3 --timeout 200 -n 2 $train --keep 2 --checkpoint "$run" --resume > "$tmp/out" \
		2> "$tmp/err" || status=$?
	[ "$(others)" = "$before" ] || fail "a checkpoint of another run is not as it was"
	for kept in $(sed -n 's/.*; the damaged checkpoint is kept as //p' "$tmp/err"); do
		[ -e "$kept" ] || fail "$kept is not there"
		older=$((older + 1))
	done
	if [ $status = 0 ]; then
		[ "$(hash_in)" = "$want" ] || fail "$(hash_in), not $want"
		[ "$(cat "$run/latest")" = step-0000000024 ] || fail "the latest is $(cat "$run/latest")"
	else
		refused=$((refused + 1))
		[ $status = 1 ] && grep -q "resume: .*no .*checkpoint of this run is .*: restore the files" "$tmp/err" ||
			fail "status $status"
		for folder in "$run/step-0000000012" "$run/step-0000000015"; do
			! ./shardrt-ckpt verify "$folder" > "$tmp/verified" 2>&1 || fail "$folder is complete"
			[ ! -d "$folder" ] || grep -q "$folder/.*" "$tmp/err" || fail "no word of $folder"
		done
	fi
done
echo "$damages damages: $older damaged checkpoints were set aside, $refused runs were refused"
