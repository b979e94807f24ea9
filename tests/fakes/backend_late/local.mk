# SPDX-License-Identifier: BSD-3-Clause
#
# The toy device with streams that run their commands in unlucky orders. Built by make check, not installed.
if HAVE_SHARED
check_LTLIBRARIES += tests/fakes/backend_late/shardrt_backend_late.la
endif
tests_fakes_backend_late_shardrt_backend_late_la_SOURCES = \
	tests/fakes/backend_late/backend.c \
	tests/fakes/backend_late/late.h \
	tests/fakes/backend_late/memory.c \
	tests/fakes/backend_late/stream.c \
	tests/fakes/backend_toy/device.c \
	tests/fakes/backend_toy/memory.c \
	tests/fakes/backend_toy/stream.c \
	tests/fakes/backend_toy/toy.h
tests_fakes_backend_late_shardrt_backend_late_la_LDFLAGS = $(SRT_MODULE_LDFLAGS) -rpath $(pkglibdir)
tests_fakes_backend_late_shardrt_backend_late_la_LIBADD = libselftest.la libkernels_table.la \
	libkernels_cpu.la
