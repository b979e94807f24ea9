#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The table in docs/reliability.md is what the tests say of themselves (reliability.awk), in the order of their names.
cd "$srcdir" || exit 1
begin='| defect | before | now | test |'
# shellcheck disable=SC2046
rows=$(awk -f tests/policy/reliability.awk \
	$(find tests -name 'test_*.c' -o -name 'test_*.sh' | grep -v policy/ | LC_ALL=C sort))
table=$(sed -n "/^$begin\$/,/^\$/p" docs/reliability.md | sed '1,2d; /^$/d')
printf '%s\n|---|---|---|---|\n%s\n' "$begin" "$rows"
[ -n "$rows" ] || { echo "no test says what it was written for"; exit 1; }
bad=$(echo "$rows" | awk -F ' [|] ' 'NF != 4')
[ -z "$bad" ] || { echo "not three parts: $bad"; exit 1; }
[ "$rows" = "$table" ] || { echo "docs/reliability.md has another table: copy the one above"; exit 1; }
