#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The memory of the strategies: the formulas of docs/strategies.md are the plan and, for a small model on 4 ranks, what is
# allocated. The page has the table of gpt2-124m that the program prints; test_strategies_long.sh allocates that.
program=tests/tools/test_strategies
begin='| strategy | dtype | parameters | gradients | state | unsharded | unsharded gradients | tables | total, bytes | of ddp |'

[ -x ./shardrun ] || { echo "SKIP: shardrun was not built"; exit 77; }
rows=$($program gpt2-124m) || exit 1
table=$(sed -n "/^$begin\$/,/^\$/p" "$srcdir/docs/strategies.md" | sed '1,2d; /^$/d')
printf '%s\n|---|---|---|---|---|---|---|---|---|---|\n%s\n' "$begin" "$rows"
[ "$rows" = "$table" ] || { echo "docs/strategies.md has another table: copy the one above"; exit 1; }
./shardrun -n 4 $program "${1:-small}"
