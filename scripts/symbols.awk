# SPDX-License-Identifier: BSD-3-Clause
#
# Public headers -> the names of the functions they mark with SRT_API, sorted by appearance; as a
# linker's symbol map with -v map=VERSION, else one name a line.
/^SRT_API[ \t]/ { decl = ""; open = 1 }
open {
	decl = decl " " $0
	if (index(decl, "(")) {
		sub(/[ \t]*\(.*/, "", decl)
		n = split(decl, word, /[ \t*]+/)
		name[++count] = word[n]
		open = 0
	}
}
END {
	if (map != "")
		printf "%s {\nglobal:\n", map
	for (i = 1; i <= count; i++)
		printf map != "" ? "\t%s;\n" : "%s\n", name[i]
	if (map != "")
		print "local:\n\t*;\n};"
}
