#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
SRT_DAMAGES=200 exec "${SHELL:-/bin/sh}" "$srcdir/tests/tools/test_train_damage.sh"
