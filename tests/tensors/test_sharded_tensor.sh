#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Sharded tensors on 1 to 4 ranks in the backend's first form, on 2 and 3 in the others.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
[ "$SHARDRT_BACKEND" != cpu ] || most_ranks=4
dir=tests/tensors/test_sharded_tensor.dir
rm -rf $dir
mkdir -p $dir || exit 1
trap 'rm -rf $dir' EXIT
ranks="1 2 3 4"
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "$ranks" tests/tensors/test_sharded_tensor
	run_ranks "$ranks" tests/tensors/test_sharded_optim
	run_ranks "$ranks" tests/tensors/test_sharded_layers
	run_ranks "$ranks" tests/tensors/test_sharded_layers wrong
	run_ranks "$ranks" tests/tensors/test_sharded_files $dir/saved
	run_ranks "$ranks" tests/tensors/test_sharded_guide
	[ -n "$SRT_TEST_LONG" ] || ranks="2 3"
done
