#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
SRT_KILLS=10 exec "${SHELL:-/bin/sh}" "$srcdir/tests/tools/test_train_restarts.sh"
