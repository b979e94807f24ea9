# SPDX-License-Identifier: BSD-3-Clause
#
# libopencl_backend.la (not installed) holds the backend's objects: its tests link it to reach
# internals. The module has the same objects and those of the library that it needs.
#
# The kernels' texts: KERNEL_FAMILIES of kernels/, and OPENCL_TEXTS, which only this backend has.
OPENCL_TEXTS = \
	backends/opencl/attention_vector.cl \
	backends/opencl/matmul_vector.cl
# Those of backends/gpu.
OPENCL_GPU_KERNELS = \
	kernels/gpu/gpu_attention.k \
	kernels/gpu/gpu_matmul.k
# The files that these include.
OPENCL_INCLUDED = \
	backends/opencl/tuned_args.h \
	backends/opencl/vector_tile.cl
EXTRA_DIST += $(OPENCL_TEXTS) $(OPENCL_INCLUDED) kernels/embed.awk

if HAVE_OPENCL
noinst_LTLIBRARIES += libopencl_backend.la
pkglib_LTLIBRARIES += shardrt_backend_opencl.la
endif
libopencl_backend_la_SOURCES = \
	backends/opencl/attention.c \
	backends/opencl/backend.c \
	backends/opencl/cache.c \
	backends/opencl/device.c \
	backends/opencl/environment.c \
	backends/opencl/error.c \
	backends/opencl/launch.c \
	backends/opencl/list.c \
	backends/opencl/matmul.c \
	backends/opencl/memory.c \
	backends/opencl/native.c \
	backends/opencl/opencl.h \
	backends/opencl/peer.c \
	backends/opencl/probe.c \
	backends/opencl/program.c \
	backends/opencl/source.h \
	backends/opencl/stream.c \
	backends/opencl/tuned.c \
	backends/opencl/tuned.h \
	backends/opencl/work.c
nodist_libopencl_backend_la_SOURCES = backends/opencl/source.c
libopencl_backend_la_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_OPENCL_CFLAGS)
libopencl_backend_la_LIBADD = libchoose.la libgpu.la libscratch.la libselftest.la

shardrt_backend_opencl_la_SOURCES =
shardrt_backend_opencl_la_LDFLAGS = $(SRT_MODULE_LDFLAGS)
shardrt_backend_opencl_la_LIBADD = libopencl_backend.la libkernels_table.la libhostmem.la \
	$(SRT_OPENCL_LIBS)

CLEANFILES += backends/opencl/source.c
backends/opencl/source.c: kernels/embed.awk $(KERNEL_DIALECT) $(GPU_DIALECT) $(OPENCL_TEXTS) $(OPENCL_INCLUDED)
	$(AM_V_GEN)$(MKDIR_P) backends/opencl && cd $(srcdir) && \
		$(AWK) -v header=backends/opencl/source.h -v prefix=srt_ocl -f kernels/embed.awk \
		$(KERNEL_FAMILIES) $(OPENCL_GPU_KERNELS) $(OPENCL_TEXTS) > $(abs_builddir)/$@.tmp
	$(AM_V_at)mv $@.tmp $@
