# SPDX-License-Identifier: BSD-3-Clause
#
# A libcuda that needs no GPU (fake_cuda.h), and the tests of the cuda backend over it. Built by make check, not
# installed; -rpath makes libtool build a shared object of it.
#
# The kernels' text is compiled by the C compiler, with a call at each of its accesses; not where the whole
# build has a sanitizer for threads, whose calls those would be; without vectors of the compiler's own, which need
# not be aligned as a device's are. -shared is libtool's: once, for the shared object.
FAKE_CUDA_CFLAGS = -shared -fno-sanitize=all \
	$(if $(findstring thread,$(SRT_CFLAGS_SANITIZE)),,-fsanitize=thread) \
	-fno-tree-vectorize -fno-tree-slp-vectorize \
	-Wno-unknown-pragmas -Wno-unused-parameter -Wno-unused-variable
FAKE_CUDA_TEXT = tests/fakes/fake_cuda/kernel.h tests/fakes/fake_cuda/portable.c tests/fakes/fake_cuda/shim.h \
	tests/fakes/fake_cuda/tuned.c

if HAVE_CUDA
check_LTLIBRARIES += \
	tests/fakes/fake_cuda/libfake_cuda_f32.la \
	tests/fakes/fake_cuda/libfake_cuda_f16.la \
	tests/fakes/fake_cuda/libfake_cuda_bf16.la \
	tests/fakes/fake_cuda/libfake_cuda_planted.la \
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
tests_fakes_fake_cuda_libfake_cuda_planted_la_SOURCES = tests/fakes/fake_cuda/planted.c
tests_fakes_fake_cuda_libfake_cuda_planted_la_CFLAGS = $(AM_CFLAGS) $(FAKE_CUDA_CFLAGS)

tests_fakes_fake_cuda_libfake_cuda_la_SOURCES = \
	tests/fakes/fake_cuda/access.c \
	tests/fakes/fake_cuda/copy.c \
	tests/fakes/fake_cuda/device.c \
	tests/fakes/fake_cuda/event.c \
	tests/fakes/fake_cuda/fake.h \
	tests/fakes/fake_cuda/fake_cuda.h \
	tests/fakes/fake_cuda/fiber.c \
	tests/fakes/fake_cuda/fiber.h \
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
	tests/fakes/fake_cuda/libfake_cuda_planted.la \
	libkernels_table.la libkernels_cpu.la -lm

# ---- the backend over it
TESTS += tests/device/test_cuda_driver.sh tests/device/test_cuda_tuned.sh
LONG_TESTS += tests/device/test_cuda_tuned_long.sh
EXTRA_DIST += \
	tests/device/test_cuda_driver.sh \
	tests/device/test_cuda_tuned.sh \
	tests/device/test_cuda_tuned_long.sh
if HAVE_CUDA
check_PROGRAMS += \
	tests/device/test_cuda \
	tests/device/test_cuda_calls \
	tests/fakes/test_fake_cuda
TESTS += \
	tests/device/test_cuda \
	tests/device/test_cuda_calls \
	tests/fakes/test_fake_cuda
endif
tests_device_test_cuda_calls_SOURCES = tests/device/test_cuda_calls.c tests/device/fake_cuda.h
tests_device_test_cuda_calls_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
tests_fakes_test_fake_cuda_SOURCES = tests/fakes/test_fake_cuda.c tests/device/fake_cuda.h
tests_fakes_test_fake_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
# These link the module's objects, to reach internals.
tests_device_test_cuda_SOURCES = tests/device/test_cuda.c tests/device/cuda.h tests/device/fake_cuda.h
tests_device_test_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
tests_device_test_cuda_LDADD = libcuda_backend.la $(SRT_CORE)
