#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The memory of the strategies: the formulas of docs/strategies.md are the plan and, for a small model on 4 ranks, what is
# allocated. The page has the table of gpt2-124m that the program prints; test_strategies_long.sh allocates that.
. "$srcdir/tests/harness/table.sh"
program=tests/tools/test_strategies
head='| strategy | dtype | offload | parameters | gradients | state | unsharded | unsharded gradients | tables | total, bytes | of ddp | on the host, bytes |'

[ -x ./shardrun ] || { echo "SKIP: shardrun was not built"; exit 77; }
rows=$($program gpt2-124m) || exit 1
compare_table "$srcdir/docs/strategies.md" "$head" "$rows"
./shardrun -n 4 $program "${1:-small}"
