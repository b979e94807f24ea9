#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Replays what was recorded of Hugging Face's packages, in the folder hf of the recorded runs (configure --with-golden),
# one case after the other. A copy of a tokenizer's case with a spoiled id, and one of an unknown kind, show that the
# program can fail and skip.
skip() { echo "SKIP: $*"; exit 77; }
cases=$SRT_GOLDEN_DIR/hf/cases
[ -n "$SRT_GOLDEN_DIR" ] && [ -d "$cases" ] ||
	skip "no recorded cases: configure found none in ../shared/golden (--with-golden=DIR)"
[ -x tests/golden/replay_hf ] || skip "tests/golden/replay_hf needs jansson"
work=tests/golden/test_hf.dir
rm -rf $work && mkdir -p $work/unknown || exit 1
trap 'rm -rf $work' EXIT
failed=0 npassed=0 nskipped=0
have() { grep -q "^#define HAVE_$1 1" config.h; }

# lacks CASE: the package that the case needs and this build lacks; empty: none
lacks()
{
	[ -f "$1/tokenizer.json" ] || return
	have PCRE2 || ! grep -qE '"(Regex|ByteLevel|Digits)"' "$1/tokenizer.json" || echo PCRE2
	have UTF8PROC || ! grep -qE '"NFK?[CD]"' "$1/tokenizer.json" || echo utf8proc
}

for case in "$cases"/*; do
	missing=$(lacks "$case" | sed 1q)
	[ -z "$missing" ] || { echo "skipped: ${case##*/} needs $missing" && nskipped=$((nskipped + 1)) && continue; }
	tests/golden/replay_hf "$case" > $work/out 2>&1
	case $? in
	0) npassed=$((npassed + 1)) ;;
	77) nskipped=$((nskipped + 1)) && sed -n 's/^SKIP: //p' $work/out >> $work/skipped && continue ;;
	*) failed=$((failed + 1)) ;;
	esac
	sed 20q $work/out
done
[ ! -f $work/skipped ] || sort $work/skipped | uniq -c

echo '{"kind": "unknown"}' > $work/unknown/case.json
tests/golden/replay_hf $work/unknown > $work/out
[ $? = 77 ] || { echo "a case of an unknown kind is not skipped" && failed=1; }
for case in "$cases"/tokenizer*; do
	[ -d "$case" ] && [ -z "$(lacks "$case")" ] || continue
	cp -RL "$case" $work/spoiled && chmod -R u+w $work/spoiled || exit 1
	# the last byte of the last tensor, which is text
	size=$(wc -c < $work/spoiled/expect.safetensors)
	printf '\001' | dd of=$work/spoiled/expect.safetensors bs=1 seek=$((size - 1)) conv=notrunc 2> /dev/null
	tests/golden/replay_hf $work/spoiled > $work/out
	[ $? = 1 ] || { echo "a spoiled case does not fail" && failed=1; }
	break
done
echo "$npassed passed, $failed failed, $nskipped skipped"
[ "$npassed" -gt 0 ] || failed=1
[ $failed = 0 ]
