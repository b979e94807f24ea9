#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The engine's steps in all dtypes, resumed, and with changes between backward and step; in the backend's
# first form on more ranks, in the others on two.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
ranks="1 2 5" few="1 2 3"
for form in $forms ${staged_forms##* }; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_engine_types
	run_ranks "$few" tests/engine/test_engine_resume
	run_ranks "$few" tests/engine/test_engine_phases
	ranks=2 few=2
done
