# SPDX-License-Identifier: BSD-3-Clause
#
# Built against the installed library by tests/tools/test_install.sh, as a user would.
EXTRA_DIST += examples/train_own.c
