# SPDX-License-Identifier: BSD-3-Clause
#
# A libcublasLt over the fake driver (fake_cublaslt.h). Built by make check,
# not installed; -rpath makes libtool build a shared object of it.
if HAVE_CUDA
check_LTLIBRARIES += tests/fakes/fake_cublaslt/libfake_cublaslt.la
endif
tests_fakes_fake_cublaslt_libfake_cublaslt_la_SOURCES = \
	tests/fakes/fake_cublaslt/fake.h \
	tests/fakes/fake_cublaslt/fake_cublaslt.c tests/fakes/fake_cublaslt/fake_cublaslt.h \
	tests/fakes/fake_cublaslt/product.c \
	tests/harness/half.c tests/harness/half.h
tests_fakes_fake_cublaslt_libfake_cublaslt_la_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
# cuBLASLt's functions are to be seen; its header does not say so.
tests_fakes_fake_cublaslt_libfake_cublaslt_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_fakes_fake_cublaslt_libfake_cublaslt_la_LDFLAGS = $(AM_LDFLAGS) -module -shared -avoid-version \
	-rpath $(pkglibdir) -export-symbols-regex '^(cublasLt|fake_cublaslt_api)'
tests_fakes_fake_cublaslt_libfake_cublaslt_la_LIBADD = -lm
