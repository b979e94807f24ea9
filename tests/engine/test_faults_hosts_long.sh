#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
SRT_TEST_LONG=1 exec "${SHELL:-/bin/sh}" "$srcdir/tests/engine/test_faults_hosts.sh"
