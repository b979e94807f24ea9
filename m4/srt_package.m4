# SPDX-License-Identifier: BSD-3-Clause
#
# SRT_PACKAGE(NAME, PKG-CONFIG-MODULE, HEADER, FUNCTION, LIBRARY, COST)
# ---------------------------------------------------------------------
# An optional package. --with-NAME=auto (default): used if it compiles and links. --with-NAME or
# --with-NAME=DIR: must be there (in DIR/include and DIR/lib), else an error. --without-NAME: not
# searched. Flags come from pkg-config if it has the module; without pkg-config the compiler's
# search path is tried. COST is the summary's sentence on the effect of its absence.
# Defines HAVE_NAME; adds to SRT_PKG_CFLAGS and SRT_PKG_LIBS. shardrt.pc names the
# libraries as private (not the packages: their own static needs, like udev's, are rarely installed).
AC_DEFUN([SRT_PACKAGE],[
SRT_FIND_PACKAGE($@)
AS_IF([test $srt_have_$1 = yes],[
	SRT_PKG_CFLAGS="$SRT_PKG_CFLAGS $srt_cflags"
	SRT_PKG_LIBS="$SRT_PKG_LIBS $srt_libs"])
SRT_HAVE_PACKAGE([$1])
])

# SRT_MODELS_PACKAGE(the same arguments)
# --------------------------------------
# The same for a package that libshardrt-models alone is linked to, by SRT_MODELS_LIBS. SRT_USE_IN_MODELS(NAME), directly
# after SRT_PACKAGE(NAME, ...), adds that package to them.
AC_DEFUN([SRT_MODELS_PACKAGE],[
SRT_FIND_PACKAGE($@)
AS_IF([test $srt_have_$1 = yes],[SRT_PKG_CFLAGS="$SRT_PKG_CFLAGS $srt_cflags"])
SRT_USE_IN_MODELS([$1])
SRT_HAVE_PACKAGE([$1])
])
AC_DEFUN([SRT_USE_IN_MODELS],[
AS_IF([test $srt_have_$1 = yes],[SRT_MODELS_LIBS="$SRT_MODELS_LIBS $srt_libs"])
])

# SRT_MODULE_PACKAGE(the same arguments)
# --------------------------------------
# The same for a package that only the module of a backend is linked to: its flags go to SRT_NAME_CFLAGS
# and SRT_NAME_LIBS, which the library does not use. Modules are shared objects: without these none is built.
AC_DEFUN([SRT_MODULE_PACKAGE],[
SRT_FIND_PACKAGE($@)
AC_SUBST(m4_toupper([SRT_$1_CFLAGS]),[$srt_cflags])
AC_SUBST(m4_toupper([SRT_$1_LIBS]),[$srt_libs])
AS_IF([test $srt_have_$1 = yes && test "x$enable_shared" = xno],[
	AS_IF([test "x$with_$1" != xauto],
		[AC_MSG_ERROR([--with-$1: a module is a shared object, and --disable-shared was given])])
	srt_have_$1=no
	srt_why_$1="its module needs shared objects (--disable-shared was given)"])
SRT_HAVE_PACKAGE([$1])
])

# SRT_LOADED_PACKAGE(the same arguments)
# --------------------------------------
# The same for a package whose headers are used, and whose library is loaded at run time if it is there.
AC_DEFUN([SRT_LOADED_PACKAGE],[
SRT_FIND_PACKAGE($@)
AS_IF([test $srt_have_$1 = yes],[SRT_PKG_CFLAGS="$SRT_PKG_CFLAGS $srt_cflags"])
SRT_HAVE_PACKAGE([$1])
])

# The definitions for the build and the sources.
AC_DEFUN([SRT_HAVE_PACKAGE],[
AS_IF([test $srt_have_$1 = yes],
	[AC_DEFINE(m4_toupper([HAVE_$1]),[1],[Define to 1 if $1 is used.])])
AM_CONDITIONAL(m4_toupper([HAVE_$1]),[test $srt_have_$1 = yes])
])

# The search that both share: srt_have_NAME, srt_why_NAME, srt_cflags, srt_libs, the summary's line.
AC_DEFUN([SRT_FIND_PACKAGE],[
AC_REQUIRE([SRT_PKG_CONFIG])
AC_ARG_WITH([$1],[AS_HELP_STRING([--with-$1=@<:@DIR|no|auto@:>@],[use $1; without it: $6])],
	[],[with_$1=auto])
srt_have_$1=no
srt_why_$1="switched off"
srt_cflags= srt_libs= srt_from=
AS_IF([test "x$with_$1" != xno],[
	srt_libs=-l$5
	AS_CASE([$with_$1],
	[yes|auto],[AS_IF([test -n "$PKG_CONFIG" && "$PKG_CONFIG" --exists "$2" 2>/dev/null],[
		srt_cflags=`"$PKG_CONFIG" --cflags "$2"`
		srt_libs=`"$PKG_CONFIG" --libs "$2"`])],
	[
		srt_cflags="-I$with_$1/include"
		srt_libs="-L$with_$1/lib -l$5"
		srt_from=" in $with_$1"
		AS_IF([test ! -f "$with_$1/include/$3"],
			[AC_MSG_ERROR([--with-$1=$with_$1: there is no $with_$1/include/$3])])])
	srt_save_CPPFLAGS=$CPPFLAGS srt_save_LIBS=$LIBS
	CPPFLAGS="$CPPFLAGS $srt_cflags" LIBS="$srt_libs $LIBS"
	AC_MSG_CHECKING([for $1$srt_from])
	AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stdio.h>
		#define PCRE2_CODE_UNIT_WIDTH 8 /* pcre2.h needs it */
		#include <$3>]],[[return (void *)$4 == (void *)stdin;]])],[srt_have_$1=yes])
	AC_MSG_RESULT([$srt_have_$1])
	CPPFLAGS=$srt_save_CPPFLAGS LIBS=$srt_save_LIBS
	srt_why_$1="not found"
	AS_IF([test $srt_have_$1 = no && test "x$with_$1" != xauto],
		[AC_MSG_FAILURE([--with-$1 was given, but <$3> or $4()$srt_from cannot be used])])
])
m4_append([SRT_SUMMARY_LINES],[
	AS_IF([test $srt_have_$1 = yes],[echo "    $1: yes"],[echo "    $1: no, $srt_why_$1: $6"])])
])

# pkg-config is optional, so generating configure does not need its macros.
AC_DEFUN([SRT_PKG_CONFIG],[
AC_ARG_VAR([PKG_CONFIG],[path of pkg-config; may be missing])
AC_PATH_TOOL([PKG_CONFIG],[pkg-config])
AC_ARG_WITH([pkgconfigdir],[AS_HELP_STRING([--with-pkgconfigdir=DIR],
	[where shardrt.pc goes @<:@LIBDIR/pkgconfig@:>@])],[],[with_pkgconfigdir='${libdir}/pkgconfig'])
AC_SUBST([pkgconfigdir],[$with_pkgconfigdir])
AC_SUBST([SRT_PKG_CFLAGS])
AC_SUBST([SRT_PKG_LIBS])
AC_SUBST([SRT_MODELS_LIBS])
])
