#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# summary.sh LOG...: results of the test programs whose logs these are (the .trs beside each log has the
# result): what was skipped and why, then one plain line. Printed by `make check` at its end.
passed=0 failed=0 skipped=0
for log in "$@"; do
	trs=${log%.log}.trs
	result=$(sed -n 's/^:test-result: *//p' "$trs" 2>/dev/null)
	case $result in
	PASS* | XFAIL*) passed=$((passed + 1)) ;;
	SKIP*)
		skipped=$((skipped + 1))
		reason=$(sed -n 's/^SKIP: //p' "$log" | head -n 1)
		echo "# skipped: ${log%.log}: ${reason:-no reason given}"
		;;
	*)
		failed=$((failed + 1))
		echo "# failed: ${log%.log}: see $log"
		;;
	esac
done
echo "$passed passed, $failed failed, $skipped skipped"
