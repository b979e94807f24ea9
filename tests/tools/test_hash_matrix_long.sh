#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# All combinations of tests/tools/test_hash_matrix.sh, with nano.
exec sh "$srcdir/tests/tools/test_hash_matrix.sh" long
