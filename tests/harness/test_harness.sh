#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The harness must be able to fail: every kind of check in tests/harness/check.h fails here on purpose, and the suite's
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

prog=tests/harness/always_fails
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
expect 1 "took 7" env SRT_PATIENCE=1 $prog late
expect 0 "" env SRT_PATIENCE=10 $prog late
expect 1 "s, not 200" env SRT_PATIENCE=1000 $prog hung
expect 77 "SKIP: because of this" $prog skip

dir=tests/harness.tmp
rm -rf $dir
mkdir $dir || exit 1
for result in PASS SKIP FAIL XPASS ERROR; do
	echo ":test-result: $result" > $dir/$result.trs
	echo "SKIP: no $result today" > $dir/$result.log
done
: > $dir/none.log
expect 0 "1 passed, 4 failed, 1 skipped" sh "$srcdir/tests/harness/summary.sh" $dir/PASS.log $dir/SKIP.log \
	$dir/FAIL.log $dir/XPASS.log $dir/ERROR.log $dir/none.log
expect 0 "skipped: $dir/SKIP: no SKIP today" sh "$srcdir/tests/harness/summary.sh" $dir/SKIP.log
expect 0 "0 passed, 0 failed, 0 skipped" sh "$srcdir/tests/harness/summary.sh"

# A test on several backends: the worst of them counts, and the table says which.
cat > $dir/on.sh <<'END'
. "$srcdir/tests/harness/run_ranks.sh"
case $SHARDRT_BACKEND in
cpu) cell 1 pass && cell 3 pass ;;
toy) skip "the $SHARDRT_BACKEND is broken" ;;
*) cell 2 "$WHAT" && [ "$WHAT" = pass ] ;;
esac
END
cat > $dir/runs.sh <<'END'
unset SRT_TEST_TIMED
cd $1 && mkdir -p tests && cat > tests/backends.txt && shift && SRT_DEVICE_TESTS=on.sh && export SRT_DEVICE_TESTS
exec sh "$srcdir/tests/harness/run_test.sh" on.sh
END
srcdir=$(cd "$srcdir" && pwd)
export srcdir
unset SHARDRT_TEST_BACKENDS
# runs STATUS WORDS BACKENDS: on.sh on these
runs()
{
	printf '%s\n' "$3" > $dir/list
	expect "$1" "$2" sh $dir/runs.sh $dir < $dir/list
}
WHAT=pass
export WHAT
all='cpu ok here
opencl missing no device today
other ok there
toy ok x'
runs 0 "# on cpu 3 pass" "$all"
runs 0 "# on other 2 pass" "$all"
runs 0 "# on opencl - skip no device today" "$all"
runs 0 "# on toy - skip the toy is broken" "$all"
runs 77 "SKIP: no device today" "opencl missing no device today"
SHARDRT_TEST_BACKENDS=cpu,opencl
export SHARDRT_TEST_BACKENDS
runs 1 "FAIL: SHARDRT_TEST_BACKENDS has opencl: no device today" "$all"
unset SHARDRT_TEST_BACKENDS
runs 0 "# took" "$all"
SRT_LEFT_OUT="toy:a.sh other:on.sh"
export SRT_LEFT_OUT
runs 0 "# on cpu 3 pass" "$all"
case $out in *"on other"*) echo "FAIL: a test ran on a backend where it is left out: $out" && failed=1 ;; esac
runs 77 "SKIP: runs on other in make check-long" "other ok there"
unset SRT_LEFT_OUT

# A script runs on one core; in check-long, if it is a test of threads, or with SRT_TEST_CORES=all on all of them.
own=$(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status)
if flock $dir chrt -b 0 taskset -c 0-4095 true; then
	mv $dir/on.sh $dir/kept
	printf '%s\n' "sed -n 's/^Cpus_allowed_list:[^0-9]*/cores: /p; \$s/.*/./p' /proc/self/status" > $dir/on.sh
	runs 0 "cores: ${own%%[-,]*}
." "$all"
	for all_cores in SRT_TEST_CORES=all SRT_TEST_LONG=1 'SRT_THREAD_TESTS=a.sh on.sh b.sh'; do
		export "${all_cores?}"
		runs 0 "cores: $own
." "$all"
		unset "${all_cores%%=*}"
	done
	mv $dir/kept $dir/on.sh
fi
WHAT=fail
runs 1 "# on other 2 fail" "$all"
echo "$out" > $dir/FAIL.log
expect 0 "$dir/FAIL              pass  pass  skip   FAIL  skip" sh "$srcdir/tests/harness/summary.sh" $dir/FAIL.log
expect 0 "# skipped: $dir/FAIL on opencl: no device today" sh "$srcdir/tests/harness/summary.sh" $dir/FAIL.log

# A test that uses the processor, and the slowest of several tests.
sed -i 's/^case/i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; case/' $dir/on.sh
runs 1 "# took" "$all"
case $out in *" 0.0 s of processor time") echo "FAIL: a loop took no processor time: $out" && failed=1 ;; esac
echo '# took 30 s, 9 s of processor time' > $dir/FAIL.log
echo '# took 10 s, 12 s of processor time' > $dir/PASS.log
expect 0 "# 2 tests took 40 s, 21 s of processor time; the slowest:
# slow: 75 %  30 s, 9 s of processor time: $dir/FAIL
# slow: 25 %  10 s, 12 s of processor time: $dir/PASS" sh "$srcdir/tests/harness/summary.sh" $dir/PASS.log $dir/FAIL.log
rm -rf $dir
exit $failed
