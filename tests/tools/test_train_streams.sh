#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A few steps of shardrt-train on two ranks in each form of the backend: the same losses. For TSan, the run in which
# everything that threads share is in use at once. The size of the model is not: each kernel is divided among threads.
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
text=tests/train_streams.tmp
trap 'rm -f "$text" "$text".*' EXIT
cat "$srcdir"/include/shardrt/*.h > "$text"
for strategy in ddp zero3; do
	for form in $forms; do
		use_form $form
		./shardrun -n 2 ./shardrt-train --text "$text" \
			--layers 2 --heads 2 --width 64 --context 64 --batch 4 --accumulate 2 --clip 1 --threads 2 --steps 3 \
			--strategy $strategy --log "$text.log" || exit 1
		sed -n 's/.*\("loss": *[0-9.e+-]*\).*/\1/p' "$text.log" > "$text.$form"
		[ "$(wc -l < "$text.$form")" -ge 3 ] || { echo "FAIL: no losses"; exit 1; }
		rm -f "$text.log"
		cmp "$text.${forms%% *}" "$text.$form" || exit 1
	done
done
cell 2 pass
