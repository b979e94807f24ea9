#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# All combinations of tests/tools/test_tensor_parts.sh.
exec sh "$srcdir/tests/tools/test_tensor_parts.sh" long
