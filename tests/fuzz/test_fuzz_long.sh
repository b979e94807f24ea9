#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# tests/fuzz/test_fuzz.sh, for a minute for each target.
exec sh "$srcdir/tests/fuzz/test_fuzz.sh" long
