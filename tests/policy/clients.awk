# SPDX-License-Identifier: BSD-3-Clause
#
# Rows of the table in docs/interface.md: header, its functions, those that only tests call and a test of each. Files:
# of=header public headers, of=client programs, examples and pages, of=test tests. Complains about a function without
# a call.
of == "header" && FNR == 1 {
	header = FILENAME
	sub(/.*\//, "", header)
	headers[++nheaders] = header
}
of == "header" && /^SRT_API[ \t]/ {
	declaration = ""
	in_declaration = 1
}
of == "header" && in_declaration {
	declaration = declaration $0
	if (match(declaration, /srt_[a-z0-9_]*\(/)) {
		name = substr(declaration, RSTART, RLENGTH - 1)
		header_of[name] = header
		if (index(declaration, name "(void)"))
			is_void[name] = 1
		names[header, ++nnames[header]] = name
		in_declaration = 0
	}
}
of != "header" {
	line = $0
	while (match(line, /srt_[a-z0-9_]*/)) {
		name = substr(line, RSTART, RLENGTH)
		line = substr(line, RSTART + RLENGTH)
		# Comments write srt_x() of a function that has arguments.
		if (!(name in header_of) || (index(line, "()") == 1 && !(name in is_void)))
			continue
		if (of == "client")
			has_client[name] = 1
		else if (!(name in test_of))
			test_of[name] = FILENAME
	}
}
END {
	for (h = 1; h <= nheaders; h++) {
		header = headers[h]
		if (!nnames[header])
			continue
		list = last = ""
		for (i = 1; i <= nnames[header]; i++) {
			name = names[header, i]
			if (name in has_client)
				continue
			if (!(name in test_of)) {
				print header ": nothing calls " name "(): call it, or remove it" > "/dev/stderr"
				missing++
				continue
			}
			if (test_of[name] != last)
				list = list (last == "" ? "" : " (" last "); ")
			else
				list = list ", "
			list = list "`" name "`"
			last = "`" test_of[name] "`"
		}
		print "| " header " | " nnames[header] " | " list (last == "" ? "" : " (" last ")") " |"
	}
	exit missing > 0
}
