#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The table in docs/reliability.md is what the tests say of themselves: comments "Reliability: DEFECT | BEFORE | NOW".
. "$srcdir/tests/harness/table.sh"
cd "$srcdir" || exit 1
rows=$(rows_of Reliability)
[ -n "$rows" ] || { echo "no test says what it was written for"; exit 1; }
compare_table docs/reliability.md '| defect | before | now | test |' "$rows"
