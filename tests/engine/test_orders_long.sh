#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# tests/engine/test_orders.sh with more seeds, and tests/engine/test_missing_edges.sh with all waits.
sh "$srcdir/tests/engine/test_orders.sh" long && exec sh "$srcdir/tests/engine/test_missing_edges.sh" long
