#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Every kernel of the OpenCL backend on small grids under oclgrind, a simulator that watches each access: no
# two work-items touch a place without a barrier between them, none reads or writes outside of its
# buffers, no call of OpenCL is wrong. Opening a device runs every portable kernel in its self-test,
# with buffers of exactly the size that it may touch, and test_opencl the same in 16 bits; test_tuned
# does so with the products and attention of the backend's own. A kernel with an injected race shows that it finds races.
. "$srcdir/tests/harness/run_ranks.sh"
grep -q '^#define HAVE_OPENCL 1' config.h || skip "built without OpenCL"
command -v oclgrind > /dev/null || skip "oclgrind is not installed"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
SHARDRT_BACKEND=opencl SHARDRT_CACHE_DIR=$dir/cache
export SHARDRT_BACKEND SHARDRT_CACHE_DIR
unset SHARDRT_DEVICE
failed=0

# watch LABEL PROGRAM ARGUMENT...
watch()
{
	label=$1
	shift
	status=0
	# It does not know the notes on aliasing that the compiler makes of inlined functions.
	oclgrind --build-options -cl-opt-disable --data-races --check-api --max-errors 20 --log "$dir/log" "$@" > "$dir/out" 2>&1 ||
		status=$?
	if [ $status != 0 ] || [ -s "$dir/log" ]; then
		echo "FAIL: $label: exit status $status"
		head -n 40 "$dir/log" "$dir/out"
		failed=1
	fi
	rm -f "$dir/log"
}

cat > "$dir/race.cl" <<'END'
kernel void race(global int *a) { a[(get_global_id(0) + 1) % 4] = a[get_global_id(0)]; }
END
printf '%s\nrace\n4 1 1\n4 1 1\n<size=16 int fill=1>\n' "$dir/race.cl" > "$dir/race.sim"
oclgrind-kernel --data-races "$dir/race.sim" > "$dir/out" 2>&1
grep -q 'data race' "$dir/out" || { echo "FAIL: an injected race was not seen:"; cat "$dir/out"; exit 1; }

for form in loop items; do
	SHARDRT_OPENCL_LANES=$form
	export SHARDRT_OPENCL_LANES
	watch "self-test, $form" tests/harness/list_backends opencl
	grep -q '^opencl ok Oclgrind' "$dir/out" ||
		{ echo "FAIL: $form: no device of oclgrind: $(cat "$dir/out")"; failed=1; }
	watch "self-test in 16 bits, $form" tests/device/test_opencl halves
	watch "products and attention, $form" tests/kernels/test_tuned tiny
done
exit $failed
