# SPDX-License-Identifier: BSD-3-Clause
device_threads = \
	tests/device/test_device \
	tests/device/test_threads
device_threads_any = \
	tests/device/test_enqueue \
	tests/device/test_host \
	tests/device/test_streams
PROGRAM_TESTS += \
	$(device_threads) \
	tests/device/test_fake \
	tests/device/test_module \
	tests/device/test_probe
DEVICE_PROGRAM_TESTS += $(device_threads_any) tests/device/test_buffers tests/device/test_native
THREAD_TESTS += $(device_threads) $(device_threads_any)
SCRIPT_TESTS += \
	tests/device/test_cuda_driver.sh \
	tests/device/test_cuda_tuned.sh \
	tests/device/test_opencl.sh
RESULT_TESTS += \
	tests/device/test_cuda_calls_of_step.sh \
	tests/device/test_cuda_resources.sh
EXTRA_DIST += \
	tests/device/cuda_calls_of_step.def \
	tests/device/cuda_resources.def
LONG_TESTS += \
	tests/device/test_cuda_tuned_long.sh \
	tests/device/test_oclgrind.sh \
	tests/device/test_opencl_intel.sh

# The tables of test_cuda_calls_of_step.sh and test_cuda_resources.sh, from this build.
.PHONY: update-cuda-tables
update-cuda-tables: all $(check_LTLIBRARIES)
	srcdir='$(srcdir)' $(SHELL) $(srcdir)/tests/device/test_cuda_calls_of_step.sh update
	srcdir='$(srcdir)' $(SHELL) $(srcdir)/tests/device/test_cuda_resources.sh update

# ---- native handles, with work of the program in each driver's interface
NATIVE_TEST_SOURCES = tests/device/native_work.c tests/device/native_work.h
NATIVE_TEST_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_OPENCL_CFLAGS) $(SRT_CUDA_CFLAGS)
tests_device_test_enqueue_SOURCES = tests/device/test_enqueue.c $(NATIVE_TEST_SOURCES)
tests_device_test_enqueue_CPPFLAGS = $(NATIVE_TEST_CPPFLAGS)
tests_device_test_enqueue_LDADD = $(LDADD) $(SRT_OPENCL_LIBS)
tests_device_test_native_SOURCES = tests/device/test_native.c $(NATIVE_TEST_SOURCES)
tests_device_test_native_CPPFLAGS = $(NATIVE_TEST_CPPFLAGS)
tests_device_test_native_LDADD = $(LDADD) $(SRT_OPENCL_LIBS)

# ---- the OpenCL backend; test_opencl.sh runs these, which link the backend's objects to reach internals
if HAVE_OPENCL
check_PROGRAMS += tests/device/test_opencl tests/device/test_opencl_work
endif
OPENCL_TEST_LIBS = libopencl_backend.la $(LDADD) $(SRT_OPENCL_LIBS)
tests_device_test_opencl_SOURCES = tests/device/test_opencl.c tests/device/opencl.h
tests_device_test_opencl_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_OPENCL_CFLAGS)
tests_device_test_opencl_LDADD = $(OPENCL_TEST_LIBS)
tests_device_test_opencl_work_SOURCES = tests/device/test_opencl_work.c tests/device/opencl.h
tests_device_test_opencl_work_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_OPENCL_CFLAGS)
tests_device_test_opencl_work_LDADD = $(OPENCL_TEST_LIBS)

# ---- the CUDA backend over the fake driver; test_cuda links the backend's objects
if HAVE_CUDA
PROGRAM_TESTS += \
	tests/device/test_cuda \
	tests/device/test_cuda_calls \
	tests/device/test_cuda_fast_attention \
	tests/device/test_cuda_fast_calls \
	tests/device/test_cuda_fast_products \
	tests/device/test_cuda_tiles
libfixtures_a_SOURCES += tests/device/cuda_fast.c tests/device/cuda_fast.h
endif
CUDA_TEST_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
tests_device_test_cuda_CPPFLAGS = $(CUDA_TEST_CPPFLAGS)
tests_device_test_cuda_LDADD = libcuda_backend.la $(LDADD)
tests_device_test_cuda_calls_CPPFLAGS = $(CUDA_TEST_CPPFLAGS)
tests_device_test_cuda_fast_attention_CPPFLAGS = $(CUDA_TEST_CPPFLAGS)
tests_device_test_cuda_fast_calls_CPPFLAGS = $(CUDA_TEST_CPPFLAGS)
tests_device_test_cuda_fast_products_CPPFLAGS = $(CUDA_TEST_CPPFLAGS)
tests_device_test_cuda_tiles_SOURCES = \
	tests/device/test_cuda_tiles.c \
	tests/kernels/tuned_attention.c \
	tests/kernels/tuned_matmul.c \
	tests/kernels/tuned_tensor.c tests/kernels/tuned_tensor.h
tests_device_test_cuda_tiles_CPPFLAGS = $(CUDA_TEST_CPPFLAGS)
tests_device_test_module_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=glob
tests_device_test_module_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_LIBDIR_NAME='"$(srt_libdir_name)"'
tests_device_test_probe_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=glob
