#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
. "$srcdir/tests/harness/run_ranks.sh"
[ $most_ranks -ge 4 ] || most_ranks=4 most_staged=4 # it is short
for form in $forms $staged_forms; do
	use_form $form
	case $form in
	items) worlds="3" ;;
	staged-threads) worlds="2 4" ;;
	staged-*) worlds="3" ;;
	*) worlds="1 2 3 4" ;;
	esac
	run_ranks "$worlds" tests/collectives/test_messages
done
