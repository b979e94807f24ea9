#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Module trees on 1 to 5 ranks in the backend's first form, initial values also in the others.
. "$srcdir/tests/harness/run_ranks.sh"
use_form ${forms%% *}
run_ranks "1 2" tests/engine/test_modules
ranks="1 2 3 4 5"
for form in $forms; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_modules_init
	ranks=2
done
