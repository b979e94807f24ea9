#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# run_test.sh TEST [ARGUMENT...]: runs a test program or script, as `make check` does.
#
# A test of DEVICE_TESTS (tests/local.mk; here in $SRT_DEVICE_TESTS) runs on each backend of
# tests/backends.txt, which `make check` writes: a line for each of SHARDRT_TEST_BACKENDS, or of all that
# are known. Programs run in each form of the backend (tests/harness/run_ranks.sh), scripts see to it themselves.
# A backend without a device is a skip with its reason, or a failure where SHARDRT_TEST_BACKENDS is set.
# What SRT_LEFT_OUT names as BACKEND:TEST does not run on this backend. Any other test runs once, with SHARDRT_BACKEND=cpu.
#
# With SRT_TEST_LIMIT=SECONDS it is ended, and has failed, if it has not ended by then.
#
# Results are compared bit for bit: numerics mode exact.
#
# At the end come lines "# on BACKEND WORLD RESULT [REASON]" and "# took N s, N s of processor time" for
# tests/harness/summary.sh.

# The seconds of all processes that this shell has waited for; `times` would be of the pipe's shell.
processor_time()
{
	awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); printf "%.1f", ($14 + $15) / hz }' /proc/$$/stat
}

if [ -z "${SRT_TEST_TIMED:-}" ]; then
	SRT_TEST_TIMED=yes
	export SRT_TEST_TIMED
	limit=${SRT_TEST_LIMIT:-}
	start=$(date +%s)
	# Tests send signals that a caller may ignore: nohup SIGHUP, a shell in the background SIGINT.
	default=
	! env --default-signal true 2> /dev/null || default="env --default-signal"
	# shellcheck disable=SC2086
	${limit:+timeout -k 20 $limit} $default "${CONFIG_SHELL:-/bin/sh}" "$0" "$@"
	status=$?
	[ -z "$limit" ] || case $status in 124 | 137) echo "FAIL: $1 had not ended after $limit s" ;; esac
	echo "# took $(($(date +%s) - start)) s, $(processor_time) s of processor time"
	exit $status
fi
required=${SHARDRT_TEST_BACKENDS:+yes}
unset SHARDRT_TEST_BACKENDS # no variable of the library, which would warn of it
test=$1
name=${test#./}
name=${name#"$srcdir"/}
SRT_TEST_NAME=$name
export SRT_TEST_NAME
case $SRT_TEST_LONG.$name in
1.* | .tests/kernels/* | .tests/device/* | .tests/tools/test_train_streams.sh) ;;
*) # The kernels of all processes are those that these tests have tested.
	SHARDRT_SELFTEST=${SHARDRT_SELFTEST:-no}
	export SHARDRT_SELFTEST
	;;
esac
backends=tests/backends.txt

# run PROGRAM ARGUMENT...: a script by its shell.
run()
{
	case $1 in
	*.sh) ${CONFIG_SHELL:-/bin/sh} "$@" ;;
	*) $SRT_EMULATOR "$@" ;;
	esac
}

case " $SRT_DEVICE_TESTS " in
*" $name "*) ;;
*)
	SHARDRT_BACKEND=cpu
	export SHARDRT_BACKEND
	run "$@"
	exit
	;;
esac
[ -r $backends ] || { echo "no $backends: make $backends" && exit 1; }
SHARDRT_NUMERICS=exact
export SHARDRT_NUMERICS
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'cat "$tmp/out"; exit 1' HUP INT TERM
SRT_CELLS=$tmp/cells
export SRT_CELLS
: > "$SRT_CELLS"

# A script that starts jobs runs on one core, where switches between the threads of ranks are cheap: it takes about half
# of the processor time. With SRT_TEST_CORES=all, in make check-long, and if it is one of SRT_THREAD_TESTS, it has all
# cores, so that ranks and streams run at the same time.
cores=
case "$SRT_TEST_LONG$SRT_TEST_CORES $SRT_THREAD_TESTS  $name " in
[!\ ]* | *" $name "*" $name ") ;;
*.sh\ )
	mkdir -p tests/cores && flock tests/cores chrt -b 0 taskset -c 0-4095 true 2> /dev/null && cores=$(awk '
		/^Cpus_allowed_list:/ {
			n = split($2, part, ",")
			for (i = 1; i <= n; i++) {
				m = split(part[i], end, "-")
				for (core = end[1]; core <= end[m]; core++) printf "%d ", core
			}
		}' /proc/self/status)
	;;
esac

# on_core COMMAND...: on the core that the fewest tests have locked.
on_core()
{
	for slot in ${cores:+1 2 3 4 5 6 7 8}; do
		for core in $cores; do
			status=0
			flock -n -o -E 254 "tests/cores/$core.$slot" chrt -b 0 taskset -c "$core" "$@" || status=$?
			[ $status = 254 ] || return $status
		done
	done
	"$@"
}

# on_backend TEST ARGUMENT...: one form after the other where the test is a program.
on_backend()
{
	. "$srcdir/tests/harness/run_ranks.sh"
	case $test.$backend in
	*.sh.*) # which see to the forms themselves
		on_core "${CONFIG_SHELL:-/bin/sh}" "$@"
		return
		;;
	*.cpu)
		run "$@"
		return
		;;
	esac
	for form in $forms; do
		use_form "$form"
		echo "-- form: $form"
		run "$@" || return
	done
}

passed=0 failed=0 result=
while read -r backend state reason; do
	case " $SRT_LEFT_OUT " in
	*" $backend:$name "*)
		result=${result:-skip runs on $backend in make check-long}
		continue
		;;
	esac
	if [ "$state" != ok ]; then
		if [ -n "$required" ]; then
			echo "FAIL: SHARDRT_TEST_BACKENDS has $backend: $reason"
			echo "$backend - fail $reason" >> "$SRT_CELLS"
			failed=1
		else
			result="skip $reason"
			echo "$backend - $result" >> "$SRT_CELLS"
		fi
		continue
	fi
	echo "---- $name on $backend"
	begin=$(date +%s) before=$(processor_time) status=0
	(
		SHARDRT_BACKEND=$backend
		export SHARDRT_BACKEND
		[ $backend != cpu ] || unset SHARDRT_DEVICE # names a device of another backend
		if [ $backend = fakecuda ]; then # the backend cuda over a driver that needs no GPU
			SHARDRT_BACKEND=cuda SHARDRT_CUDA_DRIVER=$PWD/tests/fakes/fake_cuda/.libs/libfake_cuda.so
			# Kernels by their CUDA text where they are what is tested, and in make check-long; in scripts they would
			# take long. Tuned kernels are text alone, and each process that opens the device tests them: they are in
			# the other tests of tests/kernels, and in tests/device/test_cuda_tuned.sh.
			tuned=portable
			case $SRT_TEST_LONG.$name in
			*.sh | *test_tuned) kernels=cpu ;;
			.tests/kernels/test_kernels_*) kernels=text ;;
			.tests/kernels/* | 1.*) kernels=text tuned= ;;
			*) kernels=cpu ;;
			esac
			FAKE_CUDA_KERNELS=${FAKE_CUDA_KERNELS:-$kernels}
			if [ -n "$tuned" ]; then
				SHARDRT_CUDA_TUNED=${SHARDRT_CUDA_TUNED:-$tuned}
				export SHARDRT_CUDA_TUNED
			fi
			SRT_BACKEND_NAME=fakecuda
			unset SHARDRT_DEVICE
			export SHARDRT_CUDA_DRIVER FAKE_CUDA_KERNELS SRT_BACKEND_NAME
		fi
		on_backend "$@"
	) > "$tmp/out" 2>&1 < /dev/null || status=$?
	cat "$tmp/out"
	echo "---- $(($(date +%s) - begin)) s on $backend," \
		"$(echo "$before $(processor_time)" | awk '{ printf "%.1f", $2 - $1 }') s of processor time"
	case $status in
	0) passed=1 result=pass ;;
	77) result="skip $(sed -n 's/^SKIP: //p' "$tmp/out" | head -n 1)" ;;
	*) failed=1 result=fail && echo "FAIL: $name on $backend: exit status $status" ;;
	esac
	# What the script did not say of a world: programs are one rank, else "-" is the whole.
	case $test in *.sh) world=- ;; *) world=1 ;; esac
	if ! grep -q "^$backend " "$SRT_CELLS" ||
		{ [ $status != 0 ] && ! grep -q "^$backend [^ ]* ${result%% *}" "$SRT_CELLS"; }; then
		echo "$backend $world $result" >> "$SRT_CELLS"
	fi
done < $backends
sed 's/^/# on /' "$SRT_CELLS"
[ $failed = 0 ] || exit 1
[ $passed = 1 ] || { echo "SKIP: ${result#skip }" && exit 77; }
