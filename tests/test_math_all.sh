#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The elementary functions on all 2^32 arguments.
exec tests/test_math all
