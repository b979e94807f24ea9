# SPDX-License-Identifier: BSD-3-Clause
#
# A libcublasLt over the fake driver (fake_cublaslt.h), and what is tested with it. Built by make check,
# not installed; -rpath makes libtool build a shared object of it.
if HAVE_CUDA
check_LTLIBRARIES += tests/fakes/fake_cublaslt/libfake_cublaslt.la
check_PROGRAMS += \
	tests/device/test_cuda_fast_attention \
	tests/device/test_cuda_fast_calls \
	tests/device/test_cuda_fast_products
TESTS += \
	tests/device/test_cuda_fast_attention \
	tests/device/test_cuda_fast_calls \
	tests/device/test_cuda_fast_products
endif
tests_fakes_fake_cublaslt_libfake_cublaslt_la_SOURCES = \
	tests/fakes/fake_cublaslt/fake.h \
	tests/fakes/fake_cublaslt/fake_cublaslt.c \
	tests/fakes/fake_cublaslt/fake_cublaslt.h \
	tests/fakes/fake_cublaslt/product.c
tests_fakes_fake_cublaslt_libfake_cublaslt_la_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
# cuBLASLt's functions are to be seen; its header does not say so.
tests_fakes_fake_cublaslt_libfake_cublaslt_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_fakes_fake_cublaslt_libfake_cublaslt_la_LDFLAGS = $(AM_LDFLAGS) -module -shared -avoid-version \
	-rpath $(pkglibdir) -export-symbols-regex '^(cublasLt|fake_cublaslt_api)'
tests_fakes_fake_cublaslt_libfake_cublaslt_la_LIBADD = -lm

tests_device_test_cuda_fast_attention_SOURCES = \
	tests/device/test_cuda_fast_attention.c tests/device/fake_cublaslt.h tests/device/fake_cuda.h tests/harness/half.h tests/harness/random.h
tests_device_test_cuda_fast_attention_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
tests_device_test_cuda_fast_attention_LDADD = $(SRT_CORE) -lm
CUDA_FAST = tests/device/cuda_fast.h tests/device/fake_cublaslt.h tests/device/fake_cuda.h tests/harness/half.h tests/harness/random.h
tests_device_test_cuda_fast_calls_SOURCES = tests/device/test_cuda_fast_calls.c $(CUDA_FAST)
tests_device_test_cuda_fast_calls_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
tests_device_test_cuda_fast_calls_LDADD = $(SRT_CORE) -lm
tests_device_test_cuda_fast_products_SOURCES = tests/device/test_cuda_fast_products.c $(CUDA_FAST)
tests_device_test_cuda_fast_products_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
tests_device_test_cuda_fast_products_LDADD = $(SRT_CORE) -lm
