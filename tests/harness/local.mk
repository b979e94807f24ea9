# SPDX-License-Identifier: BSD-3-Clause
libfixtures_a_SOURCES += \
	tests/harness/bits.h \
	tests/harness/check.c tests/harness/check.h \
	tests/harness/device.c tests/harness/device.h \
	tests/harness/half.c tests/harness/half.h \
	tests/harness/job.c tests/harness/job.h \
	tests/harness/options.h \
	tests/harness/random.c tests/harness/random.h
EXTRA_DIST += \
	tests/harness/by_rank.sh \
	tests/harness/hosts.sh \
	tests/harness/lsan.supp \
	tests/harness/port.sh \
	tests/harness/run_ranks.sh \
	tests/harness/run_test.sh \
	tests/harness/slurm.sh \
	tests/harness/summary.sh \
	tests/harness/table.sh \
	tests/harness/transport.sh \
	tests/harness/tsan.supp \
	tests/harness/wait.sh

check_PROGRAMS += tests/harness/always_fails tests/harness/list_backends
tests_harness_always_fails_CPPFLAGS = $(AM_CPPFLAGS) -DNDEBUG
SCRIPT_TESTS += tests/harness/test_harness.sh
