#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Every collective at world sizes that are powers of two and not, above 8 (partial sums, which have scratch) and above
# the number of cores, in each form of the backend. 17 ranks (partial sums of two full eights and one more),
# much of its time, and staged ones of more than 3 ranks run with make check-long and, on the cpu, where
# SRT_TEST_WORLDS is all: once in CI. On other devices also jobs of which a rank is on the cpu.
. "$srcdir/tests/harness/run_ranks.sh"
[ "$SRT_TEST_WORLDS" != all ] || most_staged=512
seventeen=
case $SRT_TEST_LONG$SRT_TEST_WORLDS in 1* | all) seventeen=" 17" ;; esac
for form in $forms $staged_forms; do
	use_form $form
	case $form in
	staged-inline) worlds="2 9" ;;
	staged-*) worlds="1 2 3 4 5" ;;
	threads) worlds="1 2 3 4 5 8 9$seventeen" most_ranks=512 ;;
	items) worlds="1 2 4 9$seventeen" ;;
	*) worlds="1 2 3 5 8" ;;
	esac
	run_ranks "$worlds" tests/collectives/test_collectives
	run_ranks "$worlds" tests/collectives/test_half_sums
done
if [ "$SHARDRT_BACKEND" != cpu ]; then
	use_form ${forms%% *}
	for mix in "cpu+$SHARDRT_BACKEND" "$SHARDRT_BACKEND+cpu"; do
		run_ranks 3 sh "$srcdir/tests/harness/by_rank.sh" "$mix" tests/collectives/test_collectives
	done
fi
