#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What docs/guide.md shows: its excerpts are in this program and in examples/ (tests/policy/test_docs.sh). A second run of
# examples/train_all begins with what the first one has saved. examples/train_modules prints the same in all forms.
. "$srcdir/tests/harness/run_ranks.sh"
SHARDRT_THREADS=1
export SHARDRT_THREADS
dir=tests/engine/test_guide.dir
rm -rf $dir
mkdir -p $dir || exit 1
trap 'rm -rf $dir' EXIT

# loss LINE FILE: the loss in this line of a run's output.
loss() { sed -n "$1p" "$2" | sed 's/.*loss //'; }

ranks="1 2 3"
for form in $forms ${staged_forms%% *}; do
	use_form $form
	run_ranks "$ranks" tests/engine/test_guide
	rm -rf $dir/whole $dir/parts && mkdir $dir/whole $dir/parts || exit 1
	[ ! -x tests/engine/test_guide_resume ] || run_ranks 2 tests/engine/test_guide_resume $dir/whole $dir/parts
	run_ranks 2 examples/train_own > $dir/own || { cat $dir/own; exit 1; }
	file=$dir/$form.safetensors
	run_ranks 2 examples/train_all $file > $dir/first || { cat $dir/first; exit 1; }
	cat $dir/first
	awk '{ loss[NR] = $4 } END { exit !(NR == 6 && loss[6] < loss[1] / 100 && loss[6] < loss[5]) }' $dir/first ||
		{ echo "examples/train_all did not learn"; exit 1; }
	cmp $file $dir/${forms%% *}.safetensors || exit 1
	run_ranks 2 examples/train_modules > $dir/modules-$form || { cat $dir/modules-$form; exit 1; }
	cmp $dir/modules-$form $dir/modules-${forms%% *} || exit 1
	awk '{ loss[NR] = $4 } END { exit !(NR == 4 && loss[4] < loss[1] / 1000) }' $dir/modules-$form ||
		{ cat $dir/modules-$form; echo "examples/train_modules did not learn"; exit 1; }
	ranks=2
done
run_ranks 2 examples/train_all $file > $dir/second || { cat $dir/second; exit 1; }
[ "$(loss 1 $dir/second)" = "$(loss 6 $dir/first)" ] || { cat $dir/second; echo "examples/train_all did not load"; exit 1; }
