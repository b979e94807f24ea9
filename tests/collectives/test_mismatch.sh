#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
. "$srcdir/tests/harness/run_ranks.sh"
for form in $forms $staged_forms; do
	use_form $form
	case $form in
	threads) worlds="2 3 5" ;;
	items | staged-inline) worlds=3 ;;
	*) worlds="2 5" ;;
	esac
	run_ranks "$worlds" tests/collectives/test_mismatch
done
