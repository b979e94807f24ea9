#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The elementary functions on all 2^32 arguments, as many at a time as there are processors.
tests/test_math names | xargs -P "$(nproc 2> /dev/null || echo 2)" -I NAME tests/test_math all NAME
