#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Each public function has a caller: models, tools, examples, bench or the README, else a test. docs/interface.md lists
# the functions that only tests call.
. "$srcdir/tests/harness/table.sh"
cd "$srcdir" || exit 1

# rows HEADERS...: the rows, with the clients and tests of the tree.
rows()
{
	# shellcheck disable=SC2046
	${AWK:-awk} -f tests/policy/clients.awk of=header "$@" \
		of=client $(find models tools examples bench -name '*.[ch]' -o -name '*.cc' | LC_ALL=C sort) README.md \
		of=test $(find tests -name '*.[ch]' -o -name '*.cc' | grep -v null_arguments | LC_ALL=C sort)
}

planted=$(mktemp --suffix=.h) || exit 1
trap 'rm -f "$planted"' EXIT
echo 'SRT_API void srt_planted(void);' > "$planted"
rows "$planted" > /dev/null 2>&1 && { echo "a function that nothing calls is not found"; exit 1; }
rows=$(rows include/shardrt/*.h) || exit 1
compare_table docs/interface.md '| header | functions | functions that only tests call |' "$rows"
