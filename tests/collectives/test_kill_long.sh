#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
SRT_KILLS=20 exec "${SHELL:-/bin/sh}" "$srcdir/tests/collectives/test_kill.sh"
