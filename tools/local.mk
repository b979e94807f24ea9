# SPDX-License-Identifier: BSD-3-Clause
noinst_LIBRARIES += libtools.a
libtools_a_SOURCES = \
	tools/checkpoint_path.c \
	tools/checkpoint_path.h \
	tools/common.c \
	tools/common.h \
	tools/descriptors.c \
	tools/descriptors.h \
	tools/lora.c \
	tools/lora.h \
	tools/mesh.c \
	tools/mesh.h \
	tools/model_folder.c \
	tools/model_folder.h \
	tools/model_sizes.c \
	tools/model_sizes.h \
	tools/model_source.c \
	tools/model_source.h \
	tools/option_table.c \
	tools/option_table.h \
	tools/peak.c \
	tools/peak.h \
	tools/precision.c \
	tools/precision.h \
	tools/prompt.c \
	tools/prompt.h \
	tools/ranks.c \
	tools/ranks.h \
	tools/why.c \
	tools/why.h

# The launcher needs no library: it works whatever the library does.
bin_PROGRAMS += shardrun
shardrun_SOURCES = \
	tools/shardrun/shardrun.c \
	tools/shardrun/child.c \
	tools/shardrun/child.h \
	tools/shardrun/guard.c \
	tools/shardrun/guard.h \
	tools/shardrun/hosts.c \
	tools/shardrun/hosts.h \
	tools/shardrun/job.c \
	tools/shardrun/job.h \
	tools/shardrun/options.c \
	tools/shardrun/options.h \
	tools/shardrun/output.c \
	tools/shardrun/output.h \
	tools/shardrun/restart.c \
	tools/shardrun/restart.h \
	tools/shardrun/setup.c \
	tools/shardrun/setup.h \
	tools/shardrun/writer.c \
	tools/shardrun/writer.h \
	tools/descriptors.c \
	tools/descriptors.h \
	base/clock.c \
	base/clock.h \
	collectives/bootstrap/rendezvous.c \
	collectives/bootstrap/rendezvous.h \
	collectives/bootstrap/server.c \
	collectives/bootstrap/server.h \
	collectives/bootstrap/wire.c
shardrun_CPPFLAGS = $(AM_CPPFLAGS) # its own objects: the library's are position independent
shardrun_LDADD = # not the tests' default

# The others find the library in the build folder, or in the tree that they are installed in, which may be moved if both
# folders are in exec_prefix.
srt_moves = $(and $(filter $(exec_prefix)/%,$(libdir)),$(filter $(exec_prefix)/bin,$(bindir)))
SRT_TOOL_RPATH = -Wl,-rpath,'$$ORIGIN/.libs:$(if $(srt_moves),$$ORIGIN/../$(srt_libdir_name),$(libdir))'

bin_PROGRAMS += shardrt-info
shardrt_info_SOURCES = \
	tools/info/info.c \
	tools/info/info.h \
	tools/info/backends.c \
	tools/info/bench.c \
	tools/info/bench.h \
	tools/info/bench_collectives.c \
	tools/info/bench_hints.c \
	tools/info/bench_products.c \
	tools/info/bench_step.c \
	tools/info/config.c \
	tools/info/features.c \
	tools/info/flight.c \
	tools/info/flight.h \
	tools/info/flight_read.c \
	tools/info/flight_report.c \
	tools/info/flight_report.h \
	tools/info/flight_waits.c \
	tools/info/plan.c \
	tools/info/topology.c
shardrt_info_LDFLAGS = $(AM_LDFLAGS) $(SRT_TOOL_RPATH)
shardrt_info_LDADD = libtools.a libmodels.la $(PEAK_LIBS) $(SRT_LIB) $(SRT_PKG_LIBS) -lm

# Asks drivers for their devices, for the library, which finds it with the modules.
srtprobedir = $(pkglibdir)
srtprobe_PROGRAMS = shardrt-probe
shardrt_probe_SOURCES = tools/descriptors.c tools/descriptors.h tools/probe/probe.c
shardrt_probe_CPPFLAGS = $(AM_CPPFLAGS)
shardrt_probe_LDFLAGS = $(AM_LDFLAGS) -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN'
shardrt_probe_LDADD = $(SRT_LIB)

bin_PROGRAMS += shardrt-ckpt
shardrt_ckpt_SOURCES = \
	tools/ckpt/ckpt.c \
	tools/ckpt/ckpt.h \
	tools/ckpt/convert.c \
	tools/ckpt/diff.c \
	tools/ckpt/files.c \
	tools/ckpt/gguf.c \
	tools/ckpt/merge.c \
	tools/ckpt/merge_lora.c \
	tools/ckpt/verify.c
shardrt_ckpt_LDFLAGS = $(AM_LDFLAGS) $(SRT_TOOL_RPATH)
shardrt_ckpt_LDADD = libtools.a libmodels.la $(SRT_LIB) -lm

bin_PROGRAMS += shardrt-generate
shardrt_generate_SOURCES = \
	tools/generate/generate.c \
	tools/generate/generate.h \
	tools/generate/eos.c \
	tools/generate/options.c \
	tools/generate/options.h \
	tools/generate/output.c \
	tools/generate/prompts.c \
	tools/generate/setup.c \
	tools/generate/text.c
shardrt_generate_LDFLAGS = $(AM_LDFLAGS) $(SRT_TOOL_RPATH)
shardrt_generate_LDADD = libtools.a libmodels.la $(SRT_LIB) $(SRT_PKG_LIBS) -lm

bin_PROGRAMS += shardrt-tokens
shardrt_tokens_SOURCES = tools/tokens/tokens.c
shardrt_tokens_LDFLAGS = $(AM_LDFLAGS) $(SRT_TOOL_RPATH)
shardrt_tokens_LDADD = libtools.a libmodels.la $(SRT_LIB) -lm

bin_PROGRAMS += shardrt-train
shardrt_train_SOURCES = \
	tools/train/train.c \
	tools/train/train.h \
	tools/train/checkpoint.c \
	tools/train/checkpoint.h \
	tools/train/data.c \
	tools/train/data.h \
	tools/train/engine_options.c \
	tools/train/folder.c \
	tools/train/generate.c \
	tools/train/init.c \
	tools/train/options.c \
	tools/train/options.h \
	tools/train/options_check.c \
	tools/train/options_internal.h \
	tools/train/options_table.c \
	tools/train/report.c \
	tools/train/resume.c \
	tools/train/save.c \
	tools/train/save_folder.c \
	tools/train/saves.c \
	tools/train/setup.c \
	tools/train/sft.c \
	tools/train/sft_show.c \
	tools/train/sft_tokens.c \
	tools/train/steps.c \
	tools/train/text.c
shardrt_train_LDFLAGS = $(AM_LDFLAGS) $(SRT_TOOL_RPATH)
shardrt_train_LDADD = libtools.a libmodels.la $(PEAK_LIBS) $(SRT_LIB) -lm

# The peak speed is measured by code that is compiled for each instruction set, as kernels are.
PEAK_LIBS =
if HAVE_X86_64
PEAK_LIBS += libpeak_baseline.la
endif
if HAVE_AVX2
PEAK_LIBS += libpeak_avx2.la
endif
if HAVE_AVX512
PEAK_LIBS += libpeak_avx512.la
endif
if HAVE_NEON
PEAK_LIBS += libpeak_neon.la
endif
noinst_LTLIBRARIES += $(PEAK_LIBS)
libpeak_baseline_la_SOURCES = tools/peak_fma.c
libpeak_baseline_la_CPPFLAGS = $(libisa_baseline_la_CPPFLAGS)
libpeak_baseline_la_CFLAGS = $(libisa_baseline_la_CFLAGS)
libpeak_avx2_la_SOURCES = tools/peak_fma.c
libpeak_avx2_la_CPPFLAGS = $(libisa_avx2_la_CPPFLAGS)
libpeak_avx2_la_CFLAGS = $(libisa_avx2_la_CFLAGS)
libpeak_avx512_la_SOURCES = tools/peak_fma.c
libpeak_avx512_la_CPPFLAGS = $(libisa_avx512_la_CPPFLAGS)
libpeak_avx512_la_CFLAGS = $(libisa_avx512_la_CFLAGS)
libpeak_neon_la_SOURCES = tools/peak_fma.c
libpeak_neon_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_ISA=neon
libpeak_neon_la_CFLAGS = $(libisa_neon_la_CFLAGS)

# Run from the sources: packs a build for a machine with a GPU, and runs there.
EXTRA_DIST += \
	tools/gpu-check/gpu-check \
	tools/gpu-check/gpu_check_launches.py \
	tools/gpu-check/gpu_check_machine.py \
	tools/gpu-check/gpu_check_pack.py \
	tools/gpu-check/gpu_check_plan.py
# Built by name: `make launches.la`.
EXTRA_LTLIBRARIES =
if HAVE_CUPTI
EXTRA_LTLIBRARIES += launches.la
endif
CLEANFILES += launches.la
launches_la_SOURCES = tools/gpu-check/launches.c
launches_la_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
launches_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
launches_la_LDFLAGS = $(AM_LDFLAGS) -module -shared -avoid-version -rpath $(pkglibdir)
launches_la_LIBADD = -ldl

dist_man_MANS = tools/ckpt/shardrt-ckpt.1 tools/generate/shardrt-generate.1 tools/info/shardrt-info.1 tools/shardrun/shardrun.1 \
	tools/tokens/shardrt-tokens.1 tools/train/shardrt-train.1
