# SPDX-License-Identifier: BSD-3-Clause
#
# kernels/kernels.def and docs/numerics.md, named in this order -> what the page's table of kernels has too much,
# too little or of other types, one a line. A row's first cell has the names of its kernels, "(f32)" behind those
# that are built for SRT_F32 alone; its last cell names the tests: elementwise is tests/test_kernels_elementwise.c or
# tests/test_elementwise.c. Used by tests/test_docs.sh. Needs no more than POSIX awk.
function complain(text) { print text; bad = 1 }

function exists(path,   line, got) {
	got = (getline line < path) >= 0
	close(path)
	return got
}

function check_names(cell,   n, i, names, name, only) {
	n = split(cell, names, / *, */)
	for (i = 1; i <= n; i++) {
		name = names[i]
		only = sub(/ *\(f32\)$/, "", name) ? "F32" : "ALL"
		nlisted++
		if (listed[name]++)
			complain(name " is listed twice")
		if (!(name in types))
			complain("there is no kernel " name)
		else if (types[name] != "" && types[name] != only)
			complain(name " is built for " types[name] ", and listed as " only)
	}
}

function check_tests(cell,   n, i, tests) {
	n = split(cell, tests, / *, */)
	if (n == 0)
		complain("line " FNR " names no test")
	for (i = 1; i <= n; i++)
		if (!exists("tests/test_kernels_" tests[i] ".c") && !exists("tests/test_" tests[i] ".c"))
			complain("line " FNR ": there is no test " tests[i])
}

FNR == NR {
	if (/^K\(/) {
		split(substr($0, 3), field, / *, */)
		types[field[2]] = field[3] ~ /^[A-Z0-9_]+$/ ? field[3] : ""
		nkernels++
	}
	next
}
/^## / { inside = $0 == "## Kernels" }
inside && /^\| / && !/^\| kernel / {
	sub(/^\| */, "")
	sub(/ *\| *$/, "")
	n = split($0, cell, / *\| /)
	check_names(cell[1])
	check_tests(cell[n])
}
END {
	for (name in types)
		if (!listed[name])
			complain("kernel " name " is not listed")
	printf "%d kernels, %d listed\n", nkernels, nlisted
	exit bad || !nkernels
}
