#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Module trees on 1 and 2 ranks; initial values on 1 to 5 ranks in the backend's first form, on 2 in the others.
#
# Parity: 004 TestFSDPWithMetaDevice.test_simple_model_with_torchdistX_default_init | 1 to 4 | all | same meaning: recorded
# initial values, `srt_module_record_init()`
# Parity: 004 TestFSDPWithMetaDevice.test_simple_model_with_torchdistX_init_fn | 1 to 4 | all | same meaning: recorded
# initial values and `param_init`
# Parity: 004 TestFSDPWithMetaDevice.test_nested_model_with_torchdistX_default_init | 1 to 4 | all | same meaning: recorded
# initial values, `srt_module_record_init()`
# Parity: 004 TestFSDPWithMetaDevice.test_nested_model_with_torchdistX_init_fn | 1 to 4 | all | same meaning: recorded
# initial values and `param_init`
. "$srcdir/tests/harness/run_ranks.sh"
use_form ${forms%% *}
run_ranks "1 2" tests/engine/test_modules
ranks="1 2 3 4 5"
for form in $forms; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_modules_init
	ranks=2
done
