# SPDX-License-Identifier: BSD-3-Clause
#
# Prints rows of a table from the tests (names from the top). With -v key=WORD: a comment
#
#     WORD: PART | PART
#
# which goes on to the end of the comment, to an empty line of it or to the next WORD, is a row of these parts and the
# name of the file. Used with "Reliability" and "Parity". Needs no more than POSIX awk.
function finish()
{
	if (row != "")
		print "| " row " | `" file "` |"
	row = ""
}

BEGIN {
	start = "^(/\\*| \\*|#) " key ": "
}
FNR == 1 {
	finish()
	file = FILENAME
}
$0 ~ start {
	finish()
	row = $0
	sub("^.*" key ": ", "", row)
	next_line = 0
}
row != "" {
	line = $0
	if (next_line++) {
		if (sub(/^( \*|#) /, "", line))
			row = row " " line
		else
			finish()
	}
	if (sub(/ *\*\/$/, "", row))
		finish()
}
END {
	finish()
}
