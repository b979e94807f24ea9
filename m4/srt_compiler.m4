# SPDX-License-Identifier: BSD-3-Clause

# SRT_CHECK_CFLAGS(FLAGS, IF-OK, IF-NOT): does the compiler take FLAGS without a warning?
AC_DEFUN([SRT_CHECK_CFLAGS],[
AC_MSG_CHECKING([whether $CC takes $1])
srt_save_CFLAGS=$CFLAGS
CFLAGS="$CFLAGS -Werror $1"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([],[])],[srt_ok=yes],[srt_ok=no])
CFLAGS=$srt_save_CFLAGS
AC_MSG_RESULT([$srt_ok])
AS_IF([test $srt_ok = yes],[$2],[$3])
])

# SRT_COMPILER: C11, the flags that the numeric contract asks for, warnings.
AC_DEFUN([SRT_COMPILER],[
AC_ARG_ENABLE([werror],[AS_HELP_STRING([--enable-werror],[warnings are errors])],
	[],[enable_werror=no])
# docs/numerics.md: results must not depend on the compiler.
SRT_CFLAGS_MATH="-ffp-contract=off -fno-math-errno -fno-trapping-math"
SRT_CHECK_CFLAGS([-std=c11 $SRT_CFLAGS_MATH -fvisibility=hidden -pthread],[],
	[AC_MSG_ERROR([the compiler must be a C11 one like gcc or clang])])
AC_MSG_CHECKING([for plain IEEE float arithmetic])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <float.h>
#ifdef __FAST_MATH__
#error fast math
#endif
#if FLT_EVAL_METHOD != 0
#error excess precision
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error big endian
#endif]],[])],[AC_MSG_RESULT([yes])],[AC_MSG_RESULT([no])
	AC_MSG_ERROR([libshardrt needs a little-endian target with FLT_EVAL_METHOD 0 and no
-ffast-math (on 32-bit x86: CFLAGS="-O2 -msse2 -mfpmath=sse")])])
SRT_CFLAGS_WARN="-Wall -Wextra"
for srt_flag in -Wdouble-promotion -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	-Wvla -Wwrite-strings -Wformat=2 -Wno-format-nonliteral -Werror=double-promotion \
	-Werror=implicit-function-declaration; do
	SRT_CHECK_CFLAGS([$srt_flag],[SRT_CFLAGS_WARN="$SRT_CFLAGS_WARN $srt_flag"])
done
AS_IF([test $enable_werror = yes],[SRT_CFLAGS_WARN="$SRT_CFLAGS_WARN -Werror"])
# Kernels have no debug information (-g0): it would be most of every program, and a fifth of the time that they compile.
# A user's -O2 comes last and overrides -O3, but not a pass that is named: so the passes of gcc that kernels need are named.
AS_IF([test $srt_user_cflags = yes],[SRT_CFLAGS_OPT= SRT_CFLAGS_KERNEL=
	for srt_flag in -ftree-vectorize -fvect-cost-model=dynamic -fpeel-loops -funswitch-loops; do
		SRT_CHECK_CFLAGS([$srt_flag],[SRT_CFLAGS_KERNEL="$SRT_CFLAGS_KERNEL $srt_flag"])
	done],
	[SRT_CFLAGS_OPT="-g -O2" SRT_CFLAGS_KERNEL="-g0 -O3"])
AS_IF([test $srt_user_cflags = yes],[SRT_CFLAGS_TESTS=],[SRT_CFLAGS_TESTS="-g1 -O1"])
AC_SUBST([SRT_CFLAGS_TESTS])
AC_SUBST([SRT_CFLAGS_MATH])
AC_SUBST([SRT_CFLAGS_WARN])
AC_SUBST([SRT_CFLAGS_OPT])
# For libtool: where shared libraries are built, the static ones take the same objects. Kernels are most of a
# build's time, and position-independent ones are no slower: they call nothing.
AS_IF([test "x$enable_shared" = xyes],[SRT_CFLAGS_KERNEL="-shared $SRT_CFLAGS_KERNEL"])
AC_SUBST([SRT_CFLAGS_KERNEL])
])

# SRT_CPU_VARIANTS: instruction sets that kernels are also built for, chosen at run time; --with-isa=NAME stops at one.
AC_DEFUN([SRT_CPU_VARIANTS],[
AC_ARG_WITH([isa],[AS_HELP_STRING([--with-isa=baseline|avx2|avx512|neon],
	[the last instruction set that kernels are built for @<:@all that the compiler has@:>@])],[],[with_isa=all])
AS_CASE([$host_cpu],[x86_64],[srt_isas="avx2|avx512"],[aarch64],[srt_isas=neon],[srt_isas=])
AS_CASE(["|all|baseline|$srt_isas|"],[*"|$with_isa|"*],[],
	[AC_MSG_ERROR([--with-isa=$with_isa: for $host_cpu it is one of baseline|$srt_isas])])
srt_x86_64=no srt_avx2=no srt_avx512=no srt_neon=no
AS_CASE([$host_cpu],[x86_64],[srt_x86_64=yes])
SRT_CFLAGS_AVX2="-mavx2 -mfma -mf16c"
SRT_CFLAGS_AVX512="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512"
AS_IF([test $srt_x86_64 = yes && test $with_isa != baseline],[
	SRT_CHECK_CFLAGS([$SRT_CFLAGS_AVX2],[srt_avx2=yes])
	AS_IF([test $with_isa != avx2],[SRT_CHECK_CFLAGS([$SRT_CFLAGS_AVX512],[srt_avx512=yes])])])
# Every aarch64 has NEON with FMA. The sums of a tile fill the registers: gcc must not load ahead before it assigns them.
SRT_CFLAGS_NEON=
AS_IF([test $host_cpu = aarch64 && test $with_isa != baseline],[
	srt_neon=yes
	SRT_CHECK_CFLAGS([-fno-schedule-insns],[SRT_CFLAGS_NEON=-fno-schedule-insns])])
srt_isas=baseline
AS_IF([test $srt_avx2 = yes],[
	srt_isas="$srt_isas avx2"
	AC_DEFINE([HAVE_AVX2],[1],[Define to 1 if kernels are built for AVX2.])])
AS_IF([test $srt_avx512 = yes],[
	srt_isas="$srt_isas avx512"
	AC_DEFINE([HAVE_AVX512],[1],[Define to 1 if kernels are built for AVX-512.])])
AS_IF([test $srt_neon = yes],[
	srt_isas="$srt_isas neon"
	AC_DEFINE([HAVE_NEON],[1],[Define to 1 if kernels are built for NEON.])])
AC_DEFINE_UNQUOTED([SRT_BUILD_ISAS],["$srt_isas"],[Instruction sets that kernels are built for.])
AC_DEFINE_UNQUOTED([SRT_BUILD_HOST],["$host"],[What the library is built for.])
AM_CONDITIONAL([HAVE_X86_64],[test $srt_x86_64 = yes])
AM_CONDITIONAL([HAVE_AVX2],[test $srt_avx2 = yes])
AM_CONDITIONAL([HAVE_AVX512],[test $srt_avx512 = yes])
AM_CONDITIONAL([HAVE_NEON],[test $srt_neon = yes])
AC_SUBST([SRT_CFLAGS_AVX2])
AC_SUBST([SRT_CFLAGS_AVX512])
AC_SUBST([SRT_CFLAGS_NEON])
])

# SRT_SANITIZERS: --enable-asan (with UBSan), --enable-tsan.
AC_DEFUN([SRT_SANITIZERS],[
AC_ARG_ENABLE([asan],[AS_HELP_STRING([--enable-asan],[build with ASan and UBSan])],
	[],[enable_asan=no])
AC_ARG_ENABLE([tsan],[AS_HELP_STRING([--enable-tsan],[build with TSan])],
	[],[enable_tsan=no])
AS_IF([test $enable_asan = yes && test $enable_tsan = yes],
	[AC_MSG_ERROR([--enable-asan and --enable-tsan exclude each other])])
SRT_CFLAGS_SANITIZE= srt_sanitizer=none
AS_IF([test $enable_asan = yes],[srt_sanitizer=address,undefined
	dnl clang counts NULL + 0 as an overflow of a pointer.
	SRT_CFLAGS_SANITIZE="-fsanitize=address,undefined -fno-sanitize=pointer-overflow"
	SRT_CFLAGS_SANITIZE="$SRT_CFLAGS_SANITIZE -fno-sanitize-recover=undefined -fno-omit-frame-pointer"])
AS_IF([test $enable_tsan = yes],[srt_sanitizer=thread
	SRT_CFLAGS_SANITIZE="-fsanitize=thread -fno-omit-frame-pointer"])
AS_IF([test -n "$SRT_CFLAGS_SANITIZE"],[
	SRT_CFLAGS_SANITIZE="$SRT_CFLAGS_SANITIZE -DSRT_SANITIZED"
	SRT_CHECK_CFLAGS([$SRT_CFLAGS_SANITIZE],[],
		[AC_MSG_ERROR([the compiler cannot do $srt_sanitizer])])])
# A caller's thread may have a stack of 64 KiB (docs/embedding.md). Not with sanitizers, nor with the user's CFLAGS,
# which may have -O0: their frames are larger. Kernels have blocks of elements on the stack.
# Only then is debug information left out of the tests, which link in half the time: the others were made to debug.
SRT_CFLAGS_FRAME= SRT_CFLAGS_KERNEL_FRAME= SRT_LDFLAGS_TESTS=
AS_IF([test $srt_user_cflags = no && test -z "$SRT_CFLAGS_SANITIZE"],[
	SRT_LDFLAGS_TESTS=-Wl,--strip-debug
	SRT_CHECK_CFLAGS([-Wframe-larger-than=8192],[SRT_CFLAGS_FRAME="-Wframe-larger-than=8192"
		SRT_CFLAGS_KERNEL_FRAME="-Wframe-larger-than=32768"])])
AC_SUBST([SRT_CFLAGS_FRAME])
AC_SUBST([SRT_CFLAGS_KERNEL_FRAME])
AC_SUBST([SRT_LDFLAGS_TESTS])
AC_DEFINE_UNQUOTED([SRT_BUILD_SANITIZER],["$srt_sanitizer"],[Sanitizers compiled in.])
AM_CONDITIONAL([SANITIZE],[test -n "$SRT_CFLAGS_SANITIZE"])
AC_SUBST([SRT_CFLAGS_SANITIZE])
])

# SRT_FUZZ: --enable-fuzz, tests/fuzz with libFuzzer.
AC_DEFUN([SRT_FUZZ],[
AC_ARG_ENABLE([fuzz],[AS_HELP_STRING([--enable-fuzz],
	[make check fuzzes the parsers (clang only; best with --enable-asan)])],[],[enable_fuzz=no])
SRT_CFLAGS_FUZZ=
AS_IF([test $enable_fuzz = yes],[SRT_CFLAGS_FUZZ="-fsanitize=fuzzer"
	AC_MSG_CHECKING([whether $CC has libFuzzer])
	srt_save_CFLAGS=$CFLAGS
	CFLAGS="$CFLAGS $SRT_CFLAGS_SANITIZE $SRT_CFLAGS_FUZZ"
	AC_LINK_IFELSE([AC_LANG_SOURCE([[#include <stddef.h>
int LLVMFuzzerTestOneInput(const unsigned char *input, size_t nbytes);
int LLVMFuzzerTestOneInput(const unsigned char *input, size_t nbytes) { return !input && nbytes; }]])],
		[AC_MSG_RESULT([yes])],[AC_MSG_RESULT([no])
		AC_MSG_ERROR([--enable-fuzz needs libFuzzer, which $CC does not have: use CC=clang])])
	CFLAGS=$srt_save_CFLAGS])
AM_CONDITIONAL([FUZZ],[test $enable_fuzz = yes])
AC_SUBST([SRT_CFLAGS_FUZZ])
])

# SRT_THREADS: POSIX threads are required; -pthread is in the flags.
AC_DEFUN([SRT_THREADS],[
srt_save_CFLAGS=$CFLAGS
CFLAGS="$CFLAGS -pthread"
AC_MSG_CHECKING([for POSIX threads])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <pthread.h>
	static void *f(void *p) { return p; }]],[[pthread_t t; return pthread_create(&t, 0, f, 0);]])],
	[AC_MSG_RESULT([yes])],[AC_MSG_RESULT([no]); AC_MSG_ERROR([POSIX threads are required])])
CFLAGS=$srt_save_CFLAGS
])

# SRT_DLOPEN: backends are loaded at run time. Old C libraries have dlopen() in a separate library.
AC_DEFUN([SRT_DLOPEN],[
AC_SEARCH_LIBS([dlopen],[dl],
	[AS_CASE([$ac_cv_search_dlopen],[-l*],[SRT_PKG_LIBS="$SRT_PKG_LIBS $ac_cv_search_dlopen"])],
	[AC_MSG_ERROR([dlopen() is required])])
])

# SRT_SYMBOL_MAP: does the linker take a version script?
AC_DEFUN([SRT_SYMBOL_MAP],[
AC_MSG_CHECKING([whether the linker takes a symbol map])
echo 'T_0 { global: main; local: *; };' > conftest.map
srt_save_LDFLAGS=$LDFLAGS
LDFLAGS="$LDFLAGS -shared -fPIC -Wl,--version-script=conftest.map"
AC_LINK_IFELSE([AC_LANG_SOURCE([int main(void) { return 0; }])],[srt_map=yes],[srt_map=no])
LDFLAGS=$srt_save_LDFLAGS
rm -f conftest.map
AC_MSG_RESULT([$srt_map])
AM_CONDITIONAL([HAVE_SYMBOL_MAP],[test $srt_map = yes])
])
