# SPDX-License-Identifier: BSD-3-Clause
#
# Complains about functions that a page names, `srt_x()`, and that no installed header has. Files: the headers, then
# pages (*.md). A page may name others in a sentence that begins with "Not installed:": `srt_x()`, or `srt_x_*()` for all
# functions whose names begin so. The sentence ends with an empty line.
function finish_page(name, prefix, covered)
{
	for (name in named) {
		covered = name in public || name in internal
		for (prefix in prefixes)
			covered = covered || index(name, prefix) == 1
		if (covered)
			continue
		print page ":" named[name] ": no installed header has " name "(); say so: \"Not installed: ...\""
		missing++
	}
	split("", named)
	split("", internal)
	split("", prefixes)
}
FNR == 1 {
	finish_page()
	page = FILENAME
	is_page = FILENAME ~ /\.md$/
	in_list = 0
}
/Not installed:/ {
	in_list = 1
}
/^$/ {
	in_list = 0
}
{
	line = $0
	if (in_list)
		sub(/^.*Not installed:/, "", line)
	while (match(line, is_page ? "`srt_[a-z0-9_]*\\*?\\(\\)" : "srt_[a-z0-9_]*\\(")) {
		name = substr(line, RSTART, RLENGTH)
		line = substr(line, RSTART + RLENGTH)
		gsub(/[`()]/, "", name)
		if (!is_page)
			public[name] = 1
		else if (!in_list)
			named[name] = FNR
		else if (sub(/\*$/, "", name))
			prefixes[name] = 1
		else
			internal[name] = 1
	}
}
END {
	finish_page()
	exit missing > 0
}
