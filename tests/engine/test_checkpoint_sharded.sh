#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Sharded checkpoints: from arrangements of ranks to others, and resumed runs. One state has one hash in all of them,
# and that of the parameters is the hash of the engine.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x tests/engine/test_checkpoint_sharded ] || skip "sharded checkpoints need jansson and libxxhash"
SHARDRT_THREADS=1
export SHARDRT_THREADS
[ $most_ranks -ge 4 ] || most_ranks=5 most_staged=5

# Of the calls that are killed or fail, each; in slow builds every third.
stride=1
[ "$SRT_TEST_WORLDS" != largest ] || stride=3

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
# hash_of PATH: of all tensors, which must be free of defects
hash_of()
{
	./shardrt-ckpt verify "$1" > $dir/out && ./shardrt-ckpt hash --all "$1" | sed -n '1s/ .*//p' || { cat $dir/out >&2; exit 1; }
}
# same_hash FOLDER: as the first one
same_hash()
{
	this=$(hash_of "$1") && [ "$this" = "$hash" ] || { echo "FAIL: the hash of $1 is '$this', not $hash"; exit 1; }
}
hash=$(hash_of $dir/1-ddp) && [ ${#hash} = 32 ] || exit 1
for save in $saves; do
	same_hash $dir/$save
done
[ "$(hash_of $dir/2-bf16)" != $hash ] || { echo "FAIL: rounded values have the same hash"; exit 1; }
case ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND}$SRT_TEST_LONG in
cpu1)
	for n in 1 2 3 5; do
		for form in ddp zero1 zero2 zero3 ddp-flat zero1-flat zero2-flat views; do
			run_ranks $n tests/engine/test_checkpoint_sharded save $dir/matrix $form
			same_hash $dir/matrix
		done
	done
	for save in 2-tp 2-tp-views 4-tp 4-tp-views; do
		run_ranks ${save%%-*} tests/engine/test_checkpoint_sharded save $dir/matrix ${save#*-}
		same_hash $dir/matrix
	done
	;;
esac
for n in 1 2 4; do # another number of ranks without a job
	./shardrt-ckpt reshard --ranks $n $dir/[23]-views $dir/resharded || exit 1
	same_hash $dir/resharded
	run_ranks 2 tests/engine/test_checkpoint_sharded load $dir/resharded zero3
done
[ "$(cat $dir/latest)" != resharded ] || { echo "FAIL: reshard has changed 'latest'"; exit 1; }
for load in $loads; do
	for save in $saves; do
		run_ranks "${load%%-*}" tests/engine/test_checkpoint_sharded load $dir/$save "${load#*-}"
	done
done
run_ranks "3" tests/engine/test_checkpoint_sharded load $dir/1-ddp bf16
run_ranks "3" tests/engine/test_checkpoint_sharded load-bf16 $dir/2-bf16 zero3
for n in 1 2 3; do
	run_ranks $n tests/engine/test_checkpoint_entries save $dir/entries
	run_ranks "1 2 3" tests/engine/test_checkpoint_entries load $dir/entries $n
done
for form in $forms; do
	use_form $form
	run_ranks "1 2 3" tests/engine/test_checkpoint_sharded resume $dir/resumed
	run_ranks "1 2 3" tests/engine/test_checkpoint_values $dir/values
	run_ranks "1 2 3" tests/engine/test_checkpoint_sharded order $dir/one $dir/other
done
use_form "${forms%% *}"
case ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND} in
cpu) # the bytes that ranks read
	if [ -r /proc/self/io ]; then
		for save in 1-ddp 3-flat 4-tp; do
			run_ranks ${save%%-*} tests/engine/test_checkpoint_reads save $dir/reads "${save#*-}"
			for load in 2-zero3 3-flat 4-tp; do
				run_ranks ${load%%-*} tests/engine/test_checkpoint_reads load $dir/reads "${load#*-}"
			done
		done
		rm -rf $dir/reads
	fi
	;;
esac
mkdir $dir/damaged || exit 1
run_ranks "1 2 3" tests/engine/test_checkpoint_damage $dir/damaged

# Reliability: a checkpoint that is written again for other ranks, killed before or failing in any of its calls | - |
# the folder is absent, the complete earlier checkpoint, or the complete new one
reshard_killed()
{
	kills=$dir/reshard points=0
	mkdir $kills || exit 1
	for seed in 100 200; do
		./shardrun -n 2 tests/engine/test_checkpoint_killed kill $kills/$seed $seed 9 0 || exit 1
	done
	from=$(hash_of $kills/100) && old=$(hash_of $kills/200) || exit 1
	for kind in kill fail; do
		n=0 made=
		until [ "$made" = "end, success" ]; do
			n=$((n + stride)) points=$((points + 1)) status=0
			rm -rf $kills/new $kills/there
			cp -r $kills/200 $kills/there || exit 1
			to=$([ $((n % 2)) = 0 ] && echo new || echo there)
			tests/engine/test_checkpoint_killed reshard $kind $n $kills/100 $kills/$to > $dir/made 2>&1 || status=$?
			made=$(cat $dir/made) now=absent
			[ ! -e $kills/$to ] || now=$(hash_of $kills/$to) || exit 1
			case $status.$made.$to.$now in
			0.*success.*.$from) ;;
			0.*failure.*.$from | 0.*failure.there.$old | 0.*failure.new.absent) ;;
			137.*.$from | 137.*.there.$old | 137.*.new.absent) ;;
			*) echo "FAIL: $kind $n: status $status, $made: $to is $now" && exit 1 ;;
			esac
		done
	done
	rm -rf $kills/there
	echo "$points calls of a reshard that were killed or failed"
	[ $((points * stride)) -gt 40 ] && [ "$(hash_of $kills/100)" = $from ] || exit 1
}

# Reliability: a save whose process is killed before any of its calls that change files, on any rank | - | the latest
# checkpoint is the complete earlier one, or the complete new one
# Reliability: the same where the file system cannot exchange two folders | a checkpoint was never replaced | the same:
# the earlier one has another name for a moment, and is found
# Reliability: calls of a save that fail or write a part, each in turn, on each rank | - | an error on all ranks, and the
# same
#
# kill_in_turn RANK FOLDER...: saves to the folders in turn, killed before each call of the rank
kill_in_turn()
{
	rank=$1
	shift
	n=1 status=137
	while [ $status != 0 ]; do
		to=$1
		shift
		set -- "$@" "$to"
		if [ -n "$SRT_TEST_EXCHANGE" ]; then # a folder to be replaced
			./shardrun -n 2 tests/engine/test_checkpoint_killed kill $dir/killed/$to $seed 9 0 || exit 1
		fi
		before=$seed seed=$((seed + 1)) status=0
		./shardrun -n 2 tests/engine/test_checkpoint_killed kill $dir/killed/$to $seed $rank $n > $dir/out 2>&1 || status=$?
		case $status in 0 | 137) ;; *) cat $dir/out && exit 1 ;; esac
		found=$(./shardrun -n 1 tests/engine/test_checkpoint_killed check $dir/killed) || exit 1
		found=${found#seed }
		case $status.$found in
		0.$seed | 137.$seed | 137.$before) seed=$found ;;
		*) echo "FAIL: call $n of rank $rank: seed $found, not $seed or $before" && exit 1 ;;
		esac
		n=$((n + stride)) points=$((points + 1))
	done
}
case ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND} in
cpu)
	mkdir -p $dir/failing $dir/plain $dir/killed $dir/slow/killed $dir/both || exit 1
	# Nothing but their sleep of a second more than this takes time.
	slow_s=${SRT_PATIENCE:-10}
	[ $slow_s -ge 5 ] || slow_s=5
	SHARDRT_TIMEOUT=$slow_s ./shardrun -n 3 tests/engine/test_checkpoint_killed slow $dir/slow > $dir/slow.out 2>&1 &
	slow=$!
	SHARDRT_TIMEOUT=$slow_s ./shardrun -k -n 3 tests/engine/test_checkpoint_killed slow-kill $dir/slow/killed \
		> $dir/dead.out 2>&1 &
	dead=$!
	run_ranks "2" tests/engine/test_checkpoint_killed abort $dir/plain
	run_ranks "2" tests/engine/test_checkpoint_killed fail $dir/failing
	export SRT_TEST_EXCHANGE=no
	run_ranks "2" tests/engine/test_checkpoint_killed fail $dir/plain
	unset SRT_TEST_EXCHANGE
	seed=1 points=0
	./shardrun -n 2 tests/engine/test_checkpoint_killed kill $dir/killed/one $seed 9 0 || exit 1
	kill_in_turn 0 step-1 step-0
	kill_in_turn 1 step-1 step-0
	echo "$points kill points"
	[ $((points * stride)) -gt 20 ] || exit 1
	reshard_killed
	points=0
	export SRT_TEST_EXCHANGE=no
	kill_in_turn 0 step-1
	unset SRT_TEST_EXCHANGE
	echo "$points kill points without an exchange of folders"
	[ $((points * stride)) -gt 8 ] || exit 1

	# Reliability: two jobs that save to one folder at the same time | - | it is the complete checkpoint of one of them
	./shardrun -n 2 tests/engine/test_checkpoint_killed loop $dir/both/one 1 > $dir/both.out 2>&1 &
	first=$!
	SRT_TEST_EXCHANGE=no ./shardrun -n 1 tests/engine/test_checkpoint_killed loop $dir/both/one 2 || exit 1
	wait $first || { cat $dir/both.out && exit 1; }
	./shardrun -n 1 tests/engine/test_checkpoint_killed check $dir/both || exit 1

	wait $slow || { cat $dir/slow.out && exit 1; }
	status=0
	wait $dead || status=$?
	[ $status = 137 ] && [ "$(grep -c 'writing checkpoint .*: rank 2 is gone' $dir/dead.out)" = 2 ] ||
		{ cat $dir/dead.out && exit 1; }
	;;
esac
left=$(find $dir -name '*.tmp-*' ! -path "$dir/slow/*" -o -name '*.replaced' ! -path "$dir/both/*")
[ -z "$left" ] || { echo "FAIL: temporary folders are left: $left"; exit 1; }
