#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Saving and loading at several world sizes: within a job, then from every size and strategy to
# every other, where the files must also be the same bytes.
. "$srcdir/tests/harness/run_ranks.sh"

run_ranks "1 2 3" tests/engine/test_checkpoint
run_ranks "1 2 3" tests/engine/test_checkpoint_files
run_ranks "1 2 3" tests/engine/test_file
run_ranks "1 2 3" tests/engine/test_save_folder
for where in begin tensor load build; do
	run_ranks "2 3" tests/engine/test_checkpoint dies $where
done
rm -rf tests/engine/test_checkpoint.w*.tmp tests/engine/test_file.w*.tmp tests/engine/test_save_folder.w*.tmp*

dir=tests/engine/test_checkpoint.dir
rm -rf $dir
mkdir -p $dir || exit 1
trap 'rm -rf $dir' EXIT
run_ranks "1 2 3" tests/engine/test_unit_buffers $dir
for save in "1 zero3" "2 zero3" "3 zero3" "2 ddp"; do
	set -- $save
	[ "$1" -le $most_ranks ] || continue
	file=$dir/$1-$2
	run_ranks "$1" tests/engine/test_checkpoint save $file "$2"
	cmp $dir/1-zero3 $file || exit 1
	for load in "1 ddp" "2 zero3" "3 zero3" "3 ddp"; do
		set -- $load
		run_ranks "$1" tests/engine/test_checkpoint load $file "$2"
	done
done
