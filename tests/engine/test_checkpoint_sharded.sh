#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Sharded checkpoints: from arrangements of ranks to others, and resumed runs.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x tests/engine/test_checkpoint_sharded ] || skip "sharded checkpoints need jansson and libxxhash"
SHARDRT_THREADS=1
export SHARDRT_THREADS
[ $most_ranks -ge 4 ] || most_ranks=5 most_staged=5

dir=tests/engine/test_checkpoint_sharded.dir
rm -rf $dir
mkdir -p $dir || exit 1
trap 'rm -rf $dir' EXIT
case ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND}$SRT_TEST_LONG in
cpu | *1)
	saves="1-ddp 2-zero3 3-views 4-hybrid 4-tp-views 5-padded 3-tp-all 2-offload"
	loads="1-zero3 2-ddp 3-zero2 4-tp 5-views 4-tp-views 2-zero1 3-offload"
	;;
*) saves="1-ddp 2-views 4-tp" loads="1-zero3 2-zero3 4-tp-views 2-offload" ;;
esac
for save in $saves 2-bf16; do
	run_ranks "${save%%-*}" tests/engine/test_checkpoint_sharded save $dir/$save "${save#*-}"
	[ "$(cat $dir/latest)" = "$save" ] || exit 1
done
for load in $loads; do
	for save in $saves; do
		run_ranks "${load%%-*}" tests/engine/test_checkpoint_sharded load $dir/$save "${load#*-}"
	done
done
run_ranks "3" tests/engine/test_checkpoint_sharded load $dir/1-ddp bf16
run_ranks "3" tests/engine/test_checkpoint_sharded load-bf16 $dir/2-bf16 zero3
for form in $forms; do
	use_form $form
	run_ranks "1 2 3" tests/engine/test_checkpoint_sharded resume $dir/resumed
done
use_form "${forms%% *}"
mkdir $dir/damaged || exit 1
run_ranks "1 2 3" tests/engine/test_checkpoint_damage $dir/damaged

# Reliability: a save whose process is killed before any of its calls that change files, on any rank | - | the latest
# checkpoint is the complete earlier one, or the complete new one
# Reliability: calls of a save that fail or write a part, each in turn, on each rank | - | an error on all ranks, and the
# same
case ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND} in
cpu)
	mkdir $dir/failing $dir/killed || exit 1
	run_ranks "2" tests/engine/test_checkpoint_killed fail $dir/failing
	seed=1 points=0
	./shardrun -n 2 tests/engine/test_checkpoint_killed kill $dir/killed/one $seed 9 0 || exit 1
	for rank in 0 1; do
		n=1 status=137
		while [ $status != 0 ]; do
			before=$seed seed=$((seed + 1)) status=0
			./shardrun -n 2 tests/engine/test_checkpoint_killed kill $dir/killed/step-$((n % 2)) $seed $rank $n \
				> $dir/out 2>&1 || status=$?
			case $status in 0 | 137) ;; *) cat $dir/out && exit 1 ;; esac
			found=$(./shardrun -n 1 tests/engine/test_checkpoint_killed check $dir/killed) || exit 1
			found=${found#seed }
			case $status.$found in
			0.$seed | 137.$seed | 137.$before) seed=$found ;;
			*) echo "FAIL: call $n of rank $rank: seed $found, not $seed or $before" && exit 1 ;;
			esac
			n=$((n + 1)) points=$((points + 1))
		done
	done
	echo "$points kill points"
	[ $points -gt 20 ] || exit 1
	;;
esac
left=$(find $dir -name '*.tmp-*')
[ -z "$left" ] || { echo "FAIL: temporary folders are left: $left"; exit 1; }
