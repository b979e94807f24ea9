#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The sources are as clang-format 14 with .clang-format writes them, and no line is wider than 100
# columns, messages apart. Other versions of clang-format differ in details, so they are not asked.
sources=$PWD/tests/sources.txt
cd "$srcdir" || exit 1
skip() { echo "SKIP: $*"; exit 77; }
tool=
for t in clang-format-14 clang-format; do
	command -v $t > /dev/null && $t --version | grep -q 'version 14\.' && tool=$t && break
done
files=$(grep '\.[ch]$' "$sources")
[ -n "$files" ] || { echo "$sources has no C file"; exit 1; }
# All files in one process each: there are hundreds.
# shellcheck disable=SC2086
awk '/"/ { next }
	{
		line = $0
		while (i = index(line, "\t")) # to the next multiple of 8
			line = substr(line, 1, i - 1) substr("        ", 1, 8 - (i - 1) % 8) substr(line, i + 1)
	}
	length(line) > 100 { print FILENAME ":" FNR ": wider than 100 columns"; bad = 1 }
	END { exit bad }' $files || exit 1
[ -n "$tool" ] || skip "no clang-format 14; widths were checked"
# shellcheck disable=SC2086
$tool -style=file --dry-run -Werror $files && exit
echo "not formatted: clang-format -i FILE"
exit 1
