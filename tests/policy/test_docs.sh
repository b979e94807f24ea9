#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Every function, type and enum of the public headers has a doc comment directly above it: 100 %.
# An injected undocumented prototype proves that the check sees one. Pages cite files that exist and excerpts that
# are in them (tests/policy/cites.awk).
awk=${AWK:-awk}
rules='
function begins_declaration() { return /^SRT_API / || /^typedef / }
FNR == 1 { documented = 0; in_doc = 0; depth = 0 }
/^\/\*\*/ { in_doc = 1; text = "" }
in_doc { text = text $0 }
in_doc && /\*\// { in_doc = 0; documented = length(text) >= 20; next }
in_doc { next }
begins_declaration() {
	total++
	if (!documented) {
		missing++
		print FILENAME ":" FNR ": no doc comment: " $0
	}
}
{ documented = 0 }
END {
	printf "%d of %d public declarations documented\n", total - missing, total
	exit missing > 0 || total == 0
}'

printf '/** Does this and that. */\nSRT_API int a(void);\nSRT_API int b(void);\n' > docs.tmp.h
out=$($awk "$rules" docs.tmp.h)
status=$?
rm -f docs.tmp.h
case $status,$out in
1,*":3: no doc comment"*"1 of 2 public"*) ;;
*) echo "the check missed an injected prototype: $out" && exit 1 ;;
esac
$awk "$rules" "$srcdir"/include/shardrt/*.h "$srcdir"/include/shardrt/models/*.h || exit 1

cites=$(cd "$srcdir" && pwd)/tests/policy/cites.awk
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/base"
printf 'one\n\ttwo\nthree\n' > "$tmp/base/a.c"
printf 'See `base/a.c`, [it](base/a.c).\n\n<!-- from base/a.c -->\n```c\n\ttwo\nthree\n```\n' > "$tmp/good.md"
printf 'See `base/b.c` and\n[it](b.md).\n<!-- from base/a.c -->\n```c\none\nthree\n```\n```c\none\n```\n' > "$tmp/bad.md"
out=$(cd "$tmp" && $awk -v tested=good -f "$cites" good.md) || { echo "what is there is not found: $out"; exit 1; }
case $out in
"2 files cited, 1 excerpts") ;;
*) echo "what is cited is not seen: $out" && exit 1 ;;
esac
out=$(cd "$tmp" && $awk -v tested=bad -f "$cites" bad.md) && { echo "what is missing is not missed: $out"; exit 1; }
case $out in
*"bad.md:1: there is no base/b.c"*"bad.md:2: the link leads nowhere: b.md"*"bad.md:7: the excerpt"*"bad.md:8: the C below"*) ;;
*) echo "the check missed something injected: $out" && exit 1 ;;
esac
cd "$srcdir" && $awk -v tested='^docs/(guide|embedding)' -f "$cites" README.md kernels/README.md tests/fakes/README.md docs/*.md || exit 1

functions=tests/policy/functions.awk
printf 'SRT_API int srt_a(void);\n' > "$tmp/a.h"
printf 'Call `srt_a()`, `srt_b_c()` or\n`srt_d()`.\n\nNot installed: `srt_b_*()`\nand `srt_d()`.\n' > "$tmp/good.md"
printf 'Not installed: `srt_b()`.\n\nCall `srt_a()`, `srt_b()`,\n`srt_e()`.\n' > "$tmp/bad.md"
out=$($awk -f $functions "$tmp/a.h" "$tmp/good.md") || { echo "what is marked is not seen: $out"; exit 1; }
out=$($awk -f $functions "$tmp/a.h" "$tmp/good.md" "$tmp/bad.md") && { echo "an injected function is not missed"; exit 1; }
case $out in
*"bad.md:4: no installed header has srt_e(); say so"*) ;;
*) echo "the check missed something injected: $out" && exit 1 ;;
esac
$awk -f $functions include/shardrt/*.h include/shardrt/models/*.h README.md docs/*.md
