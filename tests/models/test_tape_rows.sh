#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
. "$srcdir/tests/harness/run_ranks.sh"
for form in $forms $staged_forms; do
	use_form $form
	most_ranks=4 run_ranks "1 2 4" tests/models/test_tape_rows
done
