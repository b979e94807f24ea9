# SPDX-License-Identifier: BSD-3-Clause

# SRT_GOLDEN: the folder of recorded reference runs, for tests/golden/replay_golden.
AC_DEFUN([SRT_GOLDEN],[
AC_ARG_WITH([golden],[AS_HELP_STRING([--with-golden=DIR],
	[recorded reference runs for the tests @<:@SRCDIR/../shared/golden, if there@:>@])],
	[],[with_golden=auto])
SRT_GOLDEN_DIR=
AS_CASE([$with_golden],
[no],[],
[auto],[AS_IF([test -d "$srcdir/../shared/golden"],
	[SRT_GOLDEN_DIR=`cd "$srcdir/../shared/golden" && pwd`])],
[AS_IF([test -d "$with_golden"],[SRT_GOLDEN_DIR=`cd "$with_golden" && pwd`],
	[AC_MSG_ERROR([--with-golden: there is no folder $with_golden])])])
AC_SUBST([SRT_GOLDEN_DIR])
])

# SRT_SUMMARY: the packages found and missing, and the effect. Last in configure.ac.
AC_DEFUN([SRT_SUMMARY],[
echo
echo "libshardrt $PACKAGE_VERSION"
echo "    for: $host with $CC"
echo "    kernels for: $srt_isas"
AS_IF([test $srt_sanitizer != none],[echo "    sanitizers: $srt_sanitizer"])
SRT_SUMMARY_LINES
AS_IF([test -n "$SRT_GOLDEN_DIR"],[echo "    golden runs: $SRT_GOLDEN_DIR"],
	[echo "    golden runs: none (--with-golden): make check skips the replays"])
echo "    prefix: $prefix"
echo
])
