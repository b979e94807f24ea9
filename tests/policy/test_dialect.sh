#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Every kernel file compiles as OpenCL C 1.2 (clang), by itself, with lanes as work-items and as a loop, and all
# as CUDA C (nvcc), for each type of the tensors, and the CUDA code of numerics mode exact has no approximate or flushing
# instruction, vectors where it should and nothing in local memory (cuda_code.awk): the PTX of the build, if it has
# one. What a compiler lacks for that is skipped with its reason. No name of theirs is one of OpenCL C's
# own functions, which some compilers have as macros.
srcdir=${srcdir:-.}
CLANG=${CLANG:-clang}
NVCC=${NVCC:-nvcc}
command -v "$NVCC" >/dev/null 2>&1 || NVCC=/usr/local/cuda/bin/nvcc
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

# names FILE...: kernels, functions and macros that are called like a built-in.
names()
{
	"${AWK:-awk}" -f "$srcdir/tests/policy/opencl_names.awk" "$@"
}
printf '#undef tanh\nKERNEL(2, tanh, a)\nKERNEL(2, exp, a)\nMAP(log, a)\n' >"$work/injected.k"
printf 'FN float k_mix(float a)\nFN float mix(float a)\n#define clamp(a) a\n' >"$work/injected.h"
[ "$(names "$work/injected.k" "$work/injected.h" | grep -c 'is called like')" = 4 ] &&
	! names "$work/injected.k" >/dev/null || {
	echo "FAIL: injected names were not seen:"
	names "$work/injected.k" "$work/injected.h"
	exit 1
}
names "$srcdir"/kernels/*.k "$srcdir"/kernels/*.h "$srcdir"/kernels/dialect/*.h "$srcdir"/kernels/gpu/*.[kh] "$srcdir"/backends/opencl/*.cl || failed=1

# One list for the compilers that take all kernels in one unit, one for make: both are the folder.
folder=$(cd "$srcdir" && echo kernels/*.k)
included=$(sed -n 's/^#include "\(.*\)"$/\1/p' "$srcdir/kernels/all.h")
listed=$(awk '!/^\t/ { on = /^KERNEL_FAMILIES/ } /^\t/ && on { print $1 }' "$srcdir/kernels/local.mk")
# shellcheck disable=SC2116,SC2086
for list in "$(echo $included)" "$(echo $listed)"; do
	[ "$list" = "$folder" ] || {
		echo "FAIL: kernels/ has $folder; all.h or KERNEL_FAMILIES of local.mk has $list"
		failed=1
	}
done

echo 'kernel void k(global float *x) { x[get_global_id(0)] = fma(x[0], 2.0f, 1.0f); }' >"$work/probe.cl"
opencl() {
	"$CLANG" -x cl -cl-std=CL1.2 -Xclang -finclude-default-header -fsyntax-only -Wall -Werror \
		-Wno-unused-variable -Wno-unused-function -I "$srcdir" "$@"
}
if opencl "$work/probe.cl" >/dev/null 2>&1; then
	for file in "$srcdir"/kernels/*.k; do
		for form in -DLANES_AS_WORK_ITEMS -DLANES_AS_LOOP "-DLANES_AS_LOOP -DK_DTYPE=f16" "-DLANES_AS_LOOP -DK_DTYPE=bf16"; do
			opencl $form "$file" || {
				echo "FAIL: $file as OpenCL C with $form"
				failed=1
			}
		done
	done
	for file in "$srcdir"/kernels/gpu/*.k; do
		for form in -DLANES_AS_WORK_ITEMS -DLANES_AS_LOOP -DSRT_GPU_ROLLED -DK_DTYPE=f16 -DK_DTYPE=bf16; do
			opencl $form "$file" || {
				echo "FAIL: $file as OpenCL C with $form"
				failed=1
			}
		done
	done
	for file in "$srcdir"/backends/opencl/*.cl; do
		for form in -DVL=4 -DVL=8 -DVL=16; do
			opencl $form "$file" || {
				echo "FAIL: $file as OpenCL C with $form"
				failed=1
			}
		done
	done
else
	echo "SKIP: no clang that compiles OpenCL C ($CLANG)"
fi

if "$NVCC" --version >/dev/null 2>&1; then
	for dtype in f32 f16 bf16; do
		if [ -r backends/cuda/portable_$dtype.ptx ] && [ -r backends/cuda/tuned_$dtype.ptx ]; then
			"${AWK:-awk}" '/^\.(visible|entry|func)/ { fast = /k_fast_/ } !fast' backends/cuda/portable_$dtype.ptx \
				backends/cuda/tuned_$dtype.ptx >"$work/all.ptx"
		else
			for file in kernels/all.h $(cd "$srcdir" && echo kernels/gpu/*.k); do
				echo "#include \"$file\""
			done >"$work/all.cu"
			"$NVCC" -arch=sm_90 -fmad=false -ptx -DK_DTYPE=$dtype -I "$srcdir" -I "$srcdir/include" \
				-o "$work/all.ptx" "$work/all.cu" || {
				echo "FAIL: the kernels as CUDA C in $dtype"
				failed=1
				continue
			}
		fi
		if grep -E '\.approx|\.ftz' "$work/all.ptx"; then
			echo "FAIL: approximate instructions in the CUDA code in $dtype"
			failed=1
		fi
		"${AWK:-awk}" -f "$srcdir/tests/policy/cuda_code.awk" "$srcdir"/kernels/*.k "$work/all.ptx" || {
			echo "FAIL: the CUDA code in $dtype"
			failed=1
		}
	done
else
	echo "SKIP: no CUDA compiler ($NVCC)"
fi
exit $failed
