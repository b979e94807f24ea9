#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The harness must be able to fail: every kind of check in tests/check.h fails here on purpose, and the suite's
# summary counts failures and skips.
failed=0

# expect STATUS WORDS COMMAND...
expect()
{
	status=$1 words=$2
	shift 2
	out=$("$@" 2>&1)
	got=$?
	if [ $got -ne "$status" ]; then
		echo "$*: exit status $got, expected $status"
		failed=1
	fi
	case $out in
	*"$words"*) ;;
	*)
		echo "$*: output lacks \"$words\": $out"
		failed=1
		;;
	esac
}

prog=tests/always_fails
expect 0 "" $prog
expect 1 "0 of 0 checks" $prog nothing
expect 1 "always_fails.c:" $prog check
expect 1 "failed: 1 == 2" $prog check
expect 1 "cannot go on: 1 == 2" $prog die
expect 1 "the sentence" $prog ok
expect 1 "the sentence" $prog ok_or_die
expect 1 "expected call not allowed" $prog status
expect 1 "is 41" $prog int
expect 1 '"two"' $prog str
expect 1 "1 of 3 differ; first [1]" $prog bits
expect 1 "apart by" $prog near
expect 1 "apart by" $prog nan
expect 77 "SKIP: because of this" $prog skip

dir=tests/harness.tmp
rm -rf $dir
mkdir $dir || exit 1
for result in PASS SKIP FAIL XPASS ERROR; do
	echo ":test-result: $result" > $dir/$result.trs
	echo "SKIP: no $result today" > $dir/$result.log
done
: > $dir/none.log
expect 0 "1 passed, 4 failed, 1 skipped" sh "$srcdir/tests/summary.sh" $dir/PASS.log $dir/SKIP.log \
	$dir/FAIL.log $dir/XPASS.log $dir/ERROR.log $dir/none.log
expect 0 "skipped: $dir/SKIP: no SKIP today" sh "$srcdir/tests/summary.sh" $dir/SKIP.log
expect 0 "0 passed, 0 failed, 0 skipped" sh "$srcdir/tests/summary.sh"
rm -rf $dir
exit $failed
