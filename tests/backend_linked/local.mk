# SPDX-License-Identifier: BSD-3-Clause
#
# The toy device with a library like NCCL for collectives. Built by make check, not installed.
if HAVE_SHARED
check_LTLIBRARIES += tests/backend_linked/shardrt_backend_linked.la
endif
tests_backend_linked_shardrt_backend_linked_la_SOURCES = \
	tests/backend_linked/backend.c \
	tests/backend_linked/comm.c \
	tests/backend_linked/linked.h \
	tests/backend_toy/device.c \
	tests/backend_toy/memory.c \
	tests/backend_toy/stream.c \
	tests/backend_toy/toy.h \
	tests/fake_nccl/wire.c \
	tests/fake_nccl/wire.h
tests_backend_linked_shardrt_backend_linked_la_LDFLAGS = $(SRT_MODULE_LDFLAGS) -rpath $(pkglibdir)
tests_backend_linked_shardrt_backend_linked_la_LIBADD = libselftest.la libkernels_table.la \
	libkernels_cpu.la

# The transport nccl.
check_PROGRAMS += tests/test_vendor tests/test_vendor_order
TESTS += tests/test_vendor.sh
EXTRA_DIST += tests/test_vendor.sh
