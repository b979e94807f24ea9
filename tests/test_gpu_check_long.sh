#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# tests/test_gpu_check.sh with what it packs.
exec sh "$srcdir/tests/test_gpu_check.sh" long
