#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/quality.sh TEXT [SEED...]: does training learn as well as it should? The nano preset, batch
# 12, 2000 steps, learning rate 1e-3 to 1e-4 with 100 steps of warm-up, on 2 ranks; prints the
# validation loss over the whole tail of the text for each seed, and fails above LIMIT (default 1.90
# nats a character, for tinyshakespeare; nanoGPT publishes 1.88 for this model and text).
# Run it in the build folder; it takes some minutes.
[ $# -ge 1 ] && [ -r "$1" ] || {
	echo "usage: $0 TEXT [SEED...]" >&2
	exit 2
}
text=$1
shift
[ $# -ge 1 ] || set -- 1 2 3
log=${TMPDIR:-/tmp}/quality.$$.jsonl
trap 'rm -f "$log"' EXIT
failed=0
for seed; do
	./shardrun -n 2 ./shardrt-train --text "$text" --preset nano --batch 12 --steps 2000 \
		--lr 1e-3 --min-lr 1e-4 --warmup 100 --eval-every 2000 --strategy zero3 \
		--seed "$seed" --log "$log" > /dev/null || exit 1
	loss=$(sed -n 's/.*"val_loss": *\([0-9.eE+-]*\).*/\1/p' "$log" | tail -n 1)
	echo "seed $seed: validation loss $loss"
	awk -v loss="$loss" -v limit="${LIMIT:-1.90}" \
		'BEGIN { exit !(loss + 0 > 0 && loss + 0 <= limit + 0) }' || failed=1
done
[ $failed = 0 ] || echo "FAIL: above ${LIMIT:-1.90}"
exit $failed
