# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += tests/fakes/README.md
libfixtures_a_SOURCES += tests/fakes/fake_backend.c tests/fakes/fake_backend.h
if HAVE_CUDA
libfixtures_a_SOURCES += tests/fakes/load.c tests/fakes/load.h
PROGRAM_TESTS += tests/fakes/test_fake_cuda
endif
tests_fakes_test_fake_cuda_CPPFLAGS = $(CUDA_TEST_CPPFLAGS)

if HAVE_SHARED
PROGRAM_TESTS += tests/fakes/test_late
endif

# Modules for test_module. -rpath makes libtool build shared objects of them.
if HAVE_SHARED
check_LTLIBRARIES += tests/fakes/module_test.la tests/fakes/module_empty.la
endif
tests_fakes_module_test_la_SOURCES = tests/fakes/module_test.c
tests_fakes_module_test_la_LDFLAGS = $(SRT_MODULE_LDFLAGS) -rpath $(pkglibdir)
tests_fakes_module_test_la_LIBADD = libkernels_table.la
tests_fakes_module_empty_la_SOURCES = tests/fakes/module_empty.c
tests_fakes_module_empty_la_LDFLAGS = $(AM_LDFLAGS) -module -shared -avoid-version -rpath $(pkglibdir)

include $(top_srcdir)/tests/fakes/backend_toy/local.mk
include $(top_srcdir)/tests/fakes/backend_linked/local.mk
include $(top_srcdir)/tests/fakes/backend_late/local.mk
include $(top_srcdir)/tests/fakes/fake_cuda/local.mk
include $(top_srcdir)/tests/fakes/fake_cublaslt/local.mk
include $(top_srcdir)/tests/fakes/fake_nccl/local.mk
include $(top_srcdir)/tests/fakes/null_cuda/local.mk
