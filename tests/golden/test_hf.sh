#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Replays what was recorded of Hugging Face's packages, in the folder hf of the recorded runs (configure --with-golden): training
# at the recorded number of ranks, decoders, pairs of prompts and answers, and matrices on one, two and three, in rows, flat and
# over tensor-parallel ranks, also with tensor parts, the others on one; each of these ways on the cpu, some on other devices,
# where SRT_TEST_DEVICES is spread with the first case of each family. A copy of a case with a spoiled value, and one of an
# unknown kind, show that the program can fail and skip.
. "$srcdir/tests/harness/run_ranks.sh"

cases=$SRT_GOLDEN_DIR/hf/cases
[ -n "$SRT_GOLDEN_DIR" ] && [ -d "$cases" ] ||
	skip "no recorded cases: configure found none in ../shared/golden (--with-golden=DIR)"
[ -x tests/golden/replay_hf ] || skip "tests/golden/replay_hf needs jansson"
[ -x ./shardrun ] || skip "shardrun was not built"
work=tests/golden/test_hf.dir
rm -rf $work && mkdir -p $work || exit 1
trap 'rm -rf $work' EXIT
have() { grep -q "^#define HAVE_$1 1" config.h; }

# kind CASE, world CASE: what case.json says; a case without a number of ranks is for one.
kind() { sed -n 's/^ "kind": "\([a-z]*\)".*/\1/p' "$1/case.json"; }
world() { sed -n 's/^ "world_size": \([0-9]*\).*/\1/p' "$1/case.json" | grep . || echo 1; }

# lacks CASE: the package that the case needs and this build lacks; empty: none
lacks()
{
	[ -f "$1/tokenizer.json" ] || return
	have PCRE2 || ! grep -qE '"(Regex|ByteLevel|Digits)"' "$1/tokenizer.json" || echo PCRE2
	have UTF8PROC || ! grep -qE '"NFK?[CD]"' "$1/tokenizer.json" || echo utf8proc
}

# list: for each case its kind, ranks and folder, one a line
list()
{
	for case in "$cases"/*; do
		missing=$(lacks "$case" | sed 1q)
		if [ -n "$missing" ]; then
			echo "skip: ${case##*/} needs $missing" >&2
		else
			echo "$(kind "$case") $(world "$case") $case"
		fi
	done
}

# replay WORLD OPTIONS CASE...: fails if one fails; cases that are skipped are printed
failed=0
replay()
{
	n=$1 options=$2
	shift 2
	[ $# -gt 0 ] || return
	code=0
	./shardrun -n "$n" tests/golden/replay_hf $options "$@" > $work/out 2>&1 || code=$?
	case $code in
	0 | 77) ;;
	*) failed=1 ;;
	esac
	echo "$n ranks $options: $(grep -c '^PASS' $work/out) passed, $(grep -c '^FAIL' $work/out) failed," \
		"$(grep -c '^skip' $work/out) skipped"
	if [ $code = 0 ] || [ $code = 77 ]; then grep '^skip' $work/out; else cat $work/out; fi
}

list > $work/list
few=
case $SHARDRT_BACKEND.$SRT_TEST_LONG.$SRT_TEST_DEVICES in
cpu..*) forms=${forms##* } ;; # streams that are threads take a third more time, and change no bit
*..spread) few=yes ;;
esac
# of_kind KIND RANKS: its cases; of those whose names differ in numbers alone the first one, if $few
of_kind()
{
	sed -n "s/^$1 $2 //p" $work/list |
		awk -v few="$few" '{ name = $0; sub(/.*\//, "", name); gsub(/[0-9]+/, "", name) } few == "" || !(name in seen); { seen[name] }'
}
for form in $forms; do
	use_form $form
	replay 1 "" $(of_kind '[a-z]*' 1)
	replay 2 "" $(of_kind 'train' 2) $(of_kind 'sft' 1)
	[ -n "$few" ] || replay 3 "" $(of_kind 'train' 3) $(of_kind 'sft' 1)
	replay 3 "--flat" $(of_kind 'hf' 1) $(of_kind 'pack' 1) $(of_kind 'lora' 1) $(of_kind 'sft' 1) $(of_kind 'muon' 1)
	replay 2 "--tp 2 --tensor-parts 2" $(of_kind 'hf' 1) $(of_kind 'lora' 1) $(of_kind 'sft' 1)
	case $SHARDRT_BACKEND.$SRT_TEST_LONG in cpu.* | *.1) ;; *) continue ;; esac
	replay 2 "--strategy zero1" $(of_kind 'hf' 1) $(of_kind 'muon' 1)
	replay 2 "--strategy ddp" $(of_kind 'lora' 1) $(of_kind 'muon' 1)
	replay 2 "--padded" $(of_kind 'lora' 1)
	replay 3 "" $(of_kind 'muon' 1)
	replay 2 "--tp 2" $(of_kind 'hf' 1) $(of_kind 'lora' 1) $(of_kind 'sft' 1)
	replay 1 "--tensor-parts 2" $(of_kind 'hf' 1) $(of_kind 'lora' 1) $(of_kind 'sft' 1)
done
[ $failed = 0 ] || exit 1
[ "$SHARDRT_BACKEND" = cpu ] || exit 0

# ---- what must fail, and what must be skipped
# spoil PATTERN: a copy of the first such case whose last recorded bytes are others
spoil()
{
	for case in "$cases"/$1; do
		[ -d "$case" ] && [ -z "$(lacks "$case")" ] || continue
		cp -RL "$case" $work/spoiled && chmod -R u+w $work/spoiled || exit 1
		sed -i "s|\"\\.\\./|\"$(cd "$cases" && pwd)/|" $work/spoiled/case.json
		size=$(wc -c < $work/spoiled/expect.safetensors)
		printf '\001\177' | dd of=$work/spoiled/expect.safetensors bs=1 seek=$((size - 2)) conv=notrunc 2> /dev/null
		code=0
		./shardrun -n 1 tests/golden/replay_hf $work/spoiled > $work/out 2>&1 || code=$?
		[ $code = 1 ] || { cat $work/out && echo "FAIL: a spoiled ${case##*/} has status $code" && exit 1; }
		rm -rf $work/spoiled
		return
	done
}
spoil 'tokenizer*'
spoil 'hf_llama*'
spoil 'lora_llama*'
spoil 'sft_llama*'
spoil 'muon*'
mkdir $work/unknown
echo '{"format": "shardrt-golden-hf/1", "name": "unknown", "kind": "unknown", "files": {}}' > $work/unknown/case.json
code=0
./shardrun -n 1 tests/golden/replay_hf $work/unknown > $work/out 2>&1 || code=$?
[ $code = 77 ] || { cat $work/out && echo "FAIL: a case of an unknown kind has status $code" && exit 1; }
exit 0
