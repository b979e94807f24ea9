#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# summary.sh LOG...: results of the test programs whose logs these are (the .trs of each log has the
# result), printed by `make check` at its end: a table of the tests that run on several backends and
# numbers of ranks, from the lines "# on BACKEND WORLD RESULT [REASON]" of tests/harness/run_test.sh; the slowest tests,
# by its lines "# took N s, ..."; what was skipped and why; one plain line.
passed=0 failed=0 skipped=0 notes=
newline='
'
for log in "$@"; do
	trs=${log%.log}.trs
	result=$(sed -n 's/^:test-result: *//p' "$trs" 2>/dev/null)
	case $result in
	PASS* | XFAIL*) passed=$((passed + 1)) ;;
	SKIP*)
		skipped=$((skipped + 1))
		reason=$(sed -n 's/^SKIP: //p' "$log" | head -n 1)
		notes="$notes# skipped: ${log%.log}: ${reason:-no reason given}$newline"
		;;
	*)
		failed=$((failed + 1))
		notes="$notes# failed: ${log%.log}: see $log$newline"
		;;
	esac
done

# World "-" is the whole test on the backend. Of several lines for one cell the worst counts.
[ $# = 0 ] || grep '^# on [^ ]* [^ ]* \(pass\|fail\|skip\)' "$@" /dev/null 2> /dev/null | awk '
function pad(text, n) { return sprintf("%-" n "s", text) }
function trimmed(text) { sub(/ *$/, "", text); return text }
function rank(result) { return result == "fail" ? 3 : result == "skip" ? 2 : 1 }
{
	test = $1
	sub(/\.log:#$/, "", test)
	backend = $3; world = $4; result = $5
	reason = ""
	for (i = 6; i <= NF; i++) reason = reason (i == 6 ? "" : " ") $i
	if (!(test in row)) { row[test] = ++nrows; names[nrows] = test }
	if (!(backend in known)) { known[backend] = ++nbackends; backends[nbackends] = backend }
	column = backend " " world
	if (!(column in has)) { has[column] = 1; worlds[backend] = worlds[backend] " " world }
	key = test " " column
	if (!(key in cell) || rank(result) > rank(cell[key]))
		cell[key] = result
	if (result == "skip" && !((test, backend, reason) in noted)) {
		noted[test, backend, reason] = 1
		why = backend ": " reason
		if (!(why in count)) whys[++nwhys] = why
		count[why]++
		who[why] = test
	}
}
END {
	if (!nrows) exit
	for (b = 1; b <= nbackends; b++) {
		n = split(worlds[backends[b]], w, " ")
		for (i = 2; i <= n; i++) # by size, "-" first
			for (j = i; j > 1 && (w[j] == "-" ? -1 : w[j] + 0) < (w[j - 1] == "-" ? -1 : w[j - 1] + 0); j--) {
				t = w[j]; w[j] = w[j - 1]; w[j - 1] = t
			}
		from = length(line)
		for (i = 1; i <= n; i++) {
			columns[++ncolumns] = backends[b] " " w[i]
			wide[ncolumns] = i == n && n * 6 <= length(backends[b]) ? length(backends[b]) + 7 - n * 6 : 6
			line = line pad(w[i], wide[ncolumns])
		}
		top = pad(top, from) backends[b]
	}
	note = "ranks (-: all that the test takes)"
	width = length(note)
	for (r = 1; r <= nrows; r++)
		if (length(names[r]) > width) width = length(names[r])
	print pad("backend", width + 2) top
	print pad(note, width + 2) trimmed(line)
	for (r = 1; r <= nrows; r++) {
		text = ""
		for (c = 1; c <= ncolumns; c++) {
			key = names[r] " " columns[c]
			what = key in cell ? (cell[key] == "fail" ? "FAIL" : cell[key]) : "."
			text = text pad(what, wide[c])
		}
		print pad(names[r], width + 2) trimmed(text)
	}
	for (i = 1; i <= nwhys; i++)
		printf "# skipped: %s on %s\n", count[whys[i]] == 1 ? who[whys[i]] : count[whys[i]] " tests", whys[i]
}'
[ $# = 0 ] || awk '
/^# took / {
	test = FILENAME
	sub(/\.log$/, "", test)
	printf "%d %d %s\n", $3, $5, test
}' "$@" | sort -k 1,1nr -k 3 | awk '
{ wall += $1; processor += $2 }
NR <= 15 { slow[NR] = $1; line[NR] = $1 " s, " $2 " s of processor time: " $3 }
END {
	if (!NR) exit
	printf "# %d tests took %d s, %d s of processor time; the slowest:\n", NR, wall, processor
	for (i = 1; i in line; i++)
		printf "# slow: %2d %%  %s\n", wall ? 100 * slow[i] / wall + 0.5 : 0, line[i]
}'
printf '%s' "$notes"
echo "$passed passed, $failed failed, $skipped skipped"
