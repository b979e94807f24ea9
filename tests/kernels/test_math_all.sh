#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The elementary functions on all 2^32 arguments, as many at a time as there are processors; then the
# roundings of all floats to both 16-bit types.
status=0
tests/kernels/test_math names | xargs -P "$(nproc 2> /dev/null || echo 2)" -I NAME tests/kernels/test_math all NAME || status=1
tests/kernels/test_half all || status=1
exit $status
