#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The manual pages: each has the options and variables that --help of its program has, and no others, with the same
# defaults; mandoc finds no fault; each is installed.
failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
complain() { echo "FAIL: $*"; failed=1; }

# Words like -n, --ranks and SHARDRT_RANK; SHARDRT_* means all of them.
list_words()
{
	tr -c 'A-Za-z0-9_-' '\n' | grep -xE -e '--?[A-Za-z][a-z0-9-]*|SHARDRT_[A-Z_]*[A-Z]' | sort -u
}

# The same of a page: "Fl Fl x" is --x, "Fl hk" is -h -k, "Ev X" is X.
list_page()
{
	awk '{
		for (i = 1; i < NF; i++) {
			if ($i ~ /^\.?Ev$/) print $(i + 1)
			if ($i !~ /^\.?Fl$/) continue
			i++
			if ($i == "Fl") print "--" $(++i)
			else for (k = 1; k <= length($i); k++) print "-" substr($i, k, 1)
		}
	}' "$1" | list_words
}

# "option value" of each default that --help has as "[value]", "(default value)" or "default value".
list_defaults()
{
	"$1" --help | awk '
		/^  *-/ { option = $1; sub(/^-*/, "", option); sub(/,$/, "", option) }
		option != "" && sub(/.*(\[|\(default |; default )/, "") && /^[^] )]+[])]?$/ { sub(/[])]$/, ""); print option, $0 }'
}

# check_page PROGRAM FOLDER [WORDS]: the words if --help has no defaults
check_page()
{
	program=$1 page=$srcdir/tools/$2/$1.1
	"./$program" --help | list_words > "$work/help"
	list_page "$page" > "$work/page"
	[ "$(wc -l < "$work/help")" -ge 7 ] || complain "$program --help lists $(wc -l < "$work/help") words"
	diff "$work/help" "$work/page" > "$work/diff" ||
		complain "$page (>) and $program --help (<) differ: $(cat "$work/diff")"
	list_defaults "./$program" > "$work/defaults"
	while read -r option value; do
		awk -v option="$option" -v value="$value" '
			/^\.It/ { here = 0; for (i = 1; i <= NF; i++) if ($i == option) here = 1 }
			here && $0 == "The default is " value "." { found = 1 }
			END { exit !found }' "$page" || complain "$page: the default of $option is not $value"
	done < "$work/defaults"
	[ -s "$work/defaults" ] || [ -n "$3" ] || complain "$program --help has no defaults"
	! command -v mandoc > /dev/null || mandoc -T lint -W warning "$page" || complain "mandoc -T lint $page"
}

check_page shardrt-ckpt ckpt "no defaults"
check_page shardrt-generate generate
check_page shardrun shardrun
check_page shardrt-info info
check_page shardrt-tokens tokens "no defaults"
check_page shardrt-train train
command -v mandoc > /dev/null || echo "skipped: mandoc -T lint (there is no mandoc)"
exit $failed
