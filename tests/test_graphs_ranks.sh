#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Training on two ranks with and without recordings, on the cuda backend over a driver that needs no GPU,
# staged: the cpu's hash with either strategy, also with micro-batches; passes and steps are recorded.
SHARDRT_BACKEND=cuda
. "$srcdir/tests/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
here=$(pwd)
SHARDRT_CUDA_DRIVER=$here/tests/fake_cuda/.libs/libfake_cuda.so
[ -f "$SHARDRT_CUDA_DRIVER" ] || skip "the fake driver was not built"
SHARDRT_MODULE_PATH=$here/.libs SHARDRT_CUDA_TUNED=portable SHARDRT_COLLECTIVES=staged
FAKE_CUDA_KERNELS=cpu FAKE_CUDA_DELAY_US=20
export SHARDRT_CUDA_DRIVER SHARDRT_MODULE_PATH SHARDRT_CUDA_TUNED SHARDRT_COLLECTIVES
export FAKE_CUDA_KERNELS FAKE_CUDA_DELAY_US
unset SHARDRT_DEVICE
text=tests/graphs_ranks.tmp
trap 'rm -f "$text" "$text".*' EXIT
cat "$srcdir"/include/shardrt/*.h > "$text"
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}
# train OPTIONS...: prints the hash
train()
{
	SHARDRT_LOG=debug ./shardrun -n 2 ./shardrt-train --text "$text" --layers 2 --heads 2 --width 24 \
		--context 20 --batch 12 --steps 4 --clip 0.5 --numerics exact --hash "$@" \
		2> "$text.err" | sed -n 's/^hash: //p'
}
recorded() { grep -c "sequence \"$1\": .* are recorded" "$text.err"; }
for options in "--strategy ddp" "--strategy zero3" "--strategy zero3 --accumulate 2"; do
	want=$(SHARDRT_BACKEND=cpu train $options)
	[ -n "$want" ] || grep -q xxhash "$text.err" || fail "$options on the cpu: $(cat "$text.err")"
	[ -n "$want" ] || skip "built without libxxhash"
	for graphs in no auto; do
		got=$(SHARDRT_GRAPHS=$graphs train $options)
		[ "$got" = "$want" ] || fail "$options, SHARDRT_GRAPHS=$graphs: '$got', not '$want'"
		n="$(recorded forward) $(recorded backward) $(recorded step)"
		case "$graphs $n" in
		"no 0 0 0") ;;
		no* | *" 0"*) fail "$options, SHARDRT_GRAPHS=$graphs: recordings of passes and steps: $n" ;;
		esac
	done
done
exit $failed
