# SPDX-License-Identifier: BSD-3-Clause
#
# SRT_CUDA: the backend for NVIDIA GPUs: --with-cuda=DIR|no|auto, --with-cuda-arch=LIST
# ------------------------------------------------------------------------------------
# It needs cuda.h (types only: no library is linked) and nvcc, which compiles the kernels; both in DIR, or nvcc
# in the PATH or in /usr/local/cuda/bin and cuda.h in ../include of its folder. NVCC and NVCCFLAGS may be given.
# LIST: the targets of the kernels, separated by commas: sm_NN is machine code, compute_NN is code that the driver
# compiles for later devices. The default is the part of the list below that nvcc supports.
# Defines HAVE_CUDA, HAVE_CUPTI (cupti.h, of which only tools/gpu-check/launches.c knows); SRT_CUDA_CFLAGS, NVCC, SRT_NVCC_FLAGS, srt_why_cuda and the summary's line as other packages'.
AC_DEFUN([SRT_CUDA],[
AC_ARG_VAR([NVCC],[the CUDA compiler])
AC_ARG_VAR([NVCCFLAGS],[flags for it, in addition to those of the numeric contract])
AC_ARG_WITH([cuda],[AS_HELP_STRING([--with-cuda=@<:@DIR|no|auto@:>@],
	[use the CUDA toolkit (cuda.h and nvcc); without it: no backend for NVIDIA GPUs])],[],[with_cuda=auto])
AC_ARG_WITH([cuda-arch],[AS_HELP_STRING([--with-cuda-arch=LIST],
	[what CUDA kernels are made for @<:@sm_80,sm_90,sm_100,sm_120,compute_80@:>@])],[],[with_cuda_arch=])
srt_have_cuda=no
srt_have_cupti=no
srt_why_cuda="switched off"
AS_IF([test "x$with_cuda" != xno],[
	SRT_CUDA_FIND
	AS_IF([test $srt_have_cuda = yes && test "x$enable_shared" = xno],[
		srt_have_cuda=no
		srt_why_cuda="its module needs shared objects (--disable-shared was given)"])
	AS_IF([test $srt_have_cuda = no && test "x$with_cuda" != xauto],
		[AC_MSG_ERROR([--with-cuda=$with_cuda: $srt_why_cuda])])])
AC_SUBST([SRT_CUDA_CFLAGS])
AC_SUBST([SRT_NVCC_FLAGS])
AC_SUBST([SRT_CUDA_ARCH],[$with_cuda_arch])
SRT_HAVE_PACKAGE([cuda])
AM_CONDITIONAL([HAVE_CUPTI],[test $srt_have_cuda$srt_have_cupti = yesyes])
m4_append([SRT_SUMMARY_LINES],[
	AS_IF([test $srt_have_cuda = yes],[echo "    cuda: yes, kernels for: $with_cuda_arch"],
		[echo "    cuda: no, $srt_why_cuda: no backend for NVIDIA GPUs"])])
])

# srt_have_cuda, or srt_why_cuda.
AC_DEFUN([SRT_CUDA_FIND],[
AS_CASE([$with_cuda],
[yes|auto],[AS_IF([test -z "$NVCC"],[AC_PATH_PROG([NVCC],[nvcc],[],[$PATH$PATH_SEPARATOR/usr/local/cuda/bin])])],
[NVCC=$with_cuda/bin/nvcc])
srt_cuda_include=
AS_CASE([$with_cuda],
[yes|auto],[AS_IF([test -n "$NVCC"],[
	srt_cuda_real=`readlink -f "$NVCC" 2>/dev/null`
	for srt_dir in "${NVCC%/*}/../include" "${srt_cuda_real%/*}/../include"; do
		AS_IF([test -z "$srt_cuda_include" && test -f "$srt_dir/cuda.h"],
			[srt_cuda_include=`cd "$srt_dir" && pwd`])
	done])],
[srt_cuda_include=$with_cuda/include])
SRT_CUDA_CFLAGS=
AS_IF([test -n "$srt_cuda_include"],[SRT_CUDA_CFLAGS="-isystem $srt_cuda_include"])
# docs/numerics.md: no contraction, correctly rounded division and square root, subnormals kept.
AS_IF([test -z "$with_cuda_arch" && test -n "$NVCC"],[
	srt_known=`{ "$NVCC" --list-gpu-code && "$NVCC" --list-gpu-arch; } 2>/dev/null | tr '\n' ' '`
	for srt_arch in sm_80 sm_90 sm_100 sm_120 compute_80; do
		AS_CASE([" $srt_known"],[*" $srt_arch "*],[with_cuda_arch=$with_cuda_arch${with_cuda_arch:+,}$srt_arch])
	done])
SRT_NVCC_FLAGS="-fatbin -O3 -fmad=false -prec-div=true -prec-sqrt=true -ftz=false"
AS_IF([test $enable_werror = yes],[SRT_NVCC_FLAGS="$SRT_NVCC_FLAGS -Werror all-warnings"])
for srt_arch in `echo "$with_cuda_arch" | tr ',' ' '`; do
	SRT_NVCC_FLAGS="$SRT_NVCC_FLAGS -gencode arch=compute_${srt_arch#*_},code=$srt_arch"
done
AC_MSG_CHECKING([for cuda])
srt_why_cuda="not found (no nvcc)"
AS_IF([test -n "$NVCC" && "$NVCC" --version >/dev/null 2>&1],[
	srt_why_cuda="not found (no cuda.h and cublasLt.h of version 12 or newer)"
	srt_save_CPPFLAGS=$CPPFLAGS
	CPPFLAGS="$CPPFLAGS $SRT_CUDA_CFLAGS"
	AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <cublasLt.h>
#include <cuda.h>
#if CUDA_VERSION < 12000
#error too old
#endif]],[[return (int)sizeof(CUuuid);]])],[srt_have_cuda=yes])
	AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <cupti.h>]],
		[[return (int)sizeof(CUpti_ActivityKernel9);]])],[srt_have_cupti=yes])
	CPPFLAGS=$srt_save_CPPFLAGS
	AS_IF([test $srt_have_cuda = yes],[
		echo 'extern "C" __global__ void k(float *x) { *x = 1; }' > conftest.cu
		AS_IF(["$NVCC" $SRT_NVCC_FLAGS $NVCCFLAGS -o conftest.fatbin conftest.cu >&AS_MESSAGE_LOG_FD 2>&1],[],[
			srt_have_cuda=no
			srt_why_cuda="$NVCC compiles nothing for $with_cuda_arch (see config.log)"])
		rm -f conftest.cu conftest.fatbin])])
AC_MSG_RESULT([$srt_have_cuda])
])
