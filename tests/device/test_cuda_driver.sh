#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The cuda backend where there is no driver that it can use: each reason has its own message, and
# SHARDRT_BACKEND=auto goes on with the next backend.
failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
grep -q '^#define HAVE_CUDA 1' config.h || { echo "SKIP: built without CUDA" && exit 77; }
unset SHARDRT_DEVICE

# says STATUS WORDS VARIABLE=VALUE...: what shardrt-info ends with and says.
says()
{
	status=$1 words=$2
	shift 2
	out=$(env "$@" ./shardrt-info 2>&1)
	got=$?
	[ $got = "$status" ] || { echo "FAIL: $*: exit status $got, expected $status: $out"; failed=1; }
	case $out in
	*"$words"*) ;;
	*) echo "FAIL: $*: lacks \"$words\": $out"; failed=1 ;;
	esac
}

no=SHARDRT_CUDA_DRIVER=/nonexistent/libcuda.so.1
says 0 'cuda: no device: there is no CUDA driver: /nonexistent/libcuda.so.1' $no SHARDRT_BACKEND=auto
says 1 'backend "cuda" has no usable device: there is no CUDA driver' $no SHARDRT_BACKEND=cuda
says 1 "install NVIDIA's driver, or name its library in SHARDRT_CUDA_DRIVER" $no SHARDRT_BACKEND=cuda
# auto: no word of it, and a device of another backend.
says 0 'device:' $no SHARDRT_BACKEND=auto
case $out in
*'SHARDRT_BACKEND=auto goes on'* | *'device:
    cuda'*) echo "FAIL: auto: $out"; failed=1 ;;
esac

says 0 'warning: CUDA_LAUNCH_BLOCKING=1: every kernel launch' CUDA_LAUNCH_BLOCKING=1 SHARDRT_BACKEND=cpu SHARDRT_RANK=0

# A library that is no driver, and one of a driver that is too old for this toolkit.
echo 'int cuInit(unsigned flags) { return (int)flags; }' > "$work/half.c"
${CC:-cc} -shared -fPIC -o "$work/half.so" "$work/half.c" || exit 1
says 1 'half.so is too old or no CUDA driver: it has no function cuDriverGetVersion' \
	SHARDRT_CUDA_DRIVER="$work/half.so" SHARDRT_BACKEND=cuda

# driver VERSION CUINIT: all functions, of which those that count answer so.
driver()
{
	sed -n 's/^	F(\(cu[A-Za-z0-9]*\)[_v2]*).*/\1/p' "$srcdir/backends/cuda/driver.h" > "$work/names"
	{
		grep -q cuMemAlloc "$work/names" || exit 1
		awk '!/^cu(DriverGetVersion|Init|GetErrorName)$/ {
			print "int " $1 "(void) { return 999; }"
			for (i = 2; i <= 3; i++)
				print "int " $1 "_v" i "(void) { return 999; }"
		}' "$work/names"
		echo "int cuDriverGetVersion(int *v) { *v = $1; return 0; }"
		echo "int cuInit(unsigned flags) { (void)flags; return $2; }"
		echo 'int cuGetErrorName(int c, const char **n) { *n = c == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_X"; return 0; }'
	} > "$work/driver.c"
	${CC:-cc} -shared -fPIC -o "$work/driver.so" "$work/driver.c" || exit 1
}
driver 11080 0
says 1 'is too old: it is for CUDA 11.8, and this backend needs one for CUDA ' \
	SHARDRT_CUDA_DRIVER="$work/driver.so" SHARDRT_BACKEND=cuda
says 1 '.0 or newer, that is driver 5' SHARDRT_CUDA_DRIVER="$work/driver.so" SHARDRT_BACKEND=cuda
driver 99000 100
says 1 'finds no device: see that nvidia-smi lists one' SHARDRT_CUDA_DRIVER="$work/driver.so" SHARDRT_BACKEND=cuda
driver 99000 803
says 1 'does not start: CUDA_ERROR_X (803)' SHARDRT_CUDA_DRIVER="$work/driver.so" SHARDRT_BACKEND=cuda
driver 99000 0
says 1 'counting the CUDA devices failed: CUDA_ERROR_X (999)' \
	SHARDRT_CUDA_DRIVER="$work/driver.so" SHARDRT_BACKEND=cuda
exit $failed
