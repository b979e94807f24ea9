#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The binary interface of the library is that of tests/policy/libshardrt.abi: functions, their parameters, and the layouts of
# the public structs. `make update-abi` writes the description anew. Each kind of difference is found in a planted one first.
lib=.libs/libshardrt.so
skip() { echo "SKIP: $*"; exit 77; }
fail() { echo "FAIL: $*"; exit 1; }
# shellcheck disable=SC2086
defines() { echo | ${CC:-gcc} -dM -E - | grep -q "#define $1 "; }
[ -f $lib ] || skip "no shared library was built"
command -v abidw > /dev/null && command -v abidiff > /dev/null || skip "no abidw and abidiff (package abigail-tools)"
defines __x86_64__ && defines __GNUC__ && ! defines __clang__ && ! defines __ILP32__ ||
	skip "the description is that of a library made by gcc for x86_64"
[ -z "$SRT_SANITIZE" ] || skip "the description is that of a library without sanitizers"
objdump=${OBJDUMP:-objdump}
$objdump -h $lib | grep -q ' \.debug_info ' || skip "the library was built without debug information"
$objdump -T $lib | grep -q SHARDRT_0 || skip "the library was linked without a map of symbols"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
described=$srcdir/tests/policy/libshardrt.abi
sh "$srcdir/scripts/abi.sh" $lib "$srcdir" > "$tmp/built" || fail "abidw cannot describe $lib"
grep "name='/" "$tmp/built" && fail "the description names folders of this machine"
grep -o "elf-symbol name='[^']*'" "$tmp/built" | sed "s/.*='//; s/'//" | sort > "$tmp/functions"
[ "$(wc -l < "$tmp/functions")" -gt 300 ] || fail "the description has $(wc -l < "$tmp/functions") functions"

# planted NAME: abidiff must report a difference between the library and this changed description of it.
planted()
{
	cmp -s "$tmp/built" "$tmp/planted" && fail "nothing was planted: $1"
	abidiff "$tmp/planted" "$tmp/built" > "$tmp/out" 2>&1
	[ $(($? & 5)) = 4 ] || { cat "$tmp/out"; fail "abidiff does not see $1"; }
}
in_abort="/<function-decl name='srt_comm_abort'/,/<return/"
sed "$in_abort{/<return/{h;s/<return/<parameter/p;g};}" "$tmp/built" > "$tmp/planted"
planted "an argument that is gone"
sed "$in_abort{/<parameter/{N;s/\(.*\)\n\(.*\)/\2\n\1/;};}" "$tmp/built" > "$tmp/planted"
planted "two arguments in another order"
sed "/<class-decl name='srt_view'/,/<\/class-decl>/s/in-bits='64'/in-bits='96'/" "$tmp/built" > "$tmp/planted"
planted "a field at another offset"
sed "s/<enumerator name='SRT_ERR_IO' value='[0-9]*'/<enumerator name='SRT_ERR_IO' value='99'/" "$tmp/built" > "$tmp/planted"
planted "a status with another value"
sed "/<function-decl name='srt_comm_abort'/,/<\/function-decl>/d; /elf-symbol name='srt_comm_abort'/d" "$tmp/built" > "$tmp/planted"
planted "a new function"

abidiff "$described" "$tmp/built" > "$tmp/out" 2>&1 && exit
cat "$tmp/out"
echo "The interface of $lib is not that of tests/policy/libshardrt.abi. If this is meant: make update-abi"
exit 1
