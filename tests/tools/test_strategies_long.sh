#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What test_strategies.sh compares, with gpt2-124m allocated on 4 ranks: up to 6 GiB, a minute.
exec ${CONFIG_SHELL:-/bin/sh} "$srcdir/tests/tools/test_strategies.sh" gpt2-124m
