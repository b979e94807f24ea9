#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# tools/gpu-check without a GPU: on cuda with the fake driver (tests/fake_cuda), on the toy backend where the
# build has none.
#
#     test_gpu_check.sh         in a tree of links to this build, beside a test that fails, one that skips
#                               itself and one that hangs with a child in a process group of its own: each
#                               is what the summary says of it, and the run ends in time
#     test_gpu_check.sh long    packed, moved elsewhere and run there for some minutes: every section is in the
#                               summary; tests of devices pass at each number of ranks (make check-long)
skip() { echo "SKIP: $*"; exit 77; }
command -v python3 > /dev/null || skip "no python3"
[ -x ./shardrun ] || skip "shardrun was not built"
length=${1:-short}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
backend=toy
fake=$PWD/tests/fake_cuda/.libs/libfake_cuda.so
if [ -e "$fake" ] && [ -e .libs/shardrt_backend_cuda.so ]; then
	backend=cuda SHARDRT_CUDA_DRIVER=$fake FAKE_CUDA_KERNELS=cpu # its fast form
	SHARDRT_CUDA_TUNED=portable # the others have none
	export SHARDRT_CUDA_DRIVER FAKE_CUDA_KERNELS SHARDRT_CUDA_TUNED
fi
./tests/list_backends $backend | grep -q "^$backend ok" || skip "$(./tests/list_backends $backend)"
check=$srcdir/tools/gpu-check
failed=0

bad()
{
	echo "FAIL: $*"
	failed=1
}

# has PATTERN WHAT: in the summary
has()
{
	grep -q -e "$1" "$dir/out.md" || bad "$2: no \"$1\" in the summary"
}

# sections: every one, each with a line that has a result
sections()
{
	for title in "The machine" "Start and errors" "Every kernel" "Training in exact" "Recorded runs" \
		"Numerics mode fast" "Tests of devices" NCCL compute-sanitizer OpenCL Benchmarks; do
		awk -v title="## $title" '
			/^## / { on = index($0, title) == 1 }
			on && /^\| .* \| (pass|figure|skip|fail|unfinished) \| / { found = 1 }
			END { exit !found }' "$dir/out.md" || bad "no result in the section \"$title\""
	done
}

# no_mercy MARK: nothing that a line started may live on
no_mercy()
{
	sleep 0.2
	for p in /proc/[0-9]*; do
		{ tr '\0' ' ' < "$p/cmdline"; } 2> /dev/null | grep -q "^sleep $1 " && bad "${p#/proc/} lives on: sleep $1"
	done
}

short()
{
	build=$PWD
	folder=$dir/folder
	mkdir -p "$folder/tree/tests" "$folder/tree/bench"
	cp "$check" "$srcdir/tools/gpu_check_plan.py" "$folder/"
	for file in tests/list_backends tests/test_buffers shardrun shardrt-info; do
		ln -s "$build/$file" "$folder/tree/$file"
	done
	cp "$srcdir"/tests/run_test.sh "$srcdir"/tests/run_ranks.sh "$folder/tree/tests/"
	echo "nothing, version 0" > "$folder/tree/VERSION"
	printf 'CASE(scale, SCALE)\n' > "$folder/tree/tests/kernel_cases.def"
	printf 'tests/test_%s\n' buffers planted_group.sh planted_fail.sh planted_skip.sh planted_hang.sh \
		> "$folder/tree/tests/device_tests"
	mark=987.$$
	planted=$folder/tree/tests/test_planted
	echo 'echo "FAIL: one is not two"; echo the last words; exit 3' > "${planted}_fail.sh"
	echo 'echo "SKIP: nothing to do"; exit 77' > "${planted}_skip.sh"
	echo "echo it hangs; trap '' TERM; sleep $mark & sleep $mark; sleep $mark" > "${planted}_hang.sh"
	# a process in a group of its own, left behind
	echo "set -m; sleep $mark & exit 0" > "${planted}_group.sh"
	start=$(date +%s)
	# Beside it one that is ended from outside while the hanging line runs.
	"$folder/gpu-check" run --backend $backend --limit 60 --only device,tests --out "$dir/ended.md" \
		> "$dir/ended.log" 2>&1 &
	pid=$!
	"$folder/gpu-check" run --backend $backend --limit 18 --only device,tests --out "$dir/out.md" \
		> "$dir/log" 2>&1 && bad "a failed line gives status 0"
	[ $(($(date +%s) - start)) -le 21 ] || bad "ends after $(($(date +%s) - start)) s of 18"
	cat "$dir/log"
	grep -q planted_skip "$dir/ended.log" || bad "the run to be ended is not under way: $(cat "$dir/ended.log")"
	kill -TERM $pid
	wait $pid && bad "ended by a signal it gives status 0"
	has "^| a device is found | pass | $backend ok " "the device"
	has '^| test_buffers | pass |' "a test that passes"
	has '^| test_planted_fail.sh | fail | exit status 1; FAIL: one is not two |' "a test that fails"
	has '^the last words' "the end of its log"
	has '^| test_planted_skip.sh | skip | nothing to do |' "a test that skips itself"
	has '^| test_planted_group.sh | pass |' "a test that leaves a process behind"
	has '^| test_planted_hang.sh | fail | did not end in [0-9]* s |' "a test that hangs"
	has '^it hangs' "the log of a test that hangs"
	has '| skip | not asked for (--only) |' "a section that was not asked for"
	sections
	tar -tf "$dir/out.md.logs.tar.xz" | grep -q planted-fail || bad "no logs"
	mv "$dir/ended.md" "$dir/out.md"
	has '^| test_planted_fail.sh | fail |' "what was known when the run was ended"
	has '^| test_planted_hang.sh | unfinished |' "a line when the run was ended"
	no_mercy $mark

	# No device: one line fails, the others have nothing to run on.
	"$folder/gpu-check" run --backend nonsense --limit 20 --out "$dir/out.md" > "$dir/log" 2>&1 &&
		bad "no device gives status 0"
	has '^| a device is found | fail | ' "no device"
	has '^| test_buffers | skip | nonsense has no device |' "no device"
	"$folder/gpu-check" run --backend $backend --only nonsense > "$dir/log" 2>&1 && bad "a section that is not there"
	grep -q 'no section nonsense' "$dir/log" || bad "a section that is not there: $(cat "$dir/log")"
}

long()
{
	"$check" pack --preset 1 "$dir/packed" > "$dir/log" 2>&1 || bad "pack: $(cat "$dir/log")"
	cat "$dir/log"
	mv "$dir/packed" "$dir/elsewhere"
	# nothing of this build is needed but what a machine without a GPU lacks
	case $backend in
	toy) SHARDRT_MODULE_PATH=$PWD/tests/backend_toy/.libs ;;
	*) unset SHARDRT_MODULE_PATH ;;
	esac
	# The fake takes minutes for what a GPU does at once: what is slow stays unfinished.
	(cd / && "$dir/elsewhere/gpu-check" run --backend $backend --limit 200 \
		--only device,tests,nccl,sanitizer,opencl --out "$dir/out.md" > "$dir/log" 2>&1)
	cat "$dir/log"
	sections
	has '^| shardrt-info | pass |' "the packed tool"
	has '^| test_buffers | pass | 1 rank' "the first test of devices"
	has '^| test_collectives.sh | pass | 1 2' "a test of ranks"
	grep '^| .* | fail | ' "$dir/out.md" | grep -v 'did not end in' && bad "lines above fail"
}

$length
exit $failed
