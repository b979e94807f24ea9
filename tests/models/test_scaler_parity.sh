#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
. "$srcdir/tests/harness/run_ranks.sh"
for form in $forms; do
	use_form $form
	run_ranks "2 3" tests/models/test_scaler_parity
done
