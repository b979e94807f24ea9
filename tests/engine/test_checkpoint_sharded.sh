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
left=$(cd $dir && ls -d ./*.tmp-* 2> /dev/null)
[ -z "$left" ] || { echo "FAIL: temporary folders are left: $left"; exit 1; }
