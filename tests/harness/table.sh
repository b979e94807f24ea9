# SPDX-License-Identifier: BSD-3-Clause
#
# For scripts that print a table and compare it with the one of a page. Sourced.

# rows_of KEY: the rows that tests name by this word (tests/policy/rows.awk), in the order of the files' names. In $srcdir.
rows_of()
{
	# shellcheck disable=SC2046
	${AWK:-awk} -v key="$1" -f tests/policy/rows.awk \
		$(find tests -name 'test_*.c' -o -name 'test_*.sh' | grep -v policy/ | LC_ALL=C sort)
}

# compare_table PAGE HEAD ROWS: prints the table of these names of columns and these rows. Ends the script with 1 if the
# page has another one after this line of names, or if a row has another number of columns.
compare_table()
{
	table=$(sed -n "/^$2\$/,/^\$/p" "$1" | sed '1,2d; /^$/d')
	printf '%s\n%s\n%s\n' "$2" "$(echo "$2" | sed 's/[^|]//g; s/|/|---/g; s/---$//')" "$3"
	bad=$(printf '%s\n' "$2" "$3" | awk -F '[|]' 'NR == 1 { n = NF } NF != n')
	[ -z "$bad" ] || { echo "another number of columns: $bad"; exit 1; }
	[ "$3" = "$table" ] || { echo "${1#"$srcdir"/} has another table: copy the one above"; exit 1; }
}
