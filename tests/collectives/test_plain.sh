#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Collectives in one call, on 1 to 5 ranks.
. "$srcdir/tests/harness/run_ranks.sh"
for form in $forms $staged_forms; do
	use_form $form
	case $form in
	threads) worlds="1 2 3 4 5" most_ranks=5 ;;
	*) worlds="1 2 3" ;;
	esac
	run_ranks "$worlds" tests/collectives/test_plain
done
