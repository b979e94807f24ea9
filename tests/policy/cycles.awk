# SPDX-License-Identifier: BSD-3-Clause
#
# Output of `nm -A -g` over object files -> groups of more than `limit` (default 3) files that call each
# other in a cycle, one a line. Used by tests/policy/test_cycles.sh. Needs only POSIX awk.
#
# A file calls another one if it has an undefined symbol that the other one defines. If several files define
# the symbol, they belong to different modules: the file of the same module is called, and the module is the
# part of the object's name before "_la-".
BEGIN {
	if (limit == "")
		limit = 3
}

{
	file = substr($0, 1, index($0, ":") - 1)
	if (!(file in number)) {
		number[file] = ++nfiles
		name_of[nfiles] = file
	}
	if ($(NF - 1) ~ /^[Uvw]$/)
		needs[file] = needs[file] " " $NF
	else
		defined[$NF] = defined[$NF] " " file
}

function module_of(file,   base) {
	base = file
	sub(/.*\//, "", base)
	return base ~ /_la-/ ? substr(base, 1, index(base, "_la-")) : ""
}

function find_edges(file,   symbols, n, i, files, m, k, same) {
	n = split(needs[file], symbols, " ")
	for (i = 1; i <= n; i++) {
		m = split(defined[symbols[i]], files, " ")
		same = 0
		for (k = 1; k <= m; k++)
			same += module_of(files[k]) == module_of(file)
		for (k = 1; k <= m; k++)
			if (files[k] != file && (!same || module_of(files[k]) == module_of(file)))
				edges[number[file]] = edges[number[file]] " " number[files[k]]
	}
}

# Tarjan's algorithm.
function visit(v,   targets, n, i, w, count, file, text) {
	index_of[v] = low[v] = ++nvisited
	stack[++depth] = v
	on_stack[v] = 1
	n = split(edges[v], targets, " ")
	for (i = 1; i <= n; i++) {
		w = targets[i]
		if (!(w in index_of)) {
			visit(w)
			if (low[w] < low[v])
				low[v] = low[w]
		} else if (on_stack[w] && index_of[w] < low[v]) {
			low[v] = index_of[w]
		}
	}
	if (low[v] != index_of[v])
		return
	do {
		w = stack[depth--]
		on_stack[w] = 0
		count++
		file = name_of[w]
		sub(/\.libs\//, "", file)
		text = " " file text
	} while (w != v)
	if (count > limit)
		print count " files call each other in a cycle:" text
}

END {
	for (i = 1; i <= nfiles; i++)
		find_edges(name_of[i])
	for (i = 1; i <= nfiles; i++)
		if (!(i in index_of))
			visit(i)
}
