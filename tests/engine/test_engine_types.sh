#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The engine's steps in all dtypes, resumed, and with changes between backward and step; in the backend's
# first form on more ranks, in the others on two. All dtypes are in the first form and in the staged one:
# tests/tools/test_hash_matrix.sh trains in 16 bits in each form, and on 5 ranks.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
ranks="1 2 3" types="1 2"
[ "$SHARDRT_BACKEND" != cpu ] || types=$ranks
for form in $forms ${staged_forms%% *}; do
	use_form $form
	case $form in
	"${forms%% *}" | staged-*) run_ranks "$types" tests/engine/test_engine_types ;;
	esac
	run_ranks "$ranks" tests/engine/test_engine_bytes
	run_ranks "$ranks" tests/engine/test_engine_resume
	run_ranks "$ranks" tests/engine/test_engine_phases
	ranks=2 types=2
done
