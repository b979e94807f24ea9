#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# tests/tools/test_gpu_check.sh with what it packs.
exec sh "$srcdir/tests/tools/test_gpu_check.sh" long
