#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# tools/gpu-check/gpu-check without a GPU: on cuda with the fake driver (tests/fakes/fake_cuda), on the toy backend where the
# build has none.
#
#     test_gpu_check.sh         in a tree of links to this build, with a test that fails, one that skips
#                               itself, one that hangs with a child in a separate process group, one that
#                               cannot be ended, a table that is not ended in time and a machine that cannot
#                               even be looked at: each is what the summary says of it, and the run ends in
#                               time and leaves two files
#     test_gpu_check.sh long    packed, moved elsewhere and run there for some minutes: every section is in the
#                               summary; tests of devices pass at each number of ranks (make check-long)
. "$srcdir/tests/harness/wait.sh"
skip() { echo "SKIP: $*"; exit 77; }
command -v python3 > /dev/null || skip "no python3"
[ -x ./shardrun ] || skip "shardrun was not built"
length=${1:-short}
dir=$(mktemp -d) || exit 1
mark=987.$$ # seconds that the injected tests sleep
trap 'end_background; await swept; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
backend=toy
fake=$PWD/tests/fakes/fake_cuda/.libs/libfake_cuda.so
if [ -e "$fake" ] && [ -e .libs/shardrt_backend_cuda.so ]; then
	backend=cuda SHARDRT_CUDA_DRIVER=$fake FAKE_CUDA_KERNELS=cpu # its fast form
	SHARDRT_CUDA_TUNED=portable # the others have none
	export SHARDRT_CUDA_DRIVER FAKE_CUDA_KERNELS SHARDRT_CUDA_TUNED
fi
# What is tried is that a run keeps its limit, not how fast a device starts here. Of the limit most is kept for the
# end, which shall come soon on a machine that has time, and may come late on one that has not.
now
began=$now
./tests/harness/list_backends $backend | grep -q "^$backend ok" || skip "$(./tests/harness/list_backends $backend)"
SHARDRT_BACKEND=$backend ./tests/device/test_buffers > "$dir/log" 2>&1 || cat "$dir/log"
now
keep=36
limit=$((keep + 20 + 10 * (now - began)))
check=$srcdir/tools/gpu-check/gpu-check
failed=0

bad()
{
	echo "FAIL: $*"
	failed=1
}

# has PATTERN WHAT: in the summary
has()
{
	grep -q -e "$1" "$dir/out/out.md" || bad "$2: no \"$1\" in the summary"
}

# sections TITLE...: each with a line that has a result
sections()
{
	for title; do
		awk -v title="## $title" '
			/^## / { on = index($0, title) == 1 }
			on && /^\| .* \| (pass|figure|skip|fail|unfinished) \| / { found = 1 }
			END { exit !found }' "$dir/out/out.md" || bad "no result in the section \"$title\""
	done
}

# injected: the processes of the injected tests
injected()
{
	grep -lsz "^${mark%.*}[.]${mark#*.}\$" /proc/[0-9]*/cmdline | sed 's,/proc/\([0-9]*\)/.*,\1,'
}
none_injected() { [ -z "$(injected)" ]; }
# swept: of it nothing runs, or it was killed just now
swept()
{
	found=$(injected)
	# shellcheck disable=SC2086
	[ -z "$found" ] || { kill -KILL $found && false; }
}

# files_of WHAT LOG: the folder has the summary, the same as JSON and the logs alone
files_of()
{
	[ "$(cd "$dir/out" && echo *)" = "out.md out.md.json out.md.logs.tar.xz" ] ||
		bad "$1 leaves $(cd "$dir/out" && echo *)"
	python3 -c 'import json, sys; json.load(open(sys.argv[1]))["lines"]' "$dir/out/out.md.json" || bad "$1: no JSON"
	tar -tf "$dir/out/out.md.logs.tar.xz" | grep -q "$2" || bad "$1: no logs"
}

# summary_of NAME: of the run whose --out was in that folder
summary_of()
{
	rm -rf "$dir/out"
	mv "$dir/$1" "$dir/out"
}

# A run of two lines, of which one cannot be ended, as one that waits in a driver.
write_injected()
{
	cat <<- END
		import importlib.machinery, importlib.util, sys
		loader = importlib.machinery.SourceFileLoader("gpu_check", sys.argv[1])
		check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
		loader.exec_module(check)
		import gpu_check_plan
		from gpu_check_machine import Line, Section
		end_session = check.end_session
		def end_others(session, gently=0.0):
		    try:
		        immortal = b"immortal" in open(f"/proc/{session}/cmdline", "rb").read()
		    except OSError:
		        immortal = False
		    if not immortal:
		        end_session(session, gently)
		check.end_session = end_others
		gpu_check_plan.PROFILES = {"all": (100, {"one": 1, "two": 1})}
		gpu_check_plan.plan = lambda m: {
		    "one": Section("one", "Lines without end", 2, [
		        Line("immortal", "echo it waits; echo \$\$ > immortal.pid; sleep $1; echo"),
		        Line("table", "echo add f32 1; echo; echo add bf16 2; sleep $1; echo", table=gpu_check_plan.ROW)]),
		    "two": Section("two", "What follows them", 1, [Line("next", "echo")])}
		sys.argv[1:] = ["run"] + sys.argv[2:]
		sys.exit(check.main())
	END
}

# is_running: the run to be ended knows what it has to know, and its hanging line has begun
is_running()
{
	grep -q injected_fail "$dir/ended.log" && grep -q injected_skip "$dir/ended.log" &&
		[ -e "$dir/folder2/logs/tests-test-injected-hang-sh.log" ]
}

short()
{
	build=$PWD
	folder=$dir/folder
	mkdir -p "$folder/tree/tests/harness" "$folder/tree/tests/device" "$folder/tree/bench" \
		"$folder/tree/kernels/cases"
	cp "$check" "$srcdir/tools/gpu-check/gpu_check_plan.py" "$srcdir/tools/gpu-check/gpu_check_machine.py" "$folder/"
	for file in tests/harness/list_backends tests/device/test_buffers shardrun shardrt-info; do
		ln -s "$build/$file" "$folder/tree/$file"
	done
	cp "$srcdir"/tests/harness/run_test.sh "$srcdir"/tests/harness/run_ranks.sh "$folder/tree/tests/harness/"
	echo "nothing, version 0" > "$folder/tree/VERSION"
	printf 'CASE(scale, SCALE)\n' > "$folder/tree/kernels/cases/cases.def"
	printf 'tests/device/test_%s\n' buffers injected_group.sh injected_fail.sh injected_skip.sh injected_hang.sh \
		> "$folder/tree/tests/device_tests"
	injected=$folder/tree/tests/device/test_injected
	echo 'echo "FAIL: one is not two"; echo the last words; exit 3' > "${injected}_fail.sh"
	echo 'echo "SKIP: nothing to do"; exit 77' > "${injected}_skip.sh"
	echo "echo it hangs; trap '' TERM; sleep $mark & sleep $mark; sleep $mark" > "${injected}_hang.sh"
	# a process in a separate group, which outlives the test
	echo "set -m; sleep $mark & exit 0" > "${injected}_group.sh"
	now
	start=$now
	# A second run is ended from outside while the hanging line runs. It has its own folder, as a run writes there.
	cp -a "$folder" "$dir/folder2"
	"$dir/folder2/gpu-check" run --backend $backend --limit $((limit + 150)) --keep $keep --only device,tests \
		--out "$dir/ended/out.md" > "$dir/ended.log" 2>&1 &
	started
	ended=$started
	# One of lines that cannot be ended, and one that does not get so far: nvidia-smi hangs.
	cp -a "$folder" "$dir/folder3"
	write_injected $mark > "$dir/injected.py"
	python3 "$dir/injected.py" "$dir/folder3/gpu-check" --backend $backend --limit $limit --keep $keep \
		--out "$dir/injected/out.md" > "$dir/injected.log" 2>&1 &
	started
	unending=$started
	cp -a "$folder" "$dir/folder4"
	mkdir "$dir/bin"
	printf '#!/bin/sh\ntrap "" TERM\nsleep %s\nsleep %s\n' $mark $mark > "$dir/bin/nvidia-smi"
	chmod +x "$dir/bin/nvidia-smi"
	PATH=$dir/bin:$PATH "$dir/folder4/gpu-check" run --backend $backend --limit 48 --keep 44 --out "$dir/early/out.md" \
		> "$dir/early.log" 2>&1 &
	started
	early=$started
	"$folder/gpu-check" run --backend $backend --limit $limit --keep $keep --only device,tests \
		--out "$dir/out/out.md" > "$dir/log" 2>&1 && bad "a failed line gives status 0"
	now
	[ $((now - start)) -le $((limit + 10)) ] || bad "ends after $((now - start)) s of $limit"
	cat "$dir/log"
	await_of $ended is_running || bad "the run to be ended is not running: $(cat "$dir/ended.log")"
	kill -TERM $ended
	reap $ended && [ $status != 0 ] || bad "ended by a signal it gives status $status"
	has "^| a device is found | pass | $backend ok " "the device"
	has '^| test_buffers | pass |' "a test that passes"
	has '^| test_injected_fail.sh | fail | exit status 1; FAIL: one is not two |' "a test that fails"
	has '^the last words' "the end of its log"
	has '^| test_injected_skip.sh | skip | nothing to do |' "a test that skips itself"
	has '^| test_injected_group.sh | pass |' "a test that leaves a process running"
	has '^| test_injected_hang.sh | fail | did not end in [0-9]* s |' "a test that hangs"
	has '^it hangs' "the log of a test that hangs"
	sections "Start and errors" "Tests of devices"
	! grep -q '^## NCCL' "$dir/out/out.md" || bad "a section that was not asked for is in the summary"
	grep -q '^fail: tests: test_injected_fail.sh: exit status 1; FAIL: one is not two' "$dir/log" ||
		bad "the digest at the end lacks a line that failed"
	after=$dir/after.json
	cp "$dir/out/out.md.json" "$after"
	files_of "a run" injected-fail
	summary_of ended
	files_of "a run that is ended" injected-hang
	has '^| test_injected_fail.sh | fail |' "what was known when the run was ended"
	has '^| test_injected_hang.sh | unfinished |' "a line when the run was ended"
	reap $unending && [ $status != 0 ] || bad "what cannot be ended gives status $status"
	kill -KILL "-$(cat "$dir/folder3/tree/immortal.pid")"
	cat "$dir/injected.log"
	summary_of injected
	has '^| immortal | fail | cannot be ended, not even by SIGKILL; did not end in' "a line that cannot be ended"
	has '^it waits' "its log"
	has '^| table | figure | ended after 2 rows |' "a table that is not ended in time"
	has '^add bf16 2' "its rows"
	has '^| next | pass |' "what follows a line that cannot be ended"
	reap $early && [ $status != 0 ] || bad "a machine that cannot be looked at gives status $status"
	grep -q 'ended by signal' "$dir/early.log" || bad "nvidia-smi hangs: $(cat "$dir/early.log")"
	summary_of early
	has '^The machine is being looked at' "nvidia-smi hangs"
	await none_injected || bad "what a line started lives on: $(injected)"

	# No device: one line fails, the others have nothing to run on.
	"$folder/gpu-check" run --backend nonsense --limit 120 --out "$dir/out/out.md" > "$dir/log" 2>&1 &&
		bad "no device gives status 0"
	has '^| a device is found | fail | ' "no device"
	has '^| test_buffers | skip | nonsense has no device |' "no device"
	"$folder/gpu-check" run --backend $backend --only nonsense > "$dir/log" 2>&1 && bad "a section that is not there"
	grep -q 'no section nonsense' "$dir/log" || bad "a section that is not there: $(cat "$dir/log")"
	"$folder/gpu-check" run --backend $backend --profile nonsense > "$dir/log" 2>&1 && bad "a profile that is not there"
	grep -q 'no profile nonsense; there are first, rest' "$dir/log" || bad "a profile that is not there: $(cat "$dir/log")"

	# What passed in the first run is skipped, what failed runs again.
	rm "$folder"/tree/tests/device/test_injected_hang.sh
	"$folder/gpu-check" run --backend $backend --only device,tests --after "$after" --limit 120 --out "$dir/out/out.md" \
		> "$dir/log" 2>&1 && bad "a line that failed before gives status 0"
	has '^| test_buffers | skip | passed before: nothing, version 0,' "a line that passed before"
	has '^| test_injected_fail.sh | fail | exit status 1; FAIL: one is not two |' "a line that failed before"
}

long()
{
	"$check" pack --preset 1 "$dir/packed" > "$dir/log" 2>&1 || bad "pack: $(cat "$dir/log")"
	cat "$dir/log"
	mv "$dir/packed" "$dir/elsewhere"
	# nothing of this build is needed but what a machine without a GPU lacks
	case $backend in
	toy) SHARDRT_MODULE_PATH=$PWD/tests/fakes/backend_toy/.libs ;;
	*) unset SHARDRT_MODULE_PATH ;;
	esac
	export SHARDRT_TIMEOUT=300
	# The fake takes minutes for what a GPU does at once: what is slow stays unfinished.
	(cd / && "$dir/elsewhere/gpu-check" run --backend $backend --limit 260 \
		--only device,tests,nccl,sanitizer,opencl --out "$dir/out/out.md" > "$dir/log" 2>&1)
	cat "$dir/log"
	sections "Start and errors" "Tests of devices" NCCL compute-sanitizer OpenCL
	has '^| shardrt-info | pass |' "the packed tool"
	has '^| test_buffers | pass | 1 rank' "the first test of devices"
	has '^| test_collectives.sh | pass | 1 2' "a test of ranks"
	grep '^| .* | fail | ' "$dir/out/out.md" | grep -v 'did not end in' && bad "lines above fail"
}

$length
exit $failed
