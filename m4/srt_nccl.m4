# SPDX-License-Identifier: BSD-3-Clause
#
# SRT_NCCL: collectives between CUDA devices by NCCL: --with-nccl=DIR|no|auto
# ---------------------------------------------------------------------------
# After SRT_CUDA. nccl.h is used for types only, in DIR/include or among CUDA's headers; the library is loaded at run
# time. Defines HAVE_NCCL; SRT_NCCL_CFLAGS, srt_why_nccl and the summary's line.
AC_DEFUN([SRT_NCCL],[
AC_REQUIRE([SRT_CUDA])
AC_ARG_WITH([nccl],[AS_HELP_STRING([--with-nccl=@<:@DIR|no|auto@:>@],
	[use NCCL (nccl.h); without it: collectives between CUDA devices go through shared memory])],[],[with_nccl=auto])
srt_have_nccl=no
srt_why_nccl="switched off"
SRT_NCCL_CFLAGS=
AS_IF([test "x$with_nccl" != xno],[
	srt_why_nccl="it is for the cuda backend, which is not built"
	AS_CASE([$with_nccl],[yes|auto],[],[SRT_NCCL_CFLAGS="-isystem $with_nccl/include"])
	AS_IF([test $srt_have_cuda = yes],[
		srt_why_nccl="not found (no nccl.h of version 2.14 or newer)"
		AC_MSG_CHECKING([for nccl])
		srt_save_CPPFLAGS=$CPPFLAGS
		CPPFLAGS="$CPPFLAGS $SRT_NCCL_CFLAGS $SRT_CUDA_CFLAGS"
		AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <nccl.h>
#if NCCL_VERSION_CODE < 21400
#error too old
#endif]],[[ncclConfig_t c = NCCL_CONFIG_INITIALIZER; return c.blocking;]])],[srt_have_nccl=yes])
		CPPFLAGS=$srt_save_CPPFLAGS
		AC_MSG_RESULT([$srt_have_nccl])])
	AS_IF([test $srt_have_nccl = no && test "x$with_nccl" != xauto],
		[AC_MSG_ERROR([--with-nccl=$with_nccl: $srt_why_nccl])])])
AC_SUBST([SRT_NCCL_CFLAGS])
SRT_HAVE_PACKAGE([nccl])
m4_append([SRT_SUMMARY_LINES],[
	AS_IF([test $srt_have_nccl = yes],[echo "    nccl: yes, loaded at run time"],
		[echo "    nccl: no, $srt_why_nccl"])])
])
