# SPDX-License-Identifier: BSD-3-Clause
#
# Pages of documentation (names from the top) -> what they cite and what is not there, one a line:
# files in backticks or in links, and excerpts: a line "<!-- from FILE -->" before a fenced block says that its
# lines stand in FILE, in this order and without a gap. On pages whose name matches the variable `tested` each block
# of C is an excerpt. Used by tests/policy/test_docs.sh. Needs no more than
# POSIX awk.
function complain(text) { print FILENAME ":" FNR ": " text; bad = 1 }

function exists(path,   line, got) {
	got = (getline line < path) >= 0
	close(path)
	return got
}

# A file of the tree: has a known folder and no wildcard. The path of a test program means its source.
function check_path(path) {
	sub(/^\.\//, "", path)
	if (path !~ /^(base|kernels|device|backends|collectives|runtime|models|tools|tests|bench|examples|docs|include|scripts|m4)\/[A-Za-z0-9_.\/-]*[A-Za-z0-9_]$/)
		return
	ncited++
	if (exists(path) || exists(path ".c"))
		return
	complain("there is no " path)
}

# Lines first..last of excerpt[] must stand in `file`.
function check_excerpt(file, n,   line, k, i, ok, all, count) {
	count = 0
	while ((getline line < file) > 0)
		all[++count] = line
	close(file)
	for (k = 1; k + n - 1 <= count; k++) {
		ok = 1
		for (i = 1; i <= n && ok; i++)
			ok = all[k + i - 1] == excerpt[i]
		if (ok)
			return
	}
	complain("the excerpt above does not stand in " file)
}

FNR == 1 { fence = 0; from = "" }
/^<!-- from .* -->$/ { from = $3; nexcerpts++; next }
/^```/ {
	if (!fence && !from && tested && FILENAME ~ tested && /^```c/)
		complain("the C below is not compiled by a test: take it from a file")
	if (fence && from_now)
		check_excerpt(from_now, n)
	fence = !fence
	from_now = fence ? from : ""
	from = ""
	n = 0
	next
}
fence { excerpt[++n] = $0; next }
{
	rest = $0
	while (match(rest, /`[^`]+`/)) {
		check_path(substr(rest, RSTART + 1, RLENGTH - 2))
		rest = substr(rest, RSTART + RLENGTH)
	}
	rest = $0
	while (match(rest, /\]\([^)#:]+\)/)) {
		path = substr(rest, RSTART + 2, RLENGTH - 3)
		rest = substr(rest, RSTART + RLENGTH)
		dir = FILENAME
		if (!sub(/\/[^\/]*$/, "/", dir))
			dir = ""
		ncited++
		if (!exists(dir path))
			complain("the link leads nowhere: " path)
	}
}
END {
	printf "%d files cited, %d excerpts\n", ncited, nexcerpts
	exit bad
}
