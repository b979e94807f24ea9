#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The registers, stack frame, spills and shared memory of each CUDA kernel for sm_90 are those of the table
# cuda_resources.def. The table names its nvcc, because another one allocates registers in another way. The numbers are
# ptxas' report, which make keeps for each fatbin (backends/cuda/local.mk). `make update-cuda-tables` writes the table
# after a change of the kernels.
srcdir=${srcdir:-${0%/tests/device/*}}
skip() { echo "SKIP: $*"; exit 77; }
grep -q '^#define HAVE_CUDA 1' config.h || skip "built without CUDA"
table=$srcdir/tests/device/cuda_resources.def
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
for fatbin in backends/cuda/*.fatbin; do
	report=${fatbin%.fatbin}.ptxas
	[ -e "$report" ] || skip "$fatbin is of another build: there is no $report"
	cat "$report" >> "$work/reports"
done
grep -q "'sm_90'" "$work/reports" || skip "built without sm_90"
compilers=$(sed -n 's/^Build //p' "$work/reports" | sort -u)

# Of each kernel ptxas prints "Compiling entry function 'NAME' for 'ARCHITECTURE'", "N bytes stack frame, N bytes spill
# stores, N bytes spill loads" and "Used N registers, used N barriers, N bytes smem".
{
	sed -n '/^#/p' "$table" | sed "s|^# nvcc: .*|# nvcc: $compilers|"
	awk '
		/Compiling entry function/ { name = $7 $9; gsub(/\047/, " ", name); split(name, part, " ") }
		part[2] != "sm_90" { next }
		/bytes stack frame/ { memory = $1 " " $5 " " $9 }
		/: Used [0-9]+ registers/ {
			shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH - 11) : 0
			print part[1], $5, memory, shared
		}' "$work/reports" | LC_ALL=C sort
} > "$work/table"
grep -q '^k_' "$work/table" || { echo "FAIL: no kernel is found in the reports of ptxas"; exit 1; }
if [ "${1-}" = update ]; then
	cp "$work/table" "$table"
	exit
fi
wanted=$(sed -n 's/^# nvcc: //p' "$table")
[ "$compilers" = "$wanted" ] || skip "the table is of nvcc $wanted, this build of $compilers"
diff -u "$table" "$work/table" && exit
echo "FAIL: the kernels have other resources than the table has. If they shall: make update-cuda-tables"
exit 1
