#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
. "$srcdir/tests/harness/run_ranks.sh"
for form in $forms; do
	use_form $form
	run_ranks "1 2 4" tests/models/test_decode
	most_ranks=4 run_ranks 4 tests/models/test_decode parts
	[ "$SHARDRT_BACKEND" = cpu ] || continue
	for isa in baseline avx2; do
		[ $isa = baseline ] || grep -q '^#define HAVE_AVX2 1' config.h || continue
		[ $isa = baseline ] || grep -qw avx2 /proc/cpuinfo || continue
		export SHARDRT_CPU_ISA=$isa
		run_ranks 1 tests/models/test_decode
	done
	unset SHARDRT_CPU_ISA
	break # the streams' kind changes no bit: tests/tools/test_train_streams.sh
done
