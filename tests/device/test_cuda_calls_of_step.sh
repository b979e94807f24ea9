#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The calls of the CUDA driver in a training step, of each function and of each kernel, are those of the table
# cuda_calls_of_step.def. The driver only counts (tests/fakes/null_cuda/), so gpt2-124m trains in milliseconds, and the
# fake cuBLASLt checks the products without computing them. A call that the table does not have is not made: no step
# allocates memory, makes an event or waits for a stream. `make update-cuda-tables` writes the table after a change.
#
# Counts are means over two steps, the difference of a training of 12 steps and one of 10: each second step fills a
# segment of the staging memory of uploads with tokens (device/upload.c). By then the segments are used in turn. No call
# of a step depends on time. Mode exact refuses a device that computes nothing, so "exact" is mode fast without
# cuBLASLt, which makes the same calls.
srcdir=${srcdir:-${0%/tests/device/*}}
skip() { echo "SKIP: $*"; exit 77; }
grep -q '^#define HAVE_CUDA 1' config.h || skip "built without CUDA"
table=$srcdir/tests/device/cuda_calls_of_step.def
fakes=$PWD/tests/fakes
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
unset SHARDRT_DEVICE SHARDRT_CUDA_TUNED SHARDRT_CUDA_FP32
LC_ALL=C
export LC_ALL
awk 'BEGIN { while (i++ < 1000) printf "line %d has the number %d\n", i, i * 7919 % 10007 }' > "$work/text"

# count_calls STEPS OPTION...: the calls of a training, as lines "NUMBER NAME", in the file STEPS.
count_calls()
{
	steps=$1
	shift
	SHARDRT_BACKEND=cuda SHARDRT_NUMERICS=fast SHARDRT_LOG=error SHARDRT_CUBLASLT_LIBRARY=$cublaslt \
		SHARDRT_CUDA_DRIVER=$fakes/null_cuda/.libs/libnull_cuda.so NULL_CUDA_COUNTS=$work/$steps \
		./shardrt-train --text "$work/text" --steps "$steps" --strategy zero3 --eval-every 0 "$@" \
		> "$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
}

# calls_of_step MODEL MODE OPTION...: the rows of the table for this model and mode.
calls_of_step()
{
	model=$1 mode=$2
	shift 2
	cublaslt=$fakes/fake_cublaslt/.libs/libfake_cublaslt.so
	[ "$mode" != exact ] || cublaslt=/nonexistent
	count_calls 10 "$@"
	count_calls 12 "$@"
	awk -v run="$model $mode" '
		NR == FNR { before[$2] = $1; next }
		$1 != before[$2] { print run, ($1 - before[$2]) / 2, $2 }' "$work/10" "$work/12" | sort -k 4
}

{
	sed -n '/^#/p' "$table"
	for model in nano gpt2-124m; do
		options="--preset $model"
		[ $model = nano ] || options="$options --context 1024 --vocab 50257 --batch 16"
		# shellcheck disable=SC2086
		{
			calls_of_step $model bf16 $options --dtype bf16
			calls_of_step $model fp32 $options
			calls_of_step $model exact $options
		}
	done
} > "$work/table" || exit 1
if [ "${1-}" = update ]; then
	cp "$work/table" "$table"
	exit
fi
grep -q 'gpt2-124m bf16 .* cublasLtMatmul' "$work/table" || { echo "FAIL: cuBLASLt was not used"; exit 1; }
diff -u "$table" "$work/table" && exit
echo "FAIL: the step makes other calls than the table has. If it shall: make update-cuda-tables"
exit 1
