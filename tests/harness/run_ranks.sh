# SPDX-License-Identifier: BSD-3-Clause
#
# To be sourced by a test script that runs a program on several ranks, and by run_test.sh:
#
#     . "$srcdir/tests/harness/run_ranks.sh"
#     for form in $forms; do                          each way in which the backend can run:
#         use_form $form                              kinds of cpu streams, lanes on OpenCL devices
#         run_ranks "1 2 3 4 5" tests/engine/test_engine       every world size, one after the other
#     done
#     run_nodes tests/engine/test_hybrid              four ranks that are told that they are on two nodes
#
# The backend is the one of SHARDRT_BACKEND (cpu if not set). run_ranks ends the script with 1 if one
# world failed, 77 if the program skipped itself at all of them, and goes on else. A script that does not
# use it says with `cell WORLD pass|fail|skip [REASON]` what the table at the suite's end shall say of
# a world. Runs in the top of the build folder.

# A rank may compile for its device for the first time, on a busy machine, while its peers wait.
SHARDRT_TIMEOUT=${SHARDRT_TIMEOUT:-300}
SHARDRT_BACKEND=${SHARDRT_BACKEND:-cpu}
# Hundreds of small jobs: slots of 4 MiB, mapped by each rank of each, take longer than the tests.
SHARDRT_STAGING_BYTES=${SHARDRT_STAGING_BYTES:-64k}
export SHARDRT_TIMEOUT SHARDRT_BACKEND SHARDRT_STAGING_BYTES

# Worlds above most_ranks are for check-long, and for the cpu with SRT_TEST_WORLDS=all: once in CI. Those above
# most_staged, with staged collectives, are for check-long alone. A script raises most_ranks for what needs more
# ranks. With SRT_TEST_WORLDS=largest, for slow builds, only the largest of them runs, on the cpu with threads
# as streams. Of a list of worlds all run on the cpu with threads as streams, in check-long everywhere; the first and the
# last on other devices; the smallest above 1 with the cpu's other streams: the code that depends on the world is
# the same. The random delays of the toy backend are shorter than its default.
most_ranks=3 most_staged=3
case ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND} in
cpu)
	forms="threads inline"
	case $SRT_TEST_WORLDS in all) most_ranks=512 ;; largest) forms=threads ;; esac
	;;
opencl)
	# The forms differ in the kernels alone. tests/tools/test_hash_matrix.sh has a training in both.
	case $SRT_TEST_LONG.$SRT_TEST_NAME in
	.tests/kernels/* | .tests/tools/test_hash_matrix.sh | 1.*) forms="loop items" ;;
	*) forms=loop ;;
	esac
	;;
toy | late | fakecuda) forms="default" most_ranks=2 ;;
*) forms="default" ;;
esac
TOY_DELAY_US=${TOY_DELAY_US:-50} FAKE_CUDA_DELAY_US=${FAKE_CUDA_DELAY_US:-50} TOY_SEED=${TOY_SEED:-1}
[ -z "$SRT_TEST_LONG" ] || most_ranks=512 most_staged=512 TOY_DELAY_US=200 FAKE_CUDA_DELAY_US=200
export TOY_DELAY_US FAKE_CUDA_DELAY_US TOY_SEED

# The same with collectives that are staged, through slots so small that all is cut into many rounds: in tests of
# collectives, and of code that asks the communicator for a kind of memory: a training, a plan, an allocator, sharded
# tensors, tapes. On late all collectives are staged.
staged_forms=
for form in $forms; do
	case $form in items) ;; *) staged_forms="$staged_forms staged-$form" ;; esac
done
case $SHARDRT_BACKEND.$SRT_TEST_LONG.$SRT_TEST_NAME in
*.1.* | *..tests/collectives/* | *..tests/engine/test_engine.sh) ;;
cpu..tests/engine/test_allocator.sh | cpu..tests/engine/test_engine_plan.sh | cpu..tests/engine/test_full_params.sh | \
	cpu..tests/engine/test_scaler.sh | cpu..tests/models/test_tape_* | cpu..tests/tensors/*) staged_forms=staged-threads ;;
*) staged_forms= ;;
esac
# SRT_TEST_COLLECTIVES: the transport of all forms, as SHARDRT_COLLECTIVES (tests/collectives/test_ucx.sh).
[ -z "$SRT_TEST_COLLECTIVES" ] || staged_forms=

use_form()
{
	form=$1
	case $form in
	staged-*)
		SHARDRT_PEER_MEMORY=no SHARDRT_STAGING_BYTES=1k SHARDRT_COLLECTIVES=shm
		export SHARDRT_PEER_MEMORY SHARDRT_COLLECTIVES
		;;
	*)
		unset SHARDRT_PEER_MEMORY SHARDRT_COLLECTIVES && SHARDRT_STAGING_BYTES=64k
		[ -z "$SRT_TEST_COLLECTIVES" ] || SHARDRT_COLLECTIVES=$SRT_TEST_COLLECTIVES
		[ -z "$SRT_TEST_COLLECTIVES" ] || export SHARDRT_COLLECTIVES
		[ "$SRT_TEST_COLLECTIVES" != ucx ] || SHARDRT_STAGING_BYTES=2k
		;;
	esac
	export SHARDRT_STAGING_BYTES
	case ${form#staged-} in
	inline | threads) SHARDRT_CPU_STREAMS=${form#staged-} && export SHARDRT_CPU_STREAMS ;;
	loop | items) SHARDRT_OPENCL_LANES=${form#staged-} && export SHARDRT_OPENCL_LANES ;;
	esac
	# PoCL compiles the kernels of one form without optimization: in a third of the time, with the same bits.
	unset POCL_EXTRA_BUILD_FLAGS
	[ "${form#staged-}" != items ] || { POCL_EXTRA_BUILD_FLAGS=-cl-opt-disable && export POCL_EXTRA_BUILD_FLAGS; }
}

skip()
{
	echo "SKIP: $*"
	exit 77
}

# cell_of BACKEND WORLD RESULT [REASON]
cell_of()
{
	[ -z "$SRT_CELLS" ] || echo "$*" >> "$SRT_CELLS"
}

cell()
{
	cell_of "${SRT_BACKEND_NAME:-$SHARDRT_BACKEND}" "$@"
}

run_ranks()
{
	worlds=$1
	shift
	[ -x ./shardrun ] || skip "shardrun was not built"
	failed= passed= skipped= all= first= several= last=
	for n in $worlds; do
		[ "$n" -le $most_ranks ] || continue
		case $form in staged-*) [ "$n" -le $most_staged ] || continue ;; esac
		all="$all $n" first=${first:-$n} last=$n
		[ "$n" = 1 ] || several=${several:-$n}
	done
	case $SRT_TEST_LONG.$SRT_TEST_WORLDS.$SHARDRT_BACKEND.$form in
	1.*) chosen=$all ;;
	.largest.*) chosen=$last ;;
	.*.cpu.*inline) chosen=${several:-$first} ;;
	.*.cpu.*) chosen=$all ;;
	*) [ "$first" = "$last" ] && chosen=$first || chosen="$first $last" ;;
	esac
	for n in $chosen; do
		status=0
		./shardrun -n "$n" "$@" || status=$?
		case $status in
		0) passed="$passed $n" && cell "$n" pass ;;
		77) skipped="$skipped $n" && cell "$n" skip "$* skips itself" ;;
		*)
			failed="$failed $n" && cell "$n" fail
			echo "FAIL: $* on $n ranks of ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND}${form:+, $form}: exit status $status"
			;;
		esac
	done
	[ -z "$failed" ] || exit 1
	[ -n "$passed" ] || [ -z "$skipped" ] || exit 77
}

# Groups of ranks then have other transports than the world. For programs with tests/harness/nodes.c, after use_form.
run_nodes()
{
	case ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND} in cpu | opencl) ;; *) return 0 ;; esac
	grep -q '^#define HAVE_UCX 1' config.h || return 0
	unset SHARDRT_COLLECTIVES
	for SRT_TEST_NODES in 2 "1 3"; do
		export SRT_TEST_NODES
		run_ranks 4 "$@"
	done
	unset SRT_TEST_NODES
}
