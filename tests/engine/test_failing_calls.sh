#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Reliability: no memory on one rank while ranks exchange data | the others hear that they do not call the same functions,
# or that the rank has left | the cause and the rank, on all ranks
# Reliability: no memory on one rank for its group of ranks | the others waited for it until SHARDRT_TIMEOUT | the cause
# and the rank, on all ranks
# Reliability: a rank that leaves because another rank aborted the world | a third rank was told "left the job" alone | the
# cause, in the farewell of the rank that leaves
# Reliability: no memory in the kernel for the last message of a rank that leaves | the others may say that it was killed |
# the message is sent again
# Reliability: no memory on one rank to decode its optimizer states in 8 bits | the others waited for it until
# SHARDRT_TIMEOUT | the cause and the rank, on all ranks
# Reliability: a call of the system or an allocation that fails | a local failure was called the death of a peer
# | each rank has a sentence, nothing is left
#
# One call of the system or one allocation fails on one rank: of two, in a program that creates, builds, steps,
# saves, loads and destroys; of four, in one with a mesh, groups, offload, a scaler and more; of two that read an
# optimizer state in 8 bits: tests/engine/test_failing_calls.c. Each job must end in time, with one line of each rank:
# either the call was not needed and all ranks are done, or each rank has an error that says more than its kind. It must
# leave no temporary file; under a sanitizer also no memory. `make check` tries some calls of each function, with
# SRT_TEST_WORLDS=all of the third program all; `make check-long` all of them.
export SHARDRT_THREADS=1 SHARDRT_BACKEND=cpu SHARDRT_STAGING_BYTES=64k
program=tests/engine/test_failing_calls
dir=$program.dir
rm -rf $dir && mkdir $dir || exit 1
trap 'rm -rf $dir' EXIT
ntrials=0 nfailed=0

fail()
{
	echo "FAIL: $variant: call $2 of $1 fails on rank $3: $4"
	cat $dir/out
	nfailed=$((nfailed + 1))
}

# try CALL K RANK
try()
{
	ntrials=$((ntrials + 1))
	status=0
	./shardrun -k -t $((20 * ${SRT_PATIENCE:-10})) -n $n $program $variant $dir/file "$@" > $dir/out 2>&1 || status=$?
	[ $status = 0 ] || fail "$@" "exit status $status"
	for rank in $(seq 0 $((n - 1))); do
		[ "$(grep -c "^rank $rank: ." $dir/out)" = 1 ] || fail "$@" "not one line of rank $rank"
	done
	# After the last agreement a rank may be done when another one fails.
	! grep -q "^rank $3: done" $dir/out || [ "$(grep -c '^rank .: done' $dir/out)" = $n ] ||
		fail "$@" "only other ranks have an error"
	# Its peers may call it gone, if it fails before it can tell them.
	! grep -q -e "^rank $3: .*killed or crashed" -e 'does not say why' -e 'gives other bits' \
		-e 'do not call the same functions' -e 'rank . left the job' $dir/out ||
		fail "$@" "a wrong reason"
	for file in $dir/file.tmp*; do
		[ ! -e "$file" ] || fail "$@" "left $file"
	done
	grep '^rank' $dir/out >> $dir/sentences
}

for variant in plain all state8; do
	[ $variant = all ] && n=4 || n=2
	./shardrun -n $n $program $variant $dir/file > $dir/counts || { cat $dir/counts; exit 1; }
	[ "$(grep -c '^rank .: done$' $dir/counts)" = $n ] || { cat $dir/counts; echo "FAIL: $variant: not done"; exit 1; }
	[ "$(grep -c '^calls calloc . [1-9]' $dir/counts)" = $n ] || { echo "FAIL: $variant: no call of calloc"; exit 1; }
	# Not by a loop that reads the file: the jobs would have its standard input.
	for counted in $(sed -n "s/^calls \(.*\) \([0$((n - 1))]\) \(.*\)/\1:\2:\3/p" $dir/counts); do
		call=${counted%%:*} rank=${counted#*:} count=${counted##*:}
		rank=${rank%:*}
		if [ -n "$SRT_TEST_LONG" ] || [ $variant.$SRT_TEST_WORLDS = state8.all ]; then
			some=$(seq "$count")
		elif [ "$SRT_TEST_WORLDS" = largest ]; then
			some=$(printf '%s\n' 1 $((count / 2)) "$count" | sort -nu)
		else
			some=$(printf '%s\n' 1 $((count / 3)) $((count * 2 / 3)) "$count" | sort -nu)
		fi
		for k in $some; do
			[ "$k" = 0 ] || try "$call" "$k" "$rank"
		done
	done
done
# Numbers and names of files differ between runs of one failure.
distinct=$(sed "s/^rank .: //; s/[0-9][0-9]*/N/g" $dir/sentences | sort -u | tee $dir/distinct | wc -l)
sed 's/^/    /' $dir/distinct
echo "$ntrials calls failed, $distinct distinct sentences"
[ "$ntrials" -gt 0 ] && [ $nfailed = 0 ]
