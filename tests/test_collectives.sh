#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Every collective at world sizes that are powers of two and not, above 8 (partial sums) and above
# the number of cores, in each form of the backend.
. "$srcdir/tests/run_ranks.sh"
for form in $forms $staged_forms; do
	use_form $form
	case $form in
	staged-inline) worlds="2 9" ;;
	staged-*) worlds="1 2 3 4 5" ;;
	threads | items) worlds="1 2 4 9 17" ;;
	*) worlds="1 2 3 5 8" ;;
	esac
	run_ranks "$worlds" tests/test_collectives
done
