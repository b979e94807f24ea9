# SPDX-License-Identifier: BSD-3-Clause
#
# Prints the rows of the table in docs/reliability.md from the tests: a test says what it was written for in a comment
#
#     Reliability: DEFECT | BEFORE | NOW
#
# which goes on to the end of the comment or to an empty line of it.
function finish()
{
	if (row != "")
		print "| " row " | `" file "` |"
	row = ""
}

FNR == 1 {
	finish()
	file = FILENAME
}
/^(\/\*| \*|#) Reliability: / {
	finish()
	row = $0
	sub(/^.*Reliability: /, "", row)
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
