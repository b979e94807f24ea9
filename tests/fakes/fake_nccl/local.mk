# SPDX-License-Identifier: BSD-3-Clause
#
# A libnccl that needs no GPU (nccl.c). Built by make check, not installed;
# -rpath makes libtool build a shared object of it.
if HAVE_NCCL
check_LTLIBRARIES += tests/fakes/fake_nccl/libfake_nccl.la
endif
tests_fakes_fake_nccl_libfake_nccl_la_SOURCES = \
	tests/fakes/fake_nccl/calls.c tests/fakes/fake_nccl/calls.h \
	tests/fakes/fake_nccl/nccl.c \
	tests/fakes/fake_nccl/wire.c tests/fakes/fake_nccl/wire.h
tests_fakes_fake_nccl_libfake_nccl_la_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_NCCL_CFLAGS) $(SRT_CUDA_CFLAGS)
# NCCL's functions are to be seen, which nccl.h does not say; two of them have no prototypes in C.
tests_fakes_fake_nccl_libfake_nccl_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default -Wno-missing-prototypes
tests_fakes_fake_nccl_libfake_nccl_la_LDFLAGS = $(AM_LDFLAGS) -module -shared -avoid-version -rpath $(pkglibdir) \
	-export-symbols-regex '^nccl[A-Z]'
