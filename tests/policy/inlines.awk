# SPDX-License-Identifier: BSD-3-Clause
#
# Inline functions of headers -> their definitions and calls, as `nm -A -g` prints those of objects, for
# tests/policy/cycles.awk. Used by tests/policy/test_cycles.sh. Needs only POSIX awk.
#
# Files: a list of sources without suffix and their objects, one pair a line; the headers; the C files. An inline
# function is defined by the objects of the C file that has the name of its header. If there is none, the header
# itself calls and is called.
function print_symbol(type, symbol,   names, n, i)
{
	n = split(source in objects ? objects[source] : FILENAME, names, " ")
	for (i = 1; i <= n; i++)
		print names[i] ": " type " " symbol
}

# The line without strings and comments.
function code_of(line,   out, at)
{
	gsub(/"([^"\\]|\\.)*"/, "", line)
	while (line != "") {
		at = index(line, in_comment ? "*/" : "/*")
		if (!in_comment)
			out = out substr(line, 1, at > 0 ? at - 1 : length(line))
		if (at == 0)
			break
		in_comment = !in_comment
		line = substr(line, at + 2)
	}
	return out
}

FNR == 1 {
	nfiles++
	source = FILENAME
	sub(/\.[ch]$/, "", source)
	is_header = FILENAME ~ /\.h$/
	in_function = in_comment = 0
}

nfiles == 1 {
	objects[$1] = objects[$1] " " $2
	next
}

{
	code = code_of($0)
}

is_header && code ~ /^static inline / && match(code, /[A-Za-z0-9_]+\(/) {
	symbol = substr(code, RSTART, RLENGTH - 1)
	is_inline[symbol] = 1
	print_symbol("T", symbol)
	code = substr(code, RSTART + RLENGTH)
	in_function = 1
}

!is_header || in_function {
	n = split(code, words, /[^A-Za-z0-9_]+/)
	for (i = 1; i <= n; i++)
		if (words[i] != "" && (is_header || words[i] in is_inline))
			print_symbol("U", words[i])
}

/^}/ {
	in_function = 0
}
