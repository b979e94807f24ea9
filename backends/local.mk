# SPDX-License-Identifier: BSD-3-Clause
#
# A backend that is a module has its folder's own local.mk, which adds to pkglib_LTLIBRARIES.
libshardrt_core_la_SOURCES += \
	backends/cpu/backend.c \
	backends/cpu/cpu.h \
	backends/cpu/device.c \
	backends/cpu/attention.c \
	backends/cpu/attention.h \
	backends/cpu/attention_backward.c \
	backends/cpu/attention_parts.h \
	backends/cpu/gemm_half.h \
	backends/cpu/gemm_rows.h \
	backends/cpu/gemm_tile.h \
	backends/cpu/gemm_vector.h \
	backends/cpu/matmul.c \
	backends/cpu/matmul.h \
	backends/cpu/matmul_pack.h \
	backends/cpu/matmul_span.h \
	backends/cpu/memory.c \
	backends/cpu/onednn.c \
	backends/cpu/onednn.h \
	backends/cpu/pack.h \
	backends/cpu/pool.c \
	backends/cpu/pool.h \
	backends/cpu/stream.c \
	backends/cpu/topology.c \
	backends/cpu/tuned.c \
	backends/cpu/tuned.h \
	backends/cpu/tuned_attention.c \
	backends/cpu/work.c

# Modules may carry their own copy of this one.
noinst_LTLIBRARIES += libhostmem.la
libhostmem_la_SOURCES = backends/common/host_memory.c backends/common/host_memory.h
libshardrt_core_la_LIBADD += libhostmem.la

# Scratch of a stream. Modules carry their own copy.
noinst_LTLIBRARIES += libscratch.la
libscratch_la_SOURCES = backends/common/scratch.c backends/common/scratch.h
libshardrt_core_la_LIBADD += libscratch.la

# The self-test of a device. Modules carry their own copy.
noinst_LTLIBRARIES += libselftest.la
libselftest_la_SOURCES = backends/common/selftest.c backends/common/selftest.h backends/common/selftest_tuned.c
libshardrt_core_la_LIBADD += libselftest.la

# Choosing a device, for modules whose drivers list several.
noinst_LTLIBRARIES += libchoose.la
libchoose_la_SOURCES = backends/common/choose.c backends/common/choose.h

# The tuned operations of the modules of GPUs.
noinst_LTLIBRARIES += libgpu.la
libgpu_la_SOURCES = \
	backends/gpu/attention.c \
	backends/gpu/gpu.h \
	backends/gpu/matmul.c

# The tuned matrix product, in the libraries of kernels/local.mk.
libisa_baseline_la_SOURCES += backends/cpu/gemm_baseline.c
libisa_avx2_la_SOURCES += backends/cpu/gemm_avx2.c
libisa_avx512_la_SOURCES += backends/cpu/gemm_avx512.c
libisa_neon_la_SOURCES += backends/cpu/gemm_neon.c

include $(top_srcdir)/backends/opencl/local.mk
include $(top_srcdir)/backends/cuda/local.mk
