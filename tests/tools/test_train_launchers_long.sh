#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# All of the table of tests/tools/test_train_launchers.sh, with nano.
exec sh "$srcdir/tests/tools/test_train_launchers.sh" long
