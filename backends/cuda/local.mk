# SPDX-License-Identifier: BSD-3-Clause
#
# libcuda_backend.la (not installed) holds the backend's objects: its tests link it to reach
# internals. The module has the same objects and those of the library that it needs.
#
# nvcc compiles the kernels, one fatbin a unit and type of the tensors (UNIT_DTYPE.fatbin of UNIT.cu), embedded by
# images.c. A further unit is its names in CUDA_FATBINS, a line of prerequisites and a row of images.c. What ptxas
# reports of each kernel is kept in UNIT_DTYPE.ptxas for tests/device/test_cuda_resources.sh, and the PTX of the last
# architecture in UNIT_DTYPE.ptx for tests/policy/test_dialect.sh.
CUDA_FATBINS = \
	backends/cuda/portable_f32.fatbin \
	backends/cuda/portable_f16.fatbin \
	backends/cuda/portable_bf16.fatbin \
	backends/cuda/tuned_f32.fatbin \
	backends/cuda/tuned_f16.fatbin \
	backends/cuda/tuned_bf16.fatbin
# Device code of this backend only.
CUDA_UNITS = backends/cuda/portable.cu backends/cuda/tuned.cu
CUDA_FAST_ATTENTION = backends/cuda/fast_attention.h backends/cuda/warp.h
EXTRA_DIST += $(CUDA_UNITS) $(CUDA_FAST_ATTENTION)

if HAVE_CUDA
noinst_LTLIBRARIES += libcuda_backend.la libcuda_images.la
pkglib_LTLIBRARIES += shardrt_backend_cuda.la
endif
libcuda_backend_la_SOURCES = \
	backends/cuda/backend.c \
	backends/cuda/context.c \
	backends/cuda/cublaslt.c \
	backends/cuda/cublaslt.h \
	backends/cuda/cuda.h \
	backends/cuda/device.c \
	backends/cuda/driver.c \
	backends/cuda/driver.h \
	backends/cuda/fast.c \
	backends/cuda/fast.h \
	backends/cuda/fast_algorithm.c \
	backends/cuda/fast_attention.c \
	backends/cuda/fast_product.h \
	backends/cuda/kernels.c \
	backends/cuda/launch.c \
	backends/cuda/library.c \
	backends/cuda/library.h \
	backends/cuda/list.c \
	backends/cuda/memory.c \
	backends/cuda/stream.c \
	backends/cuda/tuned.c \
	backends/cuda/work.c
libcuda_backend_la_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS) -DSRT_CUDA_ARCH='"$(SRT_CUDA_ARCH)"'
if HAVE_NCCL
libcuda_backend_la_CPPFLAGS += -DSRT_WITH_NCCL
endif
libcuda_backend_la_LIBADD = $(CUDA_NCCL) libchoose.la libcuda_images.la libgpu.la libscratch.la libselftest.la

shardrt_backend_cuda_la_SOURCES =
shardrt_backend_cuda_la_LDFLAGS = $(SRT_MODULE_LDFLAGS)
shardrt_backend_cuda_la_LIBADD = libcuda_backend.la libkernels_table.la libhostmem.la

# Part of the module, where NCCL's header is.
if HAVE_NCCL
noinst_LTLIBRARIES += libnccl_comm.la
CUDA_NCCL = libnccl_comm.la
endif
libnccl_comm_la_SOURCES = \
	backends/cuda/nccl_comm.c \
	backends/cuda/nccl_library.c \
	backends/cuda/nccl_library.h
libnccl_comm_la_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_NCCL_CFLAGS) $(SRT_CUDA_CFLAGS)

# Its one object contains the fatbins, which .incbin finds from the top of the build.
libcuda_images_la_SOURCES = backends/cuda/images.c backends/cuda/images.h
$(libcuda_images_la_OBJECTS): $(CUDA_FATBINS)

CLEANFILES += $(CUDA_FATBINS) $(CUDA_FATBINS:.fatbin=.ptxas) $(CUDA_FATBINS:.fatbin=.ptx)
SRT_NVCC = $(NVCC) $(SRT_NVCC_FLAGS) $(NVCCFLAGS) -I$(top_srcdir) -I$(top_srcdir)/include
SRT_AM_V_NVCC = $(srt__v_NVCC_$(V))
srt__v_NVCC_ = $(srt__v_NVCC_$(AM_DEFAULT_VERBOSITY))
srt__v_NVCC_0 = @echo "  NVCC    " $@;
srt__v_NVCC_1 =

$(CUDA_FATBINS):
	$(SRT_AM_V_NVCC)$(MKDIR_P) $@.dir && name=$(@F:.fatbin=) && report=$(@:.fatbin=.ptxas) && \
		$(NVCC) --version > $$report && \
		{ $(SRT_NVCC) -Xptxas -v --keep --keep-dir $@.dir -DK_DTYPE=$${name##*_} -o $@.tmp \
			$(top_srcdir)/backends/cuda/$${name%_*}.cu 2>> $$report || { cat $$report >&2; exit 1; }; }
	$(AM_V_at)grep warning $(@:.fatbin=.ptxas) >&2; mv "$$(ls $@.dir/*.ptx | tail -n 1)" $(@:.fatbin=.ptx) && \
		rm -rf $@.dir && mv $@.tmp $@
$(filter backends/cuda/portable_%,$(CUDA_FATBINS)): backends/cuda/portable.cu kernels/all.h $(KERNEL_DIALECT)
$(filter backends/cuda/tuned_%,$(CUDA_FATBINS)): backends/cuda/tuned.cu $(CUDA_FAST_ATTENTION) $(GPU_DIALECT) $(KERNEL_DIALECT)
