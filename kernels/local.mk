# SPDX-License-Identifier: BSD-3-Clause
#
# What is compiled once per instruction set goes to the libraries libisa_*.la, all else to libshardrt_core.la.

# The kernels, a family a file; kernels/all.h includes the same.
KERNEL_FAMILIES = \
	kernels/activation.k \
	kernels/adam8.k \
	kernels/attention.k \
	kernels/batchnorm.k \
	kernels/bins.k \
	kernels/columns.k \
	kernels/coo.k \
	kernels/elementwise.k \
	kernels/embedding.k \
	kernels/glu.k \
	kernels/layernorm.k \
	kernels/matmul.k \
	kernels/optim.k \
	kernels/quantize.k \
	kernels/random.k \
	kernels/reduce.k \
	kernels/rmsnorm.k \
	kernels/rotary.k \
	kernels/rows.k \
	kernels/scaler.k \
	kernels/strided.k

# They and what they include.
KERNEL_DIALECT = \
	kernels/args.h \
	kernels/dialect/activation.h \
	kernels/dialect/adam.h \
	kernels/dialect/codes.h \
	kernels/dialect/columns.h \
	kernels/dialect/cuda.h \
	kernels/dialect/dialect.h \
	kernels/dialect/form.h \
	kernels/dialect/half_cuda.h \
	kernels/dialect/math.h \
	kernels/dialect/opencl.h \
	kernels/dialect/window_cuda.h \
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
	kernels/dialect/c11.h \
	kernels/dialect/softfma.h \
	kernels/dialect/window.h \
	kernels/step_info.c \
	kernels/step_info.h

# What launches kernels needs this of them; a backend's module has its own copy.
noinst_LTLIBRARIES += libkernels_table.la
libkernels_table_la_SOURCES = \
	kernels/cases/case_places.c \
	kernels/cases/cases.c \
	kernels/cases/cases.def \
	kernels/cases/cases.h \
	kernels/cases/digests.def \
	kernels/cases/selftest.c \
	kernels/cases/selftest.h \
	kernels/command.h \
	kernels/kernels.def \
	kernels/table.c \
	kernels/table.h
nodist_libkernels_table_la_SOURCES = kernels/digest.c
libshardrt_core_la_LIBADD += libkernels_table.la

# What the library and a module must have the same, or a launch means two things.
KERNEL_DIGESTED = $(KERNEL_DIALECT) kernels/kernels.def kernels/command.h
CLEANFILES += kernels/digest.c
kernels/digest.c: $(KERNEL_DIGESTED) kernels/local.mk
	$(AM_V_GEN)$(MKDIR_P) kernels && \
		digest=`cd $(srcdir) && cat $(KERNEL_DIGESTED) | cksum | tr ' ' '-'` && \
		printf '#include "kernels/table.h"\nconst char srt_kernels_digest[] = "%s";\n' \
		"$$digest" > $@.tmp
	$(AM_V_at)mv $@.tmp $@

EXTRA_DIST += kernels/README.md

# Their CPU form, for all instruction sets and types.
noinst_LTLIBRARIES += libkernels_cpu.la $(ISA_LIBS)
libkernels_cpu_la_SOURCES = kernels/cpu.h kernels/cpu_table.c
libkernels_cpu_la_LIBADD = $(ISA_LIBS)
libshardrt_core_la_LIBADD += libkernels_cpu.la

ISA_LIBS = libisa_baseline.la
if HAVE_AVX2
ISA_LIBS += libisa_avx2.la
endif
if HAVE_AVX512
ISA_LIBS += libisa_avx512.la
endif
if HAVE_NEON
ISA_LIBS += libisa_neon.la
endif

# One library for each instruction set, SRT_ISA: the kernels of each type of the tensors, and the tuned matrix product.
KERNEL_SOURCES = kernels/cpu_f32.c kernels/cpu_f16.c kernels/cpu_bf16.c
EXTRA_DIST += kernels/cpu.c # which these include
libisa_baseline_la_SOURCES = $(KERNEL_SOURCES)
libisa_baseline_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=baseline
libisa_baseline_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL_FRAME) $(SRT_CFLAGS_KERNEL)

libisa_avx2_la_SOURCES = $(KERNEL_SOURCES)
libisa_avx2_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=avx2
libisa_avx2_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL_FRAME) $(SRT_CFLAGS_KERNEL) $(SRT_CFLAGS_AVX2)

libisa_avx512_la_SOURCES = $(KERNEL_SOURCES)
libisa_avx512_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=avx512
libisa_avx512_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL_FRAME) $(SRT_CFLAGS_KERNEL) $(SRT_CFLAGS_AVX512)

# The matrix product alone: what the compiler makes of the kernels for baseline is NEON.
libisa_neon_la_SOURCES =
libisa_neon_la_CFLAGS = $(AM_CFLAGS) $(SRT_CFLAGS_KERNEL_FRAME) $(SRT_CFLAGS_KERNEL) $(SRT_CFLAGS_NEON)
