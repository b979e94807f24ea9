# SPDX-License-Identifier: BSD-3-Clause
#
# The backend that docs/porting.md walks through. Built by make check, not installed; -rpath makes
# libtool build a shared object of it.
if HAVE_SHARED
check_LTLIBRARIES += tests/fakes/backend_toy/shardrt_backend_toy.la
endif
tests_fakes_backend_toy_shardrt_backend_toy_la_SOURCES = \
	tests/fakes/backend_toy/backend.c \
	tests/fakes/backend_toy/device.c \
	tests/fakes/backend_toy/memory.c \
	tests/fakes/backend_toy/stream.c \
	tests/fakes/backend_toy/toy.h
tests_fakes_backend_toy_shardrt_backend_toy_la_LDFLAGS = $(SRT_MODULE_LDFLAGS) -rpath $(pkglibdir)
tests_fakes_backend_toy_shardrt_backend_toy_la_LIBADD = libselftest.la libkernels_table.la \
	libkernels_cpu.la
