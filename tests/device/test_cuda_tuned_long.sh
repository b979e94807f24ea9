#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# tests/device/test_cuda_tuned.sh with all cases.
exec sh "$srcdir/tests/device/test_cuda_tuned.sh" long
