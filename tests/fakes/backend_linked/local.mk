# SPDX-License-Identifier: BSD-3-Clause
#
# The toy device with a library like NCCL for collectives. Built by make check, not installed.
if HAVE_SHARED
check_LTLIBRARIES += tests/fakes/backend_linked/shardrt_backend_linked.la
endif
tests_fakes_backend_linked_shardrt_backend_linked_la_SOURCES = \
	tests/fakes/backend_linked/backend.c \
	tests/fakes/backend_linked/comm.c \
	tests/fakes/backend_linked/linked.h \
	tests/fakes/backend_toy/device.c \
	tests/fakes/backend_toy/memory.c \
	tests/fakes/backend_toy/stream.c \
	tests/fakes/backend_toy/toy.h \
	tests/fakes/fake_nccl/wire.c tests/fakes/fake_nccl/wire.h
tests_fakes_backend_linked_shardrt_backend_linked_la_LDFLAGS = $(SRT_MODULE_LDFLAGS) -rpath $(pkglibdir)
tests_fakes_backend_linked_shardrt_backend_linked_la_LIBADD = libselftest.la libkernels_table.la \
	libkernels_cpu.la
