# SPDX-License-Identifier: BSD-3-Clause
#
# To be sourced by a test script that runs a program on several ranks:
#
#     . "$srcdir/tests/run_ranks.sh"
#     run_ranks "1 2 3 4 5" tests/test_coll        every world size, one after the other
#
# Ends the script with 1 if one failed, 77 if the program skipped itself at all sizes, else 0.
# Runs in the top of the build folder.

SHARDRT_TIMEOUT=${SHARDRT_TIMEOUT:-60}
export SHARDRT_TIMEOUT

skip()
{
	echo "SKIP: $*"
	exit 77
}

run_ranks()
{
	worlds=$1
	shift
	[ -x ./shardrun ] || skip "shardrun was not built"
	failed= passed=
	for n in $worlds; do
		status=0
		./shardrun -n "$n" "$@" || status=$?
		case $status in
		0) passed="$passed $n" ;;
		77) ;;
		*) failed="$failed $n" && echo "FAIL: $* on $n ranks: exit status $status" ;;
		esac
	done
	[ -z "$failed" ] || exit 1
	[ -n "$passed" ] || exit 77
}
