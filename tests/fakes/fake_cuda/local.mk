# SPDX-License-Identifier: BSD-3-Clause
#
# A libcuda that needs no GPU (fake_cuda.h). Built by make check, not installed; -rpath makes libtool build a shared object of it.
#
# The kernels' text is compiled by the C compiler, with a call at each of its accesses; not where the whole
# build has a sanitizer for threads, whose calls those would be; without vectors of the compiler's own, which need
# not be aligned as a device's are. -shared is libtool's: once, for the shared object.
FAKE_CUDA_CFLAGS = -shared -fno-sanitize=all \
	$(if $(findstring thread,$(SRT_CFLAGS_SANITIZE)),,-fsanitize=thread) \
	-fno-tree-vectorize -fno-tree-slp-vectorize \
	-Wno-unknown-pragmas -Wno-unused-parameter -Wno-unused-variable
FAKE_CUDA_TEXT = tests/fakes/fake_cuda/kernel.h tests/fakes/fake_cuda/portable.c tests/fakes/fake_cuda/shim.h \
	tests/fakes/fake_cuda/tuned.c tests/fakes/fake_cuda/warp.h

if HAVE_CUDA
check_LTLIBRARIES += \
	tests/fakes/fake_cuda/libfake_cuda_f32.la \
	tests/fakes/fake_cuda/libfake_cuda_f16.la \
	tests/fakes/fake_cuda/libfake_cuda_bf16.la \
	tests/fakes/fake_cuda/libfake_cuda_faults.la \
	tests/fakes/fake_cuda/libfake_cuda_example.la \
	tests/fakes/fake_cuda/libfake_cuda.la
endif
tests_fakes_fake_cuda_libfake_cuda_f32_la_SOURCES = $(FAKE_CUDA_TEXT)
tests_fakes_fake_cuda_libfake_cuda_f32_la_CPPFLAGS = $(AM_CPPFLAGS) -DK_DTYPE=f32
tests_fakes_fake_cuda_libfake_cuda_f32_la_CFLAGS = $(AM_CFLAGS) $(FAKE_CUDA_CFLAGS)
tests_fakes_fake_cuda_libfake_cuda_f16_la_SOURCES = $(FAKE_CUDA_TEXT)
tests_fakes_fake_cuda_libfake_cuda_f16_la_CPPFLAGS = $(AM_CPPFLAGS) -DK_DTYPE=f16
tests_fakes_fake_cuda_libfake_cuda_f16_la_CFLAGS = $(AM_CFLAGS) $(FAKE_CUDA_CFLAGS)
tests_fakes_fake_cuda_libfake_cuda_bf16_la_SOURCES = $(FAKE_CUDA_TEXT)
tests_fakes_fake_cuda_libfake_cuda_bf16_la_CPPFLAGS = $(AM_CPPFLAGS) -DK_DTYPE=bf16
tests_fakes_fake_cuda_libfake_cuda_bf16_la_CFLAGS = $(AM_CFLAGS) $(FAKE_CUDA_CFLAGS)
# Kernels with the faults that it must find.
tests_fakes_fake_cuda_libfake_cuda_faults_la_SOURCES = tests/fakes/fake_cuda/faults.c
tests_fakes_fake_cuda_libfake_cuda_faults_la_CFLAGS = $(AM_CFLAGS) $(FAKE_CUDA_CFLAGS)

# The kernels of examples/cuda_kernel.c.
tests_fakes_fake_cuda_libfake_cuda_example_la_SOURCES = tests/fakes/fake_cuda/example.c
tests_fakes_fake_cuda_libfake_cuda_example_la_CFLAGS = $(AM_CFLAGS) $(FAKE_CUDA_CFLAGS)

tests_fakes_fake_cuda_libfake_cuda_la_SOURCES = \
	tests/fakes/fake_cuda/access.c \
	tests/fakes/fake_cuda/copy.c \
	tests/fakes/fake_cuda/device.c \
	tests/fakes/fake_cuda/event.c \
	tests/fakes/fake_cuda/fake.h \
	tests/fakes/fake_cuda/fake_cuda.h \
	tests/fakes/fake_cuda/fiber.c tests/fakes/fake_cuda/fiber.h \
	tests/fakes/fake_cuda/launch.c \
	tests/fakes/fake_cuda/memory.c \
	tests/fakes/fake_cuda/race.c \
	tests/fakes/fake_cuda/record.c \
	tests/fakes/fake_cuda/stream.c
tests_fakes_fake_cuda_libfake_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
# The driver's functions are to be seen; cuda.h does not say so.
tests_fakes_fake_cuda_libfake_cuda_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_fakes_fake_cuda_libfake_cuda_la_LDFLAGS = $(AM_LDFLAGS) -module -shared -avoid-version -rpath $(pkglibdir) \
	-export-symbols-regex '^(cu[A-Z]|fake_cuda_api)'
tests_fakes_fake_cuda_libfake_cuda_la_LIBADD = \
	tests/fakes/fake_cuda/libfake_cuda_f32.la \
	tests/fakes/fake_cuda/libfake_cuda_f16.la \
	tests/fakes/fake_cuda/libfake_cuda_bf16.la \
	tests/fakes/fake_cuda/libfake_cuda_faults.la \
	tests/fakes/fake_cuda/libfake_cuda_example.la \
	libkernels_table.la libkernels_cpu.la -lm
