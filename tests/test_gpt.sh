#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
. "$srcdir/tests/run_ranks.sh"
run_ranks "1 2 3" tests/test_gpt
