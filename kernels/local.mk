# SPDX-License-Identifier: BSD-3-Clause
#
# The same sources are compiled once per instruction set and type of the tensors; SRT_ISA and K_DTYPE are
# their names.
# A source that is compiled once only goes to libshardrt_core_la_SOURCES.
KERNEL_SOURCES = kernels/cpu.c

# The kernels, a family a file; kernels/all.h includes the same.
KERNEL_FAMILIES = \
	kernels/activation.k \
	kernels/attention.k \
	kernels/batchnorm.k \
	kernels/bins.k \
	kernels/columns.k \
	kernels/coo.k \
	kernels/elementwise.k \
	kernels/embedding.k \
	kernels/layernorm.k \
	kernels/matmul.k \
	kernels/optim.k \
	kernels/random.k \
	kernels/reduce.k \
	kernels/rmsnorm.k \
	kernels/rows.k \
	kernels/scaler.k \
	kernels/strided.k

# They and what they include.
KERNEL_DIALECT = \
	kernels/args.h \
	kernels/columns.h \
	kernels/dialect.h \
	kernels/half_cuda.h \
	kernels/math.h \
	kernels/window_cuda.h \
	$(KERNEL_FAMILIES)

# Tuned kernels of GPUs, for the backends that compile them.
GPU_DIALECT = \
	kernels/gpu/args.h \
	kernels/gpu/gpu.h \
	kernels/gpu/gpu_attention.k \
	kernels/gpu/gpu_matmul.k \
	kernels/gpu/slice.h

libshardrt_core_la_SOURCES += \
	$(GPU_DIALECT) \
	$(KERNEL_DIALECT) \
	kernels/all.h \
	kernels/softfma.h \
	kernels/window.h

# What launches kernels needs this of them; a backend's module has its own copy.
noinst_LTLIBRARIES += libkernels_table.la
libkernels_table_la_SOURCES = \
	kernels/kernels.def \
	kernels/launch.h \
	kernels/selftest.c \
	kernels/selftest.h \
	kernels/selftest_cases.c \
	kernels/selftest_cases.h \
	kernels/table.c \
	kernels/table.h
nodist_libkernels_table_la_SOURCES = kernels/digest.c
libshardrt_core_la_LIBADD += libkernels_table.la

# What the library and a module must have the same, or a launch means two things.
KERNEL_DIGESTED = $(KERNEL_DIALECT) kernels/kernels.def kernels/launch.h
CLEANFILES += kernels/digest.c
kernels/digest.c: $(KERNEL_DIGESTED) kernels/local.mk
	$(AM_V_GEN)$(MKDIR_P) kernels && \
		digest=`cd $(srcdir) && cat $(KERNEL_DIGESTED) | cksum | tr ' ' '-'` && \
		printf '#include "kernels/table.h"\nconst char srt_kernels_digest[] = "%s";\n' \
		"$$digest" > $@.tmp
	$(AM_V_at)mv $@.tmp $@

EXTRA_DIST += kernels/README.md

# Their CPU form, for all instruction sets and types.
noinst_LTLIBRARIES += libkernels_cpu.la
libkernels_cpu_la_SOURCES = kernels/cpu.h kernels/cpu_table.c
libkernels_cpu_la_LIBADD =
libshardrt_core_la_LIBADD += libkernels_cpu.la

noinst_LTLIBRARIES += libkernels_baseline_f32.la
libkernels_baseline_f32_la_SOURCES = $(KERNEL_SOURCES)
libkernels_baseline_f32_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=baseline -DK_DTYPE=f32
libkernels_baseline_f32_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL)
libkernels_cpu_la_LIBADD += libkernels_baseline_f32.la

noinst_LTLIBRARIES += libkernels_baseline_f16.la
libkernels_baseline_f16_la_SOURCES = $(KERNEL_SOURCES)
libkernels_baseline_f16_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=baseline -DK_DTYPE=f16
libkernels_baseline_f16_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL)
libkernels_cpu_la_LIBADD += libkernels_baseline_f16.la

noinst_LTLIBRARIES += libkernels_baseline_bf16.la
libkernels_baseline_bf16_la_SOURCES = $(KERNEL_SOURCES)
libkernels_baseline_bf16_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=baseline -DK_DTYPE=bf16
libkernels_baseline_bf16_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL)
libkernels_cpu_la_LIBADD += libkernels_baseline_bf16.la

if HAVE_AVX2
noinst_LTLIBRARIES += libkernels_avx2_f32.la
libkernels_avx2_f32_la_SOURCES = $(KERNEL_SOURCES)
libkernels_avx2_f32_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=avx2 -DK_DTYPE=f32
libkernels_avx2_f32_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL) $(SRT_CFLAGS_AVX2)
libkernels_cpu_la_LIBADD += libkernels_avx2_f32.la

noinst_LTLIBRARIES += libkernels_avx2_f16.la
libkernels_avx2_f16_la_SOURCES = $(KERNEL_SOURCES)
libkernels_avx2_f16_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=avx2 -DK_DTYPE=f16
libkernels_avx2_f16_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL) $(SRT_CFLAGS_AVX2)
libkernels_cpu_la_LIBADD += libkernels_avx2_f16.la

noinst_LTLIBRARIES += libkernels_avx2_bf16.la
libkernels_avx2_bf16_la_SOURCES = $(KERNEL_SOURCES)
libkernels_avx2_bf16_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=avx2 -DK_DTYPE=bf16
libkernels_avx2_bf16_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL) $(SRT_CFLAGS_AVX2)
libkernels_cpu_la_LIBADD += libkernels_avx2_bf16.la
endif

if HAVE_AVX512
noinst_LTLIBRARIES += libkernels_avx512_f32.la
libkernels_avx512_f32_la_SOURCES = $(KERNEL_SOURCES)
libkernels_avx512_f32_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=avx512 -DK_DTYPE=f32
libkernels_avx512_f32_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL) $(SRT_CFLAGS_AVX512)
libkernels_cpu_la_LIBADD += libkernels_avx512_f32.la

noinst_LTLIBRARIES += libkernels_avx512_f16.la
libkernels_avx512_f16_la_SOURCES = $(KERNEL_SOURCES)
libkernels_avx512_f16_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=avx512 -DK_DTYPE=f16
libkernels_avx512_f16_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL) $(SRT_CFLAGS_AVX512)
libkernels_cpu_la_LIBADD += libkernels_avx512_f16.la

noinst_LTLIBRARIES += libkernels_avx512_bf16.la
libkernels_avx512_bf16_la_SOURCES = $(KERNEL_SOURCES)
libkernels_avx512_bf16_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=avx512 -DK_DTYPE=bf16
libkernels_avx512_bf16_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL) $(SRT_CFLAGS_AVX512)
libkernels_cpu_la_LIBADD += libkernels_avx512_bf16.la
endif
