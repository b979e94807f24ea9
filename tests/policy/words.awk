# SPDX-License-Identifier: BSD-3-Clause
#
# Text files (names from the top) -> words that they must not use, and what to write instead, one a line. And comments
# of C that begin with a fragment, which is understood only after the comment above it.
# Used by tests/policy/test_words.sh. Needs no more than POSIX awk.
BEGIN {
	refuse("behind", "after, past, below, through or in the background")
	refuse("beside", "next to, with, compared with, concurrently or in addition to")
	refuse("stands", "is, means or is written")
	refuse("whoever", "the caller, the rank or the process")
	refuse("of its own", "its own, a separate or an additional")
	refuse("of their own", "their own, separate or additional")
	refuse("likewise", "also, or repeat the statement")
	refuse("under way", "in progress, in flight or running")
	refuse("leases?", "deferred free, import or reference")
	refuse("vendors?", "NCCL, the driver, the library or the manufacturer")
	refuse("dawdles?", "random delay")
	refuse("desks?", "fixture")

	allow("^tests/policy/(words\\.awk|test_words\\.sh)$", ".*") # the list, and lines that are injected
	allow("^NEWS$", "shardrt_collectives=vendor") # what a setting was called
	allow("", "/opencl/vendors") # the folder of the OpenCL loader's drivers
}

# A word is an extended regular expression in lower case; a space also matches the end of a line.
function refuse(word, instead) { words[++nwords] = word; instead_of[nwords] = instead }

# In files of this name the phrase is not looked at. Both are extended regular expressions.
function allow(file, phrase) { files[++nallowed] = file; phrases[nallowed] = phrase }

# The last n words of the previous line, with a space after each.
function tail(n,   out, i) {
	out = ""
	for (i = nprevious - n + 1; i <= nprevious; i++)
		if (i > 0)
			out = out previous[i] " "
	return out
}

# Whether text begins with a fragment. "As srt_x()" names its subject.
function begins_with_fragment(text)
{
	sub(/^[ \t*\/]*/, "", text)
	return text !~ /^As [a-z0-9_]+\(\)/ && match(text " ", /^(The same|And|Of|As|But|Those|Its)[^A-Za-z0-9_]/) ? \
		       substr(text, 1, RLENGTH - 1) : ""
}

FILENAME ~ /\.([chk]|cl|cc|cu)$/ {
	comment = ""
	if (opens)
		comment = $0
	else if (match($0, /\/\*/) && substr($0, 1, RSTART) !~ /"/)
		comment = substr($0, RSTART)
	opens = comment ~ /^\/\*\*?[ \t]*$/
	if ((fragment = begins_with_fragment(comment)) != "")
		print FILENAME ":" FNR ": \"" fragment "\": write the subject of the comment first"
}

FNR == 1 { nprevious = 0 }
{
	line = tolower($0)
	for (i = 1; i <= nallowed; i++)
		if (FILENAME ~ files[i])
			gsub(phrases[i], "", line)
	gsub(/^[ \t*#"\/]+|[ \t"\\]+$/, "", line) # the marks of comments and strings
	for (i = 1; i <= nwords; i++) {
		text = " " tail(split(words[i], parts, " ") - 1) line " "
		if (match(text, "[^a-z0-9_]" words[i] "[^a-z0-9_]"))
			print FILENAME ":" FNR ": \"" substr(text, RSTART + 1, RLENGTH - 2) "\": write " \
			      instead_of[i]
	}
	nprevious = split(line, previous, /[ \t]+/)
}
