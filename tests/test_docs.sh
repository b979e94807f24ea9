#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Every function, type and enum of the public headers has a doc comment directly above it: 100 %.
# A planted undocumented prototype proves that the check sees one.
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
*) echo "the check missed a planted prototype: $out" && exit 1 ;;
esac
exec $awk "$rules" "$srcdir"/include/shardrt/*.h
