#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrt-tokens: texts encoded to files of 16 and 32 bits, which decode to the texts and train; tokens counted; mistakes.
tmp=tests/tokens.tmp
rm -rf $tmp && mkdir -p $tmp/folder || exit 1
trap 'rm -rf $tmp' EXIT
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

cp "$srcdir/tests/models/tokenizer.json" $tmp/folder && chmod u+w $tmp/folder/tokenizer.json || exit 1
printf "Hello, the world's 12345 words" > $tmp/a
i=0
while [ $i -lt 300 ]; do
	echo "number $((i * 7919 % 1000)) of the words"
	i=$((i + 1))
done > $tmp/b

expect 2 "a command is missing" ./shardrt-tokens
expect 2 "unknown command 'sort'" ./shardrt-tokens sort
expect 2 "the tokenizer is missing: --tokenizer FOLDER" ./shardrt-tokens count $tmp/a
expect 1 "cannot open the tokenizer $tmp/none: No such file" ./shardrt-tokens count --tokenizer $tmp/none $tmp/a
if ! ./shardrt-info --features | grep -q '^Hugging Face tokenizers  *built'; then
	expect 1 "configure again" ./shardrt-tokens count --tokenizer $tmp/folder $tmp/a
	[ $failed = 0 ] || exit 1
	echo "SKIP: tokenizers need jansson, PCRE2 and utf8proc"
	exit 77
fi
tokens()
{
	command=$1
	shift
	./shardrt-tokens "$command" --tokenizer $tmp/folder "$@"
}
expect 2 "encode needs other files" tokens encode $tmp/a
expect 2 "decode has no options --special and --end" tokens decode --special $tmp/a
expect 2 "count has no option --skip-special" tokens count --skip-special $tmp/a
expect 2 "the tokenizer has no token '<|no|>'" tokens count --end '<|no|>' $tmp/a
expect 1 "cannot read $tmp/none: No such file" tokens encode $tmp/none $tmp/out.bin
expect 1 "cannot write .*: " tokens encode $tmp/a $tmp/none/out.bin
expect 1 "it is text, not a file of tokens" tokens decode $tmp/a
printf 'ab\377' > $tmp/bytes
expect 1 "$tmp/bytes: the text is not UTF-8: byte 2 is 0xff" tokens encode $tmp/bytes $tmp/out.bin
[ -z "$(ls $tmp | grep out.bin)" ] || fail "a file was left: $(ls $tmp)"

# Counted, with the token of the template and one after each text.
n=$(tokens count $tmp/a)
[ "$n" = 22 ] || fail "count: $n"
n=$(tokens count --special --end '<|endoftext|>' $tmp/a $tmp/a)
[ "$n" = 48 ] || fail "count of two: $n"

# Encoded, decoded, trained on.
expect 0 "^[0-9]* tokens of 16 bits, vocabulary 300$" tokens encode --special --end '<|endoftext|>' $tmp/a $tmp/b $tmp/tokens
cat $tmp/a $tmp/b > $tmp/both
tokens decode --skip-special $tmp/tokens | cmp - $tmp/both || fail "decode"
{
	printf '<|begin|>' && cat $tmp/a && printf '<|endoftext|><|begin|>' && cat $tmp/b && printf '<|endoftext|>'
} > $tmp/special
tokens decode $tmp/tokens | cmp - $tmp/special || fail "decode of special tokens"
model="--layers 1 --heads 1 --width 8 --context 16 --batch 2 --steps 2 --eval-every 0"
expect 0 "^step 2/2 " env SHARDRT_BACKEND=cpu ./shardrt-train --tokens $tmp/tokens --vocab 300 $model

# A vocabulary that needs 32 bits: the last token has a large id.
sed 's/"id": 1,/"id": 70000,/; s/, *"<|endoftext|>": 1,/,/' $tmp/folder/tokenizer.json > $tmp/large.json
expect 0 "^[0-9]* tokens of 32 bits, vocabulary 70001$" ./shardrt-tokens encode --tokenizer $tmp/large.json \
	--end '<|endoftext|>' $tmp/b $tmp/wide
./shardrt-tokens decode --tokenizer $tmp/large.json --skip-special $tmp/wide | cmp - $tmp/b || fail "decode of 32 bits"
expect 0 "^step 2/2 " env SHARDRT_BACKEND=cpu ./shardrt-train --tokens $tmp/wide --vocab 70001 $model
expect 2 "is 70000, but the vocabulary has 0 .. 69999" env SHARDRT_BACKEND=cpu ./shardrt-train --tokens $tmp/wide \
	--vocab 70000 $model
exit $failed
