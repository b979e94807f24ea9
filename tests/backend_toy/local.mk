# SPDX-License-Identifier: BSD-3-Clause
#
# The backend that docs/porting.md walks through. Built by make check, not installed; -rpath makes
# libtool build a shared object of it.
if HAVE_SHARED
check_LTLIBRARIES += tests/backend_toy/shardrt_backend_toy.la
endif
tests_backend_toy_shardrt_backend_toy_la_SOURCES = \
	tests/backend_toy/backend.c \
	tests/backend_toy/device.c \
	tests/backend_toy/memory.c \
	tests/backend_toy/stream.c \
	tests/backend_toy/toy.h
tests_backend_toy_shardrt_backend_toy_la_LDFLAGS = $(SRT_MODULE_LDFLAGS) -rpath $(pkglibdir)
tests_backend_toy_shardrt_backend_toy_la_LIBADD = libselftest.la libkernels_table.la \
	libkernels_cpu.la
