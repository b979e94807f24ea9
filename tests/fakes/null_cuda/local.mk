# SPDX-License-Identifier: BSD-3-Clause
#
# A libcuda that does nothing and counts its calls (null_cuda.c). Built by make check, not installed;
# -rpath makes libtool build a shared object of it.
if HAVE_CUDA
check_LTLIBRARIES += tests/fakes/null_cuda/libnull_cuda.la
endif
tests_fakes_null_cuda_libnull_cuda_la_SOURCES = tests/fakes/null_cuda/null_cuda.c
tests_fakes_null_cuda_libnull_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
# The driver's functions are to be seen, which cuda.h does not say; most ignore what they are given.
tests_fakes_null_cuda_libnull_cuda_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default -Wno-unused-parameter
tests_fakes_null_cuda_libnull_cuda_la_LDFLAGS = $(AM_LDFLAGS) -module -shared -avoid-version -rpath $(pkglibdir) \
	-export-symbols-regex '^cu[A-Z]'
