#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
. "$srcdir/tests/harness/run_ranks.sh"
for form in $forms; do
	use_form $form
	run_ranks "1 2 3" tests/models/test_int8
	break # the streams' kind changes no bit: tests/tools/test_train_streams.sh
done
