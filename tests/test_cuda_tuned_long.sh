#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# tests/test_cuda_tuned.sh with all cases.
exec sh "$srcdir/tests/test_cuda_tuned.sh" long
